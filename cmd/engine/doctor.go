// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
)

func doctorCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "compares the log, the cursors and the jobs, and explains what is wrong",
		Long: `doctor reads the whole log and says whether every event that a consumer has passed has its jobs exactly once:
holes in the log, a counter behind it, a cursor above the head, events that lack jobs, jobs that are there
twice, jobs of no event or of an epoch before a restore, and events that retention removed too early. Each
finding says what to do.

It works as database.url while the engine runs, changes nothing and holds no long snapshot. What it cannot
prove, it says: a query may give others now than it did then, a handler is not called, since it may write, and
River deletes finished jobs after a day. Such findings are notes.

It exits with 0 when nothing is wrong, and with 1 when something is.`,
		Example: `  engine doctor
  engine doctor --consumer push --from 120000
  engine doctor --format json | jq '.findings[] | select(.severity == "wrong")'`,
		Args: arguments(),
	}
	path, format := configFlag(cmd), formatFlag(cmd)
	var o engine.DoctorOptions
	cmd.Flags().StringVar(&o.Consumer, "consumer", "", "examine only the consumer `NAME`")
	cmd.Flags().Int64Var(&o.From, "from", 0, "leave out events below `SEQ`")
	cmd.Flags().DurationVar(&o.Timeout, "timeout", 30*time.Second, "the longest that one statement may run; then less is compared at a time")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case o.From < 0:
			return usagef("--from is %d: write the number of an event, from 1", o.From)
		case o.Timeout <= 0:
			return usagef("--timeout is %v: write a duration above 0, such as 30s", o.Timeout)
		}
		if err := checkFormat(*format); err != nil {
			return err
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		o.Progress = doctorProgress(cmd.ErrOrStderr(), time.Now)
		found, err := engine.Doctor(cmd.Context(), cfg, o)
		if err != nil {
			return err
		}
		if *format == "json" {
			err = printJSON(cmd.OutOrStdout(), found)
		} else {
			err = printDiagnosis(cmd.OutOrStdout(), found)
		}
		if err == nil && !found.Healthy {
			err = errReported
		}
		return err
	}
	return cmd
}

// progressInterval is how often the doctor says how far it is. What is done sooner says nothing.
const progressInterval = 2 * time.Second

func doctorProgress(to io.Writer, now func() time.Time) func(done, total int64) {
	last := now()
	return func(done, total int64) {
		if done < total && now().Sub(last) >= progressInterval {
			last = now()
			fmt.Fprintf(to, "%d of %s compared (%d%%)\n", done, count(total, "event"), done*100/total)
		}
	}
}

// printDiagnosis prints a diagnosis for people.
func printDiagnosis(to io.Writer, d engine.Diagnosis) error {
	if d.Epoch != "" {
		log := fmt.Sprintf("events %d to %d", d.Floor, d.Head)
		if d.Floor == 0 {
			log = fmt.Sprintf("no events, and its head is %d", d.Head)
		}
		fmt.Fprintf(to, "the log holds %s; the epoch is %s\n\n", log, d.Epoch)
	}
	if len(d.Consumers) > 0 {
		table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "CONSUMER\tCURSOR\tEVENTS COMPARED\tJOBS\tMISSING\tDOUBLED\tEXTRA")
		for _, c := range d.Consumers {
			cursor := "-"
			if c.Cursor != nil {
				cursor = strconv.FormatInt(*c.Cursor, 10)
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\n", c.Consumer, cursor, c.Events, c.Found, c.Missing, c.Doubled, c.Extra)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(to)
	}
	wrong := 0
	for _, f := range d.Findings {
		about := f.Consumer
		if about == "" {
			about = "the log"
		}
		fmt.Fprintf(to, "%s  %s: %s [%s]\n", f.Severity, about, f.What, f.Code)
		if f.Do != "" {
			fmt.Fprintf(to, "       do: %s\n", f.Do)
		}
		if f.Severity == engine.SeverityWrong {
			wrong++
		}
	}
	if len(d.Findings) > 0 {
		fmt.Fprintln(to)
	}
	summary := "healthy: nothing is wrong"
	if wrong > 0 {
		summary = "not healthy: " + count(wrong, "finding") + " to see to"
	}
	_, err := fmt.Fprintln(to, summary)
	return err
}
