// Command engines compares the storage libraries that could make the store durable, on the store's
// own work: 1 KB values committed by 1, 16 and 256 writers, every commit synced before it is
// acknowledged, many writers sharing one sync; and a restart with 100,000 objects. It prints the
// table of docs/store-engines.md.
//
//	go run ./engines -dir /some/disk
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/setpoint-dev/setpoint/bench/engines/internal/engine"
)

var (
	dir     = flag.String("dir", os.TempDir(), "a directory on the disk to measure")
	period  = flag.Duration("period", time.Second, "how long to measure each number of writers")
	rounds  = flag.Int("rounds", 3, "how often; the best of them is printed")
	objects = flag.Int("objects", 100_000, "how many objects to restart with")
	only    = flag.String("only", "", "measure only the library of this name")
	weights = flag.Bool("weights", false, "measure only what the libraries add to a binary")
	fill    = flag.String("fill", "", "only fill this directory with the library that -only names")
	reopen  = flag.String("reopen", "", "only open this directory with it, and say how long it took")
)

var writers = []int{1, 16, 256}

// row is what was measured of one library: one sample a round.
type row struct {
	rate    [][]float64 // per entry of writers: commits a second
	cpu     []float64   // µs of CPU per commit with the most writers
	restart []float64   // ms
	size    int64
	modules int
}

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

func run() error {
	libraries := slices.DeleteFunc(engine.Libraries(), func(l engine.Library) bool {
		return *only != "" && l.Name != *only
	})
	switch {
	case *fill != "":
		return write(libraries[0])
	case *reopen != "":
		return load(libraries[0])
	}
	rows := make([]row, len(libraries))
	for i := range rows {
		rows[i].rate = make([][]float64, len(writers))
	}
	if *weights {
		*rounds = 0
	}
	// Rounds are outside, so that what else the machine does meets all libraries alike.
	for range *rounds {
		for i, l := range libraries {
			if err := measure(l, &rows[i]); err != nil {
				return fmt.Errorf("%s: %w", l.Name, err)
			}
		}
	}
	for i, l := range libraries {
		if l.Package == "" {
			continue
		}
		var err error
		if rows[i].size, rows[i].modules, err = weigh(l); err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	print(libraries, rows)
	return nil
}

func print(libraries []engine.Library, rows []row) {
	fmt.Println("| library | commits/s, 1 writer | 16 | 256 | CPU per commit, 256 | restart | binary |" +
		" modules |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|")
	for i, l := range libraries {
		r := rows[i]
		restart := "–"
		if len(r.restart) > 0 {
			restart = fmt.Sprintf("%.0f ms", least(r.restart))
		}
		fmt.Printf("| %s | %.0f | %.0f | %.0f | %.1f µs | %s | +%.1f MB | %d |\n", l.Name,
			most(r.rate[0]), most(r.rate[1]), most(r.rate[2]), least(r.cpu), restart,
			float64(r.size)/1e6, r.modules)
	}
}

// What else a machine does can only make a sample worse, so the best one says most.
func most(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	return slices.Max(samples)
}

func least(samples []float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	return slices.Min(samples)
}

func measure(l engine.Library, r *row) error {
	for i, n := range writers {
		run := commit
		if l.Commits {
			run = commitAlone
		}
		rate, cpu, err := inDir(l, func(e engine.Engine) (float64, float64, error) { return run(e, n) })
		if err != nil {
			return err
		}
		r.rate[i] = append(r.rate[i], rate)
		if i == len(writers)-1 {
			r.cpu = append(r.cpu, cpu)
		}
	}
	if l.NoRestart {
		return nil
	}
	took, err := restart(l)
	r.restart = append(r.restart, took)
	return err
}

func inDir(l engine.Library, f func(engine.Engine) (float64, float64, error)) (a, b float64, err error) {
	d, err := os.MkdirTemp(*dir, "engine")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(d)
	e, err := l.Open(d, func([]byte) {})
	if err != nil {
		return 0, 0, err
	}
	defer e.Close()
	return f(e)
}

// commit has n writers commit values for a while through one committer that takes all who wait.
func commit(e engine.Engine, n int) (rate, cpu float64, err error) {
	type request struct {
		value []byte
		done  chan struct{}
	}
	queue := make(chan request, n)
	var stop atomic.Bool
	var count int
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			r := request{value: bytes.Repeat([]byte("v"), 1024), done: make(chan struct{}, 1)}
			for !stop.Load() {
				queue <- r
				<-r.done
			}
		})
	}
	go func() { group.Wait(); close(queue) }()

	start, cpuStart := time.Now(), cpuTime()
	var waiting []request
	var values [][]byte
	for first := range queue {
		waiting, values = append(waiting[:0], first), append(values[:0], first.value)
		for more := true; more; {
			select {
			case r, ok := <-queue:
				if more = ok; ok {
					waiting, values = append(waiting, r), append(values, r.value)
				}
			default:
				more = false
			}
		}
		if err == nil {
			err = e.Append(values)
		}
		count += len(values)
		for _, r := range waiting {
			r.done <- struct{}{}
		}
		if time.Since(start) > *period || err != nil {
			stop.Store(true)
		}
	}
	took := time.Since(start)
	return float64(count) / took.Seconds(), float64((cpuTime() - cpuStart).Microseconds()) / float64(count), err
}

