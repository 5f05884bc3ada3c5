// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"errors"
	"log/slog"
)

// mostWins bounds how many rounds a reduced batch must do well before a larger one is tried.
const mostWins = 64

// The records of a batch that is too large for the server.
const (
	messageReduced = "event consumer takes smaller batches: the server could not do a whole one"
	messageWhole   = "event consumer takes whole batches again"
)

// batch is how many events the next round reads. A round that the server could not do, since a statement took
// too long or too much memory, is tried again at once with half of them, down to one. After some rounds that
// did well the batch doubles, up to what is declared; each time that fails, it takes twice as many rounds
// until the next attempt, so that a consumer does not spend its days on attempts.
type batch struct {
	name   string
	logger *slog.Logger
	whole  int // as declared
	now    int
	wins   int  // rounds that did well since the last change
	need   int  // until a larger batch is tried
	trying bool // a larger batch than the last one that did well
	told   bool
}

func newBatch(c Consumer, logger *slog.Logger) *batch {
	return &batch{name: c.Name, logger: logger, whole: c.Batch, now: c.Batch, need: 1}
}

// reduce reports whether the round is to be tried again with a smaller batch, which it then is.
func (b *batch) reduce(ctx context.Context, o Outcome) bool {
	if b.now <= 1 || !o.tooLarge() {
		return false
	}
	if b.trying {
		b.need = min(2*b.need, mostWins)
	}
	b.now, b.wins, b.trying = b.now/2, 0, false
	if !b.told {
		b.told = true
		b.logger.LogAttrs(ctx, slog.LevelWarn, messageReduced,
			slog.String(attrConsumer, b.name), slog.String(attrErrorType, o.ErrorType()))
	}
	return true
}

// done takes note of a round that did well.
func (b *batch) done(ctx context.Context, o Outcome) {
	if o.Events == 0 {
		return
	}
	if o.Full || o.Events > b.now/2 {
		b.trying = false // fewer events say nothing about a batch of this size
	}
	if b.now >= b.whole {
		if b.told {
			b.told, b.need = false, max(1, b.need/2)
			b.logger.LogAttrs(ctx, slog.LevelInfo, messageWhole, slog.String(attrConsumer, b.name))
		}
		return
	}
	if b.wins++; b.wins >= b.need {
		b.now, b.wins, b.trying = min(b.whole, 2*b.now), 0, true
	}
}

// tooLarge reports whether a smaller batch may pass where this one did not.
func (o Outcome) tooLarge() bool {
	var cause interface{ TooLarge() bool }
	return o.End.Failure != "" && errors.As(o.Err, &cause) && cause.TooLarge()
}
