// SPDX-License-Identifier: Apache-2.0

// Package telemetry owns what the engine says about itself in numbers and in the attributes of its log: which
// metrics there are, their names, units and attributes, and where they go.
//
//	rounds (as they end) ----> Signals ----> /metrics (Prometheus, Handler)
//	observations (background)--^     \-----> readers: OTLP (Collector), tests
//	                                  \----> spans of rounds: OTLP (SpanCollector), tests
//
// It asks nobody: values are handed to it, so a scrape never waits for the database and any number of scrapers
// costs the database nothing. A value of the database is shown while it is fresh; after that the series is gone,
// so that an outage shows neither a frozen lag nor a lag of zero.
//
// It knows no database and no round; consumers, ends and reasons are names to it, from sets that are closed when
// it is made.
package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
)

// Options say what there is to measure.
type Options struct {
	Version   string // of the engine
	Consumers []Consumer
	Ends      []string // that a round can have
	Passed    []string // the ends among them that say nothing of the consumer
	Succeeds  []string // the ends among them with which a round ended well
	Works     []string // the ends among them whose duration is measured
	Reasons   []string // for which the process can be not ready

	Digest         uint64        // of the configuration; 48 bits are shown, which every reader keeps exactly
	HeadroomWanted int64         // numbers with a partition, below which more are made
	Fresh          time.Duration // how long an observation is shown
	Ready          func() []string
	Readers        []sdk.Reader             // beside the Prometheus page
	Spans          []sdktrace.SpanProcessor // get a span for each round that did work or failed
}

// Consumer is a declared consumer.
type Consumer struct {
	Name              string
	PendingAlertAfter time.Duration
}

// Observation is what one look at the database found.
type Observation struct {
	Standings []Standing // of every cursor
	Head      int64
	Headroom  int64
	Held      time.Duration // how long partitions have been kept beyond retention; 0 when none is
	Drift     time.Duration // the clock of the database minus that of this process
}

// Standing is where one consumer stands.
type Standing struct {
	Name       string
	Lag        int64
	PendingAge time.Duration
	Aside      int64 // events that it has set aside
}

// Round is how one round ended.
type Round struct {
	Consumer string
	End      string
	Took     time.Duration
	Events   int
	Jobs     int
	Lost     int64
	First    int64 // the first number that was processed

	ErrorType string   // of a round that failed, as the log says it
	Traces    []string // the traceparents of its events, each once
}

// Signals are the metrics of one process. All methods may be called from many goroutines, and none of them waits
// for anything but a lock that is held shortly.
type Signals struct {
	options  Options
	registry *prometheus.Registry
	provider *sdk.MeterProvider
	spans    *sdktrace.TracerProvider               // nil where nobody takes spans
	tracer   trace.Tracer                           // nil with spans
	consumer map[string]metric.MeasurementOption    // by name
	end      map[[2]string]metric.MeasurementOption // by name and end
	reason   map[string]metric.MeasurementOption
	rounds   metric.Int64Counter
	events   metric.Int64Counter
	jobs     metric.Int64Counter
	lost     metric.Int64Counter
	duration metric.Float64Histogram

	mu       sync.Mutex
	began    time.Time
	observed time.Time // zero before the first observation
	newest   Observation
	listens  *bool // nil where nothing listens
	last     map[string]lastRound
}

// lastRound is what the newest rounds of a consumer say of it.
type lastRound struct {
	end     string    // empty before the first that says something
	success time.Time // of the newest that ended well, or of the first round
}

// scope names this library in what is exported.
const scope = "example.com/bothy"

// New makes the instruments. Shutdown ends them.
func New(o Options) (*Signals, error) {
	s := &Signals{
		options: o, registry: prometheus.NewRegistry(), began: time.Now(),
		consumer: map[string]metric.MeasurementOption{}, end: map[[2]string]metric.MeasurementOption{},
		reason: map[string]metric.MeasurementOption{}, last: map[string]lastRound{},
	}
	page, err := exporter.New(
		exporter.WithRegisterer(s.registry), exporter.WithoutScopeInfo(),
		// written out, since alerts and dashboards stand on the names
		exporter.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes),
	)
	if err != nil {
		return nil, fmt.Errorf("make the page of metrics: %w", err)
	}
	options := []sdk.Option{
		sdk.WithResource(process(o.Version)), sdk.WithReader(page),
		// Every attribute comes from a closed set, and past the SDK's own limit of 2000 a consumer would have no
		// series of its own, without a word.
		sdk.WithCardinalityLimit(0),
	}
	for _, r := range o.Readers {
		options = append(options, sdk.WithReader(r))
	}
	s.provider = sdk.NewMeterProvider(options...)
	s.attributes()
	s.tracing()
	if err := s.instruments(s.provider.Meter(scope)); err != nil {
		return nil, fmt.Errorf("make the instruments: %w", err)
	}
	return s, nil
}

// attributes makes the attribute sets once: a round must not pay for them.
func (s *Signals) attributes() {
	for _, c := range s.options.Consumers {
		s.consumer[c.Name] = measured(attribute.String(AttrConsumer, c.Name))
		for _, end := range s.options.Ends {
			s.end[[2]string{c.Name, end}] = measured(attribute.String(AttrConsumer, c.Name), attribute.String(AttrEnd, end))
		}
	}
	for _, r := range s.options.Reasons {
		s.reason[r] = measured(attribute.String(AttrReason, r))
	}
}

func measured(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attrs...))
}

// Begin shows the counters of every declared consumer as 0: a counter whose first value is 1 has not increased as
// far as an alert can see. A process that runs no rounds does not call it.
func (s *Signals) Begin(ctx context.Context) {
	for _, c := range s.options.Consumers {
		for _, counter := range []metric.Int64Counter{s.events, s.jobs, s.lost} {
			counter.Add(ctx, 0, s.consumer[c.Name])
		}
		for _, end := range s.options.Ends {
			s.rounds.Add(ctx, 0, s.end[[2]string{c.Name, end}])
		}
	}
}

// Round takes note of a round. Rounds of consumers and with ends that Options did not name are passed over.
func (s *Signals) Round(ctx context.Context, r Round) {
	consumer, end := s.consumer[r.Consumer], s.end[[2]string{r.Consumer, r.End}]
	if consumer == nil || end == nil {
		return
	}
	s.rounds.Add(ctx, 1, end)
	if r.Events > 0 {
		s.events.Add(ctx, int64(r.Events), consumer)
		s.jobs.Add(ctx, int64(r.Jobs), consumer)
	}
	if r.Lost > 0 {
		s.lost.Add(ctx, r.Lost, consumer)
	}
	if slices.Contains(s.options.Works, r.End) {
		s.duration.Record(ctx, r.Took.Seconds(), consumer)
		s.span(ctx, r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.last[r.Consumer]
	if last.success.IsZero() || slices.Contains(s.options.Succeeds, r.End) {
		last.success = time.Now()
	}
	if !slices.Contains(s.options.Passed, r.End) {
		last.end = r.End
	}
	s.last[r.Consumer] = last
}

// LastEnds is the newest end of each consumer that has had a round in this process.
func (s *Signals) LastEnds() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ends := map[string]string{}
	for name, last := range s.last {
		if last.end != "" {
			ends[name] = last.end
		}
	}
	return ends
}

// Listens says whether the connection listens that wakes the consumers.
func (s *Signals) Listens(now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listens = &now
}

// Observed takes note of a successful look at the database.
func (s *Signals) Observed(o Observation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observed, s.newest = time.Now(), o
}

// Handler serves the Prometheus page.
func (s *Signals) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// maxScrapes is how many scrapes are answered at once. More are refused: that is no Prometheus.
const maxScrapes = 20

// Shutdown hands what was measured to the readers a last time, and what is left of the spans to their processors, and
// ends them.
func (s *Signals) Shutdown(ctx context.Context) error {
	var ended errgroup.Group // at once: one collector that hangs must not take the other's time
	ended.Go(func() error {
		if err := s.provider.Shutdown(ctx); err != nil {
			return fmt.Errorf("end the export of metrics: %w", err)
		}
		return nil
	})
	if s.spans != nil {
		ended.Go(func() error {
			if err := s.spans.Shutdown(ctx); err != nil {
				return fmt.Errorf("end the export of spans: %w", err)
			}
			return nil
		})
	}
	return ended.Wait()
}
