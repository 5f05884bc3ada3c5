// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
)

// devFlags are the flags of dev.
type devFlags struct {
	config, events, data, setup string
	listen                      string // of the status page
	once                        bool
	chaos                       bool
	duration                    time.Duration // of chaos
	seed                        int64         // of chaos; 0 is a random one
}

func devCommand(env lookupEnv) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "runs everything on a private PostgreSQL, with sample events",
		Long: `dev starts a PostgreSQL of its own, migrates it, appends events, runs every consumer of the configuration and
works the jobs with a recorder, so that the whole chain is seen. Without --events it appends a sample: a few
days of a small shop. It ends with a table of what each consumer did, and compares the jobs with the log:
every event must have its jobs exactly once.

With --once it ends when every event is processed; otherwise it goes on until it is interrupted, and you
append with engine events append. Meanwhile it serves a status page, and River UI with the jobs, on the loopback
address; it prints where. Nothing of it remains, unless --data names a folder that keeps it.

With --chaos it tries to break the promise instead: two engines and several producers work while engines and
PostgreSQL are killed, frozen and restarted, and sessions ended, in the order of a seed. At the end everything
has to be processed, and every event is verified.

When BOTHY_TEST_SERVER_URL is set, no server is started: dev makes a database of its own on that server and
drops it at the end. A server that the configuration names is refused there. dev uses no other database.`,
		Example: `  engine dev --once
  engine dev --once --events events.jsonl
  engine dev --data ./dev-database --setup tables.sql
  engine dev --listen 127.0.0.1:9464
  engine dev --chaos --for 60s`,
		Args: arguments(),
	}
	var f devFlags
	cmd.Flags().StringVar(&f.config, "config", "consumers.yaml", "the configuration `FILE`; - is standard input")
	cmd.Flags().BoolVar(&f.once, "once", false, "process the events, verify the jobs and end")
	cmd.Flags().StringVar(&f.events, "events", "", "append the CloudEvents of `FILE` instead of the sample")
	cmd.Flags().StringVar(&f.data, "data", "", "keep the database in `DIR` from one run to the next")
	cmd.Flags().StringVar(&f.setup, "setup", "", "run the SQL of `FILE` on the new database, instead of making the table that the shipped consumers.yaml asks")
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:0", "the loopback `ADDRESS` of the status page; port 0 is a free one")
	cmd.Flags().BoolVar(&f.chaos, "chaos", false, "kill, freeze and restart things on the way, and verify every event")
	cmd.Flags().DurationVar(&f.duration, "for", time.Minute, "with --chaos: how long things go wrong")
	cmd.Flags().Int64Var(&f.seed, "seed", 0, "with --chaos: the `NUMBER` that decides what goes wrong in which order (default a random one)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkChaos(cmd, f, env); err != nil {
			return err
		}
		if err := checkListen(cmd, f); err != nil {
			return err
		}
		if f.chaos {
			return chaos(cmd, f, env)
		}
		if server, _ := env(serverVariable); server != "" && f.data != "" {
			return usagef("--data keeps a private database, and %s asks for another server: use one of them", serverVariable)
		}
		return dev(cmd, f, env)
	}
	return cmd
}

// checkChaos refuses flags that do not go together.
func checkChaos(cmd *cobra.Command, f devFlags, env lookupEnv) error {
	for _, name := range []string{"for", "seed"} {
		if !f.chaos && cmd.Flags().Changed(name) {
			return usagef("--%s needs --chaos", name)
		}
	}
	if !f.chaos {
		return nil
	}
	for _, name := range []string{"once", "events", "data", "listen"} {
		if cmd.Flags().Changed(name) {
			return usagef("--chaos has events and a database of its own: leave out --%s", name)
		}
	}
	if server, _ := env(serverVariable); server != "" {
		return usagef("--chaos kills PostgreSQL, and %s names one that is not its own: unset it", serverVariable)
	}
	switch {
	case f.config == "-":
		return usagef("--chaos starts engines that read the configuration too: name a file with --config")
	case f.duration <= 0:
		return usagef("--for is %v: write a duration above 0, such as 60s", f.duration)
	case f.seed < 0:
		return usagef("--seed is %d: write a number from 1", f.seed)
	}
	return nil
}

// checkListen refuses an address that others could reach: what dev serves asks nobody who they are.
func checkListen(cmd *cobra.Command, f devFlags) error {
	if f.once && cmd.Flags().Changed("listen") {
		return usagef("--once ends before anybody could look: leave out --listen")
	}
	host, port, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usagef("--listen is %q: write HOST:PORT, such as 127.0.0.1:9464", f.listen)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return usagef("--listen is %q: write a port from 0 to 65535", f.listen)
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		return usagef("--listen is %q: the status page of dev has no token, so write a loopback address, such as 127.0.0.1:9464", f.listen)
	}
	return nil
}

