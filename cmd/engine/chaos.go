// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/devdb"
	"example.com/bothy/engine/postgres"
)

const (
	chaosEngines   = 2
	chaosProducers = 4
	chaosReport    = 5 * time.Second  // between two lines about the run
	chaosReady     = time.Minute      // for the first engines to begin
	chaosDrain     = 90 * time.Second // for what is left when nothing goes wrong any more
)

// chaos runs engines and producers while a killer is about, and verifies every event at the end.
func chaos(cmd *cobra.Command, f devFlags, env lookupEnv) (err error) {
	if err := chaosSupported(); err != nil {
		return err
	}
	setup, err := readSetup(f.setup)
	if err != nil {
		return err
	}
	cfg, err := readConfig(cmd, f.config, privately(env))
	if err != nil {
		return err
	}
	if f.seed == 0 {
		f.seed = 1 + rand.Int64N(1<<31) //nolint:gosec // it decides what goes wrong, and no secret
	}
	say := cmd.ErrOrStderr()
	defer func() {
		if err != nil {
			fmt.Fprintf(say, "seed %d: the same things go wrong in the same order with --chaos --seed %d\n", f.seed, f.seed)
		}
	}()
	server, err := devdb.Start(cmd.Context(), devdb.Options{
		Durable: true, Fetch: true, Log: say, MaxConnections: 100 + chaosEngines*(len(cfg.Consumers)+4),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Fprintf(say, "private PostgreSQL %s started; things go wrong for %v, seed %d\n", server.Version(), f.duration, f.seed)

	address := server.URL(devdb.Superuser, "postgres")
	chaosConfig(cfg, address)
	run := &chaosRun{
		cmd: cmd, flags: f, cfg: cfg, server: server, url: address,
		log: appended{committed: map[string]bool{}, undone: map[string]bool{}},
	}
	if err := run.prepare(cmd.Context(), setup); err != nil {
		return err
	}
	if err := run.wreck(cmd.Context()); err != nil {
		return err
	}
	if cmd.Context().Err() != nil {
		return errors.New("interrupted before every event was verified")
	}
	return run.verify(cmd.Context())
}

// chaosRun is one run.
type chaosRun struct {
	cmd    *cobra.Command
	flags  devFlags
	cfg    *config.Config
	server *devdb.Server
	url    string
	log    appended
	killer *killer
}

// prepare makes the schema, and every cursor before the first event.
func (r *chaosRun) prepare(ctx context.Context, setup string) error {
	if _, err := postgres.Migrate(ctx, engine.MigrateOptions(r.cfg)); err != nil {
		return err
	}
	if _, err := postgres.SetUp(ctx, r.url, setup); err != nil {
		return fmt.Errorf("run the setup: %w", err)
	}
	return r.withEngine(ctx, func(e *engine.Engine) error { return e.Prepare(ctx) })
}

// withEngine opens an engine that runs nothing.
func (r *chaosRun) withEngine(ctx context.Context, use func(*engine.Engine) error) error {
	e, err := engine.Open(ctx, r.cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := e.Register(mentionsName, mentions); err != nil {
		return err
	}
	return use(e)
}

// wreck runs the engines, and on them the producers and the killer, until the time is over and everything that is left is
// processed. Nothing of it runs when it returns.
func (r *chaosRun) wreck(ctx context.Context) error {
	living, stop := context.WithCancel(ctx)
	defer stop()
	all, living := errgroup.WithContext(living)
	engines := make([]*chaosEngine, chaosEngines)
	for i := range engines {
		engines[i] = &chaosEngine{name: fmt.Sprintf("engine %d", i+1), args: []string{chaosEngineName, "--config", r.flags.config, "--url", r.url}}
		all.Go(func() error { return engines[i].supervise(living) })
	}
	r.killer = &killer{rng: r.rng(0), server: r.server, url: r.url, cfg: r.cfg, engines: engines, later: &errgroup.Group{}}
	all.Go(func() error {
		defer stop()
		err := awaitThat(living, chaosReady, "both engines have begun", func() bool {
			return !slices.ContainsFunc(engines, func(p *chaosEngine) bool { return !p.running() })
		})
		if err == nil {
			err = r.disturb(living)
		}
		err = errors.Join(err, r.killer.later.Wait())
		if err == nil && living.Err() == nil {
			err = r.drain(living)
		}
		return err
	})
	err := all.Wait()
	if ctx.Err() != nil {
		return errors.New("interrupted before every event was verified")
	}
	if err != nil {
		fmt.Fprintln(r.cmd.ErrOrStderr(), "what went wrong last:\n    "+strings.Join(r.killer.last, "\n    "))
	}
	return err
}

// rng is a source of dice of its own for each who throws them: what one does moves no other.
func (r *chaosRun) rng(who uint64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(r.flags.seed), who)) //nolint:gosec // it decides what goes wrong, and no secret
}

// disturb runs the producers and the killer for the time of the run.
func (r *chaosRun) disturb(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, r.flags.duration)
	defer cancel()
	group, limited := errgroup.WithContext(limited)
	types := chaosTypes(r.cfg)
	for i := range chaosProducers {
		p := chaosProducer{
			url: r.url + "&application_name=" + url.QueryEscape(producerApplication), schema: r.cfg.Database.Schema, types: types,
			rng: r.rng(uint64(i) + 1), log: &r.log,
		}
		group.Go(func() error { p.run(limited); return nil })
	}
	group.Go(func() error { return r.killer.run(limited) })
	group.Go(func() error {
		start := time.Now()
		tick := time.NewTicker(chaosReport)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(r.cmd.ErrOrStderr(), "%v of %v: %s events confirmed\n", time.Since(start).Round(time.Second), r.flags.duration, thousands(r.log.confirmed()))
			case <-limited.Done():
				return nil
			}
		}
	})
	return group.Wait()
}

