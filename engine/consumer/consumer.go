// SPDX-License-Identifier: Apache-2.0

// Package consumer runs the declared consumers: for each one, round after round, as the round table says.
//
//	Runner (one goroutine per consumer: wake, poll, again after a full batch, stop)
//	   |
//	Service.Round --> Store.Round (one transaction) --> the table --> the steps --> Tx
//	   |
//	the end of the table: commit or roll back, wait or again, log, failing or recovered
//
// What a round does is the table's; this package binds the steps and obeys the ends. It holds no SQL and
// no YAML. A failing round is data: it rolls back whole, the consumer stays where it is and tries again at
// the next wake or poll, and other consumers do not notice.
package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/round"
)

// Store is the database as rounds see it.
type Store interface {
	// Ensure creates the missing cursor rows at the head of the log.
	Ensure(ctx context.Context, names []string) error
	// Round runs one transaction; it commits when run returns true. An error means that it did not commit
	// as far as anyone knows.
	Round(ctx context.Context, c round.Consumer, run func(context.Context, Tx) (commit bool)) error
}

// Tx is the transaction of one round. The methods are called in the order of the round table.
type Tx interface {
	// Lock tries to lock the cursor row. It also says where the cursor stands, which is only a glance when
	// the row is taken.
	Lock(ctx context.Context) (lock round.Lock, cursor int64, err error)
	Read(ctx context.Context) (round.Snapshot, error)
	// Recipients applies a rule that needs the database (query, handler) to the selected events.
	Recipients(ctx context.Context, events []round.Event, limit int, through int64) (round.Decision, error)
	Insert(ctx context.Context, targets []round.Target) error
	// Quarantine sets an event aside at commit. It follows Recipients that failed in a round with a Suspect: that
	// has left nothing of the rule in the transaction, which goes on.
	Quarantine(r round.Refusal)
	// Advance moves the cursor at commit, or fails the commit when it is not exactly at from.
	Advance(from, to int64)
}

// Consumer is a declared consumer with what the runner needs to know about it.
type Consumer struct {
	round.Consumer
	PollInterval time.Duration // the longest time between two looks at the log
	// LockedAfter is how long another transaction may hold the cursor row, without moving the cursor, before
	// that is told.
	LockedAfter time.Duration
}

// Outcome is how a round ended.
type Outcome struct {
	End    machine.End
	Err    error // the cause of a failure, or why the round was stopped
	Cursor int64 // where the cursor stood before the round, also when another round had it locked
	Head   int64 // the head of the log that the round saw; 0 when it did not get that far
	Room   int64 // how many numbers above Head have a partition
	First  int64 // the first number that was processed; 0 when none was
	Events int   // processed: their jobs and the cursor are committed
	Jobs   int   // inserted
	Lost   int64 // events that retention had removed
	// Traces are the traceparents of the events that the round passed, each once, in the order of their numbers.
	Traces []string
	// Outage says that the round failed because the database cannot be reached. Whoever ran it sets this and tells
	// of it once for all consumers, so the runner says nothing.
	Outage bool
	// Held says that no round may run in this process now, or that this one found so. Whoever ran it sets this and
	// tells of it once for all consumers, so the runner says nothing.
	Held bool
	// Blamed are the events of a round that failed, when one of them is the reason.
	Blamed Numbers
	// Quarantined is the event that the round set aside, and why; nil when it set none aside.
	Quarantined *round.Refusal
	Full        bool // the batch was full or was cut: there is more to do
}

// Service runs rounds. It keeps nothing between them.
type Service struct {
	store Store
	table *machine.Machine
}

// NewService makes a Service that runs the table on the store.
func NewService(store Store, table *machine.Machine) *Service {
	return &Service{store, table}
}

// Ensure creates the missing cursor rows at the head: a new consumer never replays the log.
func (s *Service) Ensure(ctx context.Context, names []string) error {
	return s.store.Ensure(ctx, names)
}

// Round runs one round of a consumer. A deadlock or a lock that was not free in time is tried once more
// at once; what happens then counts.
func (s *Service) Round(ctx context.Context, c round.Consumer) Outcome {
	outcome := s.once(ctx, c)
	var cause interface{ Transient() bool }
	if outcome.End.Failure != "" && errors.As(outcome.Err, &cause) && cause.Transient() && ctx.Err() == nil {
		return s.once(ctx, c)
	}
	return outcome
}

// once runs one transaction.
func (s *Service) once(ctx context.Context, c round.Consumer) Outcome {
	var b *bound
	var result machine.Result
	err := s.store.Round(ctx, c, func(ctx context.Context, tx Tx) bool {
		b = &bound{tx: tx, consumer: c}
		result = s.table.Run(ctx, b.step)
		return result.End.Transaction == machine.Commit
	})
	if err != nil {
		result = s.table.Broken(result, err, ctx.Err() != nil)
	}
	outcome := Outcome{End: result.End, Err: result.Err}
	if b == nil {
		return outcome
	}
	outcome.Cursor, outcome.Head, outcome.Room = b.cursor, b.snapshot.Head, b.snapshot.Room
	if outcome.Err == nil {
		outcome.Err = b.because
	}
	if outcome.End.Failure == FailureError {
		outcome.Blamed = b.blamed(result.Err)
	}
	if outcome.End.Transaction == machine.Commit {
		outcome.First = b.plan.Process[0]
		outcome.Events, outcome.Jobs, outcome.Lost = b.events(), len(b.decision.Targets), b.plan.Lost()
		outcome.Quarantined, outcome.Traces = b.refusal, b.traces()
		outcome.Full = b.decision.Cut || len(b.snapshot.Events) >= c.Batch
	}
	if outcome.Err != nil {
		outcome.Err = fmt.Errorf("round of consumer %q: %w", c.Name, outcome.Err)
	}
	return outcome
}

// attributes are those of the record that an end declares: the consumer and, after a loss, the first
// number that was processed. Of an event that was set aside they are its number and the class of its error.
func (o Outcome) attributes(name string) []slog.Attr {
	attrs := []slog.Attr{slog.String(attrConsumer, name)}
	if q := o.Quarantined; q != nil {
		attrs = append(attrs, slog.Int64(attrSeq, q.Seq), slog.String(attrErrorType, q.ErrorType))
	}
	if o.Lost > 0 {
		attrs = append(attrs, slog.Int64(attrSeq, o.First))
	}
	return attrs
}
