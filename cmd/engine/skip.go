// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
)

func consumersSkipCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "skip NAME --from SEQ --to SEQ --reason TEXT",
		Short: "moves a consumer over a hole in the log",
		Long: `skip moves the cursor of a consumer over numbers that are missing in the log. A round never does this: numbers are
given out without a gap, so a hole is damage, and what was in it is lost. Find out first what was there (a
backup, the producer); an event that is put back in its place needs no skip. The reason is kept in the audit,
with the range and the place where the consumer stood.

skip refuses unless the range is exactly a hole before which the consumer stands: --from follows its cursor, the
log holds no event from --from to --to, and --to is not above the head. It works as database.admin_url, in one
transaction: nobody can append or put an event back meanwhile. It cannot be undone. Run again, it finds
nothing to do.`,
		Example: `  engine consumers skip push --from 5 --to 7 --reason "lost with the disk on 1 May" --dry-run
  engine consumers skip push --from 5 --to 7 --reason "lost with the disk on 1 May"`,
		Args: arguments("NAME"),
	}
	path := configFlag(cmd)
	first := cmd.Flags().Int64("from", 0, "the first missing number: `SEQ`")
	last := cmd.Flags().Int64("to", 0, "the last missing number: `SEQ`")
	reason := cmd.Flags().String("reason", "", "why, for the audit: `TEXT`")
	dry := cmd.Flags().Bool("dry-run", false, "say what would be done, and do nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("from") || !cmd.Flags().Changed("to"):
			return usagef("%s needs --from SEQ and --to SEQ: the range of the hole", cmd.CommandPath())
		case strings.TrimSpace(*reason) == "":
			return usagef("%s needs --reason TEXT: it is kept in the audit", cmd.CommandPath())
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		options := changing(cmd)
		options.DryRun = *dry
		skip, err := engine.SkipConsumer(cmd.Context(), cfg, args[0], *first, *last, *reason, options)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), skipped(args[0], *first, *last, skip, *dry))
		return nil
	}
	return cmd
}

// skipped says what a skip did or would do.
func skipped(name string, first, last int64, skip engine.Skip, dry bool) string {
	if skip.Note != "" {
		return skip.Note
	}
	next := "the log holds no event after them yet"
	if skip.Next > 0 {
		next = fmt.Sprintf("the next event is %d", skip.Next)
	}
	if dry {
		return fmt.Sprintf("consumer %q would pass %d to %d, %s missing: %s", name, first, last, count(last-first+1, "number"), next)
	}
	return fmt.Sprintf("consumer %q has passed %d to %d, %s missing: %s (audit %d)", name, first, last, count(last-first+1, "number"), next, skip.Deed)
}
