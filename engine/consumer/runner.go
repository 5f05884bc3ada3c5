// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
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

// settled is how long a consumer that fails and recovers again and again has to stay as it is to be told again.
const settled = 10 * time.Minute

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

	mu      sync.Mutex
	running map[string]bool // by the name of the consumer
}

// NewRunner makes a runner. observe is told of every round, from the goroutine of its consumer; it may
// be nil.
func NewRunner(rounds Rounds, consumers []Consumer, waker Waker, logger *slog.Logger, observe func(string, Outcome)) *Runner {
	r := &Runner{
		rounds: rounds, consumers: consumers, waker: waker, logger: logger, observe: observe,
		stopping: make(chan struct{}), failed: make(chan error, 1),
		running: map[string]bool{},
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
		r.spawn(c.Name, func() {
			r.loop(ctx, c, r.wakes[i])
			if ctx.Err() == nil && !r.stops() {
				r.fail(fmt.Errorf("the rounds of consumer %q ended without being told to", c.Name))
			}
		})
	}
	r.spawn("", func() {
		listening, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-r.stopping:
				cancel()
			case <-listening.Done():
			}
		}()
		if err := r.waker.Run(listening, r.wake); listening.Err() == nil {
			r.fail(fmt.Errorf("the waker ended without being told to: %w", cmp.Or(err, errNoReason)))
		}
	})
}

var errNoReason = errors.New("it gave no reason")

// spawn runs one part of the runner on a goroutine of its own; a panic of it is the runner's failure. The waker
// has no name.
func (r *Runner) spawn(name string, part func()) {
	r.mu.Lock()
	r.running[name] = true
	r.mu.Unlock()
	r.wait.Go(func() {
		defer func() {
			r.mu.Lock()
			delete(r.running, name)
			r.mu.Unlock()
		}()
		defer func() {
			if v := recover(); v != nil {
				r.fail(fmt.Errorf("panic in the runner: %v\n%s", v, debug.Stack()))
			}
		}()
		part()
	})
}

// ErrCancelled says that rounds had to be cancelled to stop in time. They have rolled back.
var ErrCancelled = errors.New("rounds were cancelled, and have rolled back")

// StuckError says that rounds did not even end when they were cancelled: a handler does not look at its context.
// Their transactions roll back when the process ends.
type StuckError struct{ Consumers []string }

func (e *StuckError) Error() string {
	return fmt.Sprintf("the rounds of the consumers %q do not end although they were cancelled: a handler must return when its context is cancelled", e.Consumers)
}

// Stop begins no further round and waits for those that run, until ctx ends: grace before its deadline they are
// cancelled, so that they can still roll back. What they have not done by the end is left behind. Either way
// no job is lost or doubled. It returns nil, ErrCancelled or a StuckError.
func (r *Runner) Stop(ctx context.Context, grace time.Duration) error {
	r.once.Do(func() { close(r.stopping) })
	if r.cancel == nil {
		return nil
	}
	defer r.cancel()
	done := make(chan struct{})
	go func() { r.wait.Wait(); close(done) }()
	patient := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		patient, cancel = context.WithDeadline(ctx, deadline.Add(-grace))
		defer cancel()
	}
	select {
	case <-done:
		return nil
	case <-patient.Done():
	}
	r.cancel()
	last := time.NewTimer(grace)
	defer last.Stop()
	select {
	case <-done:
		return ErrCancelled
	case <-last.C:
		return &StuckError{r.left()}
	}
}

// left are the consumers whose rounds have not ended.
func (r *Runner) left() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := slices.Sorted(maps.Keys(r.running))
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// stops reports whether no further round is to begin.
func (r *Runner) stops() bool {
	select {
	case <-r.stopping:
		return true
	default:
		return false
	}
}

// Failed receives the error that ended the runner unexpectedly: a bug, never a failing round.
func (r *Runner) Failed() <-chan error { return r.failed }

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
		Rounds: r.rounds, Consumer: c, Logger: r.logger, Observe: r.observe, Settled: settled,
		Begin: func() bool { return !r.stops() },
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
