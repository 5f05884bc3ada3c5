// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"example.com/bothy/engine/problem"
)

// String is the promise as a table states it.
func (p Promise) String() string {
	var parts []string
	word := func(key, value string) {
		if value != "" {
			parts = append(parts, key+": "+value)
		}
	}
	list := func(key string, values []string) {
		if len(values) > 0 {
			parts = append(parts, key+": ["+strings.Join(values, ", ")+"]")
		}
	}
	word("transaction", string(p.Transaction))
	word("end", p.End)
	list(keyPasses, p.Passes)
	if p.InOrder {
		word("in_order", "true")
	}
	list(keyNeverPasses, p.NeverPasses)
	list(keyPassesState, p.PassesState)
	list(keyNeverPassesState, p.NeverPassesState)
	word("next", string(p.Next))
	word("edge", string(p.Edge))
	word("failure", p.Failure)
	word("log", string(p.Log))
	return "{" + strings.Join(parts, ", ") + "}"
}

// meaning is the same for two promises that say the same.
func (p Promise) meaning() string {
	sorted := func(words []string) []string { return slices.Sorted(slices.Values(words)) }
	if !p.InOrder {
		p.Passes = sorted(p.Passes)
	}
	p.NeverPasses, p.PassesState, p.NeverPassesState = sorted(p.NeverPasses), sorted(p.PassesState), sorted(p.NeverPassesState)
	return p.String()
}

// promises checks the promises of the file and those that the program needs, and proves them when every
// row of the table is sound.
func (c *checker) promises(sound bool) {
	stated := make(map[string]problem.Position, len(c.t.Promises))
	for i := range c.t.Promises {
		row := &c.t.Promises[i]
		meaning := row.Promise.meaning()
		if at, twice := stated[meaning]; twice {
			c.problems = append(c.problems, problem.Problem{
				At: row.At, Also: at, Severity: problem.Error, Code: "duplicate-promise",
				What: "a promise is stated twice", Fix: "keep one of the two",
			})
			continue
		}
		stated[meaning] = row.At
		if c.promiseWords(row) && sound {
			c.prove(row)
		}
	}
	for _, p := range c.v.Promises {
		if _, ok := stated[p.meaning()]; ok {
			continue
		}
		row := &PromiseRow{At: c.missing(p), Promise: p}
		said := len(c.problems)
		provable := c.promiseWords(row)
		c.problems = c.problems[:said] // that it is missing says enough about what it names
		if provable && sound {
			c.prove(row)
		}
	}
}

// missing reports a promise that the program needs and the file does not state, at the row that seems to be
// what was made of it.
func (c *checker) missing(p Promise) problem.Position {
	at, what := c.t.PromisesAt, fmt.Sprintf("the machine %s must promise %s, and the table does not", c.v.Machine, p)
	fix := "add this promise as it stands here"
	if row := c.altered(p); row != nil {
		at = row.At
		what += fmt.Sprintf(": this row is about the same paths and %s", p.against(row.Promise))
		fix = "write the promise as it stands here; another one may stand beside it"
	}
	if p.Why != "" {
		what += fmt.Sprintf("; without it, %s", p.Why)
	}
	c.report(at, "missing-promise", what, fix)
	return at
}

// altered is the row about the same paths that most likely was this promise once, or nil. Of the rows about a
// transaction, only one that shares a word counts: several promises may be about it.
func (c *checker) altered(p Promise) *PromiseRow {
	for i := range c.t.Promises {
		row := &c.t.Promises[i]
		other := row.Promise
		if c.needed(row) != nil || other.End != p.End || (p.End == "" && other.Transaction != p.Transaction) {
			continue
		}
		if p.End != "" || slices.ContainsFunc(p.lists(), func(l list) bool {
			return slices.ContainsFunc(l.words, func(word string) bool { return slices.Contains(other.list(l.key), word) })
		}) {
			return row
		}
	}
	return nil
}

// list is one list of a promise.
type list struct {
	key   string
	words []string
}

