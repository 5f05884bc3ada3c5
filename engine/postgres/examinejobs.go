// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/bothy/engine/round"
)

// Mismatch says in which way jobs and log differ.
type Mismatch string

// The mismatches.
const (
	MismatchMissing Mismatch = "missing"  // the rule gives the target, there is no job, and the event is young enough for one
	MismatchGone    Mismatch = "gone"     // the same, and River may have deleted the job since
	MismatchDoubled Mismatch = "doubled"  // a job beyond the first of a target
	MismatchExtra   Mismatch = "extra"    // a job that the rule does not give for its event
	MismatchNoEvent Mismatch = "no_event" // a job whose event the log does not hold
)

// Stretch is a run of events that one consumer passed under one name.
type Stretch struct {
	Span
	Tag   string
	Kinds []string // of the jobs under the tag: the present kind, and others that it may have had
	// Since separates a missing job from one that River may have deleted: by when the event occurred.
	Since time.Time
	// Aside are events of the stretch that the consumer has set aside or given up. They have no jobs, and the rule may
	// fail on them.
	Aside []int64
	// ByNumber looks each event's jobs up by their number. It is for short stretches: the cost is then that of
	// the stretch, and not that of the table of jobs.
	ByNumber bool
}

// Differences are what a comparison of a stretch found.
type Differences struct {
	Span           // what was compared: without what retention has removed
	Expected int64 // targets that the rule gives now
	Found    int64 // jobs there
	Kinds    []Difference
}

// Difference counts one mismatch.
type Difference struct {
	Mismatch Mismatch
	Count    int64
	Seqs     Span
	Examples []int64 // the first few numbers
}

// Compare compares the jobs of a stretch with what the rule of a consumer gives for its events now. The handler
// of a handler rule is not asked, since it may write: there, only doubled jobs and jobs of no event are told. A
// *RuleError is one of the rule alone.
func (x *Examiner) Compare(ctx context.Context, c round.Consumer, st Stretch) (d Differences, err error) {
	doing := fmt.Sprintf("compare the jobs of consumer %q with events %d to %d", c.Name, st.First, st.Last)
	err = x.look(ctx, doing, func(tx pgx.Tx) (err error) {
		if d.Span, err = x.retained(ctx, tx, st.Span); err != nil || d.First > d.Last {
			return err
		}
		st.Span = d.Span
		sql, args := x.comparison(c, st)
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		var one Difference
		var what string
		_, err = pgx.ForEachRow(rows, []any{&what, &one.Count, &one.Seqs.First, &one.Seqs.Last, &one.Examples}, func() error {
			switch what {
			case "expected":
				d.Expected = one.Count
			case "found":
				d.Found = one.Count
			default:
				one.Mismatch = Mismatch(what)
				d.Kinds = append(d.Kinds, one)
			}
			return nil
		})
		return err
	})
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok && c.Rule.Kind == round.RuleQuery && !TookTooLong(err) && ruleMayRaise(answer.Code) {
		return d, &RuleError{What: "could not be run", Fix: "run the query by hand to see more", cause: answer}
	}
	return d, err
}

// ruleMayRaise reports whether an SQLSTATE can be the doing of a query, and not of the connection or the server.
func ruleMayRaise(code string) bool {
	switch code[:2] {
	case "08", "53", "57", "58", "XX", "40":
		return false
	default:
		return true
	}
}

// comparison is the one statement of a comparison. The rule comes first, where it sees the relation batch and no other
// name of this statement.
func (x *Examiner) comparison(c round.Consumer, st Stretch) (sql string, args []any) {
	rule, ruleArgs := expectedTargets(c)
	compared := c.Rule.Kind != round.RuleHandler
	if !compared {
		rule, ruleArgs = `SELECT b.seq, '' AS recipient FROM batch b WHERE false`, nil
	}
	args = append([]any{st.First, st.Last, likePatterns(c.Types), st.Kinds, st.Tag, len(c.Types) > 0}, ruleArgs...)
	since := len(args) + 1
	args = append(args, st.Since, compared)
	// The server is free to ask the rule before it looks at a number. Without any, it need not keep the batch apart.
	apart, but := "", ""
	if len(st.Aside) > 0 {
		args = append(args, st.Aside)
		apart, but = " MATERIALIZED", fmt.Sprintf(" AND seq <> ALL ($%d::bigint[])", len(args))
	}

	own := `j.kind = ANY ($4::text[]) AND cardinality(j.tags) = 1 AND j.tags[1] = $5 AND j.args ->> 'epoch' = (SELECT sync_epoch::text FROM ` + x.store.schema + `.instance)`
	found := `SELECT (j.args ->> 'seq')::bigint AS seq, j.args ->> 'recipient' AS recipient FROM ` + x.jobs + ` j
	WHERE ` + own + ` AND CASE WHEN jsonb_typeof(j.args -> 'seq') = 'number' THEN (j.args ->> 'seq')::numeric END BETWEEN $1 AND $2`
	if st.ByNumber {
		found = `SELECT g.seq, j.args ->> 'recipient' AS recipient FROM generate_series($1::bigint, $2::bigint) AS g (seq)
	CROSS JOIN LATERAL (SELECT * FROM ` + x.jobs + ` WHERE args @> jsonb_build_object('seq', g.seq) OFFSET 0) j WHERE ` + own
	}
	return fmt.Sprintf(`WITH batch AS%[6]s (
	SELECT seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time
	FROM %[1]s.event_log WHERE seq >= $1 AND seq <= $2 AND (NOT $6 OR type LIKE ANY ($3::text[]))%[7]s
), expected AS (
	SELECT DISTINCT r.seq::bigint AS seq, r.recipient::text AS recipient FROM (
%[2]s
) r
), found AS (
	SELECT seq, recipient, count(*) AS n FROM (
	%[3]s
	) f GROUP BY 1, 2
), paired AS (
	SELECT coalesce(e.seq, f.seq) AS seq, e.seq AS wanted, f.n AS n FROM expected e FULL JOIN found f ON f.seq = e.seq AND f.recipient = e.recipient
), told AS (
	SELECT CASE WHEN p.n IS NULL AND l.occurred_at > $%[4]d THEN 'missing' WHEN p.n IS NULL THEN 'gone' WHEN l.seq IS NULL THEN 'no_event' WHEN $%[5]d THEN 'extra' END AS what, 1::bigint AS n, p.seq
	FROM paired p LEFT JOIN (SELECT seq, occurred_at FROM %[1]s.event_log WHERE seq >= $1 AND seq <= $2) l ON l.seq = p.seq
	WHERE p.n IS NULL OR p.wanted IS NULL
	UNION ALL SELECT 'doubled', p.n - 1, p.seq FROM paired p WHERE p.n > 1
)
SELECT 'expected' AS what, count(*), 0::bigint, 0::bigint, '{}'::bigint[] FROM expected
UNION ALL SELECT 'found', coalesce(sum(n), 0)::bigint, 0, 0, '{}' FROM found
UNION ALL SELECT what, sum(n)::bigint, min(seq), max(seq), (array_agg(DISTINCT seq))[1:5] FROM told WHERE what IS NOT NULL GROUP BY what`,
		x.store.schema, rule, found, since, since+1, apart, but), args
}
