package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/toolkeep/toolkeep/clientconfig"
)

// cmdAsClient does what a client does with its entry toolkeep: it starts the program, in a folder and an environment that
// say nothing of Toolkeep, or uses the URL with the headers, and prints the names of the tools.
func cmdAsClient(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: asclient CLIENT FILE")
	}
	c := clientconfig.Clients()[slices.Index(clientNames(), args[0])]
	found, ok, err := c.Find([]byte(ts.ReadFile(args[1])), entryName)
	ts.Check(err)
	if !ok {
		ts.Fatalf("%s has no entry %s", args[1], entryName)
	}
	raw, err := json.Marshal(found)
	ts.Check(err)
	var e struct {
		URL, ServerURL, HTTPURL, URI string
		Headers                      map[string]string
		CodexHeaders                 map[string]string `json:"http_headers"`
		Command, Cmd                 string
		Args                         []string
		Env, Envs                    map[string]string
	}
	ts.Check(json.Unmarshal(raw, &e))
	var to sdk.Transport
	if address := cmp.Or(e.URL, e.ServerURL, e.HTTPURL, e.URI); address != "" {
		headers := e.Headers
		if headers == nil {
			headers = e.CodexHeaders
		}
		to = &sdk.StreamableClientTransport{Endpoint: address, DisableStandaloneSSE: true, HTTPClient: &http.Client{Transport: withHeaders(headers)}}
	} else {
		p := exec.Command(cmp.Or(e.Command, e.Cmd), e.Args...)
		p.Dir, p.Env = "/", []string{"PATH=/usr/bin:/bin", "HOME=" + ts.Getenv("HOME")}
		for _, env := range []map[string]string{e.Env, e.Envs} {
			for name, value := range env {
				p.Env = append(p.Env, name+"="+value)
			}
		}
		to = &sdk.CommandTransport{Command: p}
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "asclient", Version: "1"}, nil).Connect(ctx, to, nil)
	ts.Check(err)
	list, err := session.ListTools(ctx, nil)
	ts.Check(err)
	for _, tool := range list.Tools {
		fmt.Fprintln(ts.Stdout(), tool.Name)
	}
	ts.Check(session.Close())
}

// withHeaders sends headers with each request.
type withHeaders map[string]string

func (h withHeaders) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// A program in a temporary folder is gone when the client starts it.
func TestOwnProgramIsLasting(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	if got, err := ownProgram(); err != nil || got != self {
		t.Errorf("%s %v, want %s", got, err, self)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "toolkeep")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if got, err := ownProgram(); err != nil || got != filepath.Join(bin, "toolkeep") {
		t.Errorf("%s %v, want the link in PATH", got, err)
	}
	t.Setenv("PATH", "")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Dir(self), link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(self), link} {
		t.Setenv("TMPDIR", dir)
		if got, err := ownProgram(); err == nil || !strings.Contains(err.Error(), "temporary folder") {
			t.Errorf("below %s: %s %v", dir, got, err)
		}
	}
}
