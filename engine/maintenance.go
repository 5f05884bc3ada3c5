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

// maintain keeps partitions ahead of the head until ctx ends: every minute, and when a round saw that half of
// the room is used.
func (e *Engine) maintain(ctx context.Context) {
	ticker := time.NewTicker(maintenanceInterval)
	defer ticker.Stop()
	ahead := edge{
		logger: e.options.logger,
		fails:  "event log partitions not made ahead", again: "event log partitions made ahead again",
	}
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-e.fill:
			if time.Since(last) < fillInterval {
				continue // the next round asks again
			}
		}
		last = time.Now()
		ahead.record(ctx, e.makePartitions(ctx))
	}
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
		g.logger.WarnContext(ctx, g.fails, slog.String("error.type", errorType(err)))
	case err == nil && g.failing:
		g.failing = false
		g.logger.InfoContext(ctx, g.again)
	}
}
