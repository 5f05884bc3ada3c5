// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"example.com/bothy/engine/api"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/statuspage"
	"example.com/bothy/engine/telemetry"
)

const (
	// observeInterval is how often the database is asked where the consumers stand, in every role.
	observeInterval = 5 * time.Second
	// observeRetry is how soon after a look that failed.
	observeRetry = time.Second
	// observationFresh is how long what was seen is shown. It bridges a look that fails now and then: a series
	// that comes and goes would restart the waiting time of an alert.
	observationFresh = 20 * time.Second
	// schemaInterval is how often it is asked whether the schema and this binary still fit.
	schemaInterval = time.Minute
	// serveGrace is what answers on their way are given when the process ends.
	serveGrace = 2 * time.Second
)

// Observation is where the log and every consumer stand.
type Observation = postgres.Observation

// WithMetricReader hands the metrics of the engine to a reader of OpenTelemetry's, beside the page at
// http.listen: telemetry.Collector makes one from the standard variables. Close shuts it down.
func WithMetricReader(r metric.Reader) Option {
	return func(o *options) { o.readers = append(o.readers, r) }
}

// WithSpanProcessor hands a span for each round that did work or failed to a processor of OpenTelemetry's, linked to the
// traces that producers gave their events: telemetry.SpanCollector makes one from the standard variables. Close shuts
// it down.
func WithSpanProcessor(p trace.SpanProcessor) Option {
	return func(o *options) { o.spans = append(o.spans, p) }
}

// Observe looks at the log and at every consumer that has a cursor.
func (e *Engine) Observe(ctx context.Context) (Observation, error) { return e.store.Observe(ctx) }

// Handler serves /metrics, /healthz, /readyz and /status, for a program that has a listener of its own. Run serves them at
// http.listen.
func (e *Engine) Handler() http.Handler { return api.Handler(e.pages()) }

func (e *Engine) pages() api.Options {
	o := api.Options{
		Address: e.config.HTTP.Listen, Metrics: e.signals.Handler(), Readiness: e.readiness,
		More: map[string]http.Handler{statuspage.Path: e.page.Handler(), statuspage.Path + "/": e.page.Handler()},
	}
	if e.options.jobsPage != nil {
		o.More[JobsPath+"/"] = statuspage.ForThisMachine(e.options.jobsPage)
	}
	return o
}

// measure makes the metrics and what is known of the process's health.
func (e *Engine) measure() error {
	e.outage = &outage{reach: e.store.Reach, logger: e.options.logger}
	e.guard = &guard{
		recognize: e.store.Recognize, aside: e.store.RecognizeAside, rest: e.store.Rest,
		told: func() { e.page.Changed() },
		on:   e.config.Database.Guarded(), environment: e.config.Database.Environment,
		logger: e.options.logger, changed: make(chan struct{}),
	}
	e.health = &health{outage: e.outage, guard: e.guard, fresh: e.fresh(), observed: time.Now()}
	digest, err := configDigest(e.config)
	if err != nil {
		return err
	}
	o := telemetry.Options{
		Version: version(), Ends: consumer.Vocabulary().Ends, Readers: e.options.readers, Spans: e.options.spans, Digest: digest,
		Passed: []string{"locked", "stopped"}, Succeeds: []string{"processed", "lost", "idle"}, Works: []string{"processed", "lost", "quarantined", "failed"},
		Fresh: e.fresh(), HeadroomWanted: e.headroomWanted(),
		Ready: func() []string { return words(e.health.reasons()) }, Reasons: words(api.Reasons()),
	}
	for _, c := range e.config.Consumers {
		o.Consumers = append(o.Consumers, telemetry.Consumer{Name: c.Name, PendingAlertAfter: c.PendingAlertAfter})
	}
	e.signals, err = telemetry.New(o)
	return err
}

// fresh is how long what was observed is shown.
func (e *Engine) fresh() time.Duration { return cmp.Or(e.options.fresh, observationFresh) }

func words(reasons []api.Reason) []string {
	texts := make([]string, len(reasons))
	for i, r := range reasons {
		texts[i] = string(r)
	}
	return texts
}

// headroomWanted is the headroom below which rounds ask for more partitions.
func (e *Engine) headroomWanted() int64 {
	return e.config.Sync.EventLogPartitionSize * int64(e.config.Sync.PartitionsAhead) / 2
}

// configDigest is a number that two processes share when their effective configurations are the same, secrets
// apart.
func configDigest(cfg *config.Config) (uint64, error) {
	text, err := cfg.ShowJSON()
	if err != nil {
		return 0, err
	}
	var shown struct {
		Values json.RawMessage `json:"values"`
	}
	if err := json.Unmarshal(text, &shown); err != nil {
		return 0, err
	}
	sum := sha256.Sum256(shown.Values)
	return binary.BigEndian.Uint64(sum[:8]) >> 16, nil
}

// version is that of the engine, also inside a program that embeds it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	const path = "example.com/bothy"
	if info.Main.Path == path {
		return info.Main.Version
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}

