// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
)

func consumersCommand(env lookupEnv) *cobra.Command {
	return group("consumers", "lists, renames and retires consumers, and moves them over holes",
		`consumers looks after the cursors of consumers. A cursor outlives its entry in consumers.yaml: removing or
renaming an entry does nothing to the database. rename lets a new name go on where the old one stood, and
retire removes a cursor that nobody needs any more. skip moves a cursor over a hole in the log. Each is written
to the audit.`,
		`  engine consumers list
  engine consumers rename push notify
  engine consumers retire push --reason "replaced by notify"
  engine consumers skip push --from 5 --to 7 --reason "lost with the disk on 1 May"`,
		consumersListCommand(env), consumersRenameCommand(env), consumersRetireCommand(env), consumersSkipCommand(env))
}

// formatFlag gives a command the choice between text and JSON.
func formatFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("format", "text", "`FORMAT` of the output: text or json")
}

func checkFormat(format string) error {
	if format != "text" && format != "json" {
		return usagef("--format is %q: write text or json", format)
	}
	return nil
}

func consumersListCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "prints the consumers of the file and of the database",
		Long: `list prints a line for each consumer that consumers.yaml declares or the database knows:

  STATE    declared   the file declares it, and it has a cursor
           new        the file declares it; its first worker puts its cursor at the head
           unknown    the file declares it, and the database does not let it in yet: run engine migrate up
           orphan     it has a cursor, and the file does not declare it: rename or retire it
           unused     the database lets the name in; there is no cursor, and the file does not declare it
  CURSOR   the number of the last event that it has passed
  LAG      how many events it still has to see
  START    the number after which it began; it never saw an earlier event. "-" when that was not recorded
  FORMER   names that it had before`,
		Example: `  engine consumers list
  engine consumers list --format json | jq '.consumers[] | select(.declared | not)'`,
		Args: arguments(),
	}
	path, format := configFlag(cmd), formatFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFormat(*format); err != nil {
			return err
		}
		return withEngine(cmd, *path, env, func(_ *config.Config, e *engine.Engine) error {
			list, head, err := e.ListConsumers(cmd.Context())
			if err != nil {
				return err
			}
			if *format == "json" {
				return printJSON(cmd.OutOrStdout(), struct {
					Head      int64             `json:"head"`
					Consumers []engine.Standing `json:"consumers"`
				}{head, list})
			}
			return printConsumers(cmd.OutOrStdout(), list)
		})
	}
	return cmd
}

// printJSON prints a value for programs.
func printJSON(to io.Writer, value any) error {
	encoder := json.NewEncoder(to)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

func printConsumers(to io.Writer, list []engine.Standing) error {
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CONSUMER\tSTATE\tCURSOR\tLAG\tSTART\tFORMER")
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return strconv.FormatInt(*n, 10)
	}
	for _, s := range list {
		lag, former := "-", "-"
		if s.Cursor != nil {
			lag = strconv.FormatInt(s.Lag, 10)
		}
		if len(s.Former) > 0 {
			former = strings.Join(s.Former, ", ")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, stateOf(s), number(s.Cursor), lag, number(s.Start), former)
	}
	return table.Flush()
}

// stateOf is a word for where a consumer stands.
func stateOf(s engine.Standing) string {
	switch {
	case s.Orphan():
		return "orphan"
	case !s.Declared:
		return "unused"
	case s.Cursor != nil:
		return "declared"
	case s.Known:
		return "new"
	default:
		return "unknown"
	}
}

func consumersRenameCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rename OLD NEW",
		Short: "lets a consumer go on under a new name",
		Long: `rename gives the cursor of OLD the name NEW, so that NEW goes on where OLD stood. Without it, NEW would start at
the head of the log and see nothing of what came before.

First give the entry its new name in consumers.yaml; then run rename, before an engine starts with that file.
rename works as database.admin_url, in one transaction. It waits up to database.lock_timeout for a round of
OLD to end. It says what it is about to do and asks, unless --yes is given. Run again, it finds nothing to do.

An engine that still runs with the old file does no harm: its rounds of OLD fail, since there is no such
cursor, and it cannot start again. Jobs that were inserted before keep OLD as their tag.`,
		Example: `  engine consumers rename push notify
  engine consumers rename push notify --dry-run
  engine consumers rename push notify --yes --config production.yaml`,
		Args: arguments("OLD", "NEW"),
	}
	path := configFlag(cmd)
	yes := cmd.Flags().Bool("yes", false, "do not ask")
	dry := cmd.Flags().Bool("dry-run", false, "say what would be done, and do nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *path == "-" && !*yes && !*dry {
			return usagef("the configuration and the answer cannot both be standard input: add --yes")
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		from, to := args[0], args[1]
		out := cmd.OutOrStdout()
		if !*yes || *dry {
			plan, err := engine.RenameConsumer(cmd.Context(), cfg, from, to, engine.ChangeOptions{DryRun: true})
			switch {
			case err != nil:
				return err
			case plan.Note != "":
				fmt.Fprintln(out, plan.Note)
				return nil
			}
			fmt.Fprintf(out, "consumer %q would be renamed to %q and go on after event %d: %s still to see, the head is %d\n",
				from, to, *plan.LastSeq, count(plan.Lag(), "event"), plan.Head)
			if *dry {
				return nil
			}
			if err := confirm(cmd); err != nil {
				return err
			}
		}
		done, err := engine.RenameConsumer(cmd.Context(), cfg, from, to, changing(cmd))
		if err != nil {
			return err
		}
		if done.Note != "" {
			fmt.Fprintln(out, done.Note)
			return nil
		}
		fmt.Fprintf(out, "renamed consumer %q to %q: it goes on after event %d, %s still to see (audit %d)\n", from, to, *done.LastSeq, count(done.Lag(), "event"), done.Deed)
		fmt.Fprintf(out, "jobs that were inserted before keep the tag %q\n", from)
		return nil
	}
	return cmd
}

