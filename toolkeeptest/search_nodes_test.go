package toolkeeptest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/redis/redistest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// letters is the query of these tests.
const letters = "send a letter"

// finders is a set of nodes on one database, with or without Redis.
type finders struct {
	nodes  []*toolkeeptest.Toolkeep
	shared map[string]string // settings of every node
	redis  *redistest.Server // nil without Redis
}

// withAndWithoutRedis runs a test both ways.
func withAndWithoutRedis(t *testing.T, run func(t *testing.T, f *finders)) {
	t.Helper()
	for _, redis := range []bool{false, true} {
		t.Run(map[bool]string{false: "without Redis", true: "with Redis"}[redis], func(t *testing.T) { run(t, newFinders(t, redis)) })
	}
}

func newFinders(t *testing.T, redis bool) *finders {
	t.Helper()
	f := &finders{shared: map[string]string{"store.dsn": pgtest.NewDatabase(t), "search.model": "none",
		"secrets.seal_key": filepath.Join(t.TempDir(), "seal.key"), "store.blobs": filepath.Join(t.TempDir(), "blobs")}}
	if redis {
		f.redis = redistest.Start(t)
		f.shared["redis.url"] = f.redis.URL()
	}
	f.node(t, nil)
	f.node(t, nil)
	return f
}

// node starts a node with further settings.
func (f *finders) node(t *testing.T, more map[string]string) *toolkeeptest.Toolkeep {
	t.Helper()
	settings := map[string]string{}
	for _, m := range []map[string]string{f.shared, more} {
		for k, v := range m {
			settings[k] = v
		}
	}
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: settings})
	f.nodes = append(f.nodes, k)
	return k
}

// key creates a key that all nodes know, and returns it with its record.
func (f *finders) key(t *testing.T, tenant, subject string, roles ...string) (toolkeep.APIKey, string) {
	t.Helper()
	key, text := access.NewKey(toolkeep.APIKey{Tenant: tenant, Subject: subject, Roles: roles, CreatedBy: "test"}, time.Now())
	f.change(t, toolkeep.PutKey{Key: key})
	for _, k := range f.nodes {
		k.AwaitKey(tenant, text)
	}
	return key, text
}

