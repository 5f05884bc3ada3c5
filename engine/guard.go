// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/bothy/engine/api"
	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/postgres"
)

// HeldError says that the engine does no work on this database, because it may not be the one that it is meant to work.
type HeldError struct {
	Reasons []api.Reason
	Advice  string
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("the engine does no work (%s): %s", strings.Join(words(e.Reasons), ", "), e.Advice)
}

// guard holds the engine back while the database is not known to be the one whose history the cursors follow: no
// round runs, no partition is dropped, no cursor is made. It looks at the start, whenever a connection is made
// anew, on a timer and when a round finds something wrong; and every round compares in its own transaction,
// since a server can be promoted under an open connection. It lets go by itself when what it found is put right.
// Meanwhile the process keeps no connection: a finalize refuses while one is there.
type guard struct {
	recognize   func(context.Context) (postgres.Recognition, error)
	told        func()                                              // hears of every change; may be nil
	aside       func(context.Context) (postgres.Recognition, error) // the same on a connection of its own
	rest        func()                                              // gives the other connections up
	on          bool                                                // database.restore_guard
	environment string                                              // database.environment
	logger      *slog.Logger

	looking sync.Mutex // one look at a time, so that an older one never has the last word

	mu      sync.Mutex
	held    *HeldError // nil while the engine may work
	since   time.Time
	changed chan struct{} // closed at the next change
}

// check looks which database this is. An error is one of looking, and changes nothing.
func (g *guard) check(ctx context.Context) error { return g.checkBy(ctx, g.recognize) }

// checkBy is check with another way to look while the engine is not held.
func (g *guard) checkBy(ctx context.Context, look func(context.Context) (postgres.Recognition, error)) error {
	g.looking.Lock()
	defer g.looking.Unlock()
	if g.hold() != nil {
		look = g.aside // whoever finalizes waits for the connections of the engine to be gone
	}
	r, err := look(ctx)
	if err != nil {
		return err
	}
	g.judge(ctx, r)
	if g.hold() != nil {
		g.rest()
	}
	return nil
}

// judge takes note of what was seen, and tells when it is news.
func (g *guard) judge(ctx context.Context, r postgres.Recognition) {
	held := heldBy(r, g.on, g.environment)
	found := reasonsOf(held)
	g.mu.Lock()
	before, since := g.held, g.since
	g.held = held
	news := !slices.Equal(reasonsOf(before), found)
	if news {
		close(g.changed)
		g.changed = make(chan struct{})
	}
	if before == nil {
		g.since = time.Now()
	}
	g.mu.Unlock()
	if news && g.told != nil {
		g.told()
	}
	switch {
	case !news:
	case len(found) > 0:
		g.logger.LogAttrs(ctx, slog.LevelError, holdMessage(found[0]), //nolint:sloglint // constants of this file
			slog.String("error.type", string(found[0])), slog.String("bothy.hold.advice", advice(found[0], r, g.environment)),
			slog.String("bothy.identity.stored", r.Stored.String()), slog.String("bothy.identity.current", r.Current.String()))
	default:
		g.logger.InfoContext(ctx, "engine goes on: the database is the one that the cursors follow",
			slog.Duration("bothy.hold.duration", time.Since(since).Round(time.Millisecond)))
	}
}

// holds are the reasons to do no work on a database. What cannot be read counts neither as the same nor as another.
func holds(r postgres.Recognition, guarded bool, environment string) (reasons []api.Reason) {
	if guarded && (r.Differs() || r.Apart != "") {
		reasons = append(reasons, api.Unfinalized)
	}
	if guarded && len(r.Lacks) > 0 {
		reasons = append(reasons, api.Unreadable)
	}
	if r.Recovering {
		reasons = append(reasons, api.Recovering)
	}
	if environment != "" && r.Environment != "" && environment != r.Environment {
		reasons = append(reasons, api.OtherEnvironment)
	}
	return reasons
}

// Held is why an engine with this configuration would do no work on the database that was observed; nil when it would.
// Where the role may not read which server that is, it asks for the rights that are lacking.
func (e *Engine) Held(ctx context.Context, o Observation) (*HeldError, error) {
	r := o.Recognition()
	if !e.store.Recognizes() {
		var err error
		if r, err = e.store.Recognize(ctx); err != nil {
			return nil, err
		}
	}
	return heldBy(r, e.config.Database.Guarded(), e.config.Database.Environment), nil
}

