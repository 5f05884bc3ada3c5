// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/postgres"
)

func planCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "says what a migration and a start would change, and changes nothing",
		Long: `plan compares the database with the configuration and prints, in order, what engine migrate up and a start
would change: roles, migrations, River's tables, partitions, the names that a cursor may have, rights, and the
cursors to be created with the head that they start at. It also prints each cursor whose consumer is no
longer declared, with its lag. COMMAND is what makes the change; "you" stands where no command does.

It exits with 0 when there is nothing to do or commands do all of it, and with 1 when somebody has to act or
decide before the engine is started: the database has outgrown this binary, River's tables are somebody
else's to migrate, the environment is another one, or a new consumer may be an old one under a new name.
These lines are marked with !.

--format json prints {"schema", "head", "blocked", "changes": [{"kind", "by", "what", "blocks"}]}.`,
		Example: `  engine plan
  engine plan --config production.yaml --format json`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	format := cmd.Flags().String("format", "text", "how it is printed: `text|json`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *format != "text" && *format != "json" {
			return usagef("--format is %q: write text or json", *format)
		}
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		status, err := postgres.MigrationStatus(cmd.Context(), engine.MigrateOptions(cfg))
		if err != nil {
			return err
		}
		return printPlan(cmd, status, *format)
	}
	return cmd
}

// printPlan prints the changes; an error says that some of them wait for a person.
func printPlan(cmd *cobra.Command, status postgres.Status, format string) error {
	changes, blocked := status.Plan(), 0
	for _, c := range changes {
		if c.Blocks {
			blocked++
		}
	}
	var err error
	if format == "json" {
		err = planJSON(cmd.OutOrStdout(), status, changes, blocked > 0)
	} else {
		err = planText(cmd.OutOrStdout(), changes)
	}
	if err != nil {
		return err
	}
	if blocked > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "engine: see to %s before the engine is started\n", lines(blocked))
		return errReported
	}
	return nil
}

func lines(n int) string {
	if n == 1 {
		return "the line marked with !"
	}
	return fmt.Sprintf("the %d lines marked with !", n)
}

func planText(to io.Writer, changes []postgres.Change) error {
	if len(changes) == 0 {
		_, err := fmt.Fprintln(to, "nothing to do")
		return err
	}
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMMAND\tCHANGE")
	for _, c := range changes {
		mark := ""
		if c.Blocks {
			mark = "! "
		}
		fmt.Fprintf(table, "%s\t%s%s\n", c.By, mark, c.What)
	}
	return table.Flush()
}

func planJSON(to io.Writer, status postgres.Status, changes []postgres.Change, blocked bool) error {
	if changes == nil {
		changes = []postgres.Change{} // a list in every case
	}
	encoder := json.NewEncoder(to)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(struct {
		Schema  string            `json:"schema"`
		Head    int64             `json:"head"`
		Blocked bool              `json:"blocked"`
		Changes []postgres.Change `json:"changes"`
	}{status.Schema, status.Head, blocked, changes})
}
