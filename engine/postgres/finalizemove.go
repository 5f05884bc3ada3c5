// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/restore"
)

func joined(words []string) string { return strings.Join(words, ", ") }

// splitTable is a name as the configuration writes it: schema and table.
func splitTable(name string) (schema, table string) {
	schema, table, _ = strings.Cut(name, ".")
	return schema, table
}

// Move moves the cursors of a table of the engine's own.
func (t *FinalizeTx) Move(ctx context.Context, table, column string, to int64) (restore.Moved, error) {
	if !isOwn(table, column) {
		return restore.Moved{}, fmt.Errorf("the engine has no cursors in column %q of table %q", column, table)
	}
	name := "NULL::text"
	if table == "event_consumer_cursors" {
		name = "t.name"
	}
	moved, err := t.move(ctx, quote(t.r.o.Schema)+"."+table, column, "true", name, ", updated_at = now()", to)
	moved.Table, moved.Column = table, column
	return moved, err
}

// MoveDeclared moves the cursors of the user's own tables, as whoever may change them.
func (t *FinalizeTx) MoveDeclared(ctx context.Context, to int64) (all []restore.Moved, err error) {
	for _, table := range t.r.o.Cursors {
		if err := t.actFor(ctx, table.name(), table.sql(), "SELECT", "UPDATE"); err != nil {
			return nil, err
		}
		moved, err := t.move(ctx, table.sql(), table.Column, table.condition(), "NULL::text", "", to)
		if err != nil {
			return nil, err
		}
		moved.Table, moved.Column = table.name(), table.Column
		all = append(all, moved)
	}
	return all, failed("become the owner", t.r.m.actAsOwner(ctx, t.pg))
}

// move locks the rows, so that what is told of them is what was true, and moves those whose cursor is elsewhere. A
// position that is NULL is none, and stays so.
func (t *FinalizeTx) move(ctx context.Context, table, column, where, name, also string, to int64) (m restore.Moved, err error) {
	column = quote(column)
	m.To = to
	// The lock comes first, in a statement of its own: it waits for whoever is changing a row, and the statement behind it
	// sees what they left. One statement for both would find the new place of such a row and not see the row there.
	if _, err := t.pg.Exec(ctx, fmt.Sprintf(`SELECT FROM %s t WHERE %s FOR UPDATE OF t`, table, where)); err != nil {
		return m, failed("lock the cursors of "+table, err)
	}
	// The row is found again by its place: a table of the user's need not have a key, and may be partitioned.
	rows, err := t.pg.Query(ctx, fmt.Sprintf(`WITH held AS MATERIALIZED (
	SELECT t.tableoid AS part, t.ctid AS place, t.%[2]s::bigint AS seq, %[4]s AS name FROM %[1]s t WHERE %[3]s AND t.%[2]s <> $1 FOR UPDATE OF t
), moved AS (
	UPDATE %[1]s t SET %[2]s = $1%[5]s FROM held h WHERE t.tableoid = h.part AND t.ctid = h.place RETURNING h.seq, h.name
), counted AS (
	SELECT count(*) AS n, count(*) FILTER (WHERE seq < $1) AS behind, min(seq) AS lowest FROM moved
) SELECT c.n, c.behind, c.lowest, m.name, m.seq FROM counted c LEFT JOIN moved m ON m.name IS NOT NULL ORDER BY m.name`,
		table, column, where, name, also), to)
	if err != nil {
		return m, failed("move the cursors of "+table, err)
	}
	var lowest *int64
	var consumer *string
	var from *int64
	_, err = pgx.ForEachRow(rows, []any{&m.Rows, &m.Behind, &lowest, &consumer, &from}, func() error {
		if consumer != nil && from != nil {
			m.Named = append(m.Named, restore.Named{Name: *consumer, From: *from, To: to, Events: max(0, to-*from)})
		}
		return nil
	})
	if err != nil {
		return m, failed("move the cursors of "+table, err)
	}
	// A trigger or a rule of the table may have had another opinion.
	var left int64
	err = t.pg.QueryRow(ctx, fmt.Sprintf(`SELECT count(*) FROM %s t WHERE %s AND t.%s <> $1`, table, where, column), to).Scan(&left)
	if err != nil {
		return m, failed("look again at the cursors of "+table, err)
	}
	if left > 0 {
		return m, fmt.Errorf("%d rows of %s are not at the head %d after they were moved there: a trigger or a rule of that table keeps them; let it allow the move, for example while current_setting('application_name') = '%s'", left, table, to, RestoreApplication)
	}
	m.Ahead = m.Rows - m.Behind
	if lowest != nil && *lowest < to {
		m.Passed = &restore.Range{First: *lowest + 1, Last: to}
	}
	return m, nil
}

