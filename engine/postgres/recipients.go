// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/bothy/engine/round"
)

// Handler decides the recipients of one event in Go, inside the round's transaction. It is called once per
// event in the order of their numbers. It may read and write rows of its own and insert jobs through tx;
// it calls nothing outside the process, appends no event and keeps nothing of tx. An error rolls back the
// whole round.
type Handler func(ctx context.Context, tx *HandlerTx, e round.Event) (recipients []string, err error)

// HandlerTx is the round's transaction as a handler sees it: it can neither be committed nor rolled back.
type HandlerTx struct{ tx *Tx }

// Exec runs a statement.
func (h *HandlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return h.tx.conn.Exec(ctx, sql, args...)
}

// Query runs a statement that returns rows.
func (h *HandlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return h.tx.conn.Query(ctx, sql, args...)
}

// QueryRow runs a statement that returns at most one row.
func (h *HandlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return h.tx.conn.QueryRow(ctx, sql, args...)
}

// InsertJob inserts a River job of the handler's own. It is committed or rolled back with the round.
func (h *HandlerTx) InsertJob(ctx context.Context, args OwnArgs, job round.Job) error {
	return h.tx.store.options.Inserter.InsertOwn(ctx, jobTx{h.tx}, args, job)
}

// HandlerError is an error that a handler returned.
type HandlerError struct {
	Name  string // the handler's
	Seq   int64  // of the event that it was asked about
	cause error
}

func (e *HandlerError) Error() string {
	return fmt.Sprintf("handler %q on event %d: %v", e.Name, e.Seq, e.cause)
}

// Unwrap is what the handler returned.
func (e *HandlerError) Unwrap() error { return e.cause }

// ErrorType is handler.
func (e *HandlerError) ErrorType() string { return "handler" }

// RuleError is a recipient rule that cannot be used as it is written: its author must change it.
type RuleError struct {
	What  string // what the rule did
	Fix   string // what to do, imperative
	cause error  // of the database, or nil
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
	if tx.consumer.Rule.Kind == round.RuleHandler {
		return tx.handle(ctx, events, limit, through)
	}
	return tx.queryRule(ctx, events, limit, through)
}

// handle applies a handler rule to the selected events, until limit targets are reached; the event that
// reaches it is still taken whole. through is the last number of the plan. The events come without what only
// a handler needs: it is read here, for them alone and a bounded part at a time.
func (tx *Tx) handle(ctx context.Context, events []round.Event, limit int, through int64) (round.Decision, error) {
	name := tx.consumer.Rule.Handler
	handler := tx.store.options.Handlers[name]
	if handler == nil {
		return round.Decision{}, &RuleError{What: fmt.Sprintf("names the handler %q", name), Fix: "register it, or run the program that does"}
	}
	decision := round.Decision{Through: through}
	read := whole{store: tx.store, conn: tx.conn.Conn(), left: tx.sizes.of(events)}
	for {
		part, err := read.next(ctx)
		if err != nil {
			return round.Decision{}, err
		}
		if len(part) == 0 {
			break
		}
		for i, e := range part {
			recipients, err := tx.ask(ctx, handler, e)
			if err != nil {
				return round.Decision{}, err
			}
			for _, r := range recipients {
				decision.Targets = append(decision.Targets, round.Target{Seq: e.Seq, Recipient: r})
			}
			if len(decision.Targets) >= limit && (i+1 < len(part) || len(read.left) > 0) {
				decision.Through, decision.Cut = e.Seq, true
				decision.Targets = round.Unique(decision.Targets)
				return decision, nil
			}
		}
	}
	decision.Targets = round.Unique(decision.Targets)
	return decision, nil
}

