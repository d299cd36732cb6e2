package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Informers is the part of a controller-runtime cache by which a proxy hears of
// changes.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Options configure a Proxy. Client and Informers are required.
type Options struct {
	Client    client.Reader // reads from the cache that Informers belongs to
	Informers Informers
	Logger    *slog.Logger // slog.Default() if nil
}

// Proxy serves the cluster IPs of Services. Make it with New and run it once.
type Proxy struct {
	Options
	wake chan struct{}

	// Used by Run's goroutine alone.
	frontends map[netip.AddrPort]*frontend
	skipped   map[netip.AddrPort]bool // what was said not to be served
	loopback  *loopback
	accepting sync.WaitGroup
	conns     sync.WaitGroup
}

// New returns a Proxy.
func New(opts Options) *Proxy {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return &Proxy{
		Options:   opts,
		wake:      make(chan struct{}, 1),
		frontends: map[netip.AddrPort]*frontend{},
		skipped:   map[netip.AddrPort]bool{},
		loopback:  newLoopback(),
	}
}

// Start is Run, by the name that a controller manager calls it.
func (p *Proxy) Start(ctx context.Context) error { return p.Run(ctx) }

// Run serves until ctx ends, and then closes every connection.
func (p *Proxy) Run(ctx context.Context) error {
	for _, object := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}} {
		informer, err := p.Informers.GetInformer(ctx, object)
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { p.changed() },
			UpdateFunc: func(_, _ any) { p.changed() },
			DeleteFunc: func(any) { p.changed() },
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return nil
		}
	}
	defer p.close()
	for {
		if err := p.sync(ctx); err != nil {
			p.Logger.Error("service proxy", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
	}
}

func (p *Proxy) changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// sync brings the listeners to what is declared.
func (p *Proxy) sync(ctx context.Context) error {
	var services corev1.ServiceList
	if err := p.Client.List(ctx, &services); err != nil {
		return err
	}
	var endpoints discoveryv1.EndpointSliceList
	if err := p.Client.List(ctx, &endpoints); err != nil {
		return err
	}
	wanted := map[netip.AddrPort]bool{}
	for _, want := range Plan(services.Items, endpoints.Items) {
		wanted[want.Address] = true
		if f, ok := p.frontends[want.Address]; ok {
			f.set(want.Endpoints)
			continue
		}
		f, err := p.listen(ctx, want)
		if err != nil {
			if !p.skipped[want.Address] {
				p.Logger.Warn("a service is not reachable at its cluster IP",
					"namespace", want.Service.Namespace, "service", want.Service.Name,
					"address", want.Address, "reason", err)
			}
			p.skipped[want.Address] = true
			continue
		}
		delete(p.skipped, want.Address)
		p.frontends[want.Address] = f
	}
	for address, f := range p.frontends {
		if !wanted[address] {
			f.listener.Close()
			delete(p.frontends, address)
		}
	}
	for address := range p.skipped {
		if !wanted[address] {
			delete(p.skipped, address)
		}
	}
	return p.loopback.keep(p.frontends)
}

func (p *Proxy) listen(ctx context.Context, want Frontend) (*frontend, error) {
	if err := p.loopback.add(want.Address.Addr()); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", want.Address.String())
	if err != nil {
		return nil, err
	}
	f := &frontend{listener: listener}
	f.set(want.Endpoints)
	p.accepting.Go(func() { f.accept(ctx, &p.conns) })
	return f, nil
}

// close ends everything; the connections end with Run's context.
func (p *Proxy) close() {
	for _, f := range p.frontends {
		f.listener.Close()
	}
	p.accepting.Wait()
	p.conns.Wait()
	if err := p.loopback.keep(nil); err != nil {
		p.Logger.Error("service proxy", "error", err)
	}
}

func isClosed(err error) bool { return errors.Is(err, net.ErrClosed) }
