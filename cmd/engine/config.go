// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/expect"
)

func configCommand(env lookupEnv) *cobra.Command {
	return group("config", "shows the effective configuration and its schema",
		`A value of the configuration comes from the file, from a variable of the environment, from a default, or from the
section consumer. These commands show which, and what the file may hold at all.`,
		`  engine config show
  engine config show --format json
  engine config schema > consumers.schema.json`,
		configShowCommand(env), configSchemaCommand())
}

func configShowCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "prints every value with its origin, secrets hidden",
		Long: `show prints the configuration that the engine would use: each value with the place in the file, the variable or
the default that it comes from. Secrets are hidden. As YAML the origins are comments, so that the output is a
configuration again; as JSON they are a member of their own.

It opens no connection. A variable that is not set is a warning, and the value stays as written.`,
		Example: `  engine config show
  engine config show --config staging.yaml --format json`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	format := cmd.Flags().String("format", "yaml", "how to print it: yaml or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *format != "yaml" && *format != "json" {
			return usagef("%s does not know the format %q; write yaml or json", cmd.CommandPath(), *format)
		}
		cfg, problems := check(cmd, *path, env)
		if err := problems.Err(); err != nil {
			return err
		}
		if len(problems) > 0 {
			fmt.Fprintln(cmd.ErrOrStderr(), problems.Error())
		}
		text := cfg.Show()
		if *format == "json" {
			var err error
			if text, err = cfg.ShowJSON(); err != nil {
				return fmt.Errorf("show %s: %w", *path, err)
			}
		}
		_, err := cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}

func configSchemaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "prints the JSON Schema of the configuration, or of its tests",
		Long: `schema prints the JSON Schema (draft 2020-12) of the configuration, with which an editor completes and checks the
file while it is written. engine validate sees more: what concerns two values, and what only a program can check.
With --tests it prints that of the files that engine test reads.`,
		Example: `  engine config schema > consumers.schema.json
  engine config schema --tests > consumers.test.schema.json

  and in the first line of consumers.yaml, for editors with the YAML language server:

  # yaml-language-server: $schema=consumers.schema.json`,
		Args: arguments(),
	}
	tests := cmd.Flags().Bool("tests", false, "print the schema of consumers.test.yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		schema := config.Schema
		if *tests {
			schema = expect.Schema
		}
		text, err := schema()
		if err == nil {
			_, err = cmd.OutOrStdout().Write(text)
		}
		return err
	}
	return cmd
}
