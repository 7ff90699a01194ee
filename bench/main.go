// Command bench measures the numbers of docs/performance.md: CPU per call,
// throughput, latency in an open loop, memory and start, each against a floor in
// the same run; gRPC beside its floor; MCP beside its upstream called directly;
// PostgreSQL beside SQLite; executors beside the same request made directly; how often
// search finds the right tool and how long it takes, and how often contexts hold it, in
// process; how fast tools are published; what a catalogue of 100,000 tools costs; how long calls take while others are refused, or attempt what they may not; how late the end of a time limit is answered; what a thousand agents get of a tool that fails now and then; what a decision about a call costs; how many entries the audit takes; one and three nodes, and a simulation of up to 64. `make bench` runs it.
//
// It starts the servers under test, PostgreSQL and the floors (a bare net/http JSON
// echo and a bare grpc-go echo) as processes of their own, on loopback, and reads
// their CPU time and memory from /proc. The load generator shares the machine, as
// DESIGN's numbers do.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// clients is how many callers the closed loops have.
const clients = 32

func main() {
	var names []string
	for _, s := range sections {
		names = append(names, s.parts...)
	}
	binary := flag.String("binary", "bin/toolkeep", "the toolkeep to measure")
	seconds := flag.Int("seconds", 5, "length of each measurement")
	out := flag.String("out", "", "page whose tables of the measured parts are replaced, such as docs/performance.md; empty prints only")
	parts := flag.String("parts", strings.Join(names, ","), "what to measure")
	floor := flag.String("floor", "", "serve the floor of REST on this address (used by bench itself)")
	floorGRPC := flag.String("floor-grpc", "", "serve the floor of gRPC on this address (used by bench itself)")
	mcpServer := flag.String("mcp-server", "", "be an MCP server: stdio, http:ADDR or sdk:ADDR (used by bench itself)")
	flag.Parse()
	if *mcpServer != "" {
		serveMCP(*mcpServer)
		return
	}
	if *floor != "" {
		serveFloor(*floor, *floorGRPC)
		return
	}
	if err := run(*binary, *seconds, *out, strings.Split(*parts, ",")); err != nil {
		fail(err)
	}
}

// section is one table of the page, between marks with its name.
type section struct {
	name    string
	parts   []string // whose rows it has
	heading []string
}

var sections = []section{
	{"node", []string{"calls", "latency", "memory", "start"}, []string{"what", "goal", "measured", "floor"}},
	{"grpc", []string{"grpc"}, []string{"call", "goal", "server CPU per call", "calls a second", "p50 / p99"}},
	{"mcp", []string{"mcp"}, []string{"tools/call", "goal", "Toolkeep CPU per call", "calls a second", "p50 / p99 at that", "p50 / p99, one client", "p50 / p99, open loop"}},
	{"postgres", []string{"postgres"}, []string{"call", "node CPU per call", "PostgreSQL CPU per call", "calls a second", "p50 / p99"}},
	{"decisions", []string{"decisions"}, []string{"decision", "goal", "CPU", "time", "allocations"}},
	{"audit", []string{"audit"}, []string{"entries", "a second", "CPU per entry", "PostgreSQL CPU per entry", "all sealed after"}},
	{"executors", []string{"executors"}, []string{"executor and request", "CPU, direct", "CPU, executor", "difference", "time, direct", "time, executor"}},
	{"retrieval", []string{"retrieval"}, []string{"set", "strategy", "aim", "recall@1", "recall@5", "NDCG@10", "queries"}},
	{"served", []string{"served"}, []string{"set", "aim", "recall@5", "tools", "queries"}},
	{"search", []string{"search"}, []string{"search", "goal", "p50", "p95", "a second"}},
	{"disclosure", []string{"disclosure"}, []string{"tools", "phase", "tokens of all manifests", "tokens of the context", "less", "a right tool is in it", "all right tools are", "a right tool is whole", "questions"}},
	{"register", []string{"register"}, []string{"publication", "goal", "tools a second", "p50", "p95"}},
	{"catalogue", []string{"catalogue"}, []string{"what", "goal", "measured"}},
	{"shed", []string{"shed"}, []string{"calls", "admitted a second", "refused a second", "p50 / p99 of the admitted"}},
	{"timeouts", []string{"timeouts"}, []string{"limit", "callers", "calls", "late p50 / p99"}},
	{"agents", []string{"agents"}, []string{"an agent calls", "calls a second", "failed after all attempts", "p50 / p99", "overhead p50 / p99", "share of the slowest agent", "goroutines before / after", "open files before / after", "RssAnon before / after"}},
	{"denied", []string{"denied"}, []string{"calls of an agent", "p50 / p99"}},
	{"nodes", []string{"nodes"}, []string{"call", "CPU per call of all nodes", "PostgreSQL CPU per call", "calls a second in all", "p50 / p99"}},
	{"scale", []string{"scale"}, []string{"nodes", "reading calls a second", "p50", "nodes / PostgreSQL busy", "keyed calls a second", "p50", "nodes / PostgreSQL busy"}},
}

