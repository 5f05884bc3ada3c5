// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/devdb"
	"example.com/bothy/engine/postgres"
)

// fault is one thing that goes wrong.
type fault struct {
	name  string
	kills bool // it ends something that was at work
	// strike does it. It reports whether there was anything to do it to; an error ends the whole run.
	strike func(k *killer, ctx context.Context) (struck bool, err error)
}

// faults are all that go wrong.
var faults = []fault{
	{"engine killed (kill -9)", true, (*killer).killEngine},
	{"engine stopped (SIGTERM)", true, (*killer).stopEngine},
	{"engine frozen for a moment", false, func(k *killer, ctx context.Context) (bool, error) { return k.freezeEngine(ctx, false) }},
	{"engine frozen for longer than its timeouts", false, func(k *killer, ctx context.Context) (bool, error) { return k.freezeEngine(ctx, true) }},
	{"session of a round ended", true, func(k *killer, ctx context.Context) (bool, error) {
		return k.endSession(ctx, postgres.EngineApplication)
	}},
	{"session of a listener ended", true, func(k *killer, ctx context.Context) (bool, error) { return k.endSession(ctx, postgres.WakeApplication) }},
	{"session of a producer ended", true, func(k *killer, ctx context.Context) (bool, error) { return k.endSession(ctx, producerApplication) }},
	{"PostgreSQL restarted (fast)", true, func(k *killer, ctx context.Context) (bool, error) { return k.restart(ctx, devdb.Fast) }},
	{"PostgreSQL restarted (immediate)", true, func(k *killer, ctx context.Context) (bool, error) {
		return true, k.server.Restart(ctx, devdb.Immediate)
	}},
	{"PostgreSQL killed (kill -9)", true, func(k *killer, ctx context.Context) (bool, error) { return k.restart(ctx, devdb.Killed) }},
	{"process of PostgreSQL killed (kill -9)", true, (*killer).crashBackend},
	{"cursor held by somebody else", false, (*killer).holdCursor},
	{"migrated (engine migrate up)", false, (*killer).migrate},
}

// killer lets things go wrong, in an order that its seed decides.
type killer struct {
	rng     *rand.Rand
	server  *devdb.Server
	url     string
	cfg     *config.Config
	engines []*chaosEngine
	later   *errgroup.Group // what takes its time while other things go wrong

	bag    []int // of faults, shuffled: each comes once before any comes again
	struck []int // how often, by fault
	begun  time.Time
	last   []string // what went wrong last, with its time, for whoever looks for the reason of a failure
}

const (
	faultPause    = 700 // milliseconds, at most, between two faults
	sessionLimit  = 5 * time.Second
	migratePause  = 200 * time.Millisecond
	migrateLimit  = 30 * time.Second
	recoverLimit  = 30 * time.Second
	shortFreeze   = 800 // milliseconds, at most
	longestHolder = 2500
)

// run lets things go wrong until ctx ends.
func (k *killer) run(ctx context.Context) error {
	k.struck, k.begun = make([]int, len(faults)), time.Now()
	for ctx.Err() == nil {
		rest(ctx, time.Duration(100+k.rng.IntN(faultPause))*time.Millisecond)
		if len(k.bag) == 0 {
			k.bag = k.rng.Perm(len(faults))
		}
		i := k.bag[0]
		k.bag = k.bag[1:]
		if ctx.Err() != nil {
			break
		}
		k.last = append(k.last, fmt.Sprintf("%6.2fs %s", time.Since(k.begun).Seconds(), faults[i].name))
		k.last = k.last[max(0, len(k.last)-lastLines):]
		// A fault is carried through, so that the end of the run finds everything on its feet.
		struck, err := faults[i].strike(k, context.WithoutCancel(ctx))
		if err != nil {
			return fmt.Errorf("%s: %w", faults[i].name, err)
		}
		if struck {
			k.struck[i]++
		}
	}
	return nil //nolint:nilerr // the time is over
}

func (k *killer) kills() (n int) {
	for i, f := range faults {
		if f.kills {
			n += k.struck[i]
		}
	}
	return n
}

