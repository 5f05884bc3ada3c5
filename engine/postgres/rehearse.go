// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/bothy/engine/round"
)

// Scene is what the database holds while recipient rules are rehearsed.
type Scene struct {
	Rows   []Row         // of the tables that the rules read, in this order
	Events []round.Event // the whole log; a zero OccurredAt is now
	Jobs   string        // the schema of River's tables
}

// Row is one row of a table.
type Row struct {
	Table  string          // as SQL writes it: public.watchers
	Values json.RawMessage // an object: its keys are columns, what it leaves out has the table's default
}

// Rehearsed is what the rule of one consumer gave.
type Rehearsed struct {
	Targets []round.Target
	Own     []OwnJob // that a handler inserted itself
	// Err is that of the rule, which has no targets then. At is the place in the text of a query that the
	// server points to, in characters from 0, or -1.
	Err error
	At  int
}

// OwnJob is a job that a handler inserted. Target is what its arguments say under seq and recipient.
type OwnJob struct {
	round.Job
	round.Target
}

// SceneError is a row or an event of a Scene that the database does not take.
type SceneError struct {
	Row, Event int    // its index; the other is -1
	What       string // why, without a full stop
}

func (e *SceneError) Error() string {
	if e.Row >= 0 {
		return fmt.Sprintf("row %d: %s", e.Row+1, e.What)
	}
	return fmt.Sprintf("event %d: %s", e.Event+1, e.What)
}

// Rehearse runs the rules of consumers over a scene as their rounds would, each without seeing what another
// did, in one transaction that is never committed, and sequences count anew. An error means that no rule was run to its end: a
// *SceneError, or one of the connection.
func (s *Store) Rehearse(ctx context.Context, scene Scene, consumers []round.Consumer) (answers []Rehearsed, err error) {
	before, err := sequencesOf(ctx, s.pool, s.options.Schema)
	if err != nil {
		return nil, err
	}
	defer func() {
		limited, cancel := lingering(ctx, EndGrace)
		defer cancel()
		err = errors.Join(err, resetSequences(limited, s.pool, before))
	}()
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, failed("get a connection", err)
	}
	defer conn.Release() // closes a connection that is still inside a transaction
	whole := &Tx{store: s, conn: conn, open: true}
	if _, err := conn.Exec(ctx, `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`); err != nil {
		return nil, failed("begin a rehearsal", err)
	}
	defer whole.rollback(ctx)
	if err := insertRows(ctx, conn, s.options.Schema, scene.Rows); err != nil {
		return nil, err
	}
	events, err := s.insertEvents(ctx, conn, scene.Events)
	if err != nil {
		return nil, err
	}
	staged, err := sequencesOf(ctx, conn, s.options.Schema)
	if err != nil {
		return nil, err
	}
	answers = make([]Rehearsed, len(consumers))
	for i, c := range consumers {
		if answers[i], err = s.rehearse(ctx, conn, c, events, scene.Jobs); err != nil {
			return nil, fmt.Errorf("rehearse consumer %q: %w", c.Name, err)
		}
		answers[i] = s.plainly(ctx, answers[i], c.Rule.Query)
		if c.Rule.Kind == round.RuleHandler { // the others only read
			if err := resetSequences(ctx, conn, staged); err != nil {
				return nil, fmt.Errorf("rehearse consumer %q: %w", c.Name, err)
			}
		}
	}
	return answers, nil
}

// plainly replaces what the server says of the statement around a rule, which the author never wrote, by what a
// start says of the rule. Another connection asks: this one is inside the rehearsal.
func (s *Store) plainly(ctx context.Context, answer Rehearsed, rule string) Rehearsed {
	wrong, ok := errors.AsType[*RuleError](answer.Err)
	if !ok || wrong.Code != RuleUnknownColumn || answer.At >= 0 {
		return answer
	}
	found, err := s.CheckRule(ctx, rule)
	if at := slices.IndexFunc(found, func(f Finding) bool { return f.Code == RuleBadColumns }); err == nil && at >= 0 {
		f := found[at]
		return Rehearsed{Err: &RuleError{Code: f.Code, What: f.What, Fix: f.Fix, Place: f.Place}, At: f.Place - 1}
	}
	return answer
}

