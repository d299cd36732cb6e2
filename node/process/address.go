package process

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// podAddresses is the part of the loopback network that pods get theirs from.
// It is far from 127.0.0.0/16, where people and distributions put things.
var podAddresses = netip.MustParsePrefix("127.64.0.0/10")

// addresses hands out addresses that no other pod on this machine has. A claim
// is a file named after the address, in a directory shared by all runtimes of
// the user; its content is the directory of the pod that has it, and once that
// is gone the address is free.
type addresses struct{ dir string }

// claim gives the pod an address: the same one again if it is free, since the
// search starts at a place computed from the pod's uid.
func (a addresses) claim(uid types.UID, podDir string) (netip.Addr, error) {
	if err := os.MkdirAll(a.dir, 0o755); err != nil {
		return netip.Addr{}, fmt.Errorf("pod address: %w", err)
	}
	hash := fnv.New32a()
	hash.Write([]byte(uid))
	hosts := uint32(1) << (32 - podAddresses.Bits())
	for i := range hosts {
		host := (hash.Sum32() + i) % hosts
		if last := host & 0xff; last == 0 || last == 0xff {
			continue // people take these for networks
		}
		addr := podAddress(host)
		ours, err := a.try(addr, podDir)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("pod address: %w", err)
		}
		if ours {
			return addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("pod address: none left in %s", podAddresses)
}

func podAddress(host uint32) netip.Addr {
	b := podAddresses.Addr().As4()
	b[1] |= byte(host >> 16)
	b[2] = byte(host >> 8)
	b[3] = byte(host)
	return netip.AddrFrom4(b)
}

// try claims one address, and reports false when another pod has it.
func (a addresses) try(addr netip.Addr, podDir string) (bool, error) {
	path := a.path(addr.String())
	tmp, err := os.CreateTemp(a.dir, ".claim-*")
	if err != nil {
		return false, err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(podDir)
	tmp.Close()
	if err != nil {
		return false, err
	}
	// A link, so that a claim has its content from the first moment.
	if err := os.Link(tmp.Name(), path); err == nil {
		return true, nil
	} else if !os.IsExist(err) {
		return false, err
	}
	owner, err := os.ReadFile(path)
	if err != nil {
		return false, nil // released this moment; the next one will do
	}
	if string(owner) == podDir {
		return true, nil
	}
	if _, err := os.Stat(string(owner)); !os.IsNotExist(err) {
		return false, nil
	}
	// Its owner is gone. Two may see that; the one that removes it tries anew.
	if err := os.Rename(path, tmp.Name()); err != nil {
		return false, nil
	}
	if moved, err := os.ReadFile(tmp.Name()); err != nil || string(moved) != string(owner) {
		_ = os.Link(tmp.Name(), path) // it was a new claim: put it back
		return false, nil
	}
	return a.try(addr, podDir)
}

// release gives an address back, if it is still this pod's.
func (a addresses) release(addr, podDir string) {
	if addr == "" {
		return
	}
	if owner, err := os.ReadFile(a.path(addr)); err == nil && string(owner) == podDir {
		_ = os.Remove(a.path(addr))
	}
}

func (a addresses) path(addr string) string {
	return filepath.Join(a.dir, strings.ReplaceAll(addr, ":", "-"))
}
