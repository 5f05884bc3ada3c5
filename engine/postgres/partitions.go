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

// Retention says which partitions may go.
type Retention struct {
	Keep    time.Duration // events are kept at least so long; the database may know a longer time
	Readers []string      // the declared consumers
	Hold    bool          // keep what one of Readers has still to read, however old it is
}

// Dropped is a partition that retention let go.
type Dropped struct {
	First, Last int64
	Unread      []string // the consumers that had still to read it, sorted
}

// Held is a partition that is old enough to go and is kept for consumers that have still to read it.
type Held struct {
	First, Last int64
	Unread      []string  // those consumers, sorted
	Until       time.Time // it goes then at the latest; zero when it waits for them
}

// dropAttempts bounds how often the drop of one partition is tried before it is left for the next time. Each
// attempt holds up readers and producers for a tenth of a second at most.
const dropAttempts = 5

// DropExpired drops the whole partitions whose newest event is too old, oldest first, and answers which; also with
// an error. The one that holds the head is never dropped, nor is any on a database whose restore is not finalized
// (unless the restore guard is off). It stops at the first one that is kept for a consumer, and answers that
// too. Several processes may do this at once: one of them does the work.
func (s *Store) DropExpired(ctx context.Context, r Retention) (dropped []Dropped, held *Held, err error) {
	for {
		one, held, err := s.dropOldest(ctx, r)
		if err != nil || one == nil {
			return dropped, held, err
		}
		dropped = append(dropped, *one)
	}
}

// dropOldest drops one partition, or none. A lock that is not free is tried again after a while.
func (s *Store) dropOldest(ctx context.Context, r Retention) (*Dropped, *Held, error) {
	pause := 100 * time.Millisecond
	for attempt := 1; ; attempt++ {
		one, held, err := s.dropOnce(ctx, r)
		var cause *Failure
		if err == nil || attempt == dropAttempts || !errors.As(err, &cause) || !cause.Transient() {
			return one, held, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, ctx.Err()
		case <-timer.C:
		}
		pause *= 2
	}
}

// dropOnce lets the function compare the identity in its own transaction. It runs with the owner's rights, so this
// role, which may read the identity where the owner may not, hands it over.
func (s *Store) dropOnce(ctx context.Context, r Retention) (*Dropped, *Held, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	system, timeline := s.currentIdentity()
	var first, last pgtype.Int8
	var dropped pgtype.Bool
	var unread []string
	var until pgtype.Timestamptz
	err := s.pool.QueryRow(ctx, `SELECT d.first, d.last, d.dropped, d.unread, d.until FROM `+s.schema+`.drop_expired_partition($1, $2, $3, `+system+`, `+timeline+`) d`,
		r.Keep, r.Readers, r.Hold).Scan(&first, &last, &dropped, &unread, &until)
	switch {
	case err != nil:
		return nil, nil, failed("drop a partition whose events are older than sync.event_retention", err)
	case !first.Valid:
		return nil, nil, nil
	case !dropped.Bool:
		return nil, &Held{first.Int64, last.Int64, unread, until.Time}, nil
	default:
		return &Dropped{first.Int64, last.Int64, unread}, nil, nil
	}
}
