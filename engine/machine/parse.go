// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"strings"

	"gopkg.in/yaml.v3"

	"example.com/bothy/engine/problem"
)

// How much one table may hold. The prover's work grows with the product of these, and a table that needs
// more is not one that a person can read.
const (
	maxStates   = 500
	maxAnswers  = 100 // of one state
	maxEnds     = 100
	maxPromises = 100
	maxWords    = 50 // of one list
)

// Parse reads a table and reports everything that is wrong with its grammar, sorted by place. The table
// is never nil; it is whole only when the list is empty. Text of any kind is safe to pass: over 1 MiB it
// is refused unread.
func Parse(file string, text []byte) (*Table, problem.List) {
	r := &reader{file: file, holds: "a table"}
	t := &Table{At: problem.Position{File: file, Line: 1, Col: 1}}
	if n := r.document(text); n != nil {
		r.table(n, t)
	}
	r.problems.Sort()
	return t, r.problems
}

// table reads the top of a table.
func (r *reader) table(n *yaml.Node, t *Table) {
	t.At = r.at(n)
	t.PromisesAt = t.At
	fields, ok := r.fields(n, "a table", []string{"machine", "start", "steps", "anywhere", "ends"}, []string{"promises"})
	if !ok {
		return
	}
	if v := fields["machine"]; v != nil {
		t.Machine, _ = r.word(v, "machine")
	}
	if v := fields["start"]; v != nil {
		t.Start, _ = r.word(v, "start")
	}
	if v := fields["steps"]; v != nil {
		for _, p := range r.rows(v, "steps", maxStates) {
			t.States = append(t.States, r.state(p))
		}
	}
	if v := fields["anywhere"]; v != nil {
		t.Anywhere = r.anywhere(v)
	}
	if v := fields["ends"]; v != nil {
		for _, p := range r.rows(v, "ends", maxEnds) {
			t.Ends = append(t.Ends, r.end(p))
		}
	}
	if v := fields["promises"]; v != nil {
		t.PromisesAt = r.at(v)
		rows := r.sequence(v, "promises")
		for _, row := range r.cut(rows, "promises", maxPromises) {
			t.Promises = append(t.Promises, r.promise(row))
		}
	}
}

// rows gives the named rows of steps, ends or answers.
func (r *reader) rows(n *yaml.Node, what string, most int) []pair {
	pairs, ok := r.mapping(n, what)
	if ok && len(n.Content) == 0 {
		r.report(r.at(n), "empty-list", what+" is an empty mapping, which says nothing", "write at least one row")
	}
	if len(pairs) > most {
		r.report(pairs[most].key.At, "too-large", fmt.Sprintf("%s has %d rows and at most %d are read", what, len(pairs), most), "make the table smaller")
		pairs = pairs[:most]
	}
	return pairs
}

// cut keeps a list within its limit.
func (r *reader) cut(nodes []*yaml.Node, what string, most int) []*yaml.Node {
	if len(nodes) > most {
		r.report(r.at(nodes[most]), "too-large", fmt.Sprintf("%s has %d elements and at most %d are read", what, len(nodes), most), "make the list shorter")
		return nodes[:most]
	}
	return nodes
}

// state reads one row of steps.
func (r *reader) state(p pair) State {
	s := State{Name: p.key, AnswersAt: p.key.At}
	what := "state " + p.key.Text
	if p.key.Text == "end" {
		r.report(p.key.At, "bad-name", "a state is named end, and `end NAME` in a target means an end", "give the state another name")
	}
	fields, ok := r.fields(p.value, what, []string{"run", "answers"}, []string{"with"})
	if !ok {
		return s
	}
	if v := fields["run"]; v != nil {
		s.Run, _ = r.word(v, "run of "+what)
	}
	if v := fields["with"]; v != nil {
		for _, row := range r.rows(v, "with of "+what, maxWords) {
			s.With = append(s.With, r.argument(row))
		}
	}
	if v := fields["answers"]; v != nil {
		s.AnswersAt = r.at(v)
		for _, row := range r.rows(v, "answers of "+what, maxAnswers) {
			if target, ok := r.target(row.value, "answer "+row.key.Text); ok {
				s.Answers = append(s.Answers, Arrow{Answer: row.key, Target: target})
			}
		}
	}
	return s
}