// serve opens the listener and begins to observe. What it returns ends both.
func (e *Engine) serve(ctx context.Context, role Role) (end func(), err error) {
	e.tell(func(h *health) { h.role, h.observed = role, time.Now() })
	server := (*api.Server)(nil)
	if e.config.HTTP.Listen != "" {
		if server, err = api.Listen(ctx, e.pages()); err != nil {
			return nil, err
		}
		e.address.Store(server.Address())
		e.options.logger.InfoContext(ctx, "http listener open", slog.String("address", server.Address()))
	}
	if role != RoleAPI {
		e.signals.Begin(ctx)
		if e.config.Sync.Notifies() {
			e.signals.Listens(false)
		}
	}
	e.outage.watch(true)
	unready := context.AfterFunc(ctx, func() { e.tell(func(h *health) { h.stopping = true }) })
	observing, stopObserving := context.WithCancel(context.WithoutCancel(ctx)) // also while the process stops
	var watch sync.WaitGroup
	watch.Go(func() { e.watch(observing) })
	watch.Go(func() { e.page.Run(observing) })
	return func() {
		unready()
		stopObserving()
		watch.Wait()
		e.outage.watch(false)
		if server == nil {
			return
		}
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), serveGrace)
		defer cancel()
		if err := server.Stop(grace); err != nil {
			e.options.logger.WarnContext(ctx, "http listener did not end in good order", slog.String("error.type", "error"))
		}
	}, nil
}

// watch observes the database until ctx ends.
func (e *Engine) watch(ctx context.Context) {
	next := time.NewTimer(0)
	defer next.Stop()
	seen := edge{
		logger: e.options.logger, outage: e.outage.begins,
		fails: "consumers not observed: the database does not say where they stand", again: "consumers observed again",
	}
	var checked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		case <-e.again:
		}
		err := e.look(ctx)
		seen.record(ctx, err)
		if err != nil {
			e.page.Observed(time.Now(), nil)
			next.Reset(observeRetry)
			continue
		}
		if e.guard.hold() != nil {
			next.Reset(observeRetry) // somebody is putting it right, and waits for the engine
			continue
		}
		if time.Since(checked) >= schemaInterval {
			checked = time.Now()
			e.lookAtSchema(ctx)
		}
		e.lookAtOldest(ctx)
		next.Reset(cmp.Or(e.options.pace, observeInterval))
	}
}

// lookAgain makes the next look come at once: something has changed that everybody wants to see.
func (e *Engine) lookAgain() {
	select {
	case e.again <- struct{}{}:
	default:
	}
}

// look asks once which database this is and where the log and the consumers stand: in one statement, unless the engine
// is held or has yet to learn whether it may read the first.
func (e *Engine) look(ctx context.Context) error {
	if e.guard.hold() != nil || !e.store.Recognizes() {
		if err := e.guard.check(ctx); err != nil {
			return err
		}
	}
	var o Observation
	var before, after time.Time
	if e.guard.hold() == nil {
		err := e.guard.checkBy(ctx, func(ctx context.Context) (postgres.Recognition, error) {
			before = time.Now()
			observed, err := e.store.Observe(ctx)
			o, after = observed, time.Now()
			return o.Recognition(), err
		})
		if err != nil {
			return err
		}
	}
	e.outage.ends(ctx)
	if e.guard.hold() != nil || after.IsZero() { // the second: it was held while this look waited for another one
		e.tell(func(h *health) { h.observed = time.Now() })
		return nil //nolint:nilerr // it answered; where the consumers stand in another history says nothing
	}
	seen := telemetry.Observation{Head: o.Head, Headroom: o.Headroom, Held: o.Held, Drift: o.At.Sub(before.Add(after.Sub(before) / 2))}
	for _, c := range o.Consumers {
		seen.Standings = append(seen.Standings, telemetry.Standing{Name: c.Name, Lag: c.Lag(), PendingAge: c.PendingAge, Aside: c.Aside})
	}
	e.signals.Observed(seen)
	e.page.Observed(after, e.known.observed(after, o))
	e.tell(func(h *health) { h.observed = after })
	return nil
}

// tell takes note of what the process knows of its health, and has the status page show it.
func (e *Engine) tell(change func(*health)) {
	e.health.set(change)
	e.page.Changed()
}

// lookAtSchema asks whether somebody migrated the database past this binary, or back.
func (e *Engine) lookAtSchema(ctx context.Context) {
	err := postgres.CheckSchema(ctx, e.store.Pool(), e.config.Database.Schema, "")
	_, old := errors.AsType[*postgres.OldBinaryError](err)
	_, lacks := errors.AsType[*postgres.MissingMigrationError](err)
	if !old && !lacks {
		err = nil // every other trouble tells itself
	}
	e.tell(func(h *health) { h.schema = err })
}

// mayBeOutage reports whether a round with this error.type may have failed because the database is gone. A server
// that answered with what is wrong is there, unless what it said is that it ends or begins.
func mayBeOutage(errorType string) bool {
	switch errorType {
	case "timeout", "connection", "error":
		return true
	default:
		return strings.HasPrefix(errorType, "57P") || strings.HasPrefix(errorType, "08")
	}
}

// note counts a round, and finds out whether the database is gone when one fails, or another one than it was.
func (e *Engine) note(ctx context.Context, name string, o *consumer.Outcome, took time.Duration) {
	switch {
	case o.End.Failure == consumer.FailureError && mayBeOutage(o.ErrorType()):
		o.Outage = e.outage.begins(ctx)
	case o.End.Name == endUnfinalized && !o.Held:
		o.Held = true          // the guard tells it, once for all consumers
		_ = e.guard.check(ctx) // else the next look finds it
	case o.Head > 0:
		e.outage.ends(ctx)
	}
	e.known.ended(name, *o)
	e.page.Changed()
	e.signals.Round(ctx, telemetry.Round{
		Consumer: name, End: o.End.Name, Took: took, Events: o.Events, Jobs: o.Jobs, Lost: o.Lost,
		First: o.First, ErrorType: o.ErrorType(), Traces: o.Traces,
	})
}
