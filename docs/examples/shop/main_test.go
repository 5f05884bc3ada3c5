// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// An order that is paid makes one job, for its owner; an order that does not exist makes none.
func TestShop(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("receipts"))
	db.Exec(t, `CREATE TABLE public.orders (id text PRIMARY KEY, owner text NOT NULL, state text NOT NULL)`)
	db.Exec(t, `INSERT INTO public.orders VALUES ('ord-1', 'sam', 'placed')`)
	db.Exec(t, `GRANT SELECT ON public.orders TO PUBLIC`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, "consumers.yaml", func(string) (string, bool) { return db.AppURL, true })
	}()
	pool := db.Admin(t)
	count := func(sql string) (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	until := func(want int, sql string) {
		t.Helper()
		limit, tick := time.NewTimer(time.Minute), time.NewTicker(10*time.Millisecond)
		defer limit.Stop()
		defer tick.Stop()
		for count(sql) != want {
			select {
			case <-tick.C:
			case err := <-ended:
				t.Fatalf("serve ended early: %v", err)
			case <-limit.C:
				t.Fatalf("%s: got %d after a minute, want %d", sql, count(sql), want)
			}
		}
	}
	until(1, `SELECT count(*) FROM bothy.event_consumer_cursors`)
	for _, order := range []string{"ord-1", "ord-2"} {
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pay(t.Context(), tx, order) })
		if err != nil {
			t.Fatal(err)
		}
	}
	until(2, `SELECT last_seq::int FROM bothy.event_consumer_cursors`)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("serve: got %v, want nil", err)
	}
	if got := count(`SELECT count(*) FROM public.river_job`); got != 1 {
		t.Errorf("jobs: got %d, want 1", got)
	}
	if got := count(`SELECT count(*) FROM public.river_job WHERE kind = 'shop.receipt' AND args @> '{"seq": 1, "recipient": "sam"}'`); got != 1 {
		t.Errorf("jobs for the owner of ord-1: got %d, want 1", got)
	}
}
