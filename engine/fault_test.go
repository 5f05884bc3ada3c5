// SPDX-License-Identifier: Apache-2.0

//go:build unix

package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// trap calls fall once, right before the round trip that begins with a word is sent.
type trap struct {
	trips
	word string
	set  atomic.Bool
	fall func(pid uint32)
}

func (s *trap) look(ctx context.Context, conn *pgx.Conn, sql string) context.Context {
	if strings.HasPrefix(strings.TrimSpace(sql), s.word) && s.set.CompareAndSwap(true, false) {
		s.fall(conn.PgConn().PID())
	}
	return ctx
}

func (s *trap) TraceQueryStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return s.look(ctx, conn, d.SQL)
}

func (s *trap) TraceBatchStart(ctx context.Context, conn *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	return s.look(ctx, conn, d.Batch.QueuedQueries[0].SQL)
}

func (s *trap) TraceCopyFromStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return s.look(ctx, conn, "COPY")
}

// margin is what these tests wait beyond statement_timeout; the engine's own is longer.
const margin = 500 * time.Millisecond

// unstuck is by when a round whose server does not answer must have ended: statement_timeout, the margin that
// the engine adds, and what a busy machine may need.
const unstuck = 100*time.Millisecond + margin + 10*time.Second

// A server process that is frozen, and a network that swallows packets, end the round in time, wherever in the
// round it happens. The connection is closed, other consumers go on, and afterwards every event has its jobs
// once: also when what was lost is the answer to a COMMIT that took place.
func TestRoundWhoseServerFallsSilent(t *testing.T) {
	t.Parallel()
	faults := map[string]func(t *testing.T, db *enginetest.DB, p *enginetest.Proxy, pid uint32) (mend func()){
		"swallowed": func(_ *testing.T, _ *enginetest.DB, p *enginetest.Proxy, _ uint32) func() {
			p.Swallow(false)
			return func() {}
		},
		"reply lost": func(_ *testing.T, _ *enginetest.DB, p *enginetest.Proxy, _ uint32) func() {
			p.LoseReplies()
			return func() {}
		},
		"frozen": func(t *testing.T, db *enginetest.DB, _ *enginetest.Proxy, pid uint32) func() {
			if !db.Private() { // nobody may freeze a process of a server that is shared
				return func() {}
			}
			return db.Freeze(t, pid)
		},
	}
	moments := map[string]string{"lock": "BEGIN", "handler": "SELECT 'asked by", "jobs": "COPY", "commit": "SELECT pg_catalog.pg_advisory_unlock_all"}
	for fault, strike := range faults {
		for moment, word := range moments {
			t.Run(fault+" at "+moment, func(t *testing.T) {
				t.Parallel()
				push, other := entry{name: "push", batch: 100, recipients: "{handler: both}"}, entry{name: "other", batch: 100}
				db := database(t, push, other)
				proxy := enginetest.NewProxy(t, db.AppURL)
				cfg := configureWith(t, proxy.URL, "consumer: {poll_interval: 1h}", push, other)
				cfg.Database.StatementTimeout, cfg.Database.IdleInTxTimeout = 100*time.Millisecond, 200*time.Millisecond
				mend := func() {}
				tracer := &trap{word: word}
				tracer.fall = func(pid uint32) { mend = strike(t, db, proxy, pid) }
				e := open(t, cfg, engine.WithTracer(tracer), engine.WithMargin(margin))
				register(t, e, "both", func(ctx context.Context, tx *engine.HandlerTx, _ engine.Event) ([]string, error) {
					_, err := tx.Exec(ctx, `SELECT 'asked by the handler'`)
					return []string{"alex", "sam"}, err
				})
				ensure(t, e)
				db.Append(t, 40)
				wantRound(t, e, "push", "processed") // what is sent below was sent before: nothing is prepared
				db.Append(t, 40)
				tracer.set.Store(true)
				start := time.Now()
				o := round(t, e, "push")
				took := time.Since(start)
				if tracer.set.Load() {
					t.Fatalf("the round never sent %q", word)
				}
				if fault == "frozen" && !db.Private() {
					return
				}
				if o.End.Name != "failed" || !slices.Contains([]string{"timeout", "connection"}, o.ErrorType()) {
					t.Fatalf("round ended %s with %v, want failed with error.type timeout or connection", o.End.Name, o.Err)
				}
				if fault == "reply lost" && moment == "commit" && cursorOf(t, db, "push") != 80 {
					t.Error("the COMMIT did not take place: this test loses the wrong reply")
				}
				if took > unstuck {
					t.Errorf("the round took %v, want at most %v", took, unstuck)
				}
				waitUntil(t, "another consumer goes on while the fault lasts", func() bool {
					round(t, e, "other")
					return cursorOf(t, db, "other") == 80
				})
				mend()
				waitUntil(t, "the consumer recovers by itself", func() bool {
					round(t, e, "push")
					return cursorOf(t, db, "push") == 80
				})
				wantExactlyOnce(t, db, "push", 1, 80, "alex", "sam")
			})
		}
	}
}

