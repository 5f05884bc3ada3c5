// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
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
// read the others (headers, timeouts, certificates, the interval) themselves.
const (
	envDisabled        = "OTEL_SDK_DISABLED"
	envExporter        = "OTEL_METRICS_EXPORTER"
	envEndpoint        = "OTEL_EXPORTER_OTLP_ENDPOINT"
	envMetricsEndpoint = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
	envProtocol        = "OTEL_EXPORTER_OTLP_PROTOCOL"
	envMetricsProtocol = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"
)

// Collector is a reader that sends the metrics to an OpenTelemetry collector, as the standard variables say. It
// is nil when they name no collector. A collector that cannot be reached is logged once, and once when it is back.
func Collector(ctx context.Context, env func(string) (string, bool), logger *slog.Logger) (sdk.Reader, error) {
	get := func(name string) string { value, _ := env(name); return strings.TrimSpace(value) }
	if strings.EqualFold(get(envDisabled), "true") {
		return nil, nil
	}
	wanted := get(envEndpoint) != "" || get(envMetricsEndpoint) != ""
	if named := get(envExporter); named != "" {
		exporters := strings.Split(named, ",")
		for i, e := range exporters {
			exporters[i] = strings.TrimSpace(e)
			if !slices.Contains([]string{"otlp", "prometheus", "none"}, exporters[i]) {
				return nil, fmt.Errorf("%s is %q: write otlp or none (prometheus is always there, at http.listen)", envExporter, named)
			}
		}
		wanted = slices.Contains(exporters, "otlp")
	}
	if !wanted {
		return nil, nil
	}
	name, protocol := envMetricsProtocol, get(envMetricsProtocol)
	if protocol == "" {
		name, protocol = envProtocol, get(envProtocol)
	}
	var exporter sdk.Exporter
	var err error
	switch protocol {
	case "", "http/protobuf":
		exporter, err = otlpmetrichttp.New(ctx)
	case "grpc":
		exporter, err = otlpmetricgrpc.New(ctx)
	default:
		return nil, fmt.Errorf("%s is %q: write http/protobuf or grpc", name, protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("make the exporter of metrics: %w", err)
	}
	return sdk.NewPeriodicReader(&told{Exporter: exporter, logger: logger}), nil
}

// told is an exporter whose failures are logged at their edges. The SDK would print each one.
type told struct {
	sdk.Exporter

	logger  *slog.Logger
	mu      sync.Mutex
	failing bool
}

// Export sends the metrics. It returns no error: what there is to say has been said.
func (t *told) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	err := t.Exporter.Export(ctx, data)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil && !t.failing:
		t.failing = true
		t.logger.WarnContext(ctx, "metrics not exported: the collector does not take them", slog.String(AttrErrorType, "export"))
	case err == nil && t.failing:
		t.failing = false
		t.logger.InfoContext(ctx, "metrics exported again")
	}
	return nil
}
