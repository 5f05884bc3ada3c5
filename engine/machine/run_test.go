// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/looplab/fsm"

	"example.com/bothy/definitions"
)

// script answers the steps of a run in turn and counts them.
func script(answers ...string) (StepFunc, *int) {
	n := new(int)
	return func(context.Context, Step) (string, error) {
		*n++
		return answers[*n-1], nil
	}, n
}

// goodRound is what the steps of a round with events answer.
var goodRound = []string{"held", "some", "contiguous", "decided", "inserted", "advanced"}

// TestTruthTable holds every path of round.yaml: what the steps answer, and what comes of it.
func TestTruthTable(t *testing.T) {
	golden(t, "testdata/round.truth.txt", truthTable(roundMachine(t), roundVocabulary()))
}

// truthTable runs a machine along every path: each answer of each step, and each step breaking off.
func truthTable(m *Machine, v Vocabulary) string {
	var b strings.Builder
	b.WriteString("# what the steps answer -> the end, what becomes of the transaction, what comes next\n")
	broke := errors.New("broke")
	var walk func(taken []string)
	walk = func(taken []string) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var words []string
		open := "" // the step after the answers that were given
		result := m.Run(ctx, func(_ context.Context, s Step) (string, error) {
			if len(words) == len(taken) {
				open = s.Run
				return "", broke
			}
			answer := taken[len(words)]
			words = append(words, s.Run+"."+answer)
			switch answer {
			case answerError:
				return "", broke
			case answerCancelled:
				cancel()
				return "", broke
			}
			return answer, nil
		})
		if open == "" {
			e := result.End
			fmt.Fprintf(&b, "%s -> %s: %s, %s, %s", strings.Join(words, " "), e.Name, e.Transaction, e.Next, e.Edge)
			if e.Failure != "" {
				fmt.Fprintf(&b, ", failure %s", e.Failure)
			}
			if e.Log != nil {
				fmt.Fprintf(&b, ", log %s %q", e.Log.Level, e.Log.Message)
			}
			b.WriteString("\n")
			return
		}
		for _, answer := range append(append([]string(nil), v.Steps[open].answers()...), answerCancelled, answerError) {
			walk(append(append([]string(nil), taken...), answer))
		}
	}
	walk(nil)
	return b.String()
}

func TestRunGivesSteps(t *testing.T) {
	var got []Step
	m, problems := Load("door.yaml", doorTable(t), doorVocabulary())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	answers := map[string]string{"knock": "open", "paint": "done", "enter": "done"}
	result := m.Run(t.Context(), func(_ context.Context, s Step) (string, error) {
		got = append(got, s)
		return answers[s.Run], nil
	})
	want := []Step{
		{State: "at_door", Run: "knock"},
		{State: "painting", Run: "paint", With: Arguments{"colour": {"green"}, "sides": {"front", "back"}}},
		{State: "going_in", Run: "enter"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("other steps ran (-want +got):\n%s", diff)
	}
	wantResult := Result{
		End:  End{Name: "inside", Transaction: Commit, Next: AgainWhenFull, Edge: Settle, Log: &Log{Level: LevelInfo, Message: "somebody came in"}},
		Path: []string{"at_door", "painting", "going_in"},
	}
	if diff := cmp.Diff(wantResult, result); diff != "" {
		t.Errorf("another result (-want +got):\n%s", diff)
	}
	if with := got[1].With; with.Text("colour") != "green" || with.Text("sides") != "front" || with.Text("size") != "" {
		t.Errorf("Text of %v: got %q, %q, %q", with, with.Text("colour"), with.Text("sides"), with.Text("size"))
	}
}

func TestRunBreaksOff(t *testing.T) {
	broke := errors.New("connection lost")
	m := roundMachine(t)
	for _, tt := range []struct {
		name string
		step func(cancel func()) (string, error)
		end  string
		says string // of the error
		is   error
	}{
		{"error", func(func()) (string, error) { return "held", broke }, "failed", "step lock_cursor: connection lost", broke},
		{"error after cancel", func(cancel func()) (string, error) { cancel(); return "", broke }, "stopped", "step lock_cursor: connection lost", broke},
		{"context error without cancel", func(func()) (string, error) { return "", context.Canceled }, "failed", "step lock_cursor: context canceled", context.Canceled},
		{"undeclared answer", func(func()) (string, error) { return "perhaps", nil }, "failed", `step lock_cursor answered "perhaps", which it does not declare`, nil},
		{"undeclared answer after cancel", func(cancel func()) (string, error) { cancel(); return "perhaps", nil }, "failed", `step lock_cursor answered "perhaps", which it does not declare`, nil},
		{"no answer", func(func()) (string, error) { return "", nil }, "failed", `step lock_cursor answered "", which it does not declare`, nil},
		{"answer of another step", func(func()) (string, error) { return "some", nil }, "failed", `step lock_cursor answered "some", which it does not declare`, nil},
		{"answer cancelled", func(func()) (string, error) { return "cancelled", nil }, "failed", `step lock_cursor answered "cancelled", which it does not declare`, nil},
		{"answer error", func(func()) (string, error) { return "error", nil }, "failed", `step lock_cursor answered "error", which it does not declare`, nil},
		{"panic", func(func()) (string, error) { panic("no such row") }, "failed", "step lock_cursor: panic: no such row", nil},
		{"panic with an error", func(func()) (string, error) { panic(broke) }, "failed", "step lock_cursor: panic: connection lost", broke},
		{"panic after cancel", func(cancel func()) (string, error) { cancel(); panic(broke) }, "failed", "step lock_cursor: panic: connection lost", broke},
		{"cancel and answer, then the next step", func(cancel func()) (string, error) { cancel(); return "held", nil }, "stopped", "before step read_events: context canceled", context.Canceled},
		{"cancel and last answer", func(cancel func()) (string, error) { cancel(); return "taken", nil }, "locked", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := m.Run(ctx, func(context.Context, Step) (string, error) { return tt.step(cancel) })
			says := ""
			if got.Err != nil {
				says = got.Err.Error()
			}
			if got.End.Name != tt.end || says != tt.says || (tt.is != nil && !errors.Is(got.Err, tt.is)) {
				t.Errorf("got end %s, error %q, want end %s, error %q (%v)", got.End.Name, says, tt.end, tt.says, tt.is)
			}
		})
	}
}

