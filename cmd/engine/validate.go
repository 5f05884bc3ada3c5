// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/problem"
)

func validateCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "checks configurations and the engine's own tables, without a database",
		Long: `validate reads each FILE (the one of --config when there is none) and proves the tables that the engine
carries. It reports every problem at once, each with its place, its reason and what to do, and opens no
connection: run it in CI.

A variable such as ${BOTHY_DATABASE_URL} that is not set is a warning here and an error at start.`,
		Example: `  engine validate
  engine validate staging.yaml production.yaml
  generate-config | engine validate -`,
		Args: cobra.ArbitraryArgs,
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		if len(files) == 0 {
			files = []string{*path}
		}
		return validate(cmd, files, env)
	}
	return cmd
}

func validate(cmd *cobra.Command, files []string, env lookupEnv) error {
	_, all := engine.Table()
	tables := all.Errors() == 0
	configs := make([]*config.Config, len(files))
	for i, file := range files {
		var found problem.List
		configs[i], found = check(cmd, file, env)
		all = append(all, found...)
	}
	all.Sort()
	if len(all) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), all.Error())
	}
	for i, cfg := range configs {
		if cfg != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, no errors\n", files[i], count(len(cfg.Consumers), "consumer"))
		}
	}
	if tables {
		fmt.Fprintln(cmd.OutOrStdout(), "the engine's own tables: every promise holds")
	}
	if n := all.Errors(); n > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s\n", count(n, "error"))
		return errReported
	}
	return nil
}

// check reads a file with the variables of the environment, or as it stands when one of them is not set:
// the machine that validates is seldom the one that runs.
func check(cmd *cobra.Command, file string, env lookupEnv) (*config.Config, problem.List) {
	parse := configReader(cmd, file)
	cfg, found := parse(env)
	if slices.ContainsFunc(found, func(p problem.Problem) bool { return p.Code == "unset-variable" }) {
		return parse(nil)
	}
	return cfg, found
}

// count says how many there are of a thing, in words.
func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
