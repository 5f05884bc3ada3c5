// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"example.com/bothy/engine/round"
)

// Waker tells when events may have been appended. Losing it costs time, never an event.
type Waker interface {
	// Run calls wake until ctx ends.
	Run(ctx context.Context, wake func()) error
}

// Rounds is what the runner runs.
type Rounds interface {
	Round(ctx context.Context, c round.Consumer) Outcome
}

// Runner runs each consumer on a goroutine of its own: a round, then another at once after a full batch,
// else at the next wake or poll. Start it once; Stop ends it.
type Runner struct {
	rounds    Rounds
	consumers []Consumer
	waker     Waker
	logger    *slog.Logger
	observe   func(name string, o Outcome) // sees every round; may be nil

	wakes    []chan struct{}
	stopping chan struct{} // closed: no further round begins
	failed   chan error
	cancel   context.CancelFunc // of the rounds that run
	once     sync.Once
	wait     sync.WaitGroup
}

// NewRunner makes a runner. observe is told of every round, from the goroutine of its consumer; it may
// be nil.
func NewRunner(rounds Rounds, consumers []Consumer, waker Waker, logger *slog.Logger, observe func(string, Outcome)) *Runner {
	r := &Runner{
		rounds: rounds, consumers: consumers, waker: waker, logger: logger, observe: observe,
		stopping: make(chan struct{}), failed: make(chan error, 1),
	}
	for range consumers {
		// capacity one: a signal that comes while one is waiting says nothing new
		r.wakes = append(r.wakes, make(chan struct{}, 1))
	}
	return r
}

// Start begins. It returns at once; a failing round is no failure of the runner.
func (r *Runner) Start(ctx context.Context) {
	ctx, r.cancel = context.WithCancel(ctx)
	for i, c := range r.consumers {
		r.wait.Go(func() { r.guard(func() { r.loop(ctx, c, r.wakes[i]) }) })
	}
	r.wait.Go(func() {
		r.guard(func() {
			listening, cancel := context.WithCancel(ctx)
			defer cancel()
			go func() {
				select {
				case <-r.stopping:
					cancel()
				case <-listening.Done():
				}
			}()
			if err := r.waker.Run(listening, r.wake); err != nil && listening.Err() == nil {
				r.fail(fmt.Errorf("the waker ended: %w", err))
			}
		})
	})
}

// Stop begins no further round and waits for those that run. When ctx ends first they are cancelled and
// roll back, and ctx's error is returned after they have. Either way no job is lost or doubled.
func (r *Runner) Stop(ctx context.Context) error {
	r.once.Do(func() { close(r.stopping) })
	if r.cancel == nil {
		return nil
	}
	defer r.cancel()
	done := make(chan struct{})
	go func() { r.wait.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		r.cancel()
		<-done
		return ctx.Err()
	}
}

// Failed receives the error that ended the runner unexpectedly: a bug, never a failing round.
func (r *Runner) Failed() <-chan error { return r.failed }

// guard turns a panic of the runner itself into its failure.
func (r *Runner) guard(run func()) {
	defer func() {
		if v := recover(); v != nil {
			r.fail(fmt.Errorf("panic in the runner: %v\n%s", v, debug.Stack()))
		}
	}()
	run()
}

func (r *Runner) fail(err error) {
	select {
	case r.failed <- err:
	default: // the first one is enough
	}
}

// wake signals every consumer and never blocks.
func (r *Runner) wake() {
	for _, signal := range r.wakes {
		select {
		case signal <- struct{}{}:
		default:
		}
	}
}

// loop runs one consumer until the runner stops or the table says so.
func (r *Runner) loop(ctx context.Context, c Consumer, wake <-chan struct{}) {
	poll := time.NewTimer(c.PollInterval)
	defer poll.Stop()
	Loop{
		Rounds: r.rounds, Consumer: c, Logger: r.logger, Observe: r.observe,
		Begin: func() bool {
			select {
			case <-r.stopping:
				return false
			default:
				return true
			}
		},
		Pause: func(ctx context.Context) bool {
			poll.Reset(c.PollInterval)
			select {
			case <-r.stopping:
				return false
			case <-ctx.Done():
				return false
			case <-wake:
			case <-poll.C:
			}
			return true
		},
	}.Run(ctx)
}
