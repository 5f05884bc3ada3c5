// SPDX-License-Identifier: Apache-2.0

// Package postgres owns every SQL statement of the engine: the schema and its migrations, rounds, the
// wake-up, the identity of the database and the rights of its roles. It knows no YAML. Of River it knows the
// tables, which it migrates when it may and looks at; jobs are inserted through an Inserter that it is given.
//
// A round is a closure. Store.Round begins and ends the transaction, and the caller cannot get it wrong:
//
//	Store.Round(ctx, consumer, func(ctx, tx) bool { ... })
//	        |
//	  [BEGIN + limits + lock + read]  one round trip (Tx.Lock, then Tx.Read)
//	  [the recipient query]           one (Tx.Recipients), none for rules that need no database
//	  [the jobs]                      one COPY (Tx.Insert); a few jobs travel with the commit
//	  [advance the cursor + COMMIT]   one (Tx.Advance arms it, true from the closure sends it)
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/bothy/engine/round"
)

// Options says how a Store reaches its database and what it sets there.
type Options struct {
	URL      string // a connection string; PG* variables fill what it leaves out
	Schema   string // the schema of the engine's own tables
	MaxConns int    // of the pool, at least 1

	// The limits that every round sets for its own transaction, so that a role's defaults do not matter.
	// Zero means no limit.
	StatementTimeout time.Duration
	LockTimeout      time.Duration
	IdleInTxTimeout  time.Duration
	// ReplyMargin is how much longer than StatementTimeout the engine waits for an answer of the server before
	// it gives the connection up. Zero means 5 seconds.
	ReplyMargin time.Duration

	// Frozen is told how many sessions of frozen engines the store ended; nil for nobody.
	Frozen func(sessions int)

	RestoreGuard bool               // end rounds when the database's identity is not the stored one
	Inserter     Inserter           // inserts jobs in the round's transaction
	Handlers     map[string]Handler // the Go functions that handler rules name
	Tracer       pgx.QueryTracer    // sees every statement; nil for none
}

// Inserter adds jobs inside the round's transaction. Statements that it sends with Exec are held back and
// travel with the commit, so it must not need their result.
type Inserter interface {
	// Insert adds one job per target.
	Insert(ctx context.Context, tx pgx.Tx, c round.Consumer, jobs round.Jobs) error
	// InsertOwn adds a job that a handler made itself, about an event with a traceparent or an empty one.
	InsertOwn(ctx context.Context, tx pgx.Tx, args OwnArgs, job round.Job, traceparent string) error
}

// OwnArgs are the arguments of a job that a handler inserts itself. They are stored as their JSON.
type OwnArgs interface{ Kind() string }

// Store is the engine's database. It is safe for use by many goroutines.
type Store struct {
	pool     *pgxpool.Pool
	schema   string // quoted
	options  Options
	limits   []string    // the values of the round's settings, in the order of beginSettings
	identity atomic.Bool // the server let this role read its identity, when that was asked last
	checked  bool        // the server can look whether this process is still there while a statement runs
	simple   bool        // connections are told to use the simple protocol
	// oneStatement is how a text is sent that must be a single statement
	oneStatement pgx.QueryExecMode
	limit        time.Duration // the longest wait for an answer of the server; 0 when statements have no limit
	near         near
	looked       atomic.Int64 // when sessions of frozen engines were looked for last
}

