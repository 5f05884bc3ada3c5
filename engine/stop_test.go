// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
)

// started runs an engine and gives what tells it to stop and what Run returned.
func started(t *testing.T, e *engine.Engine) (stop context.CancelFunc, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, engine.RoleWorker) }()
	t.Cleanup(cancel)
	return cancel, done
}

// A round that runs when the engine is told to stop commits when it ends within the budget. A round that does not
// is cancelled and rolls back, and who runs the engine next creates every job once.
func TestConsumerShutdownFinishesRound(t *testing.T) {
	t.Parallel()
	for name, within := range map[string]bool{"within the budget": true, "after the budget": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			push := entry{name: "push", recipients: "{handler: hold}", batch: 2}
			db := database(t, push)
			sections := "shutdown: {total_timeout: 1s}\nconsumer: {poll_interval: 20ms}"
			if within {
				sections = "consumer: {poll_interval: 20ms}"
			}
			var log lines
			e := open(t, configureWith(t, db.AppURL, sections, push), engine.WithLogger(log.logger()))
			begun, release := make(chan struct{}, 100), make(chan struct{})
			var calls atomic.Int64
			hold := func(ctx context.Context, _ *engine.HandlerTx, _ engine.Event) ([]string, error) {
				calls.Add(1)
				begun <- struct{}{}
				select {
				case <-release:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return []string{"alex", "sam"}, nil
			}
			register(t, e, "hold", hold)
			ensure(t, e)
			db.Append(t, 6)
			stop, ended := started(t, e)
			<-begun
			stop()
			if within {
				close(release)
			}
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
			want := int64(0)
			if within {
				want = 2
			}
			if cursor, jobs := cursorOf(t, db, "push"), len(jobsOf(t, db, "push")); cursor != want || int64(jobs) != 2*want {
				t.Errorf("cursor %d and %d jobs after the stop, want %d and %d", cursor, jobs, want, 2*want)
			}
			if n := calls.Load(); within && n != 2 {
				t.Errorf("the handler was called %d times, want 2: no further round begins", n)
			}
			if got := log.String(); strings.Contains(got, "round failed") {
				t.Errorf("log:\n%sa stop is no failure", got)
			}
			again := open(t, configureWith(t, db.AppURL, "consumer: {poll_interval: 20ms}", push))
			register(t, again, "hold", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
				return []string{"alex", "sam"}, nil
			})
			halt := runInBackground(t, again)
			waitUntil(t, "the next one reaches the head", func() bool { return cursorOf(t, db, "push") == 6 })
			halt()
			wantExactlyOnce(t, db, "push", 1, 6, "alex", "sam")
		})
	}
}

// A handler that does not look at its context cannot hold the process for longer than the budget.
func TestShutdownDoesNotWaitForAStuckHandler(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: "{handler: stuck}"}
	db := database(t, push)
	e := open(t, configureWith(t, db.AppURL, "shutdown: {total_timeout: 1s}\nconsumer: {poll_interval: 20ms}", push))
	begun, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	register(t, e, "stuck", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		close(begun)
		<-release
		return nil, nil
	})
	ensure(t, e)
	db.Append(t, 1)
	stop, ended := started(t, e)
	<-begun
	stop()
	start := time.Now()
	err := <-ended
	if err == nil || !strings.Contains(err.Error(), `the consumers ["push"]`) || !strings.Contains(err.Error(), "shutdown.total_timeout (1s)") {
		t.Errorf("Run = %v, want an error that names the consumer and the budget", err)
	}
	e.Close()
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the engine took %v to stop and close, want little more than its budget of 1s", took)
	}
}

