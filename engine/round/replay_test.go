// SPDX-License-Identifier: Apache-2.0

package round_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/round"
)

// Replay hands over what each round would see, and goes on where the decision ended.
func TestReplay(t *testing.T) {
	t.Parallel()
	events := make([]round.Event, 7)
	for i := range events {
		events[i] = round.Event{Seq: int64(i + 1), Type: []string{"even", "odd"}[(i+1)%2]}
	}
	refused := errors.New("refused")
	tests := map[string]struct {
		consumer round.Consumer
		answer   func(selected []round.Event, limit int, through int64) (round.Decision, error)
		want     []string // through: the numbers of the selected events
		targets  int
		err      bool
	}{
		"batches":        {consumer: round.Consumer{Batch: 3, MaxJobs: 9, Rule: round.Rule{Kind: round.RuleNone}}, want: []string{"3: 1 2 3", "6: 4 5 6", "7: 7"}, targets: 7},
		"one batch":      {consumer: round.Consumer{Batch: 7, MaxJobs: 9, Rule: round.Rule{Kind: round.RuleNone}}, want: []string{"7: 1 2 3 4 5 6 7"}, targets: 7},
		"types":          {consumer: round.Consumer{Batch: 4, MaxJobs: 9, Types: round.Types{"od*"}, Rule: round.Rule{Kind: round.RuleNone}}, want: []string{"4: 1 3", "7: 5 7"}, targets: 4},
		"cut":            {consumer: round.Consumer{Batch: 7, MaxJobs: 3, Rule: round.Rule{Kind: round.RuleList, List: []string{"a", "b"}}}, want: []string{"7: 1 2 3 4 5 6 7", "7: 3 4 5 6 7", "7: 5 6 7", "7: 7"}, targets: 14},
		"a batch of 0":   {consumer: round.Consumer{MaxJobs: 9, Types: round.Types{"no"}, Rule: round.Rule{Kind: round.RuleNone}}, want: []string{"1:", "2:", "3:", "4:", "5:", "6:", "7:"}},
		"an error":       {consumer: round.Consumer{Batch: 3}, answer: func([]round.Event, int, int64) (round.Decision, error) { return round.Decision{}, refused }, want: []string{"3: 1 2 3"}, err: true},
		"no step onward": {consumer: round.Consumer{Batch: 3}, answer: func([]round.Event, int, int64) (round.Decision, error) { return round.Decision{}, nil }, want: []string{"3: 1 2 3"}, err: true},
	}
	for name, tt := range tests {
		var calls []string
		got, err := round.Replay(tt.consumer, events, func(selected []round.Event, limit int, through int64) (round.Decision, error) {
			call := fmt.Sprintf("%d:", through)
			for _, e := range selected {
				call += fmt.Sprintf(" %d", e.Seq)
			}
			calls = append(calls, call)
			if tt.answer != nil {
				return tt.answer(selected, limit, through)
			}
			return round.Decide(tt.consumer.Rule, selected, limit, through), nil
		})
		if diff := cmp.Diff(tt.want, calls); diff != "" {
			t.Errorf("%s: rounds (-want +got):\n%s", name, diff)
		}
		if (err != nil) != tt.err || len(got) != tt.targets {
			t.Errorf("%s: got %d targets and %v, want %d and an error: %v", name, len(got), err, tt.targets, tt.err)
		}
	}
	if got, err := round.Replay(round.Consumer{}, nil, nil); got != nil || err != nil {
		t.Errorf("no events: got %v, %v; want nothing", got, err)
	}
}
