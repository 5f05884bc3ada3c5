// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

const appendOne = `SELECT bothy.append_event($1, NULL, NULL, NULL, NULL)`

func TestAppendIsNumberedAtCommit(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "first")
	must(t, tx, `SELECT bothy.append_events('[{"type": "second"}, {"type": "third"}]')`)
	if head := db.Head(t); head != 0 {
		t.Errorf("head before the commit: got %d, want 0", head)
	}
	db.Append(t, 1) // is not held up
	must(t, tx, appendOne, "fourth")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, db, "order.created", "first", "second", "third", "fourth")
	var staged int
	if err := db.Owner(t).QueryRow(t.Context(), `SELECT count(*) FROM bothy.event_stage`).Scan(&staged); err != nil || staged != 0 {
		t.Errorf("events left on the stage: got %d, %v, want none", staged, err)
	}
}

// Case 28: what is rolled back gives its numbers back.
func TestAppendLeavesNoHole(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `CREATE TABLE public.unique_later (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)`)
	db.Exec(t, `GRANT ALL ON public.unique_later TO bothy_producer`)
	conn := enginetest.Connect(t, db.ProducerURL)

	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "kept.1")
	must(t, tx, `SAVEPOINT s`)
	must(t, tx, appendOne, "undone")
	must(t, tx, `ROLLBACK TO s`)
	must(t, tx, appendOne, "kept.2")
	must(t, tx, `RELEASE s`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}

	tx = begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "undone")
	must(t, tx, `INSERT INTO public.unique_later VALUES (1), (1)`)
	wantCode(t, tx.Commit(t.Context()), "23505", "unique_later")

	tx = begin(t, conn, pgx.TxOptions{})
	must(t, tx, `SAVEPOINT s`)
	must(t, tx, appendOne, "undone")
	must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	must(t, tx, `ROLLBACK TO s`)
	must(t, tx, appendOne, "kept.3")
	must(t, tx, appendOne, "kept.4")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, db, "kept.1", "kept.2", "kept.3", "kept.4")
}

func TestAppendWithConstraintsImmediate(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "a")
	must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	must(t, tx, appendOne, "b")
	must(t, tx, `SELECT bothy.append_events('[{"type": "c"}, {"type": "d"}]')`)
	must(t, tx, `SET CONSTRAINTS ALL DEFERRED`)
	must(t, tx, appendOne, "e")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, db, "a", "b", "c", "d", "e")
}

// A deferred trigger of the application may append while the transaction commits, before or after the
// events got their numbers.
func TestAppendInDeferredTriggers(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `CREATE TABLE public.orders (n int)`)
	db.Exec(t, `CREATE FUNCTION public.announce() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM bothy.append_event('late.' || NEW.n, NULL, NULL, NULL, NULL); RETURN NULL; END $$`)
	db.Exec(t, `CREATE CONSTRAINT TRIGGER announce AFTER INSERT ON public.orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.announce()`)
	db.Exec(t, `GRANT ALL ON public.orders TO bothy_producer`)
	conn := enginetest.Connect(t, db.ProducerURL)
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, `INSERT INTO public.orders VALUES (1)`)
	must(t, tx, appendOne, "early")
	must(t, tx, `INSERT INTO public.orders VALUES (2)`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := types(t, db)
	if len(got) != 3 || !strings.HasPrefix(strings.Join(got, " "), "early") {
		t.Errorf("log: got %q, want early and two late events", got)
	}
}

