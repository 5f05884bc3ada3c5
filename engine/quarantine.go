// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"

	"example.com/bothy/engine/postgres"
)

// Quarantined is an event that a consumer has set aside: its cursor has passed the event, without jobs.
type Quarantined = postgres.Quarantined

// Settled is what became of an event that was set aside.
type Settled = postgres.Settled

// Quarantined lists what a consumer has set aside, or all consumers when the name is empty, by name and number.
func (e *Engine) Quarantined(ctx context.Context, consumer string) ([]Quarantined, error) {
	return e.store.Quarantined(ctx, consumer)
}

// RetryQuarantined decides an event again that a declared consumer has set aside, as its entry says now, inserts its
// jobs and takes it out of the quarantine, in one transaction. On an error the event stays. by is kept in the
// audit. Handlers are registered before.
func (e *Engine) RetryQuarantined(ctx context.Context, consumer string, seq int64, by string) (Settled, error) {
	e.fix()
	for _, c := range Consumers(e.config) {
		if c.Name != consumer {
			continue
		}
		if err := e.mayWork(ctx); err != nil {
			return Settled{}, err // the jobs would be of a history that is over
		}
		settled, err := e.store.RetryQuarantined(ctx, c, seq, by)
		if settled.Jobs > 0 {
			e.inserter.Inserted(c.Job.Queue)
		}
		return settled, err
	}
	return Settled{}, fmt.Errorf("consumer %q is not declared in %s%s: its rule says who an event is for, so nobody can retry it", consumer, e.config.File(), hint(consumer, e.config.Names()))
}

// DropQuarantined gives up an event that a consumer has set aside: it never gets jobs. The reason and by are kept
// in the audit.
func (e *Engine) DropQuarantined(ctx context.Context, consumer string, seq int64, reason, by string) (Settled, error) {
	if reason == "" {
		return Settled{}, errors.New("an event is dropped for a reason: give one, it is kept in the audit")
	}
	return e.store.DropQuarantined(ctx, consumer, seq, reason, by)
}
