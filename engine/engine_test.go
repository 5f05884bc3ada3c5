// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// patience bounds what a test waits for. It is no expectation of speed.
const patience = 30 * time.Second

// entry is one consumer of a test's configuration. Empty parts take what most tests want: batch 10, the
// list rule with two recipients, so that a half-done event would show.
type entry struct {
	name, recipients, types, extra string
	batch                          int
}

// configure writes a consumers.yaml and reads it.
func configure(t testing.TB, db *enginetest.DB, entries ...entry) *config.Config {
	t.Helper()
	return configureWith(t, db.AppURL, "consumer: {poll_interval: 1h}", entries...)
}

func configureWith(t testing.TB, url, sections string, entries ...entry) *config.Config {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\ndatabase:\n  url: ${URL}\n%s\nconsumers:\n", sections)
	for _, e := range entries {
		if e.batch == 0 {
			e.batch = 10
		}
		if e.recipients == "" {
			e.recipients = "{list: [alex, sam]}"
		}
		fmt.Fprintf(&b, "  - {name: %s, batch: %d, job: {kind: test.%s}, recipients: %s", e.name, e.batch, e.name, e.recipients)
		if e.types != "" {
			fmt.Fprintf(&b, ", types: %s", e.types)
		}
		fmt.Fprintf(&b, "%s}\n", e.extra)
	}
	cfg, problems := config.Parse("consumers.yaml", []byte(b.String()), func(name string) (string, bool) { return url, name == "URL" })
	if err := problems.Err(); err != nil {
		t.Fatalf("the test's configuration:\n%s\n%v", b.String(), err)
	}
	return cfg
}

// open opens an engine and closes it when the test ends.
func open(t testing.TB, cfg *config.Config, options ...engine.Option) *engine.Engine {
	t.Helper()
	e, err := engine.Open(t.Context(), cfg, options...)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(e.Close)
	return e
}

// prepared is an engine with its cursors, and the database it is on.
func prepared(t testing.TB, entries ...entry) (*engine.Engine, *enginetest.DB) {
	t.Helper()
	db := database(t, entries...)
	e := open(t, configure(t, db, entries...))
	ensure(t, e)
	return e, db
}

func database(t testing.TB, entries ...entry) *enginetest.DB {
	t.Helper()
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.name
	}
	return enginetest.New(t, enginetest.WithConsumers(names...))
}

func ensure(t testing.TB, e *engine.Engine) {
	t.Helper()
	if err := e.Ensure(t.Context()); err != nil {
		t.Fatalf("Ensure: %v", err)
	}
}

// round runs one round.
func round(t testing.TB, e *engine.Engine, name string) engine.Outcome {
	t.Helper()
	return roundUnder(t.Context(), t, e, name)
}

func roundUnder(ctx context.Context, t testing.TB, e *engine.Engine, name string) engine.Outcome {
	t.Helper()
	o, err := e.Round(ctx, name)
	if err != nil {
		t.Error(err)
	}
	return o
}

// wantRound runs one round and checks its end.
func wantRound(t testing.TB, e *engine.Engine, name, end string) engine.Outcome {
	t.Helper()
	o := round(t, e, name)
	if o.End.Name != end {
		t.Fatalf("round of %q ended %s (%v), want %s", name, o.End.Name, o.Err, end)
	}
	return o
}

// admins holds one connection of the superuser for each database: tests look often.
var admins sync.Map

// admin is a connection to look with. Only the goroutine of the test uses it.
func admin(t testing.TB, db *enginetest.DB) *pgx.Conn {
	t.Helper()
	if conn, ok := admins.Load(db.Name); ok {
		return conn.(*pgx.Conn) //nolint:forcetypeassert // only connections are stored
	}
	conn := enginetest.Connect(t, db.AdminURL)
	admins.Store(db.Name, conn)
	return conn
}

// job is one row of River's table, as tests look at it.
type job struct {
	Seq       int64
	Recipient string
}

// jobsOf are the jobs of one consumer in the order of their arguments.
func jobsOf(t testing.TB, db *enginetest.DB, name string) []job {
	t.Helper()
	rows, err := admin(t, db).Query(t.Context(), `SELECT (args ->> 'seq')::bigint, args ->> 'recipient'
FROM public.river_job WHERE kind = $1 AND tags = ARRAY[$2::varchar] ORDER BY 1, 2`, "test."+name, name)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowToStructByPos[job])
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// cursorOf is the cursor of a consumer.
func cursorOf(t testing.TB, db *enginetest.DB, name string) (seq int64) {
	t.Helper()
	if err := admin(t, db).QueryRow(t.Context(), `SELECT last_seq FROM bothy.event_consumer_cursors WHERE name = $1`, name).Scan(&seq); err != nil {
		t.Fatal(err)
	}
	return seq
}

// wantExactlyOnce checks that every number from first to last has exactly one job for each recipient, that
// there is no other job, and that the cursor stands at last.
func wantExactlyOnce(t testing.TB, db *enginetest.DB, name string, first, last int64, recipients ...string) {
	t.Helper()
	jobs := jobsOf(t, db, name)
	i := 0
	for seq := first; seq <= last; seq++ {
		for _, r := range recipients {
			if i >= len(jobs) || jobs[i] != (job{seq, r}) {
				t.Fatalf("consumer %q: job %d should be %v, got %v", name, i, job{seq, r}, jobs[min(i, len(jobs)):min(i+3, len(jobs))])
			}
			i++
		}
	}
	if i != len(jobs) {
		t.Errorf("consumer %q: %d jobs too many, the first is %v", name, len(jobs)-i, jobs[i])
	}
	if cursor := cursorOf(t, db, name); cursor != last {
		t.Errorf("consumer %q: cursor %d, want %d", name, cursor, last)
	}
}

// waitUntil polls a condition of the database; nothing in a test waits for a fixed time.
func waitUntil(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// runInBackground runs the engine until the test ends or stop is called.
func runInBackground(t testing.TB, e *engine.Engine) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, engine.RoleWorker) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// lines is a log that a test reads while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
