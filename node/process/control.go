package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/setpoint-dev/setpoint/internal/nodewire"
)

// A shim listens on a socket in its directory, by which the agent has it run
// commands beside its container, or connects to the container itself. One
// connection is one such session: the first packet is an order, which brings
// the open files that the session's streams are; the last, from the shim, an
// answer. Either side ends a session by closing the connection, so that a
// command ends with the agent that wanted it.

// order is what an agent wants of a shim. Its files come with it, in the order
// of the fields that say whether they do.
type order struct {
	Exec []string `json:",omitempty"` // a command to run; none attaches

	Terminal       bool // Exec: one file, a terminal, which is all three streams
	Stdin          bool
	Stdout, Stderr bool
}

// answer is how a session ended.
type answer struct {
	ExitCode int32  `json:",omitempty"`
	Error    string `json:",omitempty"`
}

// packetMax bounds a packet: a command's arguments come in the head of an HTTP
// request, which has at most 64 KiB, and grow in JSON.
const packetMax = 512 << 10

const filesMax = 3

// control is one side of a session.
type control struct{ *net.UnixConn }

// send sends a document and files, which stay open.
func (c control) send(doc any, files ...*os.File) error {
	text, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd()) // which also makes it block, as the receiver's program expects
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.WriteMsgUnix(text, rights, nil)
	return err
}

// receive reads a document, and the files that came with it.
func (c control) receive(doc any) ([]*os.File, error) {
	text, rights := make([]byte, packetMax), make([]byte, unix.CmsgSpace(filesMax*4))
	n, nr, flags, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return nil, err
	}
	files, err := filesOf(rights[:nr])
	switch {
	case err != nil:
	case n == 0:
		err = net.ErrClosed
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("a packet was too large")
	default:
		err = json.Unmarshal(text[:n], doc)
	}
	if err != nil {
		closeAll(files)
		return nil, err
	}
	return files, nil
}

func filesOf(rights []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			closeAll(files)
			return nil, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "stream"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// pollable makes a received file one whose reads and writes can be given up.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// listen makes the socket. Names of sockets are short, so it is reached through
// a descriptor of its directory.
func (d dir) listen() (*net.UnixListener, error) {
	var l *net.UnixListener
	err := d.reach(func(addr *net.UnixAddr) (err error) {
		l, err = net.ListenUnix(addr.Net, addr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l.SetUnlinkOnClose(false) // its name means something else by then
	return l, nil
}

// dial connects to the shim of an instance.
func (d dir) dial() (control, error) {
	var c *net.UnixConn
	err := d.reach(func(addr *net.UnixAddr) (err error) {
		c, err = net.DialUnix(addr.Net, nil, addr)
		return err
	})
	return control{c}, err
}

func (d dir) reach(do func(*net.UnixAddr) error) error {
	f, err := os.OpenFile(string(d), unix.O_PATH|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	short := "/proc/self/fd/" + strconv.Itoa(int(f.Fd()))
	return do(&net.UnixAddr{Net: "unixpacket", Name: filepath.Join(short, "control")})
}

// openTerminal makes a terminal: what is written to one file is read from the
// other. The program's side is the second.
func openTerminal() (ours, programs *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("terminal: %w", err)
	}
	fail := func(err error) (*os.File, *os.File, error) {
		ours.Close()
		return nil, nil, fmt.Errorf("terminal: %w", err)
	}
	var fd uintptr
	err = onFD(ours, func(master uintptr) error {
		if err := unix.IoctlSetPointerInt(int(master), unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		var errno syscall.Errno
		// The other side is had without its name, which some mount namespaces lack.
		fd, _, errno = unix.Syscall(unix.SYS_IOCTL, master, unix.TIOCGPTPEER,
			unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
		if errno != 0 {
			return errno
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	return ours, os.NewFile(fd, "terminal"), nil
}

// setSize tells a terminal how large it is; its programs get a signal.
func setSize(terminal *os.File, size nodewire.Size) error {
	return onFD(terminal, func(fd uintptr) error {
		return unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width})
	})
}

// onFD uses a descriptor and leaves the file as it is: Fd would make it block.
func onFD(f *os.File, do func(uintptr) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := conn.Control(func(fd uintptr) { done = do(fd) }); err != nil {
		return err
	}
	return done
}
