// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// snapshot measures rounds of one event each while a transaction somewhere keeps an old snapshot open, so that no dead
// version of the counter and of the cursor can be taken away.
func snapshot(ctx context.Context, b *bench) error {
	const rounds, tenth = 5000, 500
	consumers, names := entries(1, "batch: 1, recipients: none")
	f, err := b.fixture(ctx, "bench_snapshot", consumers, names)
	if err != nil {
		return err
	}
	defer f.close()
	walk := func() (took []time.Duration, err error) {
		for range rounds {
			if err := f.fill(ctx, 1); err != nil {
				return nil, err
			}
			d, err := timed(func() error { return f.drain(ctx, shape{batch: 1, fanout: 1, rounds: 1}) })
			if err != nil {
				return nil, err
			}
			took = append(took, d)
		}
		return took, nil
	}
	free, err := walk()
	if err != nil {
		return err
	}
	holder, err := pgx.Connect(ctx, f.url)
	if err != nil {
		return err
	}
	defer func() { _ = holder.Close(ctx) }()
	if _, err := holder.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM bothy.event_log`); err != nil {
		return err
	}
	held, err := walk()
	if err != nil {
		return err
	}
	median := func(d []time.Duration) float64 { return quantile(d, 0.5).Seconds() }
	b.note(fmt.Sprintf("the last of %d rounds under an old snapshot, to the first", rounds), median(held[rounds-tenth:])/median(held[:tenth]))
	b.note("the same without one", median(free[rounds-tenth:])/median(free[:tenth]))
	b.note("the slowest one in a hundred under it, to that without", quantile(slices.Clone(held), 0.99).Seconds()/quantile(free, 0.99).Seconds())
	if _, err := holder.Exec(ctx, `COMMIT`); err != nil {
		return err
	}
	after, err := walk()
	if err != nil {
		return err
	}
	b.note("rounds after it is gone, to rounds before it came", median(after[tenth:])/median(free[tenth:]))
	return nil
}
