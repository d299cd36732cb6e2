package controller

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// requests is a transport that has the requests of passes made under the controller's name, and tells
// of each: as a child span, in metrics and, of a write, in the log. Requests outside of passes, the
// watches of the cache among them, go through untouched.
type requests struct {
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go reach what is below.
func (r *requests) WrappedRoundTripper() http.RoundTripper { return r.next }

func (r *requests) RoundTrip(req *http.Request) (*http.Response, error) {
	p := passOf(req.Context())
	if p == nil {
		return r.next.RoundTrip(req)
	}
	verb := strings.ToLower(req.Method)
	ctx, span := p.loop.mgr.tracer.Start(req.Context(), "request "+verb,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("http.request.method", req.Method), attribute.String("url.path", req.URL.Path)))
	defer span.End()
	req = req.Clone(ctx) // which is not ours to change
	// The server owns fields by what comes before the slash, where a write does not name an owner.
	req.Header.Set("User-Agent", p.loop.opts.FieldOwner+"/setpoint")
	clock := p.loop.mgr.opts.Clock
	began := clock.Now()
	resp, err := r.next.RoundTrip(req)
	took := clock.Since(began)
	code := "none" // no answer came
	if err == nil {
		code = strconv.Itoa(resp.StatusCode)
		span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
	}
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, code)
	}
	p.requested(req, verb, code, took)
	return resp, err
}

// requested counts a request and, of one that writes, writes a line. What was sent stays out of it: it
// may be secret.
func (p *pass) requested(req *http.Request, verb, code string, took time.Duration) {
	stats := p.loop.mgr.stats
	stats.requests.WithLabelValues(p.loop.name, verb, code).Inc()
	stats.requestSeconds.WithLabelValues(p.loop.name, verb).Observe(took.Seconds())
	if req.Method != http.MethodGet {
		p.log.Debug("wrote", "action", verb, "path", req.URL.Path, "code", code, "took", took)
	}
}
