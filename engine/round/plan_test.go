// SPDX-License-Identifier: Apache-2.0

package round_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/bothy/engine/round"
)

func TestPlanRound(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		lastSeq int64
		seqs    []int64
		floor   int64
		want    round.Plan
		gap     bool
	}{
		"contiguous batch":                   {10, []int64{11, 12, 13}, 0, round.Plan{Process: []int64{11, 12, 13}, NewLastSeq: 13}, false},
		"single event":                       {0, []int64{1}, 1, round.Plan{Process: []int64{1}, NewLastSeq: 1}, false},
		"retention loss":                     {5, []int64{100, 101}, 100, round.Plan{Process: []int64{100, 101}, NewLastSeq: 101, LostFrom: 6, LostTo: 99}, false},
		"retention loss of one event":        {5, []int64{7}, 7, round.Plan{Process: []int64{7}, NewLastSeq: 7, LostFrom: 6, LostTo: 6}, false},
		"loss claimed, first above floor":    {5, []int64{101, 102}, 100, round.Plan{}, true},
		"loss claimed, first below floor":    {5, []int64{99, 100}, 100, round.Plan{}, true},
		"jump, floor not above":              {5, []int64{8}, 6, round.Plan{}, true},
		"jump, floor unknown":                {5, []int64{8}, 0, round.Plan{}, true},
		"hole inside the batch":              {5, []int64{6, 7, 9}, 1, round.Plan{}, true},
		"hole inside after loss":             {5, []int64{100, 102}, 100, round.Plan{}, true},
		"repeated number":                    {5, []int64{6, 6}, 1, round.Plan{}, true},
		"falling numbers":                    {5, []int64{7, 6}, 1, round.Plan{}, true},
		"number at the cursor":               {5, []int64{5, 6}, 1, round.Plan{}, true},
		"number below the cursor":            {5, []int64{4, 5, 6}, 4, round.Plan{}, true},
		"nothing read":                       {5, nil, 1, round.Plan{}, true},
		"negative cursor":                    {-1, []int64{0}, 0, round.Plan{}, true},
		"the largest number, no overflow":    {math.MaxInt64 - 1, []int64{math.MaxInt64}, 1, round.Plan{Process: []int64{math.MaxInt64}, NewLastSeq: math.MaxInt64}, false},
		"cursor at the largest, no wrapping": {math.MaxInt64, []int64{math.MinInt64}, 1, round.Plan{}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := round.PlanRound(tt.lastSeq, tt.seqs, tt.floor)
			if errors.Is(err, round.ErrConsumerGap) != tt.gap || (err != nil) != tt.gap {
				t.Fatalf("PlanRound(%d, %v, %d) error = %v, want a gap: %v", tt.lastSeq, tt.seqs, tt.floor, err, tt.gap)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("PlanRound(%d, %v, %d) (-want +got):\n%s", tt.lastSeq, tt.seqs, tt.floor, diff)
			}
			if tt.gap {
				return
			}
			if last := tt.seqs[len(tt.seqs)-1]; got.NewLastSeq != last {
				t.Errorf("NewLastSeq = %d, want the last number processed, %d", got.NewLastSeq, last)
			}
		})
	}
}

// FuzzPlanRound takes any bytes as numbers: no input panics, and a plan without an error is contiguous,
// begins right after the cursor or at the floor, and moves the cursor forward.
func FuzzPlanRound(f *testing.F) {
	seed := func(numbers ...int64) []byte {
		var b []byte
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint64(b, uint64(n)) //nolint:gosec // the bits are the seed
		}
		return b
	}
	f.Add(int64(10), int64(0), seed(11, 12, 13))
	f.Add(int64(5), int64(100), seed(100, 101))
	f.Add(int64(5), int64(100), seed(101))
	f.Add(int64(5), int64(1), seed(6, 8))
	f.Add(int64(math.MaxInt64), int64(math.MinInt64), seed(math.MinInt64))
	f.Add(int64(0), int64(0), []byte{})
	f.Fuzz(func(t *testing.T, lastSeq, floor int64, raw []byte) {
		var seqs []int64
		for ; len(raw) >= 8; raw = raw[8:] {
			seqs = append(seqs, int64(binary.BigEndian.Uint64(raw))) //nolint:gosec // any number will do
		}
		plan, err := round.PlanRound(lastSeq, seqs, floor)
		if err != nil {
			if !errors.Is(err, round.ErrConsumerGap) {
				t.Fatalf("PlanRound(%d, %v, %d) error = %v, want only gaps", lastSeq, seqs, floor, err)
			}
			return
		}
		if first := plan.Process[0]; first != lastSeq+1 && first != floor {
			t.Errorf("PlanRound(%d, %v, %d) begins at %d", lastSeq, seqs, floor, first)
		}
		for i := 1; i < len(plan.Process); i++ {
			if plan.Process[i] != plan.Process[i-1]+1 {
				t.Errorf("PlanRound(%d, %v, %d) processes %v, which has a hole", lastSeq, seqs, floor, plan.Process)
			}
		}
		if plan.NewLastSeq <= lastSeq || plan.NewLastSeq != plan.Process[len(plan.Process)-1] {
			t.Errorf("PlanRound(%d, %v, %d) moves the cursor to %d", lastSeq, seqs, floor, plan.NewLastSeq)
		}
		if plan.LostFrom != 0 && (plan.LostFrom != lastSeq+1 || plan.LostTo != plan.Process[0]-1) {
			t.Errorf("PlanRound(%d, %v, %d) lost %d to %d", lastSeq, seqs, floor, plan.LostFrom, plan.LostTo)
		}
	})
}