// victim is one of the engines that run, or nil.
func (k *killer) victim() *chaosEngine {
	for _, i := range k.rng.Perm(len(k.engines)) {
		if k.engines[i].running() {
			return k.engines[i]
		}
	}
	return nil
}

func (k *killer) killEngine(context.Context) (bool, error) {
	v := k.victim()
	return v != nil && v.present().end(kill), nil
}

// stopEngine asks an engine to end and gives it the time that it may take, while other things go wrong.
func (k *killer) stopEngine(context.Context) (bool, error) {
	v := k.victim()
	if v == nil {
		return false, nil
	}
	life := v.present()
	if !life.end(terminate) {
		return false, nil
	}
	k.later.Go(func() error {
		if !life.wait(engineEnd) {
			return fmt.Errorf("%s did not end within %v of SIGTERM; it said last:\n%s", v.name, engineEnd, life.log.String())
		}
		return nil
	})
	return true, nil
}

func (k *killer) freezeEngine(ctx context.Context, long bool) (bool, error) {
	pause := time.Duration(100+k.rng.IntN(shortFreeze)) * time.Millisecond
	if long {
		pause += chaosIdle
	}
	v := k.victim()
	if v == nil {
		return false, nil
	}
	life := v.present()
	if !life.end(freeze) {
		return false, nil
	}
	k.later.Go(func() error {
		rest(ctx, pause)
		life.end(thaw)
		return nil
	})
	return true, nil
}

// sessions are those of an application, busy ones if there are any. When PostgreSQL is not there, there are none.
func (k *killer) sessions(ctx context.Context, application string) []int {
	all, err := postgres.Sessions(ctx, k.url)
	if err != nil {
		return nil
	}
	var busy, idle []int
	for _, s := range all {
		switch {
		case s.Application != application:
		case s.InTransaction:
			busy = append(busy, s.PID)
		default:
			idle = append(idle, s.PID)
		}
	}
	if len(busy) > 0 {
		return busy
	}
	return idle
}

func (k *killer) endSession(ctx context.Context, application string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, sessionLimit)
	defer cancel()
	dice := k.rng.Int()
	pids := k.sessions(ctx, application)
	if len(pids) == 0 {
		return false, nil
	}
	there, err := postgres.EndSession(ctx, k.url, pids[dice%len(pids)])
	return there && err == nil, nil // an error: PostgreSQL is recovering from another fault
}

func (k *killer) crashBackend(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, sessionLimit)
	defer cancel()
	dice := k.rng.Int()
	pids := k.sessions(ctx, []string{postgres.EngineApplication, producerApplication}[dice%2])
	if len(pids) == 0 {
		return false, nil
	}
	return k.server.Crash(pids[dice%len(pids)]) == nil, nil // the session may have ended by itself
}

func (k *killer) holdCursor(ctx context.Context) (bool, error) {
	consumer := k.cfg.Consumers[k.rng.IntN(len(k.cfg.Consumers))].Name
	hold := time.Duration(200+k.rng.IntN(longestHolder)) * time.Millisecond
	k.later.Go(func() error {
		ctx, cancel := context.WithTimeout(ctx, hold+sessionLimit)
		defer cancel()
		_ = postgres.HoldCursor(ctx, k.url, k.cfg.Database.Schema, consumer, hold) // another fault may end it
		return nil
	})
	return true, nil
}

// restart ends PostgreSQL and starts it again. Asked for a fast shutdown while it recovers from a crash, it would
// do nothing for long, so it is given time to recover first.
func (k *killer) restart(ctx context.Context, how devdb.Shutdown) (bool, error) {
	if how == devdb.Fast {
		err := awaitThat(ctx, recoverLimit, "PostgreSQL has recovered", func() bool {
			_, err := postgres.Sessions(ctx, k.url)
			return err == nil
		})
		if err != nil {
			return false, err
		}
	}
	return true, k.server.Restart(ctx, how)
}

// migrate does what a release does first. PostgreSQL may be recovering: then it is tried again.
func (k *killer) migrate(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, migrateLimit)
	defer cancel()
	for {
		_, err := postgres.Migrate(ctx, engine.MigrateOptions(k.cfg))
		if err == nil {
			return true, nil
		}
		rest(ctx, migratePause)
		if ctx.Err() != nil {
			return false, err
		}
	}
}