func TestRunKeepsTheStackOfAPanic(t *testing.T) {
	got := roundMachine(t).Run(t.Context(), func(context.Context, Step) (string, error) { return explode(), nil })
	var p *PanicError
	if !errors.As(got.Err, &p) {
		t.Fatalf("got error %v, want a PanicError", got.Err)
	}
	if !strings.Contains(string(p.Stack), "explode") || p.Value != "boom" {
		t.Errorf("got value %v and a stack that does not name the function that panicked:\n%s", p.Value, p.Stack)
	}
	if inner := p.Unwrap(); inner != nil {
		t.Errorf("a panic without an error unwraps to %v, want nil", inner)
	}
}

func explode() string { panic("boom") }

// TestRunWithoutAStep is a bug of the caller's, and ends the run like any panic of a step.
func TestRunWithoutAStep(t *testing.T) {
	got := roundMachine(t).Run(t.Context(), nil)
	if got.End.Name != "failed" || got.Err == nil {
		t.Errorf("got end %s and error %v, want failed and an error", got.End.Name, got.Err)
	}
}

func TestRunStopsBeforeTheFirstStep(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	step, ran := script(goodRound...)
	got := roundMachine(t).Run(ctx, step)
	if got.End.Name != "stopped" || *ran != 0 || !errors.Is(got.Err, context.Canceled) {
		t.Errorf("got end %s after %d steps with %v, want stopped after none with %v", got.End.Name, *ran, got.Err, context.Canceled)
	}
	if diff := cmp.Diff([]string{"lock"}, got.Path); diff != "" {
		t.Errorf("another path (-want +got):\n%s", diff)
	}
}

func TestBroken(t *testing.T) {
	m := roundMachine(t)
	lost := errors.New("commit: connection lost")
	for cancelled, want := range map[bool]string{false: "failed", true: "stopped"} {
		step, _ := script(goodRound...)
		before := m.Run(t.Context(), step)
		got := m.Broken(before, lost, cancelled)
		if before.End.Name != "processed" || got.End.Name != want || got.End.Transaction != Rollback || !errors.Is(got.Err, lost) || len(got.Path) != 6 {
			t.Errorf("cancelled %v: got %+v after %s, want end %s with the error and the path", cancelled, got, before.End.Name, want)
		}
	}
}

// TestRunAfterCancelledRuns is case 31: the library blocks an instance for good when a context is
// cancelled inside a transition, and instances are used again.
func TestRunAfterCancelledRuns(t *testing.T) {
	m := roundMachine(t)
	for range 10_000 {
		ctx, cancel := context.WithCancel(t.Context())
		got := m.Run(ctx, func(context.Context, Step) (string, error) {
			cancel()
			return "held", nil
		})
		if got.End.Name != "stopped" {
			t.Fatalf("cancelled: got end %s with %v, want stopped", got.End.Name, got.Err)
		}
		step, _ := script(goodRound...)
		if got := m.Run(t.Context(), step); got.End.Name != "processed" || got.Err != nil {
			t.Fatalf("after a cancelled run: got end %s with %v, want processed", got.End.Name, got.Err)
		}
	}
}

