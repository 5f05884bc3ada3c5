// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/bothy/engine"
	"example.com/bothy/engine/config"
	"example.com/bothy/engine/postgres"
)

// fixture is a migrated database of its own with an engine on it.
type fixture struct {
	url    string
	pool   *pgxpool.Pool
	engine *engine.Engine
	names  []string
}

// fixture makes a database for the consumers of a configuration. names are their names.
func (b *bench) fixture(ctx context.Context, name, consumers string, names []string, options ...engine.Option) (*fixture, error) {
	admin, err := pgx.Connect(ctx, b.server.URL("postgres", "postgres"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = admin.Close(ctx) }()
	if _, err := admin.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, err
	}
	f := &fixture{url: b.server.URL("postgres", name), names: names}
	text := "version: 1\ndatabase: {url: '${URL}'}\nconsumer: {poll_interval: 1h}\njobs: {migrate: true}\nconsumers:\n" + consumers
	cfg, problems := config.Parse("bench.yaml", []byte(text), func(string) (string, bool) { return f.url, true })
	if err := problems.Err(); err != nil {
		return nil, err
	}
	_, err = postgres.Migrate(ctx, postgres.MigrateOptions{
		AdminURL: f.url, Schema: "bothy", ConsumerNames: names, PartitionSize: 10_000_000, PartitionsAhead: 1, JobsSchema: "public", JobsMigrate: true,
	})
	if err != nil {
		return nil, err
	}
	if f.pool, err = pgxpool.New(ctx, f.url); err != nil {
		return nil, err
	}
	if f.engine, err = engine.Open(ctx, cfg, options...); err != nil {
		return nil, err
	}
	return f, f.engine.Prepare(ctx)
}

func (f *fixture) close() {
	f.engine.Close()
	f.pool.Close()
}

// fill appends n events of one type.
func (f *fixture) fill(ctx context.Context, n int) error {
	_, err := f.pool.Exec(ctx, `SELECT bothy.append_events((SELECT jsonb_agg(jsonb_build_object('type', 'order.placed')) FROM generate_series(1, $1)))`, n)
	return err
}

// clear empties the jobs table and moves every cursor to the head, so that each measurement starts alike.
func (f *fixture) clear(ctx context.Context) error {
	for _, sql := range []string{
		`TRUNCATE public.river_job`,
		`UPDATE bothy.event_consumer_cursors SET last_seq = (SELECT seq FROM bothy.event_seq)`,
		`CHECKPOINT`, // what one variant left to write does not slow the next
	} {
		if _, err := f.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// timed is how long run takes.
func timed(run func() error) (time.Duration, error) {
	start := time.Now()
	err := run()
	return time.Since(start), err
}

// quantile is a value of a sorted copy; 0.5 is the median.
func quantile(values []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// medianRatio is the median of a[i] / b[i].
func medianRatio(a, b []time.Duration) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i].Seconds() / b[i].Seconds()
	}
	slices.Sort(ratios)
	return ratios[len(ratios)/2]
}

// entries writes consumers that differ in their names only.
func entries(n int, rest string) (yaml string, names []string) {
	var b strings.Builder
	for i := range n {
		name := fmt.Sprintf("bench-%d", i+1)
		names = append(names, name)
		fmt.Fprintf(&b, "  - {name: %s, job: {kind: bench.job}, %s}\n", name, rest)
	}
	return b.String(), names
}