// change commits a change, which the nodes learn of from the feed.
func (f *finders) change(t *testing.T, c toolkeep.Change) {
	t.Helper()
	if err := f.nodes[0].Store().Apply(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// findings is a search response.
type findings struct {
	status int
	ids    []string
	hit    bool
}

func find(t *testing.T, k *toolkeeptest.Toolkeep, key, query string) findings {
	t.Helper()
	status, body := k.Do(http.MethodGet, "/api/v1/tools/retrieval/search?q="+url.QueryEscape(query), "", "Authorization", "Bearer "+key)
	var got struct {
		Data struct {
			LightweightIndex []struct {
				ToolID string `json:"toolId"`
			} `json:"lightweightIndex"`
			Metadata struct {
				CacheHit bool `json:"cacheHit"`
			} `json:"metadata"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	a := findings{status: status, hit: got.Data.Metadata.CacheHit}
	for _, e := range got.Data.LightweightIndex {
		a.ids = append(a.ids, e.ToolID)
	}
	return a
}

func (a findings) has(id string) bool { return slices.Contains(a.ids, id) }

// warm queries every node until it answers from its cache.
func (f *finders) warm(t *testing.T, key, query string) {
	t.Helper()
	for i, k := range f.nodes {
		within(t, 5*time.Second, fmt.Sprintf("node %d keeps the answer", i), func() bool { return find(t, k, key, query).hit })
	}
}

// register publishes a tool of the caller's tenant over REST.
func register(t *testing.T, k *toolkeeptest.Toolkeep, key, id, version, description string) {
	t.Helper()
	m := strings.Replace(toolkeeptest.Manifest(id, version, "echo", `"side_effects":"none"`), "A tool of a test.", description, 1)
	status, body := k.Do(http.MethodPost, "/api/v1/tools/register", `{"manifest":`+m+`}`, "Authorization", "Bearer "+key)
	if status != http.StatusCreated && status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
}

// TestFoundOnTheOtherNode: with both caches warm, a tool registered, changed or removed
// on one node is so in the other's results within a second, and in its own at once.
func TestFoundOnTheOtherNode(t *testing.T) {
	t.Parallel()
	withAndWithoutRedis(t, func(t *testing.T, f *finders) {
		a, b := f.nodes[0], f.nodes[1]
		_, admin := f.key(t, "default", "boss", "admin")
		_, agent := f.key(t, "default", "ann", "agent")
		_, stranger := f.key(t, "other", "stan", "agent")
		register(t, a, admin, "mail.send", "1.0.0", "Sends a letter by post.")
		within(t, time.Second, "the first tool is found on the other node", func() bool { return find(t, b, agent, letters).has("mail.send") })
		f.warm(t, agent, letters)

		register(t, a, admin, "mail.express", "1.0.0", "Sends a letter by express.")
		if got := find(t, a, agent, letters); !got.has("mail.express") || got.hit {
			t.Errorf("on its own node: %+v", got)
		}
		within(t, time.Second, "a new tool is found on the other node", func() bool { return find(t, b, agent, letters).has("mail.express") })
		f.warm(t, agent, letters)
		f.warm(t, stranger, letters)
		if got := find(t, b, stranger, letters); got.has("mail.send") || got.has("mail.express") {
			t.Errorf("another tenant finds %v", got.ids)
		}

		// A new version about a different subject.
		register(t, b, admin, "mail.express", "1.1.0", "Counts stamps.")
		if got := find(t, b, agent, "count stamps"); !got.has("mail.express") {
			t.Errorf("%+v", got)
		}
		within(t, time.Second, "a new version is what the other node finds", func() bool {
			return find(t, a, agent, "count stamps").has("mail.express") && !find(t, a, agent, letters).has("mail.express")
		})

		// Blocked, and active again.
		f.warm(t, agent, letters)
		for _, state := range []toolkeep.VersionState{toolkeep.Blocked, toolkeep.Active} {
			if _, err := a.Catalog().SetState(t.Context(), own("default"), "mail.send", "1.0.0", catalog.StateChange{State: state}); err != nil {
				t.Fatal(err)
			}
			shown := state == toolkeep.Active
			if got := find(t, a, agent, letters); got.has("mail.send") != shown {
				t.Errorf("%s on its own node: %+v", state, got)
			}
			within(t, time.Second, string(state)+" on the other node", func() bool { return find(t, b, agent, letters).has("mail.send") == shown })
			for range 20 {
				if got := find(t, b, agent, letters); got.has("mail.send") != shown {
					t.Fatalf("%s, and then: %+v", state, got)
				}
			}
		}
	})
}

// own returns a publisher of a tenant.
func own(tenant string) *toolkeep.Principal {
	p := *access.System()
	p.Tenant = tenant
	return &p
}

// TestWithdrawnIsHidden: with warm caches on both nodes, a tool that a caller may no
// longer see is hidden as soon as a node knows, and on the node that revoked a key at
// once.
func TestWithdrawnIsHidden(t *testing.T) {
	t.Parallel()
	withAndWithoutRedis(t, func(t *testing.T, f *finders) {
		a, b := f.nodes[0], f.nodes[1]
		dir := t.TempDir()
		write := func(name, allow string) map[string]string {
			t.Helper()
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file+".new", []byte("roles:\n  clerk:\n    allow:\n      - tools: ["+allow+"]\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
			return map[string]string{"access.roles_file": file}
		}
		_, admin := f.key(t, "default", "boss", "admin")
		key, ann := f.key(t, "default", "ann", "agent")
		_, bob := f.key(t, "default", "bob", "agent")
		register(t, a, admin, "mail.send", "1.0.0", "Sends a letter by post.")
		register(t, a, admin, "mail.express", "1.0.0", "Sends a letter by express.")
		within(t, time.Second, "both tools are there", func() bool {
			got := find(t, b, ann, letters)
			return got.has("mail.send") && got.has("mail.express")
		})

		withdraw := func(what string, change func(*toolkeep.APIKey), hidden ...string) {
			t.Helper()
			f.warm(t, ann, letters)
			f.warm(t, bob, letters)
			now := key
			change(&now)
			f.change(t, toolkeep.PutKey{Key: now})
			none := func(k *toolkeeptest.Toolkeep) bool {
				got := find(t, k, ann, letters)
				return !slices.ContainsFunc(hidden, got.has)
			}
			within(t, time.Second, what+": hidden on both nodes", func() bool { return none(a) && none(b) })
			for range 20 {
				if !none(a) || !none(b) {
					t.Fatalf("%s: shown again", what)
				}
			}
			if got := find(t, b, bob, letters); !got.has("mail.send") || !got.hit {
				t.Errorf("%s: another user lost its answer: %+v", what, got)
			}
			f.change(t, toolkeep.PutKey{Key: key})
			within(t, time.Second, what+": given back", func() bool {
				return find(t, a, ann, letters).has("mail.send") && find(t, b, ann, letters).has("mail.send")
			})
		}
		withdraw("the role", func(k *toolkeep.APIKey) { k.Roles = []string{"nothing"} }, "mail.send", "mail.express")
		withdraw("a part of the scope", func(k *toolkeep.APIKey) { k.Scope = []string{"mail.express"} }, "mail.send")

		// A node whose file of roles is narrower shares the cache but shows nothing of what the others have cached for
		// the same key.
		wide := f.node(t, write("wide.yaml", `"mail.*"`))
		_, clerk := f.key(t, "default", "clara", "clerk")
		within(t, 5*time.Second, "the clerk finds both", func() bool {
			got := find(t, wide, clerk, letters)
			return got.has("mail.send") && got.has("mail.express") && got.hit
		})
		narrow := f.node(t, write("narrow.yaml", `"mail.express"`))
		for range 3 {
			if got := find(t, narrow, clerk, letters); got.has("mail.send") || !got.has("mail.express") {
				t.Errorf("with a narrower policy: %+v", got)
			}
		}
		if got := find(t, wide, clerk, letters); !got.has("mail.send") {
			t.Errorf("the node with the wider one: %+v", got)
		}
		// A changed file hides what is cached within a second.
		write("wide.yaml", `"mail.express"`)
		within(t, time.Second, "a changed file of roles hides", func() bool { return !find(t, wide, clerk, letters).has("mail.send") })

		// A revoked key gets no results at all.
		if err := a.Access().RevokeKey(t.Context(), own("default"), key.ID); err != nil {
			t.Fatal(err)
		}
		if got := find(t, a, ann, letters); got.status != http.StatusUnauthorized || len(got.ids) > 0 {
			t.Errorf("%+v", got)
		}
		within(t, time.Second, "revoked on the other node", func() bool { return find(t, b, ann, letters).status == http.StatusUnauthorized })
	})
}

// TestFlushedOnBothNodes: a flush on one node flushes the other.
func TestFlushedOnBothNodes(t *testing.T) {
	t.Parallel()
	withAndWithoutRedis(t, func(t *testing.T, f *finders) {
		a, b := f.nodes[0], f.nodes[1]
		_, admin := f.key(t, "default", "boss", "admin")
		_, ann := f.key(t, "default", "ann", "agent")
		_, stan := f.key(t, "other", "stan", "agent")
		_, op := f.key(t, "other", "op", "operator")
		a.Publish(toolkeeptest.Manifest("mail.send", "1.0.0", "echo", `"side_effects":"none","tags":["letter"]`))
		within(t, time.Second, "the tool is there", func() bool { return find(t, b, ann, letters).has("mail.send") })
		flush := func(key, body string) {
			t.Helper()
			if status, text := a.Do(http.MethodDelete, "/api/v1/tools/admin/cache/invalidate", body, "Authorization", "Bearer "+key); status != http.StatusOK {
				t.Fatalf("%d %s", status, text)
			}
		}
		for _, body := range []string{`{"scope":"all"}`, `{"scope":"user","userId":"ann"}`, `{"scope":"tool","toolId":"mail.send"}`, `{"scope":"strategy","strategy":"hybrid"}`} {
			f.warm(t, ann, letters)
			f.warm(t, stan, letters)
			flush(admin, body)
			if find(t, a, ann, letters).hit {
				t.Errorf("%s: still there on the node that flushed", body)
			}
			// The first query there must not come from its cache once it knows; with
			// Redis it may be what the first node has cached since.
			if f.redis == nil {
				within(t, time.Second, body+" on the other node", func() bool { return !find(t, b, ann, letters).hit })
			}
			if !find(t, b, stan, letters).hit {
				t.Errorf("%s: another tenant lost its answer", body)
			}
		}
		f.warm(t, ann, letters)
		for _, body := range []string{`{"scope":"all"}`, `{"scope":"user","userId":"ann"}`} {
			flush(op, body)
			if !find(t, a, ann, letters).hit {
				t.Errorf("%s of another tenant's operator was not its business", body)
			}
		}
		for key, body := range map[string]string{ann: `{"scope":"all"}`, op: `{"scope":"all_tenants"}`} {
			if status, _ := a.Do(http.MethodDelete, "/api/v1/tools/admin/cache/invalidate", body, "Authorization", "Bearer "+key); status != http.StatusForbidden {
				t.Errorf("%s by one who may not: %d", body, status)
			}
		}
		// The operator of the system drops what both tenants have, results too.
		a.Publish(toolkeeptest.Manifest("mail.kept", "1.0.0", "echo", `"side_effects":"none","cache":{"policy":"ttl","ttl_s":3600}`))
		hit := func(k *toolkeeptest.Toolkeep, key string) bool {
			got := as(t, k, key).call("mail.kept", `{}`)
			return got.status == http.StatusOK && strings.Contains(got.body, `"cache_hit":true`)
		}
		for _, key := range []string{ann, stan} {
			for _, k := range f.nodes {
				within(t, 10*time.Second, "a result is cached", func() bool { return hit(k, key) })
			}
			f.warm(t, key, letters)
		}
		flush(admin, `{"scope":"all_tenants"}`)
		for _, key := range []string{ann, stan} {
			within(t, 10*time.Second, "its answer is gone on the other node", func() bool { return !find(t, b, key, letters).hit })
			within(t, 10*time.Second, "its result is gone on the other node", func() bool { return !hit(b, key) })
			if f.redis == nil && (find(t, a, key, letters).hit || hit(a, key)) {
				t.Error("still there on the node that flushed")
			}
		}
	})
}

// TestReindexedOnBothNodes: a reindex request reaches every node.
func TestReindexedOnBothNodes(t *testing.T) {
	t.Parallel()
	f := newFinders(t, false)
	a, b := f.nodes[0], f.nodes[1]
	_, admin := f.key(t, "default", "boss", "admin")
	_, ann := f.key(t, "default", "ann", "agent")
	register(t, a, admin, "mail.send", "1.0.0", "Sends a letter by post.")
	within(t, time.Second, "the tool is there", func() bool { return find(t, b, ann, letters).has("mail.send") })
	reindex := func(body, want string) {
		t.Helper()
		status, text := a.Do(http.MethodPost, "/api/v1/tools/admin/reindex", body, "Authorization", "Bearer "+admin)
		if status != http.StatusAccepted || !strings.Contains(text, want) {
			t.Fatalf("%d %s, want %s", status, text, want)
		}
	}
	f.warm(t, ann, letters)
	reindex(`{"scope":"specific","toolIds":["mail.send"],"forceEmbeddingRegeneration":true}`, `"queued":1,"embeddings":1`)
	// Only in the log, because the results do not change.
	for _, k := range f.nodes {
		within(t, 5*time.Second, "the order is carried out", func() bool { return strings.Contains(k.Log(), `"tools were reindexed"`) })
		if got := find(t, k, ann, letters); !got.has("mail.send") {
			t.Errorf("%+v", got)
		}
	}
	reindex(`{"scope":"all"}`, `"embeddings":0`)
	if status, _ := a.Do(http.MethodPost, "/api/v1/tools/admin/reindex", `{"scope":"specific","toolIds":["mail.none"]}`, "Authorization", "Bearer "+admin); status != http.StatusNotFound {
		t.Errorf("an unknown tool: %d", status)
	}
}

// partHealth returns the state of a component and of the node.
func partHealth(t *testing.T, k *toolkeeptest.Toolkeep, component string) (node, part string) {
	t.Helper()
	_, body := k.Do(http.MethodGet, "/health", "")
	var h struct {
		Status     string `json:"status"`
		Components map[string]struct {
			Status string `json:"status"`
		} `json:"components"`
	}
	if err := json.Unmarshal([]byte(body), &h); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return h.Status, h.Components[component].Status
}

// TestRedisAway: results are shared while Redis is up; while it is down search works
// and health reports it; afterwards sharing resumes on its own.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	f := newFinders(t, true)
	a, b := f.nodes[0], f.nodes[1]
	_, admin := f.key(t, "default", "boss", "admin")
	_, ann := f.key(t, "default", "ann", "agent")
	register(t, a, admin, "mail.send", "1.0.0", "Sends a letter by post.")
	within(t, time.Second, "the tool is there", func() bool { return find(t, b, ann, letters).has("mail.send") })
	shared := func(query string) bool {
		find(t, a, ann, query)
		return find(t, b, ann, query).hit
	}
	within(t, 10*time.Second, "what one node was asked the other knows", func() bool { return shared(fmt.Sprint("post a letter ", time.Now().UnixNano())) })
	if _, part := partHealth(t, a, "redis"); part != "UP" {
		t.Errorf("redis is %s", part)
	}
	// Nothing in Redis is readable or guessable.
	client := f.redis.Client(t)
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("%v %v", keys, err)
	}
	for _, k := range keys {
		value, _ := client.Get(t.Context(), k).Result() // the list of names is not a string
		for _, secret := range []string{"letter", "mail.send", "default"} {
			if strings.Contains(k+value, secret) {
				t.Errorf("%q can be read in Redis at %s", secret, k)
			}
		}
	}

	f.redis.Down(t)
	for i := range 30 {
		for _, k := range f.nodes {
			if got := find(t, k, ann, fmt.Sprint("send a letter ", i)); got.status != http.StatusOK || !got.has("mail.send") {
				t.Fatalf("without Redis: %+v", got)
			}
		}
	}
	f.warm(t, ann, letters)
	within(t, 5*time.Second, "health shows it", func() bool {
		node, part := partHealth(t, a, "redis")
		return node == "DEGRADED" && part == "DOWN"
	})
	if status, _ := a.Do(http.MethodGet, "/ready", ""); status != http.StatusOK {
		t.Errorf("the node is not ready: %d", status)
	}
	// A permission and a tool withdrawn meanwhile stay hidden when Redis returns.
	if _, err := a.Catalog().SetState(t.Context(), own("default"), "mail.send", "1.0.0", catalog.StateChange{State: toolkeep.Blocked}); err != nil {
		t.Fatal(err)
	}
	within(t, time.Second, "a blocked tool is hidden on the other node", func() bool { return !find(t, b, ann, letters).has("mail.send") })

	f.redis.Up(t)
	within(t, 20*time.Second, "answers are shared again", func() bool { return shared(fmt.Sprint("send a letter ", time.Now().UnixNano())) })
	within(t, 10*time.Second, "health shows it", func() bool { _, part := partHealth(t, a, "redis"); return part == "UP" })
	if got := find(t, b, ann, letters); got.has("mail.send") {
		t.Errorf("%+v", got)
	}
}
