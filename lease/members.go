package lease

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

// members are the replicas that are there, as one of them sees it by its own clock: each keeps a
// Lease, and is gone when that is, or has not changed for its duration. This says who should have a
// shard. Who may work on it says the shard's own lease, so that replicas that see different members
// do no harm.
type members struct {
	seen map[string]sighting // by the name of the lease
}

type sighting struct {
	lease *coordinationv1.Lease
	at    time.Time // when we first saw its last change
}

// see takes in what leases of members the server has.
func (m *members) see(now time.Time, leases []coordinationv1.Lease) {
	seen := make(map[string]sighting, len(leases))
	for i := range leases {
		l := &leases[i]
		s := sighting{l, now}
		if old, ok := m.seen[l.Name]; ok && old.lease.ResourceVersion == l.ResourceVersion {
			s = old
		}
		seen[l.Name] = s
	}
	m.seen = seen
}

// split returns the holders that are there, and gone the leases of those that are not.
func (m *members) split(now time.Time) (live []string, gone []*coordinationv1.Lease) {
	for _, s := range m.seen {
		duration := time.Duration(ptr.Deref(s.lease.Spec.LeaseDurationSeconds, 0)) * time.Second
		if now.Before(s.at.Add(duration)) {
			live = append(live, ptr.Deref(s.lease.Spec.HolderIdentity, ""))
		} else {
			gone = append(gone, s.lease)
		}
	}
	slices.Sort(live)
	return live, gone
}

// ownerOf returns which of the holders should have a shard: that with the highest score. So who joins
// takes only what it wins, and who leaves gives up only what it had.
func ownerOf(shard int, holders []string) string {
	var owner string
	var best uint64
	for _, h := range holders {
		if s := hash(fmt.Sprintf("%d/%s", shard, h)); owner == "" || s > best {
			owner, best = h, s
		}
	}
	return owner
}

// ShardOf returns which of so many shards a key is in. It is the same in every process and version.
func ShardOf(key string, shards int) int { return int(hash(key) % uint64(shards)) }

// hash spreads what FNV leaves close together.
func hash(s string) uint64 {
	f := fnv.New64a()
	f.Write([]byte(s))
	h := f.Sum64()
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
