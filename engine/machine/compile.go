// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/looplab/fsm"

	"example.com/bothy/engine/problem"
)

// Load parses and compiles. Grammar comes first: a table whose grammar has problems is not proven, since
// what was meant is not known. The machine is nil when the list stops a start.
func Load(file string, text []byte, v Vocabulary) (*Machine, problem.List) {
	t, problems := Parse(file, text)
	if problems.Errors() > 0 {
		return nil, problems
	}
	return Compile(t, v)
}

// Compile proves a table against what the program can do and makes it ready to run. It reports every
// problem, sorted by place; the machine is nil when the list stops a start. The table must come from a
// Parse without problems.
//
// Rows come first and the promises last: paths are only walked once every row leads somewhere.
func Compile(t *Table, v Vocabulary) (*Machine, problem.List) {
	c := newChecker(t, v)
	c.vocabulary()
	c.names()
	for i := range t.States {
		c.state(&t.States[i])
	}
	c.anywhere()
	c.endNames()
	c.failures()
	c.cycles()
	// What nobody reaches takes nothing from the paths that there are, so these are proven all the same; and a row
	// that is gone is walked past, to show what goes wrong without it.
	sound := c.problems.Errors() == len(c.gone)
	c.bridge()
	c.reachable()
	c.promises(sound)
	c.problems.Sort()
	if c.problems.Errors() > 0 {
		return nil, c.problems
	}
	return build(t, v), c.problems
}

// checker holds a table while its rows are checked.
type checker struct {
	t        *Table
	v        Vocabulary
	states   map[string]int // name -> index in t.States
	ends     map[string]int // name -> index in t.Ends
	next     [][]hop        // per state, where its answers lead
	start    int            // index of the first state, or -1
	guess    bool           // some target has no state and no likely one: who is reached is not known
	gone     []hop          // the arrows to states that the table does not have; to is where they begin
	problems problem.List
}

// hop is one arrow of the graph.
type hop struct {
	arrow *Arrow
	end   bool
	to    int // index of the state or the end
	// guessed says that the table names something else, which does not exist, and this was taken for it.
	guessed bool
	gone    string // the state that the arrow names and the table does not have; to is what seems to follow it
}

func newChecker(t *Table, v Vocabulary) *checker {
	c := &checker{t: t, v: v, start: -1, next: make([][]hop, len(t.States)), states: make(map[string]int), ends: make(map[string]int)}
	for i := range t.States {
		c.states[t.States[i].Name.Text] = i
	}
	for i := range t.Ends {
		c.ends[t.Ends[i].End.Name] = i
	}
	return c
}

func (c *checker) report(at problem.Position, code, what, fix string) {
	c.problems = append(c.problems, problem.Problem{At: at, Severity: problem.Error, Code: code, What: what, Fix: fix})
}

// vocabulary refuses a program that declares what no table can handle. It is a bug of the program, told
// as a problem so that it is seen before anything runs.
func (c *checker) vocabulary() {
	for _, name := range sortedKeys(c.v.Steps) {
		answers := c.v.Steps[name].answers()
		for i, answer := range answers {
			if answer == answerCancelled || answer == answerError || slices.Contains(answers[:i], answer) {
				c.report(c.t.At, "bad-vocabulary", fmt.Sprintf("the program declares answer %q of step %s twice or as its own, and every step has cancelled and error", answer, name), "mend the step's declaration in the program")
			}
		}
		if len(answers) == 0 {
			c.report(c.t.At, "bad-vocabulary", fmt.Sprintf("the program declares step %s without any answer", name), "mend the step's declaration in the program")
		}
	}
}

// names checks which machine this is and where it starts.
func (c *checker) names() {
	if c.t.Machine.Text != c.v.Machine {
		c.report(c.t.Machine.At, "wrong-machine", fmt.Sprintf("machine is %q, and this table is read as the machine %q", c.t.Machine.Text, c.v.Machine), fmt.Sprintf("write `machine: %s`, or pass the file that holds it", c.v.Machine))
	}
	i, ok := c.states[c.t.Start.Text]
	if ok {
		c.start = i
		return
	}
	names := sortedKeys(c.states)
	near := problem.Nearest(c.t.Start.Text, names)
	c.report(c.t.Start.At, "unknown-state", fmt.Sprintf("start is %q, and no state has this name", c.t.Start.Text), didYouMean(near, names))
	if near == "" {
		c.guess = true
		return
	}
	c.start = c.states[near]
}