// databaseVariable is what the configuration that init writes expands to the address of the real database. dev
// and test read it only to keep away from there.
const databaseVariable = "BOTHY_DATABASE_URL"

// dev prepares what every run needs, and undoes it at the end.
func dev(cmd *cobra.Command, f devFlags, env lookupEnv) (err error) {
	ctx := cmd.Context()
	setup, err := readSetup(f.setup)
	if err != nil {
		return err
	}
	// The configuration is checked before anything is started; the real address is put in afterwards.
	parse := configReader(cmd, f.config)
	cfg, err := usable(cmd, parse, privately(env))
	if err != nil {
		return err
	}
	database, err := devDatabase(cmd, f, env, realAddresses(parse, env), len(cfg.Consumers))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, database.stop()) }()
	ctx, cancel := database.watch(ctx)
	defer cancel()
	url := database.url
	alone(cfg, url)
	for i := range cfg.Consumers {
		// a rule that fails is found at once, and not after a few polls of production
		cfg.Consumers[i].PollInterval = min(cfg.Consumers[i].PollInterval, devPoll)
	}

	report, err := postgres.Migrate(ctx, aloneOptions(cfg))
	if err != nil {
		return err
	}
	if n := len(report.Migrations); n > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "schema %s made by %s\n", cfg.Database.Schema, count(n, "migration"))
	}
	ran, err := postgres.SetUp(ctx, url, setup)
	switch {
	case err != nil:
		return setupRefused(f.setup, setup, err)
	case !ran && f.setup != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "the database in %s was set up before, and %s was not run again: remove the folder to begin anew\n", f.data, f.setup)
	}
	cfg.HTTP = config.HTTP{Listen: f.listen} // the address of the file belongs to the real engine
	if f.once {
		cfg.HTTP.Listen = ""
		if cfg.Log.Level == "info" {
			cfg.Log.Level = "warn" // the table at the end says it all
		}
	}
	err = follow(ctx, &devRun{cmd: cmd, flags: f, cfg: cfg, url: url, tally: newTally()})
	if f.setup == "" && lacksTable(err) {
		fmt.Fprintln(cmd.ErrOrStderr(), "hint: the database of dev is new and holds no tables of yours: name the SQL that makes them with --setup FILE")
	}
	return err
}

// lacksTable reports whether a rule was refused since it reads a table that is not there.
func lacksTable(err error) bool {
	var problems problem.List
	return errors.As(err, &problems) && slices.ContainsFunc(problems, func(p problem.Problem) bool { return p.Code == "unknown-relation" })
}

// privately gives the variables of a configuration whose database is a private one: the address is put in
// afterwards, and whatever the environment says of it need not even be an address.
func privately(env lookupEnv) lookupEnv {
	return func(name string) (string, bool) {
		if name == databaseVariable {
			return "postgres:///private", true
		}
		return env(name)
	}
}

// alone changes a configuration to a database that nobody else uses.
func alone(cfg *config.Config, url string) {
	cfg.Database.URL, cfg.Database.AdminURL, cfg.Database.ListenURL = config.Secret(url), "", ""
	cfg.Database.Roles = config.Roles{} // roles belong to the whole server: none is made, and one connects
	cfg.Jobs.Migrate = true             // the River tables there are nobody else's
}

// aloneOptions are those of a migration of such a database, where a name that is new in the file is a new consumer:
// there are no events that somebody counts on.
func aloneOptions(cfg *config.Config) postgres.MigrateOptions {
	options := engine.MigrateOptions(cfg)
	options.NewConsumers = true
	return options
}

// readSetup is the SQL that is run before the consumers start.
func readSetup(file string) (string, error) {
	if file == "" {
		return sampleSetup, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the setup: %w", err)
	}
	return string(text), nil
}

// setupRefused says where the setup is refused, when the server did.
func setupRefused(file, text string, err error) error {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || file == "" {
		return fmt.Errorf("run the setup: %w", err)
	}
	at := problem.Position{File: file, Line: 1, Col: 1}
	before := []rune(text)
	for _, r := range before[:min(max(int(answer.Position)-1, 0), len(before))] {
		at.Col++
		if r == '\n' {
			at.Line, at.Col = at.Line+1, 1
		}
	}
	return problem.List{{
		At: at, Severity: problem.Error, Code: "bad-setup", What: "the database refuses the setup: " + said(answer),
		Fix: "correct the SQL: it runs once, on an empty database",
	}}
}

// devPoll is the longest that a consumer waits on a database that nobody else uses.
const devPoll = 250 * time.Millisecond