// unfinished are River's states of jobs that are still to run, or run.
const unfinished = `('available', 'pending', 'retryable', 'running', 'scheduled')`

// restoredJobs finds the unfinished jobs that the engine made in other epochs than $1: their arguments have the engine's
// three keys, and a consumer's name is their tag ($2), or their kind is one that a consumer makes ($3).
const restoredJobs = `state IN ` + unfinished + ` AND args ?& ARRAY['seq', 'recipient', 'epoch'] AND args ->> 'epoch' IS DISTINCT FROM $1
	AND (tags::text[] && $2::text[] OR kind = ANY ($3::text[]))`

// riverJobs is River's table of jobs, or "" when there is none.
func (t *FinalizeTx) riverJobs(ctx context.Context) (string, error) {
	if t.r.o.JobsSchema == "" {
		return "", nil
	}
	table := quote(t.r.o.JobsSchema) + ".river_job"
	var exists bool
	err := t.pg.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = 'river_job')`,
		t.r.o.JobsSchema).Scan(&exists)
	if err != nil || !exists {
		return "", failed("look for River's tables", err)
	}
	return table, nil
}

// names are all that a consumer is or was called: jobs keep the name as their tag.
func (t *FinalizeTx) names(ctx context.Context) ([]string, error) {
	cursors, err := cursorNames(ctx, t.pg, t.r.o.Schema)
	if err != nil {
		return nil, err
	}
	deeds, err := consumerDeeds(ctx, t.pg, t.r.o.Schema)
	if err != nil {
		return nil, err
	}
	all := sortedUnion(t.r.o.Names, cursors)
	for _, d := range deeds {
		if strings.HasPrefix(string(d.Action), "consumer.") {
			all = append(all, d.Subject)
		}
	}
	return sortedUnion(all, nil), nil
}

// countJobs counts the restored jobs that are not finished, of every epoch but one.
func (t *FinalizeTx) countJobs(ctx context.Context, but string) ([]restore.JobCount, error) {
	return t.jobs(ctx, but, []string{"SELECT"}, func(table string) string {
		return `SELECT kind, state::text, count(*) FROM ` + table + ` WHERE ` + restoredJobs + ` GROUP BY 1, 2 ORDER BY 1, 2`
	})
}

// SettleJobs settles the unfinished jobs of every epoch but this one, and counts them by what they were. An event above
// the head that was set aside is gone: whoever gets its number is another event, and a retry would make jobs of that.
func (t *FinalizeTx) SettleJobs(ctx context.Context, rule restore.JobsRule, epoch string) ([]restore.JobCount, error) {
	in := quote(t.r.o.Schema) + "."
	if _, err := t.pg.Exec(ctx, `DELETE FROM `+in+`event_quarantine WHERE seq > (SELECT seq FROM `+in+`event_seq)`); err != nil {
		return nil, failed("let go of events that were set aside", err)
	}
	if rule == restore.KeepJobs {
		return t.countJobs(ctx, epoch)
	}
	return t.jobs(ctx, epoch, []string{"SELECT", "UPDATE"}, func(table string) string {
		return `WITH held AS MATERIALIZED (
	SELECT id, kind, state::text AS was FROM ` + table + ` WHERE ` + restoredJobs + ` ORDER BY id FOR UPDATE
), settled AS (
	UPDATE ` + table + ` j SET state = 'cancelled', finalized_at = now(),
		metadata = j.metadata || jsonb_build_object('bothy_restore', jsonb_build_object('was', h.was, 'epoch', $1::text, 'reason', 'the history of this job ended when a restore was finalized'))
	FROM held h WHERE j.id = h.id RETURNING h.kind, h.was
) SELECT kind, was, count(*) FROM settled GROUP BY 1, 2 ORDER BY 1, 2`
	})
}

func (t *FinalizeTx) jobs(ctx context.Context, epoch string, verbs []string, statement func(table string) string) ([]restore.JobCount, error) {
	const doing = "settle the restored jobs"
	table, err := t.riverJobs(ctx)
	if err != nil || table == "" {
		return nil, err
	}
	names, err := t.names(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.actFor(ctx, t.r.o.JobsSchema+".river_job", table, verbs...); err != nil {
		return nil, fmt.Errorf("%s: %w, or set restore.jobs to keep", doing, err)
	}
	rows, err := t.pg.Query(ctx, statement(table), epoch, names, t.r.o.Kinds)
	if err != nil {
		return nil, failed(doing, err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[restore.JobCount])
	if err != nil {
		return nil, failed(doing, err)
	}
	return counts, failed("become the owner", t.r.m.actAsOwner(ctx, t.pg))
}
