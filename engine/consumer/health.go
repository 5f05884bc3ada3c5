// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"example.com/bothy/engine/machine"
)

// The attributes of the runner's records. They carry no payload, and no text of an error: that can quote
// what an event holds.
const (
	attrConsumer  = "bothy.consumer.name"
	attrSeq       = "bothy.event.seq"
	attrErrorType = "error.type"
	attrDuration  = "bothy.consumer.duration" // of what has just ended
)

// The values of error.type that a record of this package can have, beside a SQLSTATE of the server and what
// the store says of its own errors (timeout, connection, rule, handler, error).
const (
	errorPanic         = "panic"                 // a step, a handler among them, panicked
	errorMissing       = "cursor_missing"        // the cursor row is gone
	errorLocked        = "cursor_locked"         // another transaction holds the cursor row and does not move it
	errorUnfinalized   = "restore_not_finalized" // the database is not the one whose history the cursors follow
	endLocked          = "locked"
	endUnfinalized     = "unfinalized"
	messageFailed      = "event consumer round failed"
	messageRecovered   = "event consumer recovered"
	messageFlaps       = "event consumer fails and recovers in turn: told again once that has settled"
	messageLocked      = "event consumer held up: another transaction keeps its cursor locked"
	messageUnlocked    = "event consumer no longer held up"
	messageUnfinalized = "event consumer stopped: the database was restored or promoted, and that is not finalized"
	messageFinalized   = "event consumer goes on: the restore is finalized"
)

// health logs the edges of one consumer: the first failure after a success and the next success, and the
// beginning and the end of what holds it up without being a failure.
type health struct {
	name        string
	logger      *slog.Logger
	failure     failure
	locked      holdup
	unfinalized holdup
	cursor      int64 // where it stood at the last locked round
}

// mostFailures is how often failing may begin within the time that settles it. After that it is told no more.
const mostFailures = 3

// failure follows whether a consumer fails. What begins and ends again and again is told that way, once, and then
// as it is when it has stayed so for a while: whoever reads the log at night wants a handful of lines, not thousands.
type failure struct {
	settled time.Duration // how long that while is; 0 tells every change

	holds  bool // now
	told   bool // as the log has it
	flaps  bool
	since  time.Time // when that began
	change time.Time // the newest
	begins []time.Time
}

// changes takes note of whether it holds, and reports what the log has to say: nothing, messageFailed,
// messageRecovered or messageFlaps.
func (f *failure) changes(holds bool, now time.Time) (message string) {
	if f.holds != holds {
		f.holds, f.change = holds, now
	}
	if f.flaps {
		if now.Sub(f.change) < f.settled {
			return ""
		}
		f.flaps, f.told, f.begins = false, !holds, nil
	}
	switch {
	case f.holds == f.told:
		return ""
	case !f.holds:
		f.told = false
		return messageRecovered
	}
	f.since = now
	f.begins = append(slices.DeleteFunc(f.begins, func(t time.Time) bool { return now.Sub(t) >= f.settled }), now)
	if f.flaps = len(f.begins) > mostFailures; f.flaps {
		return messageFlaps
	}
	f.told = true
	return messageFailed
}

// holdup is a state that is told once it has lasted, and told again when it ends.
type holdup struct {
	after      time.Duration
	level      slog.Level
	begin, end string
	errorType  string

	since time.Time // zero when it does not hold
	told  bool
}

func newHealth(c Consumer, logger *slog.Logger, settled time.Duration) *health {
	return &health{
		name: c.Name, logger: logger, failure: failure{settled: settled},
		locked:      holdup{after: c.LockedAfter, level: slog.LevelWarn, begin: messageLocked, end: messageUnlocked, errorType: errorLocked},
		unfinalized: holdup{level: slog.LevelError, begin: messageUnfinalized, end: messageFinalized, errorType: errorUnfinalized},
	}
}

