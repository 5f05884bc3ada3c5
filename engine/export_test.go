// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
	"example.com/bothy/engine/round"
)

// Ensure creates the cursors.
func (e *Engine) Ensure(ctx context.Context) error { return e.service.Ensure(ctx, e.config.Names()) }

// Store is the engine's database.
func (e *Engine) Store() *postgres.Store { return e.store }

// RunWith runs the consumers with another waker until the returned function is called.
func (e *Engine) RunWith(ctx context.Context, waker consumer.Waker) (stop func(context.Context) error) {
	e.fix()
	r := consumer.NewRunner(notifying{e}, e.runnable(), waker, e.options.logger, e.options.observe)
	r.Start(ctx)
	return func(ctx context.Context) error { return r.Stop(ctx, time.Second) }
}

// Config is the engine's configuration.
func (e *Engine) Config() *config.Config { return e.config }

// ServerProblems is what CheckDatabase says about a server.
func ServerProblems(cfg *config.Config, server postgres.Server) problem.List {
	d := &databaseCheck{config: cfg, status: postgres.Status{Server: server}}
	d.server()
	return d.problems
}

// WithMargin changes how much longer than statement_timeout the engine waits for an answer.
func WithMargin(d time.Duration) Option { return func(o *options) { o.margin = d } }

// DropExpired does what maintenance does every minute about retention.
func (e *Engine) DropExpired(ctx context.Context) error {
	r := retention{engine: e}
	return r.drop(ctx)
}

// WithMaintenance changes how often the log is looked after.
func WithMaintenance(d time.Duration) Option { return func(o *options) { o.maintenance = d } }

// Look observes the database once, as Run does in the background.
func (e *Engine) Look(ctx context.Context) error { return e.look(ctx) }

// WithFresh changes how long what was observed is shown.
func WithFresh(d time.Duration) Option { return func(o *options) { o.fresh = d } }

// LookAtSchema asks once whether the schema fits, as Run does in the background.
func (e *Engine) LookAtSchema(ctx context.Context) { e.lookAtSchema(ctx) }

// Reasons are why the engine is not ready.
func (e *Engine) Reasons() []string { return words(e.health.reasons()) }

// Holds are the reasons to do no work on a database.
var Holds = holds

// Suspect runs one round of a consumer that may set one event aside.
func (e *Engine) Suspect(ctx context.Context, name string, seq int64) Outcome {
	e.fix()
	for _, c := range Consumers(e.config) {
		if c.Name == name {
			c.Batch, c.Suspect = 1, round.Suspect{Seq: seq, Attempts: 2}
			return notifying{e}.Round(ctx, c)
		}
	}
	return Outcome{}
}
