// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// serviceName is what a collector sees where OTEL_SERVICE_NAME says nothing else.
const serviceName = "bothy-engine"

// process describes this process. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to it, and win.
func process(version string) *resource.Resource {
	own := resource.NewSchemaless(attribute.String("service.name", serviceName), attribute.String("service.version", version))
	environment, err := resource.New(context.Background(), resource.WithFromEnv())
	if err != nil {
		return own // of a malformed variable nothing is taken
	}
	merged, err := resource.Merge(own, environment)
	if err != nil {
		return own
	}
	return merged
}

// The variables that say whether there is a collector; OpenTelemetry gives them their meaning. Its exporters
// read the others (headers, timeouts, certificates, the interval, the sampler) themselves.
const (
	envDisabled = "OTEL_SDK_DISABLED"
	envEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envProtocol = "OTEL_EXPORTER_OTLP_PROTOCOL"
)

// exported is one kind of signal, as the variables of OpenTelemetry speak of it.
type exported struct {
	exporter, endpoint, protocol string   // the variables of this kind alone
	elsewhere                    []string // other exporters that may be named: what they are for is there anyhow
	note                         string   // on those, for a message
}

var (
	metricsExported = exported{
		"OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
		[]string{"prometheus"},
		" (prometheus is always there, at http.listen)",
	}
	spansExported = exported{
		exporter: "OTEL_TRACES_EXPORTER", endpoint: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", protocol: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
	}
)

// by is how a kind of signal travels to its collector: over HTTP, over gRPC, or not at all.
type by int

const (
	byNothing by = iota
	byHTTP
	byGRPC
)

// sent reads the variables.
func (x exported) sent(env func(string) (string, bool)) (by, error) {
	get := func(name string) string { value, _ := env(name); return strings.TrimSpace(value) }
	if strings.EqualFold(get(envDisabled), "true") {
		return byNothing, nil
	}
	wanted := get(envEndpoint) != "" || get(x.endpoint) != ""
	if named := get(x.exporter); named != "" {
		exporters := strings.Split(named, ",")
		for i, e := range exporters {
			exporters[i] = strings.TrimSpace(e)
			if !slices.Contains(append([]string{"otlp", "none"}, x.elsewhere...), exporters[i]) {
				return byNothing, fmt.Errorf("%s is %q: write otlp or none%s", x.exporter, named, x.note)
			}
		}
		wanted = slices.Contains(exporters, "otlp")
	}
	if !wanted {
		return byNothing, nil
	}
	name, protocol := x.protocol, get(x.protocol)
	if protocol == "" {
		name, protocol = envProtocol, get(envProtocol)
	}
	switch protocol {
	case "", "http/protobuf":
		return byHTTP, nil
	case "grpc":
		return byGRPC, nil
	default:
		return byNothing, fmt.Errorf("%s is %q: write http/protobuf or grpc", name, protocol)
	}
}

// Collector is a reader that sends the metrics to an OpenTelemetry collector, as the standard variables say. It
// is nil when they name no collector. A collector that cannot be reached is logged once, and once when it is back.
func Collector(ctx context.Context, env func(string) (string, bool), logger *slog.Logger) (sdk.Reader, error) {
	how, err := metricsExported.sent(env)
	if err != nil || how == byNothing {
		return nil, err
	}
	var exporter sdk.Exporter
	if how == byGRPC {
		exporter, err = otlpmetricgrpc.New(ctx)
	} else {
		exporter, err = otlpmetrichttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("make the exporter of metrics: %w", err)
	}
	return sdk.NewPeriodicReader(&toldMetrics{exporter, told{
		logger: logger, fails: "metrics not exported: the collector does not take them", again: "metrics exported again",
	}}), nil
}

// SpanCollector is a processor that sends the spans to an OpenTelemetry collector, as the standard variables say. It
// is nil when they name no collector. It keeps no round waiting: what a collector does not take in time is dropped.
// A collector that cannot be reached is logged once, and once when it is back.
func SpanCollector(ctx context.Context, env func(string) (string, bool), logger *slog.Logger) (trace.SpanProcessor, error) {
	how, err := spansExported.sent(env)
	if err != nil || how == byNothing {
		return nil, err
	}
	var exporter trace.SpanExporter
	if how == byGRPC {
		exporter, err = otlptracegrpc.New(ctx)
	} else {
		exporter, err = otlptracehttp.New(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("make the exporter of spans: %w", err)
	}
	return trace.NewBatchSpanProcessor(&toldSpans{exporter, told{
		logger: logger, fails: "spans not exported: the collector does not take them", again: "spans exported again",
	}}), nil
}

// told logs the failures of an exporter at their edges. The SDK would print each one.
type told struct {
	logger       *slog.Logger
	fails, again string

	mu      sync.Mutex
	failing bool
	since   time.Time
}

func (t *told) tell(ctx context.Context, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && !t.failing:
		t.failing, t.since = true, time.Now()
		t.logger.WarnContext(ctx, t.fails, slog.String(AttrErrorType, "export")) //nolint:sloglint // constants of this file
	case err == nil && t.failing:
		t.failing = false
		t.logger.InfoContext(ctx, t.again, slog.Duration(AttrDuration, time.Since(t.since).Round(time.Millisecond))) //nolint:sloglint // constants of this file
	}
}

type toldMetrics struct {
	sdk.Exporter

	told told
}

// Export sends the metrics. It returns no error: what there is to say has been said.
func (t *toldMetrics) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	t.told.tell(ctx, t.Exporter.Export(ctx, data))
	return nil
}

type toldSpans struct {
	trace.SpanExporter

	told told
}

// ExportSpans sends the spans. It returns no error: what there is to say has been said.
func (t *toldSpans) ExportSpans(ctx context.Context, spans []trace.ReadOnlySpan) error {
	t.told.tell(ctx, t.SpanExporter.ExportSpans(ctx, spans))
	return nil
}