func TestSnapshotReading(t *testing.T) {
	t.Parallel()
	here, there := round.Identity{System: 7, Timeline: 1}, round.Identity{System: 7, Timeline: 2}
	events := []round.Event{{Seq: 6}}
	tests := map[string]struct {
		in   round.Snapshot
		want round.Reading
	}{
		"events":                          {round.Snapshot{Cursor: 5, Head: 6, Events: events}, round.Some},
		"at the head":                     {round.Snapshot{Cursor: 5, Head: 5}, round.None},
		"nothing ever":                    {round.Snapshot{}, round.None},
		"emptied log":                     {round.Snapshot{Cursor: 5, Head: 9}, round.Vanished},
		"cursor above the head":           {round.Snapshot{Cursor: 9, Head: 5}, round.Ahead},
		"cursor above the head, events":   {round.Snapshot{Cursor: 5, Head: 4, Events: events}, round.Ahead},
		"another history":                 {round.Snapshot{Cursor: 5, Head: 6, Events: events, Stored: here, Current: there, Guarded: true}, round.Unfinalized},
		"another history before ahead":    {round.Snapshot{Cursor: 9, Head: 5, Stored: here, Current: there, Guarded: true}, round.Unfinalized},
		"another history, guard off":      {round.Snapshot{Cursor: 5, Head: 6, Events: events, Stored: here, Current: there}, round.Some},
		"same history":                    {round.Snapshot{Cursor: 5, Head: 6, Events: events, Stored: here, Current: here, Guarded: true}, round.Some},
		"stored not filled yet":           {round.Snapshot{Cursor: 5, Head: 6, Events: events, Current: here, Guarded: true}, round.Some},
		"current cannot be read":          {round.Snapshot{Cursor: 5, Head: 6, Events: events, Stored: here, Guarded: true}, round.Some},
		"half an identity is not a match": {round.Snapshot{Cursor: 5, Head: 6, Events: events, Stored: here, Current: round.Identity{System: 8}, Guarded: true}, round.Some},
	}
	for name, tt := range tests {
		if got := tt.in.Reading(); got != tt.want {
			t.Errorf("%s: Reading of %+v = %q, want %q", name, tt.in, got, tt.want)
		}
	}
}

func TestSnapshotContiguous(t *testing.T) {
	t.Parallel()
	events := func(seqs ...int64) (list []round.Event) {
		for _, s := range seqs {
			list = append(list, round.Event{Seq: s})
		}
		return list
	}
	tests := map[string]struct {
		in    round.Snapshot
		batch int
		want  bool
	}{
		"whole batch":           {round.Snapshot{Cursor: 5, Head: 9, Events: events(6, 7)}, 2, true},
		"up to the head":        {round.Snapshot{Cursor: 5, Head: 7, Events: events(6, 7)}, 10, true},
		"idle":                  {round.Snapshot{Cursor: 5, Head: 5}, 10, true},
		"a missing number":      {round.Snapshot{Cursor: 5, Head: 9, Events: events(6, 8)}, 3, false},
		"short of the head":     {round.Snapshot{Cursor: 5, Head: 9, Events: events(6, 7)}, 10, false},
		"above the head":        {round.Snapshot{Cursor: 5, Head: 6, Events: events(6, 7)}, 10, false},
		"nothing, head above":   {round.Snapshot{Cursor: 5, Head: 9}, 10, false},
		"cursor above the head": {round.Snapshot{Cursor: 9, Head: 5}, 10, false},
	}
	for name, tt := range tests {
		if got := tt.in.Contiguous(tt.batch); got != tt.want {
			t.Errorf("%s: Contiguous(%d) of %+v = %v, want %v", name, tt.batch, tt.in, got, tt.want)
		}
	}
}

// A number above the counter was not given out by it: a hole, however contiguous it looks.
func TestSnapshotPlanNumberAboveHead(t *testing.T) {
	t.Parallel()
	s := round.Snapshot{Cursor: 5, Head: 5, Floor: 1, Events: []round.Event{{Seq: 6}}}
	if plan, err := s.Plan(); !errors.Is(err, round.ErrConsumerGap) {
		t.Errorf("Plan of %+v = %+v, %v; want a gap", s, plan, err)
	}
}
