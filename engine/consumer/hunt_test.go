// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/round"
)

// The hunt, round by round: what comes of each, how large the next batch is, what it suspects, and whether it
// follows at once.
func TestHuntFindsTheEvent(t *testing.T) {
	t.Parallel()
	failure := machine.End{Name: "failed", Failure: FailureError, Next: machine.Wait}
	blamed := func(cursor, first, last int64) Outcome {
		return Outcome{End: failure, Cursor: cursor, Blamed: Numbers{first, last}}
	}
	passed := func(first int64, events int) Outcome {
		return Outcome{End: machine.End{Name: "processed", Transaction: machine.Commit, Next: machine.AgainWhenFull}, Cursor: first - 1, First: first, Events: events}
	}
	locked := func(cursor int64) Outcome {
		return Outcome{End: machine.End{Name: endLocked, Transaction: machine.Rollback, Next: machine.Wait}, Cursor: cursor}
	}
	for name, tt := range map[string]struct {
		after  int
		rounds []Outcome
		want   []string
	}{
		"by halves": {
			2,
			[]Outcome{blamed(0, 1, 8), blamed(0, 1, 8), passed(1, 4), blamed(4, 5, 8), blamed(4, 5, 6), blamed(4, 5, 5)},
			[]string{"8 0 wait", "4 0 again", "4 0 wait", "2 0 again", "1 0 again", "1 5 again"},
		},
		"alone from the start":        {2, []Outcome{blamed(0, 1, 1), blamed(0, 1, 1)}, []string{"8 0 wait", "1 1 again"}},
		"never":                       {0, []Outcome{blamed(0, 1, 1), blamed(0, 1, 1), blamed(0, 1, 1)}, []string{"8 0 wait", "8 0 wait", "8 0 wait"}},
		"another failure between":     {2, []Outcome{blamed(0, 1, 1), {End: failure}, blamed(0, 1, 1)}, []string{"8 0 wait", "8 0 wait", "8 0 wait"}},
		"another worker passed it":    {2, []Outcome{blamed(0, 1, 1), blamed(0, 1, 1), locked(1), blamed(1, 2, 2)}, []string{"8 0 wait", "1 1 again", "1 0 wait", "1 0 wait"}},
		"another worker is at it":     {2, []Outcome{blamed(0, 1, 1), locked(0), blamed(0, 1, 1)}, []string{"8 0 wait", "8 0 wait", "1 1 again"}},
		"another event, unknown here": {2, []Outcome{blamed(0, 1, 1), blamed(0, 1, 1), blamed(1, 2, 2)}, []string{"8 0 wait", "1 1 again", "1 0 wait"}},
		"it passes after all":         {2, []Outcome{blamed(0, 1, 1), blamed(0, 1, 1), passed(1, 1), blamed(1, 2, 2)}, []string{"8 0 wait", "1 1 again", "1 0 wait", "1 0 wait"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Consumer{Consumer: round.Consumer{Name: "push", Batch: 8, QuarantineAfter: tt.after}}
			h, b := hunt{after: tt.after}, newBatch(c, slog.New(slog.DiscardHandler))
			var got []string
			for _, o := range tt.rounds {
				then := "wait"
				if h.record(o, b) {
					then = "again"
				}
				got = append(got, fmt.Sprintf("%d %d %s", b.now, h.suspect.Seq, then))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("batch, suspect and what follows (-want +got):\n%s", diff)
			}
		})
	}
}
