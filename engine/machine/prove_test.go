// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestProverAgainstEveryPath checks the prover against the obvious way to do it: walk every path of a
// small table one by one and read off each whether it keeps the promise.
func TestProverAgainstEveryPath(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2)) // the same tables in every run
	broken, kept := 0, 0
	for range 3000 {
		if proverAgrees(t, random) {
			broken++
		} else {
			kept++
		}
	}
	if broken < 300 || kept < 300 {
		t.Errorf("%d promises were broken and %d kept: the test needs many of both", broken, kept)
	}
}

// FuzzProver does the same with tables that the bytes choose.
func FuzzProver(f *testing.F) {
	for seed := range byte(8) {
		f.Add(bytes.Repeat([]byte{seed, 255 - seed, seed * 31}, 20))
	}
	f.Fuzz(func(t *testing.T, choices []byte) { proverAgrees(t, rand.New(&chosen{bytes: choices})) })
}

// chosen is a source of numbers that are bytes in turn and, when these are used up, those of after: a source
// that stays the same would be rejected for ever by who draws from a range.
type chosen struct {
	bytes []byte
	after rand.PCG
}

func (c *chosen) Uint64() uint64 {
	if len(c.bytes) == 0 {
		return c.after.Uint64()
	}
	n := c.bytes[0]
	c.bytes = c.bytes[1:]
	return uint64(n) * 0x0101010101010101 // a range may be taken from the upper or from the lower bits
}

// proverAgrees proves one random promise of one random table in both ways, and says whether it is broken.
func proverAgrees(t *testing.T, random *rand.Rand) bool {
	t.Helper()
	v := doorVocabulary()
	v.Promises = nil
	v.Steps["paint"] = StepKind{Answers: []Answer{{Name: "done"}}}
	text := randomTable(random)
	promise := randomPromise(random)
	table, problems := Parse("t.yaml", []byte(text))
	if len(problems) > 0 {
		t.Fatalf("%v\n%s", problems, text)
	}
	c := newChecker(table, v)
	c.names()
	for i := range table.States {
		c.state(&table.States[i])
	}
	if len(c.problems) > 0 {
		t.Fatalf("%v\n%s", c.problems, text)
	}
	want := false
	for _, p := range everyPath(c, c.start, nil) {
		want = want || (promise.selects(p.end) && breaks(promise, p.steps))
	}
	c.prove(&PromiseRow{At: table.At, Promise: promise})
	placed(t, c.problems)
	if got := c.problems.Errors() > 0; got != want {
		t.Fatalf("promise %s: got broken %v, want %v, in\n%s%v", promise, got, want, text, c.problems)
	}
	return want
}

// randomTable is a table in which each state leads only to later ones, and to any end.
func randomTable(random *rand.Rand) string {
	var b strings.Builder
	n := 2 + random.IntN(4)
	target := func(i int) string {
		if to := i + 1 + random.IntN(n); to < n {
			return fmt.Sprintf("s%d", to)
		}
		return "end " + []string{"inside", "outside", "fell"}[random.IntN(3)]
	}
	b.WriteString("machine: door\nstart: s0\nsteps:\n")
	for i := range n {
		switch random.IntN(3) {
		case 0:
			fmt.Fprintf(&b, "  s%d: {run: knock, answers: {open: %s, shut: %s}}\n", i, target(i), target(i))
		case 1:
			fmt.Fprintf(&b, "  s%d: {run: paint, answers: {done: %s}}\n", i, target(i))
		default:
			fmt.Fprintf(&b, "  s%d: {run: enter, answers: {done: %s}}\n", i, target(i))
		}
	}
	b.WriteString(`anywhere: {cancelled: end left, error: end fell}
ends:
  inside: {transaction: commit, next: wait}
  outside: {transaction: rollback, next: wait}
  left: {transaction: rollback, next: stop, edge: unchanged}
  fell: {transaction: rollback, next: wait, failure: stuck}
`)
	return b.String()
}

// randomPromise says one thing about the paths to one end or with one transaction.
func randomPromise(random *rand.Rand) Promise {
	p := []Promise{{Transaction: Commit}, {Transaction: Rollback}, {End: "inside"}, {End: "outside"}, {End: "left"}, {End: "fell"}}[random.IntN(6)]
	words := []string{"knock", "knock.open", "knock.shut", "paint", "paint.done", "enter", "enter.done"}
	word := func() string { return words[random.IntN(len(words))] }
	state := fmt.Sprintf("s%d", random.IntN(3))
	switch random.IntN(5) {
	case 0:
		p.Passes = []string{word(), word()}
	case 1:
		p.Passes, p.InOrder = []string{word(), word(), word()}[:1+random.IntN(3)], true
	case 2:
		p.NeverPasses = []string{word()}
	case 3:
		p.PassesState = []string{state}
	default:
		p.NeverPassesState = []string{state}
	}
	return p
}

// passed is one state on a path.
type passed struct {
	state, step, answer string
	off                 bool // the step broke off
}

// wholePath is one path and the end it comes to.
type wholePath struct {
	steps []passed
	end   End
}

// everyPath walks on from a state in every way there is.
func everyPath(c *checker, from int, before []passed) []wholePath {
	var paths []wholePath
	s := c.t.States[from]
	on := func(p passed) []passed { return append(slices.Clone(before), p) }
	broken := []End{c.t.Ends[c.ends["left"]].End, c.t.Ends[c.ends["fell"]].End}
	for _, end := range broken {
		paths = append(paths, wholePath{on(passed{s.Name.Text, s.Run.Text, "", true}), end})
	}
	for _, h := range c.next[from] {
		steps := on(passed{s.Name.Text, s.Run.Text, h.arrow.Answer.Text, false})
		if !h.end {
			paths = append(paths, everyPath(c, h.to, steps)...)
			continue
		}
		end := c.t.Ends[h.to].End
		paths = append(paths, wholePath{steps, end})
		if end.Transaction == Commit {
			for _, lost := range broken {
				paths = append(paths, wholePath{steps, lost})
			}
		}
	}
	return paths
}

// breaks reads off one path whether it breaks a promise about it.
func breaks(p Promise, path []passed) bool {
	done := func(word string) bool {
		return slices.ContainsFunc(path, func(s passed) bool { return !s.off && is(word, s.step, s.answer) })
	}
	tried := func(word string) bool {
		return done(word) || slices.ContainsFunc(path, func(s passed) bool { return s.off && s.step == word })
	}
	missed := func(word string) bool { return !done(word) }
	inState := func(name string, off bool) bool {
		return slices.ContainsFunc(path, func(s passed) bool { return s.state == name && (off || !s.off) })
	}
	if p.InOrder {
		return !sameSequence(p.Passes, path)
	}
	return slices.ContainsFunc(p.Passes, missed) || slices.ContainsFunc(p.NeverPasses, tried) ||
		slices.ContainsFunc(p.PassesState, func(s string) bool { return !inState(s, false) }) ||
		slices.ContainsFunc(p.NeverPassesState, func(s string) bool { return inState(s, true) })
}

// sameSequence leaves only the listed steps of a path and compares them one by one.
func sameSequence(words []string, path []passed) bool {
	listed := slices.DeleteFunc(slices.Clone(path), func(s passed) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return w == s.step || strings.HasPrefix(w, s.step+".") })
	})
	return slices.EqualFunc(words, listed, func(w string, s passed) bool { return !s.off && is(w, s.step, s.answer) })
}
