// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
)

func migrateCommand(env lookupEnv) *cobra.Command {
	return group("migrate", "makes and changes the schema of the engine",
		`migrate brings the database of database.admin_url (or database.url) to what this binary needs: the tables
and functions of the engine, the rights of its roles, and the names of the declared consumers. Migrate
first, then start the new binaries.`,
		`  engine migrate up --bootstrap
  engine migrate status
  engine migrate sql > for-the-dba.sql`,
		migrateUpCommand(env), migrateStatusCommand(env), migrateSQLCommand(env))
}

func migrateUpCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "brings the database up to date",
		Long: `up applies the migrations that the database lacks, grants rights, makes partitions ahead and adds the names of
new consumers. It is safe at any time and when several run it at once; a second run finds nothing to do.

--bootstrap also creates the roles of database.roles that are missing, with LOGIN and without a password,
and grants what only an administrator may grant. Where this user may not, engine migrate sql prints
everything for somebody who may.

A consumer that got another name in the file would begin at the head of the log and miss what the old name has
still to see. So while a cursor has no consumer in the file, up lets no new name in and exits with 1: run
engine consumers rename OLD NEW for one that was renamed, or up --new-consumers when none was.

database.environment is written to a database that has none. One that has another may be a copy of production: no
engine with this configuration works it. For a copy there is engine restore finalize --force, which also ends its
history. up --new-environment only calls the installation as the file says, and records that in the audit.`,
		Example: `  engine migrate up
  engine migrate up --bootstrap --config production.yaml`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	newConsumers := cmd.Flags().Bool("new-consumers", false, "let new names in although a cursor has no consumer: they are no old ones renamed")
	newEnvironment := cmd.Flags().Bool("new-environment", false, "write database.environment over another one that the database has")
	bootstrap := cmd.Flags().Bool("bootstrap", false, "create missing roles and grant what only an administrator may")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		options := engine.MigrateOptions(cfg)
		options.Bootstrap, options.NewConsumers, options.NewEnvironment = *bootstrap, *newConsumers, *newEnvironment
		options.Log = func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }
		report, err := postgres.Migrate(cmd.Context(), options)
		if err != nil {
			return err
		}
		printReport(cmd, report)
		if report.Doubt != nil {
			return fmt.Errorf("no new name was let in: %s\nfix: %s", report.Doubt, report.Doubt.Fix())
		}
		if len(report.Stopped()) > 0 {
			return errors.New("the engine cannot run yet: see to what stands above, then run `engine migrate up` again")
		}
		return nil
	}
	return cmd
}

// printReport says what is left to do; what was done was said while it was done.
func printReport(cmd *cobra.Command, report postgres.Report) {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if !report.Changed() && len(report.Missing) == 0 && report.Doubt == nil {
		fmt.Fprintln(stdout, "nothing to do")
	}
	for _, note := range report.Notes {
		fmt.Fprintf(stderr, "note: %s\n", note)
	}
	stops := report.Stopped()
	if len(stops) > 0 {
		fmt.Fprintln(stderr, "this role may not do it, or the configuration does not let it: somebody has to see to this:")
		for _, n := range stops {
			fmt.Fprintf(stderr, "    %s\n", n.Do)
		}
	}
	if len(report.Missing) > len(stops) {
		fmt.Fprintln(stderr, "database.restore_guard is off; it could not be turned on without this:")
		for _, n := range report.Missing {
			if !n.Stops {
				fmt.Fprintf(stderr, "    %s\n", n.Do)
			}
		}
	}
}

func migrateStatusCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "says how far the database is, and changes nothing",
		Long: `status prints which migrations the database has, River's version in jobs.schema, the room of the event log and
which consumers the database knows. It exits with 0 when engine migrate up would find nothing to do, and
with 1 when there is something to do.`,
		Example: `  engine migrate status
  engine migrate status || engine migrate up`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		status, err := postgres.MigrationStatus(cmd.Context(), engine.MigrateOptions(cfg))
		if err != nil {
			return err
		}
		if err := printMigrationStatus(cmd.OutOrStdout(), status, cfg.Jobs); err != nil {
			return err
		}
		switch {
		case status.TooOld != nil:
			return status.TooOld
		case status.Current():
			return nil
		case status.JobsVersion < status.JobsNeeded && !cfg.Jobs.Migrate:
			fmt.Fprintf(cmd.ErrOrStderr(), "engine: the database is not up to date: migrate the River tables of schema %s, or set jobs.migrate: true, then run `engine migrate up`\n", cfg.Jobs.Schema)
		default:
			fmt.Fprintln(cmd.ErrOrStderr(), "engine: the database is not up to date: run `engine migrate up`")
		}
		return errReported
	}
	return cmd
}

func printMigrationStatus(to io.Writer, s postgres.Status, jobs config.Jobs) error {
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "MIGRATION\tSTATE")
	for _, m := range s.Migrations {
		switch {
		case m.File == "":
			fmt.Fprintf(table, "%d\tapplied, of a newer engine\n", m.Version)
		case m.AppliedAt.IsZero():
			fmt.Fprintf(table, "%s\tto be applied\n", m.File)
		default:
			fmt.Fprintf(table, "%s\tapplied\n", m.File)
		}
	}
	if s.JobsNeeded > 0 {
		state := "up to date"
		if s.JobsVersion < s.JobsNeeded {
			state = fmt.Sprintf("version %d is needed", s.JobsNeeded)
		}
		fmt.Fprintf(table, "River in schema %s, version %d\t%s\n", jobs.Schema, s.JobsVersion, state)
	}
	if s.UpperBound > 0 {
		fmt.Fprintf(table, "event log up to number %d\troom up to %d in %s\n", s.Head, s.UpperBound-1, count(s.Partitions, "partition"))
	}
	for _, n := range s.Names {
		var words []string
		if !n.Declared {
			words = append(words, "not declared here")
		}
		if !n.Known {
			words = append(words, "to be added")
		} else if !n.Cursor {
			words = append(words, "no cursor yet")
		} else {
			words = append(words, "has a cursor")
		}
		fmt.Fprintf(table, "consumer %s\t%s\n", n.Name, strings.Join(words, ", "))
	}
	for _, role := range s.AbsentRoles {
		fmt.Fprintf(table, "role %s\tto be created\n", role)
	}
	if s.Exists {
		for _, n := range s.Missing {
			fmt.Fprintf(table, "right\tmissing: %s\n", n.Do)
		}
	}
	return table.Flush()
}

func migrateSQLCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "prints everything that up --bootstrap would do, as SQL",
		Long: `sql prints a script for psql that makes roles, schema, tables, functions, rights, partitions and the names of the
consumers, and River's tables when jobs.migrate is true. It connects to nothing. The script may be run
again: it skips what is there. After it, engine migrate up finds nothing to do.

A variable such as ${BOTHY_DATABASE_URL} need not be set.`,
		Example: `  engine migrate sql > for-the-dba.sql
  engine migrate sql | psql -v ON_ERROR_STOP=1 shop`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, problems := check(cmd, *path, env)
		if err := problems.Err(); err != nil {
			return err
		}
		options := engine.MigrateOptions(cfg)
		options.Bootstrap = true
		script, err := postgres.MigrateSQL(options)
		if err != nil {
			return err
		}
		_, err = io.WriteString(cmd.OutOrStdout(), script)
		return err
	}
	return cmd
}