// changing are the options of a command that changes something: who does it, and where it says what it
// waits for.
func changing(cmd *cobra.Command) engine.ChangeOptions {
	return engine.ChangeOptions{By: account(), Log: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }}
}

// account is the account of the operating system that runs this command, as far as it is known.
func account() string {
	who, err := user.Current()
	if err != nil { // a container may run as an account without a name
		return fmt.Sprintf("uid %d", os.Getuid())
	}
	return who.Username
}

// confirm asks, and is an error unless the answer is yes.
func confirm(cmd *cobra.Command) error {
	fmt.Fprint(cmd.OutOrStdout(), "go on? [y/N] ")
	answer := make(chan string, 1)
	go func() { // a person who is asked may also stop the command
		line, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // what was read before the end is the answer
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-cmd.Context().Done():
		fmt.Fprintln(cmd.OutOrStdout())
		return errors.New("interrupted, so nothing was changed")
	case said := <-answer:
		if said == "y" || said == "yes" {
			return nil
		}
		return errors.New("not confirmed, so nothing was changed: answer y, or add --yes")
	}
}

func consumersRetireCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retire NAME --reason TEXT",
		Short: "removes the cursor of a consumer that is gone",
		Long: `retire removes the cursor of a consumer that consumers.yaml declares no more, and takes its name from those that
the database lets in: an engine that still has an old file cannot bring it back unnoticed. Its jobs stay.
The reason is kept in the audit, with the place where the consumer stood.

retire refuses while the consumer has events still to see, and says how many; --force gives them up. It works
as database.admin_url, in one transaction, and waits up to database.lock_timeout for a round of the consumer
to end. It cannot be undone: declared again, the consumer starts at the head. It says what it is about to do
and asks, unless --yes is given. Run again, it finds nothing to do.`,
		Example: `  engine consumers retire push --reason "replaced by notify"
  engine consumers retire push --reason "the mail provider is gone" --dry-run
  engine consumers retire push --reason "the mail provider is gone" --force --yes`,
		Args: arguments("NAME"),
	}
	path := configFlag(cmd)
	reason := cmd.Flags().String("reason", "", "why, for the audit: `TEXT`")
	force := cmd.Flags().Bool("force", false, "give up the events that it has still to see")
	yes := cmd.Flags().Bool("yes", false, "do not ask")
	dry := cmd.Flags().Bool("dry-run", false, "say what would be done, and do nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case strings.TrimSpace(*reason) == "":
			return usagef("%s needs --reason TEXT: it is kept in the audit", cmd.CommandPath())
		case *path == "-" && !*yes && !*dry:
			return usagef("the configuration and the answer cannot both be standard input: add --yes")
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		name, out := args[0], cmd.OutOrStdout()
		if !*yes || *dry {
			change, err := engine.RetireConsumer(cmd.Context(), cfg, name, *reason, *force, engine.ChangeOptions{DryRun: true})
			if err != nil {
				return err
			}
			fmt.Fprintln(out, retired(name, change, true))
			if *dry || change.Note != "" {
				return nil
			}
			if err := confirm(cmd); err != nil {
				return err
			}
		}
		change, err := engine.RetireConsumer(cmd.Context(), cfg, name, *reason, *force, changing(cmd))
		if err != nil {
			return err
		}
		fmt.Fprintln(out, retired(name, change, false))
		return nil
	}
	return cmd
}

// retired says what a retirement did or would do.
func retired(name string, change engine.Change, dry bool) string {
	if change.Note != "" {
		return change.Note
	}
	stood := "it never ran and has no cursor"
	if change.LastSeq != nil {
		stood = fmt.Sprintf("its cursor was at %d, the head is %d, %s given up", *change.LastSeq, change.Head, count(change.Lag(), "event"))
	}
	if change.Quarantined > 0 {
		stood += fmt.Sprintf(", and %s in quarantine", count(change.Quarantined, "event"))
	}
	if dry {
		return fmt.Sprintf("consumer %q would be retired: %s", name, strings.Replace(stood, "was at", "is at", 1))
	}
	return fmt.Sprintf("retired consumer %q: %s (audit %d)", name, stood, change.Deed)
}