// rehearse runs the rule of one consumer after a savepoint, and goes back to it.
func (s *Store) rehearse(ctx context.Context, conn *pgxpool.Conn, c round.Consumer, events []round.Event, jobs string) (Rehearsed, error) {
	if _, err := conn.Exec(ctx, `SAVEPOINT rehearsal`); err != nil {
		return Rehearsed{}, failed("begin a rehearsal", err)
	}
	if _, err := conn.Exec(ctx, s.beginSettings(), c.Name, s.limits[0], s.limits[1], s.limits[2]); err != nil {
		return Rehearsed{}, failed("begin a rehearsal", err)
	}
	tx := &Tx{store: s, conn: conn, consumer: c, open: true}
	answer := Rehearsed{At: -1}
	var seen []round.Event // by the rule, last
	answer.Targets, answer.Err = round.Replay(c, events, func(selected []round.Event, limit int, through int64) (round.Decision, error) {
		seen = selected
		return recipients(ctx, tx, selected, limit, through)
	})
	state := conn.Conn().PgConn().TxStatus()
	if state == 'I' || conn.Conn().IsClosed() {
		return Rehearsed{}, answer.Err // the transaction is gone, and the scene with it
	}
	var err error
	switch {
	case answer.Err != nil:
		answer.At = s.placeInRule(answer.Err, c.Rule.Query, seen)
	case c.Rule.Kind == round.RuleHandler:
		if answer.Own, err = ownJobs(ctx, conn, jobs); err != nil {
			return Rehearsed{}, failed("read the jobs of a handler", err)
		}
	}
	_, err = conn.Exec(ctx, `ROLLBACK TO SAVEPOINT rehearsal; RELEASE SAVEPOINT rehearsal`)
	if sqlState(err) == codeNoSavepoint {
		return Rehearsed{}, &RuleError{What: "left the transaction that it was given", Fix: "run no COMMIT or ROLLBACK in a handler", cause: err}
	}
	return answer, failed("end a rehearsal", err)
}

// codeNoSavepoint is what the server answers when a savepoint is gone.
const codeNoSavepoint = "3B001"

// recipients is Tx.Recipients, with a panic of a handler as an error: one test that falls must not take the
// others along.
func recipients(ctx context.Context, tx *Tx, events []round.Event, limit int, through int64) (d round.Decision, err error) {
	defer func() {
		if p := recover(); p != nil {
			d, err = round.Decision{}, fmt.Errorf("handler %q: panic: %v", tx.consumer.Rule.Handler, p)
		}
	}()
	return tx.Recipients(ctx, events, limit, through)
}

// placeInRule is the place in a query that an error of the server points to, or -1. The server counts the
// characters of the whole statement, from 1.
func (s *Store) placeInRule(err error, rule string, events []round.Event) int {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || answer.Position == 0 || rule == "" {
		return -1
	}
	seqs := make([]int64, len(events))
	for i, e := range events {
		seqs[i] = e.Seq
	}
	sql, _ := s.ruleStatement(rule, seqs)
	before := utf8.RuneCountInString(sql[:strings.LastIndex(sql, rule)])
	at := int(answer.Position) - 1 - before
	if at < 0 || at >= utf8.RuneCountInString(rule) {
		return -1
	}
	return at
}

// insertEvents fills the log. What it gives back is read from there, as a round would.
func (s *Store) insertEvents(ctx context.Context, conn *pgxpool.Conn, events []round.Event) ([]round.Event, error) {
	batch := &pgx.Batch{}
	for _, e := range events {
		occurred := pgtype.Timestamptz{Time: e.OccurredAt, Valid: !e.OccurredAt.IsZero()}
		produced := pgtype.Timestamptz{Time: e.EventTime, Valid: !e.EventTime.IsZero()}
		batch.Queue(`INSERT INTO `+s.schema+`.event_log (seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time)
VALUES ($1, $2::text::uuid, $3, $4, $5, coalesce($6::text[], '{}'), $7::text::jsonb, coalesce($8, clock_timestamp()), $9)
RETURNING seq, id::text, type, resource, resource_id, audience, payload, occurred_at, event_time`,
			e.Seq, e.ID, e.Type, e.Resource, e.ResourceID, e.Audience, string(e.Payload), occurred, produced)
	}
	results := conn.SendBatch(ctx, batch)
	defer func() { _ = results.Close() }() // what fails was read before
	stored := make([]round.Event, len(events))
	for i := range events {
		e, at := &stored[i], pgtype.Timestamptz{}
		err := results.QueryRow().Scan(&e.Seq, &e.ID, &e.Type, &e.Resource, &e.ResourceID, &e.Audience, &e.Payload, &e.OccurredAt, &at)
		if err != nil {
			return nil, refused(err, SceneError{Row: -1, Event: i}, "append the events of a rehearsal")
		}
		e.EventTime = at.Time
	}
	return stored, nil
}

