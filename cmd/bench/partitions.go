// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"
)

// split is into how many partitions the same log is cut.
const split = 200

// partitions measures rounds over a log of many partitions against the same rounds over one of a single partition.
func partitions(ctx context.Context, b *bench) error {
	const batch = 100
	walks := map[int]*fixture{}
	for _, n := range []int{1, split} {
		f, err := b.observedBy(ctx, fmt.Sprintf("bench_split_%d", n), fmt.Sprintf("batch: %d, recipients: none", batch), 1, n)
		if err != nil {
			return err
		}
		defer f.close()
		walks[n] = f
	}
	rounds := (eventsBehind - 1) / batch
	var one, many []time.Duration
	for n := range b.repeat + 1 {
		took := map[int]time.Duration{}
		for _, f := range walks {
			if err := f.restart(ctx); err != nil {
				return err
			}
		}
		for range rounds { // taking turns, so that both meet the same machine
			for _, into := range []int{1, split} {
				f := walks[into]
				d, err := timed(func() error { return f.drain(ctx, shape{batch: batch, fanout: 1, rounds: 1}) })
				if err != nil {
					return err
				}
				took[into] += d
			}
		}
		if n > 0 { // the first time warms
			one, many = append(one, took[1]), append(many, took[split])
		}
	}
	b.goal(fmt.Sprintf("rounds over %d partitions, to rounds over one", split), medianRatio(many, one), false, 1.15)
	return nil
}

// restart has every consumer read the log from its first event.
func (f *fixture) restart(ctx context.Context) error {
	if err := f.clear(ctx); err != nil {
		return err
	}
	_, err := f.pool.Exec(ctx, `UPDATE bothy.event_consumer_cursors SET last_seq = 0`)
	return err
}
