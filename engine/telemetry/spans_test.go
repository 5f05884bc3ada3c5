// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value.Emit())
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

// Without a collector no span is made, and what cannot be understood is said.
func TestSpanCollectorVariables(t *testing.T) {
	t.Parallel()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, c := range map[string]struct {
		env  []string
		made bool
		err  string
	}{
		"nothing":           {},
		"endpoint":          {env: []string{endpoint, "http://127.0.0.1:1"}, made: true},
		"for spans":         {env: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1/v1/traces"}, made: true},
		"for metrics":       {env: []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:1/v1/metrics"}},
		"grpc":              {env: []string{endpoint, "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"}, made: true},
		"turned off":        {env: []string{endpoint, "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER", "none"}},
		"disabled":          {env: []string{endpoint, "http://127.0.0.1:1", "OTEL_SDK_DISABLED", "true"}},
		"another exporter":  {env: []string{"OTEL_TRACES_EXPORTER", "prometheus"}, err: `OTEL_TRACES_EXPORTER is "prometheus": write otlp or none`},
		"protocol of spans": {env: []string{endpoint, "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "x"}, err: `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			processor, err := telemetry.SpanCollector(t.Context(), environment(c.env...), slog.New(slog.DiscardHandler))
			if processor != nil {
				_ = processor.Shutdown(context.Background())
			}
			if (processor != nil) != c.made || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("SpanCollector with %q = made %v, %v; want made %v and an error with %q", c.env, processor != nil, err, c.made, c.err)
			}
		})
	}
}

// The spans arrive at a collector, and one that takes nothing is told once, and once when it takes them again.
func TestSpanCollectorIsToldOnce(t *testing.T) {
	var refuses atomic.Bool
	var got atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/traces" && bytes.Contains(body, []byte("round push")) && bytes.Contains(body, []byte("bothy-engine")) {
			got.Add(1)
		}
		if refuses.Load() {
			w.WriteHeader(http.StatusBadRequest) // an answer that is not tried again
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL) // the exporter reads it itself
	var log bytes.Buffer
	processor, err := telemetry.SpanCollector(t.Context(), environment("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := telemetry.New(telemetry.Options{
		Consumers: []telemetry.Consumer{{Name: "push"}}, Ends: []string{"processed"}, Works: []string{"processed"},
		Ready: func() []string { return nil }, Spans: []trace.SpanProcessor{processor},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, refused := range []bool{false, true, true, false, false} {
		refuses.Store(refused)
		s.Round(t.Context(), telemetry.Round{Consumer: "push", End: "processed", Events: 1})
		if err := processor.ForceFlush(t.Context()); err != nil {
			t.Errorf("ForceFlush: %v", err)
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if n := got.Load(); n != 5 {
		t.Errorf("the collector got %d spans, want 5", n)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "spans not exported") || !strings.Contains(lines[1], "exported again") {
		t.Errorf("log:\n%s\nwant one line when it begins and one when it ends", log.String())
	}
}
