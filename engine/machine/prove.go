// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"slices"
)

// monitor watches one walk and knows at its end whether the walk broke a promise. What it remembers on
// the way is one small number, so that all walks that are at the same state with the same memory go on
// alike: looking at each such pair once is the same as walking every path, and stays fast where the
// paths are more than anyone could count.
type monitor struct {
	// fault reads off a broken path what is wrong with it, and where.
	fault func(c *checker, path []leg) fault
	// completed is the memory after a state whose step answered.
	completed func(memory int, s *State, answer string) int
	// brokeOff is the memory after a state whose step was cancelled or broke with an error: whether it
	// did its work is not known, so it must count against the promise either way.
	brokeOff func(memory int, s *State) int
	broken   func(memory int) bool
}

// fault is what is wrong with a path.
type fault struct {
	says    string // what the path does: "never passes insert_jobs"
	without string // what a path costs that lacks the step it should have passed; or ""
	leg     int    // where on the path it shows
}

// lacking is the fault of a path that should have passed something, seen where it ends.
func lacking(word string) func(*checker, []leg) fault {
	return func(c *checker, path []leg) fault {
		last := path[len(path)-1]
		w, _ := readPassing(word)
		if last.off && w.runBy(&c.t.States[last.state]) {
			return fault{fmt.Sprintf("breaks off in %s, which may have done its work or not", w.step), "", len(path) - 1}
		}
		return fault{"never passes " + word, c.without(w, path), len(path) - 1}
	}
}

// without is what it costs that the path never runs the step; "" when it does, and only answers otherwise.
func (c *checker) without(w passing, path []leg) string {
	if slices.ContainsFunc(path, func(l leg) bool { return w.runBy(&c.t.States[l.state]) }) {
		return ""
	}
	return c.v.Steps[w.step].Without
}

// doing is the fault of a path that does what it must not, seen where it does.
func doing(says string, does func(s *State, l leg) bool) func(*checker, []leg) fault {
	return func(c *checker, path []leg) fault {
		at := slices.IndexFunc(path, func(l leg) bool { return does(&c.t.States[l.state], l) })
		return fault{says, "", max(at, 0)}
	}
}

// passes breaks on a walk on which the step did not complete.
func passes(word string) monitor {
	w, _ := readPassing(word)
	return monitor{
		fault: lacking(word),
		completed: func(memory int, s *State, answer string) int {
			if w.is(s, answer) {
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
	w, _ := readPassing(word)
	m.fault = doing("passes "+word, func(s *State, l leg) bool { return (w.answer == "" && w.runBy(s)) || (!l.off && w.is(s, l.answer)) })
	m.brokeOff = func(memory int, s *State) int {
		// A step that broke off gave no answer, so it is not `step.answer`.
		if w.answer == "" && w.runBy(s) {
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
		fault: func(_ *checker, path []leg) fault { return fault{"never passes the state " + name, "", len(path) - 1} },
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
	m.fault = doing("passes the state "+name, func(s *State, _ leg) bool { return s.Name.Text == name })
	m.brokeOff = func(memory int, s *State) int { return m.completed(memory, s, "") }
	m.broken = func(memory int) bool { return memory == 1 }
	return m
}

// inOrder breaks on a walk that does not complete exactly these steps, each as often as it is listed, in
// this order. Its memory is how many are done, and one more than all of them once the order is broken.
func inOrder(words []string) monitor {
	wrong := len(words) + 1
	list := readPassings(words)
	listed := func(s *State) bool {
		return slices.ContainsFunc(list, func(w passing) bool { return w.runBy(s) })
	}
	return monitor{
		fault: func(c *checker, path []leg) fault { return outOfOrder(c, path, words, list, listed) },
		completed: func(memory int, s *State, answer string) int {
			switch {
			case memory == wrong || !listed(s):
				return memory
			case memory < len(words) && list[memory].is(s, answer):
				return memory + 1
			default:
				return wrong
			}
		},
		brokeOff: func(memory int, s *State) int {
			if listed(s) {
				return wrong
			}
			return memory
		},
		broken: func(memory int) bool { return memory != len(words) },
	}
}

// outOfOrder finds the first place where a path does not do the next of the listed steps: list is words, read.
func outOfOrder(c *checker, path []leg, words []string, list []passing, listed func(*State) bool) fault {
	done := 0
	// due is what a path lacks whose next listed step is another one, or none.
	due := func(at int, instead string) fault {
		next := list[done]
		if slices.ContainsFunc(path[at:], func(l leg) bool { return next.runBy(&c.t.States[l.state]) }) {
			return fault{fmt.Sprintf("%s where %s is due", instead, words[done]), "", at}
		}
		return fault{"never passes " + words[done], c.without(next, path), at}
	}
	for i, l := range path {
		s := &c.t.States[l.state]
		switch {
		case !listed(s):
		case l.off:
			return fault{fmt.Sprintf("breaks off in %s, which may have done its work or not", s.Run.Text), "", i}
		case done < len(list) && list[done].is(s, l.answer):
			done++
		case done < len(list) && list[done].runBy(s):
			return fault{fmt.Sprintf("passes %s.%s where %s is due", s.Run.Text, l.answer, words[done]), "", i}
		case slices.ContainsFunc(list[:done], func(w passing) bool { return w.runBy(s) }):
			return fault{fmt.Sprintf("passes %s once more", s.Run.Text), "", i}
		default:
			return due(i, "passes "+s.Run.Text)
		}
	}
	return due(len(path)-1, "ends")
}

// leg is one step of a counterexample.
type leg struct {
	state  int    // index in Table.States
	answer string // what led on, or cancelled or error
	off    bool   // the step broke off
	end    int    // index in Table.Ends of where it led, or -1
	lost   int    // the end whose commit failed, so that the walk came to end instead; or -1
	gone   string // the state that the answer names and the table does not have; the walk goes on behind it
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
					from[next] = origin{from: at, leg: leg{state: at.state, answer: answer, end: -1, lost: -1, gone: h.gone}}
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

// path is a counterexample as a walk of the table.
func (c *checker) path(legs []leg) Path {
	var p Path
	for _, l := range legs {
		s := &c.t.States[l.state]
		p.Legs = append(p.Legs, Leg{Step: row(s).step, Line: s.Name.At.Line, Answer: l.answer, Gone: l.gone})
		if l.end >= 0 {
			p.End = c.t.Ends[l.end].End
		}
		if l.lost >= 0 {
			p.Meant = &c.t.Ends[l.lost].End
		}
	}
	return p
}
