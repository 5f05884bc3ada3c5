// SPDX-License-Identifier: Apache-2.0

// Package producer appends events to the log from Go, inside the caller's own transaction.
//
//	tx, err := pool.Begin(ctx)
//	// the business change, with tx
//	ids, err := producer.Append(ctx, tx, producer.Event{Type: "order.created", ResourceID: "42", Payload: payload})
//	err = tx.Commit(ctx)
//
// The events exist exactly when the transaction commits, and get their numbers at that moment: nothing
// needs to be appended last. At REPEATABLE READ and SERIALIZABLE the commit can fail with SQLSTATE 40001;
// then the whole transaction is to be retried, as always at these levels.
//
// An application imports this package alone, so it stands on pgx and the standard library only. It refuses
// to mend what it is given: text that PostgreSQL would refuse or that JSON would change is an error before
// anything is sent.
package producer

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DefaultSchema is where Append looks for the log.
const DefaultSchema = "bothy"

// Event is what an application says happened.
type Event struct {
	// Type says what happened, such as order.created: 1 to 256 characters without blanks or control
	// characters.
	Type string
	// Resource and ResourceID name what it happened to. Both may be empty.
	Resource   string
	ResourceID string
	// Audience names who may care, for consumers with the rule `field: audience`. No element is empty.
	Audience []string
	// Payload is any JSON value, of any size; nil is {}.
	Payload json.RawMessage
	// Time is the application's own clock, between the years 1 and 9999; zero for none. The log adds that
	// of the server.
	Time time.Time
	// ID is a UUID; empty lets the server choose a random one.
	ID string
	// Traceparent is the trace that this belongs to, as W3C Trace Context writes it (00-<trace>-<span>-01): the jobs
	// of the event carry it on. Empty is that of the transaction, when it set bothy.traceparent, else none. One that
	// is malformed is left out, as the standard wants: a trace never costs a transaction.
	Traceparent string
}

// Querier is the transaction to append in. A pgx.Tx is the use that this package is made for; on a
// *pgx.Conn or *pgxpool.Pool the events are a transaction of their own.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Log is an event log in a schema of another name. The zero value is the one in DefaultSchema.
type Log struct{ Schema string }

// Append appends all events in order, or none, and answers their ids. It is Log{}.Append.
func Append(ctx context.Context, q Querier, events ...Event) (ids []string, err error) {
	return Log{}.Append(ctx, q, events...)
}

// chunkBytes is how much JSON goes to the server at once. An event that is larger goes alone.
const chunkBytes = 4 << 20

// Append appends all events in order, or none, and answers their ids. It takes one round trip for up to
// 4 MiB; more travels in several, inside a savepoint (or a transaction, when q is none). An error about an
// event is an *EventError that names its index; when it comes from the server the transaction cannot go on.
func (l Log) Append(ctx context.Context, q Querier, events ...Event) (ids []string, err error) {
	if len(events) == 0 {
		return nil, nil
	}
	chunks, err := encode(events)
	if err != nil {
		return nil, err
	}
	statement := l.statement()
	if len(chunks) == 1 {
		return send(ctx, q, statement, chunks[0])
	}
	ids = make([]string, 0, len(events))
	err = pgx.BeginFunc(ctx, q, func(tx pgx.Tx) error {
		for _, c := range chunks {
			more, err := send(ctx, tx, statement, c)
			if err != nil {
				return err
			}
			ids = append(ids, more...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

func (l Log) statement() string {
	schema := l.Schema
	if schema == "" {
		schema = DefaultSchema
	}
	return `SELECT ` + pgx.Identifier{schema}.Sanitize() + `.append_events($1::text::jsonb)::text[]`
}

func send(ctx context.Context, q Querier, statement string, c chunk) (ids []string, err error) {
	if err := q.QueryRow(ctx, statement, string(c.json)).Scan(&ids); err != nil {
		return nil, fmt.Errorf("append events %d to %d: %w", c.first, c.first+c.count-1, err)
	}
	return ids, nil
}