// Open connects and finds out what the role may read. It does not check the schema: see CheckSchema.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, unreadableURL(err)
	}
	config.MaxConns = int32(max(1, min(o.MaxConns, 1<<16))) //nolint:gosec // bounded
	config.ConnConfig.Tracer = o.Tracer
	limit := time.Duration(0)
	if o.StatementTimeout > 0 {
		limit = o.StatementTimeout + cmp.Or(o.ReplyMargin, replyMargin)
	}
	usePatience(config.ConnConfig, limit)
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "bothy-engine"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, failed("open a connection pool", err)
	}
	s := &Store{
		pool: pool, schema: pgx.Identifier{o.Schema}.Sanitize(), options: o, limit: limit,
		oneStatement: config.ConnConfig.DefaultQueryExecMode,
		limits:       []string{milliseconds(o.StatementTimeout), milliseconds(o.LockTimeout), milliseconds(o.IdleInTxTimeout)},
	}
	var readable bool
	if err := pool.QueryRow(ctx, sqlMayReadIdentity).Scan(&readable); err != nil {
		pool.Close()
		return nil, connecting(err)
	}
	s.identity.Store(readable)
	if s.simple = s.oneStatement == pgx.QueryExecModeSimpleProtocol; s.simple {
		s.oneStatement = pgx.QueryExecModeDescribeExec // inside a transaction it is safe through any pooler
	}
	_, err = pool.Exec(ctx, `SELECT set_config('client_connection_check_interval', '2s', true)`)
	if s.checked = err == nil; err != nil && sqlState(err) == "" {
		pool.Close()
		return nil, connecting(err)
	}
	return s, nil
}

// closeLimit bounds the wait of Close for connections that are in use, or that a stuck server does not let go.
const closeLimit = 2 * time.Second

// Close closes every connection. It waits for those that are in use, but not for long: what a round that was
// told to end still holds is closed when the round lets go of it.
func (s *Store) Close() {
	closed := make(chan struct{})
	go func() { s.pool.Close(); close(closed) }()
	timer := time.NewTimer(closeLimit)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

// bounded is ctx with the time that one question to the server may take, waiting for a connection included.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.limit)
}

// acquire takes a connection of the pool. A pool whose connections are all stuck is an error in time.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	return s.pool.Acquire(ctx)
}

// Pool is the pool of connections, for what lives beside the rounds (River in dev, tests).
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Ensure creates the cursor rows that are missing, at the head: a new consumer never replays the log.
// Rows that exist, also those that another process creates at the same moment, are left as they are. A
// trigger writes each new row to the audit, in this transaction. The order keeps two processes, whose files
// list the names differently, from waiting for each other. A log with numbers above its counter gets none, in
// the same statement: below them, a consumer would begin amid what it was never to see.
func (s *Store) Ensure(ctx context.Context, names []string) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	behind := CounterBehindError{Schema: s.options.Schema}
	err := s.pool.QueryRow(ctx, `WITH head AS (
	SELECT h.seq, coalesce((SELECT max(l.seq) FROM `+s.schema+`.event_log l WHERE l.seq > h.seq), h.seq) AS highest FROM `+s.schema+`.event_seq h
), made AS (
	INSERT INTO `+s.schema+`.event_consumer_cursors (name, last_seq)
	SELECT n.name, h.seq FROM unnest($1::text[]) AS n (name) JOIN head h ON h.seq = h.highest
	ORDER BY n.name ON CONFLICT (name) DO NOTHING
) SELECT seq, highest FROM head`, names).Scan(&behind.Counter, &behind.Highest)
	switch {
	case sqlState(err) == codeCheckViolation:
		return unknownName(ctx, s.pool, s.options.Schema, names, err)
	case errors.Is(err, pgx.ErrNoRows):
		return checkCounterRow(ctx, s.pool, s.options.Schema)
	case err == nil && behind.Highest > behind.Counter:
		return &behind
	}
	return failed("create the cursors", err)
}

// milliseconds is a duration as PostgreSQL reads it; a fraction rounds up, since 0 would be no limit.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%dms", (d+time.Millisecond-1)/time.Millisecond)
}

// unreadableURL hides what the driver says: its message can hold a part of the password.
func unreadableURL(error) error {
	return errors.New("the database URL cannot be read: write postgres://USER:PASSWORD@HOST:PORT/DATABASE, special characters of the password percent-encoded")
}

// UseInserter gives the store what inserts jobs. It is called once, before the first round.
func (s *Store) UseInserter(i Inserter) { s.options.Inserter = i }
