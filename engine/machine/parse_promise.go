// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// The keys of a promise that hold a list.
const (
	keyPasses           = "passes"
	keyNeverPasses      = "never_passes"
	keyPassesState      = "passes_state"
	keyNeverPassesState = "never_passes_state"
)

// promiseKeys are all keys of a promise, in the order in which a promise is printed.
var promiseKeys = []string{
	"transaction", "end", keyPasses, "in_order", keyNeverPasses, keyPassesState, keyNeverPassesState,
	"next", "edge", "failure", "log",
}

// promise reads one row of promises.
func (r *reader) promise(n *yaml.Node) PromiseRow {
	row := PromiseRow{At: r.at(n), places: make(map[string][]problem.Position)}
	p := &row.Promise
	fields, ok := r.fields(n, "a promise", nil, promiseKeys)
	if !ok {
		return row
	}
	if fields["transaction"] == nil && fields["end"] == nil {
		r.report(row.At, "bad-promise", "a promise does not say about which paths it speaks", "add `transaction: commit`, `transaction: rollback` or `end: NAME`")
	}
	r.selector(fields, p, &row)
	p.Passes = r.words(fields, keyPasses, &row)
	p.NeverPasses = r.words(fields, keyNeverPasses, &row)
	p.PassesState = r.words(fields, keyPassesState, &row)
	p.NeverPassesState = r.words(fields, keyNeverPassesState, &row)
	if v := fields["in_order"]; v != nil {
		r.inOrder(v, p, fields[keyPasses] != nil)
	}
	if !p.InOrder {
		r.once(p.Passes, keyPasses, row.places)
	}
	r.once(p.NeverPasses, keyNeverPasses, row.places)
	r.once(p.PassesState, keyPassesState, row.places)
	r.once(p.NeverPassesState, keyNeverPassesState, row.places)
	says := slices.ContainsFunc(promiseKeys[2:], func(k string) bool { return fields[k] != nil })
	if !says && (fields["transaction"] == nil || fields["end"] == nil) {
		r.report(row.At, "bad-promise", "a promise says nothing about its paths", "add one of "+strings.Join(promiseKeys[2:], ", "))
	}
	return row
}

// selector reads the scalars of a promise: which paths it speaks about, and what their end says.
func (r *reader) selector(fields map[string]*yaml.Node, p *Promise, row *PromiseRow) {
	closed := func(key string, set []string) string {
		if fields[key] == nil {
			return ""
		}
		word, _ := r.oneOf(fields[key], key+" of a promise", set)
		return word
	}
	name := func(key string) string {
		if fields[key] == nil {
			return ""
		}
		w, ok := r.word(fields[key], key+" of a promise")
		if ok {
			row.places[key] = []problem.Position{w.At}
		}
		return w.Text
	}
	p.Transaction = Transaction(closed("transaction", transactions))
	p.End = name("end")
	p.Next = Next(closed("next", nexts))
	p.Edge = Edge(closed("edge", edges))
	p.Failure = name("failure")
	p.Log = Level(closed("log", levels))
}

// inOrder reads the switch that makes passes a sequence.
func (r *reader) inOrder(n *yaml.Node, p *Promise, hasPasses bool) {
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || (n.Value != "true" && n.Value != "false"):
		r.report(r.at(n), "wrong-kind", fmt.Sprintf("in_order of a promise is %s and must be true or false", written(n)), "write true or false")
	case !hasPasses:
		r.report(r.at(n), "bad-promise", "a promise has in_order without passes, so there is nothing to order", "add `passes: [...]` or remove `in_order`")
	default:
		p.InOrder = n.Value == "true"
	}
}

// words reads one list of a promise: states, or steps as a promise speaks of them.
func (r *reader) words(fields map[string]*yaml.Node, key string, row *PromiseRow) []string {
	if fields[key] == nil {
		return nil
	}
	what := key + " of a promise"
	nodes := r.sequence(fields[key], what)
	var words []string
	for _, n := range r.cut(nodes, what, maxWords) {
		w, ok := r.text(n, "an element of "+what)
		if !ok {
			continue
		}
		fits, fix := namePattern.MatchString(w.Text), "write the name of a state"
		if key == keyPasses || key == keyNeverPasses {
			_, fits = readPassing(w.Text)
			fix = "write the name of a step, `step.answer`, or `step(argument=value)`"
		}
		if !fits {
			r.report(w.At, "bad-name", fmt.Sprintf("an element of %s is %s, which is no such name", what, quote(w.Text)), fix)
			continue
		}
		words = append(words, w.Text)
		row.places[key] = append(row.places[key], w.At)
	}
	return words
}

// once reports what a list of a promise names twice.
func (r *reader) once(words []string, key string, places map[string][]problem.Position) {
	first := make(map[string]int, len(words))
	for i, w := range words {
		if j, twice := first[w]; twice {
			r.problems = append(r.problems, problem.Problem{
				At: places[key][i], Also: places[key][j], Severity: problem.Error, Code: "duplicate-word",
				What: fmt.Sprintf("%s of a promise names %q twice", key, w),
				Fix:  "keep one of the two, or add `in_order: true` when the path passes it twice",
			})
			continue
		}
		first[w] = i
	}
}
