// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"log/slog"
	"time"
)

const (
	// maintenanceInterval is how often the log is looked after when nothing asks for it.
	maintenanceInterval = time.Minute
	// fillInterval is the shortest time between two runs that rounds ask for. A burst is larger than that only
	// where an append makes its own partition.
	fillInterval = time.Second
)

// maintain looks after the log until ctx ends. It keeps partitions ahead of the head, every minute and when a
// round saw that half of the room is used, and drops the partitions that retention lets go, every minute.
func (e *Engine) maintain(ctx context.Context) {
	ticker := time.NewTicker(maintenanceInterval)
	defer ticker.Stop()
	ahead := edge{
		logger: e.options.logger,
		fails:  "event log partitions not made ahead", again: "event log partitions made ahead again",
	}
	expired := edge{
		logger: e.options.logger,
		fails:  "event log partitions older than sync.event_retention not dropped", again: "event log partitions dropped again",
	}
	expired.record(ctx, e.dropExpired(ctx))
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			expired.record(ctx, e.dropExpired(ctx))
		case <-e.fill:
			if time.Since(last) < fillInterval {
				continue // the next round asks again
			}
		}
		last = time.Now()
		ahead.record(ctx, e.makePartitions(ctx))
	}
}

// dropExpired drops the partitions that retention lets go.
func (e *Engine) dropExpired(ctx context.Context) error {
	dropped, err := e.store.DropExpired(ctx, e.config.Sync.EventRetention)
	if n := len(dropped); n > 0 {
		e.options.logger.InfoContext(ctx, "event log partitions dropped by retention", "partitions", n, "first", dropped[0].First, "last", dropped[n-1].Last)
	}
	return err
}

// edge logs when something that is done again and again begins to fail, and when it no longer does.
type edge struct {
	logger       *slog.Logger
	fails, again string
	failing      bool
}

func (g *edge) record(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil: // a stop is no incident
	case err != nil && !g.failing:
		g.failing = true
		g.logger.WarnContext(ctx, g.fails, slog.String("error.type", errorType(err))) //nolint:sloglint // constants of this file
	case err == nil && g.failing:
		g.failing = false
		g.logger.InfoContext(ctx, g.again) //nolint:sloglint // constants of this file
	}
}
