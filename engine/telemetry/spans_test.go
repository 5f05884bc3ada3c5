// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"example.com/bothy/engine/telemetry"
)

// recording are signals whose spans are kept.
func recording(t *testing.T) (*telemetry.Signals, *tracetest.SpanRecorder) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	s, err := telemetry.New(telemetry.Options{
		Version: "test", Consumers: []telemetry.Consumer{{Name: "push"}}, Ends: []string{"processed", "idle", "failed"},
		Works: []string{"processed", "failed"}, Ready: func() []string { return nil }, Spans: []trace.SpanProcessor{recorder},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(context.Background()) })
	return s, recorder
}

func traceparent(trace, span int) string { return fmt.Sprintf("00-%032x-%016x-01", trace, span) }

// described is a span in one line, without what differs from run to run.
func described(s trace.ReadOnlySpan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %v %q", s.Name(), s.SpanKind(), s.Status().Code, s.Status().Description)
	for _, a := range s.Attributes() {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value.String())
	}
	for _, l := range s.Links() {
		fmt.Fprintf(&b, " -> %s/%s", l.SpanContext.TraceID(), l.SpanContext.SpanID())
	}
	return b.String()
}

// A round that did work or failed has a span, a trace of its own, linked to those of its events. Others have none.
func TestSpans(t *testing.T) {
	t.Parallel()
	s, recorder := recording(t)
	around, outer := trace.NewTracerProvider().Tracer("").Start(t.Context(), "of the program around")
	s.Round(around, telemetry.Round{Consumer: "push", End: "idle"})
	s.Round(around, telemetry.Round{
		Consumer: "push", End: "processed", Took: time.Second, First: 5, Events: 3, Jobs: 6, Lost: 2,
		Traces: []string{traceparent(1, 2), "not one", traceparent(3, 4)},
	})
	s.Round(around, telemetry.Round{Consumer: "push", End: "failed", ErrorType: "rule"})
	var got []string
	for _, span := range recorder.Ended() {
		got = append(got, described(span))
		if span.Parent().IsValid() || span.SpanContext().TraceID() == outer.SpanContext().TraceID() {
			t.Errorf("%s is a part of another trace", span.Name())
		}
	}
	want := []string{
		`round push consumer Unset "" bothy.consumer.name=push bothy.round.end=processed bothy.event.seq=5 bothy.round.events=3 bothy.round.jobs=6 bothy.round.lost=2 bothy.round.traces=3` +
			` -> 00000000000000000000000000000001/0000000000000002 -> 00000000000000000000000000000003/0000000000000004`,
		`round push consumer Error "rule" bothy.consumer.name=push bothy.round.end=failed error.type=rule`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("spans (-want +got):\n%s", diff)
	}
	first := recorder.Ended()[0]
	if took := first.EndTime().Sub(first.StartTime()); took != time.Second {
		t.Errorf("the span took %v, want the second that the round took", took)
	}
}

// However many traces a round has, its span links to a bounded number of them, and says how many there are.
func TestSpanLinksAreBounded(t *testing.T) {
	t.Parallel()
	s, recorder := recording(t)
	traces := make([]string, 1000)
	for i := range traces {
		traces[i] = traceparent(i+1, i+1)
	}
	s.Round(t.Context(), telemetry.Round{Consumer: "push", End: "processed", Events: 1000, Traces: traces})
	span := recorder.Ended()[0]
	if n := len(span.Links()); n != 128 || !strings.Contains(described(span), "bothy.round.traces=1000") {
		t.Errorf("%d links, want 128: %s", n, described(span))
	}
}

// The attributes of spans are listed, and every listed one occurs.
func TestSpanAttributes(t *testing.T) {
	t.Parallel()
	s, recorder := recording(t)
	s.Round(t.Context(), telemetry.Round{Consumer: "push", End: "processed", First: 1, Events: 1, Jobs: 1, Lost: 1, Traces: []string{"x"}, ErrorType: "rule"})
	listed, set := map[string]bool{}, map[string]bool{}
	for _, a := range telemetry.SpanAttributes() {
		listed[a.Name] = true
	}
	for _, a := range recorder.Ended()[0].Attributes() {
		set[string(a.Key)] = true
	}
	if diff := cmp.Diff(listed, set); diff != "" {
		t.Errorf("attributes (-listed +set):\n%s", diff)
	}
}
