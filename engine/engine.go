// SPDX-License-Identifier: Apache-2.0

// Package engine assembles the rooms: from a checked configuration to a running process.
//
//	e, err := engine.Open(ctx, cfg)          // connects, checks the schema
//	err = e.Register("mentions", handler)    // Go functions that handler rules name
//	err = e.Run(ctx, engine.RoleAll)         // until ctx ends, then stops gracefully
//	e.Close()
//
// A program of a user's embeds the engine the same way as the command does; only its handlers differ.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"example.com/bothy/definitions"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/consumer"
	"example.com/bothy/engine/jobs"
	"example.com/bothy/engine/machine"
	"example.com/bothy/engine/postgres"
	"example.com/bothy/engine/problem"
	"example.com/bothy/engine/round"
	"example.com/bothy/engine/statuspage"
	"example.com/bothy/engine/telemetry"
)

// Handler decides the recipients of one event in Go, inside the round's transaction.
type Handler = postgres.Handler

// HandlerTx is the round's transaction as a handler sees it.
type HandlerTx = postgres.HandlerTx

// Event is one row of the log, as a handler sees it.
type Event = round.Event

// State is where one consumer stands.
type State = postgres.State

// Outcome is how a round ended, as an observer sees it.
type Outcome = consumer.Outcome

// Option changes how an engine is opened.
type Option func(*options)

type options struct {
	logger  *slog.Logger
	observe func(name string, o Outcome)
	tracer  pgx.QueryTracer
	margin  time.Duration // of the wait for an answer; 0 is the store's
	readers []metric.Reader
	spans   []trace.SpanProcessor
	pace    time.Duration // between two looks at the consumers; 0 is observeInterval
	fresh   time.Duration // how long an observation is shown; 0 is observationFresh

	localPage   bool // the status page is for this machine, and needs no token
	jobsPage    http.Handler
	maintenance time.Duration // how often the log is looked after; 0 is maintenanceInterval
}

// WithLogger makes the engine log to logger. Without it, it logs nothing.
func WithLogger(logger *slog.Logger) Option { return func(o *options) { o.logger = logger } }

// WithObserver makes the engine tell observe of every round, from the goroutine of its consumer: observe
// must be quick and safe for concurrent use.
func WithObserver(observe func(consumer string, o Outcome)) Option {
	return func(o *options) { o.observe = observe }
}

// WithTracer lets a tracer see every statement of the pool.
func WithTracer(tracer pgx.QueryTracer) Option { return func(o *options) { o.tracer = tracer } }

// Engine is a configuration that is connected to its database.
type Engine struct {
	config   *config.Config
	options  options
	table    *machine.Machine
	store    *postgres.Store
	service  *consumer.Service
	inserter *jobs.Inserter
	handlers map[string]Handler
	fill     chan struct{} // capacity one: a round saw that the log fills up
	signals  *telemetry.Signals
	health   *health
	outage   *outage
	guard    *guard
	known    *known
	again    chan struct{} // capacity one: the next look at the consumers comes at once
	page     *statuspage.Page
	address  atomic.Value // a string: where http.listen listens

	mu      sync.Mutex
	started bool // Run was called
	fixed   bool // something has looked at the handlers: there are no further ones
}

// Open proves the round table, connects to the database (with the URL of database.url_file, where that is
// written) and checks that its schema fits this binary. It changes nothing there. The caller closes the engine.
func Open(ctx context.Context, cfg *config.Config, opts ...Option) (*Engine, error) {
	o := options{logger: slog.New(slog.DiscardHandler)}
	for _, option := range opts {
		option(&o)
	}
	table, problems := Table()
	if err := problems.Err(); err != nil {
		return nil, err
	}
	if err := cfg.ReadURLFile().Err(); err != nil {
		return nil, err
	}
	e := &Engine{config: cfg, options: o, table: table, handlers: map[string]Handler{}, fill: make(chan struct{}, 1), again: make(chan struct{}, 1)}
	store, err := postgres.Open(ctx, e.storeOptions())
	if err != nil {
		return nil, err
	}
	e.store = store
	if err := postgres.CheckSchema(ctx, store.Pool(), cfg.Database.Schema, cfg.Jobs.Schema); err != nil {
		store.Close()
		return nil, err
	}
	inserter, err := jobs.NewInserter(ctx, store.Pool(), cfg.Jobs.Schema)
	if err != nil {
		store.Close()
		return nil, err
	}
	e.inserter = inserter
	if err := errors.Join(e.measure(), e.newPage()); err != nil {
		e.inserter.Close()
		store.Close()
		return nil, err
	}
	store.UseInserter(inserter)
	e.service = consumer.NewService(rounds{store}, table)
	return e, nil
}

// Table is the round table of this binary, parsed and proven.
func Table() (*machine.Machine, problem.List) {
	file, text := definitions.Round()
	return machine.Load(file, text, consumer.Vocabulary())
}

