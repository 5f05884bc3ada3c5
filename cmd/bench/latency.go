// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine"
)

// latencySamples is how often each latency is measured.
const latencySamples = 400

// seen is one consumer that has committed jobs.
type seen struct {
	consumer string
	at       time.Time
}

// latency measures how long it takes from the COMMIT of an event until its job is committed, on an idle
// system, against a raw notification of the same run.
func latency(ctx context.Context, b *bench) error {
	raw, one, err := b.latencyOf(ctx, "bench_latency_1", 1)
	if err != nil {
		return err
	}
	b.goal("commit to job, p50, to a raw notification", ratio(one, raw, 0.5), false, 3)
	b.goal("commit to job, p99, to a raw notification", ratio(one, raw, 0.99), false, 8)
	const many = 20
	_, twenty, err := b.latencyOf(ctx, "bench_latency_20", many)
	if err != nil {
		return err
	}
	b.goal(fmt.Sprintf("%d consumers, p99 of all, to that of one", many), ratio(twenty, one, 0.99), false, 3)
	return nil
}

func ratio(a, b []time.Duration, q float64) float64 {
	return quantile(a, q).Seconds() / quantile(b, q).Seconds()
}

// latencyOf measures with n consumers. Raw notifications are measured in between.
func (b *bench) latencyOf(ctx context.Context, database string, n int) (raw, full []time.Duration, err error) {
	commits := make(chan seen, 10*n)
	observe := engine.WithObserver(func(consumer string, o engine.Outcome) {
		if o.Jobs > 0 {
			commits <- seen{consumer, time.Now()}
		}
	})
	consumers, names := entries(n, "recipients: none")
	f, err := b.fixture(ctx, database, consumers, names, observe)
	if err != nil {
		return nil, nil, err
	}
	defer f.close()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- f.engine.Run(running, engine.RoleWorker) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	sender, err := pgx.Connect(ctx, f.url)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = sender.Close(ctx) }()
	listener, err := pgx.Connect(ctx, f.url)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = listener.Close(ctx) }()
	if _, err := listener.Exec(ctx, `LISTEN bench`); err != nil {
		return nil, nil, err
	}
	if _, err := sender.Exec(ctx, `CREATE TABLE bench_own (id bigserial PRIMARY KEY)`); err != nil {
		return nil, nil, err
	}
	const warm = 50
	for i := range latencySamples + warm {
		r, err := rawNotification(ctx, sender, listener)
		if err != nil {
			return nil, nil, err
		}
		each, err := oneEvent(ctx, sender, commits, n)
		if err != nil {
			return nil, nil, err
		}
		if i >= warm {
			raw, full = append(raw, r), append(full, each...)
		}
	}
	return raw, full, nil
}

// rawNotification is the time from the COMMIT of a notification until it is received.
func rawNotification(ctx context.Context, sender, listener *pgx.Conn) (time.Duration, error) {
	// it writes a row, like a transaction that appends: without one its commit would not be flushed
	for _, sql := range []string{`BEGIN`, `INSERT INTO bench_own DEFAULT VALUES`, `NOTIFY bench`} {
		if _, err := sender.Exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	received := make(chan error, 1)
	var at time.Time
	go func() {
		_, err := listener.WaitForNotification(ctx)
		at = time.Now()
		received <- err
	}()
	start := time.Now()
	if _, err := sender.Exec(ctx, `COMMIT`); err != nil {
		return 0, err
	}
	err := <-received
	return at.Sub(start), err
}

// oneEvent is the time from the COMMIT of an event until each consumer has committed its job.
func oneEvent(ctx context.Context, sender *pgx.Conn, commits <-chan seen, n int) ([]time.Duration, error) {
	for _, sql := range []string{`BEGIN`, `SELECT bothy.append_event('order.placed', 'order', 'ord-1', NULL, NULL)`} {
		if _, err := sender.Exec(ctx, sql); err != nil {
			return nil, err
		}
	}
	start := time.Now()
	if _, err := sender.Exec(ctx, `COMMIT`); err != nil {
		return nil, err
	}
	took := make([]time.Duration, 0, n)
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	for range n {
		select {
		case s := <-commits:
			took = append(took, s.at.Sub(start))
		case <-limit.C:
			return nil, fmt.Errorf("only %d of %d consumers saw the event", len(took), n)
		}
	}
	return took, nil
}
