package cache

import (
	"context"
	"crypto/tls"
	"io"
	"net/http/httptrace"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// server asks for the text of lists and watches.
type server struct {
	client rest.Interface
	// mute is whether the last connection that was used can die without anybody's being told: one over
	// HTTP/1.1, where there are no pings.
	mute atomic.Bool
}

func newServer(config *rest.Config, opts *Options) (*server, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &schema.GroupVersion{}, "/" // each request says its whole path
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	// Objects are held as JSON, from which every form can be read. Answers that are none, such as
	// those that say what went wrong, are read as client-go does.
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(config, opts.HTTPClient)
	return &server{client: client}, err
}

// part is what a stream asks for: a kind, or some of it, whole or as metadata.
type part struct {
	resource  schema.GroupVersionResource
	namespace string // "" is all
	labels    string
	fields    string
}

// metadataOnly asks for metadata, and takes all from a server that cannot give less.
const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
const metadataListOnly = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

func (s *server) list(ctx context.Context, p *part, whole bool) (io.ReadCloser, error) {
	return s.get(ctx, p, whole, metav1.ListOptions{})
}

func (s *server) watch(ctx context.Context, p *part, whole bool, opts metav1.ListOptions) (io.ReadCloser, error) {
	opts.Watch = true
	return s.get(ctx, p, whole, opts)
}

func (s *server) get(ctx context.Context, p *part, whole bool, opts metav1.ListOptions) (io.ReadCloser, error) {
	opts.LabelSelector, opts.FieldSelector = p.labels, p.fields
	path := []string{"apis", p.resource.Group, p.resource.Version}
	if p.resource.Group == "" {
		path = []string{"api", p.resource.Version}
	}
	if p.namespace != "" {
		path = append(path, "namespaces", p.namespace)
	}
	request := s.client.Get().AbsPath("/"+strings.Join(append(path, p.resource.Resource), "/")).
		SpecificallyVersionedParams(&opts, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
	switch {
	case whole:
	case opts.Watch:
		request = request.SetHeader("Accept", metadataOnly)
	default:
		request = request.SetHeader("Accept", metadataListOnly)
	}
	return request.Stream(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: s.look}))
}

// look sees which protocol a connection speaks. A server in the process has none, and cannot be lost.
func (s *server) look(used httptrace.GotConnInfo) {
	secure, ok := used.Conn.(*tls.Conn)
	s.mute.Store(!ok || secure.ConnectionState().NegotiatedProtocol != "h2")
}
