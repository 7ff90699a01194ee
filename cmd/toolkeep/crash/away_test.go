package crash_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
	"github.com/toolkeep/toolkeep/store/redis/redistest"
)

// away is a row of the table in docs/degradation.md: a part that is cut off while calls run. That of the store is
// registryUnavailable and cutOff.
type away struct {
	part       string
	components []string      // that are DOWN, with the node DEGRADED and ready
	code       toolkeep.Code // with which calls of readTool may be refused meanwhile; "": they go on
	during     func()        // while it is cut off, and before components are looked at; what a caller meets
	after      func()        // when it is there again
}

// parts returns how ready a node is, its status, and those of its components.
func (s *process) parts() (code int, status string, parts map[string]string) {
	s.t.Helper()
	code, raw, err := s.do("GET", "/health/ready", "")
	var h struct {
		Status     string
		Components map[string]struct{ Status string }
	}
	if err == nil {
		err = json.Unmarshal(raw, &h)
	}
	if err != nil {
		s.t.Fatalf("%v in %s", err, raw)
	}
	parts = map[string]string{}
	for name, c := range h.Components {
		parts[name] = c.Status
	}
	return code, h.Status, parts
}

// isAway waits until the node is ready, DEGRADED, and names the components.
func (s *process) isAway(components ...string) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%v are down and the node is degraded", components), func() bool {
		code, status, parts := s.parts()
		for _, name := range components {
			if parts[name] != "DOWN" {
				return false
			}
		}
		return code == http.StatusOK && status == "DEGRADED"
	})
}

func (s *process) isUp() {
	s.t.Helper()
	until(s.t, "the node is up", func() bool { code, status, _ := s.parts(); return code == http.StatusOK && status == "UP" })
}

