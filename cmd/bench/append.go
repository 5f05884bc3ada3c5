// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// appendWays are ways for a transaction to write one row of its own and one event. The first is the usual
// counter row, taken where the event is written; the last has gaps and is no log, but the upper limit.
var appendWays = []struct {
	name string
	sql  [2]string
}{
	{"counter first", [2]string{
		`WITH n AS (UPDATE bench_counter SET seq = seq + 1 RETURNING seq) INSERT INTO bench_log (seq, type) SELECT seq, 'order.placed' FROM n`,
		`INSERT INTO bench_own (state) VALUES ('paid')`,
	}},
	{"append_event", [2]string{
		`SELECT bothy.append_event('order.placed', 'order', 'ord-1', NULL, NULL)`,
		`INSERT INTO bench_own (state) VALUES ('paid')`,
	}},
	{"bigserial", [2]string{
		`INSERT INTO bench_log (type) VALUES ('order.placed')`,
		`INSERT INTO bench_own (state) VALUES ('paid')`,
	}},
}

// appendTime is how long each variant runs.
const appendTime = time.Second

// appends measures producers that write one row of their own and one event per transaction.
func appends(ctx context.Context, b *bench) error {
	consumers, names := entries(1, "recipients: none")
	f, err := b.fixture(ctx, "bench_append", consumers, names)
	if err != nil {
		return err
	}
	defer f.close()
	_, err = f.pool.Exec(ctx, `CREATE TABLE bench_own (id bigserial PRIMARY KEY, state text)`)
	if err == nil {
		_, err = f.pool.Exec(ctx, `CREATE TABLE bench_log (seq bigserial PRIMARY KEY, id uuid DEFAULT gen_random_uuid(), type text, payload jsonb DEFAULT '{}', occurred_at timestamptz DEFAULT clock_timestamp())`)
	}
	if err == nil {
		_, err = f.pool.Exec(ctx, `CREATE TABLE bench_counter AS SELECT 1000000000::bigint AS seq`)
	}
	if err != nil {
		return err
	}
	for _, producers := range []int{1, 16} {
		rates := map[string][]time.Duration{}
		for n := range b.repeat + 1 {
			for _, way := range appendWays {
				done, err := appendFor(ctx, f.url, producers, way.sql)
				if err != nil {
					return fmt.Errorf("%s: %w", way.name, err)
				}
				if n > 0 {
					rates[way.name] = append(rates[way.name], appendTime/time.Duration(max(1, done)))
				}
			}
		}
		median := func(name string) float64 { return quantile(rates[name], 0.5).Seconds() }
		label := fmt.Sprintf("%d producers: append_event to ", producers)
		b.note(label+"a counter taken first", median("counter first")/median("append_event"))
		b.note(label+"bigserial, which has gaps", median("bigserial")/median("append_event"))
	}
	return nil
}

// appendFor counts the transactions that the producers commit in appendTime.
func appendFor(ctx context.Context, url string, producers int, sql [2]string) (int, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return 0, err
	}
	config.MaxConns = int32(producers) //nolint:gosec // a handful
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	var group errgroup.Group
	counts := make([]int, producers)
	until := time.Now().Add(appendTime)
	for p := range producers {
		group.Go(func() error {
			for time.Now().Before(until) {
				tx, err := pool.Begin(ctx)
				if err != nil {
					return err
				}
				for _, statement := range sql {
					if _, err := tx.Exec(ctx, statement); err != nil {
						return err
					}
				}
				if err := tx.Commit(ctx); err != nil {
					return err
				}
				counts[p]++
			}
			return nil
		})
	}
	err = group.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, err
}
