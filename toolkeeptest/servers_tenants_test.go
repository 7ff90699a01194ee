package toolkeeptest_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestStateStaysWithinTheTenant: a stateful server of all tenants has a process per
// tenant, principal or call, and no caller finds another's state beyond that.
func TestStateStaysWithinTheTenant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		session             string
		ann, bob, annAgain  string // what each finds after its call
		stray, strayAndOwns string
	}{
		{"shared", "a", "a,b", "a,b", "s", "s"},
		{"principal", "a", "b", "a", "s", "s"},
		{"call", "a", "b", "", "s", ""},
	} {
		t.Run(c.session, func(t *testing.T) {
			k := withServers(t, nil)
			boss := admin(t, k)
			s := offerByStdio(t, definition("remember", "Keeps a text."), definition("pid", "Tells the process."))
			boss.do("PUT", "/api/v1/servers/notes?shared=true", s.spec(`"session":"`+c.session+`"`)).want(t, 200)
			ann, bob, stray := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent")), as(t, k, k.Key(otherTenant, "ann", "agent"))
			say := func(who *client, text, want string) {
				t.Helper()
				if got := who.call("notes.remember", `{"text":"`+text+`"}`).output(t); got != want {
					t.Errorf("found %q, want %q", got, want)
				}
			}
			say(ann, "a", c.ann)
			say(stray, "s", c.stray)
			say(bob, "b", c.bob)
			say(ann, "", c.annAgain)
			say(stray, "", c.strayAndOwns)
			if ann.call("notes.pid", `{}`).output(t) == stray.call("notes.pid", `{}`).output(t) {
				t.Error("two tenants share a process")
			}

			// Over MCP it is the same state with the same boundary.
			for _, view := range []string{"/all", "/servers/notes"} {
				name := map[string]string{"/all": "notes__remember", "/servers/notes": "remember"}[view]
				for _, x := range []struct {
					who  *client
					want string
				}{{ann, c.annAgain}, {stray, c.strayAndOwns}} {
					r, err := agent(t, k, x.who.key, view).CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: map[string]any{}})
					if err != nil || r.IsError || said(r) != x.want {
						t.Errorf("%s: %v %v, want %q", view, r, err, x.want)
					}
				}
			}
		})
	}
}

