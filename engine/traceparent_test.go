// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	otelcodes "go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/bothy/engine"
	"example.com/bothy/engine/enginetest"
	"example.com/bothy/engine/producer"
)

// traceOf is a traceparent; two with the same number are the same trace.
func traceOf(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n, n) }

// traced are the jobs of a kind: the number of the event, and the number of the trace that the job carries, or -.
func traced(t *testing.T, db *enginetest.DB, kind string) []string {
	t.Helper()
	rows, err := db.Admin(t).Query(t.Context(), `SELECT DISTINCT concat_ws(' ', args ->> 'seq',
	coalesce(('x' || right(split_part(metadata ->> 'traceparent', '-', 2), 8))::bit(32)::int::text, '-')) FROM public.river_job WHERE kind = $1 ORDER BY 1`, kind)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// appendTraced appends events with the given traces, 0 for none, in one transaction.
func appendTraced(t *testing.T, db *enginetest.DB, traces ...int) {
	t.Helper()
	events := make([]producer.Event, len(traces))
	for i, n := range traces {
		events[i] = producer.Event{Type: "order.placed", Resource: "order", Audience: []string{"alex", "sam"}}
		if n != 0 {
			events[i].Traceparent = traceOf(n)
		}
	}
	if _, err := producer.Append(t.Context(), db.Producer(t), events...); err != nil {
		t.Fatal(err)
	}
}

// From the append to the job, whatever rule decides and however the jobs are inserted, the trace goes with its event;
// the span of the round links to each trace once.
func TestTracesGoFromAppendToJob(t *testing.T) {
	t.Parallel()
	many := make([]string, 40) // of one event: more than go by INSERT
	for i := range many {
		many[i] = fmt.Sprintf("r%d", i)
	}
	entries := []entry{
		{name: "none", recipients: "none"},
		{name: "list"},
		{name: "copied", recipients: "{list: [" + strings.Join(many, ", ") + "]}"},
		{name: "field", recipients: "{field: audience}", types: "[order.*]"},
		{name: "audience", recipients: "{field: audience}"},
		{name: "query", recipients: `{query: "SELECT seq, 'alex' AS recipient FROM batch"}`},
		{name: "handler", recipients: "{handler: own}"},
	}
	db := database(t, entries...)
	recorder := tracetest.NewSpanRecorder()
	e := open(t, configure(t, db, entries...), engine.WithSpanProcessor(recorder))
	var seen []string
	register(t, e, "own", func(ctx context.Context, tx *engine.HandlerTx, ev engine.Event) ([]string, error) {
		seen = append(seen, ev.Traceparent)
		return []string{"alex"}, tx.InsertJob(ctx, ownArgs{Seq: ev.Seq}, ownJob)
	})
	ensure(t, e)
	appendTraced(t, db, 7, 0, 8, 7)
	want := []string{"1 7", "2 -", "3 8", "4 7"}
	for _, c := range entries {
		wantRound(t, e, c.name, "processed")
		if diff := cmp.Diff(want, traced(t, db, "test."+c.name)); diff != "" {
			t.Errorf("consumer %s: events and the traces of their jobs (-want +got):\n%s", c.name, diff)
		}
		wantRound(t, e, c.name, "idle")
	}
	if diff := cmp.Diff(want, traced(t, db, "test.own")); diff != "" {
		t.Errorf("jobs of the handler's own (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{traceOf(7), "", traceOf(8), traceOf(7)}, seen); diff != "" {
		t.Errorf("what the handler saw (-want +got):\n%s", diff)
	}
	wantSpans(t, recorder.Ended(), len(entries))
}

// wantSpans checks that there is one span per consumer, with links to the traces 7 and 8.
func wantSpans(t *testing.T, spans []sdktrace.ReadOnlySpan, want int) {
	t.Helper()
	if len(spans) != want {
		t.Errorf("%d spans, want one for each of the %d rounds that did work", len(spans), want)
	}
	for _, span := range spans {
		var links []string
		for _, l := range span.Links() {
			links = append(links, fmt.Sprintf("00-%s-%s-01", l.SpanContext.TraceID(), l.SpanContext.SpanID()))
		}
		if !slices.Equal(links, []string{traceOf(7), traceOf(8)}) {
			t.Errorf("%s links to %q, want the traces 7 and 8, each once", span.Name(), links)
		}
	}
}

// An event that was set aside keeps its trace, and the jobs that a retry inserts carry it.
func TestTraceOfARetriedEvent(t *testing.T) {
	t.Parallel()
	e, db := prepared(t, entry{name: "push"})
	appendTraced(t, db, 7)
	db.Exec(t, `UPDATE bothy.event_consumer_cursors SET last_seq = 1`)
	db.Exec(t, `INSERT INTO bothy.event_quarantine (consumer, seq, error_type, message, attempts) VALUES ('push', 1, 'rule', 'the rule failed', 1)`)
	if _, err := e.RetryQuarantined(t.Context(), "push", 1, "alex"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1 7"}, traced(t, db, "test.push")); diff != "" {
		t.Errorf("event and the trace of its jobs (-want +got):\n%s", diff)
	}
}

// A round that fails has a span that says so, and none of what the error says.
func TestSpanOfAFailedRound(t *testing.T) {
	t.Parallel()
	push := entry{name: "push", recipients: "{handler: refuses}"}
	db := database(t, push)
	recorder := tracetest.NewSpanRecorder()
	e := open(t, configure(t, db, push), engine.WithSpanProcessor(recorder))
	register(t, e, "refuses", func(context.Context, *engine.HandlerTx, engine.Event) ([]string, error) {
		return nil, errors.New("the secret of Robin")
	})
	ensure(t, e)
	appendTraced(t, db, 7)
	wantRound(t, e, "push", "failed")
	spans := recorder.Ended()
	if len(spans) != 1 || spans[0].Status().Code != otelcodes.Error || spans[0].Status().Description != "handler" || strings.Contains(fmt.Sprint(spans[0].Attributes()), "secret") {
		t.Errorf("spans %+v, want one with the error handler", spans)
	}
}
