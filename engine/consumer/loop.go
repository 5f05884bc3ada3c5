// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"log/slog"
	"time"

	"example.com/bothy/engine/machine"
)

// Loop is the life of one consumer in one process: a round, another at once after a full batch, else a
// pause. It has no goroutine, no timer and no channel of its own. Who drives it says when a round may begin
// and what a pause is: the Runner with signals and a timer, a simulation with a schedule of its own.
type Loop struct {
	Rounds   Rounds
	Consumer Consumer
	Logger   *slog.Logger
	Observe  func(name string, o Outcome) // sees every round; may be nil

	// Settled is how long failing, or doing well, must last to be told again once that changes too often; 0: every
	// change is told.
	Settled time.Duration

	// Begin reports whether another round may begin.
	Begin func() bool
	// Pause waits until there may be something to do, at most for the poll interval, and reports whether
	// to go on.
	Pause func(ctx context.Context) bool
}

// Run goes from round to round until it may not, or until the table says so.
func (l Loop) Run(ctx context.Context) {
	c := l.Consumer
	health, batch, hunt := newHealth(c, l.Logger, l.Settled), newBatch(c, l.Logger), hunt{after: c.QuarantineAfter}
	for l.Begin() {
		c.Batch, c.Suspect = batch.now, hunt.suspect
		outcome := l.Rounds.Round(ctx, c.Consumer)
		if l.Observe != nil {
			l.Observe(c.Name, outcome)
		}
		again := hunt.record(outcome, batch)
		if !again && batch.reduce(ctx, outcome) {
			continue // no edge: how the round ends is not known yet
		}
		if !hunt.open() {
			batch.done(ctx, outcome)
		}
		health.record(ctx, outcome, hunt.open())
		if again {
			continue
		}
		switch outcome.End.Next {
		case machine.AgainWhenFull:
			if outcome.Full {
				continue
			}
		case machine.Stop:
			return
		case machine.Wait:
		}
		if !l.Pause(ctx) {
			return
		}
	}
}
