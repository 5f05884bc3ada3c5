// SPDX-License-Identifier: Apache-2.0

// Package enginetest owns the fixtures of tests that need a real database: one PostgreSQL per test binary,
// and for each test a database of its own, cloned from a template that was migrated once.
//
//	server (started by the first New)
//	  bothy_template_x   migrated: schema bothy, River in public, roles bothy_owner, bothy_app, bothy_producer
//	  bothy_test_x_1     a clone for one test, dropped when the test ends
//
// The server is a private one, or that of BOTHY_TEST_SERVER_URL or BOTHY_DATABASE_URL. Tests may run in parallel; a database
// takes a few hundredths of a second to make and drop. It refuses to stand in for the database: what it hands out is one.
package enginetest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/bothy/engine/postgres"
)

// The names that every database of this package has.
const (
	Schema       = "bothy"
	JobsSchema   = "public"
	OwnerRole    = "bothy_owner"
	AppRole      = "bothy_app"
	ProducerRole = "bothy_producer"
)

// DB is a database that belongs to one test.
type DB struct {
	Name        string
	AdminURL    string // a superuser
	OwnerURL    string // owns the schema and River's tables
	AppURL      string // serves
	ProducerURL string // appends, and nothing else
}

// Option changes what New makes.
type Option func(*settings)

type settings struct {
	names []string
	empty bool
}

// WithConsumers lets cursors of these names in. No cursor is made.
func WithConsumers(names ...string) Option {
	return func(s *settings) { s.names = append(s.names, names...) }
}

// Empty leaves the database without any schema of the engine or of River. The roles exist.
func Empty() Option { return func(s *settings) { s.empty = true } }

// New makes a database for one test and drops it when the test ends, with whatever is connected to it.
func New(t testing.TB, options ...Option) *DB {
	t.Helper()
	var s settings
	for _, option := range options {
		option(&s)
	}
	name, err := shared.clone(s.empty)
	if err != nil {
		t.Fatalf("make a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := shared.drop(name); err != nil {
			t.Errorf("drop the database of the test: %v", err)
		}
	})
	db := &DB{
		Name: name, AdminURL: shared.url("", name), OwnerURL: shared.url(OwnerRole, name),
		AppURL: shared.url(AppRole, name), ProducerURL: shared.url(ProducerRole, name),
	}
	if len(s.names) > 0 {
		if _, err := postgres.AllowNames(t.Context(), db.OwnerURL, Schema, s.names); err != nil {
			t.Fatalf("allow cursors of the consumers %q: %v", s.names, err)
		}
	}
	return db
}

// Admin is a pool of connections of the superuser. It is closed when the test ends, like the others.
func (db *DB) Admin(t testing.TB) *pgxpool.Pool { t.Helper(); return pool(t, db.AdminURL) }

// Owner is a pool of connections of the owner.
func (db *DB) Owner(t testing.TB) *pgxpool.Pool { t.Helper(); return pool(t, db.OwnerURL) }

// App is a pool of connections of the role that serves.
func (db *DB) App(t testing.TB) *pgxpool.Pool { t.Helper(); return pool(t, db.AppURL) }

// Producer is a pool of connections of a producer.
func (db *DB) Producer(t testing.TB) *pgxpool.Pool { t.Helper(); return pool(t, db.ProducerURL) }

// closeLimit is how long the end of a test waits for connections to be given back.
const closeLimit = 5 * time.Second

func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("read the URL of the test database: %v", err)
	}
	config.MaxConns = 20
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("open a pool: %v", err)
	}
	t.Cleanup(func() {
		// A test that failed half way may hold a connection, and Close would wait for it for ever.
		closed := make(chan struct{})
		go func() { p.Close(); close(closed) }()
		select {
		case <-closed:
		case <-time.After(closeLimit):
			t.Errorf("the test ends with %d connections of its pool in use", p.Stat().AcquiredConns())
		}
	})
	return p
}

// Connect opens one connection and closes it when the test ends.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect to the test database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = conn.Close(ctx) // the test may have ended it from the other side
	})
	return conn
}

// Append appends n events in one transaction, as the producer. Event number i of the call, from 1, has
// type order.created, resource order, resource_id i, audience {alex, sam} and payload {"n": i}.
func (db *DB) Append(t testing.TB, n int) {
	t.Helper()
	db.exec(t, db.ProducerURL, `SELECT bothy.append_events(coalesce(jsonb_agg(jsonb_build_object('type', 'order.created',
	'resource', 'order', 'resource_id', i::text, 'audience', '["alex", "sam"]'::jsonb, 'payload', jsonb_build_object('n', i)) ORDER BY i), '[]'))
FROM generate_series(1, $1) AS i`, n)
}

// Head is the highest number of the log.
func (db *DB) Head(t testing.TB) int64 {
	t.Helper()
	var head int64
	db.scan(t, &head, `SELECT seq FROM bothy.event_seq`)
	return head
}

// Jobs counts River's jobs of a kind.
func (db *DB) Jobs(t testing.TB, kind string) int {
	t.Helper()
	var n int
	db.scan(t, &n, `SELECT count(*) FROM public.river_job WHERE kind = $1`, kind)
	return n
}

// Exec runs a statement as the superuser.
func (db *DB) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	db.exec(t, db.AdminURL, sql, args...)
}

func (db *DB) exec(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	db.with(t, url, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	}, sql)
}

func (db *DB) scan(t testing.TB, into any, sql string, args ...any) {
	t.Helper()
	db.with(t, db.AdminURL, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql, args...).Scan(into)
	}, sql)
}

func (db *DB) with(t testing.TB, url string, run func(context.Context, *pgx.Conn) error, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatalf("connect to the test database: %v", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := run(ctx, conn); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
