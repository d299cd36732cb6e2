package controller

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/setpoint-dev/setpoint/client"
	"github.com/setpoint-dev/setpoint/workqueue"
)

// A pass is one call of a reconciler.
type pass struct {
	id      string
	key     request
	loop    *loop
	reasons []workqueue.Reason
	log     *slog.Logger
	span    trace.Span
}

type passKey struct{}

// passOf returns the pass that a context was made for, nil if for none.
func passOf(ctx context.Context) *pass {
	p, _ := ctx.Value(passKey{}).(*pass)
	return p
}

// PassFrom returns the id of the pass that a context was made for, as its log lines and its span have
// it; "" outside of a pass.
func PassFrom(ctx context.Context) string {
	if p := passOf(ctx); p != nil {
		return p.id
	}
	return ""
}

// FieldOwnerFrom returns the name under which what is written with the context is owned: that of the
// controller, or "" outside of a pass.
func FieldOwnerFrom(ctx context.Context) string {
	if p := passOf(ctx); p != nil {
		return p.loop.opts.FieldOwner
	}
	return ""
}

// LoggerFrom returns the logger of the pass that a context was made for, or slog.Default().
func LoggerFrom(ctx context.Context) *slog.Logger {
	if l := logr.FromContextAsSlogLogger(ctx); l != nil {
		return l
	}
	return slog.Default()
}

// begin returns a pass over an object, of which is known what state says, and its context.
func (l *loop) begin(ctx context.Context, key request, state state, reasons []workqueue.Reason) (context.Context, *pass) {
	p := &pass{id: uuid.NewString(), key: key, loop: l, reasons: reasons}
	p.log = l.log.With("namespace", key.Namespace, "name", key.Name, "reconcileID", p.id)
	if state.generation != 0 {
		p.log = p.log.With("generation", state.generation)
	}
	ctx, p.span = l.mgr.tracer.Start(ctx, "reconcile "+l.name, trace.WithAttributes(p.attributes(state)...))
	ctx = context.WithValue(ctx, passKey{}, p)
	return logr.NewContextWithSlogLogger(ctx, p.log), p
}

// reconcile calls the reconciler once. A panic of it is returned as an error.
func (l *loop) reconcile(ctx context.Context, p *pass, writes *client.Writes) (result reconcile.Result, err error) {
	ctx = client.Track(ctx, writes)
	if l.opts.ReconcileTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.opts.ReconcileTimeout)
		defer cancel()
	}
	began := l.mgr.opts.Clock.Now()
	defer func() {
		if v := recover(); v != nil {
			p.log.Error("reconcile panicked", "panic", v, "stack", string(debug.Stack()))
			result, err = reconcile.Result{}, fmt.Errorf("panic: %v", v)
			l.stats.panics.Inc()
		}
		p.end(ctx, l.mgr.opts.Clock.Since(began), result, err)
	}()
	return l.reconciler.Reconcile(ctx, p.key)
}

// end tells what came of a pass: in metrics, log and trace.
func (p *pass) end(ctx context.Context, took time.Duration, result reconcile.Result, err error) {
	outcome := outcomeOf(result, err)
	p.loop.stats.observe(took, outcome)
	p.finish(outcome, err)
	switch {
	case err == nil:
		p.log.Debug("reconciled", "result", outcome, "took", took, "after", result.RequeueAfter)
	case ctx.Err() != nil && isCanceled(err):
	case outcome == outcomeConflict:
		p.log.Info("conflict; reading again", "err", err)
	default:
		p.log.Error("reconcile failed", "err", err, "terminal", outcome == outcomeTerminal)
	}
}