// storeOptions are the options of the store as the configuration gives them.
func (e *Engine) storeOptions() postgres.Options {
	database := e.config.Database
	connections := database.PoolMaxConns
	if connections == 0 {
		// every consumer can run a round while workers are notified, a status is read and partitions are made
		connections = len(e.config.Consumers) + 3
	}
	return postgres.Options{
		URL: database.URL.Reveal(), Schema: database.Schema, MaxConns: connections,
		StatementTimeout: database.StatementTimeout, LockTimeout: database.LockTimeout, IdleInTxTimeout: database.IdleInTxTimeout,
		RestoreGuard: database.Guarded(), Handlers: e.handlers, Tracer: e.options.tracer, ReplyMargin: e.options.margin,
		Frozen: func(sessions int) {
			e.options.logger.Warn("sessions of an engine ended that was frozen in a round", "sessions", sessions)
		},
	}
}

// Close hands the last metrics to their readers and closes every connection. Call it after Run has returned.
func (e *Engine) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), serveGrace)
	defer cancel()
	_ = e.signals.Shutdown(ctx) // what could not be exported has been told
	e.inserter.Close()
	e.store.Close()
}

// handlerName is what a recipient rule can write.
var handlerName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Register makes a Go function available to handler rules under name. It is an error to register a name
// twice, a name that no rule could write, a nil handler, or anything once Run, Prepare, Round or Compare was called.
func (e *Engine) Register(name string, h Handler) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.started || e.fixed:
		return fmt.Errorf("register handler %q: the engine has started; register before Run, Prepare and Round", name)
	case !handlerName.MatchString(name):
		return fmt.Errorf("register handler %q: a name is lower case letters, digits and underscores, and begins with a letter", name)
	case h == nil:
		return fmt.Errorf("register handler %q: the function is nil", name)
	case e.handlers[name] != nil:
		return fmt.Errorf("register handler %q: the name is taken", name)
	}
	e.handlers[name] = h
	return nil
}

// fix ends registering: from now on the handlers are read without a lock.
func (e *Engine) fix() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fixed = true
}

// States is where every consumer that has a cursor stands, by name.
func (e *Engine) States(ctx context.Context) ([]State, error) { return e.store.States(ctx) }

// Round runs one round of a declared consumer and says how it ended. Run does this by itself; a program that
// paces its rounds otherwise calls Prepare once and then Round.
func (e *Engine) Round(ctx context.Context, name string) (Outcome, error) {
	e.fix()
	for _, c := range Consumers(e.config) {
		if c.Name == name {
			return notifying{e}.Round(ctx, c), nil
		}
	}
	return Outcome{}, fmt.Errorf("consumer %q is not declared in %s", name, e.config.File())
}

// notifying runs rounds, and tells River's workers of the jobs and the maintenance of a log that fills up.
type notifying struct{ *Engine }

// Round runs one round.
func (n notifying) Round(ctx context.Context, c round.Consumer) Outcome {
	if held := n.guard.hold(); held != nil {
		o := n.heldRound(held)
		n.note(ctx, c.Name, &o, 0)
		return o
	}
	begin := time.Now()
	o := n.service.Round(ctx, c)
	n.note(ctx, c.Name, &o, time.Since(begin))
	if o.Jobs > 0 {
		n.inserter.Inserted(c.Job.Queue)
	}
	if o.Head > 0 && o.Room <= n.headroomWanted() {
		select {
		case n.fill <- struct{}{}:
		default:
		}
	}
	return o
}

// Consumers are the declared consumers as the core sees them, in the order of the file.
func Consumers(cfg *config.Config) []round.Consumer { return cfg.Rounds() }

// rounds is the store as the consumers see it.
type rounds struct{ *postgres.Store }

// Round runs one transaction of a consumer.
func (r rounds) Round(ctx context.Context, c round.Consumer, run func(context.Context, consumer.Tx) bool) error {
	return r.Store.Round(ctx, c, func(ctx context.Context, tx *postgres.Tx) bool { return run(ctx, tx) })
}

// checkRules asks the database about every query rule and looks up every handler, and reports all that is
// wrong with their places in the file. An error is one of the connection.
func (e *Engine) checkRules(ctx context.Context) (problem.List, error) {
	var problems problem.List
	for i, c := range e.config.Consumers {
		path := fmt.Sprintf("consumers[%d].recipients.%s", i, c.Recipients.Rule)
		report := func(code, what, fix string) {
			problems = append(problems, problem.Problem{At: e.config.At(path), Severity: problem.Error, Code: code, What: what, Fix: fix})
		}
		switch c.Recipients.Rule {
		case config.RuleHandler:
			if e.handlers[c.Recipients.Handler] == nil {
				report("unknown-handler", fmt.Sprintf("handler %q of consumer %q is not registered in this program%s", c.Recipients.Handler, c.Name, e.nearestHandler(c.Recipients.Handler)),
					"register it with engine.Register, or run the program that does")
			}
		case config.RuleQuery:
			found, err := e.store.CheckRule(ctx, c.Recipients.Query)
			if err != nil {
				return problems, err
			}
			for _, f := range found {
				problems = append(problems, ruleProblem(e.config, i, f))
			}
		case config.RuleNone, config.RuleField, config.RuleList:
		}
	}
	return problems, nil
}

// nearestHandler is a hint at the name that was meant.
func (e *Engine) nearestHandler(name string) string {
	known := make([]string, 0, len(e.handlers))
	for h := range e.handlers {
		known = append(known, h)
	}
	if near := problem.Nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}
