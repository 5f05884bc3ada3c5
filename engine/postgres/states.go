// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// State is where one consumer stands.
type State struct {
	Name       string
	LastSeq    int64         // its cursor
	HeadSeq    int64         // the head of the log
	PendingAge time.Duration // how long the oldest event above the cursor has waited; 0 when there is none
	UpdatedAt  time.Time     // when the cursor last moved
}

// Lag is how many events the consumer has still to see, never below 0.
func (s State) Lag() int64 { return max(0, s.HeadSeq-s.LastSeq) }

// States are all consumers that have a cursor, by name, read in one statement. Ages are taken by the
// clock of the database, so that two clocks are never mixed.
func (s *Store) States(ctx context.Context) ([]State, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	rows, err := s.pool.Query(ctx, `SELECT c.name, c.last_seq, h.seq, c.updated_at,
	greatest(0, COALESCE(extract(epoch FROM clock_timestamp() - COALESCE(
		(SELECT occurred_at FROM `+s.schema+`.event_log WHERE seq = c.last_seq + 1),
		(SELECT occurred_at FROM `+s.schema+`.event_log WHERE seq > c.last_seq ORDER BY seq LIMIT 1))), 0))::float8
FROM `+s.schema+`.event_consumer_cursors c CROSS JOIN (SELECT seq FROM `+s.schema+`.event_seq LIMIT 1) h ORDER BY c.name`)
	if err != nil {
		return nil, failed("read the state of the consumers", err)
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (State, error) {
		var state State
		var age float64
		err := row.Scan(&state.Name, &state.LastSeq, &state.HeadSeq, &state.UpdatedAt, &age)
		state.PendingAge = time.Duration(age * float64(time.Second))
		return state, err
	})
	return states, failed("read the state of the consumers", err)
}
