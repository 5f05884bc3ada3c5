// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxPaths is how many paths of one table are listed. A table with more is proven like any other, since
// the prover does not list them; what it does on each path can no longer be read by a person.
const maxPaths = 1000

// maxLegs is how many legs the listed paths may have together: it bounds the work where paths are long.
const maxLegs = 40_000

// Path is one walk from the start of a table to an end.
type Path struct {
	Legs []Leg
	// Meant is the end whose commit was tried and failed, so that the walk came to End instead; nil on every
	// other path.
	Meant *End
	// Commit is what the failed commit met: cancelled or error; "" on every other path.
	Commit string
	End    End
}

// Leg is one state on a path.
type Leg struct {
	Step   Step
	Line   int    // of the state in the table
	Answer string // what the step answered, or cancelled or error when it broke off
	// Gone is the state that the answer leads to and the table does not have. The path goes on with what seems to
	// have stood behind it; only a table that cannot run has such a path.
	Gone string
}

// off says that the step gave no answer: whether it did its work is not known.
func (l Leg) off() bool { return l.Answer == answerCancelled || l.Answer == answerError }

// String is the path in one line: each step with its answer, and what the commit met when it failed.
func (p Path) String() string {
	words := make([]string, 0, len(p.Legs)+1)
	for _, l := range p.Legs {
		words = append(words, l.Step.Run+"."+l.Answer)
	}
	if p.Commit != "" {
		words = append(words, "commit."+p.Commit)
	}
	return strings.Join(words, " ")
}

// BreaksOff says that a step or the commit broke off on this path.
func (p Path) BreaksOff() bool { return p.Commit != "" || p.Legs[len(p.Legs)-1].off() }

// key is the same for two walks that are the same path.
func (p Path) key() string {
	var b strings.Builder
	for _, l := range p.Legs {
		b.WriteString(l.Step.State + "." + l.Answer + " ")
	}
	b.WriteString(p.Commit)
	return b.String()
}

// Effects are the steps that completed, in order. They last when the end commits.
func (p Path) Effects() []Step {
	var done []Step
	for _, l := range p.Legs {
		if !l.off() {
			done = append(done, l.Step)
		}
	}
	return done
}

// errPlayed is what a step or a commit breaks with when a path says so.
var errPlayed = errors.New("broken on purpose")

// play runs the machine with the answers that say gives, and with a commit that fails when commit is
// cancelled or error. The machine itself runs, so a path says what happens and not what should.
func (m *Machine) play(commit string, say func(n int, s Step) string) Path {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := Path{Commit: commit}
	result := m.Run(ctx, func(_ context.Context, s Step) (string, error) {
		answer := say(len(p.Legs), s)
		p.Legs = append(p.Legs, Leg{Step: s, Line: m.states[s.State].at.Line, Answer: answer})
		switch answer {
		case answerCancelled:
			cancel()
			return "", errPlayed
		case answerError:
			return "", errPlayed
		default:
			return answer, nil
		}
	})
	if commit != "" {
		meant := result.End
		p.Meant = &meant
		result = m.Broken(result, errPlayed, commit == answerCancelled)
	}
	p.End = result.End
	return p
}

// Paths lists every path of the table: each answer of each step, each step breaking off, each commit
// failing; in the order of the table. Of a table with more than a thousand, or with very long ones, it
// lists the first of them and says that these are not all.
func (m *Machine) Paths() (paths []Path, all bool) {
	all = true
	legs := 0
	var walk func(from string, taken []string)
	add := func(taken []string, commit string) Path {
		p := m.play(commit, func(n int, _ Step) string { return taken[n] })
		paths = append(paths, p)
		legs += len(p.Legs)
		return p
	}
	walk = func(from string, taken []string) {
		for _, arrow := range m.states[from].arrows {
			if len(paths) >= maxPaths || legs >= maxLegs {
				all = false
				return
			}
			next := append(slices.Clone(taken), arrow.Answer.Text)
			if !arrow.Target.End {
				walk(arrow.Target.Name, next)
				continue
			}
			if p := add(next, ""); p.End.Transaction == Commit {
				add(next, answerCancelled)
				add(next, answerError)
			}
		}
	}
	walk(m.start, nil)
	return paths, all
}

// explain tells a path to a person who never saw the code: one line for each state with what its step does
// and what it answers, and the end. The leg number mark, where a promise breaks, is marked; -1 marks none.
func explain(t *Table, v Vocabulary, p Path, mark int) string {
	const line = "\n        line "
	var b strings.Builder
	for i, l := range p.Legs {
		kind := v.Steps[l.Step.Run]
		fmt.Fprintf(&b, line+"%d: state %s runs %s", l.Line, l.Step.State, l.Step.Run)
		if len(l.Step.With) > 0 {
			b.WriteString(" with" + printArguments(l.Step.With))
		}
		if kind.Does != "" {
			b.WriteString(", which " + kind.Does)
		}
		b.WriteString("; it ")
		switch l.Answer {
		case answerCancelled:
			b.WriteString("is cancelled")
		case answerError:
			b.WriteString("breaks with an error")
		default:
			b.WriteString("answers " + l.Answer)
			if means := kind.means(l.Answer); means != "" {
				b.WriteString(": " + means)
			}
		}
		if i == mark {
			b.WriteString("  <- here")
		}
		if l.Gone != "" {
			fmt.Fprintf(&b, line+"%d: no state %s: nothing runs in its place", l.Line, l.Gone)
		}
	}
	if p.Meant != nil {
		fmt.Fprintf(&b, line+"%d: end %s, whose commit fails", t.endLine(p.Meant.Name), p.Meant.Name)
	}
	outcome := "rolled back, so nothing of it stays"
	if p.End.Transaction == Commit {
		outcome = "committed, so all of it stays"
	}
	fmt.Fprintf(&b, line+"%d: end %s: the transaction is %s", t.endLine(p.End.Name), p.End.Name, outcome)
	return b.String()
}

// endLine is the line of an end, or 0.
func (t *Table) endLine(name string) int {
	for _, row := range t.Ends {
		if row.End.Name == name {
			return row.At.Line
		}
	}
	return 0
}
