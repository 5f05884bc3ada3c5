// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// MakePartitions makes the partitions that are missing ahead of the head, and answers how many it made.
func (s *Store) MakePartitions(ctx context.Context, size int64, ahead int) (int, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	made, err := MakePartitions(ctx, s.pool, s.options.Schema, size, ahead)
	if made > 0 && err == nil {
		// the run that finds nothing to make lets the producers know of what the others made
		_, err = MakePartitions(ctx, s.pool, s.options.Schema, size, ahead)
	}
	return made, err
}

// Dropped is a partition that retention let go.
type Dropped struct{ First, Last int64 }

// dropAttempts bounds how often the drop of one partition is tried before it is left for the next time. Each
// attempt holds up readers and producers for a tenth of a second at most.
const dropAttempts = 5

// DropExpired drops the whole partitions whose newest event is older than retention, oldest first, and answers
// which; also with an error. The one that holds the head is never dropped. Several processes may do this at
// once: one of them does the work.
func (s *Store) DropExpired(ctx context.Context, retention time.Duration) (dropped []Dropped, err error) {
	for {
		one, err := s.dropOldest(ctx, retention)
		if err != nil || one == nil {
			return dropped, err
		}
		dropped = append(dropped, *one)
	}
}

// dropOldest drops one partition, or none. A lock that is not free is tried again after a while.
func (s *Store) dropOldest(ctx context.Context, retention time.Duration) (*Dropped, error) {
	pause := 100 * time.Millisecond
	for attempt := 1; ; attempt++ {
		one, err := s.dropOnce(ctx, retention)
		var cause *Failure
		if err == nil || attempt == dropAttempts || !errors.As(err, &cause) || !cause.Transient() {
			return one, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
		pause *= 2
	}
}

func (s *Store) dropOnce(ctx context.Context, retention time.Duration) (*Dropped, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	var first, last pgtype.Int8
	err := s.pool.QueryRow(ctx, `SELECT d.first, d.last FROM `+s.schema+`.drop_expired_partition($1) d`, retention).Scan(&first, &last)
	if err != nil {
		return nil, failed("drop a partition whose events are older than sync.event_retention", err)
	}
	if !first.Valid {
		return nil, nil
	}
	return &Dropped{first.Int64, last.Int64}, nil
}
