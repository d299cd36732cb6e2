package pod

import (
	"fmt"
	"regexp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/setpoint-dev/setpoint/kinds/check"
)

// probes checks a container's three probes.
func probes(e *check.Errors, ctx *context, c check.At) {
	if p := c.Child("livenessProbe"); p.Exists() {
		probe(e, ctx, p)
		succeedsAtOnce(e, p)
	}
	if p := c.Child("readinessProbe"); p.Exists() {
		probe(e, ctx, p)
		if p.Has("terminationGracePeriodSeconds") {
			e.Invalid(p.At("terminationGracePeriodSeconds"), p.Int("terminationGracePeriodSeconds"),
				"must not be set for readinessProbes")
		}
	}
	if p := c.Child("startupProbe"); p.Exists() {
		probe(e, ctx, p)
		succeedsAtOnce(e, p)
	}
}

func succeedsAtOnce(e *check.Errors, p check.At) {
	if n := p.Int("successThreshold"); n != 1 {
		e.Invalid(p.At("successThreshold"), n, "must be 1")
	}
}

func probe(e *check.Errors, ctx *context, p check.At) {
	handler(e, ctx, p, "exec", "httpGet", "tcpSocket", "grpc")
	for _, name := range []string{
		"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
	} {
		e.NotNegative(p, name)
	}
	if n := p.Int("terminationGracePeriodSeconds"); p.Has("terminationGracePeriodSeconds") && n <= 0 {
		e.Invalid(p.At("terminationGracePeriodSeconds"), n, "must be greater than 0")
	}
}

// lifecycle checks the hooks around a container's life.
func lifecycle(e *check.Errors, ctx *context, c check.At) {
	l := c.Child("lifecycle")
	for _, hook := range []string{"postStart", "preStop"} {
		if h := l.Child(hook); h.Exists() {
			handler(e, ctx, h, "exec", "httpGet", "tcpSocket", "sleep")
		}
	}
	if l.Has("stopSignal") {
		stopSignal(e, ctx, l)
	}
}

// handler checks that exactly one of the ways to act is given, and is right.
func handler(e *check.Errors, ctx *context, h check.At, ways ...string) {
	found := false
	for _, way := range ways {
		w := h.Child(way)
		if !w.Exists() {
			continue
		}
		if found {
			e.Forbidden(w.Path, "may not specify more than 1 handler type")
			continue
		}
		found = true
		action(e, ctx, way, w)
	}
	if !found {
		e.Required(h.Path, "must specify a handler type")
	}
}

func action(e *check.Errors, ctx *context, way string, a check.At) {
	switch way {
	case "exec":
		if a.Len("command") == 0 {
			e.Required(a.At("command"), "")
		}
	case "httpGet":
		httpGet(e, a)
	case "tcpSocket":
		e.Port(a.At("port"), a.Get("port"))
	case "grpc":
		e.PortNumber(a.At("port"), a.Int("port"))
	case "sleep":
		grace := ctx.spec.Int("terminationGracePeriodSeconds")
		if n := a.Int("seconds"); n < 0 || n > grace {
			e.Invalid(a.Path, n,
				fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)",
					grace))
		}
	}
}

func httpGet(e *check.Errors, get check.At) {
	if get.Str("path") == "" {
		e.Required(get.At("path"), "")
	}
	e.Port(get.At("port"), get.Get("port"))
	if scheme := get.Str("scheme"); scheme != "HTTP" && scheme != "HTTPS" {
		e.NotSupported(get.At("scheme"), scheme, "HTTP", "HTTPS")
	}
	for _, header := range get.Each("httpHeaders") {
		name := header.Str("name")
		e.Messages(get.At("httpHeaders"), name, validation.IsHTTPHeaderName(name))
	}
}

// linuxSignals matches the signals of Linux by name; those of real time are counted from both ends.
var linuxSignals = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^SIG(ABRT|ALRM|BUS|CHLD|CLD|CONT|FPE|HUP|ILL|INT|IO|IOT|KILL|PIPE|POLL|` +
		`PROF|PWR|QUIT|SEGV|STKFLT|STOP|SYS|TERM|TRAP|TSTP|TTIN|TTOU|URG|USR1|USR2|VTALRM|WINCH|XCPU|` +
		`XFSZ|RTMIN(\+([1-9]|1[0-5]))?|RTMAX(-([1-9]|1[0-4]))?)$`)
})

func stopSignal(e *check.Errors, ctx *context, l check.At) {
	path, signal := l.At("stopSignal"), l.Str("stopSignal")
	switch ctx.spec.Child("os").Str("name") {
	case "":
		e.Forbidden(path, "may not be set for containers with empty `spec.os.name`")
	case "windows":
		if !slices.Contains([]string{"SIGKILL", "SIGTERM"}, signal) {
			e.NotSupported(path, signal, "SIGKILL", "SIGTERM")
		}
	case "linux":
		if !linuxSignals().MatchString(signal) {
			e.Invalid(path, signal,
				"must be the name of a Linux signal, such as SIGTERM or SIGRTMIN+3")
		}
	}
}