// TestWhoMayWhatWithServers tries the routes with each role and tenant.
func TestWhoMayWhatWithServers(t *testing.T) {
	t.Parallel()
	k := withServers(t, map[string]string{"mcp.stdio_tenants": otherTenant})
	boss, otherBoss := admin(t, k), as(t, k, k.Key(otherTenant, "boss", "admin"))
	op, ann := as(t, k, k.Key("default", "op", "operator")), as(t, k, k.Key("default", "ann", "agent"))
	publisher := as(t, k, k.Key("default", "pub", "publisher"))
	s := offerByStdio(t, definition("read", "Reads a page."))

	for _, c := range []*client{op, ann, publisher} {
		c.do("PUT", "/api/v1/servers/pages", s.spec()).want(t, 403).refused(t, toolkeep.PermissionDenied)
	}
	boss.put(t, "pages", s)
	boss.do("PUT", "/api/v1/servers/common?shared=true", s.spec()).want(t, 200)
	otherBoss.put(t, "own", s)

	type try struct{ method, path, body string }
	looks := []try{{"GET", "", ""}, {"GET", "/logs", ""}, {"GET", "/diff", ""}, {"POST", "/refresh", ""}, {"POST", "/restart", ""}}
	changes := []try{{"POST", "/accept", "{}"}, {"DELETE", "", ""}}
	for _, x := range looks {
		ann.do(x.method, "/api/v1/servers/pages"+x.path, x.body).want(t, 403)
		if a := op.do(x.method, "/api/v1/servers/pages"+x.path, x.body); a.status >= 300 {
			t.Errorf("operator %s %s: %s", x.method, x.path, a)
		}
		// Another tenant's server does not exist for the caller; one of all tenants
		// does.
		otherBoss.do(x.method, "/api/v1/servers/pages"+x.path, x.body).want(t, 404).refused(t, toolkeep.ResourceNotFound)
		if a := otherBoss.do(x.method, "/api/v1/servers/common"+x.path, x.body); a.status >= 300 {
			t.Errorf("the other tenant's administrator %s %s: %s", x.method, x.path, a)
		}
	}
	for _, x := range changes {
		for _, c := range []*client{ann, op, publisher} {
			c.do(x.method, "/api/v1/servers/pages"+x.path, x.body).want(t, 403).refused(t, toolkeep.PermissionDenied)
		}
		otherBoss.do(x.method, "/api/v1/servers/pages"+x.path, x.body).want(t, 404)
		otherBoss.do(x.method, "/api/v1/servers/common"+x.path, x.body).want(t, 403).refused(t, toolkeep.PermissionDenied)
	}
	otherBoss.do("PUT", "/api/v1/servers/common?shared=true", s.spec()).want(t, 403).refused(t, toolkeep.PermissionDenied)
	// A name belongs to one tenant or to all.
	otherBoss.do("PUT", "/api/v1/servers/common", s.spec()).refused(t, toolkeep.StateConflict)
	boss.do("PUT", "/api/v1/servers/own?shared=true", s.spec()).refused(t, toolkeep.StateConflict)

	for who, want := range map[*client]string{boss: "common,pages", op: "common,pages", otherBoss: "common,own"} {
		list := who.do("GET", "/api/v1/servers", "").want(t, 200)
		var names []string
		for _, v := range list.at(t, "servers").([]any) {
			names = append(names, v.(map[string]any)["name"].(string))
		}
		if got := strings.Join(names, ","); got != want {
			t.Errorf("lists %s, want %s", got, want)
		}
	}
	// Only its administrators see how a server of all tenants is started.
	if one := otherBoss.do("GET", "/api/v1/servers/common", ""); strings.Contains(one.body, "TEST_MCP_OFFER") || strings.Contains(one.body, "command") {
		t.Errorf("another tenant sees the command: %s", one.body)
	}
	one := boss.do("GET", "/api/v1/servers/common", "")
	if !strings.Contains(one.body, `"TEST_MCP_OFFER":"(hidden)"`) || strings.Contains(one.body, "offer.json") {
		t.Errorf("the definition shows other than names: %s", one.body)
	}
	ann.call("common.read", `{}`).success(t)
	boss.do("DELETE", "/api/v1/servers/common", "").want(t, 204)
	ann.call("common.read", `{}`).refused(t, toolkeep.ToolBlocked)
	boss.do("DELETE", "/api/v1/servers/common", "").want(t, 404)
}

// TestIdOfATenantsTool: a tool of a shared server whose id a tenant has already used is
// skipped, and the others are available.
func TestIdOfATenantsTool(t *testing.T) {
	t.Parallel()
	k := withServers(t, nil)
	boss, otherBoss := admin(t, k), as(t, k, k.Key(otherTenant, "boss", "admin"))
	otherBoss.do("POST", "/api/v1/tools/register", `{"manifest":`+toolkeeptest.Manifest("common.read", "1.0.0", "echo")+`}`).want(t, 201)
	s := offerByStdio(t, definition("read", "Reads a page."), definition("list", "Lists the pages."))
	p := boss.do("PUT", "/api/v1/servers/common?shared=true", s.spec()).plan(t)
	if p.Published != 1 || len(p.Refused) != 1 || p.Refused[0].ID != "common.read" || p.states() != "common.list@1.0.0 new published" {
		t.Errorf("%s %+v", p.states(), p.Refused)
	}
	otherBoss.call("common.list", `{}`).success(t)
	if got := otherBoss.call("common.read", `{"a":1}`).success(t); s.ran() != 1 {
		t.Errorf("the tenant's own tool went to the server: %s", got.body)
	}
}