// TestLibraryTraps holds what this package works around, so that an update of the library that changes
// it is noticed here and not in production.
func TestLibraryTraps(t *testing.T) {
	rows := fsm.Events{
		{Name: "go", Src: []string{"a"}, Dst: "b"},
		{Name: "stay", Src: []string{"a"}, Dst: "a"},
		{Name: "twice", Src: []string{"a"}, Dst: "b"},
		{Name: "twice", Src: []string{"a"}, Dst: "c"},
	}
	t.Run("a cancelled context blocks the instance", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f := fsm.NewFSM("a", rows, nil)
		first := f.Event(ctx, "go")
		second := f.Event(t.Context(), "go")
		var blocked fsm.InTransitionError
		if first == nil || !errors.As(second, &blocked) {
			t.Errorf("got %v, then %v, want an error and InTransitionError", first, second)
		}
	})
	t.Run("a transition to the same state is an error", func(t *testing.T) {
		err := fsm.NewFSM("a", rows, nil).Event(t.Context(), "stay")
		if _, ok := errors.AsType[fsm.NoTransitionError](err); !ok {
			t.Errorf("got %v, want NoTransitionError", err)
		}
	})
	t.Run("the last of two rows wins", func(t *testing.T) {
		f := fsm.NewFSM("a", rows, nil)
		if err := f.Event(t.Context(), "twice"); err != nil || f.Current() != "c" {
			t.Errorf("got %v and state %s, want c", err, f.Current())
		}
	})
	t.Run("any first state is accepted", func(t *testing.T) {
		if f := fsm.NewFSM("nowhere", rows, nil); f.Current() != "nowhere" {
			t.Errorf("got state %s, want nowhere", f.Current())
		}
	})
}

// TestRunFromManyGoroutines runs one machine from many goroutines at once, each with a script and a fate
// of its own.
func TestRunFromManyGoroutines(t *testing.T) {
	m := roundMachine(t)
	scripts := map[string][]string{
		"processed": goodRound,
		"lost":      {"held", "some", "expired", "decided", "inserted", "advanced"},
		"locked":    {"taken"},
		"idle":      {"held", "none"},
		"gap":       {"held", "some", "hole"},
		"failed":    {"held", "some", "perhaps"},
	}
	var group sync.WaitGroup
	for want, answers := range scripts {
		for range 8 {
			group.Go(func() {
				for range 500 {
					step, _ := script(answers...)
					if got := m.Run(t.Context(), step); got.End.Name != want || len(got.Path) != len(answers) {
						t.Errorf("answers %v: got end %s by %v, want %s", answers, got.End.Name, got.Path, want)
						return
					}
				}
			})
		}
	}
	group.Wait()
}

// mostAllocations is what one run without work in its steps may allocate. It does not depend on the
// machine that runs the test.
const mostAllocations = 60

func TestRunAllocations(t *testing.T) {
	m := roundMachine(t)
	step := roundStep()
	if got := testing.AllocsPerRun(1000, func() { m.Run(t.Context(), step) }); got > mostAllocations {
		t.Errorf("a run allocates %v times, want at most %d", got, mostAllocations)
	}
}

func BenchmarkRound(b *testing.B) {
	m := roundMachine(b)
	step := roundStep()
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if got := m.Run(ctx, step); got.End.Transaction != Commit {
			b.Fatalf("got end %s with %v", got.End.Name, got.Err)
		}
	}
}

// roundStep answers each step as a round with events does, without keeping anything.
func roundStep() StepFunc {
	answers := map[string]string{
		"lock_cursor": "held", "read_events": "some", "plan_round": "contiguous",
		"decide_recipients": "decided", "insert_jobs": "inserted", "advance_cursor": "advanced",
	}
	return func(_ context.Context, s Step) (string, error) { return answers[s.Run], nil }
}

// TestLibraryErrorEndsTheRun builds a machine past Compile, as only a bug of this package could, and
// wants a failed run and not a hang or a panic.
func TestLibraryErrorEndsTheRun(t *testing.T) {
	file, text := definitions.Round()
	table, problems := Parse(file, text)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for i := range table.States {
		if table.States[i].Name.Text == "plan" {
			table.States[i].Answers[0].Target = Target{Name: "plan"}
		}
	}
	step, _ := script(goodRound...)
	got := build(table, roundVocabulary()).Run(t.Context(), step)
	if got.End.Name != "failed" || got.Err == nil || !strings.Contains(got.Err.Error(), `answer "contiguous" in state plan`) {
		t.Errorf("got end %s with %v, want failed with the answer and the state", got.End.Name, got.Err)
	}
}
