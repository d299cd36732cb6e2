package apiserver

import (
	"iter"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/store"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

// SnapshotPath is where everything that is stored can be got at once, as embedded.Save writes it. It
// is authorized as a path, and so for those who may do everything, unless others are given it.
const SnapshotPath = "/setpoint.dev/v1/snapshot"

// snapshotAll streams the newest state. Who reads it knows by its end that it is whole.
func (s *Server) snapshotAll(w http.ResponseWriter) error {
	all, ok := s.store.(interface {
		Entries() (store.Revision, iter.Seq[*store.Entry])
	})
	if !ok {
		return status(http.StatusNotImplemented, metav1.StatusReasonMethodNotAllowed,
			"the store of this server has no snapshots: save them where it is kept")
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	revision, entries := all.Entries()
	return aborted(embedded.Save(w, revision, entries))
}
