// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/expect"
	"example.com/bothy/engine/problem"
)

// testFlags are the flags of test.
type testFlags struct {
	config, run, junit string
	verbose, strict    bool
	only               *regexp.Regexp
}

func testCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "test [FILE...]",
		Short: "runs the tests of the consumers: which jobs given events become",
		Long: `test runs the tests of each FILE against the configuration. Without FILE it runs those beside the
configuration: consumers.test.yaml beside consumers.yaml, staging.test.yaml beside staging.yaml. A test says
which events there are, which rows the tables hold, and which jobs the consumers must create: these and no
others.

Tests of the rules field, list and none need no database. The first test that reaches a query or a handler
starts a private PostgreSQL, as engine dev does. When BOTHY_TEST_SERVER_URL is set, it makes a database of its
own on that server; a server that the configuration names is refused there. Every test runs in a transaction
that is never committed.

The last line says what no test touches: consumers whose rule no event reached, and patterns of types that no
event matched.`,
		Example: `  engine test
  engine test -run 'paid order' -v
  engine test --config staging.yaml --strict --junit results.xml`,
		Args: cobra.ArbitraryArgs,
		// -run is written as with go test, and pflag would take it for the flags r, u and n
		DisableFlagParsing: true,
	}
	var f testFlags
	cmd.Flags().StringVar(&f.config, "config", "consumers.yaml", "the configuration `FILE`; - is standard input")
	cmd.Flags().StringVar(&f.run, "run", "", "run only the tests whose names match the regular expression `PATTERN`; -run works too")
	cmd.Flags().StringVar(&f.junit, "junit", "", "write the results as JUnit XML to `FILE`, whatever they are")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "fail when a consumer or a pattern of types is not tested")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "show the tests that passed too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		files, err := f.parse(cmd, args)
		if err != nil {
			return err
		}
		return runTests(cmd, f, files, env)
	}
	return cmd
}

// parse reads the command line, and gives the test files.
func (f *testFlags) parse(cmd *cobra.Command, args []string) (files []string, err error) {
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "-run" || strings.HasPrefix(arg, "-run=") {
			args[i] = "-" + arg
		}
	}
	if err := cmd.Flags().Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, cmd.FlagErrorFunc()(cmd, err)
	}
	if help, err := cmd.Flags().GetBool("help"); err == nil && help {
		return nil, pflag.ErrHelp
	}
	if f.only, err = regexp.Compile(f.run); err != nil {
		return nil, usagef("--run is %q, which is no regular expression: %v", f.run, err)
	}
	switch {
	case f.strict && f.run != "":
		return nil, usagef("--strict looks at what all tests touch, and --run leaves tests out: use one of them")
	case f.junit == "-":
		return nil, usagef("--junit needs a file: the standard output has the results for people")
	}
	files = slices.Compact(slices.Sorted(slices.Values(cmd.Flags().Args())))
	if len(files) == 0 {
		files = []string{besideOf(f.config)}
	}
	if f.config == "-" && slices.Contains(files, "-") {
		return nil, usagef("the standard input is read once: it can be the configuration or a test file")
	}
	return files, nil
}

// besideOf is the usual test file of a configuration.
func besideOf(path string) string {
	if path == "-" {
		return expect.Name
	}
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".test" + filepath.Ext(path)
}

func runTests(cmd *cobra.Command, f testFlags, files []string, env lookupEnv) (err error) {
	parse := configReader(cmd, f.config)
	subject, err := testSubject(parse, env)
	if problems, ok := errors.AsType[problem.List](err); ok && f.junit != "" {
		err = errors.Join(err, writeJUnit(f.junit, []expect.Report{{File: f.config, Problems: problems}}))
	}
	if err != nil {
		return err
	}
	servers := &testServers{cmd: cmd, env: env, cfg: subject.Config, avoid: realAddresses(parse, env)}
	defer func() { err = errors.Join(err, servers.stop()) }()

	var reports []expect.Report
	var tested []*expect.File
	var found problem.List
	for _, name := range files {
		file, problems := expect.Load(name, subject)
		found = append(found, problems...)
		if file == nil {
			reports = append(reports, expect.Report{File: name, Problems: problems})
			continue
		}
		tested = append(tested, file)
		reports = append(reports, file.Run(cmd.Context(), f.only.MatchString, servers.open))
	}
	if f.junit != "" {
		if err := writeJUnit(f.junit, reports); err != nil {
			return err
		}
	}
	if cmd.Context().Err() != nil {
		return errors.New("interrupted before every test was run")
	}
	return showTests(cmd, f, reports, found, expect.Cover(subject, tested))
}

// showTests prints what came of the tests. Problems of files and reasons without a database go to stderr.
func showTests(cmd *cobra.Command, f testFlags, reports []expect.Report, found problem.List, coverage expect.Coverage) error {
	out, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if len(found) > 0 {
		fmt.Fprintln(stderr, found.Error())
	}
	for _, r := range reports {
		var problems problem.List
		switch {
		case errors.As(r.Err, &problems):
			fmt.Fprintln(stderr, problems.Error())
		case r.Err != nil:
			fmt.Fprintf(stderr, "engine: %v\n", r.Err)
		}
		r.Write(out, f.verbose)
	}
	ran, bad := expect.Count(reports)
	broken := found.Errors() > 0
	switch {
	case ran == 0 && f.run != "" && !broken:
		fmt.Fprintf(stderr, "engine: no test matches -run %q: write a part of the name of one\n", f.run)
		return errReported // a name that was changed must not pass for ever
	case ran > 0:
		fmt.Fprintln(out, expect.Summary(reports))
	}
	if f.run == "" && !broken {
		fmt.Fprintln(out, coverage)
	}
	if bad > 0 || broken || f.strict && !coverage.Whole() {
		return errReported
	}
	return nil
}

// testSubject reads the configuration with the variables of the environment, or as it stands when one of them
// is not set: tests need no secret, and the address of the server is never that of a test.
func testSubject(parse func(lookupEnv) (*config.Config, problem.List), env lookupEnv) (expect.Subject, error) {
	lookup := privately(env)
	cfg, found := parse(lookup)
	if slices.ContainsFunc(found, func(p problem.Problem) bool { return p.Code == "unset-variable" }) {
		lookup = nil
		cfg, found = parse(nil)
	}
	if err := found.Err(); err != nil {
		return expect.Subject{}, err
	}
	return expect.Subject{Config: cfg, Consumers: engine.Consumers(cfg), Handlers: []string{mentionsName}, Lookup: lookup}, nil
}

func writeJUnit(name string, reports []expect.Report) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return expect.WriteJUnit(file, reports)
}
