package controller

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// tracerName is the instrumentation scope of all spans.
const tracerName = "github.com/setpoint-dev/setpoint/controller"

// tracerOf returns the tracer of a provider; without one, spans cost nothing.
func tracerOf(provider trace.TracerProvider) trace.Tracer {
	if provider == nil {
		provider = noop.NewTracerProvider()
	}
	return provider.Tracer(tracerName)
}

// attributes are what a span says from the beginning. Names of objects are in spans, as in logs, but
// never in metrics.
func (p *pass) attributes(s state) []attribute.KeyValue {
	reasons := make([]string, len(p.reasons))
	for i, r := range p.reasons {
		reasons[i] = r.String()
	}
	return []attribute.KeyValue{
		attribute.String("setpoint.controller", p.loop.name),
		attribute.String("setpoint.kind", p.loop.kind.Kind),
		attribute.String("setpoint.namespace", p.key.Namespace),
		attribute.String("setpoint.name", p.key.Name),
		attribute.Int64("setpoint.generation", s.generation),
		attribute.String("setpoint.reconcile_id", p.id),
		attribute.StringSlice("setpoint.reasons", reasons),
	}
}

// finish ends the span. A conflict is no failure: it is how two writers meet.
func (p *pass) finish(o outcome, err error) {
	p.span.SetAttributes(attribute.String("setpoint.result", string(o)))
	if err != nil && o != outcomeConflict {
		p.span.RecordError(err)
		p.span.SetStatus(codes.Error, err.Error())
	}
	p.span.End()
}
