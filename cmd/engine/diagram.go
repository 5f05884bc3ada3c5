// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/diagram"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/problem"
)

func diagramCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diagram [TABLE]",
		Short: "draws a table of the engine",
		Long: `diagram draws a table: its states and steps, where each answer leads, and what each end does. TABLE is the
name of a machine; without it, the round is drawn, or the only table of the folder.

A table that does not keep its promises is not drawn: its problems are printed instead.`,
		Example: `  engine diagram
  engine diagram round --format svg > round.svg
  engine diagram --format dot | dot -Tpng > round.png
  engine diagram --definitions my-tables round`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s does not know what to do with %q", cmd.CommandPath(), args[1])
			}
			return nil
		},
	}
	var names []string
	for _, f := range diagram.Formats() {
		names = append(names, string(f))
	}
	format := cmd.Flags().String("format", names[0], "the `FORMAT`: "+strings.Join(names, ", "))
	dir := cmd.Flags().String("definitions", "", "the `DIR` of the tables, instead of those that the engine carries")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(names, *format) {
			return usagef("there is no format %q; %s", *format, hint(*format, names))
		}
		machines, problems := engine.Machines(*dir)
		m, err := pick(cmd, machines, problems, args)
		if err != nil {
			return err
		}
		text, err := diagram.Draw(m, diagram.Format(*format))
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(text)
		return err
	}
	return cmd
}

// pick finds the table to draw. Problems matter only when it is not among those that may run.
func pick(cmd *cobra.Command, machines []*machine.Machine, problems problem.List, args []string) (*machine.Machine, error) {
	name := "round"
	switch {
	case len(args) > 0:
		name = args[0]
	case len(machines) == 1:
		name = machines[0].Name()
	}
	var names []string
	for _, m := range machines {
		if m.Name() == name {
			return m, nil
		}
		names = append(names, m.Name())
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	return nil, usagef("%s: there is no table %q; %s", cmd.CommandPath(), name, hint(name, names))
}

// hint names the nearest of some words, or all of them.
func hint(word string, known []string) string {
	if near := problem.Nearest(word, known); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "write one of " + strings.Join(known, ", ")
}