// lists are the lists of a promise, in the order in which it is printed.
func (p Promise) lists() []list {
	return []list{
		{keyPasses, p.Passes}, {keyNeverPasses, p.NeverPasses}, {keyPassesState, p.PassesState}, {keyNeverPassesState, p.NeverPassesState},
	}
}

// list is one list of a promise by its key.
func (p Promise) list(key string) []string {
	for _, l := range p.lists() {
		if l.key == key {
			return l.words
		}
	}
	return nil
}

// against says in words how another promise about the same paths differs.
func (p Promise) against(other Promise) string {
	without := func(some, all Promise) (words []string) {
		for _, l := range all.lists() {
			for _, word := range l.words {
				if !slices.Contains(some.list(l.key), word) {
					words = append(words, l.key+" "+word)
				}
			}
		}
		return words
	}
	lacks, more := without(other, p), without(p, other)
	if p.InOrder && !other.InOrder {
		lacks = append(lacks, "in_order")
	}
	for _, is := range []struct{ key, want, got string }{
		{"transaction", string(p.Transaction), string(other.Transaction)},
		{"next", string(p.Next), string(other.Next)},
		{"edge", string(p.Edge), string(other.Edge)},
		{"failure", p.Failure, other.Failure},
		{"log", string(p.Log), string(other.Log)},
	} {
		switch {
		case is.want == is.got:
		case is.want != "":
			lacks = append(lacks, is.key+" "+is.want)
		default:
			more = append(more, is.key+" "+is.got)
		}
	}
	switch {
	case len(lacks) > 0:
		return "leaves out " + strings.Join(lacks, ", ")
	case len(more) > 0:
		return "adds " + strings.Join(more, ", ")
	default:
		return "has another order"
	}
}

// place is where a word of a promise stands, or the promise itself when it is not in the file.
func (row *PromiseRow) place(key string, i int) problem.Position {
	if places := row.places[key]; i < len(places) {
		return places[i]
	}
	return row.At
}

// promiseWords checks that a promise speaks about things that exist, and says whether it can be proven. A state
// that the table does not have is passed by no path, which is the very thing to prove.
func (c *checker) promiseWords(row *PromiseRow) bool {
	before := len(c.problems)
	p := row.Promise
	if p.End != "" {
		c.known(row, "end", 0, p.End, "end", sortedKeys(c.ends))
	} else if !slices.ContainsFunc(c.t.Ends, func(e EndRow) bool { return e.End.Transaction == p.Transaction }) {
		c.report(row.At, "idle-promise", fmt.Sprintf("no end has `transaction: %s`, so the promise %s is about no path and could never be broken", p.Transaction, p), "write a promise about an end of the table, or add such an end")
	}
	if p.Failure != "" {
		c.known(row, "failure", 0, p.Failure, "failure", c.v.Failures)
	}
	for key, words := range map[string][]string{keyPasses: p.Passes, keyNeverPasses: p.NeverPasses} {
		for i, word := range words {
			w, _ := readPassing(word)
			if !c.known(row, key, i, w.step, "step", sortedKeys(c.v.Steps)) {
				continue
			}
			kind := c.v.Steps[w.step]
			if w.answer != "" {
				c.known(row, key, i, w.answer, "answer of step "+w.step, kind.answers())
			}
			if w.argument != "" && c.known(row, key, i, w.argument, "argument of step "+w.step, sortedKeys(kind.With)) && kind.With[w.argument].OneOf != nil {
				c.known(row, key, i, w.value, "word of argument "+w.argument, kind.With[w.argument].OneOf)
			}
		}
	}
	provable := len(c.problems) == before
	for key, words := range map[string][]string{keyPassesState: p.PassesState, keyNeverPassesState: p.NeverPassesState} {
		for i, word := range words {
			c.known(row, key, i, word, "state", sortedKeys(c.states))
		}
	}
	return provable
}

// known reports a word of a promise that names nothing.
func (c *checker) known(row *PromiseRow, key string, i int, word, what string, names []string) bool {
	if slices.Contains(names, word) {
		return true
	}
	c.report(row.place(key, i), "unknown-in-promise", fmt.Sprintf("a promise names %q, and there is no such %s", word, what), didYouMean(problem.Nearest(word, names), names))
	return false
}

