// SPDX-License-Identifier: Apache-2.0

package producer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/producer"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

const id1 = "0197a4c0-7a5e-7cc1-8f5e-3b1f0a2b4c6d"

// stored is a row of the log as the producer wrote it.
type stored struct {
	Seq                        int64
	ID                         string
	Type, Resource, ResourceID string
	Audience                   []string
	Payload                    string
	Time                       *time.Time
	Trace                      string
}

func readLog(t *testing.T, db *enginetest.DB) []stored {
	t.Helper()
	rows, err := db.Owner(t).Query(t.Context(), `SELECT seq, id::text, type, resource, resource_id, audience, payload::text, event_time, coalesce(traceparent, '') FROM bothy.event_log ORDER BY seq`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stored])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAppend(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	at := time.Date(2026, 1, 31, 9, 30, 0, 123456000, time.FixedZone("", 3600)).UTC()
	tx, err := db.Producer(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids, err := producer.Append(t.Context(), tx,
		producer.Event{
			Type: "order.created", Resource: "order", ResourceID: "42", Audience: []string{"alex", `s"am, {x}`},
			Payload: json.RawMessage(`{"a": "\u00e9 \ud83d\ude00 \\u0000"}`), Time: at, ID: strings.ToUpper(id1),
		},
		producer.Event{Type: "message.created"},
	)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	if len(ids) != 2 || ids[0] != id1 {
		t.Errorf("ids: got %q, want two, the first %q", ids, id1)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := readLog(t, db)
	for i := range got {
		if got[i].Time != nil {
			*got[i].Time = got[i].Time.UTC()
		}
	}
	want := []stored{
		{1, id1, "order.created", "order", "42", []string{"alex", `s"am, {x}`}, `{"a": "é 😀 \\u0000"}`, &at, ""},
		{2, ids[1], "message.created", "", "", []string{}, `{}`, nil, ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// A trace goes with its event. One that is none is left out, whatever it holds, and does not become that of the
// transaction.
func TestAppendTraces(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	const (
		around = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00"
		own    = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	)
	conn := enginetest.Connect(t, db.ProducerURL)
	if _, err := conn.Exec(t.Context(), `SET bothy.traceparent = '`+around+`'`); err != nil {
		t.Fatal(err)
	}
	var events []producer.Event
	for _, trace := range []string{own, "", "00-1", "\xff", "a\x00b"} {
		events = append(events, producer.Event{Type: "a", Traceparent: trace})
	}
	if _, err := producer.Append(t.Context(), conn, events...); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range readLog(t, db) {
		got = append(got, row.Trace)
	}
	if diff := cmp.Diff([]string{own, around, "", "", ""}, got); diff != "" {
		t.Errorf("traces (-want +got):\n%s", diff)
	}
}

func TestAppendRefusesBeforeSending(t *testing.T) {
	t.Parallel()
	ok := producer.Event{Type: "a"}
	tests := map[string]struct {
		event producer.Event
		want  string
	}{
		"no type":           {producer.Event{}, `event 1: Type is empty`},
		"blank in type":     {producer.Event{Type: "order created"}, `event 1: Type is "order created": blanks`},
		"no-break space":    {producer.Event{Type: "order\u00a0created"}, `blanks and control characters`},
		"long type":         {producer.Event{Type: strings.Repeat("é", 257)}, `has 257 characters`},
		"bad text":          {producer.Event{Type: "a", Resource: "\xff"}, `Resource is not valid UTF-8`},
		"zero byte":         {producer.Event{Type: "a", ResourceID: "a\x00b"}, `ResourceID holds a zero byte`},
		"empty recipient":   {producer.Event{Type: "a", Audience: []string{"sam", ""}}, `Audience element 1 is empty`},
		"bad recipient":     {producer.Event{Type: "a", Audience: []string{"\xc3"}}, `Audience element 0 is not valid UTF-8`},
		"not JSON":          {producer.Event{Type: "a", Payload: json.RawMessage(`{"a":}`)}, `Payload is not JSON`},
		"empty payload":     {producer.Event{Type: "a", Payload: json.RawMessage{}}, `Payload is not JSON`},
		"payload bytes":     {producer.Event{Type: "a", Payload: json.RawMessage("\"\xff\"")}, `Payload is not valid UTF-8`},
		"NUL escape":        {producer.Event{Type: "a", Payload: json.RawMessage(`"x\u0000"`)}, `Payload holds the escape \u0000 at byte 2`},
		"lone high":         {producer.Event{Type: "a", Payload: json.RawMessage(`"\ud83d"`)}, `half of a surrogate pair`},
		"high before text":  {producer.Event{Type: "a", Payload: json.RawMessage(`"\uD83Dabcdef"`)}, `half of a surrogate pair`},
		"lone low":          {producer.Event{Type: "a", Payload: json.RawMessage(`"\ude00"`)}, `half of a surrogate pair`},
		"year out of range": {producer.Event{Type: "a", Time: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)}, `Time is in the year 12000`},
		"id":                {producer.Event{Type: "a", ID: "42"}, `ID is "42": give a UUID`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := producer.Append(t.Context(), unusable{}, ok, test.event)
			var eventErr *producer.EventError
			if !errors.As(err, &eventErr) || eventErr.Index != 1 || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Append(%+v): got %v, want an EventError for index 1 with %q", test.event, err, test.want)
			}
		})
	}
}

// unusable is a connection that must not be used.
type unusable struct{ producer.Querier }

func TestAppendNothing(t *testing.T) {
	t.Parallel()
	if ids, err := producer.Append(t.Context(), unusable{}); len(ids) != 0 || err != nil {
		t.Errorf("Append of no event: got %q, %v, want nothing", ids, err)
	}
}

// Case 36: the size of a payload never matters.
func TestAppendLargePayload(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	large := json.RawMessage(`{"text":"` + strings.Repeat("Bothy ", 5<<20) + `"}`)
	ids, err := producer.Append(t.Context(), db.Producer(t), producer.Event{Type: "a"}, producer.Event{Type: "large", Payload: large}, producer.Event{Type: "b"})
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	if len(ids) != 3 {
		t.Errorf("ids: got %d, want 3", len(ids))
	}
	var types []string
	var size int
	if err := db.Owner(t).QueryRow(t.Context(), `SELECT array_agg(type ORDER BY seq), max(length(payload ->> 'text')) FROM bothy.event_log`).Scan(&types, &size); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "large", "b"}, types); diff != "" || size != 30<<20 {
		t.Errorf("log: got a text of %d bytes, want %d; types (-want +got):\n%s", size, 30<<20, diff)
	}
}