// ask asks the handler about one event.
func (tx *Tx) ask(ctx context.Context, handler Handler, e round.Event) ([]string, error) {
	name := tx.consumer.Rule.Handler
	recipients, err := handler(ctx, &HandlerTx{tx}, e)
	if err != nil {
		err = &HandlerError{Name: name, Seq: e.Seq, cause: err}
		switch { // of a statement of its own: a deadlock there is tried again like any other
		case sqlState(err) != "":
			err = failed("decide recipients", err)
		case tx.conn.Conn().IsClosed():
			err = failed("decide recipients", fmt.Errorf("%w: %w", err, errBroken))
		}
		return nil, err
	}
	// outside the transaction the jobs would be committed one by one, and again in the next round
	if tx.conn.Conn().PgConn().TxStatus() != 'T' {
		return nil, &RuleError{
			What: fmt.Sprintf("handler %q ended or broke the transaction on event %d", name, e.Seq),
			Fix:  "run no COMMIT or ROLLBACK, and return the error of a statement that failed",
		}
	}
	for _, r := range recipients {
		if r == "" || !utf8.ValidString(r) || strings.ContainsRune(r, 0) {
			return nil, &RuleError{
				What: fmt.Sprintf("handler %q gave the recipient %q for event %d", name, r, e.Seq),
				Fix:  "give text in UTF-8 that is not empty and holds no zero byte",
			}
		}
	}
	return recipients, nil
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
	sql, args := tx.store.ruleStatement(tx.consumer.Rule.Query, seqs)
	batch := &pgx.Batch{}
	batch.Queue(`SAVEPOINT recipients`)
	batch.Queue(`SET LOCAL transaction_read_only = on`)
	batch.Queue(sql, args...)
	batch.Queue(`ROLLBACK TO SAVEPOINT recipients`)
	results := tx.conn.SendBatch(ctx, batch)
	answer, err := readRule(results, seqs, limit)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return ruleAnswer{}, ruleFailed(err)
	}
	return answer, nil
}

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
SELECT r.seq::bigint, r.recipient::text FROM (
` + rule + `
) r`, args
}

// readRule reads the replies to the batch of query.
func readRule(results pgx.BatchResults, seqs []int64, limit int) (answer ruleAnswer, err error) {
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return answer, err
		}
	}
	rows, err := results.Query()
	if err != nil {
		return answer, err
	}
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
		return &RuleError{What: "returned a row whose seq is NULL", Fix: "select b.seq from batch b"}
	}
	first, last := seqs[0], seqs[len(seqs)-1]
	inside := seq.Int64 >= first && seq.Int64 <= last
	if inside && int64(len(seqs)) != last-first+1 {
		_, inside = slices.BinarySearch(seqs, seq.Int64)
	}
	if !inside {
		return &RuleError{What: fmt.Sprintf("returned seq %d, which is not in its batch", seq.Int64), Fix: "take seq from the relation batch"}
	}
	if !recipient.Valid || recipient.String == "" {
		return &RuleError{What: fmt.Sprintf("returned a NULL or empty recipient for event %d", seq.Int64), Fix: "leave such rows out with WHERE"}
	}
	return nil
}

// ruleFailed says what an error of a rule's statement means to its author.
func ruleFailed(err error) error {
	if own, ok := errors.AsType[*RuleError](err); ok {
		return own
	}
	code := sqlState(err)
	switch {
	case code == codeReadOnly:
		return &RuleError{What: "tries to write or lock", Fix: "select only; a handler rule may write rows of its own", cause: err}
	case code == codeInsufficientRight:
		return &RuleError{What: "reads what the engine's role may not", Fix: "grant it SELECT on what the rule reads", cause: err}
	case strings.HasPrefix(code, "42") || strings.HasPrefix(code, "0A"):
		return &RuleError{What: "is not a query that PostgreSQL accepts", Fix: "write one SELECT of seq and recipient over the relation batch", cause: err}
	case strings.HasPrefix(code, "22") || strings.HasPrefix(code, "21"):
		return &RuleError{What: "fails on the data that it reads", Fix: "make the query hold for every event of its types", cause: err}
	default:
		return failed("run the recipient rule", err)
	}
}

// CheckRule runs a query rule over an empty batch, exactly as a round would. It finds what PostgreSQL can
// find without data: syntax, missing tables and rights, columns that are not seq and recipient, and most
// attempts to write.
func (s *Store) CheckRule(ctx context.Context, rule string) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	sql, args := s.ruleStatement(rule, nil)
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return failed("check a recipient rule", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	rows, err := tx.Query(ctx, sql, args...)
	if err == nil {
		var seq, recipient any
		if rows.Next() && rows.Scan(&seq, &recipient) == nil {
			rows.Close()
			return &RuleError{What: fmt.Sprintf("returned seq %v over an empty batch", seq), Fix: "take seq from the relation batch"}
		}
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		return ruleFailed(err)
	}
	return nil
}
