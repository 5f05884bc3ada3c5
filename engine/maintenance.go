// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"example.com/bothy/engine/postgres"
)

const (
	// maintenanceInterval is how often the log is looked after when nothing asks for it.
	maintenanceInterval = time.Minute
	// fillInterval is the shortest time between two runs that rounds ask for. A burst is larger than that only
	// where an append makes its own partition.
	fillInterval = time.Second
)

// maintain looks after the log until ctx ends. It keeps partitions ahead of the head, every minute and when a
// round saw that half of the room is used, and drops the partitions that retention lets go, every minute. The
// first drop comes after a whole interval: after a long standstill the consumers read first.
func (e *Engine) maintain(ctx context.Context) {
	ticker := time.NewTicker(cmp.Or(e.options.maintenance, maintenanceInterval))
	defer ticker.Stop()
	ahead := edge{
		logger: e.options.logger, outage: e.outage.begins,
		fails: "event log partitions not made ahead", again: "event log partitions made ahead again",
	}
	expired := edge{
		logger: e.options.logger, outage: e.outage.begins,
		fails: "event log partitions older than sync.event_retention not dropped", again: "event log partitions dropped again",
	}
	retention := retention{engine: e}
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if e.guard.hold() != nil {
				continue // what is gone no finalize brings back
			}
			expired.record(ctx, retention.drop(ctx))
		case <-e.fill:
			if e.guard.hold() != nil || time.Since(last) < fillInterval {
				continue // the next round asks again
			}
		}
		last = time.Now()
		ahead.record(ctx, e.makePartitions(ctx))
	}
}

// retention drops old partitions, and tells when it begins to keep one for consumers and when it no longer does.
type retention struct {
	engine  *Engine
	holding bool
}

// drop drops the partitions that retention lets go.
func (r *retention) drop(ctx context.Context) error {
	sync, logger := r.engine.config.Sync, r.engine.options.logger
	dropped, held, err := r.engine.store.DropExpired(ctx, postgres.Retention{Keep: sync.EventRetention, Readers: r.engine.config.Names(), Hold: sync.Holds()})
	if n := len(dropped); n > 0 {
		logger.InfoContext(ctx, "event log partitions dropped by retention", "partitions", n, "first", dropped[0].First, "last", dropped[n-1].Last)
	}
	for _, d := range dropped {
		if len(d.Unread) > 0 {
			logger.WarnContext(ctx, "event log partition dropped before consumers had read it", "first", d.First, "last", d.Last, "consumers", d.Unread)
		}
	}
	switch {
	case held != nil && !r.holding:
		r.holding = true
		attributes := []slog.Attr{slog.Int64("first", held.First), slog.Int64("last", held.Last), slog.Any("consumers", held.Unread)}
		if !held.Until.IsZero() {
			attributes = append(attributes, slog.Time("until", held.Until))
		}
		logger.LogAttrs(ctx, slog.LevelWarn, "event log partitions older than sync.event_retention kept: consumers have still to read them", attributes...)
	case held == nil && err == nil && r.holding:
		r.holding = false
		logger.InfoContext(ctx, "event log partitions no longer kept for consumers")
	}
	return err
}

// edge logs when something that is done again and again begins to fail, and when it no longer does.
type edge struct {
	logger       *slog.Logger
	outage       func(context.Context) bool // what fails meanwhile is told elsewhere
	fails, again string
	failing      bool
	since        time.Time
}

func (g *edge) record(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil: // a stop is no incident
	case err != nil && !g.failing && g.outage(ctx):
	case err != nil && !g.failing:
		g.failing, g.since = true, time.Now()
		g.logger.WarnContext(ctx, g.fails, slog.String("error.type", errorType(err))) //nolint:sloglint // constants of this file
	case err == nil && g.failing:
		g.failing = false
		g.logger.InfoContext(ctx, g.again, slog.Duration("duration", time.Since(g.since).Round(time.Millisecond))) //nolint:sloglint // constants of this file
	}
}