// All chunks or none, also when the caller gave a pool instead of a transaction.
func TestAppendManyIsAllOrNothing(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	const many = 20
	events := make([]producer.Event, many)
	for i := range events {
		events[i] = producer.Event{Type: "big", ResourceID: fmt.Sprint(i), Payload: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}
	}
	// A number that PostgreSQL cannot hold is found by the server only, in the last chunk.
	broken := append(events[:many-1:many-1], producer.Event{Type: "big", Payload: json.RawMessage(`1e200000`)})
	if _, err := producer.Append(t.Context(), db.Producer(t), broken...); err == nil {
		t.Error("Append of a number out of range: got no error, want one")
	}
	if head := db.Head(t); head != 0 {
		t.Errorf("head after a failed Append: got %d, want 0", head)
	}
	if _, err := producer.Append(t.Context(), db.Producer(t), events...); err != nil {
		t.Fatalf("Append: %v", err)
	}
	for i, e := range readLog(t, db) {
		if e.Seq != int64(i+1) || e.ResourceID != fmt.Sprint(i) {
			t.Errorf("row %d: got seq %d of event %s", i, e.Seq, e.ResourceID)
		}
	}
	if head := db.Head(t); head != many {
		t.Errorf("head: got %d, want %d", head, many)
	}
}

func TestAppendInAnotherSchema(t *testing.T) {
	t.Parallel()
	db := enginetest.New(t)
	_, err := producer.Log{Schema: `no "such" one`}.Append(t.Context(), db.Producer(t), producer.Event{Type: "a"})
	if err == nil || !strings.Contains(err.Error(), `no "such" one`) {
		t.Errorf("Append: got %v, want an error that names the schema", err)
	}
}

// What Check accepts, the server accepts: a producer that checks first never loses its transaction.
func FuzzCheck(f *testing.F) {
	f.Add("order.created", "order", "sam", `{"a": 1}`)
	f.Add("\ufeff", "\x00", "\xff", `"\ud83d\ude00"`)
	f.Add("a\u2003b", "", "s", `"\\u0000"`)
	f.Add("é", "x", "s", `["\u0000"]`)
	f.Add("a", "x", "s", `"\ud83dx"`)
	f.Add("\u200b", "x", "s", `[[[[1e5]]]]`)
	db := enginetest.New(f)
	conn := enginetest.Connect(f, db.ProducerURL)
	f.Fuzz(func(t *testing.T, kind, resource, audience, payload string) {
		if len(payload) > 1000 || len(kind) > 2000 {
			return // the server has limits of its own for depth and numbers
		}
		e := producer.Event{Type: kind, Resource: resource, Audience: []string{audience}, Payload: json.RawMessage(payload)}
		if e.Check() != nil {
			return
		}
		var seen string
		err := rolledBack(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := producer.Append(t.Context(), tx, e)
			return err
		})
		if err != nil && !strings.Contains(err.Error(), "out of range") && !strings.Contains(err.Error(), "overflow") {
			t.Errorf("event %+q: Check accepts it and the server says %v (%s)", e, err, seen)
		}
	})
}

func rolledBack(ctx context.Context, conn *pgx.Conn, run func(pgx.Tx) error) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	return run(tx)
}
