// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Examiner looks at the log, the cursors and the jobs of a database that is in use. Each part is a read-only
// transaction with one snapshot of its own: no snapshot gets old enough to slow the rounds down, and no part
// needs memory for more than its numbers.
type Examiner struct {
	store *Store
	jobs  string // River's table, qualified and quoted
}

// Examiner examines the store's database, with the jobs in jobsSchema.
func (s *Store) Examiner(jobsSchema string) *Examiner {
	return &Examiner{store: s, jobs: pgx.Identifier{jobsSchema, "river_job"}.Sanitize()}
}

// Overview is what is known before anything is compared.
type Overview struct {
	Cursors
	Highest int64     // the highest number that the log holds; 0 when it is empty
	Floor   int64     // the lowest
	Epoch   string    // the present one
	Now     time.Time // by the clock of the database
	Kept    time.Time // when the oldest completed job that River still keeps was finished; zero when it keeps none
	// Aside are the events that each consumer has set aside.
	Aside map[string][]int64
	// Installation compares the stored identity with that of the server.
	Installation Installation
}

// Overview reads the cursors, the ends of the log and who this installation is. The counter and the instance must be there.
func (x *Examiner) Overview(ctx context.Context) (o Overview, err error) {
	err = x.look(ctx, "look at the database", func(tx pgx.Tx) (err error) {
		if o.Cursors, err = readCursors(ctx, tx, x.store.options.Schema); err != nil {
			return err
		}
		log := x.store.schema + `.event_log`
		var kept *time.Time
		err = tx.QueryRow(ctx, `SELECT coalesce((SELECT seq FROM `+log+` ORDER BY seq DESC LIMIT 1), 0), coalesce((SELECT seq FROM `+log+` ORDER BY seq LIMIT 1), 0),
	(SELECT sync_epoch::text FROM `+x.store.schema+`.instance), clock_timestamp(),
	(SELECT min(finalized_at) FROM `+x.jobs+` WHERE state = 'completed' AND finalized_at IS NOT NULL)`).
			Scan(&o.Highest, &o.Floor, &o.Epoch, &o.Now, &kept)
		if err != nil {
			return err
		}
		if kept != nil {
			o.Kept = *kept
		}
		if o.Aside, err = readAside(ctx, tx, x.store.schema); err != nil {
			return err
		}
		o.Installation, err = readInstallation(ctx, tx, x.store.options.Schema)
		return err
	})
	return o, err
}

// readAside reads which events are set aside.
func readAside(ctx context.Context, tx pgx.Tx, schema string) (map[string][]int64, error) {
	aside := map[string][]int64{}
	rows, err := tx.Query(ctx, `SELECT consumer, array_agg(seq ORDER BY seq) FROM `+schema+`.event_quarantine GROUP BY consumer`)
	if err != nil {
		return nil, err
	}
	var name string
	var seqs []int64
	_, err = pgx.ForEachRow(rows, []any{&name, &seqs}, func() error {
		aside[name], seqs = seqs, nil
		return nil
	})
	return aside, err
}

// Span is a run of numbers, both ends included.
type Span struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// maxHoles bounds how many holes of one part are named; all are counted.
const maxHoles = 20

// LogPart is what the log holds of a run of numbers.
type LogPart struct {
	Span          // without what retention has removed; empty (Last below First) when all of it is gone
	Missing int64 // numbers in the span that the log does not hold
	Holes   []Span
}

