// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"example.com/bothy/engine/jobs"
)

// shape is a batch size and a fan-out, with what a round should reach there.
type shape struct {
	batch, fanout, rounds int
	rawGoal               float64 // of the rate of one raw COPY; 0 for none
}

var shapes = []shape{{1, 1, 400, 0}, {10, 10, 100, 0.48}, {100, 10, 30, 0.75}, {1000, 10, 6, 0.90}}

// ruleFor is a query rule that gives fanout recipients for each event.
func ruleFor(fanout int) string {
	return fmt.Sprintf("SELECT b.seq, 'recipient-' || n AS recipient FROM batch b CROSS JOIN generate_series(1, %d) AS n", fanout)
}

// variant is one way to turn a batch of events into jobs.
type variant struct {
	name string
	run  func(ctx context.Context) error
}

// rounds measures a full round with a query rule.
func rounds(ctx context.Context, b *bench) error {
	for i, s := range shapes {
		if err := b.shape(ctx, fmt.Sprintf("bench_round_%d", i), s); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) shape(ctx context.Context, database string, s shape) error {
	consumers, names := entries(1, fmt.Sprintf(`batch: %d, recipients: {query: "%s"}`, s.batch, ruleFor(s.fanout)))
	f, err := b.fixture(ctx, database, consumers, names)
	if err != nil {
		return err
	}
	defer f.close()
	hand, err := newByHand(ctx, f, s)
	if err != nil {
		return err
	}
	defer hand.close(ctx)
	variants := []variant{
		{"raw", hand.raw},
		{"engine", func(ctx context.Context) error { return f.drain(ctx, s) }},
		{"bulk", func(ctx context.Context) error { return hand.rounds(ctx, hand.bulk) }},
		{"each", func(ctx context.Context) error { return hand.rounds(ctx, hand.each) }},
	}
	took := map[string][]time.Duration{}
	for n := range b.repeat + 1 {
		for _, v := range variants {
			if err := f.clear(ctx); err != nil {
				return err
			}
			if err := f.fill(ctx, s.batch*s.rounds); err != nil {
				return err
			}
			d, err := timed(func() error { return v.run(ctx) })
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			if n > 0 { // the first time warms
				took[v.name] = append(took[v.name], d)
			}
		}
	}
	// a ratio is taken within a repetition, where the machine is the same, and the median of the ratios counts
	over := func(name string) float64 { return medianRatio(took[name], took["engine"]) }
	label := fmt.Sprintf("%d x %d: round to ", s.batch, s.fanout)
	if s.rawGoal > 0 {
		b.goal(label+"raw COPY", over("raw"), true, s.rawGoal)
	} else {
		b.note(label+"raw COPY", over("raw"))
	}
	switch s.batch {
	case 1:
		b.goal(label+"the unpipelined bulk round", over("bulk"), true, 1.2)
	default:
		b.note(label+"the unpipelined bulk round", over("bulk"))
	}
	if s.batch == 100 {
		b.goal(label+"one InsertTx per job", over("each"), true, 10)
	} else {
		b.note(label+"one InsertTx per job", over("each"))
	}
	return nil
}

// drain runs rounds of the engine until nothing is left.
func (f *fixture) drain(ctx context.Context, s shape) error {
	for range s.rounds {
		o, err := f.engine.Round(ctx, f.names[0])
		if err != nil {
			return err
		}
		if o.Jobs != s.batch*s.fanout {
			return fmt.Errorf("a round ended %s with %d jobs: %w", o.End.Name, o.Jobs, o.Err)
		}
	}
	return nil
}

// byHand is the round as one writes it without the engine, one statement after the other.
type byHand struct {
	conn  *pgx.Conn
	river *river.Client[pgx.Tx]
	shape shape
	epoch string
	name  string
}

type handArgs jobs.Args

func (handArgs) Kind() string { return "bench.job" }

func newByHand(ctx context.Context, f *fixture, s shape) (*byHand, error) {
	client, err := river.NewClient(riverpgxv5.New(f.pool), &river.Config{
		Schema: "public", FetchCooldown: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	conn, err := pgx.Connect(ctx, f.url)
	if err != nil {
		return nil, err
	}
	h := &byHand{conn: conn, river: client, shape: s, name: f.names[0]}
	return h, conn.QueryRow(ctx, `SELECT sync_epoch::text FROM bothy.instance`).Scan(&h.epoch)
}

func (h *byHand) close(ctx context.Context) { _ = h.conn.Close(ctx) }

// rounds runs as many as the shape says.
func (h *byHand) rounds(ctx context.Context, insert func(context.Context, pgx.Tx, []handArgs) error) error {
	for range h.shape.rounds {
		if err := h.round(ctx, insert); err != nil {
			return err
		}
	}
	return nil
}

// round claims, reads, decides by the same query, inserts, advances and commits.
func (h *byHand) round(ctx context.Context, insert func(context.Context, pgx.Tx, []handArgs) error) error {
	tx, err := h.conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	var cursor, last int64
	if err := tx.QueryRow(ctx, `SELECT last_seq FROM bothy.event_consumer_cursors WHERE name = $1 FOR UPDATE SKIP LOCKED`, h.name).Scan(&cursor); err != nil {
		return err
	}
	err = tx.QueryRow(ctx, `SELECT max(seq) FROM (SELECT seq FROM bothy.event_log WHERE seq > $1 ORDER BY seq LIMIT $2) e`, cursor, h.shape.batch).Scan(&last)
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `WITH batch AS (SELECT * FROM bothy.event_log WHERE seq > $1 AND seq <= $2) `+ruleFor(h.shape.fanout), cursor, last)
	if err != nil {
		return err
	}
	args, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a handArgs, err error) {
		a.Epoch = h.epoch
		return a, row.Scan(&a.Seq, &a.Recipient)
	})
	if err != nil {
		return err
	}
	if err := insert(ctx, tx, args); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE bothy.event_consumer_cursors SET last_seq = $2, updated_at = now() WHERE name = $1`, h.name, last); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// each inserts one job per call.
func (h *byHand) each(ctx context.Context, tx pgx.Tx, args []handArgs) error {
	for _, a := range args {
		if _, err := h.river.InsertTx(ctx, tx, a, &river.InsertOpts{Tags: []string{h.name}}); err != nil {
			return err
		}
	}
	return nil
}

// bulk inserts all jobs in one call.
func (h *byHand) bulk(ctx context.Context, tx pgx.Tx, args []handArgs) error {
	params := make([]river.InsertManyParams, len(args))
	options := &river.InsertOpts{Tags: []string{h.name}}
	for i, a := range args {
		params[i] = river.InsertManyParams{Args: a, InsertOpts: options}
	}
	_, err := h.river.InsertManyFastTx(ctx, tx, params)
	return err
}

// raw copies the same rows, those of all rounds at once: nothing can insert them faster.
func (h *byHand) raw(ctx context.Context) error {
	var cursor int64
	if err := h.conn.QueryRow(ctx, `SELECT last_seq FROM bothy.event_consumer_cursors WHERE name = $1`, h.name).Scan(&cursor); err != nil {
		return err
	}
	now := time.Now()
	total := h.shape.batch * h.shape.rounds * h.shape.fanout
	i := 0
	_, err := h.conn.CopyFrom(ctx, pgx.Identifier{"public", "river_job"},
		[]string{"args", "created_at", "kind", "max_attempts", "metadata", "priority", "queue", "scheduled_at", "state", "tags"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if i == total {
				return nil, nil
			}
			args := fmt.Appendf(nil, `{"seq":%d,"recipient":"recipient-%d","epoch":"%s"}`, cursor+1+int64(i/h.shape.fanout), i%h.shape.fanout+1, h.epoch)
			i++
			return []any{json.RawMessage(args), now, "bench.job", int16(25), json.RawMessage(`{}`), int16(1), "default", now, "available", []string{h.name}}, nil
		}))
	return err
}
