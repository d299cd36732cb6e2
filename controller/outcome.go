package controller

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// outcome is how a pass ended, as logs, spans and dashboards name it.
type outcome string

const (
	outcomeDone     outcome = "success"
	outcomeAfter    outcome = "requeue_after"
	outcomeAgain    outcome = "requeue"
	outcomeError    outcome = "error"
	outcomeConflict outcome = "conflict" // an error that only says: read again
	outcomeTerminal outcome = "terminal" // an error that is not tried again
)

func outcomeOf(result reconcile.Result, err error) outcome {
	switch {
	case errors.Is(err, reconcile.TerminalError(nil)):
		return outcomeTerminal
	case apierrors.IsConflict(err):
		return outcomeConflict
	case err != nil:
		return outcomeError
	case result.RequeueAfter > 0:
		return outcomeAfter
	//lint:ignore SA1019 deprecated upstream, and still sent by operators
	case result.Requeue:
		return outcomeAgain
	}
	return outcomeDone
}

func (o outcome) failed() bool {
	return o == outcomeError || o == outcomeConflict || o == outcomeTerminal
}

func isCanceled(err error) bool { return errors.Is(err, context.Canceled) }