// drain waits until every consumer is at the head. Nothing goes wrong any more.
func (r *chaosRun) drain(ctx context.Context) error {
	var last error
	var states []engine.State
	err := awaitThat(ctx, chaosDrain, "every consumer has reached the head", func() bool {
		last = r.withEngine(ctx, func(e *engine.Engine) (err error) {
			states, err = e.States(ctx)
			return err
		})
		return last == nil && !slices.ContainsFunc(states, func(s engine.State) bool { return s.Lag() > 0 })
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, p := range r.killer.engines {
		if life := p.present(); life != nil {
			fmt.Fprintf(r.cmd.ErrOrStderr(), "%s said last:\n%s\n", p.name, life.log.String())
		}
	}
	for _, s := range states {
		fmt.Fprintf(r.cmd.ErrOrStderr(), "consumer %s is at %d of %d\n", s.Name, s.LastSeq, s.HeadSeq)
	}
	return errors.Join(err, last)
}

// awaitThat looks again and again.
func awaitThat(ctx context.Context, limit time.Duration, what string, holds func() bool) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	tick := time.NewTicker(lookInterval * 2)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return fmt.Errorf("not within %v: %s", limit, what)
		}
	}
	return nil
}

// verify compares everything with everything: what the producers were told with the log, and the log with the jobs.
func (r *chaosRun) verify(ctx context.Context) error {
	lost, doubled, events, err := r.verifyLog(ctx)
	if err != nil {
		return err
	}
	diagnosis, err := engine.Doctor(ctx, r.cfg, engine.DoctorOptions{})
	if err != nil {
		return err
	}
	var comparisons []engine.Comparison
	err = r.withEngine(ctx, func(e *engine.Engine) (err error) {
		comparisons, err = e.Compare(ctx, nil)
		return err
	})
	if err != nil {
		return err
	}
	stdout, stderr := r.cmd.OutOrStdout(), r.cmd.ErrOrStderr()
	r.printFaults(stdout)
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CONSUMER\tEVENTS\tJOBS\tLOST\tDOUBLED")
	for _, c := range comparisons {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\n", c.Consumer, c.Events, c.Found, c.Missing, c.Doubled+c.Extra)
		lost, doubled = lost+c.Missing, doubled+c.Doubled+c.Extra
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, f := range diagnosis.Findings {
		if f.Severity == engine.SeverityWrong {
			fmt.Fprintf(stderr, "doctor: %s: %s\n", f.Consumer, f.What)
		}
	}
	if _, err := fmt.Fprintf(stdout, "\n%s kills, %s events, %s lost, %s doubled\n", thousands(r.killer.kills()), thousands(events), thousands(int(lost)), thousands(int(doubled))); err != nil {
		return err
	}
	if lost > 0 || doubled > 0 || !diagnosis.Healthy {
		fmt.Fprintln(stderr, "engine: the promise is broken: an event without its jobs, or with more than its jobs")
		return errReported
	}
	return nil
}

// verifyLog compares the log with what the producers know. An event whose commit was confirmed is there once; one
// that was rolled back is not.
func (r *chaosRun) verifyLog(ctx context.Context) (lost, doubled int64, events int, err error) {
	seen := map[string]int{}
	if err := postgres.EventIDs(ctx, r.url, r.cfg.Database.Schema, func(id string) { seen[id]++; events++ }); err != nil {
		return 0, 0, 0, err
	}
	for id := range r.log.committed {
		if seen[id] == 0 {
			lost++
		}
	}
	for id, n := range seen {
		if doubled += int64(n - 1); r.log.undone[id] {
			doubled += int64(n)
		}
	}
	return lost, doubled, events, nil
}

func (r *chaosRun) printFaults(to io.Writer) {
	table := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "WHAT WENT WRONG\tTIMES")
	for i, f := range faults {
		fmt.Fprintf(table, "%s\t%d\n", f.name, r.killer.struck[i])
	}
	fmt.Fprintln(table)
	_ = table.Flush() // the summary says whether the reader is gone
}

// thousands is a number as a person reads it.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
