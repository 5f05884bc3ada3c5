// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"time"
)

// State is where one consumer stands.
type State struct {
	Name       string
	LastSeq    int64         // its cursor
	HeadSeq    int64         // the head of the log
	PendingAge time.Duration // how long the oldest event above the cursor has waited; 0 when there is none
	Aside      int64         // events that it has set aside
	UpdatedAt  time.Time     // when the cursor last moved
}

// Lag is how many events the consumer has still to see, never below 0.
func (s State) Lag() int64 { return max(0, s.HeadSeq-s.LastSeq) }

// States are all consumers that have a cursor, by name.
func (s *Store) States(ctx context.Context) ([]State, error) {
	o, err := s.Observe(ctx)
	return o.Consumers, err
}
