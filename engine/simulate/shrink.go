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
	final := replay(table, short, append(slices.Clip(options), WithTrace())...)
	text := fmt.Sprintf("seed %d breaks the promise %q: %s\n", broken.Seed, broken.Violation.Promise, broken.Violation.What)
	text += fmt.Sprintf("  run it again: go test ./engine/simulate -run TestSchedules -seed %d\n", broken.Seed)
	text += fmt.Sprintf("  the shortest schedule found: %d steps of %d, %s\n", len(short.taken), len(broken.taken), short.Shape)
	return text + fmt.Sprintf("  %s\n\nstep  who                what\n%s", final.Violation, final.Trace)
}

// String says who takes part.
func (s Shape) String() string {
	return fmt.Sprintf("%d engines, %d consumers, %d producers, batches of %d", s.Workers, s.Consumers, s.Producers, s.batch)
}

// replay takes the steps of a result again, with its shape. Unless it had settled, it ends after the last.
func replay(table *machine.Machine, r Result, options ...Option) Result {
	w := newWorld(table, r.Shape, options...)
	w.seed, w.abrupt = r.Seed, !r.Settled
	return w.run(append([]choice{}, r.taken...))
}

// shrink leaves out steps and participants as long as the same promise breaks.
func shrink(table *machine.Machine, broken Result, options ...Option) Result {
	best, runs := broken, 0
	try := func(candidate Result) bool {
		if runs++; runs > shrinkLimit {
			return false
		}
		r := replay(table, candidate, options...)
		if r.Violation == nil || r.Violation.Promise != broken.Violation.Promise {
			return false
		}
		best = r
		return true
	}
	for chunk := len(best.taken) / 2; chunk > 0; chunk /= 2 {
		for from := 0; from < len(best.taken); {
			shorter := best
			shorter.taken = slices.Delete(slices.Clone(best.taken), from, min(from+chunk, len(best.taken)))
			if !try(shorter) {
				from += chunk
			}
		}
	}
	for slot := best.Shape.Workers - 1; slot >= 0 && best.Shape.Workers > 1; slot-- {
		try(best.without(choice.ofProcess, slot, func(s *Shape) { s.Workers-- }))
	}
	for slot := best.Shape.Producers - 1; slot >= 0 && best.Shape.Producers > 1; slot-- {
		try(best.without(choice.ofProducer, slot, func(s *Shape) { s.Producers-- }))
	}
	for fewer := best; fewer.Shape.Consumers > 1; {
		fewer.Shape.Consumers--
		if !try(fewer) {
			break
		}
	}
	return best
}

// without is a schedule in which one participant is missing; those behind it move up.
func (r Result) without(of func(choice) bool, slot int, change func(*Shape)) Result {
	change(&r.Shape)
	taken := make([]choice, 0, len(r.taken))
	for _, c := range r.taken {
		if of(c) && int(c.a) == slot {
			continue
		}
		if of(c) && int(c.a) > slot {
			c.a--
		}
		taken = append(taken, c)
	}
	r.taken = taken
	return r
}

// ofProcess reports whether a is the slot of a process.
func (c choice) ofProcess() bool {
	switch c.act {
	case actOrphan, actNotice, actProduce, actFinalize, actRetain, actLose, actRewindCounter, actMend, actBackup, actRestore, actPromote, actMix, actRetire:
		return false
	default:
		return true
	}
}

// ofProducer reports whether a is the slot of a producer.
func (c choice) ofProducer() bool { return c.act == actProduce }