// Log looks for holes between two numbers, the second of which is not above the counter.
func (x *Examiner) Log(ctx context.Context, want Span) (part LogPart, err error) {
	err = x.look(ctx, fmt.Sprintf("look for holes from event %d to %d", want.First, want.Last), func(tx pgx.Tx) (err error) {
		if part.Span, err = x.retained(ctx, tx, want); err != nil || part.First > part.Last {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT before + 1, seq - 1, (sum(seq - before - 1) OVER ())::bigint FROM (
	SELECT seq, lag(seq, 1, $1::bigint - 1) OVER (ORDER BY seq) AS before FROM (
		SELECT seq FROM `+x.store.schema+`.event_log WHERE seq >= $1 AND seq <= $2 UNION ALL SELECT $2::bigint + 1) s
) s WHERE seq > before + 1 ORDER BY seq LIMIT $3`, part.First, part.Last, maxHoles)
		if err != nil {
			return err
		}
		var hole Span
		_, err = pgx.ForEachRow(rows, []any{&hole.First, &hole.Last, &part.Missing}, func() error {
			part.Holes = append(part.Holes, hole)
			return nil
		})
		return err
	})
	return part, err
}

// retained is the part of a span that retention has not removed, in the snapshot of tx. Of an empty log nothing is known to be
// removed.
func (x *Examiner) retained(ctx context.Context, tx pgx.Tx, want Span) (Span, error) {
	err := tx.QueryRow(ctx, `SELECT greatest($1, (SELECT seq FROM `+x.store.schema+`.event_log ORDER BY seq LIMIT 1))`, want.First).Scan(&want.First)
	return want, err
}

// TaggedJobs counts the engine's jobs of one tag, kind and epoch.
type TaggedJobs struct {
	Tag, Kind, Epoch string
	Count            int64
	Open             int64 // not finished: they will still be worked
	Seqs             Span  // the lowest and the highest number among them
	Ahead            int64 // of the present epoch, above the cursor of the consumer that has the tag
	AheadFirst       int64 // the lowest such number; 0 when there is none
}

// JobsPart is what a part of River's table holds.
type JobsPart struct {
	Rows    int64 // of the table, the engine's or not
	Through int64 // the greatest id
	Groups  []TaggedJobs
}

// Jobs counts up to most jobs above an id, without those of events below from. names gives the consumer that
// has a tag now. In the part's own snapshot, no job may be above its consumer's cursor: they are committed
// together. What another program put into the table may have a seq of its own: only the engine's jobs have all
// three arguments and one tag.
func (x *Examiner) Jobs(ctx context.Context, after int64, most int, from int64, names map[string]string) (part JobsPart, err error) {
	tags, holders := make([]string, 0, len(names)), make([]string, 0, len(names))
	for tag, name := range names {
		tags, holders = append(tags, tag), append(holders, name)
	}
	err = x.look(ctx, fmt.Sprintf("look at the jobs above id %d", after), func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `WITH part AS MATERIALIZED (
	SELECT id, kind, tags, args, finalized_at IS NULL AS open FROM `+x.jobs+` WHERE id > $1 ORDER BY id LIMIT $2
), own AS (
	SELECT kind, tags[1]::text AS tag, args ->> 'epoch' AS epoch, open,
		CASE WHEN jsonb_typeof(args -> 'seq') = 'number' THEN least((args ->> 'seq')::numeric, 9223372036854775807)::bigint END AS seq
	FROM part WHERE cardinality(tags) = 1 AND args ?& ARRAY['seq', 'recipient', 'epoch']
), grouped AS (
	SELECT o.tag, o.kind, o.epoch, count(*) AS n, count(*) FILTER (WHERE o.open) AS open, min(o.seq) AS low, max(o.seq) AS high,
		count(*) FILTER (WHERE o.seq > c.last_seq AND o.epoch = i.sync_epoch::text) AS ahead,
		min(o.seq) FILTER (WHERE o.seq > c.last_seq AND o.epoch = i.sync_epoch::text) AS ahead_first
	FROM own o CROSS JOIN `+x.store.schema+`.instance i
	LEFT JOIN unnest($4::text[], $5::text[]) AS m (tag, name) ON m.tag = o.tag
	LEFT JOIN `+x.store.schema+`.event_consumer_cursors c ON c.name = m.name
	WHERE o.seq >= $3 GROUP BY 1, 2, 3
)
SELECT t.n, t.through, coalesce(g.tag, ''), coalesce(g.kind, ''), coalesce(g.epoch, ''), coalesce(g.n, 0), coalesce(g.open, 0),
	coalesce(g.low, 0), coalesce(g.high, 0), coalesce(g.ahead, 0), coalesce(g.ahead_first, 0)
FROM (SELECT count(*) AS n, coalesce(max(id), $1) AS through FROM part) t LEFT JOIN grouped g ON true ORDER BY g.tag, g.kind, g.epoch`,
			after, most, from, tags, holders)
		if err != nil {
			return err
		}
		var g TaggedJobs
		_, err = pgx.ForEachRow(rows, []any{&part.Rows, &part.Through, &g.Tag, &g.Kind, &g.Epoch, &g.Count, &g.Open, &g.Seqs.First, &g.Seqs.Last, &g.Ahead, &g.AheadFirst}, func() error {
			if g.Count > 0 {
				part.Groups = append(part.Groups, g)
			}
			return nil
		})
		return err
	})
	return part, err
}

// look runs one part.
func (x *Examiner) look(ctx context.Context, doing string, part func(pgx.Tx) error) error {
	conn, err := x.store.acquire(ctx)
	if err != nil {
		return failed(doing, Explain(err))
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return failed(doing, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		_ = tx.Rollback(ctx)
	}()
	if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)`, x.store.limits[0], x.store.limits[1]); err != nil {
		return failed(doing, err)
	}
	if err := part(tx); err != nil {
		if _, told := errors.AsType[*Failure](err); told {
			return err
		}
		return failed(doing, Explain(err))
	}
	return nil
}

// TookTooLong reports whether an error is a statement that ran into its time limit: less at a time may pass.
func TookTooLong(err error) bool {
	_, silent := errors.AsType[*SilentError](err)
	return silent || sqlState(err) == codeCancelled
}
