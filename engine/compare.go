// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"example.com/bothy/engine/postgres"
)

// Comparison is what the log says one consumer's jobs should be against what they are.
type Comparison = postgres.Comparison

// Compare works out again which jobs the events above from should have, consumer by consumer, and compares
// them with the jobs that are there. from holds a number for each consumer; one that it does not hold is
// compared from the start of the log. It changes nothing, and every target must have exactly one job.
func (e *Engine) Compare(ctx context.Context, from map[string]int64) ([]Comparison, error) {
	e.fix()
	states, err := e.store.States(ctx)
	if err != nil {
		return nil, err
	}
	cursors := make(map[string]int64, len(states))
	for _, s := range states {
		cursors[s.Name] = s.LastSeq
	}
	var comparisons []Comparison
	for _, c := range Consumers(e.config) {
		comparison, err := e.store.Compare(ctx, c, e.config.Jobs.Schema, from[c.Name]+1, cursors[c.Name])
		if err != nil {
			return nil, err
		}
		comparisons = append(comparisons, comparison)
	}
	return comparisons, nil
}
