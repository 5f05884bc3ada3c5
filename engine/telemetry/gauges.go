// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// durationBounds are the buckets of a round's duration, in seconds: from one round trip to what
// database.statement_timeout allows.
var durationBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// instruments makes every declared instrument of the meter.
func (s *Signals) instruments(meter metric.Meter) error {
	var errs []error
	counters := map[string]*metric.Int64Counter{rounds: &s.rounds, events: &s.events, jobs: &s.jobs, lost: &s.lost}
	whole, split := map[string]metric.Int64ObservableGauge{}, map[string]metric.Float64ObservableGauge{}
	var observables []metric.Observable
	for _, i := range Instruments() {
		unit, means := metric.WithUnit(i.Unit), metric.WithDescription(i.Means)
		var err error
		switch {
		case i.Kind == Counter:
			*counters[i.Name], err = meter.Int64Counter(i.Name, unit, means)
		case i.Kind == Histogram:
			s.duration, err = meter.Float64Histogram(i.Name, unit, means, metric.WithExplicitBucketBoundaries(durationBounds...))
		case i.Unit == "s":
			split[i.Name], err = meter.Float64ObservableGauge(i.Name, unit, means)
			observables = append(observables, split[i.Name])
		default:
			whole[i.Name], err = meter.Int64ObservableGauge(i.Name, unit, means)
			observables = append(observables, whole[i.Name])
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s.observe(gauges{to, whole, split})
		return nil
	}, observables...)
	return err
}

// gauges writes values by the name of their instrument.
type gauges struct {
	to    metric.Observer
	whole map[string]metric.Int64ObservableGauge
	split map[string]metric.Float64ObservableGauge
}

func (g gauges) number(name string, value int64, options ...metric.ObserveOption) {
	g.to.ObserveInt64(g.whole[name], value, options...)
}

func (g gauges) seconds(name string, value time.Duration, options ...metric.ObserveOption) {
	g.to.ObserveFloat64(g.split[name], value.Seconds(), options...)
}

// observe writes what is known now. It runs in the scrape, so it waits for nothing.
func (s *Signals) observe(to gauges) {
	reasons := s.options.Ready() // before the lock: it may take locks of its own
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observeProcess(to, reasons)
	s.observeRounds(to)
	if s.fresh() {
		s.observeDatabase(to)
	}
}

func (s *Signals) fresh() bool {
	return !s.observed.IsZero() && time.Since(s.observed) < s.options.Fresh
}

func (s *Signals) observeProcess(to gauges, reasons []string) {
	for _, c := range s.options.Consumers {
		to.seconds(pendingAlertAfter, c.PendingAlertAfter, s.consumer[c.Name])
	}
	since := s.began
	if !s.observed.IsZero() {
		since = s.observed
	}
	to.seconds(observationAge, time.Since(since))
	to.to.ObserveFloat64(to.split[startTime], float64(s.began.UnixMilli())/1000)
	to.number(headroomWanted, s.options.HeadroomWanted)
	to.number(configDigest, int64(s.options.Digest&(1<<48-1))) //nolint:gosec // 48 bits
	to.number(ready, truth(len(reasons) == 0))
	for _, r := range s.options.Reasons {
		to.number(notReady, truth(slices.Contains(reasons, r)), s.reason[r])
	}
	if s.listens != nil {
		to.number(listenerConnected, truth(*s.listens))
	}
}

func (s *Signals) observeRounds(to gauges) {
	for name, last := range s.last {
		to.seconds(sinceSuccess, time.Since(last.success), s.consumer[name])
		if last.end != "" {
			to.number(lastEnd, 1, s.end[[2]string{name, last.end}])
		}
	}
}

func (s *Signals) observeDatabase(to gauges) {
	for _, c := range s.newest.Standings {
		of := s.consumer[c.Name]
		if of == nil { // a cursor whose consumer is not declared
			of = measured(attribute.String(AttrConsumer, c.Name))
		}
		to.number(lag, max(0, c.Lag), of)
		to.seconds(pendingAge, max(0, c.PendingAge), of)
		to.number(quarantined, c.Aside, of)
	}
	to.number(logHead, s.newest.Head)
	to.number(headroom, s.newest.Headroom)
	to.seconds(held, s.newest.Held)
	to.seconds(clockDrift, s.newest.Drift)
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
