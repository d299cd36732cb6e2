package etcd_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
)

// The test binary is also a member of a cluster, with this in its environment.
const memberEnv = "SETPOINT_TEST_ETCD_MEMBER"

func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		runMember(text)
	}
	os.Exit(m.Run())
}

// memberConf is what a member is told. It listens wherever there is room, and says where.
type memberConf struct {
	Name, Dir, Initial string
	Peers              string // where others reach it
	Clients            string
	QuotaBytes         int64
}

func runMember(text string) {
	var c memberConf
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		panic(err)
	}
	conf := embed.NewConfig()
	conf.Name, conf.Dir, conf.InitialCluster = c.Name, c.Dir, c.Initial
	conf.LogLevel = "fatal"
	conf.UnsafeNoFsync = true // the machine does not fail, only the process
	conf.TickMs, conf.ElectionMs = 50, 500
	conf.QuotaBackendBytes = c.QuotaBytes
	conf.ListenPeerUrls, conf.ListenClientUrls = urls("127.0.0.1:0"), urls("127.0.0.1:0")
	conf.AdvertisePeerUrls, conf.AdvertiseClientUrls = urls(c.Peers), urls(c.Clients)
	e, err := embed.StartEtcd(conf)
	if err != nil {
		fmt.Println("error", strings.ReplaceAll(err.Error(), " ", "_"))
		os.Exit(1)
	}
	fmt.Println(e.Peers[0].Addr(), e.Clients[0].Addr())
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, however that is
	os.Exit(0)
}

func urls(address string) []url.URL { return []url.URL{{Scheme: "http", Host: address}} }

// process is a member that runs.
type process struct {
	cmd            *exec.Cmd
	input          io.Closer
	peers, clients string // where it listens
}

// startMember starts a member, and returns when it listens: it may have no leader yet.
func startMember(t testing.TB, conf memberConf) *process {
	t.Helper()
	text, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), memberEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, _ := bufio.NewReader(out).ReadString('\n')
	if _, err := fmt.Sscan(said, &p.peers, &p.clients); err != nil || p.peers == "error" {
		p.kill()
		t.Fatalf("member %s says %q", conf.Name, said)
	}
	return p
}

// kill ends a member at once, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
	p.input.Close()
}

// pause stops a member in the middle of what it does, and resume lets it go on.
func (p *process) pause()  { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }
