//go:build registry

package mcpregistry

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// TestRealRegistry runs the official registry, with the servers of testdata/seed.json, and asks it everything that a client
// asks. What it answers becomes testdata/recorded.json. `make registry` builds it and runs this.
func TestRealRegistry(t *testing.T) {
	program := os.Getenv("TOOLKEEP_TEST_REGISTRY")
	if program == "" {
		t.Fatal("TOOLKEEP_TEST_REGISTRY names no program; run make registry")
	}
	seed, err := filepath.Abs(filepath.Join("testdata", "seed.json"))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	var log bytes.Buffer
	c := exec.CommandContext(t.Context(), program)
	c.Env = append(os.Environ(), "MCP_REGISTRY_SERVER_ADDRESS="+address, "MCP_REGISTRY_DATABASE_URL="+pgtest.Start(t).DSN("postgres"), "MCP_REGISTRY_SEED_FROM="+seed,
		"MCP_REGISTRY_DATABASE_MAX_CONNECTIONS=4", "MCP_REGISTRY_DATABASE_MIN_CONNECTIONS=1", "MCP_REGISTRY_ENABLE_REGISTRY_VALIDATION=false",
		"MCP_REGISTRY_JWT_PRIVATE_KEY=bb2c6b424005acd5df47a9e2c87f446def86dd740c888ea3efb825b23f7ef47c")
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	defer func() {
		_ = c.Process.Signal(os.Interrupt)
		<-ended
		if t.Failed() {
			t.Logf("the registry said:\n%s", &log)
		}
	}()
	at := &url.URL{Scheme: "http", Host: address}
	for deadline := time.Now().Add(2 * time.Minute); ; <-time.After(50 * time.Millisecond) {
		resp, err := http.Get(at.String() + "/v0.1/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the registry ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the registry does not answer: %v", err)
		}
	}
	var mu sync.Mutex
	var list []recorded
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ModifyResponse = func(resp *http.Response) error {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		defer mu.Unlock()
		list = append(list, recorded{resp.Request.URL.RequestURI(), resp.StatusCode, times.ReplaceAll(body, []byte(`"2026-01-02T03:04:05Z"`))})
		return nil
	}
	front := httptest.NewServer(proxy)
	defer front.Close()
	client, err := New(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	askAll(t, client)
	if t.Failed() {
		return
	}
	raw, err := json.MarshalIndent(list, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join("testdata", "recorded.json"), append(raw, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// times are those of the run, which recordings leave out so that each run writes the same.
var times = regexp.MustCompile(`"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"`)