var measurements = map[string]func(*bench) (part, error){
	"calls": calls, "latency": openLoop, "memory": memory, "start": start,
	"grpc": grpcCalls, "mcp": throughMCP, "postgres": stores, "nodes": nodes, "scale": scale, "executors": executors,
	"decisions": decisions, "audit": audits, "catalogue": largeCatalogue, "shed": shedding, "timeouts": timeouts, "denied": denied, "agents": agents,
	"retrieval": retrieval, "served": served, "search": searching,
	"disclosure": disclosure, "register": registering,
}

// part is the result of one measurement.
type part struct {
	set  string // what was set, "" for what the page says
	rows [][]string
}

func run(binary string, seconds int, out string, parts []string) error {
	if err := check(parts, out); err != nil {
		return err
	}
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
	b := &bench{binary: binary, dir: dir, floor: fl, d: time.Duration(seconds) * time.Second}
	for _, s := range sections {
		text, err := b.measure(s, parts, load)
		var why notMeasured
		switch {
		case errors.As(err, &why):
			fmt.Printf("%s: not measured: %s\n\n", s.name, why)
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", s.name, err)
		case text == "":
			continue
		}
		fmt.Println(text)
		if out == "" {
			continue
		}
		if err := replaceTable(out, s.name, text); err != nil {
			return err
		}
	}
	return nil
}

