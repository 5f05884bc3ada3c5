// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"example.com/bothy/engine/telemetry"
)

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// ended is what a collector's reader or processor has in common.
type ended interface {
	ForceFlush(ctx context.Context) error
	Shutdown(ctx context.Context) error
}

// made leaves a nil of any type out.
func made[T ended](collector T, there bool, err error) (ended, error) {
	if !there {
		return nil, err
	}
	return collector, err
}

func metricCollector(ctx context.Context, env func(string) (string, bool), logger *slog.Logger) (ended, error) {
	reader, err := telemetry.Collector(ctx, env, logger)
	periodic, there := reader.(*sdk.PeriodicReader)
	return made(periodic, there, err)
}

func spanCollector(ctx context.Context, env func(string) (string, bool), logger *slog.Logger) (ended, error) {
	processor, err := telemetry.SpanCollector(ctx, env, logger)
	return made(processor, processor != nil, err)
}

// Without a collector nothing is exported, and what cannot be understood is said.
func TestCollectorVariables(t *testing.T) {
	t.Parallel()
	const endpoint, nowhere = "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"
	for kind, collector := range map[string]func(context.Context, func(string) (string, bool), *slog.Logger) (ended, error){
		"METRICS": metricCollector, "TRACES": spanCollector,
	} {
		other := map[string]string{"METRICS": "TRACES", "TRACES": "METRICS"}[kind]
		for name, c := range map[string]struct {
			env  []string
			made bool
			err  string
		}{
			"nothing":            {},
			"empty":              {env: []string{endpoint, ""}},
			"endpoint":           {env: []string{endpoint, nowhere}, made: true},
			"of this kind":       {env: []string{"OTEL_EXPORTER_OTLP_" + kind + "_ENDPOINT", nowhere + "/v1/x"}, made: true},
			"of the other kind":  {env: []string{"OTEL_EXPORTER_OTLP_" + other + "_ENDPOINT", nowhere + "/v1/x"}},
			"grpc":               {env: []string{endpoint, nowhere, "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, made: true},
			"asked for":          {env: []string{"OTEL_" + kind + "_EXPORTER", "otlp"}, made: true},
			"turned off":         {env: []string{endpoint, nowhere, "OTEL_" + kind + "_EXPORTER", "none"}},
			"the other is off":   {env: []string{endpoint, nowhere, "OTEL_" + other + "_EXPORTER", "none"}, made: true},
			"disabled":           {env: []string{endpoint, nowhere, "OTEL_SDK_DISABLED", "true"}},
			"another exporter":   {env: []string{"OTEL_" + kind + "_EXPORTER", "console"}, err: "OTEL_" + kind + `_EXPORTER is "console"`},
			"another protocol":   {env: []string{endpoint, nowhere, "OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"}, err: `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json"`},
			"protocol of a kind": {env: []string{endpoint, nowhere, "OTEL_EXPORTER_OTLP_" + kind + "_PROTOCOL", "x"}, err: "OTEL_EXPORTER_OTLP_" + kind + `_PROTOCOL is "x"`},
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				got, err := collector(t.Context(), environment(c.env...), slog.New(slog.DiscardHandler))
				if got != nil {
					_ = got.Shutdown(context.Background())
				}
				if (got != nil) != c.made || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("a collector with %q = made %v, %v; want made %v and an error with %q", c.env, got != nil, err, c.made, c.err)
				}
			})
		}
	}
	if _, err := telemetry.SpanCollector(t.Context(), environment("OTEL_TRACES_EXPORTER", "prometheus"), nil); err == nil {
		t.Error("spans for Prometheus: no error")
	}
}

// Metrics and spans arrive at a collector, and one that takes nothing is told once, and once when it takes them again.
func TestCollectorIsToldOnce(t *testing.T) {
	for _, c := range []struct {
		path, holds, what string
		collector         func(context.Context, func(string) (string, bool), *slog.Logger) (ended, error)
	}{
		{"/v1/metrics", "bothy.event.consumer.rounds", "metrics", metricCollector},
		{"/v1/traces", "round push", "spans", spanCollector},
	} {
		t.Run(c.what, func(t *testing.T) {
			var refuses atomic.Bool
			var got atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if r.URL.Path == c.path && bytes.Contains(body, []byte(c.holds)) && bytes.Contains(body, []byte("bothy-engine")) {
					got.Add(1)
				}
				if refuses.Load() {
					w.WriteHeader(http.StatusBadRequest) // an answer that is not tried again
				}
			}))
			defer server.Close()
			for name, value := range map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"} {
				t.Setenv(name, value) // the exporter reads it itself
			}
			var log bytes.Buffer
			collector, err := c.collector(t.Context(), environment("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL), slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			o := telemetry.Options{
				Consumers: []telemetry.Consumer{{Name: "push"}}, Ends: []string{"processed"}, Works: []string{"processed"}, Ready: func() []string { return nil },
			}
			if reader, is := collector.(sdk.Reader); is {
				o.Readers = append(o.Readers, reader)
			}
			if processor, is := collector.(trace.SpanProcessor); is {
				o.Spans = append(o.Spans, processor)
			}
			s, err := telemetry.New(o)
			if err != nil {
				t.Fatal(err)
			}
			for _, refused := range []bool{false, true, true, false, false} {
				refuses.Store(refused)
				s.Round(t.Context(), telemetry.Round{Consumer: "push", End: "processed", Events: 1})
				if err := collector.ForceFlush(t.Context()); err != nil {
					t.Errorf("ForceFlush: %v", err)
				}
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if n := got.Load(); n < 5 {
				t.Errorf("the collector got %d requests with %s, want at least 5", n, c.holds)
			}
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(lines) != 2 || !strings.Contains(lines[0], c.what+" not exported") || !strings.Contains(lines[1], c.what+" exported again\" duration=") {
				t.Errorf("log:\n%s\nwant one line when it begins and one when it ends", log.String())
			}
		})
	}
}
