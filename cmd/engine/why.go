// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
)

func whyCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why SEQ",
		Short: "says who got jobs of an event, and why others did not",
		Long: `why looks up the event with the number SEQ and prints, for each declared consumer, the jobs that it made of the
event or the reason why there are none: its types do not match, its rule gave nobody, it has not reached the
event yet (and what it would create), it began later, retention removed the event first, or its jobs are gone.

It works as database.url and changes nothing: query rules run read only, and handlers are not called, since
they may write. Jobs of an epoch before a restore are shown as such. The payload is printed only on request.

It exits with 0 when the log holds the event, and with 1 when it does not or when jobs that should be there
are missing and nothing explains it.`,
		Example: `  engine why 4711
  engine why 4711 --consumer push --all
  engine why 4711 --format json | jq '.consumers[] | {consumer, verdict}'`,
		Args: arguments("SEQ"),
	}
	path, format := configFlag(cmd), formatFlag(cmd)
	var o engine.WhyOptions
	cmd.Flags().StringVar(&o.Consumer, "consumer", "", "explain only the consumer `NAME`")
	cmd.Flags().BoolVar(&o.All, "all", false, "list every job and recipient of a consumer, not only the first 10")
	cmd.Flags().BoolVar(&o.Payload, "payload", false, "print the payload of the event too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		seq, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || seq < 1 {
			return usagef("SEQ is %q: write the number of an event, from 1", args[0])
		}
		if err := checkFormat(*format); err != nil {
			return err
		}
		return withEngine(cmd, *path, env, func(_ *config.Config, e *engine.Engine) error {
			found, err := e.Why(cmd.Context(), seq, o)
			if err != nil {
				return err
			}
			if *format == "json" {
				err = printJSON(cmd.OutOrStdout(), found)
			} else {
				printWhy(cmd.OutOrStdout(), found)
			}
			if err == nil && !found.Sound() {
				err = errReported
			}
			return err
		})
	}
	return cmd
}

// printWhy prints an explanation for people.
func printWhy(to io.Writer, x engine.Explanation) {
	switch x.Presence {
	case engine.PresenceRetained:
		printEvent(to, x)
	case engine.PresenceAhead:
		fmt.Fprintf(to, "event %d does not exist yet: the head of the log is %d\n", x.Seq, x.Head)
	case engine.PresenceRemoved:
		begins := fmt.Sprintf("it begins at %d", x.Floor)
		if x.Floor == 0 {
			begins = fmt.Sprintf("it is empty, and its head is %d", x.Head)
		}
		fmt.Fprintf(to, "event %d is not in the log any more: %s\n", x.Seq, begins)
	case engine.PresenceHole:
		fmt.Fprintf(to, "event %d is missing: the log runs from %d to %d and has a hole there\n", x.Seq, x.Floor, x.Head)
	}
	for _, f := range x.Consumers {
		fmt.Fprintf(to, "\n%s: %s\n", f.Consumer, summary(f))
		if f.Jobs != nil {
			printJobs(to, *f.Jobs)
		}
		if f.Would != nil {
			printWould(to, f)
		}
		for _, older := range f.Older {
			fmt.Fprintf(to, "  of the older epoch %s, before a restore: %s\n", older.Epoch, count(older.Count, "job"))
			printJobs(to, older)
		}
	}
	for _, other := range x.Others {
		epoch := ""
		if other.Epoch != x.Epoch {
			epoch = " of the older epoch " + other.Epoch
		}
		fmt.Fprintf(to, "\nunder the tag %s, which no consumer above had for this event: %s%s\n", other.Tag, count(other.Count, "job"), epoch)
		printJobs(to, other)
	}
}

// summary is one line about a consumer.
func summary(f engine.Fate) string {
	if f.Jobs == nil {
		return f.Reason
	}
	text := count(f.Jobs.Count, "job")
	if f.Jobs.Tag != f.Consumer {
		text += fmt.Sprintf(", under its former name %s", f.Jobs.Tag)
	}
	return text
}

func printEvent(to io.Writer, x engine.Explanation) {
	e := x.Event
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(table, "  %s\t%s\n", name, value)
		}
	}
	fmt.Fprintf(table, "event %d: %s\n", x.Seq, e.Type)
	audience := make([]string, len(e.Audience))
	for i, name := range e.Audience {
		audience[i] = shown(name)
	}
	line("resource", shown(e.Resource))
	line("resource_id", shown(e.ResourceID))
	line("audience", strings.Join(audience, ", "))
	line("occurred_at", e.OccurredAt.Format(time.RFC3339Nano))
	if e.EventTime != nil {
		line("event_time", e.EventTime.Format(time.RFC3339Nano))
	}
	line("id", e.ID)
	line("traceparent", e.Traceparent)
	line("payload", string(e.Payload))
	_ = table.Flush() // whoever reads the output is gone: nothing is left to be told
}

func printJobs(to io.Writer, group engine.ExplainedJobs) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, j := range group.Jobs {
		fmt.Fprintf(table, "  %s\tjob %d\t%s\tqueue %s\t%s\tattempt %d of %d\n", person(j.Recipient), j.ID, j.Kind, j.Queue, j.State, j.Attempt, j.MaxAttempts)
	}
	_ = table.Flush()
	more(to, group.Count-int64(len(group.Jobs)))
}

// printWould prints the jobs that a rule gives now, where none are there.
func printWould(to io.Writer, f engine.Fate) {
	verb := "its rule gives now"
	if f.Verdict == engine.VerdictWaiting {
		verb = "it would create"
	}
	fmt.Fprintf(to, "  %s %s of kind %s in queue %s:\n", verb, count(f.Would.Count, "job"), f.Would.Kind, f.Would.Queue)
	for _, r := range f.Would.Recipients {
		fmt.Fprintf(to, "  %s\n", person(r))
	}
	more(to, int64(f.Would.Count-len(f.Would.Recipients)))
}

func more(to io.Writer, n int64) {
	if n > 0 {
		fmt.Fprintf(to, "  and %d more: --all lists them\n", n)
	}
}

// person is a recipient as it is printed.
func person(recipient string) string {
	if recipient == "" {
		return "(no recipient)"
	}
	return shown(recipient)
}

// shown is a text of a producer's as it is printed: nobody's name may move the cursor of a terminal.
func shown(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
