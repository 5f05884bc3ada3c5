// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/problem"
)

// The exit codes.
const (
	exitDone    = 0
	exitRefused = 1 // something was refused, failed or has problems
	exitUsage   = 2 // the command line was not understood; nothing was done
)

// lookupEnv is os.LookupEnv, or what a test puts in its place.
type lookupEnv = func(string) (string, bool)

// run carries out one command line and returns the exit code. SIGINT, SIGTERM and SIGHUP cancel the context of
// the command; a second one ends the process at once, as if it had no handler.
func run(args []string, env lookupEnv, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), stopSignals()...)
	defer stop()
	context.AfterFunc(ctx, stop)
	// A reader that is gone (| head) must not leave a database of dev behind. Ignoring the signal would do
	// the same for every program that is started here.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	root := newRoot(env)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	return report(cmd, err, stderr)
}

// stopSignals end a command in good order. A hangup that was ignored when this process began (nohup) stays
// ignored.
func stopSignals() []os.Signal {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}

// report prints an error once, in the form that fits it, and gives its exit code.
func report(cmd *cobra.Command, err error, stderr io.Writer) int {
	var usage *usageError
	var problems problem.List
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "engine: %s\n\n%s", usage.what, cmd.UsageString())
		return exitUsage
	case errors.Is(err, errReported):
	case errors.As(err, &problems):
		fmt.Fprintln(stderr, problems.Error())
	default:
		fmt.Fprintf(stderr, "engine: %v\n", err)
	}
	return exitRefused
}

// errReported ends a command whose refusal was printed already.
var errReported = errors.New("reported")

// usageError is a command line that was not understood.
type usageError struct{ what string }

func (e *usageError) Error() string { return e.what }

func usagef(format string, args ...any) error {
	return &usageError{what: fmt.Sprintf(format, args...)}
}

func newRoot(env lookupEnv) *cobra.Command {
	root := group("engine", "turns a PostgreSQL event log into River jobs",
		`The engine reads the event log of a PostgreSQL database and creates River jobs for the consumers that
consumers.yaml declares. Every event creates its jobs exactly once.

Exit codes: 0 done, 1 refused or problems found, 2 the command line was not understood.`,
		`  engine dev --once               see it work, with a database and events of its own
  engine init                     write a first consumers.yaml, its test and the step for CI
  engine validate                 check consumers.yaml, without a database
  engine test                     run the tests of the consumers
  engine migrate up --bootstrap   make the schema and the roles
  engine run --role worker        run the consumers
  engine status                   see how far each consumer is`)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{what: err.Error()} })
	root.SetHelpCommand(helpCommand())
	root.SetUsageTemplate(usageTemplate)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return refuseEmptyFile(cmd) }
	root.AddCommand(
		initCommand(),
		devCommand(env),
		chaosEngineCommand(env),
		validateCommand(env),
		testCommand(env),
		configCommand(env),
		diagramCommand(),
		migrateCommand(env),
		planCommand(env),
		eventsCommand(env),
		runCommand(env),
		statusCommand(env),
		healthcheckCommand(env),
		quarantineCommand(env),
		consumersCommand(env),
		whyCommand(env),
		doctorCommand(env),
		auditCommand(env),
		restoreCommand(env),
		postgresCommand(),
		versionCommand(),
	)
	return root
}

// usageTemplate is the part that help and a wrong command line share.
const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}
{{- if .HasExample}}

Examples:
{{.Example}}{{end}}
{{- if .HasAvailableSubCommands}}

Commands:
{{- range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}
{{- if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
{{- if .HasAvailableSubCommands}}

"{{.CommandPath}} COMMAND --help" explains a command.{{end}}
`

// group is a command that only holds others: called on its own, it is not understood.
func group(use, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("%s needs a command", cmd.CommandPath())
			}
			return unknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(commands...)
	return cmd
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if near := problem.Nearest(name, names); near != "" {
		return usagef("%s has no command %q; did you mean %q?", cmd.CommandPath(), name, near)
	}
	return usagef("%s has no command %q", cmd.CommandPath(), name)
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "explains a command", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			at := cmd.Root()
			for _, name := range args {
				next, _, err := at.Find([]string{name})
				if err != nil || next == at {
					return unknownCommand(at, name)
				}
				at = next
			}
			at.InitDefaultHelpFlag() // so that help COMMAND and COMMAND --help print the same
			return at.Help()
		},
	}
}

// arguments is an Args function: as many as there are names, all of them required.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef("%s needs %s", cmd.CommandPath(), strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			return usagef("%s does not know what to do with %q", cmd.CommandPath(), args[len(names)])
		}
		return nil
	}
}

// refuseEmptyFile refuses a flag that names a file or a folder and is empty, as a variable that is not set leaves it:
// without the flag a command may do something else altogether.
func refuseEmptyFile(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if kind, _ := pflag.UnquoteUsage(f); (kind == "FILE" || kind == "DIR") && f.Value.String() == "" && err == nil {
			err = usagef("--%s is given without a file: name one, and look whether the variable that it comes from is set", f.Name)
		}
	})
	return err
}

// configFlag gives a command the flag that names the configuration.
func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("config", "consumers.yaml", "the configuration `FILE`; - is standard input")
}

// loadConfig reads the configuration for a command that connects to its database: its warnings are printed,
// its errors are the error.
func loadConfig(cmd *cobra.Command, path string, env lookupEnv) (*config.Config, error) {
	cfg, err := readConfig(cmd, path, env)
	if err != nil {
		return nil, err
	}
	if err := cfg.ReadURLFile().Err(); err != nil {
		return nil, err
	}
	return cfg, nil
}

// readConfig is loadConfig without a look at database.url_file, for a command with another database.
func readConfig(cmd *cobra.Command, path string, env lookupEnv) (*config.Config, error) {
	return usable(cmd, configReader(cmd, path), env)
}

// usable is the configuration that parse gives, with its warnings on the standard error.
func usable(cmd *cobra.Command, parse func(lookupEnv) (*config.Config, problem.List), env lookupEnv) (*config.Config, error) {
	cfg, problems := parse(env)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), problems.Error())
	}
	return cfg, nil
}

// configReader reads a file, or the standard input that the command was given, which can be read once
// only. What it returns parses as often as it is called.
func configReader(cmd *cobra.Command, path string) func(lookupEnv) (*config.Config, problem.List) {
	if path != "-" {
		return func(env lookupEnv) (*config.Config, problem.List) { return config.Load(path, env) }
	}
	text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), config.MaxSize+1))
	return func(env lookupEnv) (*config.Config, problem.List) {
		if err != nil {
			at := problem.Position{File: path, Line: 1, Col: 1}
			return nil, problem.List{{At: at, Severity: problem.Error, Code: "unreadable-file", What: fmt.Sprintf("the standard input cannot be read: %v", err), Fix: "pipe the file in again"}}
		}
		return config.Parse(path, text, env)
	}
}
