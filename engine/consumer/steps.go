// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/round"
)

// bound is one round on its way: each step hands its one value to the next.
//
//	lock_cursor -> read_events -> plan_round -> decide_recipients -> insert_jobs -> advance_cursor
//	                snapshot       plan          decision
//	                                             refusal -----> quarantine_event -> advance_cursor
type bound struct {
	tx       Tx
	consumer round.Consumer

	cursor   int64 // as the lock saw it
	snapshot round.Snapshot
	plan     round.Plan
	decision round.Decision
	deciding bool           // the rule was called and has not returned
	faulty   error          // of the rule, when it belongs to an event
	refusal  *round.Refusal // the event that is set aside
	because  error          // why an answer leads to a failure, for people
}

// errMissing explains the answer missing of lock_cursor.
var errMissing = errors.New("the cursor row does not exist; starting the engine creates it at the head of the log")

// step runs the step that the table names.
func (b *bound) step(ctx context.Context, s machine.Step) (answer string, err error) {
	switch s.Run {
	case stepLock:
		return b.lock(ctx)
	case stepRead:
		return b.read(ctx)
	case stepPlan:
		return b.planRound()
	case stepDecide:
		return b.decide(ctx)
	case stepInsert:
		return answerInserted, b.tx.Insert(ctx, b.decision.Targets)
	case stepQuarantine:
		b.tx.Quarantine(*b.refusal)
		b.decision = round.Decision{Through: b.refusal.Seq}
		return answerQuarantined, nil
	case stepAdvance:
		b.tx.Advance(b.snapshot.Cursor, b.decision.Through)
		return answerAdvanced, nil
	default:
		return "", fmt.Errorf("step %q is not one of a round", s.Run)
	}
}

func (b *bound) lock(ctx context.Context) (string, error) {
	lock, cursor, err := b.tx.Lock(ctx)
	b.cursor = cursor
	switch lock {
	case round.Missing:
		b.because = errMissing
	case round.Quiet: // it was seen in the same look
		b.snapshot, err = b.tx.Read(ctx)
	case round.Held, round.Taken:
	}
	return string(lock), err
}

func (b *bound) read(ctx context.Context) (string, error) {
	snapshot, err := b.tx.Read(ctx)
	if err != nil {
		return "", err
	}
	b.snapshot = snapshot
	reading := snapshot.Reading()
	switch reading {
	case round.Vanished:
		b.because = fmt.Errorf("%w: the head is %d, and the log holds nothing after the cursor %d; when parts of the database were restored, `engine restore finalize` puts it right", round.ErrConsumerGap, snapshot.Head, snapshot.Cursor)
	case round.Ahead:
		b.because = fmt.Errorf("the cursor is at %d, above the head %d: the database went back in time: stop the producers and run `engine restore finalize`", snapshot.Cursor, snapshot.Head)
	case round.Unfinalized:
		b.because = fmt.Errorf("the database is %s, and the cursors follow %s: stop the producers and run `engine restore finalize`", snapshot.Current, snapshot.Stored)
	case round.Some, round.None:
	}
	return string(reading), nil
}

func (b *bound) planRound() (string, error) {
	plan, err := b.snapshot.Plan()
	if err != nil {
		b.because = err
		return answerHole, nil //nolint:nilerr // a hole is an answer: the table says what follows from it
	}
	b.plan = plan
	if plan.LostFrom != 0 {
		return answerExpired, nil
	}
	return answerContiguous, nil
}

// decide applies the rule. An event is refused only by a round over this event alone that knows it as the suspect;
// when events before it were lost, that round passes and tells the loss, and leaves the event to the next.
func (b *bound) decide(ctx context.Context) (answer string, err error) {
	suspect := b.consumer.Suspect
	alone := suspect.Seq != 0 && len(b.plan.Process) == 1 && b.plan.Process[0] == suspect.Seq
	if alone && b.plan.LostFrom != 0 {
		b.decision = round.Decision{Through: b.plan.LostTo}
		return answerDecided, nil
	}
	apply := b.apply
	if alone {
		apply = b.applyApart
	}
	if err = apply(ctx); err == nil {
		return answerDecided, nil
	}
	message, ok := faultOf(err)
	if !ok || ctx.Err() != nil {
		return "", err
	}
	if b.faulty = err; !alone {
		return "", err
	}
	b.refusal = &round.Refusal{Seq: suspect.Seq, ErrorType: errorType(err), Message: message, Attempts: suspect.Attempts}
	return answerRefused, nil
}

// applyApart applies the rule, and makes an error of its panic: the transaction goes on.
func (b *bound) applyApart(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &machine.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return b.apply(ctx)
}

// blamed are the events of the round, when its error belongs to one of them.
func (b *bound) blamed(err error) Numbers {
	_, panicked := errors.AsType[*machine.PanicError](err)
	if b.refusal == nil && (b.faulty != nil || b.deciding && panicked) {
		return Numbers{First: b.plan.Process[0], Last: b.plan.NewLastSeq}
	}
	return Numbers{}
}

func (b *bound) apply(ctx context.Context) (err error) {
	c := b.consumer
	events, through, cut := round.Select(b.snapshot.Events, c.Types), b.plan.NewLastSeq, false
	if whole := b.snapshot.Whole; whole != 0 && whole < through {
		events = slices.DeleteFunc(slices.Clone(events), func(e round.Event) bool { return e.Seq > whole })
		through, cut = whole, true
	}
	switch c.Rule.Kind {
	case round.RuleQuery, round.RuleHandler:
		b.deciding = true // a panic leaves it so
		b.decision, err = b.tx.Recipients(ctx, events, c.MaxJobs, through)
		b.deciding = false
	case round.RuleNone, round.RuleField, round.RuleList:
		b.decision = round.Decide(c.Rule, events, c.MaxJobs, through)
	default:
		err = fmt.Errorf("consumer %q has no recipient rule", c.Name)
	}
	b.decision.Cut = b.decision.Cut || cut
	return err
}

// events is how many events the round passes with its cursor.
func (b *bound) events() int { return int(b.decision.Through - b.plan.Process[0] + 1) }

// traces are the traceparents of these events, each once.
func (b *bound) traces() []string {
	var traces []string
	seen := map[string]bool{}
	for _, e := range b.snapshot.Events {
		if e.Traceparent != "" && e.Seq <= b.decision.Through && !seen[e.Traceparent] {
			seen[e.Traceparent] = true
			traces = append(traces, e.Traceparent)
		}
	}
	return traces
}