// state checks one row of steps: its step, its arguments, its answers and where they lead.
func (c *checker) state(s *State) {
	for i := range s.Answers {
		c.target(s, &s.Answers[i])
	}
	kind, ok := c.v.Steps[s.Run.Text]
	if !ok {
		names := sortedKeys(c.v.Steps)
		c.report(s.Run.At, "unknown-step", fmt.Sprintf("state %s runs %q, and there is no such step", s.Name.Text, s.Run.Text), didYouMean(problem.Nearest(s.Run.Text, names), names))
		return
	}
	c.arguments(s, kind)
	c.answers(s, kind)
}

// answers checks that every answer of the step is handled, and no other.
func (c *checker) answers(s *State, kind StepKind) {
	declared := kind.answers()
	missing := slices.DeleteFunc(slices.Clone(declared), func(answer string) bool {
		return slices.ContainsFunc(s.Answers, func(a Arrow) bool { return a.Answer.Text == answer })
	})
	for _, arrow := range s.Answers {
		if slices.Contains(declared, arrow.Answer.Text) {
			continue
		}
		// A handled answer that is only spelled wrong is one mistake and gets one problem.
		near := problem.Nearest(arrow.Answer.Text, missing)
		missing = slices.DeleteFunc(missing, func(answer string) bool { return answer == near })
		c.report(arrow.Answer.At, "unknown-answer", fmt.Sprintf("state %s handles the answer %q, which step %s never gives", s.Name.Text, arrow.Answer.Text, s.Run.Text), didYouMean(near, declared))
	}
	for _, answer := range missing {
		c.report(s.AnswersAt, "missing-answer", fmt.Sprintf("state %s does not say where %q leads, and step %s may answer it", s.Name.Text, answer, s.Run.Text), fmt.Sprintf("add `%s: STATE` or `%s: end NAME`", answer, answer))
	}
}

// target resolves where an answer leads. An unknown name that is near a known one is taken for it in the
// checks that follow, so that one slip of the hand does not make half of the table unreachable.
func (c *checker) target(s *State, arrow *Arrow) {
	if h, ok := c.resolve(arrow); ok {
		c.next[c.states[s.Name.Text]] = append(c.next[c.states[s.Name.Text]], h)
	} else if !arrow.Target.End {
		c.gone = append(c.gone, hop{arrow: arrow, to: c.states[s.Name.Text], gone: arrow.Target.Name})
	}
}

// resolve finds the state or the end that an arrow leads to, or reports that there is none.
func (c *checker) resolve(arrow *Arrow) (hop, bool) {
	target := arrow.Target
	own, other, code := c.states, c.ends, "unknown-state"
	if target.End {
		own, other, code = c.ends, c.states, "unknown-end"
	}
	if i, ok := own[target.Name]; ok {
		return hop{arrow: arrow, end: target.End, to: i}, true
	}
	what := fmt.Sprintf("answer %s leads to %q, and there is no such state", arrow.Answer.Text, target.Name)
	if target.End {
		what = fmt.Sprintf("answer %s leads to end %q, and there is no such end", arrow.Answer.Text, target.Name)
	}
	if i, ok := other[target.Name]; ok {
		fix := fmt.Sprintf("write `end %s`: it is an end", target.Name)
		if target.End {
			fix = fmt.Sprintf("write `%s`: it is a state", target.Name)
		}
		c.report(target.At, code, what, fix)
		return hop{arrow: arrow, end: !target.End, to: i, guessed: true}, true
	}
	names := sortedKeys(own)
	near := problem.Nearest(target.Name, names)
	c.report(target.At, code, what, didYouMean(near, names))
	if near == "" {
		c.guess = true
		return hop{}, false
	}
	return hop{arrow: arrow, end: target.End, to: own[near], guessed: true}, true
}

