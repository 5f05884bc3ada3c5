// SPDX-License-Identifier: Apache-2.0

// Package machine owns tables: YAML that says which step runs first, where each answer leads and how a
// run ends. It reads a table, proves it against a vocabulary, and runs it. What a run does is data, and
// the proof is about the same data that runs.
//
//	text --Parse--> Table --Compile(Vocabulary)--> Machine --Run(StepFunc)--> Result
//	        |                |
//	        +- problems      +- problems: a state nobody reaches, an answer nobody handles, a cycle,
//	           of grammar       a promise that a path breaks
//
// A run is a walk through states. Each state runs one step and the step answers with one of the words it
// declares; the table leads on from there to another state or to an end. Whatever the step, two more
// things may happen to it: its context is cancelled, or it breaks with an error or a panic. The table
// says under `anywhere` where these lead, so no end is reached by Go alone.
//
// It refuses to know what a step does: it does no IO, holds no transaction and knows no consumer. It is
// the only place that knows looplab/fsm, and it works around what that library leaves open: a cancelled
// context inside a transition blocks an instance for good, so transitions run under a context that
// cannot be cancelled; a callback that fires an event hangs, so there are no callbacks and steps run
// outside; a transition to the same state is an error there, so a table with one is refused; a
// duplicate row silently wins and an unknown first state is accepted, so both are problems here.
package machine

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/looplab/fsm"

	"example.com/bothy/engine/problem"
)

// Step is one step of a run as the table binds it.
type Step struct {
	State string
	Run   string    // the step's name in the vocabulary
	With  Arguments // shared by all runs: read it, never write it
}

// Arguments is what a table gives to a step, by name.
type Arguments map[string][]string

// Text is the argument as one word, the first of a list, or "" when the table does not give it.
func (a Arguments) Text(name string) string {
	if v := a[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// StepFunc runs one step and says what it answered: a word that the step declares in the vocabulary.
// With an error the answer does not count.
type StepFunc func(ctx context.Context, s Step) (answer string, err error)

// Result is how a run went.
type Result struct {
	End  End
	Err  error    // why the run broke off; nil when an answer led to the end
	Path []string // the states it came through, from the start; the last one is where it ended
}

// PanicError is a panic of a step, caught so that one bad step ends one run and not the process. Find it
// with errors.As to print the stack.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap is the value of the panic when it was an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Machine is a proven table, ready to run. It never changes, so that any number of goroutines may run it
// at the same time.
type Machine struct {
	table      *Table
	vocabulary Vocabulary

	name      string
	start     string
	states    map[string]state
	ends      []End          // in the order of the table
	endOf     map[string]End // by the state of the library that stands for it: end NAME
	cancelled End            // of anywhere
	failed    End            // of anywhere
	pool      sync.Pool      // of *fsm.FSM: making one costs far more than a whole run
}

// state is one row: the step and the answers it declares.
type state struct {
	step    Step
	answers map[string]bool
	arrows  []Arrow // where they lead, then cancelled and error
	at      problem.Position
}

// Name is the machine's name.
func (m *Machine) Name() string { return m.name }

// Table is what was proven, with the places of its words. Read it, never write it.
func (m *Machine) Table() *Table { return m.table }

// Vocabulary is what the table was proven against. Read it, never write it.
func (m *Machine) Vocabulary() Vocabulary { return m.vocabulary }

// Ends are all ends of the table, in its order: the closed set of what Run and Broken give.
func (m *Machine) Ends() []End { return append([]End(nil), m.ends...) }

// Run walks the table from its start to an end and calls step for each state on the way, one after the
// other on the caller's goroutine.
//
// Before each step it looks at ctx; a cancelled one leads where the table says under anywhere. A step
// that returns an error leads to cancelled when ctx is cancelled by then, else to error; a panic, and an
// answer that the step does not declare, always lead to error. An answer without an error counts even
// when ctx was cancelled meanwhile: the step did its work.
func (m *Machine) Run(ctx context.Context, step StepFunc) Result {
	instance, _ := m.pool.Get().(*fsm.FSM)
	instance.SetState(m.start)
	// A cancelled context would leave the instance inside its transition for good.
	steady := context.WithoutCancel(ctx)
	path := make([]string, 0, len(m.states))
	var broken error
	for {
		current := instance.Current()
		if end, ok := m.endOf[current]; ok {
			m.pool.Put(instance)
			return Result{End: end, Err: broken, Path: path}
		}
		s := m.states[current]
		path = append(path, current)
		var answer string
		answer, broken = m.answer(ctx, s, step)
		if err := instance.Event(steady, answer); err != nil {
			// Compile has given every state a row for every answer, so this is a bug of ours; the
			// instance is not put back.
			return Result{End: m.failed, Err: fmt.Errorf("answer %q in state %s: %w", answer, current, err), Path: path}
		}
	}
}

// answer runs one step and gives the answer that the table handles, together with why it broke off when
// it did.
func (m *Machine) answer(ctx context.Context, s state, step StepFunc) (string, error) {
	if err := ctx.Err(); err != nil {
		return answerCancelled, fmt.Errorf("before step %s: %w", s.step.Run, err)
	}
	answer, panicked, err := call(ctx, s.step, step)
	switch {
	case err != nil && ctx.Err() != nil && !panicked:
		return answerCancelled, fmt.Errorf("step %s: %w", s.step.Run, err)
	case err != nil:
		return answerError, fmt.Errorf("step %s: %w", s.step.Run, err)
	case !s.answers[answer]:
		return answerError, fmt.Errorf("step %s answered %q, which it does not declare", s.step.Run, answer)
	default:
		return answer, nil
	}
}

// call runs the step and turns a panic into an error.
func call(ctx context.Context, s Step, step StepFunc) (answer string, panicked bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			answer, panicked, err = "", true, &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	answer, err = step(ctx, s)
	return answer, false, err
}

// Broken is the result of a run whose transaction could not be brought to the end that r names: the
// commit failed, with err, and nothing of the run is stored as far as anyone knows. It leads where the
// table says under anywhere: to cancelled when the context was cancelled by then, else to error.
func (m *Machine) Broken(r Result, err error, cancelled bool) Result {
	r.Err = err
	r.End = m.failed
	if cancelled {
		r.End = m.cancelled
	}
	return r
}