// TestScopeHidesServers: in every view, a key sees only servers, resources and prompts
// of which it may see a tool.
func TestScopeHidesServers(t *testing.T) {
	t.Parallel()
	k := withServers(t, nil)
	boss := admin(t, k)
	boss.put(t, "pages", library(t, "pages"))
	boss.put(t, "books", library(t, "books"))
	otherBoss := as(t, k, k.Key(otherTenant, "boss", "admin"))
	otherBoss.put(t, "films", library(t, "films"))

	for name, x := range map[string]struct {
		key  string
		want []string
	}{
		"whole tenant": {k.Key("default", "ann", "agent"), []string{"books", "pages"}},
		"scope":        {k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "eve", Roles: []string{"agent"}, Scope: []string{"pages.*"}}), []string{"pages"}},
		"nothing":      {k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "nil", Roles: []string{"agent"}, Scope: []string{"std.*"}}), nil},
		"other tenant": {k.Key(otherTenant, "ann", "agent"), []string{"films"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := agent(t, k, x.key, "/all")
			tools, resources, prompts := shows(t, all)
			for _, server := range []string{"books", "pages", "films"} {
				want := slices.Contains(x.want, server)
				for kind, list := range map[string][]string{"tool": tools, "resource": resources, "prompt": prompts} {
					if got := slices.ContainsFunc(list, func(s string) bool { return strings.Contains(s, server) }); got != want {
						t.Errorf("the %s of %s: shown %t, want %t: %v", kind, server, got, want, list)
					}
				}
				if want {
					relay := agent(t, k, x.key, "/servers/"+server)
					if tools, resources, prompts := shows(t, relay); len(tools) != 1 || len(resources) != 1 || len(prompts) != 1 || tools[0] != "find" {
						t.Errorf("relay of %s: %v %v %v", server, tools, resources, prompts)
					}
					r, err := relay.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "lib://" + server})
					if err != nil || r.Contents[0].Text != "shelf of "+server {
						t.Errorf("%v %v", r, err)
					}
					continue
				}
				// A missing server and a hidden one look the same.
				there, status := connects(t, k.URL()+"/mcp/servers/"+server, x.key)
				none, missing := connects(t, k.URL()+"/mcp/servers/nothing", x.key)
				if status != missing || strings.ReplaceAll(there, server, "") != strings.ReplaceAll(none, "nothing", "") {
					t.Errorf("%s tells that it exists: %d %s and %d %s", server, status, there, missing, none)
				}
				if _, err := all.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "toolkeep+" + server + ":lib://" + server}); err == nil {
					t.Errorf("a resource of %s was read", server)
				}
				if _, err := all.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: server + "__ask"}); err == nil {
					t.Errorf("a prompt of %s was got", server)
				}
			}
		})
	}
}

func shows(t *testing.T, s *sdk.ClientSession) (tools, resources, prompts []string) {
	t.Helper()
	for x, err := range s.Tools(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(x.Name, "std__") {
			tools = append(tools, x.Name)
		}
	}
	for x, err := range s.Resources(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, x.URI)
	}
	for x, err := range s.Prompts(t.Context(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		prompts = append(prompts, x.Name)
	}
	return tools, resources, prompts
}

// connects sends an initialize and returns the response.
func connects(t *testing.T, url, key string) (body string, status int) {
	t.Helper()
	c := &client{t: t, url: url, key: key, http: http.DefaultClient}
	a, err := c.try(context.Background(), "POST", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`,
		"Accept", "application/json, text/event-stream", "X-Request-ID", "same")
	if err != nil {
		t.Fatal(err)
	}
	return a.body, a.status
}

// library returns a server with a tool, a resource and a prompt.
func library(t *testing.T, name string) offerer {
	t.Helper()
	s := &byHTTP{server: sdk.NewServer(&sdk.Implementation{Name: name, Version: "1"}, nil)}
	s.set(t, definition("find", "Finds in "+name+"."))
	s.server.AddResource(&sdk.Resource{URI: "lib://" + name, Name: name}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "lib://" + name, Text: "shelf of " + name}}}, nil
	})
	s.server.AddPrompt(&sdk.Prompt{Name: "ask"}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: name}}}}, nil
	})
	s.serve(t)
	return s
}

// TestOtherTenantsStartNoPrograms: a program can read what the server can, so other
// tenants start none unless the operator allows it.
func TestOtherTenantsStartNoPrograms(t *testing.T) {
	t.Parallel()
	k := withServers(t, nil)
	s := offerByStdio(t, definition("read", "Reads a page."))
	boss := as(t, k, k.Key(otherTenant, "boss", "admin"))
	for _, q := range []string{"", "?dry_run=true"} {
		a := boss.do("PUT", "/api/v1/servers/pages"+q, s.spec()).want(t, 403)
		a.refused(t, toolkeep.PermissionDenied)
		if !strings.Contains(a.body, "mcp.stdio_tenants") {
			t.Errorf("%s", a)
		}
	}
	admin(t, k).do("PUT", "/api/v1/servers/pages", s.spec()).want(t, 200)
}
