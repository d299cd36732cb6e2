package lease_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/lease"
)

// What a replica in a process of its own is told by its environment, and says line by line:
//
//	term SHARD EPOCH      it begins with a shard
//	wrote SHARD EPOCH     a write went through
//	refused SHARD EPOCH   a write was refused by its fence, with a conflict that names the lease
const (
	replicaName   = "SETPOINT_TEST_REPLICA"
	replicaConfig = "SETPOINT_TEST_KUBECONFIG"
	processShards = 4
)

func TestMain(m *testing.M) {
	if os.Getenv(replicaName) != "" {
		if err := runReplica(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runReplica works until its standard input ends.
func runReplica() error {
	name := os.Getenv(replicaName)
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(replicaConfig))
	if err != nil {
		return err
	}
	config.QPS = -1
	config.Wrap(lease.Fenced)
	c, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	told, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	opts := lease.Options{
		Client: c, Namespace: "default", Name: "l", Holder: name,
		Duration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 300 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	}
	work := func(ctx context.Context, shard int, t lease.Term) error {
		fmt.Println("term", shard, t.Epoch)
		// A process that is stopped does not see its term end: like one that was stopped between
		// looking and writing, it writes on until it is told that it is late.
		late := context.WithoutCancel(ctx)
		for n := 0; ; n++ {
			switch err := write(late, c, shard, fmt.Sprint(name, " ", n)); {
			case lease.IsLost(err) && apierrors.IsConflict(err) && strings.Contains(err.Error(), t.Lease.Name):
				fmt.Println("refused", shard, t.Epoch)
				return nil
			case err == nil:
				fmt.Println("wrote", shard, t.Epoch)
			}
			handedOver := ctx.Err() != nil && !errors.Is(context.Cause(ctx), lease.ErrLost)
			if handedOver || told.Err() != nil {
				return nil
			}
		}
	}
	return lease.RunShards(told, opts, processShards, work)
}

func write(ctx context.Context, c client.Client, shard int, value string) error {
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = "default", fmt.Sprint("shard-", shard)
	m.Data = map[string]string{"by": value}
	if err := c.Create(ctx, m); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return c.Update(ctx, m)
}

// process is a replica in a process.
type process struct {
	*exec.Cmd
	stdin io.Closer
	lines chan string
}

func startReplica(t *testing.T, name, kubeconfig string, terms *termLog) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	p.Env = append(os.Environ(), replicaName+"="+name, replicaConfig+"="+kubeconfig)
	p.Stderr = os.Stderr
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			if line := scan.Text(); !strings.HasPrefix(line, "wrote") {
				terms.note(name, line)
				p.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT)
		_ = stdin.Close()
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// await returns the first line of a kind.
func (p *process) await(t *testing.T, kind string) string {
	t.Helper()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("the process ended before it said %q", kind)
			}
			if strings.HasPrefix(line, kind) {
				return line
			}
		case <-time.After(2 * time.Minute): // only so that a failure is told
			t.Fatalf("the process does not say %q", kind)
		}
	}
}

// termLog knows who began which term.
type termLog struct {
	t     *testing.T
	mu    sync.Mutex
	began map[string]string
}

func (l *termLog) note(replica, line string) {
	if !strings.HasPrefix(line, "term") {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.began[line]; other != "" {
		l.t.Errorf("%s begins the %s, which %s began", replica, line, other)
	}
	l.began[line] = replica
}

// A replica in a process of its own is stopped by a signal, another takes its shards, and it is
// continued: what it goes on to write is refused.
func TestStoppedProcessIsFencedOut(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as long as leases take to run out")
	}
	cp, err := setpoint.New(setpoint.Options{Listen: "127.0.0.1:0", Controllers: []string{"none"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cp.Stop() })
	if err := cp.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	raw, err := cp.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kubeconfig, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	terms := &termLog{t: t, began: map[string]string{}}
	one := startReplica(t, "one", kubeconfig, terms)
	first := one.await(t, "term")
	if err := one.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	two := startReplica(t, "two", kubeconfig, terms)
	shard := strings.Fields(first)[1]
	for strings.Fields(two.await(t, "term"))[1] != shard { // it takes them all, this one among them
	}
	if err := one.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	one.await(t, "refused")
	for _, p := range []*process{one, two} {
		if err := p.stdin.Close(); err != nil {
			t.Fatal(err)
		}
		for range p.lines {
		}
		if err := p.Wait(); err != nil {
			t.Errorf("a replica ended with %v", err)
		}
	}
}
