// SPDX-License-Identifier: Apache-2.0

package consumer_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/round"
)

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
			var cancelledAt atomic.Int64
			synctest.Test(t, func(t *testing.T) {
				never := make(chan struct{})
				s.start, s.during = time.Now(), func(ctx context.Context, _ int) {
					if tt.rollback < 0 {
						<-never
						return
					}
					<-ctx.Done()
					cancelledAt.Store(int64(time.Since(s.start)))
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
				if tt.rollback >= 0 && time.Duration(cancelledAt.Load()) != 24*time.Second {
					t.Errorf("the round was cancelled after %v, want a second before the budget of 25s ends", time.Duration(cancelledAt.Load()))
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
