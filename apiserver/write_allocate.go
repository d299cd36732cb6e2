package apiserver

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"sync"

	"github.com/setpoint-dev/setpoint/kinds"
	"github.com/setpoint-dev/setpoint/store"
)

// Node ports are given out from this range, upstream's default.
const (
	nodePortFirst = 30000
	nodePortLast  = 32767
)

// turns say where the search for a free service address or node port begins. Each search moves on,
// so that writes under way at the same time find different ones; that nobody else has what they
// found is up to their commits, which reserve it.
type turns struct {
	cidr netip.Prefix

	mu   sync.Mutex
	ip   netip.Addr // of the next search
	port int64
}

// addressesLeft are the first addresses of a range, which installations give to the API server and
// to DNS by number: they are given out last.
const addressesLeft = 16

func newTurns(cidr netip.Prefix) *turns {
	t := &turns{cidr: cidr.Masked(), port: nodePortFirst}
	t.ip = t.first()
	for range addressesLeft {
		if next := t.ip.Next(); t.usable(next) {
			t.ip = next
		}
	}
	return t
}

func (t *turns) first() netip.Addr { return t.cidr.Addr().Next() }

// usable says whether an address is in the range, and neither its first, which names the network,
// nor its last, which reaches all.
func (t *turns) usable(ip netip.Addr) bool {
	return t.cidr.Contains(ip) && t.cidr.Contains(ip.Next()) && ip != t.cidr.Addr()
}

var errRangeFull = errors.New("range is full")

// freeIP takes addresses in turn until one is free.
func (t *turns) freeIP(free func(netip.Addr) bool) (netip.Addr, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for start, ip := t.ip, t.ip; ; {
		found := ip
		if ip = ip.Next(); !t.usable(ip) {
			ip = t.first()
		}
		if t.usable(found) && free(found) {
			t.ip = ip
			return found, nil
		}
		if ip == start {
			return netip.Addr{}, errRangeFull
		}
	}
}

// freePort takes ports in turn until one is free.
func (t *turns) freePort(free func(int64) bool) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const count = nodePortLast - nodePortFirst + 1
	for range count {
		found := t.port
		if t.port++; t.port > nodePortLast {
			t.port = nodePortFirst
		}
		if free(found) {
			return found, nil
		}
	}
	return 0, errRangeFull
}

// allocateIP chooses a service address that is free in a state; "" asks for any.
func (t *write) allocateIP(snap store.Snapshot, text string) (string, error) {
	turns := t.server.turns
	free := func(ip netip.Addr) bool {
		return t.free(snap, kinds.Held{Space: kinds.ServiceAddresses, Name: ip.String()})
	}
	ip, err := netip.ParseAddr(text)
	switch {
	case text == "":
		if ip, err = turns.freeIP(free); err != nil {
			return "", err
		}
	case err != nil:
		return "", errors.New(strconv.Quote(text) + " is not an IP address")
	case !turns.usable(ip):
		return "", errors.New("the provided network does not match the current range")
	case !free(ip):
		return "", errors.New("provided IP is already allocated")
	}
	t.chosen = append(t.chosen, kinds.Held{Space: kinds.ServiceAddresses, Name: ip.String()})
	return ip.String(), nil
}

// allocatePort chooses a node port that is free in a state; zero asks for any.
func (t *write) allocatePort(snap store.Snapshot, asked int64) (port int64, err error) {
	held := func(port int64) kinds.Held {
		return kinds.Held{Space: kinds.NodePorts, Name: strconv.FormatInt(port, 10)}
	}
	free := func(port int64) bool { return t.free(snap, held(port)) }
	switch port = asked; {
	case asked == 0:
		if port, err = t.server.turns.freePort(free); err != nil {
			return 0, err
		}
	case asked < nodePortFirst || asked > nodePortLast:
		return 0, fmt.Errorf("provided port is not in the valid range. The range of valid ports is %d-%d",
			nodePortFirst, nodePortLast)
	case !free(asked):
		return 0, errors.New("provided port is already allocated")
	}
	t.chosen = append(t.chosen, held(port))
	return port, nil
}