// insertRows fills the tables that rules read, row by row: in a batch, an unknown column of the last one would
// be an error of the first.
func insertRows(ctx context.Context, conn *pgxpool.Conn, schema string, rows []Row) error {
	names := map[string]string{} // as the server writes them
	for i, row := range rows {
		name, known := names[row.Table]
		if !known {
			var err error
			if name, err = tableName(ctx, conn, schema, row.Table); err != nil {
				return refused(err, SceneError{Row: i, Event: -1}, "look up a table")
			}
			names[row.Table] = name
		}
		sql, args, err := rowStatement(name, row.Values)
		if err != nil {
			return &SceneError{Row: i, Event: -1, What: err.Error()}
		}
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			return refused(err, SceneError{Row: i, Event: -1}, "insert the rows of a rehearsal")
		}
	}
	return nil
}

// refused is an error about a part of the scene when the server gave one, and else one of the connection.
func refused(err error, part SceneError, doing string) error {
	if own, ok := errors.AsType[*SceneError](err); ok {
		part.What = own.What
		return &part
	}
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || strings.HasPrefix(answer.Code, "08") || strings.HasPrefix(answer.Code, "57") {
		return failed(doing, err)
	}
	part.What = answer.Message
	for _, more := range []string{answer.Detail, answer.Hint} {
		if more != "" {
			part.What += "; " + strings.TrimSuffix(more, ".")
		}
	}
	return &part
}

// tableName is a table as the server writes it, quoted and with its schema.
func tableName(ctx context.Context, conn *pgxpool.Conn, schema, name string) (string, error) {
	var found string
	err := conn.QueryRow(ctx, `SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)`, name).Scan(&found)
	if !errors.Is(err, pgx.ErrNoRows) {
		return found, err
	}
	rows, err := conn.Query(ctx, `SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'f') AND n.nspname <> ALL (ARRAY['pg_catalog', 'information_schema', $1]) ORDER BY 1, 2`, schema)
	if err != nil {
		return "", err
	}
	known, err := pgx.CollectRows(rows, pgx.RowToStructByPos[table])
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("there is no table %q", name)
	if near := nearestTable(name, known); near != "" {
		what += fmt.Sprintf("; did you mean %s?", near)
	}
	return "", &SceneError{What: what}
}

// rowStatement inserts one row. The server turns each JSON value into the type of its column.
func rowStatement(table string, values json.RawMessage) (sql string, args []any, err error) {
	columns, err := keysOf(values)
	if err != nil {
		return "", nil, err
	}
	if len(columns) == 0 {
		return `INSERT INTO ` + table + ` DEFAULT VALUES`, nil, nil
	}
	into, from := make([]string, len(columns)), make([]string, len(columns))
	for i, c := range columns {
		into[i] = quote(c)
		from[i] = "r." + into[i]
	}
	return `INSERT INTO ` + table + ` (` + strings.Join(into, ", ") + `) OVERRIDING SYSTEM VALUE
SELECT ` + strings.Join(from, ", ") + ` FROM jsonb_populate_record(NULL::` + table + `, $1::text::jsonb) r`, []any{string(values)}, nil
}

// keysOf are the keys of a JSON object, sorted.
func keysOf(object json.RawMessage) ([]string, error) {
	var values map[string]json.RawMessage
	if !bytes.HasPrefix(bytes.TrimSpace(object), []byte("{")) || json.Unmarshal(object, &values) != nil {
		return nil, errors.New("a row is a mapping of columns to values")
	}
	keys := make([]string, 0, len(values))
	for key := range values {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, nil
}

// ownJobs are the jobs in River's table. Nobody else put one there: no rehearsal is committed, and its targets
// are not inserted.
func ownJobs(ctx context.Context, conn *pgxpool.Conn, schema string) ([]OwnJob, error) {
	rows, err := conn.Query(ctx, `SELECT kind, queue, max_attempts, priority,
	CASE WHEN jsonb_typeof(args -> 'seq') = 'number' AND args ->> 'seq' ~ '^[0-9]{1,18}$' THEN (args ->> 'seq')::bigint ELSE 0 END,
	coalesce(args ->> 'recipient', '')
FROM `+pgx.Identifier{schema, "river_job"}.Sanitize()+` ORDER BY id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (j OwnJob, err error) {
		err = row.Scan(&j.Kind, &j.Queue, &j.MaxAttempts, &j.Priority, &j.Seq, &j.Recipient)
		return j, err
	})
}
