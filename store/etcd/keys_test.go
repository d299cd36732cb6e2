package etcd_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/etcd"
)

func TestHeadSaysWhatWasWritten(t *testing.T) {
	ops := []store.Op{
		{Type: store.Put, Origin: "somebody", RevisionAt: -1},
		{Type: store.Delete, Origin: "", Value: []byte("last@"), RevisionAt: 5},
		{Type: store.Delete, Origin: "else", Value: []byte("as it is"), RevisionAt: -1},
		{Type: store.Delete, RevisionAt: -1},
	}
	var types []store.EventType
	for _, op := range ops {
		types = append(types, op.Type)
	}
	data := etcd.HeadOf(ops)
	got, err := etcd.ReadHead(data, types)
	if diff := cmp.Diff(ops, got, cmp.AllowUnexported(store.Op{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for n := range len(data) {
		if _, err := etcd.ReadHead(data[:n], types); err == nil {
			t.Errorf("the first %d bytes of %d are read without an error", n, len(data))
		}
	}
}

func FuzzHead(f *testing.F) {
	f.Add(etcd.HeadOf([]store.Op{{Type: store.Delete, Origin: "o", Value: []byte("v"), RevisionAt: 1}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		ops, err := etcd.ReadHead(data, []store.EventType{store.Delete, store.Put})
		if err == nil && ops[0].RevisionAt > len(ops[0].Value) {
			t.Errorf("the revision goes to %d of %d bytes", ops[0].RevisionAt, len(ops[0].Value))
		}
		value, at, err := etcd.ParseStored(data)
		if err == nil && at > len(value) {
			t.Errorf("the revision goes to %d of %d bytes", at, len(value))
		}
	})
}
