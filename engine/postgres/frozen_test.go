// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/round"
)

// An engine that is frozen where no limit of the server reaches it, in the middle of a COPY or of a long answer, does
// not keep its consumer from the others.
func TestFrozenSessionsAreEnded(t *testing.T) {
	t.Parallel()
	for name, freeze := range map[string]func(t *testing.T, conn *pgx.Conn){
		"while it sends jobs": func(t *testing.T, conn *pgx.Conn) {
			data, hold := io.Pipe()
			copied := make(chan struct{})
			go func() {
				defer close(copied)
				_, _ = conn.PgConn().CopyFrom(context.WithoutCancel(t.Context()), data, `COPY sent FROM STDIN`) // is ended
			}()
			t.Cleanup(func() { _ = hold.Close(); <-copied })
		},
		"while it reads events": func(t *testing.T, conn *pgx.Conn) {
			front := conn.PgConn().Frontend()
			front.SendQuery(&pgproto3.Query{String: `SELECT repeat('x', 1000000) FROM generate_series(1, 100)`})
			if err := front.Flush(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.PgConn().Conn().Close() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t, enginetest.WithConsumers("push"))
			var ended atomic.Int64
			store, err := postgres.Open(t.Context(), postgres.Options{
				URL: db.AppURL, Schema: enginetest.Schema, MaxConns: 2,
				// Long enough for the store's own answers on a busy machine.
				StatementTimeout: 2 * time.Second, ReplyMargin: time.Second,
				Frozen: func(n int) { ended.Add(int64(n)) },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			if err := store.Ensure(t.Context(), []string{"push"}); err != nil {
				t.Fatal(err)
			}
			db.Append(t, 1) // else nobody needs the cursor
			frozen, idle := enginetest.Connect(t, db.AppURL), enginetest.Connect(t, db.AppURL)
			for _, statement := range []string{
				`CREATE TEMP TABLE sent (line text)`, `BEGIN`, `SET LOCAL statement_timeout = '100ms'`,
				`SELECT FROM bothy.event_consumer_cursors WHERE name = 'push' FOR UPDATE`,
			} {
				if _, err := frozen.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			freeze(t, frozen)
			// Who holds no cursor is let be.
			freeze(t, idle)

			locked := func() round.Lock {
				t.Helper()
				var lock round.Lock
				err := store.Round(t.Context(), round.Consumer{Name: "push", Batch: 10}, func(ctx context.Context, tx *postgres.Tx) bool {
					var err error
					if lock, _, err = tx.Lock(ctx); err != nil {
						t.Errorf("Lock: %v", err)
					}
					return false
				})
				if err != nil {
					t.Fatal(err)
				}
				return lock
			}
			if lock := locked(); lock != round.Taken {
				t.Fatalf("at once: got %q, want %q", lock, round.Taken)
			}
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			limit := time.NewTimer(time.Minute)
			defer limit.Stop()
			for locked() != round.Held {
				select {
				case <-tick.C:
				case <-limit.C:
					t.Fatal("the cursor was never free")
				}
			}
			if n := ended.Load(); n != 1 {
				t.Errorf("%d sessions were ended, want 1", n)
			}
			waitFor(t, db, `SELECT count(*) = 1 FROM pg_stat_activity WHERE pid IN ($1, $2)`, frozen.PgConn().PID(), idle.PgConn().PID())
		})
	}
}
