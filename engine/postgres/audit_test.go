// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

const appendOneDeed = `SELECT bothy.append_audit('consumer.retired', $1, '{"reason": "a test"}')`

// auditNumbers checks that the audit runs from 1 without a hole, in the order of its clock, and answers how
// long it is.
func auditNumbers(t *testing.T, db *enginetest.DB) int64 {
	t.Helper()
	var n, last, counter int64
	var backwards bool
	err := db.Owner(t).QueryRow(t.Context(), `SELECT count(*), coalesce(max(seq), 0), (SELECT seq FROM bothy.audit_seq),
	coalesce(bool_or(before > at), false) FROM (SELECT seq, at, lag(at) OVER (ORDER BY seq) AS before FROM bothy.audit_events) a`).
		Scan(&n, &last, &counter, &backwards)
	if err != nil || n != last || last != counter || backwards {
		t.Errorf("audit: %d rows up to %d, the counter at %d, a clock that went back: %t, %v; want one number for each row", n, last, counter, backwards, err)
	}
	return n
}

// Case 79: two writers fork the audit chain. On an empty table there is no last row to lock, so the counter is.
func TestAuditCannotFork(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	owner := db.Owner(t)
	const writers, each = 10, 5
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := owner.Exec(context.Background(), appendOneDeed, fmt.Sprintf("c-%d-%d", w, i)); err != nil {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := auditNumbers(t, db); n != writers*each {
		t.Errorf("rows: got %d, want %d", n, writers*each)
	}
}

// A transaction that is rolled back gives its number back, and until then nobody gets another.
func TestAuditNumbersHaveNoGap(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	first, second := enginetest.Connect(t, db.OwnerURL), enginetest.Connect(t, db.OwnerURL)
	tx := begin(t, first, pgx.TxOptions{})
	must(t, tx, appendOneDeed, "given-up")
	done := make(chan error, 1)
	go func() {
		_, err := second.Exec(context.Background(), appendOneDeed, "kept")
		done <- err
	}()
	waiting(t, db, second)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := auditNumbers(t, db); n != 1 {
		t.Errorf("rows: got %d, want 1", n)
	}
}

func TestAuditOnlyGrows(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	must(t, db.Owner(t), appendOneDeed, "push")
	for _, sql := range []string{
		`UPDATE bothy.audit_events SET details = '{}'`, `DELETE FROM bothy.audit_events`, `DELETE FROM bothy.audit_events WHERE false`, `TRUNCATE bothy.audit_events`,
	} {
		for who, url := range map[string]string{"owner": db.OwnerURL, "superuser": db.AdminURL} {
			conn := enginetest.Connect(t, url)
			_, err := conn.Exec(t.Context(), sql)
			if !hasCode(err, postgres.CodeAuditChange) {
				t.Errorf("%s: %s: got %v, want SQLSTATE %s", who, sql, err, postgres.CodeAuditChange)
			}
		}
		_, err := db.App(t).Exec(t.Context(), sql)
		wantCode(t, err, "42501", "permission denied")
	}
	replica := enginetest.Connect(t, db.AdminURL)
	must(t, replica, `SET session_replication_role = replica`)
	_, err := replica.Exec(t.Context(), `DELETE FROM bothy.audit_events`)
	wantCode(t, err, postgres.CodeAuditChange, "only grows: DELETE is refused")

	app := enginetest.Connect(t, db.AppURL)
	for _, sql := range []string{
		`INSERT INTO bothy.audit_events (seq, at, actor, client, action, subject, details) VALUES (9, now(), 'a', 'b', 'consumer.created', 'c', '{}')`,
		`UPDATE bothy.audit_seq SET seq = 7`, `SELECT bothy.audit_new_cursor()`, `SELECT bothy.append_audit('consumer.created', 'c')`,
	} {
		_, err := app.Exec(t.Context(), sql)
		wantCode(t, err, "42501", "permission denied")
	}
	producer := enginetest.Connect(t, db.ProducerURL)
	for _, sql := range []string{`SELECT * FROM bothy.audit_events`, `SELECT * FROM bothy.audit_seq`, `SELECT bothy.append_audit('consumer.created', 'c')`} {
		_, err := producer.Exec(t.Context(), sql)
		wantCode(t, err, "42501", "permission denied")
	}
	if n := auditNumbers(t, db); n != 1 {
		t.Errorf("rows: got %d, want 1", n)
	}
}

// What is written of who did it comes from the session, not from the caller.
func TestAuditSaysWhoAndRefusesTheUnknown(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	admin := enginetest.Connect(t, db.AdminURL)
	must(t, admin, `SET application_name = 'a test'`)
	must(t, admin, `SET ROLE bothy_owner`)
	must(t, admin, appendOneDeed, "push")
	must(t, admin, `RESET ROLE`)
	var got string
	err := admin.QueryRow(t.Context(), `SELECT concat_ws('|', seq, actor = session_user, client, action, subject, details, now() - at < interval '1 min') FROM bothy.audit_events`).Scan(&got)
	if want := `1|t|a test|consumer.retired|push|{"reason": "a test"}|t`; err != nil || got != want {
		t.Errorf("row: got %s, %v, want %s", got, err, want)
	}
	for _, arguments := range []string{`'consumer.eaten', 'push'`, `'consumer.created', ''`, `'consumer.created', 'push', '[]'`} {
		_, err := admin.Exec(t.Context(), `SELECT bothy.append_audit(`+arguments+`)`)
		wantCode(t, err, "23514", "audit_events")
	}
	must(t, admin, `DELETE FROM bothy.audit_seq`)
	_, err = admin.Exec(t.Context(), appendOneDeed, "push")
	wantCode(t, err, postgres.CodeNoCounter, "counter row of the audit")
}

// However many engines start at once, a new consumer is written down once, with the place where it starts.
func TestEnsureWritesEachConsumerDownOnce(t *testing.T) {
	t.Parallel()
	names := []string{"archive", "mail", "push"}
	db := enginetest.New(t, enginetest.WithConsumers(names...))
	db.Append(t, 7)
	store := openStore(t, db.AppURL)
	var wg sync.WaitGroup
	for i := range 8 {
		order := []string{names[i%3], names[(i+1)%3], names[(i+2)%3]}
		wg.Go(func() {
			if err := store.Ensure(context.Background(), order); err != nil {
				t.Errorf("Ensure: %v", err)
			}
		})
	}
	wg.Wait()
	db.Append(t, 1)
	if err := store.Ensure(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	rows, err := db.App(t).Query(t.Context(), `SELECT concat_ws(' ', action, subject, details, client) FROM bothy.audit_events ORDER BY subject`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	want := []string{
		`consumer.created archive {"last_seq": 7} bothy-engine`, `consumer.created mail {"last_seq": 7} bothy-engine`, `consumer.created push {"last_seq": 7} bothy-engine`,
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("audit (-want +got): %v\n%s", err, diff)
	}
	auditNumbers(t, db)
}

func openStore(t *testing.T, url string) *postgres.Store {
	t.Helper()
	store, err := postgres.Open(t.Context(), postgres.Options{URL: url, Schema: enginetest.Schema, MaxConns: 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// A start with a counter behind its log makes no cursor: it would stand below events that it was never to see.
func TestEnsureRefusesACounterBehindItsLog(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t, enginetest.WithConsumers("push"))
	store := openStore(t, db.AppURL)
	db.Append(t, 3)
	db.Exec(t, `UPDATE bothy.event_seq SET seq = 1`)
	behind, ok := errors.AsType[*postgres.CounterBehindError](store.Ensure(t.Context(), []string{"push"}))
	if !ok || behind.Counter != 1 || behind.Highest != 3 {
		t.Errorf("counter at 1 of 3: got %+v, want a CounterBehindError of 1 and 3", behind)
	}
	db.Exec(t, `DELETE FROM bothy.event_seq`)
	if gone, ok := errors.AsType[*postgres.MissingRowError](store.Ensure(t.Context(), []string{"push"})); !ok {
		t.Errorf("no counter: got %v, want a MissingRowError", gone)
	}
	var cursors int
	if err := enginetest.Connect(t, db.AdminURL).QueryRow(t.Context(), `SELECT count(*) FROM bothy.event_consumer_cursors`).Scan(&cursors); err != nil || cursors != 0 {
		t.Errorf("got %d cursors, %v, want none", cursors, err)
	}
}
