package toolkeeptest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/store/redis/redistest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// policyOf starts a system that asks a policy; put replaces its rules.
func policyOf(t *testing.T, rules string) (k *toolkeeptest.Toolkeep, put func(string)) {
	t.Helper()
	dir := t.TempDir()
	put = func(rules string) {
		t.Helper()
		at := filepath.Join(dir, "p.rego")
		if err := os.WriteFile(at+".new", []byte("package toolkeep\n"+rules), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(at+".new", at); err != nil {
			t.Fatal(err)
		}
	}
	put(rules)
	return toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{
		"access.mode": "rbac+abac", "policy.path": dir, "policy.poll": "10ms", "policy.timeout": "10s"}}), put
}

// TestPolicy: a policy decides calls of every face alike, its change is taken while the server
// runs, and one that cannot be used leaves the old one, which health tells.
func TestPolicy(t *testing.T) {
	t.Parallel()
	k, put := policyOf(t, `deny contains {"rule": "words", "reason": sprintf("%s may not say that", [input.caller.subject])} if input.arguments.text == "no"`)
	ann := as(t, k, k.Key("default", "ann", "agent"))
	ann.call("std.hash", `{"text":"yes"}`).success(t)
	a := ann.call("std.hash", `{"text":"no"}`).want(t, 403).refused(t, toolkeep.PolicyDenied)
	if a.text(t, "details", "reason") != "ABAC_DENIED" || !strings.Contains(a.text(t, "detail"), "ann may not say that") || a.text(t, "details", "checks", "0", "rule") != "words" {
		t.Errorf("%s", a)
	}
	x := ann.call("std.hash", `{"text":"no"}`, `"dry_run":true`).want(t, 200)
	if !strings.Contains(x.body, `"rule":"words"`) || !strings.Contains(x.body, `"would_execute":false`) {
		t.Errorf("explain: %s", x.body)
	}
	if health := ann.do("GET", "/health", ""); strings.Contains(health.body, "DEGRADED") {
		t.Errorf("health: %s", health.body)
	}

	put(`deny contains "closed" if true`)
	waitUntil(t, "the changed policy", func() bool { return ann.call("std.hash", `{"text":"yes"}`).status == 404 }) // certain, so it hides
	put(`deny contains "open" if`)
	waitUntil(t, "health to tell of the broken policy", func() bool {
		return strings.Contains(ann.do("GET", "/health", "").body, "DEGRADED")
	})
	ann.call("std.hash", `{"text":"yes"}`).refused(t, toolkeep.ToolNotFound)
	put(`require_approval contains "a person must see it" if input.tool.id == "std.hash"`)
	waitUntil(t, "the mended policy", func() bool {
		explained := ann.do("POST", "/api/v1/tools/invoke", `{"tool_id":"std.hash","parameters":{"text":"yes"},"dry_run":true}`)
		return strings.Contains(explained.body, "a person must see it")
	})
	ann.call("std.echo", `{}`).success(t)
	put("allow := true\nvisible if input.tool.id != \"std.hash\"")
	waitUntil(t, "the hidden tool", func() bool { return ann.do("GET", "/api/v1/tools/std.hash", "").status == 404 })
	if a := ann.call("std.hash", `{"text":"yes"}`); a.status != 404 {
		t.Errorf("a call of the hidden tool: %d %s", a.status, a.body)
	}
	if list := ann.do("GET", "/api/v1/tools", ""); strings.Contains(list.body, "std.hash") || !strings.Contains(list.body, "std.echo") {
		t.Errorf("the list: %s", list.body)
	}
	if found := ann.do("GET", "/api/v1/tools/retrieval/search?q=hash", ""); strings.Contains(found.body, "std.hash") {
		t.Errorf("the search: %s", found.body)
	}
}

// TestPolicyRefusesTheStart: a policy that cannot be used is no reason to start without one.
func TestPolicyRefusesTheStart(t *testing.T) {
	for rules, says := range map[string]string{
		"allow if {":                     "p.rego:2",
		"allow if http.send({}).ok":      "http.send",
		"allow contains \"x\" if 1 == 1": "must be true or false",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "p.rego"), []byte("package toolkeep\n"+rules), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Sources{Flags: map[string]string{"data": t.TempDir(), "access.mode": "rbac+abac", "policy.path": dir}})
		if err != nil {
			t.Fatal(err)
		}
		n, err := node.New(t.Context(), c, node.Options{LogTo: io.Discard})
		if err == nil {
			_ = n.Stop(t.Context())
		}
		if err == nil || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%s: %v", rules, err)
		}
	}
}

// TestPolicyBundle: nodes have their policy from an address, at which they look once a day. One that is told over Redis takes a
// change, and the others hear of it over the feed; so they do of what a node begins with.
func TestPolicyBundle(t *testing.T) {
	t.Parallel()
	var archive atomic.Pointer[[]byte]
	put := func(rules string) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "p.rego", Mode: 0o600, Size: int64(len(rules))})
		_, err2 := io.WriteString(w, rules)
		if err := errors.Join(err, err2, w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		raw := b.Bytes()
		archive.Store(&raw)
	}
	put("package toolkeep\nallow := true")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer of the bundle" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(*archive.Load())
	}))
	t.Cleanup(server.Close)
	secrets := t.TempDir()
	token := filepath.Join(secrets, "_shared", "token")
	if err := errors.Join(os.Mkdir(filepath.Dir(token), 0o700), os.WriteFile(token, []byte("of the bundle"), 0o600)); err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t)
	hears := []string{redis.URL(), ""}
	var last toolkeeptest.Option
	nodes := cluster(t, 2, func(o *toolkeeptest.Option) {
		o.Settings["access.mode"], o.Settings["policy.bundle_url"], o.Settings["policy.timeout"] = "rbac+abac", server.URL+"/b.tar.gz", "10s"
		o.Settings["policy.token"], o.Settings["secrets.dirs"], o.Settings["policy.bundle_poll"] = "file://"+token, secrets, "1d"
		o.Settings["redis.url"], hears = hears[0], hears[1:]
		last = *o
	})
	key := nodes[0].Key("default", "ann", "agent")
	nodes[1].AwaitKey("default", key)
	ann := []*client{as(t, nodes[0], key), as(t, nodes[1], key)}
	for _, c := range ann {
		c.call("std.echo", `{}`).success(t)
	}
	put("package toolkeep\ndeny contains \"closed\"")
	if err := redis.Client(t).Publish(t.Context(), "toolkeep:policy:updates", "look").Err(); err != nil {
		t.Fatal(err)
	}
	for i, c := range ann {
		within(t, time.Second, fmt.Sprintf("the changed policy on node %d", i), func() bool { return c.call("std.echo", `{}`).status == 404 })
	}
	put("package toolkeep\nallow := true\n")
	toolkeeptest.New(t, last)
	for i, c := range ann {
		within(t, time.Second, fmt.Sprintf("the policy that another node began with on node %d", i), func() bool { return c.call("std.echo", `{}`).status == 200 })
	}
}
