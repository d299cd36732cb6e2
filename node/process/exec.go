package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/node"
)

// run runs a command in the surroundings of the container whose process is pid.
func run(ctx context.Context, config node.ContainerConfig, pid int) (node.ExecResult, error) {
	if len(config.Command) == 0 {
		return node.ExecResult{}, errors.New("exec: no command")
	}
	attr := sysProcAttr(config)
	attr.Pdeathsig = 0 // it would fire when the starting thread ends, which may be soon
	cmd := &exec.Cmd{Args: config.Command, Env: config.Env, Dir: config.WorkingDir, SysProcAttr: attr}
	if namespaced(config) {
		spec, err := json.Marshal(initSpec{
			Command: config.Command, WorkingDir: config.WorkingDir,
			Join: pid, Credential: attr.Credential,
		})
		if err != nil {
			return node.ExecResult{}, err
		}
		null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return node.ExecResult{}, err
		}
		defer null.Close()
		attr.Credential = nil
		cmd.Path, cmd.Args, cmd.Dir = self, []string{"setpoint", initCommand, string(spec)}, "/"
		cmd.ExtraFiles = []*os.File{null}
	} else {
		path, err := program(config.Command[0], config.WorkingDir, config.Env)
		if err != nil {
			return node.ExecResult{}, err
		}
		cmd.Path = path
	}
	return collect(ctx, cmd)
}

// collect runs cmd, kills all of its session when ctx ends, and keeps the
// beginning of what it printed.
func collect(ctx context.Context, cmd *exec.Cmd) (node.ExecResult, error) {
	out := &bounded{left: node.ExecOutputMax}
	cmd.Stdout, cmd.Stderr = out, out
	// A child that outlives the command keeps the pipe open; don't wait for it.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return node.ExecResult{}, fmt.Errorf("exec: %w", err)
	}
	kill := func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	stop := context.AfterFunc(ctx, kill)
	err := cmd.Wait()
	if !stop() {
		return node.ExecResult{Output: out.Bytes()}, context.Cause(ctx)
	}
	kill() // what it left behind
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit), err == nil, errors.Is(err, exec.ErrWaitDelay):
		return node.ExecResult{ExitCode: cmd.ProcessState.ExitCode(), Output: out.Bytes()}, nil
	default:
		return node.ExecResult{}, fmt.Errorf("exec: %w", err)
	}
}

// bounded keeps the first bytes and drops the rest. One goroutine writes: the
// two streams of a command share it.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.Buffer.Write(p[:n])
	return len(p), nil
}
