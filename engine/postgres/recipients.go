// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/bothy/engine/round"
)

// RuleError is a recipient rule that cannot be used as it is written: its author must change it.
type RuleError struct {
	Code  RuleCode // what kind of mistake it is
	What  string   // what the rule did
	Fix   string   // what to do, imperative
	Place int      // the character of the rule that is wrong, counted from 1; 0 for the rule as a whole
	cause error    // of the database, or nil
	fault string   // without a cause: the fault of an event, in words that hold nothing of it; empty when it is none
}

func (e *RuleError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("the recipient rule %s: %s", e.What, e.Fix)
	}
	return fmt.Sprintf("the recipient rule %s: %s (%v)", e.What, e.Fix, e.cause)
}

// Unwrap is the error of the database, or nil.
func (e *RuleError) Unwrap() error { return e.cause }

// ErrorType is the SQLSTATE when the database refused the rule, else rule.
func (e *RuleError) ErrorType() string {
	if code := sqlState(e.cause); code != "" {
		return code
	}
	return "rule"
}

// Recipients applies the consumer's rule, a query or a handler, to the selected events.
func (tx *Tx) Recipients(ctx context.Context, events []round.Event, limit int, through int64) (round.Decision, error) {
	if tx.consumer.Suspect.Seq != 0 {
		return tx.recipientsApart(ctx, events, limit, through)
	}
	return tx.recipients(ctx, events, limit, through)
}

func (tx *Tx) recipients(ctx context.Context, events []round.Event, limit int, through int64) (round.Decision, error) {
	if tx.consumer.Rule.Kind == round.RuleHandler {
		return tx.handle(ctx, events, limit, through)
	}
	return tx.queryRule(ctx, events, limit, through)
}

// queryRule applies a query rule to the selected events in one round trip, whatever their number. When it gives
// more than limit targets, they are only counted, and a second query takes the events up to the one that
// reaches the limit: what a rule can make is bounded by the limit and one event, not by the batch.
func (tx *Tx) queryRule(ctx context.Context, events []round.Event, limit int, through int64) (round.Decision, error) {
	decision := round.Decision{Through: through}
	if len(events) == 0 {
		return decision, nil
	}
	seqs := make([]int64, len(events))
	for i, e := range events {
		seqs[i] = e.Seq
	}
	answer, err := tx.query(ctx, seqs, limit)
	if err != nil {
		return round.Decision{}, err
	}
	if answer.counts != nil {
		prefix := answer.upTo(seqs, limit)
		if prefix < len(seqs) {
			decision.Through, decision.Cut = seqs[prefix-1], true
		}
		if answer, err = tx.query(ctx, seqs[:prefix], 0); err != nil {
			return round.Decision{}, err
		}
	}
	decision.Targets = round.Unique(answer.targets)
	return decision, nil
}

// ruleAnswer is the targets of a query rule or, when there were more than the limit, how many each event
// has.
type ruleAnswer struct {
	targets []round.Target
	counts  map[int64]int
}

// upTo is how many of the events it takes to reach the limit, at least one.
func (a ruleAnswer) upTo(seqs []int64, limit int) int {
	total := 0
	for i, seq := range seqs {
		if total += a.counts[seq]; total >= limit {
			return i + 1
		}
	}
	return len(seqs)
}

// query runs the rule after a savepoint in a read-only state and goes back to the savepoint, so that
// whatever the rule did to the session is undone. A limit of 0 means none.
func (tx *Tx) query(ctx context.Context, seqs []int64, limit int) (ruleAnswer, error) {
	tx.ruled = true
	sql, args := tx.store.ruleStatement(tx.consumer.Rule.Query, seqs)
	var answer ruleAnswer
	var err error
	if tx.store.simple {
		answer, err = tx.querySimply(ctx, sql, args, seqs, limit)
	} else {
		answer, err = tx.queryBatch(ctx, sql, args, seqs, limit)
	}
	if err != nil {
		return ruleAnswer{}, located(ruleFailed(err), sql, tx.consumer.Rule.Query)
	}
	return answer, nil
}

