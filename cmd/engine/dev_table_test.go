// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"example.com/bothy/engine"
)

// A cursor is seen at the head before its last round is told: until then, what the rounds inserted is not known.
func TestTallyCaughtUp(t *testing.T) {
	t.Parallel()
	tally := newTally()
	from := map[string]int64{"push": 10, "mail": 10}
	now := map[string]engine.State{"push": {LastSeq: 15}, "mail": {LastSeq: 10}}
	for _, step := range []struct {
		events int
		lost   int64
		want   bool
	}{{0, 0, false}, {2, 0, false}, {1, 2, true}} {
		tally.observe("push", engine.Outcome{Events: step.events, Lost: step.lost})
		if got := tally.caughtUp(from, now); got != step.want {
			t.Errorf("after %+v: got %t, want %t", step, got, step.want)
		}
	}
}
