// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"

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

// Without a collector nothing is exported, and what cannot be understood is said.
func TestCollectorVariables(t *testing.T) {
	t.Parallel()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, c := range map[string]struct {
		env  []string
		made bool
		err  string
	}{
		"nothing":             {},
		"empty":               {env: []string{endpoint, ""}},
		"endpoint":            {env: []string{endpoint, "http://127.0.0.1:1"}, made: true},
		"for metrics":         {env: []string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:1/v1/metrics"}, made: true},
		"grpc":                {env: []string{endpoint, "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}, made: true},
		"asked for":           {env: []string{"OTEL_METRICS_EXPORTER", "otlp"}, made: true},
		"turned off":          {env: []string{endpoint, "http://127.0.0.1:1", "OTEL_METRICS_EXPORTER", "none"}},
		"disabled":            {env: []string{endpoint, "http://127.0.0.1:1", "OTEL_SDK_DISABLED", "true"}},
		"another exporter":    {env: []string{"OTEL_METRICS_EXPORTER", "console"}, err: `OTEL_METRICS_EXPORTER is "console"`},
		"another protocol":    {env: []string{endpoint, "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"}, err: `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json"`},
		"protocol of metrics": {env: []string{endpoint, "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "x"}, err: `OTEL_EXPORTER_OTLP_METRICS_PROTOCOL is "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader, err := telemetry.Collector(t.Context(), environment(c.env...), slog.New(slog.DiscardHandler))
			if reader != nil {
				_ = reader.Shutdown(context.Background())
			}
			if (reader != nil) != c.made || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("Collector with %q = made %v, %v; want made %v and an error with %q", c.env, reader != nil, err, c.made, c.err)
			}
		})
	}
}

// The metrics arrive at a collector, and one that takes nothing is told once, and once when it takes them again.
func TestCollectorIsToldOnce(t *testing.T) {
	var refuses atomic.Bool
	var got atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		got.Add(1)
		if refuses.Load() {
			w.WriteHeader(http.StatusBadRequest) // an answer that is not tried again
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL) // the exporter reads it itself
	var log bytes.Buffer
	reader, err := telemetry.Collector(t.Context(), environment("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := telemetry.New(telemetry.Options{Ready: func() []string { return nil }, Readers: []sdk.Reader{reader}})
	if err != nil {
		t.Fatal(err)
	}
	periodic, ok := reader.(*sdk.PeriodicReader)
	if !ok {
		t.Fatalf("the reader is a %T", reader)
	}
	for _, refused := range []bool{false, true, true, false, false} {
		refuses.Store(refused)
		if err := periodic.ForceFlush(t.Context()); err != nil {
			t.Errorf("ForceFlush: %v", err)
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if n := got.Load(); n < 5 {
		t.Errorf("the collector was asked %d times, want at least 5", n)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], "metrics not exported") || !strings.Contains(lines[1], "exported again") {
		t.Errorf("log:\n%s\nwant one line when it begins and one when it ends", log.String())
	}
}