// Whatever else asks the server ends in time too, and so does the wait for a connection when all are stuck.
func TestQuestionsWhoseServerFallsSilent(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(context.Context, *engine.Engine) error{
		"States": func(ctx context.Context, e *engine.Engine) error { _, err := e.States(ctx); return err },
		"Ensure": func(ctx context.Context, e *engine.Engine) error { return e.Ensure(ctx) },
		"CheckRule": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Store().CheckRule(ctx, "SELECT seq, type AS recipient FROM batch")
			return err
		},
		"MakePartitions": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Store().MakePartitions(ctx, 10, 1)
			return err
		},
		"Round": func(ctx context.Context, e *engine.Engine) error {
			o, err := e.Round(ctx, "push")
			return errors.Join(err, o.Err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			push := entry{name: "push"}
			db := database(t, push)
			proxy := enginetest.NewProxy(t, db.AppURL)
			cfg := configureWith(t, proxy.URL, "consumer: {poll_interval: 1h}", push)
			cfg.Database.StatementTimeout = 100 * time.Millisecond
			e := open(t, cfg, engine.WithMargin(margin))
			ensure(t, e)
			proxy.Swallow(true) // also the connections that would replace the stuck ones
			start := time.Now()
			if err := ask(t.Context(), e); err == nil {
				t.Error("no error, want one that says that the server is silent")
			}
			if took := time.Since(start); took > unstuck {
				t.Errorf("it took %v, want at most %v", took, unstuck)
			}
			proxy.Restore()
			waitUntil(t, "the pool recovers by itself", func() bool { return ask(t.Context(), e) == nil })
		})
	}
}

// Case 33: a connection that listens and dies without a word is found by asking it; the time for that covers
// connecting as well.
func TestWakerWhoseServerFallsSilent(t *testing.T) {
	t.Parallel()
	db := database(t)
	proxy := enginetest.NewProxy(t, db.AppURL)
	told := make(chan string, 10)
	waker := postgres.Waker{
		URL: proxy.URL, Backoff: 10 * time.Millisecond, BackoffCap: 10 * time.Millisecond, KeepAlive: 200 * time.Millisecond,
		Changed: func(err error) {
			if err != nil {
				told <- "lost"
				return
			}
			told <- "listening"
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- waker.Run(ctx, func() {}) }()
	changes := []string{next(t, told)}
	proxy.Swallow(true)
	changes = append(changes, next(t, told), next(t, told)) // the connection that listened, and one that was being made
	proxy.Restore()
	for changes[len(changes)-1] != "listening" {
		changes = append(changes, next(t, told))
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want the context's error", err)
	}
	if got := strings.Join(changes[:3], " "); got != "listening lost lost" {
		t.Errorf("the waker told %q first, want listening lost lost", got)
	}
}
