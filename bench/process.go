package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
)

// process is a server under measurement.
type process struct {
	cmd     *exec.Cmd
	url     string
	addr    string // of HTTP
	grpc    string // address of gRPC, "" without it
	metrics string // URL, "" without it
	key     string
	log     string
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startToolkeep starts the binary on a data directory with limits out of the way;
// env adds settings. Its key is the one that the first start of a store makes.
func startToolkeep(binary, dir string, env ...string) (*process, error) {
	p, err := startNode(binary, dir, env...)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(dir, "admin.key"))
	if err != nil {
		p.stop()
		return nil, err
	}
	p.key = strings.TrimSpace(string(raw))
	return p, nil
}

// startNode is startToolkeep without a key, for a node that joins others.
func startNode(binary, dir string, env ...string) (*process, error) {
	var addrs, ports [3]string
	for i := range addrs {
		addr, err := freeAddr()
		if err != nil {
			return nil, err
		}
		addrs[i] = addr
		_, ports[i], _ = net.SplitHostPort(addr)
	}
	cmd := exec.Command(binary, "serve", "--data", dir)
	cmd.Env = append(os.Environ(), "TOOLKEEP_EXAMPLES_TOOLS=true", "TOOLKEEP_LIMITS_AGENT_CONCURRENT=-1", "L03_HEALTH_PORT="+ports[0], "L03_METRICS_PORT="+ports[1], "L03_GRPC_PORT="+ports[2],
		"L03_RATE_LIMITER_PER_AGENT_RPM=-1", "L03_RATE_LIMITER_PER_TOOL_RPM=-1", "L03_RATE_LIMITER_GLOBAL_RPM=-1",
		"L03_TOOL_CACHE_MAX_ENTRIES=200000", "L03_TOOL_CACHE_MAX_SIZE_BYTES=1000000000",
		"L03_ENVIRONMENT=production", "L03_LOG_LEVEL=INFO")
	cmd.Env = append(cmd.Env, env...)
	p, err := launch(cmd, "http://"+addrs[0], "/health/ready")
	if err != nil {
		return nil, err
	}
	p.grpc, p.metrics = addrs[2], "http://"+addrs[1]+"/metrics"
	return p, nil
}

// launch starts cmd and waits until path answers 200.
func launch(cmd *exec.Cmd, url, path string) (*process, error) {
	p := &process{cmd: cmd, url: url, addr: strings.TrimPrefix(url, "http://")}
	logFile, err := os.CreateTemp("", "toolkeep-bench-log")
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	p.log = logFile.Name()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.waitReady(path); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *process) waitReady(path string) error {
	deadline := time.Now().Add(3 * time.Minute)
	for time.Now().Before(deadline) {
		resp, err := http.Get(p.url + path)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	raw, _ := os.ReadFile(p.log)
	return fmt.Errorf("the server did not become ready; its log:\n%s", raw)
}

func (p *process) stop() {
	if p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
	_ = os.Remove(p.log)
}

// cpu is the process's user and system time; clock ticks are 10 ms on Linux.
func (p *process) cpu() time.Duration {
	own, _, _ := times(p.cmd.Process.Pid)
	return own
}

// times reads what a process used itself, what its ended children used, and who
// its parent is. All are 0 of a process that is gone.
func times(pid int) (own, children time.Duration, parent int) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0
	}
	// The name, in parentheses, may hold spaces; the fields count from behind it.
	_, rest, _ := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	ticks := func(i int) time.Duration {
		n, _ := strconv.ParseInt(f[i], 10, 64)
		return time.Duration(n) * 10 * time.Millisecond
	}
	parent, _ = strconv.Atoi(f[1])
	return ticks(11) + ticks(12), ticks(13) + ticks(14), parent
}

// settledMemory is RssAnon once it no longer falls, and VmRSS, which has the pages of mapped files too.
func (p *process) settledMemory() (anon, rss int64) {
	last := p.rssAnon()
	for range 20 {
		time.Sleep(500 * time.Millisecond)
		now := p.rssAnon()
		if now >= last {
			return now, p.status("VmRSS:")
		}
		last = now
	}
	return last, p.status("VmRSS:")
}

func (p *process) rssAnon() int64 { return p.status("RssAnon:") }

// status is a line of the process's status in bytes, 0 of a process that is gone.
func (p *process) status(name string) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, name); ok {
			kb, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return kb * 1024
		}
	}
	return 0
}

func (p *process) post(path string, body any) error {
	_, err := p.send(http.MethodPost, path, body)
	return err
}

// send asks REST and gives the answer's body.
func (p *process) send(method, path string, body any) ([]byte, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(string(raw)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
		return nil, errors.New(resp.Status + ": " + string(text))
	}
	return io.ReadAll(resp.Body)
}
