// SPDX-License-Identifier: Apache-2.0

package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/round"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script gives prepared outcomes, then idle ones, and notes when each round began.
type script struct {
	mu       sync.Mutex
	outcomes []consumer.Outcome
	batches  []int
	most     int // the largest batch that passes; 0 for any
	begun    []time.Duration
	start    time.Time
	during   func(ctx context.Context, n int)
}

func (s *script) Round(ctx context.Context, c round.Consumer) consumer.Outcome {
	s.mu.Lock()
	n := len(s.begun)
	s.batches = append(s.batches, c.Batch)
	s.begun = append(s.begun, time.Since(s.start))
	outcome := idle
	if n < len(s.outcomes) {
		outcome = s.outcomes[n]
	}
	if s.most > 0 && c.Batch > s.most {
		outcome = large
	}
	s.mu.Unlock()
	if s.during != nil {
		s.during(ctx, n)
	}
	return outcome
}

func (s *script) sizes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.batches...)
}

func (s *script) times() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Duration(nil), s.begun...)
}

// signals is a waker that a test drives.
type signals chan struct{}

func (s signals) Run(ctx context.Context, wake func()) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s:
			wake()
		}
	}
}

var (
	idle        = consumer.Outcome{End: machine.End{Name: "idle", Next: machine.Wait, Edge: machine.Settle}}
	locked      = consumer.Outcome{End: machine.End{Name: "locked", Next: machine.Wait, Edge: machine.Unchanged}}
	unfinalized = consumer.Outcome{End: machine.End{Name: "unfinalized", Next: machine.Wait, Edge: machine.Unchanged}}
	full        = consumer.Outcome{End: machine.End{Name: "processed", Next: machine.AgainWhenFull, Edge: machine.Settle}, Full: true}
	short       = consumer.Outcome{End: machine.End{Name: "processed", Next: machine.AgainWhenFull, Edge: machine.Settle}}
	failed      = consumer.Outcome{End: machine.End{Name: "failed", Next: machine.Wait, Failure: consumer.FailureError, Edge: machine.Settle}, Err: errors.New("secret of the event")}
	gap         = consumer.Outcome{End: machine.End{Name: "gap", Next: machine.Wait, Failure: consumer.FailureGap, Edge: machine.Settle}}
)

// tooLargeError is an error of a round over too many events.
type tooLargeError struct{}

func (tooLargeError) Error() string     { return "canceling statement due to statement timeout" }
func (tooLargeError) TooLarge() bool    { return true }
func (tooLargeError) ErrorType() string { return "57014" }

var large = consumer.Outcome{End: failed.End, Err: tooLargeError{}}

const poll = 5 * time.Second

// run starts a runner over the outcomes inside a bubble of synthetic time, lets body act and stops it.
func run(t *testing.T, s *script, logs *bytes.Buffer, body func(r *consumer.Runner, wake signals)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.start = time.Now()
		wake := make(signals)
		handler := slog.NewTextHandler(logs, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		one := consumer.Consumer{Consumer: round.Consumer{Name: "push", Batch: 100}, PollInterval: poll, LockedAfter: 10 * poll}
		r := consumer.NewRunner(s, []consumer.Consumer{one}, wake, slog.New(handler), nil)
		r.Start(t.Context())
		synctest.Wait()
		body(r, wake)
		if err := r.Stop(t.Context(), time.Second); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
}

func TestRunnerDrainsFullBatches(t *testing.T) {
	t.Parallel()
	s := &script{outcomes: []consumer.Outcome{full, full, short}}
	run(t, s, &bytes.Buffer{}, func(*consumer.Runner, signals) {
		if diff := cmp.Diff([]time.Duration{0, 0, 0}, s.times()); diff != "" {
			t.Errorf("rounds began at (-want +got):\n%s", diff)
		}
	})
}

func TestRunnerWaitsAfterShortLockedOrFailedRound(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]consumer.Outcome{"short": short, "idle": idle, "locked": locked, "failed": failed, "gap": gap} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{outcomes: []consumer.Outcome{first}}
			run(t, s, &bytes.Buffer{}, func(_ *consumer.Runner, wake signals) {
				<-time.After(poll - time.Nanosecond)
				if n := len(s.times()); n != 1 {
					t.Errorf("%d rounds before the poll, want 1", n)
				}
				<-time.After(time.Second)
				wake <- struct{}{}
				synctest.Wait()
				if diff := cmp.Diff([]time.Duration{0, poll, poll - time.Nanosecond + time.Second}, s.times()); diff != "" {
					t.Errorf("rounds began at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestRunnerWakeSignalsCoalesce(t *testing.T) {
	t.Parallel()
	s := &script{}
	run(t, s, &bytes.Buffer{}, func(_ *consumer.Runner, wake signals) {
		release := make(chan struct{})
		s.during = func(_ context.Context, n int) {
			if n == 1 {
				<-release
			}
		}
		wake <- struct{}{} // round 1 begins and blocks
		synctest.Wait()
		for range 100 {
			wake <- struct{}{}
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		if n := len(s.times()); n != 3 {
			t.Errorf("%d rounds after 100 signals during one round, want 3: the first, the one that blocked, one for all signals", n)
		}
	})
}

func TestRunnerStopStartsNoNewRound(t *testing.T) {
	t.Parallel()
	s := &script{outcomes: []consumer.Outcome{full, full, full}}
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s.start, s.during = time.Now(), func(context.Context, int) { <-release }
		r := consumer.NewRunner(s, []consumer.Consumer{{PollInterval: poll}}, make(signals), slog.New(slog.DiscardHandler), nil)
		r.Start(t.Context())
		synctest.Wait()
		stopped := make(chan error)
		go func() { stopped <- r.Stop(t.Context(), time.Second) }()
		synctest.Wait()
		close(release)
		if err := <-stopped; err != nil {
			t.Errorf("Stop: %v", err)
		}
		if n := len(s.times()); n != 1 {
			t.Errorf("%d rounds, want only the one that ran when Stop was called", n)
		}
	})
}

// A panic of the runner itself, not of a step, is its failure: the process must end.
func TestRunnerPanicIsItsFailure(t *testing.T) {
	t.Parallel()
	s := &script{during: func(context.Context, int) { panic("broken") }}
	synctest.Test(t, func(t *testing.T) {
		r := consumer.NewRunner(s, []consumer.Consumer{{PollInterval: poll}}, make(signals), slog.New(slog.DiscardHandler), nil)
		r.Start(t.Context())
		if err := <-r.Failed(); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("Failed() gave %v, want the panic", err)
		}
		if err := r.Stop(t.Context(), time.Second); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
}
