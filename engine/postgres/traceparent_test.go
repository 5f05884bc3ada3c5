// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/postgres"
)

const (
	traceA = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceB = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00"
)

// wantTraces checks the traces in the log, each behind the type of its event.
func wantTraces(t *testing.T, db *enginetest.DB, want ...string) {
	t.Helper()
	rows, err := db.Owner(t).Query(t.Context(), `SELECT concat_ws(' ', type, traceparent) FROM bothy.event_log ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("types and traces, %v (-want +got):\n%s", err, diff)
	}
}

// A trace comes from the transaction or with the event, which wins; one that is malformed is none, and no error.
func TestAppendKeepsTraces(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	conn := enginetest.Connect(t, db.ProducerURL)
	must(t, conn, `SET search_path = pg_temp`)
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "before")
	must(t, tx, `SET LOCAL bothy.traceparent = '`+traceA+`'`)
	must(t, tx, appendOne, "one")
	must(t, tx, `SELECT bothy.append_events('[{"type": "around"}, {"type": "own", "traceparent": "`+traceB+`"}, {"type": "null", "traceparent": null}, {"type": "bad", "traceparent": "x"}]')`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, conn, appendOne, "after")
	must(t, conn, `SET bothy.traceparent = '`+traceB+`'`)
	must(t, conn, appendOne, "session")
	must(t, conn, `SELECT bothy.append_events('[{"type": "session"}]')`)
	wantTraces(t, db, "before", "one "+traceA, "around "+traceA, "own "+traceB, "null "+traceA, "bad", "after", "session "+traceB, "session "+traceB)
	_, err := conn.Exec(t.Context(), `SELECT bothy.append_events('[{"type": "a", "traceparent": 7}]')`)
	wantCode(t, err, "22023", "events[0].traceparent is number: give a string")
}

func TestMalformedTracesAreLeftOut(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	var got string
	for _, given := range []string{
		"", "x", traceA + "-00", " " + traceA[1:], "ff" + traceA[2:], "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
		"00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", traceA[:54] + "\n", traceA[:54] + "\u00e9",
	} {
		if err := db.Owner(t).QueryRow(t.Context(), `SELECT coalesce(bothy.traceparent($1), '')`, given).Scan(&got); err != nil || got != "" {
			t.Errorf("traceparent(%q): got %q, %v, want none", given, got, err)
		}
	}
	for _, given := range []string{traceA, traceB, "01" + traceA[2:]} {
		if err := db.Owner(t).QueryRow(t.Context(), `SELECT bothy.traceparent($1)`, given).Scan(&got); err != nil || got != given {
			t.Errorf("traceparent(%q): got %q, %v, want it as it is", given, got, err)
		}
	}
}

// The migration comes while a producer has appended and not committed, and while a round reads. The event is
// numbered, and nobody is refused.
func TestMigrateTraceparentUnderAProducer(t *testing.T) {
	t.Parallel()
	db, o := older(t, "11")
	for _, name := range []string{"first", "second"} {
		must(t, db.Owner(t), appendOne, name)
	}
	conn := enginetest.Connect(t, db.OwnerURL)
	tx := begin(t, conn, pgx.TxOptions{})
	must(t, tx, appendOne, "open")
	waits := make(chan string, 100)
	o.Log = func(line string) { waits <- line }
	done := make(chan error, 1)
	go func() {
		_, err := postgres.Migrate(context.WithoutCancel(t.Context()), o)
		done <- err
	}()
	limit := time.After(time.Minute)
	for line := ""; !strings.Contains(line, "another session"); {
		select {
		case line = <-waits:
		case err := <-done:
			t.Fatalf("Migrate ended with a producer in its way: %v", err)
		case <-limit:
			t.Fatal("nothing says what the migration waits for")
		}
	}
	must(t, tx, appendOne, "open.too")
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("COMMIT during the migration: %v", err)
	}
	if err := <-done; err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	must(t, conn, `SET bothy.traceparent = '`+traceA+`'`)
	must(t, conn, appendOne, "after")
	wantTraces(t, db, "first", "second", "open", "open.too", "after "+traceA)
}
