package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/setpoint-dev/setpoint/node"
)

// podRecord is pod.json.
type podRecord struct {
	UID         types.UID `json:"uid"`
	Namespace   string    `json:"namespace"`
	Name        string    `json:"name"`
	IP          string    `json:"ip,omitempty"`
	HostNetwork bool      `json:"hostNetwork,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
}

// runRecord is state.json: the process that a shim started.
type runRecord struct {
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"startedAt"`
	Cgroup    string    `json:"cgroup,omitempty"`
}

// exitRecord is exit.json: how an instance ended.
type exitRecord struct {
	ExitCode   int32     `json:"exitCode"`
	Signal     int32     `json:"signal,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	FinishedAt time.Time `json:"finishedAt"`
}

// dir is the directory of one instance.
type dir string

func (d dir) config() string { return filepath.Join(string(d), "config.json") }
func (d dir) lock() string   { return filepath.Join(string(d), "lock") }
func (d dir) state() string  { return filepath.Join(string(d), "state.json") }
func (d dir) exit() string   { return filepath.Join(string(d), "exit.json") }
func (d dir) log() string    { return filepath.Join(string(d), "log") }

func (r *Runtime) podDir(uid types.UID) string {
	return filepath.Join(r.stateDir, "pods", string(uid))
}

func (r *Runtime) instanceDir(id node.ContainerID) dir {
	attempt := strconv.Itoa(int(id.Attempt))
	return dir(filepath.Join(r.podDir(id.Pod), "containers", id.Name, attempt))
}

// writeJSON replaces path as a whole: a reader sees the old content or the new,
// through any crash.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// readJSON reads what writeJSON wrote; os.IsNotExist(err) when nothing was.
func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
