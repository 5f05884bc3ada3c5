// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"

	"example.com/bothy/engine/machine"
)

// shrinkLimit is how many schedules are run at most to make one shorter.
const shrinkLimit = 4000

// Explain is what a person needs to see of a schedule that broke a promise: what broke, how to run it again
// and the shortest schedule found that breaks it too, with who did what. The same seed gives the same text.
func Explain(table *machine.Machine, broken Result, options ...Option) string {
	short := shrink(table, broken, options...)
	final := replay(table, short.Shape, short.Seed, short.taken, append(slices.Clip(options), WithTrace())...)
	text := fmt.Sprintf("seed %d breaks the promise %q: %s\n", broken.Seed, broken.Violation.Promise, broken.Violation.What)
	text += fmt.Sprintf("  run it again: go test ./engine/simulate -run TestSchedules -seed %d\n", broken.Seed)
	text += fmt.Sprintf("  the shortest schedule found: %d steps of %d, %s\n", len(short.taken), len(broken.taken), short.Shape)
	return text + fmt.Sprintf("  %s\n\nstep  who                what\n%s", final.Violation, final.Trace)
}

// String says who takes part.
func (s Shape) String() string {
	return fmt.Sprintf("%d engines, %d consumers, %d producers, batches of %d", s.Workers, s.Consumers, s.Producers, s.batch)
}

// replay runs given steps with the shape of a schedule.
func replay(table *machine.Machine, shape Shape, seed uint64, script []choice, options ...Option) Result {
	w := newWorld(table, shape, options...)
	w.seed = seed
	if script == nil {
		script = []choice{}
	}
	return w.run(script)
}

// shrink leaves out participants and steps as long as the same promise breaks.
func shrink(table *machine.Machine, broken Result, options ...Option) Result {
	best, runs := broken, 0
	try := func(shape Shape, script []choice) bool {
		if runs++; runs > shrinkLimit {
			return false
		}
		r := replay(table, shape, broken.Seed, script, options...)
		if r.Violation == nil || r.Violation.Promise != broken.Violation.Promise {
			return false
		}
		best = r
		return true
	}
	for _, reduce := range []func(*Shape){
		func(s *Shape) { s.Workers-- }, func(s *Shape) { s.Consumers-- }, func(s *Shape) { s.Producers-- },
	} {
		for {
			shape := best.Shape
			reduce(&shape)
			if shape.Workers < 1 || shape.Consumers < 1 || shape.Producers < 1 || !try(shape, best.taken) {
				break
			}
		}
	}
	for chunk := len(best.taken) / 2; chunk > 0; chunk /= 2 {
		for from := 0; from < len(best.taken); {
			rest := slices.Delete(slices.Clone(best.taken), from, min(from+chunk, len(best.taken)))
			if !try(best.Shape, rest) {
				from += chunk
			}
		}
	}
	return best
}