// argument reads one argument: a word or a list of words.
func (r *reader) argument(p pair) Argument {
	a := Argument{Name: p.key, List: p.value.Kind == yaml.SequenceNode}
	what := "argument " + p.key.Text
	if !a.List {
		if w, ok := r.text(p.value, what); ok {
			a.Values = []Word{w}
		}
		return a
	}
	nodes := r.sequence(p.value, what)
	for _, n := range r.cut(nodes, what, maxWords) {
		if w, ok := r.text(n, "an element of "+what); ok {
			a.Values = append(a.Values, w)
		}
	}
	return a
}

// target reads where an answer leads.
func (r *reader) target(n *yaml.Node, what string) (Target, bool) {
	w, ok := r.text(n, what)
	if !ok {
		return Target{}, false
	}
	name, isEnd := strings.CutPrefix(w.Text, "end ")
	if !namePattern.MatchString(name) || (!isEnd && name == "end") {
		r.report(w.At, "bad-target", fmt.Sprintf("%s leads to %s, which is neither the name of a state nor `end NAME`", what, quote(w.Text)), "write the name of a state, or `end ` and the name of an end")
		return Target{}, false
	}
	return Target{Name: name, End: isEnd, At: w.At}, true
}

// anywhere reads what happens to any step.
func (r *reader) anywhere(n *yaml.Node) []Arrow {
	const what = "anywhere"
	if _, ok := r.fields(n, what, []string{answerCancelled, answerError}, nil); !ok {
		return nil
	}
	var arrows []Arrow
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if (key.Value != answerCancelled && key.Value != answerError) || seen[key.Value] {
			continue
		}
		seen[key.Value] = true
		if target, ok := r.target(n.Content[i+1], key.Value+" of anywhere"); ok {
			arrows = append(arrows, Arrow{Answer: Word{Text: key.Value, At: r.at(key)}, Target: target})
		}
	}
	return arrows
}

// end reads one row of ends.
func (r *reader) end(p pair) EndRow {
	row := EndRow{At: p.key.At, End: End{Name: p.key.Text, Edge: Settle}}
	what := "end " + p.key.Text
	fields, ok := r.fields(p.value, what, []string{"transaction", "next"}, []string{"edge", "failure", "log"})
	if !ok {
		return row
	}
	if v := fields["transaction"]; v != nil {
		word, _ := r.oneOf(v, "transaction of "+what, transactions)
		row.End.Transaction = Transaction(word)
	}
	if v := fields["next"]; v != nil {
		word, _ := r.oneOf(v, "next of "+what, nexts)
		row.End.Next = Next(word)
	}
	if v := fields["edge"]; v != nil {
		if word, ok := r.oneOf(v, "edge of "+what, edges); ok {
			row.End.Edge = Edge(word)
		}
		if fields["failure"] != nil {
			r.report(r.at(v), "edge-beside-failure", what+" has an edge and a failure, and a failure always enters the failing state", "remove one of the two")
		}
	}
	if v := fields["failure"]; v != nil {
		if w, ok := r.word(v, "failure of "+what); ok {
			row.End.Failure, row.FailureAt = w.Text, w.At
		}
	}
	if v := fields["log"]; v != nil {
		row.End.Log = r.log(v, "log of "+what)
	}
	return row
}

// log reads the record of an end.
func (r *reader) log(n *yaml.Node, what string) *Log {
	fields, ok := r.fields(n, what, []string{"level", "message"}, nil)
	if !ok {
		return nil
	}
	l := &Log{}
	if v := fields["level"]; v != nil {
		word, _ := r.oneOf(v, "level of "+what, levels)
		l.Level = Level(word)
	}
	if v := fields["message"]; v != nil {
		w, ok := r.text(v, "message of "+what)
		if ok && (strings.TrimSpace(w.Text) == "" || strings.ContainsAny(w.Text, "\r\n")) {
			r.report(w.At, "bad-message", fmt.Sprintf("message of %s is %s, and a message is one line", what, quote(w.Text)), "write what happened, in one line without values")
		}
		l.Message = w.Text
	}
	return l
}
