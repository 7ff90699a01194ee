// Command bench measures the numbers of docs/performance.md: CPU per call,
// throughput, latency in an open loop, memory and start, each against a floor in
// the same run. `make bench` runs it.
//
// It starts the server under test and the floor (a bare net/http JSON echo) as
// processes of their own, on loopback, and reads their CPU time and memory from
// /proc. The load generator shares the machine, as DESIGN's numbers do.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

func main() {
	binary := flag.String("binary", "bin/toolkeep", "the toolkeep to measure")
	seconds := flag.Int("seconds", 5, "length of each measurement")
	out := flag.String("out", "", "file whose table is replaced, such as docs/performance.md; empty prints only")
	parts := flag.String("parts", "calls,latency,memory,start", "what to measure")
	floor := flag.String("floor", "", "serve the floor on this address (used by bench itself)")
	flag.Parse()
	if *floor != "" {
		serveFloor(*floor)
		return
	}
	if err := run(*binary, time.Duration(*seconds)*time.Second, *out, strings.Split(*parts, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// row is one line of the table.
type row struct{ what, goal, measured, floor string }

func run(binary string, d time.Duration, out string, parts []string) error {
	dir, err := os.MkdirTemp("", "toolkeep-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	load := loadAverage()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	fl, err := startFloor(self)
	if err != nil {
		return err
	}
	defer fl.stop()
	var rows []row
	known := map[string]func(*bench) ([]row, error){"calls": calls, "latency": openLoop, "memory": memory, "start": start}
	for _, name := range parts {
		part, ok := known[name]
		if !ok {
			return fmt.Errorf("there is no part %q", name)
		}
		got, err := part(&bench{binary: binary, dir: dir, floor: fl, d: d})
		if err != nil {
			return err
		}
		for _, r := range got {
			fmt.Printf("%-58s goal %-22s measured %-28s floor %s\n", r.what, r.goal, r.measured, r.floor)
		}
		rows = append(rows, got...)
	}
	text := render(rows, load)
	if out == "" {
		return nil
	}
	return replaceTable(out, text)
}

// bench is what every part measures with.
type bench struct {
	binary, dir string
	floor       *process
	d           time.Duration
}

// server starts a fresh toolkeep whose limits do not stand in the way.
func (b *bench) server(name string) (*process, error) {
	dir := filepath.Join(b.dir, name)
	return startToolkeep(b.binary, dir)
}

// calls measures CPU per call and throughput with 32 clients in a closed loop.
func calls(b *bench) ([]row, error) {
	srv, err := b.server("calls")
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	floor, err := closedLoop(b.floor, request(b.floor, echoBody(0), ""), 32, b.d)
	if err != nil {
		return nil, err
	}
	read, err := closedLoop(srv, request(srv, echoBody(0), ""), 32, b.d)
	if err != nil {
		return nil, err
	}
	keyed, err := closedLoop(srv, request(srv, echoBody(0), "key"), 32, b.d)
	if err != nil {
		return nil, err
	}
	us := func(m measured) string { return fmt.Sprintf("%.0f µs", m.cpuPerCall()) }
	over := func(m measured) string {
		return fmt.Sprintf("%s (floor + %.0f)", us(m), m.cpuPerCall()-floor.cpuPerCall())
	}
	return []row{
		{"CPU per reading call, REST, 32 clients, 600 bytes", "floor + 50 µs", over(read), us(floor)},
		{"CPU per call with an idempotency key", "floor + 80 µs", over(keyed), us(floor)},
		{"calls a second, one node, reading", "10,000", perSecond(read), perSecond(floor)},
		{"calls a second, one node, keyed", "-", perSecond(keyed), perSecond(floor)},
	}, nil
}

func perSecond(m measured) string { return fmt.Sprintf("%.0f", float64(m.calls)/m.took.Seconds()) }

// openLoop measures latency at 2,000 calls a second, whatever the answers take.
func openLoop(b *bench) ([]row, error) {
	srv, err := b.server("open")
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	const rate = 2000
	floor, err := pacedLoop(b.floor, request(b.floor, echoBody(0), ""), rate, b.d)
	if err != nil {
		return nil, err
	}
	got, err := pacedLoop(srv, request(srv, echoBody(0), ""), rate, b.d)
	if err != nil {
		return nil, err
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }
	pair := func(m measured) string { return ms(m.quantile(0.5)) + " / " + ms(m.quantile(0.99)) }
	return []row{
		{"latency p50 / p99, open loop at 2,000 a second", "-", pair(got), pair(floor)},
		{"overhead over the floor p50 / p99", "0.3 / 2 ms",
			ms(got.quantile(0.5)-floor.quantile(0.5)) + " / " + ms(got.quantile(0.99)-floor.quantile(0.99)), "-"},
	}, nil
}

// memory measures anonymous memory: idle, with 10,000 tools, with 100,000 cached
// results of 1 KB.
func memory(b *bench) ([]row, error) {
	srv, err := b.server("memory")
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	mb := func() string { return fmt.Sprintf("%.0f MB", float64(srv.settledMemory())/1e6) }
	idle := mb()
	if err := registerTools(srv, 10_000); err != nil {
		return nil, err
	}
	tools := mb()
	if err := fillCache(srv, 100_000); err != nil {
		return nil, err
	}
	return []row{
		{"RssAnon idle", "30 MB", idle, "-"},
		{"RssAnon with 10,000 tools", "150 MB", tools, "-"},
		{"RssAnon with 10,000 tools and 100,000 cached results of 1 KB", "400 MB", mb(), "-"},
	}, nil
}

// start measures from exec to ready, with 1,000 tools in the store.
func start(b *bench) ([]row, error) {
	srv, err := b.server("start")
	if err != nil {
		return nil, err
	}
	if err := registerTools(srv, 1000); err != nil {
		srv.stop()
		return nil, err
	}
	srv.stop()
	var best time.Duration
	for range 5 {
		began := time.Now()
		again, err := b.server("start")
		if err != nil {
			return nil, err
		}
		if took := time.Since(began); best == 0 || took < best {
			best = took
		}
		again.stop()
	}
	return []row{{"start to ready with 1,000 tools, best of 5", "300 ms", fmt.Sprintf("%d ms", best.Milliseconds()), "-"}}, nil
}

func render(rows []row, load string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s on %d cores (%s, %s), load average before the run %s, load generator beside the server.\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOARCH, runtime.Version(), load)
	b.WriteString("| what | goal | measured | floor |\n| --- | --- | --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.what, r.goal, r.measured, r.floor)
	}
	return b.String()
}

const (
	tableBegin = "<!-- bench: begin -->\n"
	tableEnd   = "<!-- bench: end -->"
)

// replaceTable writes the table between the two marks of a page.
func replaceTable(path, table string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(raw), tableBegin)
	if !ok {
		return fmt.Errorf("%s has no mark %q", path, strings.TrimSpace(tableBegin))
	}
	_, tail, ok := strings.Cut(rest, tableEnd)
	if !ok {
		return fmt.Errorf("%s has no mark %q", path, tableEnd)
	}
	return os.WriteFile(path, []byte(head+tableBegin+table+tableEnd+tail), 0o644)
}

func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(raw))[0]
}

func startFloor(self string) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-floor", addr)
	return launch(cmd, "http://"+addr, "/health/live", "")
}
