// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
)

func statusCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "prints how far each consumer is",
		Long: `status prints a line for each consumer:

  CURSOR   the number of the last event that it has processed
  HEAD     the number of the newest event of the log
  LAG      how many events it still has to see
  PENDING  how long the oldest of them has waited

A consumer that is declared and has never run has no cursor yet; its first worker puts it at the head. One
that has a cursor and is not declared any more is marked with *.`,
		Example: `  engine status
  engine status --config production.yaml`,
		Args: arguments(),
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withEngine(cmd, *path, env, func(cfg *config.Config, e *engine.Engine) error {
			states, err := e.States(cmd.Context())
			if err != nil {
				return err
			}
			return printStates(cmd.OutOrStdout(), states, cfg.Names())
		})
	}
	return cmd
}

// withEngine runs look with an engine that is open: its schema fits, and nothing is started.
func withEngine(cmd *cobra.Command, path string, env lookupEnv, look func(*config.Config, *engine.Engine) error) error {
	cfg, err := loadConfig(cmd, path, env)
	if err != nil {
		return err
	}
	e, err := engine.Open(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	return look(cfg, e)
}

// printStates prints the declared consumers in the order of the file, then the others.
func printStates(to io.Writer, states []engine.State, declared []string) error {
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CONSUMER\tCURSOR\tHEAD\tLAG\tPENDING")
	line := func(mark string, s engine.State) {
		pending := "-"
		if s.Lag() > 0 {
			pending = s.PendingAge.Round(time.Millisecond).String()
		}
		fmt.Fprintf(table, "%s%s\t%d\t%d\t%d\t%s\n", s.Name, mark, s.LastSeq, s.HeadSeq, s.Lag(), pending)
	}
	for _, name := range declared {
		at := slices.IndexFunc(states, func(s engine.State) bool { return s.Name == name })
		if at < 0 {
			fmt.Fprintf(table, "%s\t-\t-\t-\tno cursor yet\n", name)
			continue
		}
		line("", states[at])
	}
	for _, s := range states {
		if !slices.Contains(declared, s.Name) {
			line("*", s)
		}
	}
	return table.Flush()
}
