// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/round"
)

// Inquiry is what the database says about one event, all of it from one snapshot.
type Inquiry struct {
	Cursors        // where every consumer stands
	Floor   int64  // the lowest number that the log holds; 0 when it is empty
	Epoch   string // the present one
	// Event is the event, or nil when the log does not hold it. Age is how long ago it was numbered, by the
	// clock of the database.
	Event *round.Event
	Age   time.Duration
	// Jobs are those that the engine made of the event, by consumer: the tag of the job.
	Jobs []JobGroup
	// Asides are what consumers have set aside of it, and what became of that, the newest last.
	Asides []Aside
	// Kept is when the oldest completed job that River still keeps was finished; zero when it keeps none.
	Kept time.Time

	store *Store
	conn  *Tx // runs rules as a round does
	tx    pgx.Tx
}

// JobGroup is the jobs of one event under one tag and one epoch.
type JobGroup struct {
	Tag   string
	Epoch string
	Count int64
	Jobs  []FoundJob // by recipient; as many as were asked for
}

// FoundJob is one job of River's.
type FoundJob struct {
	ID          int64
	Kind        string
	Queue       string
	Recipient   string
	State       string // River's: available, running, completed, ...
	Attempt     int
	MaxAttempts int
}

// Inquire reads what is known about an event and hands it to tell, which may ask for what a rule says. Nothing
// is written. most bounds how many jobs of each group are read.
func (s *Store) Inquire(ctx context.Context, jobsSchema string, seq int64, most int, tell func(context.Context, *Inquiry) error) error {
	doing := fmt.Sprintf("look up event %d", seq)
	conn, err := s.acquire(ctx)
	if err != nil {
		return failed(doing, err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return failed(doing, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	q := &Inquiry{store: s, conn: &Tx{store: s, conn: conn}, tx: tx}
	// The name of no consumer: a rule may look at the setting, and an append is refused as in a round.
	if _, err := tx.Exec(ctx, s.beginSettings(), "why", s.limits[0], s.limits[1], s.limits[2]); err != nil {
		return failed(doing, err)
	}
	if q.Cursors, err = readCursors(ctx, tx, s.options.Schema); err != nil {
		return err
	}
	if err := q.readEvent(ctx, seq); err != nil {
		return failed(doing, err)
	}
	if err := q.readJobs(ctx, pgx.Identifier{jobsSchema, "river_job"}.Sanitize(), seq, most); err != nil {
		return failed("look up the jobs", err)
	}
	if q.Asides, err = asides(ctx, tx, s.schema, seq); err != nil {
		return err
	}
	return tell(ctx, q)
}

func (q *Inquiry) readEvent(ctx context.Context, seq int64) error {
	var e round.Event
	var eventTime *time.Time
	var age float64
	err := q.tx.QueryRow(ctx, `SELECT coalesce((SELECT seq FROM `+q.store.schema+`.event_log ORDER BY seq LIMIT 1), 0), sync_epoch::text
FROM `+q.store.schema+`.instance`).Scan(&q.Floor, &q.Epoch)
	if err != nil {
		return err
	}
	err = q.tx.QueryRow(ctx, `SELECT seq, id::text, type, resource, resource_id, audience, payload, occurred_at, event_time, coalesce(traceparent, ''),
	extract(epoch FROM clock_timestamp() - occurred_at)::float8
FROM `+q.store.schema+`.event_log WHERE seq = $1`, seq).
		Scan(&e.Seq, &e.ID, &e.Type, &e.Resource, &e.ResourceID, &e.Audience, &e.Payload, &e.OccurredAt, &eventTime, &e.Traceparent, &age)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if eventTime != nil {
		e.EventTime = *eventTime
	}
	q.Event, q.Age = &e, time.Duration(age*float64(time.Second))
	return err
}

// readJobs finds jobs by their arguments, which carry an index; tags do not. What another program put into
// the same table may have a seq of its own: only the engine's jobs have all three arguments and one tag.
func (q *Inquiry) readJobs(ctx context.Context, table string, seq int64, most int) error {
	rows, err := q.tx.Query(ctx, `SELECT tag, epoch, n, id, kind, queue, recipient, state, attempt, max_attempts FROM (
	SELECT j.tags[1] AS tag, j.args ->> 'epoch' AS epoch, count(*) OVER g AS n, row_number() OVER (g ORDER BY j.args ->> 'recipient' COLLATE "C", j.id) AS place,
		j.id, j.kind, j.queue, j.args ->> 'recipient' AS recipient, j.state::text AS state, j.attempt, j.max_attempts
	FROM `+table+` j WHERE j.args @> jsonb_build_object('seq', $1::bigint) AND j.args ?& ARRAY['recipient', 'epoch'] AND cardinality(j.tags) = 1
	WINDOW g AS (PARTITION BY j.tags[1], j.args ->> 'epoch')
) j WHERE place <= $2 ORDER BY tag, epoch, place`, seq, most)
	if err != nil {
		return err
	}
	var tag, epoch string
	var count int64
	var job FoundJob
	_, err = pgx.ForEachRow(rows, []any{&tag, &epoch, &count, &job.ID, &job.Kind, &job.Queue, &job.Recipient, &job.State, &job.Attempt, &job.MaxAttempts}, func() error {
		if n := len(q.Jobs); n == 0 || q.Jobs[n-1].Tag != tag || q.Jobs[n-1].Epoch != epoch {
			q.Jobs = append(q.Jobs, JobGroup{Tag: tag, Epoch: epoch, Count: count})
		}
		last := &q.Jobs[len(q.Jobs)-1]
		last.Jobs = append(last.Jobs, job)
		return nil
	})
	if err != nil {
		return err
	}
	var kept *time.Time
	err = q.tx.QueryRow(ctx, `SELECT min(finalized_at) FROM `+table+` WHERE state = 'completed' AND finalized_at IS NOT NULL`).Scan(&kept)
	if kept != nil {
		q.Kept = *kept
	}
	return err
}

// Recipients is what a query rule gives for the event now: the same code as in a round, read only and rolled
// back. A *RuleError is one of the
// rule alone: the inquiry goes on.
func (q *Inquiry) Recipients(ctx context.Context, c round.Consumer) (round.Decision, error) {
	q.conn.consumer = c
	decision, err := q.conn.queryRule(ctx, []round.Event{*q.Event}, c.MaxJobs, q.Event.Seq)
	if err == nil {
		return decision, nil
	}
	// The rule's own savepoint is the way back from its error.
	if _, back := q.tx.Exec(ctx, `ROLLBACK TO SAVEPOINT recipients`); back != nil {
		return round.Decision{}, failed("leave a recipient rule", back)
	}
	if _, known := errors.AsType[*RuleError](err); !known {
		err = &RuleError{What: "could not be run", Fix: "run the query by hand to see more", cause: err}
	}
	return round.Decision{}, err
}
