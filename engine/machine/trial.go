// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.com/bothy/engine/problem"
)

// mostUntested is how many paths without a case are named one by one.
const mostUntested = 20

// trial plays the cases of one file on a proven machine.
type trial struct {
	m        *Machine
	problems problem.List
	walked   map[string]string // the first case that walked a path, by the path's key
}

// try plays every case and reports those that come out otherwise, and the paths that no case walks. It gives
// the number of paths. Paths without a case are reported when every case could be
// read and played: otherwise these are the mistake.
func (m *Machine) try(c *cases, whole bool) (int, problem.List) {
	t := &trial{m: m, walked: make(map[string]string)}
	if c.machine.Text != "" && c.machine.Text != m.name {
		t.report(c.machine.At, "wrong-machine", fmt.Sprintf("machine is %q, and the table beside this file is the machine %q", c.machine.Text, m.name), fmt.Sprintf("write `machine: %s`, or rename one of the two files", m.name))
	}
	for i := range c.list {
		t.play(&c.list[i])
	}
	paths, all := m.Paths()
	if !slices.ContainsFunc(t.problems, func(p problem.Problem) bool { return p.Code != "failed-case" }) && whole {
		t.untested(c, paths, all)
	}
	t.problems.Sort()
	return len(paths), t.problems
}

func (t *trial) report(at problem.Position, code, what, fix string) {
	t.problems = append(t.problems, problem.Problem{At: at, Severity: problem.Error, Code: code, What: what, Fix: fix})
}

// play plays one case: first its words must be words of the table, then its answers must fit the way that
// they lead, then what comes of it is compared.
func (t *trial) play(c *testCase) {
	if !t.words(c) {
		return
	}
	var misfit func() // reports where the answers do not fit; they are at fault then and not the table
	used, broke := 0, false
	path := t.m.play(c.commit, func(n int, s Step) string {
		if c.breaks.how != "" && s.State == c.breaks.state.Text {
			broke = true
			return c.breaks.how
		}
		answer, ok := c.answer(n, s.State)
		if !ok {
			misfit = func() { t.short(c, s) }
			return answerError
		}
		used++
		if declared := t.m.vocabulary.Steps[s.Run].answers(); !slices.Contains(declared, answer.Text) {
			misfit = func() {
				t.report(answer.At, "unknown-answer", fmt.Sprintf("case %s answers %q at state %s, and step %s never answers that", quote(c.name.Text), answer.Text, s.State, s.Run), didYouMean(problem.Nearest(answer.Text, declared), declared))
			}
			return answerError
		}
		return answer.Text
	})
	switch {
	case misfit != nil:
		misfit()
	case c.breaks.how != "" && !broke:
		t.report(c.breaks.state.At, "bad-case", fmt.Sprintf("case %s breaks at state %s, and its path never comes there", quote(c.name.Text), c.breaks.state.Text), "mend the answers or the state; the path is"+t.tell(path))
	case used < len(c.answers):
		t.report(c.answers[t.unused(c, path, used)].At, "bad-case", fmt.Sprintf("case %s gives an answer that nobody asks for: the path has come to its end before", quote(c.name.Text)), "remove the answer; the path is"+t.tell(path))
	case c.commit != "" && path.Meant.Transaction != Commit:
		t.report(c.name.At, "bad-case", fmt.Sprintf("case %s has a commit that fails, and its path comes to end %s, which rolls back", quote(c.name.Text), path.Meant.Name), "remove commit, or mend the answers; the path is"+t.tell(path))
	default:
		if t.walked[path.key()] == "" {
			t.walked[path.key()] = c.name.Text
		}
		t.compare(c, path)
	}
}

// unused is the first answer of a case that its path did not ask for.
func (t *trial) unused(c *testCase, p Path, used int) int {
	if c.byState == nil {
		return used
	}
	return slices.IndexFunc(c.answers, func(state Word) bool {
		return !slices.ContainsFunc(p.Legs, func(l Leg) bool { return l.Step.State == state.Text && !l.off() })
	})
}

// short reports that a case has no answer for a state that its path comes to.
func (t *trial) short(c *testCase, s Step) {
	t.report(c.name.At, "bad-case", fmt.Sprintf("case %s comes to state %s and does not say what %s answers there", quote(c.name.Text), s.State, s.Run),
		fmt.Sprintf("add one of %s, or `breaks: error at %s`", strings.Join(t.m.vocabulary.Steps[s.Run].answers(), ", "), s.State))
}

// answer is what the case answers at a state, the n-th of its path from 0.
func (c *testCase) answer(n int, state string) (Word, bool) {
	if c.byState != nil {
		w, ok := c.byState[state]
		return w, ok
	}
	if n >= len(c.answers) {
		return Word{}, false
	}
	return c.answers[n], true
}

