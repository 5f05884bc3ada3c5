// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"example.com/bothy/engine/api"
	"example.com/bothy/engine/postgres"
)

// outage tells once for the whole process that the database cannot be reached, and once that it can again. What
// fails meanwhile does so for that reason, and says nothing of its own.
type outage struct {
	reach  func(context.Context) error
	logger *slog.Logger

	asking sync.Mutex // held while the database is asked: nobody else needs to ask meanwhile

	mu       sync.Mutex // held shortly: a scrape wants it
	watching bool       // somebody looks for the end of an outage
	since    time.Time  // zero while the database is there
}

func (o *outage) watch(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watching, o.since = on, time.Time{}
}

// begins asks the database, after something failed, whether it is there, and reports whether it is not. In an
// outage that is known it asks nobody.
func (o *outage) begins(ctx context.Context) bool {
	o.asking.Lock()
	defer o.asking.Unlock()
	if known, lasts := o.state(); lasts || !known || ctx.Err() != nil {
		return lasts
	}
	err := o.reach(ctx)
	if err == nil || ctx.Err() != nil {
		return false
	}
	o.mu.Lock()
	o.since = time.Now()
	o.mu.Unlock()
	o.logger.ErrorContext(ctx, "database unreachable: consumers wait until it is back", slog.String("error.type", errorType(err)))
	return true
}

// ends takes note that the database answered.
func (o *outage) ends(ctx context.Context) {
	o.mu.Lock()
	since := o.since
	o.since = time.Time{}
	o.mu.Unlock()
	if !since.IsZero() {
		o.logger.InfoContext(ctx, "database reachable again", slog.Duration("bothy.outage.duration", time.Since(since).Round(time.Millisecond)))
	}
}

func (o *outage) state() (watching, lasts bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.watching, !o.since.IsZero()
}

func (o *outage) lasts() bool {
	_, lasts := o.state()
	return lasts
}

// health is what the process knows of itself, for whoever asks whether it is ready.
type health struct {
	outage *outage
	guard  *guard
	fresh  time.Duration // how long an observation counts

	mu       sync.Mutex
	role     Role
	started  bool
	stopping bool
	unfit    bool      // a recipient rule does not fit
	schema   error     // what is wrong with the schema, or nil
	observed time.Time // when it was last seen; from the beginning on
}

// set changes what is known.
func (h *health) set(change func(*health)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

// reasons are why the process is not ready, in the order of api.Reasons.
func (h *health) reasons() []api.Reason {
	away, held := h.outage.lasts(), reasonsOf(h.guard.hold())
	h.mu.Lock()
	defer h.mu.Unlock()
	var old *postgres.OldBinaryError
	holds := map[api.Reason]bool{
		api.Starting:        !h.started && !h.stopping && len(held) == 0, // a start that is held is told as that
		api.Stopping:        h.stopping,
		api.Unreachable:     away,
		api.Unobserved:      h.started && !away && time.Since(h.observed) >= h.fresh,
		api.SchemaTooOld:    h.schema != nil && !errors.As(h.schema, &old),
		api.BinaryTooOld:    errors.As(h.schema, &old),
		api.ConsumersFailed: h.unfit,
	}
	for _, r := range held {
		holds[r] = true
	}
	return slices.DeleteFunc(api.Reasons(), func(r api.Reason) bool { return !holds[r] })
}

// readiness is the answer of /readyz.
func (e *Engine) readiness() api.Readiness {
	reasons := e.health.reasons()
	e.health.mu.Lock()
	role := e.health.role
	e.health.mu.Unlock()
	return api.Readiness{Ready: len(reasons) == 0, Reasons: reasons, Role: string(role), Ends: e.signals.LastEnds()}
}