// Case 28: a producer that appends first and one that updates first never wait for each other in a circle.
func TestAppendOrderCannotDeadlock(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Exec(t, `CREATE TABLE public.account (n int)`)
	db.Exec(t, `INSERT INTO public.account VALUES (0)`)
	db.Exec(t, `GRANT ALL ON public.account TO bothy_producer`)
	const rounds = 100
	run := func(statements ...string) error {
		conn, err := pgx.Connect(t.Context(), db.ProducerURL)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		for range rounds {
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				for _, statement := range statements {
					if _, err := tx.Exec(t.Context(), statement); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	event, update := `SELECT bothy.append_event('a', NULL, NULL, NULL, NULL)`, `UPDATE public.account SET n = n + 1`
	errs := make(chan error, 4)
	for _, order := range [][]string{{event, update}, {update, event}, {event, update, event}, {update, event, update}} {
		go func() { errs <- run(order...) }()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Errorf("producer: %v", err)
		}
	}
	if got := len(types(t, db)); got != 5*rounds {
		t.Errorf("events: got %d, want %d", got, 5*rounds)
	}
}

// Case 17: whoever sees number k sees every smaller one, while many transactions of different length
// overlap and some fail.
func TestAppendIsGapFreeAndInOrder(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	producers := db.Producer(t)
	readers := make(chan error, 1)
	go func() { readers <- readInOrder(ctx, db.App(t)) }()

	var group sync.WaitGroup
	const writers, each = 8, 40
	for w := range writers {
		group.Go(func() {
			for i := range each {
				if err := appendSome(ctx, producers, w, i); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	group.Wait()
	cancel()
	if err := <-readers; err != nil {
		t.Error(err)
	}
	types(t, db)
}

// appendSome is one transaction: one to three events, a savepoint, and every fifth time a rollback.
func appendSome(ctx context.Context, pool *pgxpool.Pool, writer, i int) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	for n := range 1 + (writer+i)%3 {
		if _, err := tx.Exec(ctx, appendOne, fmt.Sprintf("w%d.%d.%d", writer, i, n)); err != nil {
			return err
		}
	}
	if i%4 == 0 {
		if _, err := tx.Exec(ctx, `SET CONSTRAINTS ALL IMMEDIATE`); err != nil {
			return err
		}
	}
	if i%5 == 0 {
		return nil
	}
	return tx.Commit(ctx)
}

func readInOrder(ctx context.Context, pool *pgxpool.Pool) error {
	last := int64(0)
	for ctx.Err() == nil {
		var head, count, highest int64
		err := pool.QueryRow(ctx, `SELECT c.seq, count(l.seq), coalesce(max(l.seq), $1) FROM bothy.event_seq c LEFT JOIN bothy.event_log l ON l.seq > $1 GROUP BY c.seq`, last).Scan(&head, &count, &highest)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end of the test cut this read off
		}
		if err != nil {
			return err
		}
		if highest != last+count || highest != head {
			return fmt.Errorf("after %d: read %d events up to %d while the head is %d", last, count, highest, head)
		}
		last = highest
	}
	return nil
}

func TestAppendRefusedInsideARound(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.AppURL)
	for _, call := range []string{`append_event('a', NULL, NULL, NULL, NULL)`, `append_events('[]')`} {
		tx := begin(t, conn, pgx.TxOptions{})
		must(t, tx, `SELECT set_config('bothy.in_round', 'push', true)`)
		_, err := tx.Exec(t.Context(), `SELECT bothy.`+call)
		wantCode(t, err, postgres.CodeAppendInRound, `consumer "push" appended an event inside its round`)
		_ = tx.Rollback(t.Context())
	}
	must(t, conn, appendOne, "after")
	wantTypes(t, db, "after")
}

// Case 77: a counter behind the log fails loudly and overwrites nothing.
func TestAppendWithCounterBehind(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	db.Append(t, 3)
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 1`)
	_, err := enginetest.Connect(t, db.ProducerURL).Exec(t.Context(), appendOne, "a")
	wantCode(t, err, "23505", "duplicate key")
	db.Exec(t, `DELETE FROM bothy.event_seq`)
	_, err = enginetest.Connect(t, db.ProducerURL).Exec(t.Context(), appendOne, "a")
	wantCode(t, err, postgres.CodeNoCounter, "counter row of the event log is missing")
}
