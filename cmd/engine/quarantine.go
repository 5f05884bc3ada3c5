// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
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

func quarantineCommand(env lookupEnv) *cobra.Command {
	return group("quarantine", "lists, retries and drops events that a consumer has set aside",
		`A consumer with on_failure: quarantine sets an event aside when its rule fails on that event again and again, and
goes on behind it. Such an event has no jobs of that consumer until somebody looks after it: mend what made the
rule fail and retry the event, or drop it. Both are written to the audit.`,
		`  engine quarantine list
  engine quarantine retry notify 1204
  engine quarantine drop notify --all --reason "orders of a test"`,
		quarantineListCommand(env), quarantineRetryCommand(env), quarantineDropCommand(env))
}

// asideJSON is one event of the list, for programs.
type asideJSON struct {
	Consumer  string    `json:"consumer"`
	Seq       int64     `json:"seq"`
	Type      string    `json:"type"` // empty when the log does not hold it any more
	ErrorType string    `json:"error_type"`
	Message   string    `json:"message"`
	At        time.Time `json:"at"`
	Attempts  int       `json:"attempts"`
}

func quarantineListCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "prints the events that are set aside",
		Long: `list prints a line for each event that a consumer has set aside:

  SEQ       the number of the event
  TYPE      its type; "-" when the log does not hold it any more, so that it can only be dropped
  SINCE     when it was set aside
  ATTEMPTS  how many rounds in a row it failed
  ERROR     the class of the error: a SQLSTATE, handler, rule or panic
  MESSAGE   what failed, in words that hold nothing of the event`,
		Example: `  engine quarantine list
  engine quarantine list --consumer notify
  engine quarantine list --format json | jq '.[].seq'`,
		Args: arguments(),
	}
	path, format := configFlag(cmd), formatFlag(cmd)
	consumer := cmd.Flags().String("consumer", "", "only those of the consumer `NAME`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFormat(*format); err != nil {
			return err
		}
		return withEngine(cmd, *path, env, func(_ *config.Config, e *engine.Engine) error {
			list, err := e.Quarantined(cmd.Context(), *consumer)
			if err != nil {
				return err
			}
			if *format == "json" {
				all := make([]asideJSON, len(list))
				for i, q := range list {
					all[i] = asideJSON{q.Consumer, q.Seq, q.Type, q.ErrorType, q.Message, q.At.UTC(), q.Attempts}
				}
				return printJSON(cmd.OutOrStdout(), all)
			}
			return printQuarantined(cmd.OutOrStdout(), list)
		})
	}
	return cmd
}

func printQuarantined(to io.Writer, list []engine.Quarantined) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(to, "no event is in quarantine")
		return err
	}
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CONSUMER\tSEQ\tTYPE\tSINCE\tATTEMPTS\tERROR\tMESSAGE")
	for _, q := range list {
		kind := q.Type
		if kind == "" {
			kind = "-"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%d\t%s\t%s\n", q.Consumer, q.Seq, kind, q.At.UTC().Format(time.RFC3339), q.Attempts, q.ErrorType, q.Message)
	}
	return table.Flush()
}

func quarantineRetryCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry CONSUMER SEQ|--all",
		Short: "decides events again that were set aside, and inserts their jobs",
		Long: `retry asks the rule of the consumer, as consumers.yaml has it now, who an event is for, inserts its jobs and takes
the event out of the quarantine, in one transaction: it has its jobs exactly once, also when two people retry it
at once. An event on which the rule fails again stays, and the command says why. --all takes all events of the
consumer by their numbers, each in a transaction of its own, and goes on after one that fails.

An event that retention has removed from the log cannot be retried. A handler of another program is retried there:
Engine.RetryQuarantined does the same.

Exit codes: 0 every event has its jobs, 1 one of them stays.`,
		Example: `  engine quarantine retry notify 1204
  engine quarantine retry notify --all`,
	}
	path := configFlag(cmd)
	all := settling(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withEngine(cmd, *path, env, func(_ *config.Config, e *engine.Engine) error {
			if err := e.Register(mentionsName, mentions); err != nil {
				return err
			}
			return settleEach(cmd, e, args, *all, func(seq int64) (string, error) {
				done, err := e.RetryQuarantined(cmd.Context(), args[0], seq, account())
				return fmt.Sprintf("event %d of consumer %q has its jobs: %d (audit %d)", seq, args[0], done.Jobs, done.Deed), err
			})
		})
	}
	return cmd
}

func quarantineDropCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop CONSUMER SEQ|--all --reason TEXT",
		Short: "gives up events that were set aside",
		Long: `drop takes an event out of the quarantine without any job: the consumer never gets one for it. It cannot be undone.
The reason is kept in the audit. --all drops all events of the consumer.`,
		Example: `  engine quarantine drop notify 1204 --reason "order of a test"
  engine quarantine drop notify --all --reason "orders of a test"`,
	}
	path := configFlag(cmd)
	all := settling(cmd)
	reason := cmd.Flags().String("reason", "", "why, for the audit: `TEXT`")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if strings.TrimSpace(*reason) == "" {
			return usagef("%s needs --reason TEXT: it is kept in the audit", cmd.CommandPath())
		}
		return withEngine(cmd, *path, env, func(_ *config.Config, e *engine.Engine) error {
			return settleEach(cmd, e, args, *all, func(seq int64) (string, error) {
				done, err := e.DropQuarantined(cmd.Context(), args[0], seq, *reason, account())
				return fmt.Sprintf("event %d of consumer %q was dropped (audit %d)", seq, args[0], done.Deed), err
			})
		})
	}
	return cmd
}

// settling gives a command its arguments: a consumer, and an event or all of them.
func settling(cmd *cobra.Command) (all *bool) {
	all = cmd.Flags().Bool("all", false, "all events that the consumer has set aside")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *all {
			return arguments("CONSUMER")(cmd, args)
		}
		if err := arguments("CONSUMER", "SEQ or --all")(cmd, args); err != nil {
			return err
		}
		if seq, err := strconv.ParseInt(args[1], 10, 64); err != nil || seq < 1 {
			return usagef("%q is not the number of an event: write a whole number from 1", args[1])
		}
		return nil
	}
	return all
}

// settleEach settles one event or all that the consumer has set aside. One that fails does not keep the others.
func settleEach(cmd *cobra.Command, e *engine.Engine, args []string, all bool, settle func(seq int64) (string, error)) error {
	var seqs []int64
	if all {
		list, err := e.Quarantined(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		for _, q := range list {
			seqs = append(seqs, q.Seq)
		}
		if len(seqs) == 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "nothing to do: consumer %q has no event in quarantine\n", args[0])
		}
	} else {
		seq, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return usagef("%q is not the number of an event: write a whole number from 1", args[1])
		}
		seqs = []int64{seq}
	}
	var failures []error
	for _, seq := range seqs {
		text, err := settle(seq)
		if err != nil {
			if failures = append(failures, err); cmd.Context().Err() != nil {
				break
			}
			continue
		}
		fmt.Fprintln(cmd.OutOrStdout(), text)
	}
	return errors.Join(failures...)
}
