// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/bothy/engine/round"
)

// eventFaults are the classes of SQLSTATE that a statement gives because of the data of an event: the same
// statement passes over other events. Everything else (a connection, a timeout, a lock, a full disk, a missing
// table or right) concerns every event.
var eventFaults = map[string]string{
	"21": "more than one row where one was expected",
	"22": "data exception",
	"23": "integrity constraint violation",
	"P0": "raised by a function",
}

// sqlFault says in words that hold nothing of an event what the server answered, when it is a fault of an event. The
// message of the server is not among them: it quotes values.
func sqlFault(err error) (message string, ok bool) {
	answer, is := errors.AsType[*pgconn.PgError](err)
	if !is || len(answer.Code) != 5 {
		return "", false
	}
	words, ok := eventFaults[answer.Code[:2]]
	if !ok {
		return "", false
	}
	message = fmt.Sprintf("SQLSTATE %s (%s)", answer.Code, words)
	if answer.ConstraintName != "" {
		message += fmt.Sprintf(", constraint %q", answer.ConstraintName)
	}
	return message, true
}

// EventFault reports whether the rule failed on what an event holds, and how.
func (e *RuleError) EventFault() (message string, ok bool) {
	if e.cause == nil {
		return "the rule " + e.fault, e.fault != ""
	}
	message, ok = sqlFault(e.cause)
	return "the rule failed: " + message, ok
}

// EventFault reports whether the handler refused the event. What it could not reach or wait for is no fault
// of the event.
func (e *HandlerError) EventFault() (message string, ok bool) {
	switch {
	case errors.Is(e.cause, context.Canceled), errors.Is(e.cause, context.DeadlineExceeded), disconnected(e.cause):
		return "", false
	case sqlState(e.cause) != "":
		message, ok = sqlFault(e.cause)
		return fmt.Sprintf("handler %q failed: %s", e.Name, message), ok
	default:
		return fmt.Sprintf("handler %q returned an error", e.Name), true
	}
}

// EventFault reports whether a statement of the rule failed on what an event holds, and how.
func (f *Failure) EventFault() (message string, ok bool) {
	if own, is := errors.AsType[*HandlerError](f.cause); is {
		return own.EventFault()
	}
	message, ok = sqlFault(f.cause)
	return "the rule failed: " + message, ok
}

// recipientsApart applies the rule so that the transaction goes on when the rule fails, or panics: nothing of the
// rule is left in it then. Only a round with a suspect pays for that.
func (tx *Tx) recipientsApart(ctx context.Context, events []round.Event, limit int, through int64) (decision round.Decision, err error) {
	held := len(tx.held)
	if tx.consumer.Rule.Kind == round.RuleHandler { // a query has its own
		if _, err := tx.conn.Exec(ctx, sqlSavepoint); err != nil {
			return round.Decision{}, failed("begin to decide recipients", err)
		}
	}
	done := false
	defer func() {
		if done {
			return
		}
		tx.held = tx.held[:held]
		if back := tx.backToSavepoint(ctx); back != nil {
			err = failed("go on after a rule that failed", back) // after a panic nobody hears this, and COMMIT is refused
		}
	}()
	decision, err = tx.recipients(ctx, events, limit, through)
	done = err == nil
	return decision, err
}

// backToSavepoint undoes what a rule did since its savepoint. A lock of the session outlives that, so it is
// let go by name.
func (tx *Tx) backToSavepoint(ctx context.Context) error {
	for _, sql := range []string{sqlBackToSavepoint, sqlUnlockSession} {
		if _, err := tx.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Quarantine sets an event aside with the commit. An event of the same number can be there already only when the
// log was restored without this table: then it stands for both.
func (tx *Tx) Quarantine(r round.Refusal) {
	tx.held = append(tx.held, statement{
		`INSERT INTO ` + tx.store.schema + `.event_quarantine (consumer, seq, error_type, message, attempts)
VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
		[]any{tx.consumer.Name, r.Seq, r.ErrorType, r.Message, r.Attempts},
	})
}