// check refuses unknown parts, and a page's table of which only some rows would be
// measured.
func check(parts []string, out string) error {
	for _, name := range parts {
		if measurements[name] == nil {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	for _, s := range sections {
		n := 0
		for _, name := range s.parts {
			if slices.Contains(parts, name) {
				n++
			}
		}
		if out != "" && n != 0 && n != len(s.parts) {
			return fmt.Errorf("-out replaces a whole table: measure all of %s", strings.Join(s.parts, ","))
		}
	}
	return nil
}

// measure gives the text of a section, "" if none of its parts is asked for.
func (b *bench) measure(s section, parts []string, load string) (string, error) {
	var set string
	var rows [][]string
	var names []string
	for _, name := range s.parts {
		if !slices.Contains(parts, name) {
			continue
		}
		p, err := measurements[name](b)
		if err != nil {
			return "", err
		}
		if p.set != "" {
			set += p.set + "\n\n"
		}
		names = append(names, name)
		rows = append(rows, p.rows...)
	}
	if rows == nil {
		return "", nil
	}
	return b.about(names, load) + set + render(s.heading, rows), nil
}

// about describes when, where and how a table was measured.
func (b *bench) about(names []string, load string) string {
	return fmt.Sprintf("Measured %s on %d cores (%s, %s), load average before the run %s, load generator beside the servers, with\n"+
		"`go run ./bench -seconds %d -parts %s`.\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOARCH, runtime.Version(), load,
		int(b.d.Seconds()), strings.Join(names, ","))
}

// bench is what every part measures with.
type bench struct {
	binary, dir string
	floor       *process
	d           time.Duration
}

// server starts a fresh toolkeep with limits out of the way.
func (b *bench) server(name string, env ...string) (*process, error) {
	return startToolkeep(b.binary, filepath.Join(b.dir, name), env...)
}

func us(v float64) string { return fmt.Sprintf("%.0f µs", v) }

func rate(m measured) string { return fmt.Sprintf("%.0f", m.perSecond()) }

// calls measures CPU per call and throughput with 32 clients in a closed loop.
func calls(b *bench) (part, error) {
	srv, err := b.server("calls")
	if err != nil {
		return part{}, err
	}
	defer srv.stop()
	floor, err := closedLoop(overREST(echoBody(), false, b.floor), clients, b.d)
	if err != nil {
		return part{}, err
	}
	read, err := closedLoop(overREST(echoBody(), false, srv), clients, b.d)
	if err != nil {
		return part{}, err
	}
	keyed, err := closedLoop(overREST(echoBody(), true, srv), clients, b.d)
	if err != nil {
		return part{}, err
	}
	over := func(m measured) string {
		return fmt.Sprintf("%s (floor + %.0f)", us(m.cpuPerCall()), m.cpuPerCall()-floor.cpuPerCall())
	}
	return part{rows: [][]string{
		{"CPU per reading call, REST, 32 clients, 600 bytes", "floor + 50 µs", over(read), us(floor.cpuPerCall())},
		{"CPU per call with an idempotency key", "floor + 80 µs", over(keyed), us(floor.cpuPerCall())},
		{"calls a second, one node, reading", "10,000", rate(read), rate(floor)},
		{"calls a second, one node, keyed", "-", rate(keyed), rate(floor)},
	}}, nil
}

// openLoop measures latency at 2,000 calls a second, whatever the answers take.
func openLoop(b *bench) (part, error) {
	srv, err := b.server("open")
	if err != nil {
		return part{}, err
	}
	defer srv.stop()
	const perSecond = 2000
	floor, err := pacedLoop(overREST(echoBody(), false, b.floor), perSecond, b.d)
	if err != nil {
		return part{}, err
	}
	got, err := pacedLoop(overREST(echoBody(), false, srv), perSecond, b.d)
	if err != nil {
		return part{}, err
	}
	return part{rows: [][]string{
		{"latency p50 / p99, open loop at 2,000 a second", "-", got.quantiles(), floor.quantiles()},
		{"overhead over the floor p50 / p99", "0.3 / 2 ms",
			ms(got.quantile(0.5)-floor.quantile(0.5)) + " / " + ms(got.quantile(0.99)-floor.quantile(0.99)), "-"},
	}}, nil
}

// memory measures anonymous memory, and in parentheses all resident memory, which has the pages of the program and of the
// database too: idle, with 100,000 cached results of 1 KB, with 10,000 tools, with both.
func memory(b *bench) (part, error) {
	few, err := memoryWith(b, 1, "idle", "30 MB", "with 100,000 cached results of 1 KB")
	if err != nil {
		return part{}, err
	}
	many, err := memoryWith(b, 10_000, "with 10,000 tools", "150 MB", "with 10,000 tools and 100,000 cached results of 1 KB")
	return part{rows: append(few, many...)}, err
}

// memoryWith returns the rows of a server with so many tools, before its cache is full and then.
func memoryWith(b *bench, tools int, before, goal, after string) (rows [][]string, err error) {
	srv, err := b.server(fmt.Sprint("memory-", tools))
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	row := func(what, goal string) {
		anon, rss := srv.settledMemory()
		rows = append(rows, []string{"RssAnon (VmRSS) " + what, goal, fmt.Sprintf("%.0f MB (%.0f MB)", float64(anon)/1e6, float64(rss)/1e6), "-"})
	}
	if err := registerTools(srv, tools); err != nil {
		return nil, err
	}
	row(before, goal)
	if err := fillCache(srv, 100_000); err != nil {
		return nil, err
	}
	row(after, "400 MB")
	return rows, nil
}

// start measures from exec to ready, with 1,000 tools in the store.
func start(b *bench) (part, error) {
	srv, err := b.server("start")
	if err != nil {
		return part{}, err
	}
	if err := registerTools(srv, 1000); err != nil {
		srv.stop()
		return part{}, err
	}
	srv.stop()
	var best time.Duration
	for range 5 {
		began := time.Now()
		again, err := b.server("start")
		if err != nil {
			return part{}, err
		}
		if took := time.Since(began); best == 0 || took < best {
			best = took
		}
		again.stop()
	}
	return part{rows: [][]string{{"start to ready with 1,000 tools, best of 5", "300 ms", fmt.Sprintf("%d ms", best.Milliseconds()), "-"}}}, nil
}

func render(heading []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(heading)
	line(slices.Repeat([]string{"---"}, len(heading)))
	for _, r := range rows {
		line(r)
	}
	return b.String()
}

// replaceTable writes text between the two marks of a section of a page.
func replaceTable(path, name, text string) error {
	begin, end := "<!-- bench "+name+": begin -->\n", "<!-- bench "+name+": end -->"
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(raw), begin)
	if !ok {
		return fmt.Errorf("%s has no mark %q", path, strings.TrimSpace(begin))
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return fmt.Errorf("%s has no mark %q", path, end)
	}
	return os.WriteFile(path, []byte(head+begin+text+end+tail), 0o644)
}

func loadAverage() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(raw))[0]
}
