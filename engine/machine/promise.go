// SPDX-License-Identifier: Apache-2.0

package machine

import (
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
		c.report(c.t.PromisesAt, "missing-promise", fmt.Sprintf("the machine %s must promise %s, and the table does not", c.v.Machine, p), "add this promise as it stands here")
		row := &PromiseRow{At: c.t.PromisesAt, Promise: p}
		if c.promiseWords(row) && sound {
			c.prove(row)
		}
	}
}

// place is where a word of a promise stands, or the promise itself when it is not in the file.
func (row *PromiseRow) place(key string, i int) problem.Position {
	if places := row.places[key]; i < len(places) {
		return places[i]
	}
	return row.At
}

// promiseWords checks that a promise speaks about things that exist.
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
			step, answer, dotted := strings.Cut(word, ".")
			if c.known(row, key, i, step, "step", sortedKeys(c.v.Steps)) && dotted {
				c.known(row, key, i, answer, "answer of step "+step, c.v.Steps[step].Answers)
			}
		}
	}
	for key, words := range map[string][]string{keyPassesState: p.PassesState, keyNeverPassesState: p.NeverPassesState} {
		for i, word := range words {
			c.known(row, key, i, word, "state", sortedKeys(c.states))
		}
	}
	return len(c.problems) == before
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
		for _, is := range []struct{ key, want, got string }{
			{"transaction", string(p.Transaction), string(e.End.Transaction)},
			{"next", string(p.Next), string(e.End.Next)},
			{"edge", string(p.Edge), string(e.End.Edge)},
			{"failure", p.Failure, e.End.Failure},
			{"log", string(p.Log), string(level)},
		} {
			if is.want == "" || is.want == is.got {
				continue
			}
			got := "none"
			if is.got != "" {
				got = is.got
			}
			c.report(row.At, "broken-promise", fmt.Sprintf("the promise %s is broken: end %s (line %d) has %s %s", p, e.End.Name, e.At.Line, is.key, got), fmt.Sprintf("mend end %s, or the promise when it is wrong", e.End.Name))
		}
	}
}

// hold walks every path and reports the shortest one that the monitor finds broken.
func (c *checker) hold(row *PromiseRow, m monitor) {
	if path, ok := c.counterexample(row.Promise, m); ok {
		c.report(row.At, "broken-promise", fmt.Sprintf("the promise %s is broken: a path %s", row.Promise, m.says), "mend a row of this path, or the promise when it is wrong"+c.tell(path))
	}
}
