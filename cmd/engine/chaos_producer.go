// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/bothy/engine/config"
	"example.com/bothy/engine/producer"
)

// appended is what the producers know about their events.
type appended struct {
	mu        sync.Mutex
	committed map[string]bool // by id: the server confirmed the commit
	undone    map[string]bool // rolled back, or refused
	unknown   int             // the connection broke before the answer to COMMIT
}

func (a *appended) note(into map[string]bool, ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		into[id] = true
	}
}

func (a *appended) confirmed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.committed)
}

// chaosProducer appends in transactions of all sorts until its context ends. A broken connection is part of
// its day.
type chaosProducer struct {
	url    string
	schema string
	types  []string
	rng    *rand.Rand
	log    *appended
	conn   *pgx.Conn
}

const (
	producerApplication = "bothy-chaos-producer"
	producerLimit       = 20 * time.Second // for one transaction
	producerPause       = 12               // milliseconds, at most, between two
	reconnectPause      = 50 * time.Millisecond
)

func (p *chaosProducer) run(ctx context.Context) {
	defer p.disconnect()
	for ctx.Err() == nil {
		pause := time.Duration(p.rng.IntN(producerPause+1)) * time.Millisecond
		// The last transaction is not cut off: what became of it is to be known.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), producerLimit)
		if err := p.transaction(limited); err != nil {
			p.disconnect()
			pause = reconnectPause
		}
		cancel()
		rest(ctx, pause)
	}
}

// rest waits, or less when ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (p *chaosProducer) disconnect() {
	if p.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.conn.Close(ctx) // it is broken, or done
		p.conn = nil
	}
}

// transaction is one unit of work: one event, many, a slow one, one that is rolled back, or one of which a part is.
func (p *chaosProducer) transaction(ctx context.Context) (err error) {
	if p.conn == nil {
		if p.conn, err = pgx.Connect(ctx, p.url); err != nil {
			return err
		}
	}
	tx, err := p.conn.Begin(ctx)
	if err != nil {
		return err
	}
	var ids []string // of what this transaction has appended so far
	add := func(in pgx.Tx, n int) error {
		more, err := producer.Log{Schema: p.schema}.Append(ctx, in, p.events(n)...)
		ids = append(ids, more...)
		return err
	}
	undo := func(cause error) error {
		p.log.note(p.log.undone, ids)
		return errors.Join(cause, tx.Rollback(ctx))
	}
	switch dice := p.rng.IntN(20); {
	case dice < 10:
		err = add(tx, 1)
	case dice < 14:
		err = add(tx, 2+p.rng.IntN(30))
	case dice < 16: // others commit while this one is open
		if err = add(tx, 1); err == nil {
			rest(ctx, time.Duration(50+p.rng.IntN(350))*time.Millisecond)
			err = add(tx, 1)
		}
	case dice < 19:
		if err = add(tx, 1+p.rng.IntN(5)); err == nil {
			return undo(nil)
		}
	default: // a part of it is rolled back
		if err = add(tx, 1); err != nil {
			break
		}
		kept := len(ids)
		inner, beginErr := tx.Begin(ctx)
		if err = beginErr; err != nil {
			break
		}
		if err = add(inner, 2); err != nil {
			break
		}
		if err = inner.Rollback(ctx); err == nil {
			p.log.note(p.log.undone, ids[kept:])
			ids = ids[:kept]
		}
	}
	if err != nil {
		return undo(err)
	}
	return p.commit(ctx, tx, ids)
}

// commit tells what the server has confirmed from what it has refused, and from what nobody can know.
func (p *chaosProducer) commit(ctx context.Context, tx pgx.Tx, ids []string) error {
	err := tx.Commit(ctx)
	refused, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		p.log.note(p.log.committed, ids)
	case errors.Is(err, pgx.ErrTxCommitRollback) || ok && refused.Severity == "ERROR":
		p.log.note(p.log.undone, ids)
	default:
		p.log.mu.Lock()
		p.log.unknown += len(ids)
		p.log.mu.Unlock()
	}
	return err
}

// events are n events of types that the consumers want, and of others.
func (p *chaosProducer) events(n int) []producer.Event {
	events := make([]producer.Event, n)
	for i := range events {
		number := p.rng.IntN(100_000)
		payload := fmt.Appendf(nil, `{"text": "to @robin: number %d", "n": %d}`, number, number)
		audience := [][]string{nil, {"alex"}, {"alex", "sam"}, {"robin", "sam", "alex"}}[p.rng.IntN(4)]
		events[i] = producer.Event{
			Type: p.types[p.rng.IntN(len(p.types))], Resource: "order", ResourceID: strconv.Itoa(number), Audience: audience, Payload: payload,
		}
	}
	return events
}

// chaosTypes are event types for the globs of a configuration, and one that perhaps nobody wants.
func chaosTypes(cfg *config.Config) []string {
	types := []string{"order.placed", "weather.changed"}
	for _, c := range cfg.Consumers {
		for _, glob := range c.Types {
			types = append(types, strings.ReplaceAll(glob, "*", "seen"))
		}
	}
	return types
}