// commitAlone has n writers commit through an engine that groups commits by itself.
func commitAlone(e engine.Engine, n int) (rate, cpu float64, err error) {
	var stop atomic.Bool
	var count atomic.Int64
	errs := make(chan error, n)
	start, cpuStart := time.Now(), cpuTime()
	for range n {
		go func() {
			values := [][]byte{bytes.Repeat([]byte("v"), 1024)}
			var err error
			for err == nil && !stop.Load() {
				if err = e.Append(values); err == nil {
					count.Add(1)
				}
			}
			errs <- err
		}()
	}
	time.Sleep(*period)
	stop.Store(true)
	for range n {
		err = errors.Join(err, <-errs)
	}
	took := time.Since(start)
	return float64(count.Load()) / took.Seconds(),
		float64((cpuTime() - cpuStart).Microseconds()) / float64(count.Load()), err
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// restart says how many milliseconds it takes to open a directory and have all objects in memory.
func restart(l engine.Library) (float64, error) {
	d, err := os.MkdirTemp(*dir, "engine")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(d)
	// In processes of their own: not every library lets go of a directory that it has closed.
	same := []string{"-only", l.Name, "-objects", fmt.Sprint(*objects)}
	if out, err := exec.Command(os.Args[0], append(same, "-fill", d)...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("filling: %w: %s", err, out)
	}
	out, err := exec.Command(os.Args[0], append(same, "-reopen", d)...).Output()
	if err != nil {
		return 0, fmt.Errorf("reopening: %w", err)
	}
	var took float64
	_, err = fmt.Sscan(string(out), &took)
	return took, err
}

// write fills a directory with objects.
func write(l engine.Library) error {
	e, err := l.Open(*fill, func([]byte) {})
	if err != nil {
		return err
	}
	group := make([][]byte, 100)
	for i := range group {
		group[i] = bytes.Repeat([]byte("v"), 1024)
	}
	for range *objects / len(group) {
		if err := e.Append(group); err != nil {
			return err
		}
	}
	return e.Close()
}

// load opens a directory and has all objects in memory.
func load(l engine.Library) error {
	start, found := time.Now(), make([][]byte, 0, *objects)
	_, err := l.Open(*reopen, func(v []byte) { found = append(found, bytes.Clone(v)) })
	if err != nil {
		return err
	}
	if len(found) != *objects {
		return fmt.Errorf("%d objects of %d after a restart", len(found), *objects)
	}
	fmt.Println(float64(time.Since(start).Microseconds()) / 1000)
	return nil
}

// weigh builds a program with and without the package: what it adds in bytes to a program that has
// what the server links anyway, and how many modules it comes from.
func weigh(l engine.Library) (size int64, modules int, err error) {
	tmp, err := os.MkdirTemp("engines", "weigh")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(tmp)
	empty, err := build(tmp, engine.Library{})
	if err != nil {
		return 0, 0, err
	}
	full, err := build(tmp, l)
	if err != nil {
		return 0, 0, err
	}
	list, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", l.Package).Output()
	if err != nil {
		return 0, 0, err
	}
	paths := strings.Fields(string(list))
	slices.Sort(paths)
	return full - empty, len(slices.Compact(paths)), nil
}

// build links a program that looks up methods by name, as a server that uses templates or protobuf
// does: the linker then keeps every exported method of what is used.
func build(tmp string, l engine.Library) (int64, error) {
	source := "package main\n\nimport (\"os\"; \"reflect\")\n"
	for _, linked := range []string{"net/http", "google.golang.org/protobuf/proto", "github.com/prometheus/client_golang/prometheus"} {
		source += fmt.Sprintf("import _ %q\n", linked)
	}
	if l.Package != "" {
		source += fmt.Sprintf("import library %q\n\nfunc init() { println(reflect.ValueOf(library.%s).Kind()) }\n", l.Package, l.Uses)
	}
	source += "\nfunc main() { reflect.ValueOf(os.Args).MethodByName(os.Args[0]) }\n"
	if err := os.WriteFile(filepath.Join(tmp, "main.go"), []byte(source), 0o600); err != nil {
		return 0, err
	}
	bin := filepath.Join(tmp, "bin")
	out, err := exec.Command("go", "build", "-o", bin, "./"+tmp).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	info, err := os.Stat(bin)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
