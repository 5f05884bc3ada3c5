// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

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
		migrateUpCommand(env))
}

func migrateUpCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "brings the database up to date",
		Long: `up applies the migrations that the database lacks, grants rights, makes partitions ahead and adds the names of
new consumers. It is safe at any time and when several run it at once; a second run finds nothing to do.

--bootstrap also creates the roles of database.roles that are missing, with LOGIN and without a password,
and grants what only an administrator may grant. Where this user may not, engine migrate sql prints
everything for somebody who may.`,
		Example: `  engine migrate up
  engine migrate up --bootstrap --config production.yaml`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	bootstrap := cmd.Flags().Bool("bootstrap", false, "create missing roles and grant what only an administrator may")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := loadConfig(cmd, *path, env)
		if err != nil {
			return err
		}
		options := migrateOptions(cfg)
		options.Bootstrap = *bootstrap
		options.Log = func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) }
		report, err := postgres.Migrate(cmd.Context(), options)
		if err != nil {
			return err
		}
		printReport(cmd, report)
		return nil
	}
	return cmd
}

// printReport says what is left to do; what was done was said while it was done.
func printReport(cmd *cobra.Command, report postgres.Report) {
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if !report.Changed() {
		fmt.Fprintln(stdout, "nothing to do")
	}
	for _, note := range report.Notes {
		fmt.Fprintf(stderr, "note: %s\n", note)
	}
	if len(report.Missing) == 0 {
		return
	}
	fmt.Fprintln(stderr, "an administrator still has to run:")
	for _, statement := range report.Missing {
		fmt.Fprintf(stderr, "    %s\n", statement)
	}
}

// migrateOptions is what a configuration says about its database.
func migrateOptions(cfg *config.Config) postgres.MigrateOptions {
	return postgres.MigrateOptions{
		AdminURL:        cfg.Database.Admin().Reveal(),
		Schema:          cfg.Database.Schema,
		Owner:           cfg.Database.Roles.Owner,
		App:             cfg.Database.Roles.App,
		Producers:       cfg.Database.Roles.Producers,
		ConsumerNames:   cfg.Names(),
		PartitionSize:   cfg.Sync.EventLogPartitionSize,
		PartitionsAhead: cfg.Sync.PartitionsAhead,
		Environment:     cfg.Database.Environment,
		JobsSchema:      cfg.Jobs.Schema,
		JobsMigrate:     cfg.Jobs.Migrate,
	}
}
