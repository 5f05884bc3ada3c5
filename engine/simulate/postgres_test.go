// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"example.com/bothy/engine/round"
)

// followedSchedules is how many schedules are compared with a real server.
const followedSchedules = 50

// followedFaults are those that can be made to happen to a real server at the same moment.
const followedFaults = FaultCrash | FaultTerminate | FaultRetention | FaultHole | FaultCounter | FaultPromote | FaultRetire | FaultHandler | FaultPoison

// watchQuery is the rule of the consumer watch as the database runs it.
const watchQuery = `SELECT b.seq, r.recipient FROM batch b CROSS JOIN LATERAL unnest(b.audience || '{robin}'::text[]) AS r (recipient)
WHERE CASE WHEN b.resource = 'poison' AND (SELECT lasts FROM public.poison) THEN 1 / (b.seq - b.seq) ELSE 1 END = 1`

// followed runs the schedule of a seed on the model and on a real server.
func followed(t *testing.T, seed uint64, broken flaws) *follower {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	shape := shapeOf(r)
	shape.whole, shape.Steps = true, min(shape.Steps, 120)
	shape.Faults = (shape.Faults | 1<<r.IntN(15) | 1<<r.IntN(15)) & followedFaults
	w := newWorld(proven(t), shape, WithTrace())
	w.random, w.seed, w.flaws = r, seed, broken
	for _, version := range w.declared {
		for _, d := range version {
			d.Job = round.Job{Kind: "simulate." + d.Name, Queue: "default", MaxAttempts: 1, Priority: 1}
			if d.Rule.Kind == round.RuleQuery {
				d.Rule.Query = watchQuery
			}
		}
	}
	f := newFollower(t, w)
	result := w.run(nil)
	if result.Violation != nil && broken == (flaws{}) {
		t.Errorf("seed %d: %v\n%s", seed, result.Violation, result.Trace)
	}
	if len(f.differ) > 0 && broken == (flaws{}) {
		t.Errorf("seed %d, %s: the server and the model differ %d times, first\n%s\n%s", seed, shape, len(f.differ), f.differ[0], result.Trace)
	}
	return f
}

// The model of the store and of PostgreSQL is compared with the real ones: the same steps on both, and after
// each the same answer and the same rows.
func TestModelAgreesWithPostgreSQL(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= followedSchedules; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if f := followed(t, seed, flaws{}); f.compared < 50 {
				t.Errorf("seed %d compared %d times, want at least 50", seed, f.compared)
			}
		})
	}
}

// The comparison can fail: a model that leaves something out is found.
func TestModelThatIsWrongDiffers(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]flaws{
		"the head bounds the read":       {headBounds: true},
		"the floor is not read":          {neverRereads: true},
		"a new consumer starts at 0":     {startsAtZero: true},
		"the identity is not compared":   {ignoresIdentity: true},
		"a round makes a missing cursor": {recreatesCursor: true},
		"nothing is set aside":           {quarantinesNothing: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := false
			for seed := uint64(1); seed <= followedSchedules && !found; seed++ {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					if f := followed(t, seed, broken); len(f.differ) > 0 {
						found = true
						t.Log(f.differ[0])
					}
				})
			}
			if found {
				return
			}
			t.Errorf("%d schedules did not find that the model is wrong", followedSchedules)
		})
	}
}
