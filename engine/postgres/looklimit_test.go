// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

// limited is a context that ends long after what is tried in it should have.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func wantAdvice(t *testing.T, err error) {
	t.Helper()
	if !hasCode(err, "55P03") || !strings.Contains(err.Error(), "pg_stat_activity shows who") {
		t.Errorf("got %v, want SQLSTATE 55P03 and what to do", err)
	}
}

// Commands that only look, or that move a cursor, do not wait for ever for somebody's lock: they say what to do.
func TestLooksEndBehindALock(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	db.Exec(t, `INSERT INTO bothy.event_consumer_cursors (name) VALUES ('push')`)
	change := postgres.CursorChange{Name: "push", Decide: func(postgres.Cursors) (postgres.CursorStep, error) {
		return postgres.CursorStep{}, errors.New("nothing is to be decided")
	}}
	o := options(db)
	o.StatementTimeout, o.LockTimeout = 10*time.Second, 50*time.Millisecond
	holder := begin(t, enginetest.Connect(t, db.OwnerURL), pgx.TxOptions{})
	must(t, holder, `LOCK TABLE bothy.event_seq, bothy.event_consumer_cursors IN ACCESS EXCLUSIVE MODE`)

	_, err := postgres.MigrationStatus(limited(t), o)
	wantAdvice(t, err)
	short := o
	short.StatementTimeout = time.Millisecond
	_, err = postgres.Inspect(limited(t), postgres.InspectOptions{MigrateOptions: short, URL: db.OwnerURL}) // no limit of its own on the server
	if _, silent := errors.AsType[*postgres.SilentError](err); !silent {
		t.Errorf("Inspect behind a lock: %v, want a SilentError", err)
	}
	_, err = postgres.PreviewCursor(limited(t), cursorOptions(db, 50*time.Millisecond, newTold()), change)
	wantAdvice(t, err)
	_, _, err = postgres.ChangeCursor(limited(t), cursorOptions(db, 50*time.Millisecond, newTold()), change)
	if _, busy := errors.AsType[*postgres.BusyError](err); !busy {
		t.Errorf("ChangeCursor behind a lock on the cursors: %v, want a BusyError", err)
	}
}

// Two changes take turns: the second says what it waits for, and gives up in time.
func TestChangesOfCursorsTakeTurns(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	other := newTold()
	inside, leave := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, _, err := postgres.ChangeCursor(context.WithoutCancel(t.Context()), cursorOptions(db, time.Minute, newTold()), postgres.CursorChange{
			Name: "push", Decide: func(postgres.Cursors) (postgres.CursorStep, error) {
				close(inside)
				<-leave
				return postgres.CursorStep{}, nil
			},
		})
		first <- err
	}()
	<-inside
	_, _, err := postgres.ChangeCursor(limited(t), cursorOptions(db, 50*time.Millisecond, other), postgres.CursorChange{
		Name: "other", Decide: func(postgres.Cursors) (postgres.CursorStep, error) { return postgres.CursorStep{}, nil },
	})
	close(leave)
	if _, busy := errors.AsType[*postgres.BusyError](err); !busy || !strings.Contains(err.Error(), "another change or migration") {
		t.Errorf("the second change: %v, want a BusyError that names the first", err)
	}
	if len(other.lines) != 1 || !strings.Contains(other.lines[0], "another change or migration is running") {
		t.Errorf("the second change says %q, want what it waits for", other.lines)
	}
	if err := <-first; err != nil {
		t.Errorf("the first change: %v", err)
	}
}

// A server that is silent is given up.
func TestLooksEndWhenTheServerIsSilent(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	proxy := enginetest.NewProxy(t, db.AdminURL)
	proxy.Swallow(true)
	o := options(db)
	o.AdminURL, o.StatementTimeout = proxy.URL, time.Millisecond
	if _, err := postgres.MigrationStatus(limited(t), o); err == nil || errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "20s") {
		t.Errorf("MigrationStatus of a silent server: %v", err)
	}
	if _, err := postgres.Inspect(limited(t), postgres.InspectOptions{MigrateOptions: o, URL: proxy.URL}); err == nil {
		t.Error("Inspect of a silent server: got no error, want one")
	}
}
