// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"example.com/bothy/engine"
	"example.com/bothy/engine/jobs"
)

// tally counts how the rounds of each consumer ended.
type tally struct {
	mu       sync.Mutex
	ends     map[string]map[string]int
	passed   map[string]int64 // by consumer: how far its rounds have moved the cursor
	jobs     int
	failures map[string]int // in a row
	last     map[string]engine.Outcome
}

func newTally() *tally {
	return &tally{ends: map[string]map[string]int{}, passed: map[string]int64{}, failures: map[string]int{}, last: map[string]engine.Outcome{}}
}

// observe is called from the goroutine of each consumer.
func (t *tally) observe(consumer string, o engine.Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ends[consumer] == nil {
		t.ends[consumer] = map[string]int{}
	}
	t.ends[consumer][o.End.Name]++
	t.jobs += o.Jobs
	t.passed[consumer] += int64(o.Events) + o.Lost
	if o.End.Failure == "" {
		t.failures[consumer] = 0
		return
	}
	t.failures[consumer]++
	t.last[consumer] = o
}

// inserted is how many jobs the rounds have inserted.
func (t *tally) inserted() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.jobs
}

// caughtUp reports whether every round is counted that moved the cursors from where they stood to where they are:
// a round is told after its commit, so that its cursor can be seen before.
func (t *tally) caughtUp(from map[string]int64, now map[string]engine.State) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, s := range now {
		if t.passed[name] < s.LastSeq-from[name] {
			return false
		}
	}
	return true
}

// failuresInARow is when a consumer counts as stuck: once can be chance.
const failuresInARow = 3

// stuck is an error when a consumer fails again and again.
func (t *tally) stuck() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(t.failures)) {
		if n := t.failures[name]; n >= failuresInARow {
			o := t.last[name]
			return fmt.Errorf("consumer %q cannot go on: %s in a row ended as %s: %w", name, count(n, "round"), o.End.Name, o.Err)
		}
	}
	return nil
}

// endsOf says how the rounds of a consumer ended, by name.
func (t *tally) endsOf(consumer string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var words []string
	for _, end := range slices.Sorted(maps.Keys(t.ends[consumer])) {
		words = append(words, fmt.Sprintf("%d %s", t.ends[consumer][end], end))
	}
	return strings.Join(words, ", ")
}

// verify compares the jobs with the log and prints what each consumer did. It is an error when any event
// does not have its jobs exactly once.
func (r *devRun) verify(ctx context.Context, recorder *jobs.Recorder) error {
	comparisons, err := r.engine.Compare(ctx, r.from)
	if err != nil {
		return err
	}
	states, err := r.states(ctx)
	if err != nil {
		return err
	}
	stdout, stderr := r.cmd.OutOrStdout(), r.cmd.ErrOrStderr()
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "CONSUMER\tEVENTS\tJOBS\tLAG\tENDS")
	sound, which := true, "every event"
	var events, inserted, head int64
	for _, c := range comparisons {
		lag := states[c.Consumer].Lag()
		head = max(head, states[c.Consumer].HeadSeq)
		if lag > 0 {
			which = "every event that was processed"
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\n", c.Consumer, c.Events, c.Found, lag, r.tally.endsOf(c.Consumer))
		sound, inserted, events = sound && c.Sound(), inserted+c.Found, max(events, c.Events)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, c := range comparisons {
		if !c.Sound() {
			fmt.Fprintf(stderr, "consumer %s: of %s, %d are missing, %d are there more than once and %d belong to no event\n", c.Consumer, count(c.Expected, "job"), c.Missing, c.Doubled, c.Extra)
		}
	}
	if !sound {
		fmt.Fprintln(stderr, "engine: the jobs are not what the log and the rules say")
		return errReported
	}
	if events == 0 && which == "every event" {
		fmt.Fprintf(stdout, "no new events: the log holds %d, and every consumer has seen them\n", head)
		return nil
	}
	fmt.Fprintf(stdout, "verified: %s has its jobs exactly once (%s, %s, %d of them worked)\n", which, count(events, "event"), count(inserted, "job"), worked(recorder))
	return nil
}