func heldBy(r postgres.Recognition, guarded bool, environment string) *HeldError {
	found := holds(r, guarded, environment)
	if len(found) == 0 {
		return nil
	}
	return &HeldError{Reasons: found, Advice: advice(found[0], r, environment)}
}

// holdMessage is what the log says when the engine begins to be held.
func holdMessage(r api.Reason) string {
	switch r {
	case api.Unfinalized:
		return "engine does no work: the database was restored or promoted, as a whole or in part, and that is not finalized"
	case api.Unreadable:
		return "engine does no work: its role may not read which server this is, so a restore would not be noticed"
	case api.Recovering:
		return "engine does no work: the database replays a log; it is a standby, or a restore that is not at its end"
	case api.OtherEnvironment:
		return "engine does no work: the database belongs to another environment"
	default:
		return "engine does no work"
	}
}

// advice is what to do about a reason.
func advice(reason api.Reason, r postgres.Recognition, environment string) string {
	switch reason {
	case api.Unfinalized:
		if !r.Differs() {
			return r.Apart + ": parts of the database were restored from different moments: stop the producers, then run `engine restore finalize`: docs/restore.md has the steps"
		}
		return "stop the producers, then run `engine restore finalize`: docs/restore.md has the steps"
	case api.Unreadable:
		return "run `engine migrate up --bootstrap` as an administrator, or: " + strings.Join(r.Lacks, "; ")
	case api.Recovering:
		return "connect to the primary, or wait until this server is promoted; then run `engine restore finalize`: docs/restore.md has the steps"
	case api.OtherEnvironment:
		return fmt.Sprintf("the database says %q and database.environment %q: connect to the right one; a copy gets a history of its own and this name with `engine restore finalize --force`, "+
			"an installation that is only to be called otherwise with `engine migrate up --new-environment`", r.Environment, environment)
	default:
		return ""
	}
}

// hold is why the engine may do no work now, or nil.
func (g *guard) hold() *HeldError {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held
}

func reasonsOf(e *HeldError) []api.Reason {
	if e == nil {
		return nil
	}
	return e.Reasons
}

// wait returns once the engine may work, or when ctx ends. Somebody else looks meanwhile.
func (g *guard) wait(ctx context.Context) error {
	for {
		g.mu.Lock()
		held, changed := g.held, g.changed
		g.mu.Unlock()
		if held == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// during runs something until it ends, ctx ends or the engine is held.
func (g *guard) during(ctx context.Context, run func(context.Context) error) error {
	free, cancel := context.WithCancel(ctx)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			g.mu.Lock()
			held, changed := g.held, g.changed
			g.mu.Unlock()
			if held != nil {
				cancel()
				return
			}
			select {
			case <-free.Done():
				return
			case <-changed:
			}
		}
	})
	err := run(free)
	cancel()
	watching.Wait()
	return err
}

// freely is a waker that keeps no connection while the engine is held, so that nothing of it stands in the way of who
// finalizes the restore. It wakes the consumers when the engine may work again.
type freely struct {
	consumer.Waker

	guard *guard
	left  func() // called when the engine is held and the connection is gone
}

// Run wakes until ctx ends.
func (w freely) Run(ctx context.Context, wake func()) error {
	for {
		if err := w.guard.wait(ctx); err != nil {
			return err
		}
		wake()
		err := w.guard.during(ctx, func(ctx context.Context) error { return w.Waker.Run(ctx, wake) })
		if ctx.Err() != nil {
			return err
		}
		w.left()
	}
}

// heldRound is a round that the guard did not let begin. It ends as one does that found it out by itself.
func (e *Engine) heldRound(held *HeldError) consumer.Outcome {
	return consumer.Outcome{End: e.end(endUnfinalized), Err: held, Held: true}
}

// mayWork looks which database this is, and is a *HeldError when the engine may do no work on it.
func (e *Engine) mayWork(ctx context.Context) error {
	if err := e.guard.check(ctx); err != nil {
		return err
	}
	if held := e.guard.hold(); held != nil {
		return held
	}
	return nil
}

// endUnfinalized is the end of a round on a database that is not finalized.
const endUnfinalized = "unfinalized"

// end is one of the ends of the round table, which all exist: the table is proven.
func (e *Engine) end(name string) machine.End {
	for _, end := range e.table.Ends() {
		if end.Name == name {
			return end
		}
	}
	return machine.End{Name: name, Next: machine.Wait, Edge: machine.Unchanged}
}

// deaf takes note that nothing listens.
func (e *Engine) deaf() {
	if e.config.Sync.Notifies() {
		e.signals.Listens(false)
	}
}
