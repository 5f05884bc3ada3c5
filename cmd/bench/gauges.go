// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	manyConsumers  = 500
	manyPartitions = 500
	// eventsBehind are spread over the partitions, and the cursors over the events.
	eventsBehind = 50_000
)

// gauges measures the look at the database from which the metrics come, and the page that shows them.
func gauges(ctx context.Context, b *bench) error {
	one, err := b.observed(ctx, "bench_one", 1, 1)
	if err != nil {
		return err
	}
	defer one.close()
	many, err := b.observed(ctx, "bench_many", manyConsumers, manyPartitions)
	if err != nil {
		return err
	}
	defer many.close()
	looks := map[*fixture][]time.Duration{}
	for n := range 10*b.repeat + 1 {
		for _, f := range []*fixture{one, many} {
			took, err := timed(func() error {
				_, err := f.engine.Observe(ctx)
				return err
			})
			if err != nil {
				return err
			}
			if n > 0 {
				looks[f] = append(looks[f], took)
			}
		}
	}
	ratio := quantile(looks[many], 0.5).Seconds() / quantile(looks[one], 0.5).Seconds()
	b.note(fmt.Sprintf("one look at %d consumers and %d partitions, to one at 1 and 1", manyConsumers, manyPartitions), ratio)
	b.goal("the same, to a look of its own for each consumer", ratio/manyConsumers, false, 0.2)
	return b.scrapes(ctx, many)
}

// observed is a fixture whose cursors stand all over a log of so many partitions.
func (b *bench) observed(ctx context.Context, name string, consumers, partitions int) (*fixture, error) {
	return b.observedBy(ctx, name, "recipients: none", consumers, partitions)
}

// observedBy is observed with other consumers.
func (b *bench) observedBy(ctx context.Context, name, rest string, consumers, partitions int) (*fixture, error) {
	text, names := entries(consumers, rest)
	f, err := b.fixture(ctx, name, text, names)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{
		// The partition of the fixture holds everything: it is replaced by small ones.
		`DO $$ DECLARE p text; BEGIN FOR p IN SELECT name FROM bothy.event_log_partitions() LOOP EXECUTE format('DROP TABLE bothy.%I', p); END LOOP; END $$`,
		`UPDATE bothy.event_seq SET upper_bound = 1, settled = 1`,
		fmt.Sprintf(`SELECT bothy.make_partitions(%d, %d)`, eventsBehind/partitions, max(0, partitions-1)),
		fmt.Sprintf(`SELECT bothy.append_events((SELECT jsonb_agg(jsonb_build_object('type', 'order.placed')) FROM generate_series(1, %d)))`, eventsBehind-1),
		fmt.Sprintf(`UPDATE bothy.event_consumer_cursors SET last_seq = abs(hashtext(name)) %% %d`, eventsBehind-1),
		`VACUUM ANALYZE bothy.event_log`, `VACUUM ANALYZE bothy.event_consumer_cursors`,
	} {
		if _, err := f.pool.Exec(ctx, sql); err != nil {
			f.close()
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	o, err := f.engine.Observe(ctx)
	if err == nil && (len(o.Consumers) != consumers || o.Partitions != partitions) {
		err = fmt.Errorf("%s has %d cursors and %d partitions, want %d and %d", name, len(o.Consumers), o.Partitions, consumers, partitions)
	}
	if err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// scrapes measures the page while a look is blocked against the page while nothing is.
func (b *bench) scrapes(ctx context.Context, f *fixture) error {
	handler := f.engine.Handler()
	scrape := func() (all []time.Duration, err error) {
		for range 20 * b.repeat {
			answer := httptest.NewRecorder()
			took, _ := timed(func() error {
				handler.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody))
				return nil
			})
			if answer.Code != http.StatusOK {
				return nil, fmt.Errorf("/metrics answered %d", answer.Code)
			}
			all = append(all, took)
		}
		return all, nil
	}
	free, err := scrape()
	if err == nil {
		free, err = scrape() // the first ones were cold
	}
	if err != nil {
		return err
	}
	holder, err := pgx.Connect(ctx, f.url)
	if err != nil {
		return err
	}
	defer func() { _ = holder.Close(ctx) }()
	if _, err := holder.Exec(ctx, `BEGIN; LOCK TABLE bothy.event_log IN ACCESS EXCLUSIVE MODE`); err != nil {
		return err
	}
	looking, stop := context.WithCancel(ctx)
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		_, _ = f.engine.Observe(looking) // waits for the lock
	}()
	blocked, err := scrape()
	stop()
	<-looked
	if err != nil {
		return err
	}
	b.goal("a scrape while the look is blocked, to one while it is not", quantile(blocked, 0.5).Seconds()/quantile(free, 0.5).Seconds(), false, 3)
	return nil
}