// selects reports whether the promise speaks about paths to this end.
func (p Promise) selects(e End) bool {
	if p.End != "" {
		return e.Name == p.End
	}
	return e.Transaction == p.Transaction
}

// prove checks one promise on every path.
func (c *checker) prove(row *PromiseRow) {
	p := row.Promise
	c.proveEnds(row)
	if p.InOrder {
		c.hold(row, inOrder(p.Passes))
	} else {
		for _, word := range p.Passes {
			c.hold(row, passes(word))
		}
	}
	for _, word := range p.NeverPasses {
		c.hold(row, neverPasses(word))
	}
	for _, name := range p.PassesState {
		c.hold(row, passesState(name))
	}
	for _, name := range p.NeverPassesState {
		c.hold(row, neverPassesState(name))
	}
}

// proveEnds checks what a promise says about the ends themselves.
func (c *checker) proveEnds(row *PromiseRow) {
	p := row.Promise
	for _, e := range c.t.Ends {
		if !p.selects(e.End) {
			continue
		}
		var level Level
		if e.End.Log != nil {
			level = e.End.Log.Level
		}
		var wrong []string
		for _, is := range []struct{ key, want, got string }{
			{"transaction", string(p.Transaction), string(e.End.Transaction)},
			{"next", string(p.Next), string(e.End.Next)},
			{"edge", string(p.Edge), string(e.End.Edge)},
			{"failure", p.Failure, e.End.Failure},
			{"log", string(p.Log), string(level)},
		} {
			if is.want != "" && is.want != is.got {
				wrong = append(wrong, fmt.Sprintf("%s %s instead of %s", is.key, cmp.Or(is.got, none), is.want))
			}
		}
		if p.Edge != "" && p.Failure == "" && e.End.Failure != "" {
			// a failure enters the failing state, whatever else an end says
			wrong = append(wrong, fmt.Sprintf("failure %s, which enters the failing state, instead of edge %s", e.End.Failure, p.Edge))
		}
		if len(wrong) > 0 {
			c.broken(row, e.At, fmt.Sprintf("end %s (line %d) has %s", e.End.Name, e.At.Line, strings.Join(wrong, ", ")), c.why(row), "mend end "+e.End.Name, "")
		}
	}
}

// hold walks every path and reports the shortest one that the monitor finds broken.
func (c *checker) hold(row *PromiseRow, m monitor) {
	path, ok := c.counterexample(row.Promise, m)
	if !ok {
		return
	}
	at := m.fault(c, path)
	why := c.why(row)
	if at.without != "" && c.t.Ends[path[len(path)-1].end].End.Transaction == Commit {
		// What the missing step is for says more than the promise as a whole.
		why = at.without
	}
	c.broken(row, c.t.States[path[at.leg].state].Name.At, "a path "+at.says, why, "mend a row of this path", "; the path is"+explain(c.t, c.v, c.path(path), at.leg))
}

// why is what a broken promise costs, or "": the program says it of its own promises, also when the file
// states them.
func (c *checker) why(row *PromiseRow) string {
	if p := c.needed(row); p != nil {
		return p.Why
	}
	return ""
}

// needed is the promise of the program that the row states, or nil.
func (c *checker) needed(row *PromiseRow) *Promise {
	meaning := row.Promise.meaning()
	for i := range c.v.Promises {
		if c.v.Promises[i].meaning() == meaning {
			return &c.v.Promises[i]
		}
	}
	return nil
}

// broken reports a broken promise: what happens instead, what that would cost, the row at fault, and the
// path there.
func (c *checker) broken(row *PromiseRow, also problem.Position, instead, why, fix, path string) {
	what := fmt.Sprintf("the promise %s is broken: %s", row.Promise, instead)
	if why != "" {
		what += "; if this table ran, " + why
	}
	if c.needed(row) == nil {
		fix += ", or the promise when it is wrong"
	} else {
		fix += "; this promise itself cannot be changed"
	}
	c.problems = append(c.problems, problem.Problem{At: row.At, Also: also, Severity: problem.Error, Code: "broken-promise", What: what, Fix: fix + path})
}
