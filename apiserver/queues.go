package apiserver

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QueuesPath is where people see what the controllers beside the server have yet to look at, and why.
// It is authorized as a path, and so for those who may do everything, unless others are given it.
const QueuesPath = "/setpoint.dev/v1/queues"

// ShowQueues has QueuesPath answer with what the function returns, as JSON. Until then, and on a
// server without controllers, there is no such page.
func (s *Server) ShowQueues(queues func() any) { s.queues.Store(&queues) }

func (s *Server) showQueues(w http.ResponseWriter, r *request) error {
	queues := s.queues.Load()
	if queues == nil {
		return errNoPage
	}
	return s.respondJSON(w, r, http.StatusOK, struct {
		metav1.TypeMeta `json:",inline"`
		Items           any `json:"items"`
	}{metav1.TypeMeta{Kind: "QueueList", APIVersion: "setpoint.dev/v1"}, (*queues)()})
}
