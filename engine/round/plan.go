// SPDX-License-Identifier: Apache-2.0

package round

import (
	"errors"
	"fmt"
)

// ErrConsumerGap says that the log has a hole which retention does not explain. Numbers are given out
// gap-free, so a hole is damage: the cursor never passes it.
var ErrConsumerGap = errors.New("the event log has a hole")

// Plan says what one round does with the numbers it read.
type Plan struct {
	Process    []int64 // contiguous, in order, never empty
	NewLastSeq int64   // the last number of Process
	// LostFrom and LostTo are the first and the last number that retention removed before this consumer
	// read them. LostFrom is zero when nothing was lost.
	LostFrom, LostTo int64
}

// Lost is how many events retention removed before this consumer read them.
func (p Plan) Lost() int64 {
	if p.LostFrom == 0 {
		return 0
	}
	return p.LostTo - p.LostFrom + 1
}

// PlanRound decides what a round does. lastSeq is the cursor, seqs are the numbers that were read above
// it in rising order, and minRetained is the floor, the lowest number that the log still holds; it only
// matters when the first number does not follow lastSeq.
//
// The numbers must run without a hole from lastSeq+1, or, when retention has removed lastSeq+1, from
// exactly minRetained. Anything else is ErrConsumerGap, and so is an empty seqs: a round with nothing
// to do ends before it plans.
func PlanRound(lastSeq int64, seqs []int64, minRetained int64) (Plan, error) {
	if len(seqs) == 0 {
		return Plan{}, fmt.Errorf("%w: nothing was read after %d", ErrConsumerGap, lastSeq)
	}
	if lastSeq < 0 || seqs[0] <= lastSeq {
		return Plan{}, fmt.Errorf("%w: read %d after cursor %d", ErrConsumerGap, seqs[0], lastSeq)
	}
	for i := 1; i < len(seqs); i++ {
		if seqs[i]-1 != seqs[i-1] {
			return Plan{}, fmt.Errorf("%w: %d is followed by %d", ErrConsumerGap, seqs[i-1], seqs[i])
		}
	}
	plan := Plan{Process: seqs, NewLastSeq: seqs[len(seqs)-1]}
	first := seqs[0]
	switch {
	case first-1 == lastSeq:
		return plan, nil
	case first == minRetained:
		plan.LostFrom, plan.LostTo = lastSeq+1, minRetained-1
		return plan, nil
	default:
		return Plan{}, fmt.Errorf("%w: %d is followed by %d, and the log begins at %d", ErrConsumerGap, lastSeq, first, minRetained)
	}
}
