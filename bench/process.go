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
	cmd  *exec.Cmd
	url  string
	addr string
	key  string
	log  string
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// startToolkeep starts the binary on a data directory with limits out of the way.
func startToolkeep(binary, dir string) (*process, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	metrics, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	_, metricsPort, _ := net.SplitHostPort(metrics)
	cmd := exec.Command(binary, "serve", "--data", dir, "--set=limits.agent_concurrent=-1")
	cmd.Env = append(os.Environ(), "L03_HEALTH_PORT="+port, "L03_METRICS_PORT="+metricsPort, "TOOLKEEP_GRPC_ADDR=127.0.0.1:0",
		"L03_RATE_LIMITER_PER_AGENT_RPM=-1", "L03_RATE_LIMITER_PER_TOOL_RPM=-1", "L03_RATE_LIMITER_GLOBAL_RPM=-1",
		"L03_TOOL_CACHE_MAX_ENTRIES=200000", "L03_TOOL_CACHE_MAX_SIZE_BYTES=1000000000",
		"L03_ENVIRONMENT=production", "L03_LOG_LEVEL=INFO")
	return launch(cmd, "http://"+addr, "/health/ready", dir)
}

// launch starts cmd and waits until path answers 200.
func launch(cmd *exec.Cmd, url, path, dir string) (*process, error) {
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
	if dir != "" {
		raw, err := os.ReadFile(filepath.Join(dir, "admin.key"))
		if err != nil {
			p.stop()
			return nil, err
		}
		p.key = strings.TrimSpace(string(raw))
	}
	return p, nil
}

func (p *process) waitReady(path string) error {
	deadline := time.Now().Add(60 * time.Second)
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
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// settledMemory is RssAnon once it no longer falls.
func (p *process) settledMemory() int64 {
	last := p.rssAnon()
	for range 20 {
		time.Sleep(500 * time.Millisecond)
		now := p.rssAnon()
		if now >= last {
			return now
		}
		last = now
	}
	return last
}

func (p *process) rssAnon() int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kb, _ := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			return kb * 1024
		}
	}
	return 0
}

func (p *process) post(path string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, p.url+path, strings.NewReader(string(raw)))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 2000))
		return errors.New(resp.Status + ": " + string(text))
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// serveFloor is the floor: a JSON body in, decoded, encoded, out.
func serveFloor(addr string) {
	mux := http.NewServeMux()
	mux.HandleFunc("/health/live", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("POST /api/v1/tools/invoke", func(w http.ResponseWriter, r *http.Request) {
		var v map[string]any
		if err := json.UnmarshalRead(r.Body, &v); err != nil {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, v)
	})
	srv := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	if err := srv.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