// arguments checks what the table gives to a step against what the step takes.
func (c *checker) arguments(s *State, kind StepKind) {
	given := make(map[string]bool, len(s.With))
	for _, a := range s.With {
		declared, ok := kind.With[a.Name.Text]
		given[a.Name.Text] = true
		switch {
		case !ok && len(kind.With) == 0:
			c.report(a.Name.At, "unknown-argument", fmt.Sprintf("state %s gives the argument %q to step %s, which takes none", s.Name.Text, a.Name.Text, s.Run.Text), "remove it")
			continue
		case !ok:
			names := sortedKeys(kind.With)
			near := problem.Nearest(a.Name.Text, names)
			given[near] = true
			c.report(a.Name.At, "unknown-argument", fmt.Sprintf("state %s gives the argument %q to step %s, which does not take it", s.Name.Text, a.Name.Text, s.Run.Text), didYouMean(near, names))
			continue
		case a.List && !declared.List:
			c.report(a.Name.At, "bad-argument", fmt.Sprintf("argument %s of step %s is a list, and it takes one word", a.Name.Text, s.Run.Text), "write one word")
		}
		for _, value := range a.Values {
			if declared.OneOf != nil && !slices.Contains(declared.OneOf, value.Text) {
				c.report(value.At, "bad-argument", fmt.Sprintf("argument %s of step %s is %s", a.Name.Text, s.Run.Text, quote(value.Text)), didYouMean(problem.Nearest(value.Text, declared.OneOf), declared.OneOf))
			}
		}
	}
	for _, name := range sortedKeys(kind.With) {
		if kind.With[name].Required && !given[name] {
			c.report(s.Name.At, "missing-argument", fmt.Sprintf("state %s runs step %s without its argument %s", s.Name.Text, s.Run.Text, name), fmt.Sprintf("add `with: {%s: ...}`", name))
		}
	}
}

// build makes the machine of a table that was found sound.
func build(t *Table, v Vocabulary) *Machine {
	m := &Machine{
		table: t, vocabulary: v,
		name:   t.Machine.Text,
		start:  t.Start.Text,
		states: make(map[string]state, len(t.States)),
		endOf:  make(map[string]End, len(t.Ends)),
	}
	for _, row := range t.Ends {
		m.ends = append(m.ends, row.End)
		m.endOf[endState(row.End.Name)] = row.End
	}
	var rows fsm.Events
	for i := range t.States {
		s := &t.States[i]
		for _, arrow := range slices.Concat(s.Answers, t.Anywhere) {
			rows = append(rows, fsm.EventDesc{Name: arrow.Answer.Text, Src: []string{s.Name.Text}, Dst: arrow.Target.state()})
		}
		made := row(s)
		made.arrows = v.inOrder(s, t.Anywhere)
		m.states[s.Name.Text] = made
	}
	for _, arrow := range t.Anywhere {
		switch arrow.Answer.Text {
		case answerCancelled:
			m.cancelled = m.endOf[arrow.Target.state()]
		case answerError:
			m.failed = m.endOf[arrow.Target.state()]
		}
	}
	m.pool.New = func() any { return fsm.NewFSM(m.start, rows, nil) }
	return m
}

// row makes a state ready to run.
func row(s *State) state {
	made := state{at: s.Name.At, step: Step{State: s.Name.Text, Run: s.Run.Text}, answers: make(map[string]bool, len(s.Answers))}
	for _, arrow := range s.Answers {
		made.answers[arrow.Answer.Text] = true
	}
	if len(s.With) > 0 {
		made.step.With = make(Arguments, len(s.With))
	}
	for _, a := range s.With {
		for _, value := range a.Values {
			made.step.With[a.Name.Text] = append(made.step.With[a.Name.Text], value.Text)
		}
	}
	return made
}

// inOrder gives the arrows of a state in the order in which its step declares its answers, and then what may
// happen to any step.
func (v Vocabulary) inOrder(s *State, anywhere []Arrow) []Arrow {
	declared := v.Steps[s.Run.Text].answers()
	arrows := slices.Clone(s.Answers)
	slices.SortStableFunc(arrows, func(a, b Arrow) int {
		return cmp.Compare(slices.Index(declared, a.Answer.Text), slices.Index(declared, b.Answer.Text))
	})
	return slices.Concat(arrows, anywhere)
}

// endState is the library's state that stands for an end. No state of a table is named so: a name has no
// space.
func endState(name string) string { return "end " + name }

// state is the library's state that stands for the target.
func (t Target) state() string {
	if t.End {
		return endState(t.Name)
	}
	return t.Name
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
