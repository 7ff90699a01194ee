package toolkeeptest_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// parties are callers of two tenants, two of them agents of the first.
type parties struct {
	k                *toolkeeptest.Toolkeep
	g                *gate
	ann, bob, stray  *client // agents: ann and bob of default, stray of another tenant
	boss, otherBoss  *client // admins of default and of the other tenant
	auditor, otherOp *client
}

const otherTenant = "other"

func twoTenants(t *testing.T, more ...func(*toolkeeptest.Option)) *parties {
	k, g := withGate(t, nil, more...)
	return &parties{
		k: k, g: g,
		ann: as(t, k, k.Key("default", "ann", "agent")), bob: as(t, k, k.Key("default", "bob", "agent")),
		stray: as(t, k, k.Key(otherTenant, "ann", "agent")), boss: admin(t, k), otherBoss: as(t, k, k.Key(otherTenant, "boss", "admin")),
		auditor: as(t, k, k.Key("default", "eve", "auditor")), otherOp: as(t, k, k.Key(otherTenant, "op", "operator")),
	}
}

// own publishes a tool that belongs only to the tenant.
func (p *parties) own(t *testing.T, tenant, manifest string) {
	t.Helper()
	who := &toolkeep.Principal{Subject: "test", Tenant: tenant, Roles: []string{"admin"}, Permissions: []string{"*"}}
	if _, err := p.k.Catalog().Publish(context.Background(), who, [][]byte{[]byte(manifest)}, catalog.PublishOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestToolsOfAnotherTenantDoNotExist(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	p.g.openAll()
	p.own(t, "default", gated("priv.mine", "1.0.0", reads, `"tags":["hiddenmarker"]`))
	p.own(t, "default", gated("priv.both", "1.0.0", reads))
	p.own(t, otherTenant, gated("priv.both", "2.0.0", reads))

	p.ann.call("priv.mine", "{}").success(t)
	for _, c := range []*client{p.stray, p.otherBoss} {
		missing := c.call("priv.nothing", "{}").want(t, 404).refused(t, toolkeep.ToolNotFound)
		hidden := c.call("priv.mine", "{}").want(t, 404).refused(t, toolkeep.ToolNotFound)
		if a, b := strings.ReplaceAll(missing.text(t, "detail"), "priv.nothing", "X"), strings.ReplaceAll(hidden.text(t, "detail"), "priv.mine", "X"); a != b {
			t.Errorf("the words tell that the tool exists: %q and %q", a, b)
		}
		if missing.at(t, "details") != nil && fmt.Sprint(missing.at(t, "details")) != strings.ReplaceAll(fmt.Sprint(hidden.at(t, "details")), "priv.mine", "priv.nothing") {
			t.Errorf("the details tell that the tool exists: %s and %s", missing.body, hidden.body)
		}
		c.call("priv.mine", "{}", `"tool_version":"1.0.0"`).refused(t, toolkeep.ToolNotFound)
		c.do("GET", "/api/v1/tools/priv.mine", "").want(t, 404)
		c.do("GET", "/api/v1/tools/priv.mine/versions", "").want(t, 404)
		c.do("GET", "/api/v1/tools/retrieval/manifest/priv.mine", "").want(t, 404)
		for _, path := range []string{"/api/v1/tools?page_size=200", "/api/v1/tools?tag=hiddenmarker", "/api/v1/tools/retrieval/search?q=hiddenmarker", "/api/v1/tools/retrieval/search?query=priv.mine"} {
			if a := c.do("GET", path, ""); strings.Contains(a.body, "priv.mine") {
				t.Errorf("%s shows another tenant's tool: %d %s", path, a.status, a.body)
			}
		}
		explained := c.call("priv.mine", "{}", `"dry_run":true`)
		if strings.Contains(explained.body, "sha256") || strings.Contains(explained.body, `"1.0.0"`) {
			t.Errorf("explain shows another tenant's tool: %s", explained.body)
		}
	}
	p.otherBoss.do("DELETE", "/api/v1/tools/priv.mine?version=1.0.0", "").want(t, 404)
	p.otherBoss.do("POST", "/api/v1/tools/priv.mine/versions/1.0.0/state", `{"state":"blocked","reason":"x"}`).want(t, 404)
	p.ann.call("priv.mine", "{}").success(t)

	// The same id in two tenants is two tools.
	if v := p.ann.call("priv.both", "{}").success(t).text(t, "execution_metadata", "tool_version"); v != "1.0.0" {
		t.Errorf("ann got version %s", v)
	}
	if v := p.stray.call("priv.both", "{}").success(t).text(t, "execution_metadata", "tool_version"); v != "2.0.0" {
		t.Errorf("the other tenant got version %s", v)
	}
	p.boss.do("POST", "/api/v1/tools/priv.both/versions/1.0.0/state", `{"state":"blocked","reason":"x"}`).want(t, 200)
	p.ann.call("priv.both", "{}").refused(t, toolkeep.ToolBlocked)
	p.stray.call("priv.both", "{}").success(t)
}

// TestSharedToolsAreNotATenantsToChange: a tenant cannot change tools of all tenants.
func TestSharedToolsAreNotATenantsToChange(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	shared := toolkeeptest.Manifest("std.echo", "1.1.0", "echo", reads)
	p.otherBoss.do("POST", "/api/v1/tools/std.echo/versions/1.0.0/state", `{"state":"blocked","reason":"x"}`).want(t, 403).refused(t, toolkeep.PermissionDenied)
	p.otherBoss.do("DELETE", "/api/v1/tools/std.echo", "").want(t, 403).refused(t, toolkeep.PermissionDenied)
	p.otherBoss.do("PUT", "/api/v1/tools/std.echo", `{"manifest":`+shared+`,"shared":true}`).want(t, 403).refused(t, toolkeep.PermissionDenied)
	if a := p.otherBoss.do("PUT", "/api/v1/tools/std.echo", `{"manifest":`+shared+`}`); a.status < 400 {
		t.Errorf("a tenant took the id of a shared tool: %s", a)
	}
	if v := p.stray.call("std.echo", `{"a":1}`).success(t).text(t, "execution_metadata", "tool_version"); v != "1.0.0" {
		t.Errorf("version %s", v)
	}
	p.boss.do("POST", "/api/v1/tools/std.echo/versions/1.0.0/state", `{"state":"blocked","reason":"x"}`).want(t, 200)
	p.ann.call("std.echo", `{"a":1}`).refused(t, toolkeep.ToolBlocked)
}

func TestInvocationsStayWithTheirCaller(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	p.k.Publish(gated("gate.read", "1.0.0", reads), gated("gate.write", "1.0.0", writes))
	waiting := p.ann.call("gate.read", named("held"), async).want(t, 202).id(t)
	p.g.awaits(t, "held")
	done := p.ann.call("std.echo", `{"text":"ann's own words"}`, keyed("k")).success(t).id(t)

	strangers := map[string]*client{"bob": p.bob, "another tenant's ann": p.stray, "another tenant's admin": p.otherBoss, "another tenant's operator": p.otherOp}
	for name, c := range strangers {
		for _, id := range []string{waiting, done} {
			real := c.do("GET", "/api/v1/invocations/"+id, "").want(t, 404).refused(t, toolkeep.ResourceNotFound)
			none := c.do("GET", "/api/v1/invocations/01a20000-0000-7000-8000-000000000000", "").want(t, 404)
			if strings.ReplaceAll(real.text(t, "detail"), id, "") != strings.ReplaceAll(none.text(t, "detail"), "01a20000-0000-7000-8000-000000000000", "") {
				t.Errorf("%s learns that the call exists: %s and %s", name, real.body, none.body)
			}
			c.do("GET", "/api/v1/invocations/"+id+"/events", "").want(t, 404).refused(t, toolkeep.ResourceNotFound)
			c.do("POST", "/api/v1/invocations/"+id+"/cancel", `{}`).want(t, 404).refused(t, toolkeep.ResourceNotFound)
		}
		for _, q := range []string{"", "&agent_id=ann", "&tool_id=std.echo", "&state=running"} {
			a := c.do("GET", "/api/v1/invocations?page_size=200"+q, "")
			if a.status != 200 && a.status != 403 || strings.Contains(a.body, waiting) || strings.Contains(a.body, done) {
				t.Errorf("%s lists ann's calls with %q: %s", name, q, a.body)
			}
		}
	}
	// The auditor sees all calls of the tenant and may cancel none.
	p.auditor.do("GET", "/api/v1/invocations/"+waiting, "").want(t, 200)
	p.auditor.do("POST", "/api/v1/invocations/"+waiting+"/cancel", `{}`).want(t, 403)
	if a := p.auditor.do("GET", "/api/v1/invocations?agent_id=ann", ""); !strings.Contains(a.body, waiting) {
		t.Errorf("the auditor does not see it: %s", a.body)
	}
	// An id used in another tenant is free here, and the other call is unaffected.
	again := p.stray.call("std.echo", `{"text":"other"}`, fmt.Sprintf(`"invocation_id":%q`, done)).success(t)
	if again.id(t) != done {
		t.Errorf("the id %s was not free in another tenant: got %s", done, again.id(t))
	}
	if a := p.ann.do("GET", "/api/v1/invocations/"+done, ""); a.text(t, "result", "text") != "ann's own words" {
		t.Errorf("ann's call changed: %s", a.body)
	}
	// Within the tenant the id is taken, and another is generated.
	if a := p.bob.call("std.echo", `{}`, fmt.Sprintf(`"invocation_id":%q`, done)).success(t); a.id(t) == done {
		t.Error("bob got ann's invocation id")
	}
	p.g.letGo("held")
	if a := p.ann.ended(waiting); a.text(t, "status") != "success" || a.text(t, "result", "subject") != "ann" {
		t.Errorf("the call went wrong: %s", a.body)
	}
}

func TestIdempotencyKeysAreTheSubjectsOwn(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	p.g.openAll()
	p.k.Publish(gated("gate.write", "1.0.0", writes))
	ids := map[string]bool{}
	for i, c := range []*client{p.ann, p.bob, p.stray} {
		a := c.call("gate.write", named(fmt.Sprint("call-", i)), keyed("the-same")).success(t)
		if ids[a.id(t)] || a.at(t, "execution_metadata", "idempotency_replayed") == true {
			t.Errorf("caller %d got another's answer: %s", i, a.body)
		}
		ids[a.id(t)] = true
		again := c.call("gate.write", named(fmt.Sprint("call-", i)), keyed("the-same")).success(t)
		if again.id(t) != a.id(t) || again.at(t, "execution_metadata", "idempotency_replayed") != true {
			t.Errorf("caller %d did not get its own answer again: %s", i, again.body)
		}
		c.call("gate.write", named("something else"), keyed("the-same")).want(t, 409).refused(t, toolkeep.IdempotencyConflict)
	}
	if n := len(p.g.starts()); n != 3 {
		t.Errorf("%d executions, want 3: %v", n, p.g.starts())
	}
}

func TestCachedResultsStayWithTheirPrincipal(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	p.g.openAll()
	p.k.Publish(gated("gate.cached", "1.0.0", reads, cached), gated("gate.public", "1.0.0", reads, cached, `"result":{"public":true}`))
	p.own(t, "default", gated("gate.own", "1.0.0", reads, cached, `"result":{"public":true}`))
	p.own(t, otherTenant, gated("gate.own", "1.0.0", reads, cached, `"result":{"public":true}`))
	cacheIsCurrent(t, p.k)
	hit := func(c *client, tool string) (string, bool) {
		a := c.call(tool, named("x")).success(t)
		return a.text(t, "result", "subject"), a.at(t, "execution_metadata", "cache_hit") == true
	}
	for _, step := range []struct {
		c    *client
		tool string
		who  string
		hit  bool
	}{
		{p.ann, "gate.cached", "ann", false}, {p.ann, "gate.cached", "ann", true},
		{p.bob, "gate.cached", "bob", false}, {p.stray, "gate.cached", "ann", false},
		{p.ann, "gate.public", "ann", false}, {p.bob, "gate.public", "ann", true},
		{p.stray, "gate.public", "ann", false}, {p.otherBoss, "gate.public", "ann", true},
		{p.ann, "gate.own", "ann", false}, {p.otherBoss, "gate.own", "boss", false}, {p.stray, "gate.own", "boss", true},
	} {
		if who, hit := hit(step.c, step.tool); who != step.who || hit != step.hit {
			t.Errorf("%s: result of %s, cached %v; want %s, %v", step.tool, who, hit, step.who, step.hit)
		}
	}
	// An agent acting for one person does not get a result computed for another.
	actor := as(t, p.k, p.k.Key("default", "proxy", "admin"))
	one := actor.do("POST", "/api/v1/tools/invoke", envelope("gate.cached", named("x")), "X-User-ID", "user-1").success(t)
	two := actor.do("POST", "/api/v1/tools/invoke", envelope("gate.cached", named("x")), "X-User-ID", "user-2").success(t)
	if one.at(t, "execution_metadata", "cache_hit") == true || two.at(t, "execution_metadata", "cache_hit") == true {
		t.Errorf("a result crossed from one user to another: %s and %s", one.body, two.body)
	}
}

// TestSharedRunsStayWithTheirPrincipal: equal concurrent calls share a run only if they
// may share a result.
func TestSharedRunsStayWithTheirPrincipal(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	p.k.Publish(gated("gate.cached", "1.0.0", reads, cached))
	got := make(chan string, 3)
	for _, c := range []*client{p.ann, p.bob, p.stray} {
		go func() {
			a, err := c.try(context.Background(), "POST", "/api/v1/tools/invoke", envelope("gate.cached", named("same")))
			if err != nil {
				a.body = err.Error()
			}
			got <- a.body
		}()
	}
	waitUntil(t, "three executions of one question", func() bool { return p.g.count("same") == 3 })
	p.g.letGo("same")
	for range 3 {
		if a := <-got; !strings.Contains(a, `"success"`) {
			t.Error(a)
		}
	}
}

func TestBlobsStayWithTheirPrincipal(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	p.k.Publish(toolkeeptest.Manifest("big.echo", "1.0.0", "echo", reads, `"result":{"max_output_bytes":100}`))
	args := fmt.Sprintf(`{"text":%q}`, strings.Repeat("ann's own words ", 100))
	a := p.ann.call("big.echo", args).success(t)
	at := a.text(t, "execution_metadata", "attachments", "0", "url")
	if at == "" {
		t.Fatalf("no attachment: %s", a.body)
	}
	if b := p.ann.do("GET", at, "").want(t, 200); b.body != args || b.header.Get("Content-Type") != "application/json" {
		t.Errorf("the blob is not the result: %s", b)
	}
	none := "/api/v1/blobs/" + strings.Repeat("0", 64)
	p.ann.do("GET", none, "").want(t, 404).refused(t, toolkeep.ResourceNotFound)
	for name, c := range map[string]*client{"bob": p.bob, "stray": p.stray, "otherBoss": p.otherBoss, "otherOp": p.otherOp} {
		b := c.do("GET", at, "").want(t, 404).refused(t, toolkeep.ResourceNotFound)
		if strings.Contains(b.body, "own words") || b.text(t, "detail") != c.do("GET", none, "").text(t, "detail") {
			t.Errorf("%s: %s", name, b)
		}
	}
	p.auditor.do("GET", at, "").want(t, 200)
}

func TestKeysOfAnotherTenant(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	list := p.otherBoss.do("GET", "/api/v1/keys?page_size=200", "").want(t, 200)
	keys, _ := list.at(t, "keys").([]any)
	if len(keys) != 3 || strings.Contains(list.body, `"bob"`) {
		t.Errorf("the other tenant's list: %s", list.body)
	}
	own := p.boss.do("GET", "/api/v1/keys?page_size=200", "").want(t, 200)
	for _, k := range own.at(t, "keys").([]any) {
		id := k.(map[string]any)["id"].(string)
		p.otherBoss.do("DELETE", "/api/v1/keys/"+id, "").want(t, 404).refused(t, toolkeep.ResourceNotFound)
		if strings.Contains(list.body, id) {
			t.Errorf("the key %s is in both lists", id)
		}
	}
	for _, c := range []*client{p.ann, p.auditor, p.otherOp} {
		c.do("GET", "/api/v1/keys", "").want(t, 403)
		c.do("POST", "/api/v1/keys", `{"subject":"x","roles":["agent"]}`).want(t, 403)
	}
	if strings.Contains(own.body, "hash") || strings.Contains(own.body, "secret") {
		t.Errorf("the list shows more than it should: %s", own.body)
	}
	// A key created over REST works at once, only in its creator's tenant.
	made := p.otherBoss.do("POST", "/api/v1/keys", `{"subject":"new","roles":["agent"],"scope":["std.*"]}`).want(t, 201)
	fresh := as(t, p.k, made.text(t, "secret"))
	id := fresh.call("std.echo", `{"a":1}`, keyed("z")).success(t).id(t)
	p.otherBoss.do("GET", "/api/v1/invocations/"+id, "").want(t, 200)
	p.boss.do("GET", "/api/v1/invocations/"+id, "").want(t, 404)
}

func TestActingAsAnother(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	bob, other := `"agent_id":"bob"`, fmt.Sprintf(`"agent_context":{"tenant_id":%q}`, otherTenant)
	p.ann.call("std.echo", "{}", bob).want(t, 403).refused(t, toolkeep.PermissionDenied)
	p.ann.call("std.echo", "{}", other).want(t, 403).refused(t, toolkeep.PermissionDenied)
	p.boss.call("std.echo", "{}", other).want(t, 403).refused(t, toolkeep.PermissionDenied)
	p.ann.do("POST", "/api/v1/tools/invoke", envelope("std.echo", "{}"), "X-User-ID", "someone").want(t, 403)
	id := p.boss.call("std.echo", `{"a":1}`, bob, `"request_id":"acting"`).success(t).id(t)
	p.bob.do("GET", "/api/v1/invocations/"+id, "").want(t, 200)
	p.ann.do("GET", "/api/v1/invocations/"+id, "").want(t, 404)

	// Who really called is in the record, in the list and in the audit: after a call that ended at once, one that waited,
	// and one that was refused; and nowhere where that is the agent itself.
	waited := p.boss.call("std.echo", `{"a":2}`, bob, async).want(t, 202).id(t)
	p.boss.ended(waited)
	refused := p.boss.call("std.echo", `{"a":3}`, bob, `"tool_version":"99"`)
	if refused.status < 400 {
		t.Fatal(refused)
	}
	own := p.boss.call("std.echo", `{"a":4}`).success(t).id(t)
	for name, x := range map[string]struct{ id, actor string }{
		"at once": {id, "admin"}, "it waited": {waited, "admin"}, "refused": {refused.id(t), "admin"}, "its own": {own, "<nil>"},
	} {
		var list []any
		for _, path := range []string{"/api/v1/invocations/" + x.id, "/api/v1/invocations?page_size=100", "/api/v1/audit/events?page_size=100"} {
			got := p.boss.do("GET", path, "").want(t, 200)
			switch {
			case strings.Contains(path, "audit"):
				list, _ = got.at(t, "events").([]any)
			case strings.Contains(path, "?"):
				list, _ = got.at(t, "invocations").([]any)
			default:
				list = []any{got.object(t)}
			}
			found := false
			for _, one := range list {
				v, _ := one.(map[string]any)
				member := "actor_id"
				if data, ok := v["data"].(map[string]any); ok {
					v, member = data, "actor_did"
				}
				if v["invocation_id"] == x.id {
					found = true
					if fmt.Sprint(v[member]) != x.actor {
						t.Errorf("%s: %s has %s %v, want %s", name, path, member, v[member], x.actor)
					}
				}
			}
			if !found {
				t.Errorf("%s: %s has no such call", name, path)
			}
		}
	}
}

// TestScopedKey: a narrowed key sees and calls only the tools in its scope.
func TestScopedKey(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	c := as(t, p.k, p.k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "narrow", Roles: []string{"agent"}, Scope: []string{"std.hash"}, CreatedBy: "test"}))
	c.call("std.hash", `{"text":"x"}`).success(t)
	c.call("std.echo", `{}`).want(t, 404).refused(t, toolkeep.ToolNotFound)
	if n := c.do("GET", "/api/v1/tools?page_size=200", "").at(t, "total_count"); fmt.Sprint(n) != "1" {
		t.Errorf("%v tools are visible", n)
	}
	expired := as(t, p.k, p.k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "late", Roles: []string{"agent"}, CreatedBy: "test",
		ExpiresAt: time.Now().Add(-time.Minute)}))
	expired.call("std.echo", `{}`).want(t, http.StatusUnauthorized).refused(t, toolkeep.Unauthenticated)
}

// TestMetricsAndFilesAreDiscreet: metrics and files do not reveal callers.
func TestMetricsAndFilesAreDiscreet(t *testing.T) {
	t.Parallel()
	p := twoTenants(t)
	c := as(t, p.k, p.k.Key("tenant-zebra", "agent-zebra", "agent"))
	c.call("std.echo", `{"a":"zebra"}`, `"agent_context":{"session_id":"session-zebra"}`, keyed("key-zebra")).success(t)
	c.call("std.zebra", "{}").want(t, 404)
	c.call("std.hash", `{"zebra":1}`).want(t, 400)
	metrics := *c
	metrics.url = strings.TrimSuffix(p.k.MetricsURL(), "/metrics")
	m := metrics.do("GET", "/metrics", "").want(t, 200)
	if strings.Contains(m.body, "zebra") || !strings.Contains(m.body, `tool_id="std.echo"`) {
		t.Errorf("%s", m.body)
	}
	err := filepath.WalkDir(p.k.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