// A COMMIT may take as long as any statement. When its round is cancelled meanwhile, it is given up soon, and
// whatever became of it, nothing is lost or doubled.
func TestRoundWhoseCommitIsSlow(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	db.Exec(t, `CREATE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(1.5) WHERE current_setting('test.slow', true) IS NULL; PERFORM set_config('test.slow', 'done', true); RETURN NULL; END$$`)
	db.Exec(t, `CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON public.river_job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.slow()`)
	db.Append(t, 2)
	wantRound(t, e, "push", "processed") // longer than what a cancelled round is given

	db.Exec(t, `CREATE OR REPLACE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(20); RETURN NULL; END$$`)
	db.Append(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan engine.Outcome, 1)
	go func() { done <- roundUnder(ctx, t, e, "push") }()
	waitUntil(t, "the commit sleeps", func() bool {
		var n int
		err := admin(t, db).QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'`).Scan(&n)
		return err == nil && n == 1
	})
	start := time.Now()
	cancel()
	if o := <-done; o.End.Name != "stopped" {
		t.Errorf("round ended %s (%v), want stopped", o.End.Name, o.Err)
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the cancelled COMMIT was given up after %v", took)
	}
	db.Exec(t, `DROP TRIGGER slow ON public.river_job`)
	waitUntil(t, "the next rounds reach the head", func() bool { round(t, e, "push"); return cursorOf(t, db, "push") == 4 })
	wantExactlyOnce(t, db, "push", 1, 4, "alex", "sam")
}

// canceller cancels a context when a batch that begins with a word was sent, or is about to be, and notes which
// backend it was.
type canceller struct {
	trips
	word          string
	before, after context.CancelFunc
	pids          []uint32
}

func (c *canceller) TraceBatchStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	c.note(d.Batch.QueuedQueries[0].SQL)
	if !strings.HasPrefix(d.Batch.QueuedQueries[0].SQL, c.word) {
		return ctx
	}
	c.pids = append(c.pids, conn.PgConn().PID())
	if c.before != nil {
		c.before()
	}
	return ctx
}

func (c *canceller) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {
	if c.after != nil {
		c.after()
	}
}

// A round that is cancelled half way rolls back by itself: its connection serves the next round.
func TestCancelledRoundLeavesACleanConnection(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	cfg := configure(t, db, push)
	cfg.Database.PoolMaxConns = 1
	tracer := &canceller{word: "BEGIN"}
	e := open(t, cfg, engine.WithTracer(tracer))
	ensure(t, e)
	db.Append(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	tracer.after = cancel
	if o := roundUnder(ctx, t, e, "push"); o.End.Name != "stopped" {
		t.Fatalf("round ended %s (%v), want stopped", o.End.Name, o.Err)
	}
	tracer.after = nil
	wantRound(t, e, "push", "processed")
	if len(tracer.pids) != 2 || tracer.pids[0] != tracer.pids[1] {
		t.Errorf("the rounds ran on the backends %v, want one and the same", tracer.pids)
	}
	wantExactlyOnce(t, db, "push", 1, 1, "alex", "sam")
}

// Once everything was decided, a stop no longer takes it back: the COMMIT has its own time.
func TestCommitIsNotCancelled(t *testing.T) {
	t.Parallel()
	push := entry{name: "push"}
	db := database(t, push)
	tracer := &canceller{word: "INSERT"}
	e := open(t, configure(t, db, push), engine.WithTracer(tracer))
	ensure(t, e)
	db.Append(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	tracer.before = cancel
	if o := roundUnder(ctx, t, e, "push"); o.End.Name != "processed" {
		t.Errorf("round ended %s (%v), want processed", o.End.Name, o.Err)
	}
	wantExactlyOnce(t, db, "push", 1, 1, "alex", "sam")
}

// A full batch is one that was read full, whatever types leave of it: the next round begins at once.
func TestFullIsCountedBeforeTypes(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push", batch: 5, types: "[message.*]"})
	db.Append(t, 8)
	for _, want := range []bool{true, false} {
		if o := wantRound(t, e, "push", "processed"); o.Full != want || o.Jobs != 0 {
			t.Errorf("round over %d events that concern nobody: full %v and %d jobs, want %v and none", o.Events, o.Full, o.Jobs, want)
		}
	}
}
