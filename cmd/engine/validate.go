// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/problem"
	reporting "example.com/bothy/engine/report"
)

// validateFlags are the flags of validate.
type validateFlags struct {
	config, format, colour, definitions, explain string
	strict, quiet, database                      bool
}

func validateCommand(env lookupEnv) *cobra.Command {
	f := &validateFlags{}
	cmd := &cobra.Command{
		Use:   "validate [FILE...]",
		Short: "checks configurations and the engine's own tables, without a database",
		Long: `validate reads each FILE (the one of --config when there is none) and proves the tables that the engine
carries. It reports every problem at once, each with its place, its reason and what to do, and opens no
connection: run it in CI. A FILE - is standard input.

A variable such as ${BOTHY_DATABASE_URL} that is not set is a warning here and an error at start: CI needs
no secrets. Such a warning does not count for --strict. With --database it is an error.

Text goes to stderr, every other format to stdout. A line of the file is shown only as far as it can hold
no secret. --color auto colours a terminal, unless NO_COLOR or CI is set. In the formats for machines, paths
are relative to the root of the repository in GitHub Actions and GitLab CI, and to this directory elsewhere.

Exit codes: 0 no errors, 1 errors (with --strict: or warnings), 2 the command line was not understood.`,
		Example: `  engine validate
  engine validate staging.yaml production.yaml
  generate-config | engine validate -
  engine validate --strict --format github
  engine validate --explain unknown-key`,
		Args: cobra.ArbitraryArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", defaultConfig, "the configuration `FILE`; - is standard input")
	flags.StringVar(&f.format, "format", string(reporting.Text), "how problems are written, `FORMAT`: "+formatNames())
	flags.StringVar(&f.colour, "color", "auto", "colour the text, `WHEN`: auto, always or never")
	flags.BoolVar(&f.strict, "strict", false, "refuse warnings too, except for variables that are not set")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print problems only")
	flags.StringVar(&f.definitions, "definitions", "", "prove the tables of the folder `DIR` in place of the engine's own")
	flags.BoolVar(&f.database, "database", false, "ask the database of each FILE as well")
	flags.StringVar(&f.explain, "explain", "", "say what a `CODE` means, and check nothing")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		format, err := f.check(files)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("explain") {
			return explain(cmd, f.explain)
		}
		return validate(cmd, f, format, files, env)
	}
	return cmd
}

// defaultConfig is the file that is read when none is named.
const defaultConfig = "consumers.yaml"

func formatNames() string {
	var names []string
	for _, f := range reporting.Formats() {
		names = append(names, string(f))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// check refuses a command line that makes no sense.
func (f *validateFlags) check(files []string) (reporting.Format, error) {
	format := reporting.Format(f.format)
	switch {
	case !slices.Contains(reporting.Formats(), format):
		return "", usagef("--format is %q: write %s", f.format, formatNames())
	case !slices.Contains([]string{"auto", "always", "never"}, f.colour):
		return "", usagef("--color is %q: write auto, always or never", f.colour)
	case len(files) > 0 && f.explain != "":
		return "", usagef("--explain reads no file: leave out %q", files[0])
	case slices.Contains(files, "") || f.config == "":
		return "", usagef("the name of a file is empty")
	case slices.Contains(files, "-") && slices.Contains(files[slices.Index(files, "-")+1:], "-"):
		return "", usagef("standard input can be read once only: name - once")
	}
	return format, nil
}

// explain prints what is known of a code.
func explain(cmd *cobra.Command, code string) error {
	var codes []string
	for _, k := range engine.Kinds() {
		if k.Code == code {
			severity := "error"
			if k.Severity == problem.Warning {
				severity = "warning"
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s (%s)\n\n%s\n\nFor an example see docs/reference/problems.md.\n", k.Code, severity, k.Means)
			return nil
		}
		codes = append(codes, k.Code)
	}
	if near := problem.Nearest(code, codes); near != "" {
		return usagef("there is no problem %q; did you mean %q?", code, near)
	}
	return usagef("there is no problem %q: write the word that stands in [ ] behind a problem", code)
}

// validate checks everything, prints what it found, and refuses when there is reason to.
func validate(cmd *cobra.Command, f *validateFlags, format reporting.Format, files []string, env lookupEnv) error {
	inputs := f.inputs(cmd, files)
	var all problem.List
	for i := range inputs {
		found, err := inputs[i].check(cmd.Context(), f.database, env)
		if err != nil {
			return err
		}
		all = append(all, found...)
	}
	tables := engine.CheckTables()
	if f.definitions != "" {
		tables = engine.CheckDefinitions(f.definitions)
	}
	all = append(all, tables.Problems...)
	build, _ := debug.ReadBuildInfo() // nil only in a binary built without modules
	r := reporting.Report{
		Files: f.described(inputs, tables.Problems, env), Tables: &reporting.Tables{Names: tables.Tables, Paths: tables.Paths, Cases: tables.Cases},
		Problems: all, Kinds: engine.Kinds(), Version: describe(build), Refused: f.refuses(all),
		Colour: format == reporting.Text && coloured(f.colour, cmd.ErrOrStderr(), env),
	}
	if err := f.print(cmd, r, format, inputs, tables); err != nil {
		return err
	}
	if r.Refused {
		return errReported
	}
	return nil
}

// refuses reports whether the problems make the command fail. That a variable is not set is the normal state where
// nothing runs: it counts for nothing.
func (f *validateFlags) refuses(all problem.List) bool {
	return all.Errors() > 0 || f.strict && slices.ContainsFunc(all, func(p problem.Problem) bool { return p.Code != unsetVariable })
}

func (f *validateFlags) print(cmd *cobra.Command, r reporting.Report, format reporting.Format, inputs []input, tables engine.TableReport) error {
	text := string(reporting.Render(r, format))
	if format != reporting.Text {
		if _, err := fmt.Fprint(cmd.OutOrStdout(), text); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
		return nil
	}
	if f.quiet {
		text = strings.TrimSuffix(text, reporting.Summary(r.Problems)+"\n")
	} else if r.Refused && r.Problems.Errors() == 0 {
		text = strings.TrimSuffix(text, "\n") + ", and --strict refuses warnings\n"
	}
	fmt.Fprint(cmd.ErrOrStderr(), text)
	if f.quiet {
		return nil
	}
	for _, in := range inputs {
		if in.config != nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, no errors\n", in.name, count(len(in.config.Consumers), "consumer"))
		}
	}
	switch {
	case tables.Problems.Errors() > 0:
	case f.definitions == "":
		fmt.Fprintln(cmd.OutOrStdout(), "the engine's own tables: every promise holds")
	default:
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, every promise holds\n", f.definitions, count(len(tables.Tables), "table"))
	}
	return nil
}

// count says how many there are of a thing, in words.
func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
