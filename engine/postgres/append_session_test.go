// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
)

// A session that replays changes runs no ordinary triggers; events must be numbered all the same.
func TestAppendInReplicaSession(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.AdminURL)
	must(t, conn, `SET session_replication_role = replica`)
	must(t, conn, appendOne, "a")
	wantTypes(t, db, "a")
}

// Case 28: at REPEATABLE READ a lost race is a failure to retry, and says so.
func TestAppendAtRepeatableRead(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			db := enginetest.New(t)
			conn := enginetest.Connect(t, db.ProducerURL)
			tx := begin(t, conn, pgx.TxOptions{IsoLevel: level})
			must(t, tx, appendOne, "slow")
			db.Append(t, 1)
			wantCode(t, tx.Commit(t.Context()), "40001", "Retry the whole transaction")
			tx = begin(t, conn, pgx.TxOptions{IsoLevel: level})
			must(t, tx, appendOne, "again")
			if err := tx.Commit(t.Context()); err != nil {
				t.Errorf("retry: %v", err)
			}
			wantTypes(t, db, "order.created", "again")
		})
	}
}

// A producer that holds the counter makes others wait, and not for ever.
func TestAppendWaitsWithALimit(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	holder := enginetest.Connect(t, db.ProducerURL)
	hold := begin(t, holder, pgx.TxOptions{})
	must(t, hold, appendOne, "a")
	must(t, hold, `SET CONSTRAINTS ALL IMMEDIATE`)

	conn := enginetest.Connect(t, db.ProducerURL)
	must(t, conn, `SET lock_timeout = '20ms'`)
	_, err := conn.Exec(t.Context(), appendOne, "b")
	wantCode(t, err, "55P03", "lock timeout")
	// The caller's own limit is what it was, also where ours had taken its place.
	must(t, conn, `SET lock_timeout = 0`)
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), appendOne, "c")
		done <- err
	}()
	waiting(t, db, conn)
	if err := hold.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("append after the wait: %v", err)
	}
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "d")
	must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	var limit string
	if err := tx.QueryRow(t.Context(), `SHOW lock_timeout`).Scan(&limit); err != nil || limit != "0" {
		t.Errorf("lock_timeout after an append: got %q, %v, want 0", limit, err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantTypes(t, db, "a", "c", "d")
}

// Cases 36 and 37: one notification for each transaction, without content; none when they are off.
func TestAppendNotifiesOnce(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	listener := enginetest.Connect(t, db.AppURL)
	must(t, listener, `LISTEN event_log`)
	conn := enginetest.Connect(t, db.ProducerURL)
	append3 := func() {
		t.Helper()
		tx := begin(t, conn, pgx.TxOptions{})
		must(t, tx, appendOne, "a")
		must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
		must(t, tx, `SAVEPOINT s`)
		must(t, tx, appendOne, "b")
		must(t, tx, `RELEASE s`)
		must(t, tx, `SELECT bothy.append_events('[{"type": "c"}, {"type": "d"}]')`)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	received := func() (payloads []string) {
		t.Helper()
		db.Exec(t, `NOTIFY event_log, 'end'`)
		for {
			n, err := listener.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n.Payload == "end" {
				return payloads
			}
			payloads = append(payloads, n.Payload)
		}
	}
	append3()
	append3()
	if diff := cmp.Diff([]string{"", ""}, received()); diff != "" {
		t.Errorf("payloads of two transactions (-want +got):\n%s", diff)
	}
	o := options(db)
	o.Notify = new(bool)
	if report := migrate(t, o); report.NotifyTurned != "off" {
		t.Errorf("notifications: got %q, want turned off", report.NotifyTurned)
	}
	append3()
	if got := received(); len(got) != 0 {
		t.Errorf("payloads with notifications off: got %q, want none", got)
	}
}

// A transaction prepared for two-phase commit gets its numbers then; the server refuses that together with
// a notification.
func TestAppendInPreparedTransaction(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	prepare := func() error {
		must(t, conn, `BEGIN`)
		must(t, conn, appendOne, "a")
		_, err := conn.Exec(t.Context(), `PREPARE TRANSACTION 'bothy-`+db.Name+`'`)
		return err
	}
	wantCode(t, prepare(), "0A000", "NOTIFY")
	wantTypes(t, db)
	db.Exec(t, `UPDATE bothy.event_seq SET notify = false`)
	if err := prepare(); err != nil {
		t.Fatalf("prepare with notifications off: %v", err)
	}
	must(t, conn, `COMMIT PREPARED 'bothy-`+db.Name+`'`)
	wantTypes(t, db, "a")
}

// Case 27: rows that an old snapshot keeps alive do not slow a transaction's own events down, also in a
// session whose plans were made while the stage was empty. The test counts rows, not time.
func TestAppendUnderAnOldSnapshot(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.AdminURL)
	for range 10 { // enough for the server to keep its plans
		must(t, conn, appendOne, "early")
	}
	old := begin(t, enginetest.Connect(t, db.AdminURL), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	must(t, old, `SELECT count(*) FROM bothy.event_log`)
	db.Append(t, 5000)
	tx := begin(t, conn, pgx.TxOptions{})
	const many = 100
	for range many {
		must(t, tx, appendOne, "late")
	}
	must(t, tx, `SET CONSTRAINTS ALL IMMEDIATE`)
	var scans, fetched int64
	err := tx.QueryRow(t.Context(), `SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'bothy.event_stage'::regclass`).Scan(&scans, &fetched)
	// One look for the first event, then a count and a move of all; the later events are gone by then.
	if err != nil || scans != 0 || fetched > 3*many {
		t.Errorf("reading the stage: got %d scans and %d rows, %v, want no scan and at most %d rows", scans, fetched, err, 3*many)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := old.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