// eachPartAway cuts each part off a node, one after the other, while calls run on it.
func eachPartAway(t *testing.T, c *cluster) {
	redis, kv := redistest.Start(t), vaulttest.StartKV(t, "secret=2")
	vaulttest.PutKV(t, kv, "secret/data/default/shop", `{"data":{"key":"`+chaosSecret+`"}}`)
	serve := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	opa := serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"result":true}`) }))
	hook := &receiver{up: true}
	wires := map[string]*proxy{}
	for part, at := range map[string][2]string{"Redis": {"127.77.0.11", redis.TCP("redis")[len("redis://"):]}, "Vault": {"127.77.0.12", kv[len("http://"):]},
		"OPA": {"127.77.0.13", opa}, "embedder": {"127.77.0.14", serve(http.HandlerFunc(embed))}, "sink": {"127.77.0.15", serve(hook)}} {
		wires[part] = newProxy(t, at[0], at[1])
	}
	c.settings = append(c.settings, "redis.url=redis://"+wires["Redis"].addr, "vault.address=http://"+wires["Vault"].addr, "vault.token="+vaultToken,
		"vault.paths=secret/data/{tenant}/", "vault.mounts=secret=2", "access.mode=rbac+abac", "policy.opa_url=http://"+wires["OPA"].addr+"/v1/data/toolkeep",
		"policy.remote_timeout=30s", "search.embeddings_url=http://"+wires["embedder"].addr+"/v1", "search.embeddings_model=small",
		"search.embeddings_dimensions=4")
	c.settings = append(c.settings, sinkTo(t, "http://"+wires["sink"].addr, "timeout: 30s")...)
	c.up(c.add(""))
	c.tools()
	p := c.p(0)
	p.toolAt(c.upstream.addr(), "chaos.secret", reading+`,"auth":[{"type":"bearer","secret":"vault://secret/default/shop#key"}],"breaker":{"enabled":false}`, "")
	secret := func(code toolkeep.Code) {
		t.Helper()
		p.ends(ask{tool: "chaos.secret", args: named("with a secret", 0)}).is(t, "a call with a secret of Vault", code)
	}
	searches := 0
	search := func(degraded bool) {
		t.Helper()
		until(t, fmt.Sprintf("a search is degraded: %t", degraded), func() bool { // one may be where the embedder has no processor in time
			searches++ // none is cached
			status, raw, err := p.do("GET", fmt.Sprintf("/api/v1/tools/retrieval/search?q=hash+of+text+%d", searches), "")
			if err != nil || status != http.StatusOK || !strings.Contains(string(raw), "std.hash") {
				t.Fatalf("a search is answered %d %s %v", status, raw, err)
			}
			return strings.Contains(string(raw), `"degraded"`) == degraded
		})
	}
	sink := func(want string, caughtUp bool) {
		t.Helper()
		until(t, "the sink is "+want, func() bool {
			var list struct {
				Sinks []struct {
					State  string
					Behind int64
				}
			}
			p.must(http.MethodGet, "/api/v1/admin/sinks", "", http.StatusOK, &list)
			return list.Sinks[0].State == want && (list.Sinks[0].Behind == 0 || !caughtUp)
		})
	}
	p.isUp()

	var bears atomic.Value // the code with which calls may be refused now
	bears.Store(toolkeep.Code(""))
	stop := make(chan struct{})
	var load sync.WaitGroup
	var made, refused atomic.Int64
	var begun [2]atomic.Int64
	for n := range begun {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				begun[n].Add(1)
				may := bears.Load().(toolkeep.Code)
				name := fmt.Sprintf("under load %d %d", n, i)
				got, err := p.call(ask{tool: readTool, args: named(name, 0)})
				switch {
				case err == nil && got.Status == "success":
					made.Add(1)
				case err == nil && got.Code != "" && got.Code == string(may) && c.upstream.count(name) == 0:
					refused.Add(1)
				default:
					t.Errorf("%s, while calls may be refused with %q: %s %v", name, may, got, err)
				}
			}
		})
	}
	for _, row := range []away{
		{part: "Redis", components: []string{"redis", "shared_limits"}, during: func() { search(false) }},
		{part: "Vault", components: []string{"secret_store"}, during: func() { secret(toolkeep.SecretRetrievalFailed) }, after: func() { secret("") }},
		{part: "OPA", components: []string{"policy"}, code: toolkeep.PolicyEngineUnavailable, during: func() {
			until(t, "a call is refused", func() bool { return refused.Load() > 0 })
			search(false)
		}},
		{part: "embedder", components: []string{"search"}, during: func() { search(true) }, after: func() { search(false) }},
		{part: "sink", during: func() { sink("failing", false) }, after: func() { sink("ok", false) }}, // health tells after a minute: TestSinkIsDownForAnHour
	} {
		bears.Store(row.code)
		for n := range begun { // a call that began before may not be refused
			before := begun[n].Load()
			until(t, "a call begins", func() bool { return begun[n].Load() > before })
		}
		wires[row.part].cut(refusing)
		before := made.Load()
		row.during()
		if len(row.components) > 0 {
			p.isAway(row.components...)
		}
		if row.code == "" {
			until(t, "calls go on without "+row.part, func() bool { return made.Load() > before+5 })
		}
		wires[row.part].cut(passing)
		p.isUp()
		bears.Store(toolkeep.Code(""))
		if row.after != nil {
			row.after()
		}
	}
	close(stop)
	load.Wait()
	until(t, "no call's record is lost", func() bool {
		return int64(p.count("/api/v1/invocations?tool_id="+readTool+"&state=succeeded")) == made.Load()
	})
	end := time.Now()
	sink("ok", true)
	c.down()
	c.nothingLeft()
	c.checkSink(hook, end, nil)
	bundleAway(t, c)
}

// embed is an embedding service by OpenAI's protocol: what a text means is how often it has some letters.
func embed(w http.ResponseWriter, r *http.Request) {
	var in struct{ Input []string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	type vector struct {
		Index     int        `json:"index"`
		Embedding [4]float64 `json:"embedding"`
	}
	var out struct {
		Data []vector `json:"data"`
	}
	for i, text := range in.Input {
		v := vector{Index: i}
		for at, letter := range []string{"a", "e", "h", "t"} {
			v.Embedding[at] = 1 + float64(strings.Count(text, letter))
		}
		out.Data = append(out.Data, v)
	}
	_ = json.NewEncoder(w).Encode(out) // a caller that is gone gets nothing
}

// bundleAway cuts a node off the server of its policy, without which it goes on.
func bundleAway(t *testing.T, c *cluster) {
	const rules = "package toolkeep\n" + `deny contains "no" if input.arguments.text == "no"`
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "p.rego", Mode: 0o600, Size: int64(len(rules))})
	_, err2 := io.WriteString(w, rules)
	if err := errors.Join(err, err2, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive.Bytes()) }))
	defer at.Close()
	wires := newProxy(t, "127.77.0.16", strings.TrimPrefix(at.URL, "http://"))
	p := c.l.start(t, t.TempDir(), "", "access.mode=rbac+abac", "policy.bundle_url=http://"+wires.addr+"/b.tar.gz", "policy.bundle_poll=1s", "policy.timeout=10s")
	decides := func() {
		t.Helper()
		p.ends(ask{tool: "std.hash", args: `{"text":"yes"}`}).is(t, "what the policy allows", "")
		p.ends(ask{tool: "std.hash", args: `{"text":"no"}`}).is(t, "what the policy denies", toolkeep.PolicyDenied)
	}
	decides()
	wires.cut(refusing)
	p.isAway("policy")
	decides()
	wires.cut(passing)
	p.isUp()
	decides()
	p.stop()
}
