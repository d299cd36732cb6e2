package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/setpoint-dev/setpoint"
	"github.com/setpoint-dev/setpoint/apiserver/pki"
)

// planeFlags are the flags of a control plane, with a node or without.
type planeFlags struct {
	dataDir, store, listen, kubeconfig, serviceRange, issuer string
	history                                                  time.Duration
	historyBytes                                             string
	hosts, controllers                                       []string
	log                                                      logFlags
}

func (f *planeFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.dataDir, "data-dir", defaultDataDir(), "`folder` of objects, keys and the node's state")
	flags.StringVar(&f.store, "store", "", "`URL` of an etcd cluster to keep the objects on, etcd://HOST:PORT,HOST:PORT/PREFIX (default: in DATA-DIR)")
	flags.StringVar(&f.listen, "listen", "127.0.0.1:6443", "`address` to serve the API on; port 0 chooses one")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` to write an administrator's kubeconfig to (default DATA-DIR/kubeconfig)")
	flags.StringSliceVar(&f.hosts, "host", nil, "further `names` or addresses that clients reach the server by")
	flags.StringSliceVar(&f.controllers, "controllers", []string{"all"},
		"controllers to run: all, none, or `names`, each with - before it to leave it out: "+strings.Join(setpoint.Controllers(), ", "))
	flags.StringVar(&f.serviceRange, "service-cluster-ip-range", "10.0.0.0/24", "`network` that services get their addresses from")
	flags.StringVar(&f.issuer, "service-account-issuer", "https://kubernetes.default.svc",
		"`URL` that service account tokens name as their issuer; no tokens are issued yet")
	flags.DurationVar(&f.history, "history", 9*time.Minute, "how long the past can be read and watched, as far as --history-bytes go")
	flags.StringVar(&f.historyBytes, "history-bytes", "128Mi", "`memory` that the past may take, and about twice that of the disk; what is more is forgotten first")
	f.log.add(flags)
}

// options turns the flags into options, or says which flag is wrong.
func (f *planeFlags) options(out io.Writer) (setpoint.Options, error) {
	log, err := f.log.logger(out)
	if err != nil {
		return setpoint.Options{}, err
	}
	services, err := netip.ParsePrefix(f.serviceRange)
	if err != nil || !services.Addr().Is4() || services.Bits() > 29 {
		return setpoint.Options{}, fmt.Errorf("--service-cluster-ip-range %q: want an IPv4 network of at least 8 addresses, such as 10.0.0.0/24", f.serviceRange)
	}
	if !strings.HasPrefix(f.issuer, "https://") {
		return setpoint.Options{}, fmt.Errorf("--service-account-issuer %q: want a URL that begins with https://", f.issuer)
	}
	if f.history <= 0 {
		return setpoint.Options{}, fmt.Errorf("--history %v: want a time, such as 720h", f.history)
	}
	bytes, err := resource.ParseQuantity(f.historyBytes)
	if err != nil || bytes.Value() < 1<<20 {
		return setpoint.Options{}, fmt.Errorf("--history-bytes %q: want 1Mi at least, such as 4Gi", f.historyBytes)
	}
	if f.kubeconfig == "" {
		f.kubeconfig = filepath.Join(f.dataDir, "kubeconfig")
	}
	return setpoint.Options{
		DataDir: f.dataDir, Store: f.store, Listen: f.listen, Hosts: f.hosts, Controllers: f.controllers,
		ServiceCIDR: services.Masked(), History: f.history, HistoryBytes: bytes.Value(), Log: log,
	}, nil
}

// run starts the control plane, says how to use it, and waits until it has ended.
func (f *planeFlags) run(cmd *cobra.Command, opts setpoint.Options) (err error) {
	began := time.Now()
	cp, err := setpoint.New(opts)
	if err != nil {
		return advised(err, opts.DataDir)
	}
	defer func() { err = errors.Join(err, cp.Stop()) }()
	// The port is open, and who finds it in the file is answered as soon as there is a server: there is
	// no need for the file to wait for that, nor for the server to wait for the file.
	written := make(chan error, 1)
	go func() { written <- f.writeKubeconfig(cp) }()
	err = cp.Start(cmd.Context())
	if err := errors.Join(err, <-written); err != nil {
		return err
	}
	path := f.kubeconfig
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	fmt.Fprintf(cmd.OutOrStdout(), "ready after %s, serving on https://%s\n%s\n\n  export KUBECONFIG=%s\n\n",
		time.Since(began).Round(time.Millisecond), cp.Address(), historyCost(opts.History, opts.HistoryBytes, cp.Cost()), path)
	return cp.Wait()
}

func (f *planeFlags) writeKubeconfig(cp *setpoint.ControlPlane) error {
	access, err := cp.Kubeconfig()
	if err != nil {
		return err
	}
	return pki.WriteFile(f.kubeconfig, access)
}

func newUp() *cobra.Command {
	var f planeFlags
	var n nodeFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run everything in one process: the API, the controllers and a node",
		Long: `Runs the API server, the controllers and a node in one process, until it is asked to end. What was
declared is kept in --data-dir, and what runs goes on running: the next start finds both and carries on.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			node, err := n.options()
			if err != nil {
				return err
			}
			opts.Node = &node
			return f.run(cmd, opts)
		},
	}
	f.add(cmd.Flags())
	n.add(cmd.Flags())
	return cmd
}

func newServer() *cobra.Command {
	var f planeFlags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the API and the controllers, without a node",
		Long: `Runs the API server and the controllers. Nodes join with the kubeconfig that it writes:

  setpoint node --kubeconfig FILE`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := f.options(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return f.run(cmd, opts)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// defaultDataDir is where the state of a user's programs belongs.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "setpoint")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "setpoint")
	}
	return "setpoint-data"
}
