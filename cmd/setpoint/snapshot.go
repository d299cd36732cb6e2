package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/setpoint-dev/setpoint/apiserver"
	"github.com/setpoint-dev/setpoint/store/embedded"
)

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save all objects to a file, and restore them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSnapshotSave(), newSnapshotRestore())
	return cmd
}

func newSnapshotSave() *cobra.Command {
	var kubeconfig, dataDir string
	var salvage bool
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save all objects to a file",
		Long: `Saves all objects, as of one moment, from a server that runs or, with --data-dir, from the folder of one
that does not. The keys of the folder are not in the file, and Secrets are, as they are stored.

A folder with damage is refused. With --salvage all that can be read of it is saved, and what cannot is told,
an object a line. A server that is restored from the file answers requests for such an object, and lists of
its kind, with an error that names it; it can be deleted with
ignoreStoreReadErrorWithClusterBreakingPotential. The folder is left as it is.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			save := func(w io.Writer) error { return saveRunning(cmd.Context(), w, kubeconfig) }
			switch {
			case salvage && dataDir == "":
				return errors.New("--salvage: want --data-dir, the folder of a server that does not run")
			case salvage:
				save = func(w io.Writer) error { return saveSalvaged(w, cmd.ErrOrStderr(), dataDir) }
			case dataDir != "":
				save = func(w io.Writer) error { return advised(saveStopped(w, dataDir), dataDir) }
			}
			if err := writeVerified(args[0], save); err != nil {
				return err
			}
			revision, objects, err := verify(args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "saved %d objects at revision %d to %s\n", objects, revision, args[0])
			return nil
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "`file` that says where the server is and who this is")
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "`folder` of a server that does not run")
	cmd.Flags().BoolVar(&salvage, "salvage", false, "go on where the folder is damaged, and tell what is lost")
	return cmd
}

func newSnapshotRestore() *cobra.Command {
	var dataDir string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the folder of a server from a saved file",
		Long: `Makes the store of a server from a file, in a folder that has none. Objects keep their uids and resource
versions; the store's revision is far ahead, so that no client goes on with what it saw after the file was
saved: watches from then are answered 410, and clients read anew.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if dataDir == "" {
				return errors.New("--data-dir: want the folder to restore to")
			}
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			revision, err := embedded.Restore(filepath.Join(dataDir, "store"), args[0], f)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "restored to %s at revision %d\n", dataDir, revision)
			return nil
		},
	}
	cmd.Flags().StringVar(&dataDir, "data-dir", "", "`folder` to restore to")
	return cmd
}

// saveRunning asks a server.
func saveRunning(ctx context.Context, w io.Writer, kubeconfig string) error {
	if kubeconfig == "" {
		return errors.New("--kubeconfig or --data-dir: want one, to know what to save")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig %q: %w", kubeconfig, err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+apiserver.SnapshotPath, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // only for the message
		return fmt.Errorf("%s: %s: %s", config.Host, resp.Status, strings.TrimSpace(string(text)))
	}
	_, err = io.Copy(w, resp.Body)
	return err
}

// saveStopped reads the folder of a server.
func saveStopped(w io.Writer, dataDir string) error {
	dir := filepath.Join(dataDir, "store")
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("--data-dir %q: %w", dataDir, err)
	}
	s, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		return err
	}
	revision, entries := s.Entries()
	return errors.Join(embedded.Save(w, revision, entries), s.Close())
}

// saveSalvaged saves what can be read of a folder, and tells what cannot.
func saveSalvaged(w, lost io.Writer, dataDir string) error {
	dir := filepath.Join(dataDir, "store")
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("--data-dir %q: %w", dataDir, err)
	}
	s, err := embedded.Salvage(dir)
	if err != nil {
		return err
	}
	for _, loss := range s.Lost {
		fmt.Fprintln(lost, "lost:", loss)
	}
	return embedded.Save(w, s.Revision, s.Entries())
}

// advised adds to an error of a folder what to do if that is damaged.
func advised(err error, dataDir string) error {
	var damage *embedded.CorruptError
	if !errors.As(err, &damage) {
		return err
	}
	return fmt.Errorf(`%w

Nothing of the folder is served. To go on with all that can be read, and be told what cannot:

  setpoint snapshot save salvaged.snapshot --salvage --data-dir %[2]s
  mv %[2]s/store %[2]s/store.damaged
  setpoint snapshot restore salvaged.snapshot --data-dir %[2]s`, err, dataDir)
}

// writeVerified writes a file that gets its name only when it is whole and on disk.
func writeVerified(path string, write func(io.Writer) error) error {
	temp := path + ".part"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(f, 1<<20)
	err = write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		_, _, err = verify(temp)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return os.Rename(temp, path)
}

func verify(path string) (revision int64, objects int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	r, objects, err := embedded.Verify(path, f)
	return int64(r), objects, err
}