// words reports the words of a case that name nothing.
func (t *trial) words(c *testCase) bool {
	before := len(t.problems)
	known := func(w Word, code, what string, names []string) {
		if !slices.Contains(names, w.Text) {
			t.report(w.At, code, fmt.Sprintf("case %s names %q, and there is no such %s", quote(c.name.Text), w.Text, what), didYouMean(problem.Nearest(w.Text, names), names))
		}
	}
	states, ends := sortedKeys(t.m.states), make([]string, len(t.m.ends))
	for i, e := range t.m.ends {
		ends[i] = e.Name
	}
	if c.byState != nil {
		for _, state := range c.answers {
			known(state, "unknown-state", "state", states)
		}
	}
	if c.breaks.how != "" {
		known(c.breaks.state, "unknown-state", "state", states)
	}
	for _, w := range c.wants {
		switch w.key {
		case "end":
			known(w.word, "unknown-end", "end", ends)
		case "failure":
			known(w.word, "unknown-failure", "failure", append(slices.Clone(t.m.vocabulary.Failures), none))
		}
	}
	for _, e := range c.effects {
		known(e.step, "unknown-step", "step", sortedKeys(t.m.vocabulary.Steps))
	}
	return len(t.problems) == before
}

// compare reports what came out otherwise than the case expects, all of it in one problem.
func (t *trial) compare(c *testCase, p Path) {
	var wrong []string
	differ := func(key, got, want string) {
		if got != want {
			wrong = append(wrong, fmt.Sprintf("%s: got %s, want %s", key, got, want))
		}
	}
	level, message := none, ""
	if p.End.Log != nil {
		level, message = string(p.End.Log.Level), p.End.Log.Message
	}
	failure := none
	if p.End.Failure != "" {
		failure = p.End.Failure
	}
	got := map[string]string{
		"end": p.End.Name, "transaction": string(p.End.Transaction), "next": string(p.End.Next), "edge": string(p.End.Edge),
		"failure": failure, "log": level,
	}
	for _, w := range c.wants {
		differ(w.key, got[w.key], w.word.Text)
	}
	if c.log != nil && p.End.Log != nil {
		differ("message of log", quote(message), quote(c.log.Message))
	}
	if c.hasEffects {
		differ("effects", c.printDone(p.Effects()), c.printWanted())
	}
	if len(wrong) == 0 {
		return
	}
	t.problems = append(t.problems, problem.Problem{
		At: c.name.At, Also: t.place(p), Severity: problem.Error, Code: "failed-case",
		What: fmt.Sprintf("case %s comes out otherwise: %s", quote(c.name.Text), strings.Join(wrong, "; ")),
		Fix:  "mend the table, or the case when it is wrong; the path is" + t.tell(p),
	})
}

// place is where the table names the end of a path.
func (t *trial) place(p Path) problem.Position {
	for _, row := range t.m.table.Ends {
		if row.End.Name == p.End.Name {
			return row.At
		}
	}
	return t.m.table.At
}

func (t *trial) tell(p Path) string { return explain(t.m.table, t.m.vocabulary, p, -1) }

// printDone prints steps that completed the way in which the case states them: arguments only where it
// compares them.
func (c *testCase) printDone(steps []Step) string {
	words := make([]string, len(steps))
	for i, s := range steps {
		words[i] = s.Run
		if i < len(c.effects) && c.effects[i].with != nil && c.effects[i].step.Text == s.Run {
			words[i] += printArguments(s.With)
		}
	}
	return "[" + strings.Join(words, ", ") + "]"
}

func (c *testCase) printWanted() string {
	words := make([]string, len(c.effects))
	for i, e := range c.effects {
		words[i] = e.step.Text
		if e.with != nil {
			words[i] += printArguments(e.with)
		}
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// printArguments prints arguments as a table gives them, in the order of their names.
func printArguments(with map[string][]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(with)) {
		value := strings.Join(with[name], ", ")
		if len(with[name]) > 1 {
			value = "[" + value + "]"
		}
		parts = append(parts, name+": "+value)
	}
	return " {" + strings.Join(parts, ", ") + "}"
}

// untested warns of each path that no case walks.
func (t *trial) untested(c *cases, paths []Path, all bool) {
	warn := func(also problem.Position, what, fix string) {
		t.problems = append(t.problems, problem.Problem{At: c.at, Also: also, Severity: problem.Warning, Code: "untested-path", What: what, Fix: fix})
	}
	missing := 0
	for _, p := range paths {
		if t.walked[p.key()] != "" {
			continue
		}
		if missing++; missing > mostUntested {
			continue
		}
		last := p.Legs[len(p.Legs)-1]
		warn(t.m.states[last.Step.State].at,
			fmt.Sprintf("no case walks the path %s to end %s", p, p.End.Name), "add a case such as\n        "+p.asCase())
	}
	if missing > mostUntested {
		warn(problem.Position{}, fmt.Sprintf("no case walks %d more paths", missing-mostUntested), "add cases for the paths above first")
	}
	if !all {
		warn(problem.Position{}, fmt.Sprintf("the table has more than %d paths, too many for each to have a case", len(paths)), "make the table smaller, or write cases for the paths that matter")
	}
}

// asCase is a case that walks the path, for an author to name.
func (p Path) asCase() string {
	var answers []string
	breaks := ""
	for _, l := range p.Legs {
		if l.off() {
			breaks = fmt.Sprintf(", breaks: %s at %s", l.Answer, l.Step.State)
			continue
		}
		answers = append(answers, l.Answer)
	}
	if p.Commit != "" {
		breaks = ", commit: " + p.Commit
	}
	return fmt.Sprintf("- {name: ..., answers: [%s]%s, end: %s}", strings.Join(answers, ", "), breaks, p.End.Name)
}
