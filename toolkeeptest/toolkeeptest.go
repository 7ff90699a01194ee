// Package toolkeeptest starts the whole system for a test, on free loopback ports and
// with its own data directory, and stops it when the test ends.
package toolkeeptest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/node"
)

// Toolkeep is a running system.
type Toolkeep struct {
	*node.Node
	Dir      string
	AdminKey string
	t        testing.TB
	log      *buffer
}

// Option changes how the system is started.
type Option struct {
	Settings map[string]string // by key, as with --set
	Environ  []string
	Options  node.Options
	Limits   bool // with the default limits of agents
}

// New starts a system without limits of agents, unless an option asks for them, and stops it with the test.
func New(t testing.TB, options ...Option) *Toolkeep {
	t.Helper()
	return Open(t, filepath.Join(t.TempDir(), "data"), options...)
}

// Open starts a system on a data directory, which may hold the state of an earlier one.
func Open(t testing.TB, dir string, options ...Option) *Toolkeep {
	t.Helper()
	settings := map[string]string{
		"data": dir, "http.addr": "127.0.0.1:0", "grpc.addr": "127.0.0.1:0", "metrics.addr": "127.0.0.1:0", "examples.addr": "127.0.0.1:0",
		"examples.tools":     "true",
		"calls.record_wait":  "5s", // tests read records at once, on machines of any speed
		"store.max_wait":     "0",  // nor are calls refused for a disk that is slow for a moment,
		"calls.max_cpu_wait": "0",  // or a processor that other tests have
	}
	if !slices.ContainsFunc(options, func(o Option) bool { return o.Limits }) {
		for _, name := range []string{"agent_per_minute", "agent_tool_per_minute", "global_per_minute", "agent_concurrent"} {
			settings["limits."+name] = "-1"
		}
	}
	var environ []string
	var o node.Options
	for _, opt := range options {
		for k, v := range opt.Settings {
			settings[k] = v
		}
		environ = append(environ, opt.Environ...)
		o = opt.Options
	}
	c, err := config.Load(config.Sources{Flags: settings, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	log := new(buffer)
	if o.LogTo == nil {
		o.LogTo = log
	} else {
		o.LogTo = io.MultiWriter(log, o.LogTo)
	}
	o.Version = "test"
	n, err := node.New(context.Background(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	k := &Toolkeep{Node: n, Dir: dir, AdminKey: n.AdminKey, t: t, log: log}
	t.Cleanup(func() {
		k.Close()
		if t.Failed() {
			t.Logf("the server's log:\n%s", log.String())
		}
	})
	if err := n.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	return k
}

// Close stops the system; the end of the test does so too.
func (k *Toolkeep) Close() {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := k.Stop(ctx); err != nil {
		k.t.Errorf("the system did not stop cleanly: %v", err)
	}
}

// Log returns the server's log so far. Lines may be buffered briefly; Close writes all
// of them.
func (k *Toolkeep) Log() string { return k.log.String() }

// Key creates an API key of any tenant, which no face can, and returns its text.
func (k *Toolkeep) Key(tenant, subject string, roles ...string) string {
	k.t.Helper()
	return k.AddKey(toolkeep.APIKey{Tenant: tenant, Subject: subject, Roles: roles, CreatedBy: "test"})
}

// AddKey stores a key that is valid at once and returns its text.
func (k *Toolkeep) AddKey(spec toolkeep.APIKey) string {
	k.t.Helper()
	key, text := access.NewKey(spec, time.Now())
	change := toolkeep.PutKey{Key: key}
	if err := k.Store().Apply(context.Background(), change); err != nil {
		k.t.Fatal(err)
	}
	k.Access().Follow(toolkeep.Committed{Change: change})
	return text
}

// AwaitKey waits until the system knows a key that another node of its store made. A
// test that asks with the key itself until it works fails logins, and enough of them
// block its address.
func (k *Toolkeep) AwaitKey(tenant, text string) {
	k.t.Helper()
	auditor := &toolkeep.Principal{Tenant: tenant, Permissions: []string{toolkeep.PermKeys}}
	limit, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for {
		keys, err := k.Access().ListKeys(context.Background(), auditor)
		if err != nil {
			k.t.Fatal(err)
		}
		for _, key := range keys {
			if strings.HasPrefix(text, "tk_"+key.ID+"_") {
				return
			}
		}
		select {
		case <-tick.C:
		case <-limit:
			k.t.Fatal("the key of another node is not known within a minute")
		}
	}
}

// Publish registers manifests for all tenants.
func (k *Toolkeep) Publish(manifests ...string) {
	k.t.Helper()
	raw := make([][]byte, len(manifests))
	for i, m := range manifests {
		raw[i] = []byte(m)
	}
	if _, err := k.Catalog().Publish(context.Background(), access.System(), raw, catalog.PublishOptions{Shared: true}); err != nil {
		k.t.Fatal(err)
	}
}

// Call executes a call as the system's own principal.
func (k *Toolkeep) Call(tool, arguments string) (*toolkeep.Result, error) {
	return k.Pipeline().Invoke(context.Background(), access.System(), &toolkeep.Call{Tool: tool, Arguments: []byte(arguments), Face: "test"})
}

// Do sends a REST request with the admin key and returns status and body.
func (k *Toolkeep) Do(method, path, body string, header ...string) (int, string) {
	k.t.Helper()
	req, err := http.NewRequest(method, k.URL()+path, strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+k.AdminKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		k.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// Manifest returns a small manifest of a builtin function, followed by more fields.
func Manifest(id, version, function string, more ...string) string {
	extra := ""
	for _, m := range more {
		extra += "," + m
	}
	return fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":%q,"description":"A tool of a test.",`+
		`"parameters_schema":{"type":"object"},"execution":{"kind":"builtin","binding":{"name":%q}}%s}`, id, version, function, extra)
}
