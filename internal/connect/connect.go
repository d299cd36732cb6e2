// Package connect makes HTTP clients of API servers that soon notice when a connection is dead though
// nobody has closed it: a machine that has lost its power, a firewall that has forgotten.
//
// Over HTTP/2 a server that has said nothing for 15 s is sent a ping, and a connection on which that
// is not answered within 15 s is closed: all requests on it fail, and the next go over a new one.
// client-go's own clients take 45 s for that. HTTP/1.1 has no pings; where it is spoken, whoever needs
// to know earlier has to give up by himself. No answer takes longer than 75 s to begin: servers give up
// after 60.
package connect

import (
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

const (
	pingAfter   = 15 * time.Second
	pingTimeout = 15 * time.Second // a server that is busy may take seconds
	dialTimeout = 30 * time.Second
	answerMax   = 75 * time.Second
)

// HTTPClient is rest.HTTPClientFor for such connections. A Transport of the configuration's own, as
// that of a server in the process, is left as it is.
func HTTPClient(config *rest.Config) (*http.Client, error) {
	own := rest.CopyConfig(config)
	if own.Transport == nil {
		if own.Dial == nil {
			// Idle connections over HTTP/1.1 are found dead by the kernel in as long.
			own.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
				Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
			}}).DialContext
		}
		own.WrapTransport = transport.Wrappers(watchOver, own.WrapTransport)
	}
	client, err := rest.HTTPClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("client for %s: %w", config.Host, err)
	}
	return client, nil
}

// watchOver has the connections of client-go's transport pinged. As there is a Dial in the configuration,
// the transport is used by nobody else yet.
func watchOver(base http.RoundTripper) http.RoundTripper {
	for at := base; ; {
		switch t := at.(type) {
		case *http.Transport:
			t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
			t.ResponseHeaderTimeout = answerMax
			return base
		case utilnet.RoundTripperWrapper:
			at = t.WrappedRoundTripper()
		default:
			return base
		}
	}
}
