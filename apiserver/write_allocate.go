package apiserver

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/kinds/tree"
)

// Node ports are given out from this range, upstream's default.
const (
	nodePortFirst = 30000
	nodePortLast  = 32767
)

// allocations are the service addresses and node ports in use. What the stored Services hold is the
// truth; this is a copy of it, made before the first allocation, and what writes under way have
// reserved. A write that fails gives back what it reserved, so a refused write costs nothing.
type allocations struct {
	cidr netip.Prefix

	mu     sync.Mutex
	loaded bool
	ips    map[netip.Addr]bool
	ports  map[int64]bool
	// Where the search for a free one begins.
	nextIP   netip.Addr
	nextPort int64
}

func newAllocations(cidr netip.Prefix) *allocations {
	return &allocations{cidr: cidr.Masked(), ips: map[netip.Addr]bool{}, ports: map[int64]bool{}}
}

// load reads what the stored Services hold, once: services calls its argument for each.
func (a *allocations) load(services func(hold func(kinds.Object)) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.loaded {
		return nil
	}
	err := services(func(service kinds.Object) {
		for _, ip := range addressesOf(service) {
			a.ips[ip] = true
		}
		for _, port := range portsOf(service) {
			a.ports[port] = true
		}
	})
	a.loaded = err == nil
	return err
}

// ip reserves an address; the zero one asks for any.
func (a *allocations) ip(asked netip.Addr) (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !asked.IsValid() {
		return a.freeIP()
	}
	if !a.usable(asked) {
		return asked, errors.New("the provided network does not match the current range")
	}
	if a.ips[asked] {
		return asked, errors.New("provided IP is already allocated")
	}
	a.ips[asked] = true
	return asked, nil
}

// freeIP takes addresses in turn, beginning behind those that installations give to the API server
// and to DNS by number.
func (a *allocations) freeIP() (netip.Addr, error) {
	first := a.cidr.Addr().Next()
	start := a.nextIP
	if !a.usable(start) {
		start = first
		for range 16 {
			if next := start.Next(); a.usable(next) {
				start = next
			}
		}
	}
	for ip := start; ; {
		next := ip.Next()
		if !a.usable(next) {
			next = first
		}
		if !a.ips[ip] && a.usable(ip) {
			a.ips[ip], a.nextIP = true, next
			return ip, nil
		}
		if ip = next; ip == start {
			return netip.Addr{}, errors.New("range is full")
		}
	}
}

// usable says whether an address is in the range, and neither its first, which names the network,
// nor its last, which reaches all.
func (a *allocations) usable(ip netip.Addr) bool {
	return a.cidr.Contains(ip) && a.cidr.Contains(ip.Next()) && ip != a.cidr.Addr()
}

// port reserves a node port; zero asks for any.
func (a *allocations) port(asked int64) (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if asked == 0 {
		return a.freePort()
	}
	if asked < nodePortFirst || asked > nodePortLast {
		return 0, fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d",
			nodePortFirst, nodePortLast)
	}
	if a.ports[asked] {
		return 0, errors.New("provided port is already allocated")
	}
	a.ports[asked] = true
	return asked, nil
}

func (a *allocations) freePort() (int64, error) {
	const count = nodePortLast - nodePortFirst + 1
	for i := range int64(count) {
		port := nodePortFirst + (a.nextPort+i)%count
		if !a.ports[port] {
			a.ports[port], a.nextPort = true, port+1-nodePortFirst
			return port, nil
		}
	}
	return 0, errors.New("range is full")
}

func (a *allocations) release(ips []netip.Addr, ports []int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ip := range ips {
		delete(a.ips, ip)
	}
	for _, port := range ports {
		delete(a.ports, port)
	}
}

// addressesOf are the addresses that a Service holds.
func addressesOf(service kinds.Object) (ips []netip.Addr) {
	for _, text := range append(tree.Strings(service, "spec", "clusterIPs"), tree.Str(service, "spec", "clusterIP")) {
		if ip, err := netip.ParseAddr(text); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

// portsOf are the node ports that a Service holds.
func portsOf(service kinds.Object) (ports []int64) {
	for _, p := range tree.Maps(service, "spec", "ports") {
		if n := tree.Int(p, "nodePort"); n != 0 {
			ports = append(ports, n)
		}
	}
	if n := tree.Int(service, "spec", "healthCheckNodePort"); n != 0 {
		ports = append(ports, n)
	}
	return ports
}

func isService(k *kinds.Kind) bool { return k.Group == "" && k.Kind == "Service" }

// allocateIP reserves a service address for the write; "" asks for any.
func (t *write) allocateIP(text string) (string, error) {
	var asked netip.Addr
	if text != "" {
		var err error
		if asked, err = netip.ParseAddr(text); err != nil {
			return "", errors.New(strconv.Quote(text) + " is not an IP address")
		}
	}
	if err := t.loadAllocations(); err != nil {
		return "", err
	}
	a := t.server.allocations
	ip, err := a.ip(asked)
	if err != nil {
		return "", err
	}
	t.reserved = append(t.reserved, func() { a.release([]netip.Addr{ip}, nil) })
	return ip.String(), nil
}

// allocatePort reserves a node port for the write; zero asks for any.
func (t *write) allocatePort(asked int64) (int64, error) {
	if err := t.loadAllocations(); err != nil {
		return 0, err
	}
	a := t.server.allocations
	port, err := a.port(asked)
	if err != nil {
		return 0, err
	}
	t.reserved = append(t.reserved, func() { a.release(nil, []int64{port}) })
	return port, nil
}

func (t *write) loadAllocations() error {
	return t.server.allocations.load(func(hold func(kinds.Object)) error {
		snap, err := t.newest()
		if err != nil {
			return err
		}
		for e := range entries(snap, "services", "", "") {
			service, err := t.load(e)
			if err != nil {
				return err
			}
			hold(service)
		}
		return nil
	})
}

// settle gives back what a Service held and, changed or deleted (nil), does not hold any more.
func (t *write) settle(old, now kinds.Object) {
	if !isService(t.kind) {
		return
	}
	var ips []netip.Addr
	var ports []int64
	held := map[any]bool{}
	for _, ip := range addressesOf(now) {
		held[ip] = true
	}
	for _, port := range portsOf(now) {
		held[port] = true
	}
	for _, ip := range addressesOf(old) {
		if !held[ip] {
			ips = append(ips, ip)
		}
	}
	for _, port := range portsOf(old) {
		if !held[port] {
			ports = append(ports, port)
		}
	}
	release := func() { t.server.allocations.release(ips, ports) }
	if t.batch != nil {
		t.batch.settled = append(t.batch.settled, release)
		return
	}
	release()
}
