// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/round"
)

// Comparison is what the log says one consumer's jobs should be against what they are.
type Comparison struct {
	Consumer string
	Events   int64 // numbers compared
	Expected int64 // targets that the rule gives for them now
	Found    int64 // jobs there
	Missing  int64 // targets without a job
	Doubled  int64 // jobs beyond the first of a target
	Extra    int64 // jobs that no target explains
}

// Sound reports whether every target has exactly one job and there is no other.
func (c Comparison) Sound() bool { return c.Missing == 0 && c.Doubled == 0 && c.Extra == 0 }

// handlerChunk is how many events a handler is asked about at a time.
const handlerChunk = 1000

// Compare works out again, without any code of a round, which jobs the events first to last of one
// consumer should have, and compares them with the jobs in jobsSchema, whatever their state. It
// changes nothing. What a query or a handler says now counts: when its own rows have changed since,
// a difference is no fault.
func (s *Store) Compare(ctx context.Context, c round.Consumer, jobsSchema string, first, last int64) (Comparison, error) {
	result := Comparison{Consumer: c.Name, Events: max(0, last-first+1)}
	conn, err := s.acquire(ctx)
	if err != nil {
		return result, failed("compare jobs with the log", err)
	}
	defer conn.Release()
	defer untilDone(conn.Conn())() // all jobs of a log are one statement
	tx, err := conn.Begin(ctx)
	if err != nil {
		return result, failed("compare jobs with the log", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()

	rule, args := expectedTargets(c)
	if c.Rule.Kind == round.RuleHandler {
		seqs, recipients, err := s.askHandler(ctx, tx, &Tx{store: s, conn: conn, consumer: c}, first, last)
		if err != nil {
			return result, err
		}
		rule, args = `SELECT * FROM unnest($7::bigint[], $8::text[]) AS t (seq, recipient)`, []any{seqs, recipients}
	}
	// The server is free to ask the rule about an event before it looks whether that is set aside, and the rule
	// fails on those. Without any, it need not keep all events apart.
	var apart string
	err = tx.QueryRow(ctx, `SELECT CASE WHEN EXISTS (SELECT FROM `+s.schema+`.event_quarantine WHERE consumer = $1)
	OR EXISTS (SELECT FROM `+s.schema+`.audit_events WHERE action = 'quarantine.dropped' AND subject = $1) THEN 'MATERIALIZED' ELSE '' END`, c.Name).Scan(&apart)
	if err != nil {
		return result, failed("compare jobs with the log", err)
	}
	if _, err := tx.Exec(ctx, `SET LOCAL transaction_read_only = on`); err != nil {
		return result, failed("compare jobs with the log", err)
	}
	args = append([]any{first, last, likePatterns(c.Types), c.Job.Kind, []string{c.Name}, len(c.Types) > 0}, args...)
	err = tx.QueryRow(ctx, `WITH batch AS `+apart+` (
	SELECT seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time
	FROM `+s.schema+`.event_log e WHERE seq >= $1 AND seq <= $2 AND (NOT $6 OR type LIKE ANY ($3::text[])) AND `+s.notAside(`($5::text[])[1]`)+`
), expected AS (
	SELECT DISTINCT r.seq::bigint AS seq, r.recipient::text AS recipient FROM (
`+rule+`
) r
), found AS (
	SELECT (j.args ->> 'seq')::bigint AS seq, j.args ->> 'recipient' AS recipient, count(*) AS n
	FROM `+pgx.Identifier{jobsSchema}.Sanitize()+`.river_job j
	WHERE j.kind = $4 AND j.tags::text[] @> $5::text[] AND (j.args ->> 'epoch')::uuid = (SELECT sync_epoch FROM `+s.schema+`.instance)
	AND (j.args ->> 'seq')::bigint BETWEEN $1 AND $2 GROUP BY 1, 2
)
SELECT count(e.seq), coalesce(sum(f.n), 0), count(*) FILTER (WHERE f.seq IS NULL),
	coalesce(sum(f.n - 1) FILTER (WHERE e.seq IS NOT NULL), 0), coalesce(sum(f.n) FILTER (WHERE e.seq IS NULL), 0)
FROM expected e FULL JOIN found f ON f.seq = e.seq AND f.recipient = e.recipient`, args...).
		Scan(&result.Expected, &result.Found, &result.Missing, &result.Doubled, &result.Extra)
	if err != nil {
		return result, failed(fmt.Sprintf("compare the jobs of consumer %q with the log", c.Name), err)
	}
	return result, nil
}

// notAside keeps the events e that the consumer of an argument has not set aside. They have no jobs and are not
// lost, and neither are those that were dropped from there.
func (s *Store) notAside(argument string) string {
	return `NOT EXISTS (SELECT FROM ` + s.schema + `.event_quarantine q WHERE q.consumer = ` + argument + ` AND q.seq = e.seq)
	AND NOT EXISTS (SELECT FROM ` + s.schema + `.audit_events a
		WHERE a.action = 'quarantine.dropped' AND a.subject = ` + argument + ` AND (a.details ->> 'seq')::bigint = e.seq)`
}

// expectedTargets is a rule as a query over batch. Its parameters begin at $7.
func expectedTargets(c round.Consumer) (sql string, args []any) {
	switch c.Rule.Kind {
	case round.RuleQuery:
		return c.Rule.Query, nil
	case round.RuleList:
		return `SELECT b.seq, l.recipient FROM batch b CROSS JOIN unnest($7::text[]) AS l (recipient)`, []any{c.Rule.List}
	case round.RuleField:
		if c.Rule.Field == "audience" {
			return `SELECT b.seq, a.recipient FROM batch b CROSS JOIN unnest(b.audience) AS a (recipient)`, nil
		}
		column := pgx.Identifier{c.Rule.Field}.Sanitize()
		return `SELECT b.seq, b.` + column + ` AS recipient FROM batch b WHERE b.` + column + ` <> ''`, nil
	case round.RuleNone, round.RuleHandler:
	}
	return `SELECT b.seq, '' AS recipient FROM batch b`, nil
}

// likePatterns are globs as LIKE patterns.
func likePatterns(types round.Types) []string {
	patterns := make([]string, len(types))
	for i, glob := range types {
		patterns[i] = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`, `*`, `%`).Replace(glob)
	}
	return patterns
}

// askHandler asks the handler about every event again. What it writes is rolled back with tx.
func (s *Store) askHandler(ctx context.Context, tx pgx.Tx, ask *Tx, first, last int64) (seqs []int64, recipients []string, err error) {
	if _, err := tx.Exec(ctx, s.beginSettings(), ask.consumer.Name, s.limits[0], s.limits[1], s.limits[2]); err != nil {
		return nil, nil, failed("ask a handler again", err)
	}
	if _, err := tx.Exec(ctx, `SAVEPOINT handler`); err != nil {
		return nil, nil, failed("ask a handler again", err)
	}
	for from := first; from <= last; from += handlerChunk {
		rows, err := tx.Query(ctx, `SELECT e.seq, e.type, `+sqlSize+`, `+sqlPacked+`
FROM `+s.schema+`.event_log e WHERE e.seq >= $1 AND e.seq <= $2 AND `+s.notAside(`$3`)+` ORDER BY e.seq`, from, min(last, from+handlerChunk-1), ask.consumer.Name)
		if err != nil {
			return nil, nil, failed("ask a handler again", err)
		}
		var e round.Event
		var events []round.Event
		var one size
		ask.sizes = nil
		_, err = pgx.ForEachRow(rows, []any{&e.Seq, &e.Type, &one.bytes, &one.packed}, func() error {
			one.seq = e.Seq
			events, ask.sizes = append(events, e), append(ask.sizes, one)
			return nil
		})
		if err != nil {
			return nil, nil, failed("ask a handler again", err)
		}
		decision, err := ask.handle(ctx, round.Select(events, ask.consumer.Types), int(^uint(0)>>1), last)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range decision.Targets {
			seqs, recipients = append(seqs, t.Seq), append(recipients, t.Recipient)
		}
	}
	_, err = tx.Exec(ctx, `ROLLBACK TO SAVEPOINT handler`)
	return seqs, recipients, failed("ask a handler again", err)
}
