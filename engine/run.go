// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/postgres"
)

// Role is what a process does.
type Role string

// The roles.
const (
	RoleAPI    Role = "api"    // serves, and runs no rounds
	RoleWorker Role = "worker" // runs rounds
	RoleAll    Role = "all"    // both
)

// Roles are all roles, as a person writes them.
var Roles = []Role{RoleAPI, RoleWorker, RoleAll}

// Run does the work of a role until ctx ends, then stops: no further round begins, and those that run
// finish within shutdown.total_timeout or roll back. It returns nil after a graceful stop, and an error
// when it could not start, when the runner itself broke, or when a handler did not let its round end in time.
//
// A role that runs rounds first checks every recipient rule against the database, makes partitions
// ahead and creates the missing cursors at the head of the log.
func (e *Engine) Run(ctx context.Context, role Role) error {
	e.mu.Lock()
	again := e.started
	e.started = true
	e.mu.Unlock()
	if again {
		return errors.New("the engine runs only once: open another")
	}

	end, err := e.serve(ctx, role)
	if err != nil {
		return err
	}
	defer end()
	if !e.config.Database.Guarded() {
		e.options.logger.WarnContext(ctx, "restore guard is off: after a restore or a failover that lost commits, events are skipped and numbers used twice without a word")
	}
	defer e.show(ctx, role)()
	if role == RoleAPI {
		if err := e.guard.check(ctx); err != nil {
			if ctx.Err() != nil {
				return nil // told to stop while starting
			}
			return err
		}
		e.tell(func(h *health) { h.started = true })
		e.options.logger.InfoContext(ctx, "engine started", "role", string(role))
		<-ctx.Done()
		return nil
	}
	if err := e.admitted(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while starting
		}
		return err
	}
	e.lookAgain() // there are cursors now
	runner := consumer.NewRunner(notifying{e}, e.runnable(), freely{e.waker(ctx), e.guard, e.deaf}, e.options.logger, e.options.observe)
	runner.Start(context.WithoutCancel(ctx))
	e.tell(func(h *health) { h.started = true })
	e.options.logger.InfoContext(ctx, "engine started", "role", string(role), "consumers", len(e.config.Consumers))

	maintaining, stopMaintaining := context.WithCancel(ctx)
	var maintenance sync.WaitGroup
	maintenance.Go(func() { e.maintain(maintaining) })

	var failure error
	select {
	case <-ctx.Done():
	case failure = <-runner.Failed():
	}
	stopMaintaining()
	err = e.stop(ctx, runner)
	maintenance.Wait()
	return errors.Join(failure, err)
}

// admitted prepares as soon as the guard lets it, however long that takes: the process stays, says why it is not ready,
// and needs no restart once somebody has finalized the restore.
func (e *Engine) admitted(ctx context.Context) error {
	for {
		err := e.Prepare(ctx)
		if _, held := errors.AsType[*HeldError](err); !held {
			return err
		}
		if err := e.guard.wait(ctx); err != nil {
			return err
		}
	}
}

// stop ends the runner within the budget. The last part of it is left for rolling back.
func (e *Engine) stop(ctx context.Context, runner *consumer.Runner) error {
	total := e.config.Shutdown.TotalTimeout
	budget, cancel := context.WithTimeout(context.WithoutCancel(ctx), total)
	defer cancel()
	err := runner.Stop(budget, min(postgres.EndGrace, total/4))
	if errors.Is(err, consumer.ErrCancelled) {
		e.options.logger.WarnContext(ctx, "engine stopped: rounds that ran longer than shutdown.total_timeout were rolled back")
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop within shutdown.total_timeout (%v): %w", total, err)
	}
	e.options.logger.InfoContext(ctx, "engine stopped")
	return nil
}

