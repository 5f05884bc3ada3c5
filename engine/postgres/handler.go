// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/bothy/engine/round"
)

// Handler decides the recipients of one event in Go, inside the round's transaction. It is called once per
// event in the order of their numbers. It may read and write rows of its own and insert jobs through tx;
// it calls nothing outside the process, appends no event and keeps nothing of tx. An error rolls back the
// whole round.
type Handler func(ctx context.Context, tx *HandlerTx, e round.Event) (recipients []string, err error)

// HandlerTx is the round's transaction as a handler sees it: it can neither be committed nor rolled back, and
// it ends when the handler returns. Each text is one statement.
type HandlerTx struct {
	tx    *Tx
	event round.Event

	mu    sync.Mutex
	ended bool
	open  pgx.Rows // of the last Query
}

var errHandlerReturned = errors.New("the handler has returned: its transaction is the round's again")

// Exec runs a statement.
func (h *HandlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := h.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

// Query runs a statement that returns rows. They must be closed before the next statement.
func (h *HandlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return nil, errHandlerReturned
	}
	if word := endsTransaction(sql); word != "" {
		return nil, fmt.Errorf("a handler must not run %s: the transaction is its round's", word)
	}
	rows, err := h.tx.conn.Query(ctx, sql, append([]any{h.tx.store.oneStatement}, args...)...)
	if err == nil {
		h.open = rows
	}
	return rows, err
}

// QueryRow runs a statement that returns at most one row.
func (h *HandlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := h.Query(ctx, sql, args...)
	return &handlerRow{rows, err}
}

// handlerRow is the first row of a Query.
type handlerRow struct {
	rows pgx.Rows
	err  error
}

// Scan reads the row, and is pgx.ErrNoRows when there is none.
func (r *handlerRow) Scan(into ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(into...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// InsertJob inserts a River job of the handler's own. It is committed or rolled back with the round, and carries the
// trace of the event on.
func (h *HandlerTx) InsertJob(ctx context.Context, args OwnArgs, job round.Job) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return errHandlerReturned
	}
	return h.tx.store.options.Inserter.InsertOwn(ctx, jobTx{h.tx}, args, job, h.event.Traceparent)
}

// call calls the handler and then ends what it was given, also after a panic. A handler that broke off may have
// left a result open, which would be in the way of a round that goes on.
func call(ctx context.Context, handler Handler, own *HandlerTx, e round.Event) (recipients []string, err error) {
	done := false
	defer func() {
		own.mu.Lock()
		defer own.mu.Unlock()
		own.ended = true
		if !done && own.open != nil {
			own.open.Close()
		}
	}()
	recipients, err = handler(ctx, own, e)
	done = err == nil
	return recipients, err
}

// endsTransaction is the word of a statement that would end the round's transaction or begin another, else
// empty. A text is sent as one statement, and what a DO block or a procedure tries the server refuses.
func endsTransaction(sql string) string {
	words := strings.Fields(strings.ToUpper(skipBlank(sql)))
	if len(words) == 0 {
		return ""
	}
	word := strings.TrimRight(words[0], ";")
	if before, _, cut := strings.Cut(word, "/*"); cut {
		word = before
	}
	if before, _, cut := strings.Cut(word, "--"); cut {
		word = before
	}
	switch word {
	case "COMMIT", "END", "ABORT", "BEGIN", "START":
		return word
	case "PREPARE":
		if len(words) > 1 && strings.HasPrefix(words[1], "TRANSACTION") {
			return "PREPARE TRANSACTION"
		}
	case "ROLLBACK":
		if !slices.Contains(words[1:], "TO") { // a savepoint of the handler's own
			return word
		}
	}
	return ""
}

// skipBlank cuts what may stand before the first word: blanks, comments and empty statements.
func skipBlank(sql string) string {
	for {
		sql = strings.TrimLeft(sql, " \t\r\n\f\v;")
		switch {
		case strings.HasPrefix(sql, "--"):
			_, rest, _ := strings.Cut(sql, "\n")
			sql = rest
		case strings.HasPrefix(sql, "/*"):
			sql = sql[commentLength(sql):]
		default:
			return sql
		}
	}
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

// handle applies a handler rule to the selected events, until limit targets are reached; the event that
// reaches it is still taken whole. through is the last number of the plan. The events come without what only
// a handler needs: it is read here, for them alone and a bounded part at a time.
func (tx *Tx) handle(ctx context.Context, events []round.Event, limit int, through int64) (round.Decision, error) {
	name := tx.consumer.Rule.Handler
	handler := tx.store.options.Handlers[name]
	if handler == nil {
		return round.Decision{}, &RuleError{What: fmt.Sprintf("names the handler %q", name), Fix: "register it, or run the program that does"}
	}
	tx.ruled = true
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
	own := &HandlerTx{tx: tx, event: e}
	recipients, err := call(ctx, handler, own, e)
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
	if tx.conn.Conn().PgConn().IsBusy() {
		if own.open != nil {
			own.open.Close()
		}
		return nil, &RuleError{
			What:  fmt.Sprintf("handler %q left a result of event %d open", name, e.Seq),
			Fix:   "close the rows of every Query, and read the row of every QueryRow",
			fault: fmt.Sprintf("is handler %q, which left a result open", name),
		}
	}
	// outside the transaction the jobs would be committed one by one, and again in the next round
	if status := tx.conn.Conn().PgConn().TxStatus(); status != 'T' {
		fault := ""
		if status == 'E' { // one that has ended cannot be gone on with, whatever the event
			fault = fmt.Sprintf("is handler %q, which hid the error of a statement", name)
		}
		return nil, &RuleError{
			What:  fmt.Sprintf("handler %q ended or broke the transaction on event %d", name, e.Seq),
			Fix:   "run no COMMIT or ROLLBACK, and return the error of a statement that failed",
			fault: fault,
		}
	}
	for _, r := range recipients {
		if r == "" || !utf8.ValidString(r) || strings.ContainsRune(r, 0) {
			return nil, &RuleError{
				What:  fmt.Sprintf("handler %q gave the recipient %q for event %d", name, r, e.Seq),
				Fix:   "give text in UTF-8 that is not empty and holds no zero byte",
				fault: fmt.Sprintf("is handler %q, which gave a recipient that cannot be one", name),
			}
		}
	}
	return recipients, nil
}
