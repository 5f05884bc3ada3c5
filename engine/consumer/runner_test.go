// SPDX-License-Identifier: Apache-2.0

package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
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

// A round that outlives the budget is cancelled before its end, and Stop waits until it has rolled back. One that
// does not care is left behind and named: Stop returns when the budget is over.
func TestRunnerStopWithinTheBudget(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rollback time.Duration // what the round needs once it is cancelled; below 0 it does not look
		want     string
		after    time.Duration
	}{
		"rolls back":         {300 * time.Millisecond, "rounds were cancelled, and have rolled back", 24*time.Second + 300*time.Millisecond},
		"does not care":      {-1, `the rounds of the consumers ["push"] do not end`, 25 * time.Second},
		"takes long to care": {2 * time.Second, `the rounds of the consumers ["push"] do not end`, 25 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{}
			var cancelledAt time.Duration
			synctest.Test(t, func(t *testing.T) {
				never := make(chan struct{})
				s.start, s.during = time.Now(), func(ctx context.Context, _ int) {
					if tt.rollback < 0 {
						<-never
						return
					}
					<-ctx.Done()
					cancelledAt = time.Since(s.start)
					<-time.After(tt.rollback)
				}
				one := consumer.Consumer{Consumer: round.Consumer{Name: "push"}, PollInterval: poll}
				r := consumer.NewRunner(s, []consumer.Consumer{one}, make(signals), slog.New(slog.DiscardHandler), nil)
				r.Start(t.Context())
				synctest.Wait()
				budget, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				if err := r.Stop(budget, time.Second); err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("Stop = %v, want %q", err, tt.want)
				}
				if took := time.Since(s.start); took != tt.after {
					t.Errorf("Stop took %v, want %v", took, tt.after)
				}
				if tt.rollback >= 0 && cancelledAt != 24*time.Second {
					t.Errorf("the round was cancelled after %v, want a second before the budget of 25s ends", cancelledAt)
				}
				close(never)
				<-time.After(5 * time.Second) // what was left behind ends too
			})
		})
	}
}

// A stop while the runner waits between two rounds ends it at once.
func TestRunnerStopWhileItWaits(t *testing.T) {
	t.Parallel()
	s := &script{}
	synctest.Test(t, func(t *testing.T) {
		s.start = time.Now()
		r := consumer.NewRunner(s, []consumer.Consumer{{PollInterval: time.Hour}}, make(signals), slog.New(slog.DiscardHandler), nil)
		r.Start(t.Context())
		synctest.Wait()
		if err := r.Stop(t.Context(), time.Second); err != nil || time.Since(s.start) != 0 {
			t.Errorf("Stop = %v after %v, want nil at once", err, time.Since(s.start))
		}
		if n := len(s.times()); n != 1 {
			t.Errorf("%d rounds, want 1", n)
		}
	})
}

// early is a waker that ends without being told to.
type early struct{ err error }

func (e early) Run(context.Context, func()) error { return e.err }

// Whatever ends without being told to is the runner's failure: the process must not go on half dead.
func TestRunnerUnexpectedEndIsItsFailure(t *testing.T) {
	t.Parallel()
	stopped := consumer.Outcome{End: machine.End{Name: "stopped", Next: machine.Stop, Edge: machine.Unchanged}}
	for name, tt := range map[string]struct {
		waker    consumer.Waker
		outcomes []consumer.Outcome
		want     string
	}{
		"waker, no reason": {early{}, nil, "the waker ended without being told to: it gave no reason"},
		"waker":            {early{errors.New("gone")}, nil, "the waker ended without being told to: gone"},
		"rounds":           {nil, []consumer.Outcome{stopped}, `the rounds of consumer "push" ended without being told to`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{outcomes: tt.outcomes}
			synctest.Test(t, func(t *testing.T) {
				one := consumer.Consumer{Consumer: round.Consumer{Name: "push"}, PollInterval: poll}
				if tt.waker == nil {
					tt.waker = make(signals)
				}
				r := consumer.NewRunner(s, []consumer.Consumer{one}, tt.waker, slog.New(slog.DiscardHandler), nil)
				r.Start(t.Context())
				synctest.Wait()
				select {
				case err := <-r.Failed():
					if err == nil || err.Error() != tt.want {
						t.Errorf("Failed() gave %v, want %s", err, tt.want)
					}
				default:
					t.Error("the runner did not fail")
				}
				if err := r.Stop(t.Context(), time.Second); err != nil {
					t.Errorf("Stop: %v", err)
				}
			})
		})
	}
}

// Case 87: one line when failing begins, one when it ends, and neither for what is no incident. The text of
// an error can quote an event, so it is not logged.
func TestRunnerLogsEdges(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	s := &script{outcomes: []consumer.Outcome{idle, failed, failed, locked, gap, locked, short, idle, gap}}
	run(t, s, &logs, func(_ *consumer.Runner, wake signals) {
		for range 8 {
			wake <- struct{}{}
			synctest.Wait()
		}
	})
	want := []string{
		`level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=error`,
		`level=INFO msg="event consumer recovered" bothy.consumer.name=push`,
		`level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=consumer_gap`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(logs.String()), "\n")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// heldUp polls until the rounds of a consumer ended as given, and gives its log.
func heldUp(t *testing.T, outcomes ...consumer.Outcome) []string {
	t.Helper()
	var logs bytes.Buffer
	s := &script{outcomes: outcomes}
	run(t, s, &logs, func(*consumer.Runner, signals) {
		<-time.After(poll*time.Duration(len(outcomes)-1) + time.Second)
	})
	if logs.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimSpace(logs.String()), "\n")
}

