// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/machine"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

var (
	seedFlag      = flag.Uint64("seed", 0, "run only the schedule of this seed, and print it")
	schedulesFlag = flag.Int("schedules", schedules, "how many schedules TestSchedules runs")
)

// proven is the table that the engine runs.
func proven(t *testing.T) *machine.Machine {
	t.Helper()
	table, err := Table()
	if err != nil {
		t.Fatalf("the round table: %v", err)
	}
	return table
}

// search runs the schedules of the seeds from 1 to n on all processors, and gives the broken one with the
// lowest seed, how often each end and each moment came, and how often each kind of step was taken.
func search(table *machine.Machine, n int, options ...Option) (broken *Result, met map[string]int, steps map[action]int) {
	var mu sync.Mutex
	var next atomic.Uint64
	var found atomic.Uint64 // no seed above it is of interest
	found.Store(uint64(n) + 1)
	met, steps = map[string]int{}, map[action]int{}
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for {
				seed := next.Add(1)
				if seed >= found.Load() {
					return
				}
				r := Run(table, seed, options...)
				mu.Lock()
				for _, c := range r.taken {
					steps[c.act]++
				}
				for what, count := range r.Met {
					met[what] += count
				}
				if r.Violation != nil && seed < found.Load() {
					found.Store(seed)
					broken = &r
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return broken, met, steps
}

// No schedule breaks a promise. Each end of the table, each moment worth meeting and each kind of step is
// counted on the way, so that the simulator cannot go blind without a word.
func TestSchedules(t *testing.T) {
	t.Parallel()
	table := proven(t)
	if *seedFlag != 0 {
		r := Run(table, *seedFlag, WithTrace())
		t.Logf("%s\n%s", r.Shape, r.Trace)
		if r.Violation != nil {
			t.Error(Explain(table, r))
		}
		return
	}
	broken, met, steps := search(table, *schedulesFlag)
	if broken != nil {
		t.Fatal(Explain(table, *broken))
	}
	t.Logf("%d schedules met %v", *schedulesFlag, met)
	for _, end := range table.Ends() {
		if met[end.Name] < *schedulesFlag/1000 {
			t.Errorf("%d schedules met the end %s %d times, want it often: %v", *schedulesFlag, end.Name, met[end.Name], met)
		}
	}
	const rarest = 5000 // of so many schedules, one meets the rarest moment: the short run of the race detector need not
	for _, moment := range moments {
		if met[moment] < *schedulesFlag/rarest {
			t.Errorf("%d schedules met %q %d times, want it often: %v", *schedulesFlag, moment, met[moment], met)
		}
	}
	for act := actBoot; act <= actMisbehave; act++ {
		if steps[act] < *schedulesFlag/1000 {
			t.Errorf("%d schedules took %d steps of kind %d of schedule.go, want many", *schedulesFlag, steps[act], act)
		}
	}
}

// The same seed gives the same steps and the same trace, byte for byte.
func TestSeedDecidesEverything(t *testing.T) {
	t.Parallel()
	table := proven(t)
	for seed := uint64(1); seed <= 100; seed++ {
		first, second := Run(table, seed, WithTrace()), Run(table, seed, WithTrace())
		if first.Trace != second.Trace || first.Trace == "" {
			t.Fatalf("seed %d gave two traces:\n%s\nand\n%s", seed, first.Trace, second.Trace)
		}
		if plain := Run(table, seed); plain.Steps != first.Steps {
			t.Fatalf("seed %d took %d steps, and %d with a trace", seed, plain.Steps, first.Steps)
		}
		again := replay(table, first, WithTrace())
		if again.Trace != first.Trace {
			t.Fatalf("seed %d, its own steps again gave another trace:\n%s\nwant\n%s", seed, again.Trace, first.Trace)
		}
	}
}
