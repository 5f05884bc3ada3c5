// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
	"strings"
)

// monitor watches one walk and knows at its end whether the walk broke a promise. What it remembers on
// the way is one small number, so that all walks that are at the same state with the same memory go on
// alike: looking at each such pair once is the same as walking every path, and stays fast where the
// paths are more than anyone could count.
type monitor struct {
	says string // what a broken path does: "never passes insert_jobs"
	// completed is the memory after a state whose step answered.
	completed func(memory int, s *State, answer string) int
	// brokeOff is the memory after a state whose step was cancelled or broke with an error: whether it
	// did its work is not known, so it must count against the promise either way.
	brokeOff func(memory int, s *State) int
	broken   func(memory int) bool
}

// is reports whether a word of a promise, `step` or `step.answer`, speaks of this step with this answer.
func is(word, step, answer string) bool { return word == step || word == step+"."+answer }

// passes breaks on a walk on which the step did not complete.
func passes(word string) monitor {
	return monitor{
		says: "does not pass " + word,
		completed: func(memory int, s *State, answer string) int {
			if is(word, s.Run.Text, answer) {
				return 1
			}
			return memory
		},
		brokeOff: func(memory int, _ *State) int { return memory },
		broken:   func(memory int) bool { return memory == 0 },
	}
}

// neverPasses breaks on a walk on which the step ran, even when it broke off.
func neverPasses(word string) monitor {
	m := passes(word)
	m.says = "passes " + word
	m.brokeOff = func(memory int, s *State) int {
		// A step that broke off gave no answer, so it is not `step.answer`.
		if word == s.Run.Text {
			return 1
		}
		return memory
	}
	m.broken = func(memory int) bool { return memory == 1 }
	return m
}

// passesState breaks on a walk on which the state did not complete.
func passesState(name string) monitor {
	return monitor{
		says: "does not pass the state " + name,
		completed: func(memory int, s *State, _ string) int {
			if s.Name.Text == name {
				return 1
			}
			return memory
		},
		brokeOff: func(memory int, _ *State) int { return memory },
		broken:   func(memory int) bool { return memory == 0 },
	}
}

// neverPassesState breaks on a walk that comes to the state.
func neverPassesState(name string) monitor {
	m := passesState(name)
	m.says = "passes the state " + name
	m.brokeOff = func(memory int, s *State) int { return m.completed(memory, s, "") }
	m.broken = func(memory int) bool { return memory == 1 }
	return m
}

// inOrder breaks on a walk that does not complete exactly these steps, each as often as it is listed, in
// this order. Its memory is how many are done, and one more than all of them once the order is broken.
func inOrder(words []string) monitor {
	wrong := len(words) + 1
	listed := func(step string) bool {
		return slices.ContainsFunc(words, func(w string) bool { name, _, _ := strings.Cut(w, "."); return name == step })
	}
	return monitor{
		says: "does not pass exactly these steps in this order",
		completed: func(memory int, s *State, answer string) int {
			switch {
			case memory == wrong || !listed(s.Run.Text):
				return memory
			case memory < len(words) && is(words[memory], s.Run.Text, answer):
				return memory + 1
			default:
				return wrong
			}
		},
		brokeOff: func(memory int, s *State) int {
			if listed(s.Run.Text) {
				return wrong
			}
			return memory
		},
		broken: func(memory int) bool { return memory != len(words) },
	}
}

// leg is one step of a counterexample.
type leg struct {
	state  int    // index in Table.States
	answer string // what led on, or cancelled or error
	off    bool   // the step broke off
	end    int    // index in Table.Ends of where it led, or -1
	lost   int    // the end whose commit failed, so that the walk came to end instead; or -1
}

// visited is what the search remembers: a state and the monitor's memory on entering it.
type visited struct{ state, memory int }

// counterexample is the shortest walk to an end that the promise speaks about and that breaks it.
// A walk also counts when its commit fails and it therefore comes to an end of anywhere.
func (c *checker) counterexample(p Promise, m monitor) ([]leg, bool) {
	type origin struct {
		from visited
		leg  leg
	}
	first := visited{state: c.start}
	from := map[visited]origin{first: {}}
	back := func(at visited, last leg) []leg {
		path := []leg{last}
		for ; at != first; at = from[at].from {
			path = append(path, from[at].leg)
		}
		slices.Reverse(path)
		return path
	}
	for queue := []visited{first}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		s := &c.t.States[at.state]
		for _, h := range c.next[at.state] {
			answer := h.arrow.Answer.Text
			memory := m.completed(at.memory, s, answer)
			if !h.end {
				next := visited{state: h.to, memory: memory}
				if _, seen := from[next]; !seen {
					from[next] = origin{from: at, leg: leg{state: at.state, answer: answer, end: -1, lost: -1}}
					queue = append(queue, next)
				}
				continue
			}
			if !m.broken(memory) {
				continue
			}
			if p.selects(c.t.Ends[h.to].End) {
				return back(at, leg{state: at.state, answer: answer, end: h.to, lost: -1}), true
			}
			if c.t.Ends[h.to].End.Transaction == Commit {
				for _, arrow := range c.t.Anywhere {
					if end := c.ends[arrow.Target.Name]; p.selects(c.t.Ends[end].End) {
						return back(at, leg{state: at.state, answer: answer, end: end, lost: h.to}), true
					}
				}
			}
		}
		if !m.broken(m.brokeOff(at.memory, s)) {
			continue
		}
		for _, arrow := range c.t.Anywhere {
			if end := c.ends[arrow.Target.Name]; p.selects(c.t.Ends[end].End) {
				return back(at, leg{state: at.state, answer: arrow.Answer.Text, off: true, end: end, lost: -1}), true
			}
		}
	}
	return nil, false
}

// tell prints a counterexample: one line for each state, and the end.
func (c *checker) tell(path []leg) string {
	var b strings.Builder
	b.WriteString("; the path is")
	for _, l := range path {
		s := &c.t.States[l.state]
		fmt.Fprintf(&b, "\n        line %d: state %s runs %s, which ", s.Name.At.Line, s.Name.Text, s.Run.Text)
		switch {
		case !l.off:
			b.WriteString("answers " + l.answer)
		case l.answer == answerCancelled:
			b.WriteString("is cancelled")
		default:
			b.WriteString("breaks with an error")
		}
		if l.end < 0 {
			continue
		}
		if l.lost >= 0 {
			fmt.Fprintf(&b, "\n        line %d: end %s, whose commit fails", c.t.Ends[l.lost].At.Line, c.t.Ends[l.lost].End.Name)
		}
		end := c.t.Ends[l.end]
		fmt.Fprintf(&b, "\n        line %d: end %s, transaction %s", end.At.Line, end.End.Name, end.End.Transaction)
	}
	return b.String()
}