// Case 22: a transaction that keeps the cursor row is no failure, but not healthy for ever either. It is told
// once it has lasted for ten polls without a move of the cursor, and when it ends.
func TestRunnerTellsALongLock(t *testing.T) {
	t.Parallel()
	held := `level=WARN msg="event consumer held up: another transaction keeps its cursor locked" bothy.consumer.name=push error.type=cursor_locked`
	free := `level=INFO msg="event consumer no longer held up" bothy.consumer.name=push bothy.consumer.duration=`
	at := func(cursor int64) consumer.Outcome { o := locked; o.Cursor = cursor; return o }
	times := func(n int, o consumer.Outcome) []consumer.Outcome { return slices.Repeat([]consumer.Outcome{o}, n) }
	moving := make([]consumer.Outcome, 30)
	for i := range moving {
		moving[i] = at(int64(i / 5))
	}
	for name, tt := range map[string]struct {
		outcomes []consumer.Outcome
		want     []string
	}{
		"too short to tell":          {append(times(10, locked), idle), nil},
		"told once":                  {times(25, locked), []string{held}},
		"told when it ends":          {append(times(12, locked), idle), []string{held, free + "1m0s"}},
		"another worker makes a way": {moving, nil},
		"failures between say nothing": {
			slices.Concat(times(6, locked), times(1, failed), times(6, locked), times(1, short)),
			[]string{`level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=error`, held, free + "1m5s", `level=INFO msg="event consumer recovered" bothy.consumer.name=push`},
		},
		"twice": {
			slices.Concat(times(11, locked), times(1, idle), times(11, locked), times(1, gap)),
			[]string{held, free + "55s", held, free + "55s", `level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=consumer_gap`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, heldUp(t, tt.outcomes...)); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

// A database that went back in time stops every consumer: each says so once, at once.
func TestRunnerTellsUnfinalized(t *testing.T) {
	t.Parallel()
	got := heldUp(t, idle, unfinalized, unfinalized, locked, unfinalized, failed, unfinalized, short, short)
	want := []string{
		`level=ERROR msg="event consumer stopped: the database was restored or promoted, and that is not finalized" bothy.consumer.name=push error.type=restore_not_finalized`,
		`level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=error`,
		`level=INFO msg="event consumer goes on: the restore is finalized" bothy.consumer.name=push bothy.consumer.duration=30s`,
		`level=INFO msg="event consumer recovered" bothy.consumer.name=push`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// A batch that the server cannot do is halved until it passes, at once and told once. It grows again, and what
// fails to grow is tried ever more seldom.
func TestRunnerReducesABatchThatIsTooLarge(t *testing.T) {
	t.Parallel()
	did := short
	did.Events = 1
	t.Run("down to what passes", func(t *testing.T) {
		t.Parallel()
		var logs bytes.Buffer
		s := &script{outcomes: slices.Repeat([]consumer.Outcome{did}, 100), most: 30}
		run(t, s, &logs, func(_ *consumer.Runner, wake signals) {
			if diff := cmp.Diff([]int{100, 50, 25}, s.batches); diff != "" {
				t.Errorf("batches at once (-want +got):\n%s", diff)
			}
			for range 9 {
				wake <- struct{}{}
				synctest.Wait()
			}
			// 50 is tried after 1 round that did well, then after 2, then after 4
			if diff := cmp.Diff([]int{100, 50, 25, 50, 25, 25, 50, 25, 25, 25, 25, 50, 25, 25, 25}, s.batches); diff != "" {
				t.Errorf("batches (-want +got):\n%s", diff)
			}
			s.mu.Lock()
			s.most = 0 // the server has room again
			s.mu.Unlock()
			for range 60 {
				wake <- struct{}{}
				synctest.Wait()
			}
			if last := s.batches[len(s.batches)-1]; last != 100 {
				t.Errorf("the last batch is %d, want the whole 100", last)
			}
		})
		want := `level=WARN msg="event consumer takes smaller batches: the server could not do a whole one" bothy.consumer.name=push error.type=57014
level=INFO msg="event consumer takes whole batches again" bothy.consumer.name=push
`
		if diff := cmp.Diff(want, logs.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
	t.Run("a single event that is too large", func(t *testing.T) {
		t.Parallel()
		var logs bytes.Buffer
		s := &script{outcomes: slices.Repeat([]consumer.Outcome{large}, 100)}
		run(t, s, &logs, func(_ *consumer.Runner, wake signals) {
			wake <- struct{}{}
			synctest.Wait()
			if diff := cmp.Diff([]int{100, 50, 25, 12, 6, 3, 1, 1}, s.batches); diff != "" {
				t.Errorf("batches (-want +got):\n%s", diff)
			}
		})
		want := `level=WARN msg="event consumer takes smaller batches: the server could not do a whole one" bothy.consumer.name=push error.type=57014
level=ERROR msg="event consumer round failed" bothy.consumer.name=push error.type=57014
`
		if diff := cmp.Diff(want, logs.String()); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
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
