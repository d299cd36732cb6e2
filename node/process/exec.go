package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/internal/nodewire"
	"github.com/setpoint-dev/setpoint/node"
)

// Exec implements node.Runtime. The instance's shim starts the command, which
// therefore has all that the container has and cannot outlive it.
func (r *Runtime) Exec(ctx context.Context, id node.ContainerID, command []string, s node.Streams) (int32, error) {
	defer closeInput(s)
	if len(command) == 0 {
		return 0, errors.New("exec: no command")
	}
	e, err := openEnds(s, s.TTY)
	if err != nil {
		return 0, fmt.Errorf("exec in %s: %w", id, err)
	}
	defer e.close()
	end, err := r.session(ctx, id, order{
		Exec: command, Terminal: s.TTY,
		Stdin: s.Stdin != nil, Stdout: s.Stdout != nil, Stderr: s.Stderr != nil,
	}, e, s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("exec in %s: %w", id, err)
	case end.Error != "":
		return 0, errors.New(end.Error)
	}
	return end.ExitCode, nil
}

// Attach implements node.Runtime.
func (r *Runtime) Attach(ctx context.Context, id node.ContainerID, s node.Streams) error {
	defer closeInput(s)
	e, err := openEnds(s, false)
	if err != nil {
		return fmt.Errorf("attach to %s: %w", id, err)
	}
	defer e.close()
	end, err := r.session(ctx, id, order{
		Stdin: s.Stdin != nil, Stdout: s.Stdout != nil, Stderr: s.Stderr != nil,
	}, e, s)
	switch {
	case err != nil:
		return fmt.Errorf("attach to %s: %w", id, err)
	case end.Error != "":
		return errors.New(end.Error)
	}
	return nil
}

func closeInput(s node.Streams) {
	if s.Stdin != nil {
		s.Stdin.Close()
	}
}

// session has the shim of an instance carry out an order, and copies between the
// streams and their ends until it is done.
func (r *Runtime) session(ctx context.Context, id node.ContainerID, o order, e *ends, s node.Streams) (answer, error) {
	r.mu.Lock()
	i, ok := r.running[id]
	running := ok && i.state.Running
	r.mu.Unlock()
	if !running {
		return answer{}, errors.New("it is not running")
	}
	conn, err := r.instanceDir(id).dial()
	if err != nil {
		return answer{}, fmt.Errorf("its keeper does not answer: %w", err)
	}
	defer conn.Close()
	err = conn.send(o, e.theirs...)
	closeAll(e.theirs)
	e.theirs = nil
	if err != nil {
		return answer{}, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close(); e.giveUp() })
	defer stop()
	// Input and sizes are read as long as somebody may take them; output to its end.
	var input, output sync.WaitGroup
	e.copyOut(&output)
	e.copyIn(&input, s, conn)

	var end answer
	if _, err := conn.receive(&end); err != nil {
		// No answer: the container has ended, and its keeper with it, as if it had been killed.
		end = answer{ExitCode: 128 + int32(unix.SIGKILL)}
	}
	e.finish()
	output.Wait()
	closeInput(s)
	e.close()
	input.Wait()
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	return end, nil
}

// ends are the files behind a session's streams: ours, and theirs, which the
// shim is given.
type ends struct {
	theirs   []*os.File
	input    *os.File
	outputs  []output
	terminal *os.File // is input and output too, nil if there is none

	over     chan struct{} // closed when no more sizes are wanted
	overOnce sync.Once
}

// output is a file that is read, and where that goes.
type output struct {
	from *os.File
	to   io.Writer
}

// openEnds makes a pipe for each stream, or a terminal for all.
func openEnds(s node.Streams, terminal bool) (*ends, error) {
	e := &ends{over: make(chan struct{})}
	if terminal {
		ours, theirs, err := openTerminal()
		if err != nil {
			return nil, err
		}
		e.terminal, e.theirs = ours, []*os.File{theirs}
		if s.Stdin != nil {
			e.input = ours
		}
		to := s.Stdout
		if to == nil {
			to = io.Discard // or the program would wait for a reader
		}
		e.outputs = []output{{ours, to}}
		return e, nil
	}
	if s.Stdin != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		e.theirs, e.input = append(e.theirs, r), w
	}
	for _, to := range []io.Writer{s.Stdout, s.Stderr} {
		if to == nil {
			continue
		}
		r, w, err := os.Pipe()
		if err != nil {
			e.close()
			return nil, err
		}
		e.theirs, e.outputs = append(e.theirs, w), append(e.outputs, output{r, to})
	}
	return e, nil
}

// copyOut copies what is printed, until finish or the end.
func (e *ends) copyOut(group *sync.WaitGroup) {
	for _, o := range e.outputs {
		group.Go(func() {
			_, err := io.Copy(o.to, o.from)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				drain(o.to, o.from)
			}
		})
	}
}

// copyIn copies input, whose end it passes on, and sizes: to our own terminal,
// or to the container's, which the shim has.
func (e *ends) copyIn(group *sync.WaitGroup, s node.Streams, conn control) {
	if e.input != nil {
		group.Go(func() {
			_, _ = io.Copy(e.input, s.Stdin)
			if e.terminal == nil {
				e.input.Close()
			} else if !e.isOver() {
				_, _ = e.input.Write([]byte{endOfText})
			}
		})
	}
	if s.Resize != nil {
		group.Go(func() {
			for {
				select {
				case size, ok := <-s.Resize:
					if !ok {
						return
					}
					if e.terminal != nil {
						_ = setSize(e.terminal, size)
					} else {
						_ = conn.send(size)
					}
				case <-e.over:
					return
				}
			}
		})
	}
}

// endOfText is what a person types at a terminal to say that there is no more
// input: a terminal has no other end.
const endOfText = 4

func (e *ends) isOver() bool {
	select {
	case <-e.over:
		return true
	default:
		return false
	}
}

// finish ends the copying of output once everything is copied that was printed
// so far: a process that was left behind may keep the other end open.
func (e *ends) finish() {
	e.end()
	for _, o := range e.outputs {
		_ = o.from.SetReadDeadline(time.Now())
	}
}

func (e *ends) end() { e.overOnce.Do(func() { close(e.over) }) }

// giveUp ends all copying at once.
func (e *ends) giveUp() {
	e.end()
	for _, o := range e.outputs {
		o.from.Close()
	}
}

func (e *ends) close() {
	e.giveUp()
	closeAll(e.theirs)
	if e.input != nil {
		e.input.Close()
	}
}

// drain copies what can be read without waiting.
func drain(to io.Writer, from *os.File) {
	if from.SetReadDeadline(time.Time{}) != nil {
		return
	}
	conn, err := from.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]byte, 32<<10)
	for n := 1; n > 0; {
		if err := conn.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buf)
			return true
		}); err != nil {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

// sizesOf is the rest of a session of attaching, seen from the shim: packets
// with the sizes of the terminal. It returns when the agent is gone.
func (c control) sizesOf(terminal *os.File) {
	for {
		var size nodewire.Size
		files, err := c.receive(&size)
		closeAll(files)
		if err != nil {
			return
		}
		if terminal != nil {
			_ = setSize(terminal, size)
		}
	}
}
