package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// loopback gives the loopback interface the addresses that are listened on.
type loopback struct {
	added map[netip.Addr]bool
}

func newLoopback() *loopback { return &loopback{added: map[netip.Addr]bool{}} }

// add makes addr an address of this machine, or says why it can't be.
func (l *loopback) add(addr netip.Addr) error {
	if addr.IsLoopback() || l.added[addr] {
		return nil
	}
	if os.Getuid() != 0 {
		return errors.New("adding it to the loopback interface needs root")
	}
	if !addr.Is4() {
		return errors.New("only IPv4 addresses are added to the loopback interface")
	}
	taken, err := onOwnNetwork(addr)
	if err != nil {
		return err
	}
	if taken != "" {
		return fmt.Errorf("it belongs to the network %s that this machine is on", taken)
	}
	err = changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, addr)
	// One that is there is left from an agent that was killed: only agents put
	// single addresses of no network there.
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add it to the loopback interface: %w", err)
	}
	l.added[addr] = true
	return nil
}

// keep removes the addresses that nothing listens on any more.
func (l *loopback) keep(frontends map[netip.AddrPort]*frontend) error {
	used := map[netip.Addr]bool{}
	for address := range frontends {
		used[address.Addr()] = true
	}
	var errs error
	for addr := range l.added {
		if used[addr] {
			continue
		}
		err := changeAddress(unix.RTM_DELADDR, 0, addr)
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = errors.Join(errs, fmt.Errorf("remove %s from the loopback interface: %w", addr, err))
			continue
		}
		delete(l.added, addr)
	}
	return errs
}

// onOwnNetwork returns the network of an interface that addr lies in. To take
// an address out of it, a gateway's for example, would cut the machine off.
func onOwnNetwork(addr netip.Addr) (string, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addrs {
		network, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ones, bits := network.Mask.Size()
		if ones < bits && network.Contains(addr.AsSlice()) {
			return network.String(), nil
		}
	}
	return "", nil
}

// changeAddress adds or removes addr/32 by a netlink message.
func changeAddress(kind, flags uint16, addr netip.Addr) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, addressMessage(kind, flags, lo.Index, addr), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	// The answer is a header and an error number, 0 for none.
	if n < unix.NLMSG_HDRLEN+4 {
		return errors.New("netlink: the answer is too short")
	}
	code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:]))
	if code != 0 {
		return unix.Errno(-code)
	}
	return nil
}

// addressMessage is an RTM_NEWADDR or RTM_DELADDR request (rtnetlink(7)).
func addressMessage(kind, flags uint16, index int, addr netip.Addr) []byte {
	ip := addr.As4()
	attributes := []byte{}
	for _, kind := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		attributes = encode(attributes, unix.RtAttr{Len: uint16(unix.SizeofRtAttr + len(ip)), Type: kind})
		attributes = append(attributes, ip[:]...)
	}
	message := encode(nil, unix.NlMsghdr{
		Len:   uint32(unix.SizeofNlMsghdr + unix.SizeofIfAddrmsg + len(attributes)),
		Type:  kind,
		Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK | flags,
		Seq:   1,
	})
	message = encode(message, unix.IfAddrmsg{
		Family: unix.AF_INET, Prefixlen: 32, Scope: unix.RT_SCOPE_HOST, Index: uint32(index),
	})
	return append(message, attributes...)
}

// encode appends a structure of fixed size.
func encode(to []byte, v any) []byte {
	to, err := binary.Append(to, binary.NativeEndian, v)
	if err != nil {
		panic(err) // the structure is not of fixed size
	}
	return to
}