// Prepare does what must hold before the first round: every recipient rule fits the database, partitions
// are made ahead and each consumer has a cursor, at the head when it is new. Run prepares by itself;
// doing it before lets the caller know where the consumers start. On a database that the engine may not work it
// changes nothing and returns a *HeldError.
func (e *Engine) Prepare(ctx context.Context) error {
	e.fix()
	if err := e.mayWork(ctx); err != nil {
		return err
	}
	problems, err := e.checkRules(ctx)
	if err != nil {
		return err
	}
	if err := problems.Err(); err != nil {
		e.tell(func(h *health) { h.unfit = true })
		return err
	}
	if err := e.makePartitions(ctx); err != nil {
		return err
	}
	return e.service.Ensure(ctx, e.config.Names())
}

func (e *Engine) makePartitions(ctx context.Context) error {
	_, err := e.store.MakePartitions(ctx, e.config.Sync.EventLogPartitionSize, e.config.Sync.PartitionsAhead)
	return err
}

// lockedPolls is how many poll intervals another transaction may hold a cursor that does not move before that is
// told, unless the consumer counts as late before.
const lockedPolls = 10

// runnable are the consumers with their poll intervals.
func (e *Engine) runnable() []consumer.Consumer {
	list := make([]consumer.Consumer, len(e.config.Consumers))
	for i, c := range Consumers(e.config) {
		declared := e.config.Consumers[i]
		list[i] = consumer.Consumer{
			Consumer: c, PollInterval: declared.PollInterval,
			LockedAfter: min(lockedPolls*declared.PollInterval, declared.PendingAlertAfter),
		}
	}
	return list
}

// show makes a connection of its own that shows that this engine runs, where no listener does: a restore is not
// finalized under it. The function that it returns ends the connection.
func (e *Engine) show(ctx context.Context, role Role) (end func()) {
	if role != RoleAPI && e.config.Sync.Notifies() {
		return func() {} // the listener shows it
	}
	database := e.config.Database
	showing, cancel := context.WithCancel(ctx)
	var present sync.WaitGroup
	present.Go(func() {
		_ = freely{postgres.Waker{
			URL: database.Listen().Reveal(), Backoff: e.config.Consumer.PollInterval, BackoffCap: database.ListenReconnectBackoffCap,
			Present: database.Schema, Deaf: true,
		}, e.guard, func() {}}.Run(showing, func() {}) // ends with its context alone
	})
	return func() { cancel(); present.Wait() }
}

// waker listens on a connection of its own, unless sync.notify is off.
func (e *Engine) waker(ctx context.Context) consumer.Waker {
	if !e.config.Sync.Notifies() {
		return postgres.Silence{}
	}
	database := e.config.Database
	listening, hearing := true, true
	return postgres.Waker{
		URL: database.Listen().Reveal(), Backoff: e.config.Consumer.PollInterval, BackoffCap: database.ListenReconnectBackoffCap,
		Present: database.Schema,
		Changed: func(err error) {
			if err == nil {
				_ = e.guard.check(ctx) // before the consumers are woken; else the timer finds it, and each round
			}
			e.signals.Listens(err == nil)
			switch {
			case err != nil && listening && e.outage.begins(ctx): // told once for the whole process
			case err != nil && listening:
				listening = false
				e.options.logger.Warn("event log listener lost: consumers poll until it is back", slog.String("error.type", errorType(err)))
			case err == nil && !listening:
				listening = true
				e.options.logger.Info("event log listener recovered")
			}
		},
		Probe: e.store.Notify,
		Heard: func(heard bool) {
			switch {
			case !heard && hearing:
				hearing = false
				e.options.logger.Warn("event log listener hears nothing: its connection probably leads through a pooler in transaction mode; " +
					"set database.listen_url to a direct one, or sync.notify to off. Consumers poll")
			case heard && !hearing:
				hearing = true
				e.options.logger.Info("event log listener hears notifications again")
			}
		},
	}
}

// errorType is the value of error.type for an error of the store.
func errorType(err error) string {
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
		return typed.ErrorType()
	}
	return "error"
}

// ParseRole reads a role.
func ParseRole(text string) (Role, error) {
	for _, r := range Roles {
		if text == string(r) {
			return r, nil
		}
	}
	return "", fmt.Errorf("role is %q: write one of %v", text, Roles)
}
