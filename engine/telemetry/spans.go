// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// The attributes of spans that no metric has.
const (
	attrFirst  = "bothy.event.seq"
	attrEvents = "bothy.round.events"
	attrJobs   = "bothy.round.jobs"
	attrLost   = "bothy.round.lost"
	attrTraces = "bothy.round.traces"
)

// mostLinks bounds the links of one span.
const mostLinks = 128

// SpanAttributes are what a span can say of its round, in the order of the reference page. As in the log, there is no
// payload, no recipient and no text of an error among them.
func SpanAttributes() []Attribute {
	return []Attribute{
		{AttrConsumer, "The name of the consumer."},
		{AttrEnd, "How the round ended."},
		{attrFirst, "The number of the first event that was processed."},
		{attrEvents, "How many events were processed."},
		{attrJobs, "How many jobs were inserted."},
		{attrLost, "How many events retention had removed."},
		{attrTraces, "How many different traceparents its events have."},
		{AttrErrorType, "The kind of the error of a round that failed, as in the log."},
	}
}

// tracing makes what writes spans, when somebody takes them.
func (s *Signals) tracing() {
	if len(s.options.Spans) == 0 {
		return
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(process(s.options.Version))}
	for _, p := range s.options.Spans {
		options = append(options, sdktrace.WithSpanProcessor(p))
	}
	s.spans = sdktrace.NewTracerProvider(options...)
	s.tracer = s.spans.Tracer(scope)
}

// span writes down a round that did work or failed. The round is over by now, and its end has told whether there is a
// span: the many that found nothing to do cost none. It is the root of a trace of its own, since its events come from
// many, to which it links.
func (s *Signals) span(ctx context.Context, r Round) {
	if s.tracer == nil {
		return
	}
	ended := time.Now()
	_, span := s.tracer.Start(ctx, "round "+r.Consumer,
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(ended.Add(-r.Took)),
		trace.WithAttributes(r.attributes()...), trace.WithLinks(links(r.Traces)...))
	if r.ErrorType != "" {
		span.SetStatus(codes.Error, r.ErrorType)
	}
	span.End(trace.WithTimestamp(ended))
}

// attributes are those of the span.
func (r Round) attributes() []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.String(AttrConsumer, r.Consumer), attribute.String(AttrEnd, r.End)}
	if r.Events > 0 {
		attrs = append(attrs, attribute.Int64(attrFirst, r.First), attribute.Int(attrEvents, r.Events), attribute.Int(attrJobs, r.Jobs))
	}
	if r.Lost > 0 {
		attrs = append(attrs, attribute.Int64(attrLost, r.Lost))
	}
	if len(r.Traces) > 0 {
		attrs = append(attrs, attribute.Int(attrTraces, len(r.Traces)))
	}
	if r.ErrorType != "" {
		attrs = append(attrs, attribute.String(AttrErrorType, r.ErrorType))
	}
	return attrs
}

// links are those to the spans of the producers. What is no traceparent is passed over.
func links(traceparents []string) []trace.Link {
	var links []trace.Link
	for t := range slices.Values(traceparents) {
		carrier := propagation.MapCarrier{"traceparent": t}
		producer := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		if !producer.IsValid() {
			continue
		}
		if links = append(links, trace.Link{SpanContext: producer}); len(links) == mostLinks {
			break
		}
	}
	return links
}
