// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/bothy/engine/round"
)

// Observation is where the log and every consumer stand, all of one moment.
type Observation struct {
	At            time.Time // by the clock of the database
	Head          int64     // the number of the newest event
	Headroom      int64     // how many numbers above Head have a partition made ahead
	PartitionSize int64     // of the partitions that are made ahead; 0 when nobody has said
	Partitions    int
	Held          time.Duration // for how long partitions have been kept beyond retention for consumers; 0 when none is
	Epoch         string
	Stored        round.Identity // the database whose history the cursors follow; zero when not known
	Current       round.Identity // the database that answered; zero when this role may not read it
	Recovering    bool           // it replays a log, and nothing can be written
	Environment   string         // what the installation is called; empty when nobody said
	Consumers     []State        // that have a cursor, by name
}

// Finalized reports whether the database is the one whose history the cursors follow, as far as both are known.
func (o Observation) Finalized() bool {
	return !o.Stored.Known() || !o.Current.Known() || o.Stored.Same(o.Current)
}

// Recognition is what the same look says about which database it is. A role that may not read that needs Recognize.
// Of what does not fit together it knows a cursor above the head.
func (o Observation) Recognition() Recognition {
	r := Recognition{Environment: o.Environment, Stored: o.Stored, Current: o.Current, Recovering: o.Recovering}
	for _, c := range o.Consumers {
		if c.LastSeq > o.Head {
			r.Apart = apart(o.Head, o.Head, c.LastSeq, c.LastSeq)
		}
	}
	return r
}

// Observe looks at the log and at every consumer, in one statement, however many there are. Ages are taken by the
// clock of the database, so that two clocks are never mixed. The server itself gives up after the store's
// timeouts, so that looks do not queue up behind a lock.
func (s *Store) Observe(ctx context.Context) (Observation, error) {
	const doing = "read where the consumers stand"
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.beginLook()})
	if err != nil {
		return Observation{}, failed(doing, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	rows, err := tx.Query(ctx, s.observeStatement())
	if err != nil {
		return Observation{}, failed(doing, err)
	}
	o, found, err := scanObservation(rows)
	if sqlState(err) == codeInsufficientRight {
		s.identity.Store(false) // as far as is known; Recognize says which right it is
	}
	if err == nil && !found { // the counter or the identity is gone
		err = checkRows(ctx, tx, s.options.Schema)
	}
	return o, failed(doing, err)
}

// beginLook begins a transaction with limits that hold from its first statement on, also while that is parsed.
func (s *Store) beginLook() string {
	return `BEGIN READ ONLY; SET LOCAL statement_timeout = ` + literal(s.limits[0]) + `; SET LOCAL lock_timeout = ` + literal(s.limits[1]) + `; SET LOCAL jit = off`
}

// observeStatement joins every cursor to the one row of the counter and the one of the identity. The next event
// of a consumer is looked for by its number first, which touches one partition.
func (s *Store) observeStatement() string {
	system, timeline := "NULL::bigint", "NULL::bigint"
	if s.identity.Load() {
		system, timeline = sqlSystem, sqlAnyTimeline
	}
	return `SELECT h.*, c.name, c.last_seq, c.updated_at, greatest(0, COALESCE(extract(epoch FROM h.at - COALESCE(
	(SELECT occurred_at FROM ` + s.schema + `.event_log WHERE seq = c.last_seq + 1),
	(SELECT occurred_at FROM ` + s.schema + `.event_log WHERE seq > c.last_seq ORDER BY seq LIMIT 1))), 0))::float8,
	(SELECT count(*) FROM ` + s.schema + `.event_quarantine q WHERE q.consumer = c.name)
FROM (
	SELECT clock_timestamp() AS at, n.seq, n.upper_bound - 1 - n.seq, n.partition_size,
		(SELECT count(*) FROM pg_catalog.pg_inherits WHERE inhparent = ` + literal(s.schema+`.event_log`) + `::pg_catalog.regclass),
		(SELECT greatest(0, extract(epoch FROM clock_timestamp() - since)) FROM ` + s.schema + `.event_log_hold
			WHERE seen > clock_timestamp() - interval '10 minutes')::float8,
		i.sync_epoch, i.pg_system_identifier, i.pg_timeline_id::bigint, i.pg_database_oid, ` + system + ` AS system, ` + timeline + ` AS timeline, ` + sqlDatabase + ` AS database,
		pg_catalog.pg_is_in_recovery() AS recovering, i.environment
	FROM (SELECT * FROM ` + s.schema + `.event_seq LIMIT 1) n CROSS JOIN (SELECT * FROM ` + s.schema + `.instance LIMIT 1) i
	OFFSET 0
) h LEFT JOIN ` + s.schema + `.event_consumer_cursors c ON true ORDER BY c.name`
}

// scanObservation reads the rows of observeStatement: one for each consumer, or one without when there is none.
func scanObservation(rows pgx.Rows) (o Observation, found bool, err error) {
	defer rows.Close()
	var size, storedSystem, storedTimeline, storedDatabase, system, timeline, database, cursor pgtype.Int8
	var epoch pgtype.UUID
	var name pgtype.Text
	var updated pgtype.Timestamptz
	var age float64
	var aside int64
	var held pgtype.Float8
	for rows.Next() {
		err := rows.Scan(&o.At, &o.Head, &o.Headroom, &size, &o.Partitions, &held, &epoch, &storedSystem, &storedTimeline, &storedDatabase, &system, &timeline, &database,
			&o.Recovering, &o.Environment, &name, &cursor, &updated, &age, &aside)
		if err != nil {
			return o, found, err
		}
		found = true
		if name.Valid {
			o.Consumers = append(o.Consumers, State{
				Name: name.String, LastSeq: cursor.Int64, HeadSeq: o.Head, Aside: aside,
				PendingAge: time.Duration(age * float64(time.Second)), UpdatedAt: updated.Time,
			})
		}
	}
	o.Held = time.Duration(held.Float64 * float64(time.Second))
	o.PartitionSize, o.Epoch = size.Int64, epoch.String()
	o.Stored = round.Identity{System: storedSystem.Int64, Timeline: storedTimeline.Int64, Database: storedDatabase.Int64}
	o.Current = round.Identity{System: system.Int64, Timeline: timeline.Int64, Database: database.Int64}
	return o, found, rows.Err()
}

// reachLimit bounds the question whether the server is there.
const reachLimit = 5 * time.Second

// Reach asks whether the server takes a new connection. The pool would not do: on a server that shuts down, or
// behind a network that is gone, one of its connections can still look well.
func (s *Store) Reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err == nil {
		err = conn.Close(ctx)
	}
	if sqlState(err) == codeTooManyConnections {
		return nil // it answers, and the connections of the pool are there
	}
	return failed("reach the database", err)
}

// Oldest is the lowest event that retention has left.
type Oldest struct {
	Seq int64
	At  time.Time // when it happened
	Now time.Time // by the same clock
}

// Oldest looks for the oldest event; nil when the log is empty. It may have to look into every partition, so it is
// asked less often than where the consumers stand.
func (s *Store) Oldest(ctx context.Context) (*Oldest, error) {
	const doing = "read the oldest event"
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.beginLook()})
	if err != nil {
		return nil, failed(doing, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var o Oldest
	err = tx.QueryRow(ctx, `SELECT seq, occurred_at, clock_timestamp() FROM `+s.schema+`.event_log ORDER BY seq LIMIT 1`).Scan(&o.Seq, &o.At, &o.Now)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &o, failed(doing, err)
}