// queryBatch sends everything in one round trip. A lock of the session outlives its savepoint and even its
// transaction, so it is let go by name.
func (tx *Tx) queryBatch(ctx context.Context, sql string, args []any, seqs []int64, limit int) (ruleAnswer, error) {
	batch := &pgx.Batch{}
	batch.Queue(sqlSavepoint)
	batch.Queue(sqlReadOnly)
	batch.Queue(sql, args...)
	batch.Queue(sqlBackToSavepoint)
	batch.Queue(tx.store.sqlAfterRule(), seqs[0], seqs[len(seqs)-1], seqs)
	results := tx.conn.SendBatch(ctx, batch)
	for range 2 {
		if _, err := results.Exec(); err != nil {
			_ = results.Close() // the error is known
			return ruleAnswer{}, err
		}
	}
	rows, err := results.Query()
	var answer ruleAnswer
	if err == nil {
		answer, err = readRule(rows, seqs, limit)
	}
	if err == nil {
		_, err = results.Exec()
	}
	if err == nil {
		err = allThere(results.QueryRow(), seqs)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return answer, err
}

// querySimply is queryBatch over a connection that is told to use the simple protocol. A batch would be one text
// there, and so could the rule be several statements: it takes its own round trip, by the extended protocol.
func (tx *Tx) querySimply(ctx context.Context, sql string, args []any, seqs []int64, limit int) (answer ruleAnswer, err error) {
	if _, err := tx.conn.Exec(ctx, sqlSavepoint+`; `+sqlReadOnly); err != nil {
		return answer, err
	}
	rows, err := tx.conn.Query(ctx, sql, append([]any{tx.store.oneStatement}, args...)...)
	if err != nil {
		return answer, err
	}
	if answer, err = readRule(rows, seqs, limit); err != nil {
		return answer, err
	}
	if _, err = tx.conn.Exec(ctx, sqlBackToSavepoint); err != nil {
		return answer, err
	}
	return answer, allThere(tx.conn.QueryRow(ctx, tx.store.sqlAfterRule(), seqs[0], seqs[len(seqs)-1], seqs), seqs)
}

// sqlAfterRule lets go of what a rule locked for the session, and counts the events of the batch that are still
// there: one that somebody deleted by hand since the round read it gave the rule nothing to decide about. The
// bounds are there for the planner, as in ruleStatement.
func (s *Store) sqlAfterRule() string {
	return sqlUnlockSession + `, (SELECT count(*) FROM ` + s.schema + `.event_log WHERE seq >= $1 AND seq <= $2 AND seq = ANY ($3::bigint[]))`
}

// allThere is an error when the count after a rule is not that of its events. Numbers are never given twice, so
// an event that is there now was there when the rule ran.
func allThere(row pgx.Row, seqs []int64) error {
	var unlocked pgtype.Text
	var left int
	if err := row.Scan(&unlocked, &left); err != nil {
		return err
	}
	if left != len(seqs) {
		return failed("decide recipients", fmt.Errorf("of %d events that the round had read, the log now holds %d: somebody deleted the others", len(seqs), left))
	}
	return nil
}

// What stands around a rule.
const (
	sqlSavepoint       = `SAVEPOINT recipients`
	sqlReadOnly        = `SET LOCAL transaction_read_only = on`
	sqlBackToSavepoint = `ROLLBACK TO SAVEPOINT recipients`
	sqlUnlockSession   = `SELECT pg_catalog.pg_advisory_unlock_all()`
)

// ruleStatement wraps a rule: batch is the relation of exactly the given events. Both bounds are there for
// the planner, which prunes partitions by them and not by a list.
func (s *Store) ruleStatement(rule string, seqs []int64) (sql string, args []any) {
	first, last := int64(0), int64(-1)
	if len(seqs) > 0 {
		first, last = seqs[0], seqs[len(seqs)-1]
	}
	args = []any{first, last}
	only := ""
	if int64(len(seqs)) != last-first+1 {
		only = ` AND seq = ANY ($3::bigint[])`
		args = append(args, seqs)
	}
	return `WITH batch AS (
	SELECT seq, id, type, resource, resource_id, audience, payload, occurred_at, event_time
	FROM ` + s.schema + `.event_log WHERE seq >= $1 AND seq <= $2` + only + `
)
` + ruleColumns + ` FROM (
` + rule + ruleEnd, args
}

// ruleColumns is what a round takes of a rule.
const ruleColumns = `SELECT r.seq::bigint, r.recipient::text`

// readRule reads what a rule returns.
func readRule(rows pgx.Rows, seqs []int64, limit int) (answer ruleAnswer, err error) {
	defer rows.Close()
	var seq pgtype.Int8
	var recipient pgtype.Text
	for rows.Next() {
		if err := rows.Scan(&seq, &recipient); err != nil {
			return answer, err
		}
		if err := checkTarget(seq, recipient, seqs); err != nil {
			return answer, err
		}
		if answer.counts != nil {
			answer.counts[seq.Int64]++
			continue
		}
		answer.targets = append(answer.targets, round.Target{Seq: seq.Int64, Recipient: recipient.String})
		if limit > 0 && len(answer.targets) > limit {
			answer.counts = make(map[int64]int, len(seqs))
			for _, t := range answer.targets {
				answer.counts[t.Seq]++
			}
			answer.targets = nil
		}
	}
	return answer, rows.Err()
}

// checkTarget refuses a row that names no event of the batch or nobody.
func checkTarget(seq pgtype.Int8, recipient pgtype.Text, seqs []int64) error {
	if !seq.Valid {
		return &RuleError{What: "returned a row whose seq is NULL", Fix: "select b.seq from batch b", fault: "returned a row whose seq is NULL"}
	}
	first, last := seqs[0], seqs[len(seqs)-1]
	inside := seq.Int64 >= first && seq.Int64 <= last
	if inside && int64(len(seqs)) != last-first+1 {
		_, inside = slices.BinarySearch(seqs, seq.Int64)
	}
	if !inside {
		return &RuleError{What: fmt.Sprintf("returned seq %d, which is not in its batch", seq.Int64), Fix: "take seq from the relation batch", fault: "returned a seq that is not in its batch"}
	}
	if !recipient.Valid || recipient.String == "" {
		return &RuleError{What: fmt.Sprintf("returned a NULL or empty recipient for event %d", seq.Int64), Fix: "leave such rows out with WHERE", fault: "returned a NULL or empty recipient"}
	}
	return nil
}

// ruleFailed says what an error of a rule's statement means to its author. A nil error stays nil.
func ruleFailed(err error) error {
	if own, ok := errors.AsType[*RuleError](err); ok {
		return own
	}
	code := sqlState(err)
	hint := "write one SELECT of seq and recipient over the relation batch"
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok && answer.Hint != "" {
		hint = strings.TrimSuffix(answer.Hint, ".")
	}
	switch {
	case code == codeReadOnly:
		return &RuleError{Code: RuleWrites, What: "tries to write or lock", Fix: "select only; a handler rule may write rows of its own", cause: err}
	case code == codeInsufficientRight:
		return &RuleError{Code: RuleUnreadable, What: "reads what the engine's role may not", Fix: "grant it SELECT on what the rule reads", cause: err}
	case code == codeUndefinedTable || code == codeInvalidSchema:
		return &RuleError{Code: RuleUnknownRelation, What: "reads a table that is not there", Fix: "make it first, in the database that database.url leads to, or write its schema before its name", cause: err}
	case code == codeUndefinedColumn:
		return &RuleError{Code: RuleUnknownColumn, What: "reads a column that is not there", Fix: hint, cause: err}
	case strings.HasPrefix(code, "42") || strings.HasPrefix(code, "0A"):
		return &RuleError{Code: RuleRefused, What: "is not a query that PostgreSQL accepts", Fix: hint, cause: err}
	case strings.HasPrefix(code, "22") || strings.HasPrefix(code, "21"):
		return &RuleError{Code: RuleRefused, What: "fails on the data that it reads", Fix: "make the query hold for every event of its types", cause: err}
	default:
		return failed("run the recipient rule", err)
	}
}

// CheckRule asks the database about a query rule. It finds what PostgreSQL can find without data: syntax,
// missing tables and rights, columns that are not seq and recipient, and most attempts to write. An error is
// one of the connection.
func (s *Store) CheckRule(ctx context.Context, rule string) ([]Finding, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, failed("check a recipient rule", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	return finding(s.checkRule(ctx, tx, rule))
}