// record tells what a round is worth telling. A round that did well is no recovery while events that failed are
// still open.
func (h *health) record(ctx context.Context, o Outcome, open bool) {
	if o.Held {
		h.ends(ctx, &h.locked)
		return
	}
	if o.End.Log != nil {
		h.logger.LogAttrs(ctx, level(o.End.Log.Level), o.End.Log.Message, o.attributes(h.name)...) //nolint:sloglint // the table says it
	}
	h.hold(ctx, o)
	switch {
	case o.Outage:
	case o.End.Failure != "":
		h.logger.DebugContext(ctx, "event consumer round failed: cause", attrConsumer, h.name, "error.message", errorText(o.Err))
		h.change(ctx, o, true)
	case o.End.Edge == machine.Unchanged || open:
	default:
		h.change(ctx, o, false)
	}
}

// change tells what is new about failing.
func (h *health) change(ctx context.Context, o Outcome, fails bool) {
	switch message := h.failure.changes(fails, time.Now()); message {
	case messageFailed:
		h.logger.LogAttrs(ctx, slog.LevelError, messageFailed,
			slog.String(attrConsumer, h.name), slog.String(attrErrorType, o.ErrorType()))
	case messageFlaps:
		h.logger.LogAttrs(ctx, slog.LevelWarn, messageFlaps,
			slog.String(attrConsumer, h.name), slog.String(attrErrorType, o.ErrorType()))
	case messageRecovered:
		h.logger.LogAttrs(ctx, slog.LevelInfo, messageRecovered,
			slog.String(attrConsumer, h.name), slog.Duration(attrDuration, time.Since(h.failure.since).Round(time.Millisecond)))
	}
}

// hold follows what holds the consumer up. A round that broke, and one that was stopped, say nothing of it.
func (h *health) hold(ctx context.Context, o Outcome) {
	switch {
	case o.End.Name == endLocked:
		if o.Cursor != h.cursor {
			h.cursor = o.Cursor
			h.ends(ctx, &h.locked) // another worker makes headway: that is what a lock is for
		}
		h.holds(ctx, &h.locked)
	case o.End.Name == endUnfinalized:
		h.ends(ctx, &h.locked)
		h.holds(ctx, &h.unfinalized)
	case o.End.Failure == FailureError || o.End.Next == machine.Stop:
	default:
		h.ends(ctx, &h.locked)
		h.ends(ctx, &h.unfinalized)
	}
}

func (h *health) holds(ctx context.Context, state *holdup) {
	if state.since.IsZero() {
		state.since = time.Now()
	}
	if !state.told && time.Since(state.since) >= state.after {
		state.told = true
		h.logger.LogAttrs(ctx, state.level, state.begin, //nolint:sloglint // constants of this file
			slog.String(attrConsumer, h.name), slog.String(attrErrorType, state.errorType))
	}
}

func (h *health) ends(ctx context.Context, state *holdup) {
	if state.told {
		h.logger.LogAttrs(ctx, slog.LevelInfo, state.end, //nolint:sloglint // constants of this file
			slog.String(attrConsumer, h.name), slog.Duration(attrDuration, time.Since(state.since).Round(time.Millisecond)))
	}
	state.since, state.told = time.Time{}, false
}

// ErrorType is the value of error.type for a round that failed, else empty. It is from a closed set: consumer_gap,
// consumer_ahead, cursor_missing, panic, rule, handler, timeout, connection, a SQLSTATE of the server, or error.
func (o Outcome) ErrorType() string {
	if o.End.Failure != FailureError {
		return o.End.Failure
	}
	return errorType(o.Err)
}

// errorType is the value of error.type for an error of a step.
func errorType(err error) string {
	if _, ok := errors.AsType[*machine.PanicError](err); ok { // first: what was panicked with can be an error too
		return errorPanic
	}
	if errors.Is(err, errMissing) {
		return errorMissing
	}
	if typed, ok := errors.AsType[interface {
		error
		ErrorType() string
	}](err); ok {
		return typed.ErrorType()
	}
	return FailureError
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func level(l machine.Level) slog.Level {
	switch l {
	case machine.LevelError:
		return slog.LevelError
	case machine.LevelWarn:
		return slog.LevelWarn
	case machine.LevelInfo:
		return slog.LevelInfo
	case machine.LevelDebug:
		return slog.LevelDebug
	default:
		return slog.LevelInfo
	}
}
