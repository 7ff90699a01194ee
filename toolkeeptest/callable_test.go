package toolkeeptest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// leveled are the tools of TestWhatMayNotBeCalledIsNotShown by what they ask for. All have the tag lantern.
var leveled = map[string]string{
	"open.public":   `"permission_levels":["public"]`,
	"open.signed":   `"permission_levels":["authenticated"]`,
	"open.argument": `"tags":["lantern","by-argument"]`, // the policy decides by the arguments
	"ward.level":    `"permission_levels":["role:nurse"]`,
	"ward.required": `"required_roles":["nurse"]`,
	"ward.right":    `"permission_levels":["permission:ward:read"]`,
	"ward.policy":   `"tags":["lantern","by-policy"]`, // the policy decides by the caller
	"ward.risky":    `"risk":"high"`,                  // no rule of a role allows it
}

const leveledRoles = `roles:
  actor: {permissions: [act-as]}
  nurse: {permissions: ["ward:read"], allow: [{tools: ["*"]}]}
  looker: {allow: [{tools: ["ward.*"], actions: [see]}]}
  barred: {allow: [{tools: ["*"], actions: [see, invoke]}], deny: [{tools: ["ward.*"]}]}
`

const leveledPolicy = `package toolkeep
deny contains "nurses only" if {
	"by-policy" in input.tool.tags
	not "nurse" in input.caller.roles
}
deny contains "not that" if {
	"by-argument" in input.tool.tags
	not input.arguments.text == "yes"
}
deny contains "needs a person" if {
	"by-person" in input.tool.tags
	input.caller.on_behalf_of == ""
}
deny contains "not for people" if {
	"by-machine" in input.tool.tags
	input.caller.on_behalf_of != ""
}
`

// leveledCallers have what they may call, and what they may see besides.
var leveledCallers = []struct {
	name             string
	roles, scope     []string
	callable, lookat []string
}{
	{name: "an agent", roles: []string{"agent"}, callable: []string{"open.public", "open.signed", "open.argument"}},
	{name: "a nurse", roles: []string{"nurse"}, callable: []string{"open.public", "open.signed", "open.argument", "ward.level", "ward.required", "ward.right", "ward.policy", "ward.risky"}},
	{name: "a nurse with a scope", roles: []string{"nurse"}, scope: []string{"ward.level"}, callable: []string{"ward.level"}},
	{name: "a scope that the roles do not reach", roles: []string{"agent"}, scope: []string{"ward.*"}},
	{name: "no role", roles: []string{"none"}},
	{name: "a looker", roles: []string{"agent", "looker"}, callable: []string{"open.public", "open.signed", "open.argument"},
		lookat: []string{"ward.level", "ward.required", "ward.right", "ward.policy", "ward.risky"}},
	{name: "who is barred", roles: []string{"nurse", "barred"}, callable: []string{"open.public", "open.signed", "open.argument"}},
	{name: "an auditor", roles: []string{"auditor"}, lookat: allLeveled()},
	{name: "an operator", roles: []string{"operator"}, lookat: allLeveled()},
	{name: "a publisher", roles: []string{"publisher"}, callable: []string{"open.public", "open.signed", "open.argument"},
		lookat: []string{"ward.level", "ward.required", "ward.right", "ward.policy", "ward.risky"}},
	{name: "an administrator", roles: []string{"admin"}, callable: []string{"open.public", "open.signed", "open.argument", "ward.right", "ward.risky"},
		lookat: []string{"ward.level", "ward.required", "ward.policy"}},
}

func allLeveled() []string {
	var all []string
	for id := range leveled {
		all = append(all, id)
	}
	return all
}

// leveledSystem has these tools, roles and the policy.
func leveledSystem(t *testing.T, settings map[string]string) *toolkeeptest.Toolkeep {
	dir := t.TempDir()
	roles, rules := filepath.Join(dir, "roles.yaml"), filepath.Join(dir, "policy")
	for at, text := range map[string]string{roles: leveledRoles, filepath.Join(rules, "p.rego"): leveledPolicy} {
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{"access.roles_file": roles, "access.mode": "rbac+abac", "policy.path": rules, "policy.timeout": "10s"}
	for name, v := range settings {
		all[name] = v
	}
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: all})
	alternatives := jsonText(t, slices.Sorted(slices.Values(allLeveled()[1:])))
	var manifests []string
	for id, more := range leveled {
		if !strings.Contains(more, "tags") {
			more += `,"tags":["lantern"]`
		}
		if !strings.Contains(more, "risk") {
			more += `,"risk":"low"`
		}
		manifests = append(manifests, toolkeeptest.Manifest(id, "1.0.0", "echo", more, reads))
	}
	manifests = append(manifests, toolkeeptest.Manifest("open.lamp", "1.0.0", "echo", reads, `"relationships":{"alternatives":`+alternatives+`}`))
	k.Publish(manifests...)
	return k
}

// leveledIn are those of the leveled tools that a text has, by id or by name of MCP.
func leveledIn(text string) []string {
	var all []string
	for id := range leveled {
		if strings.Contains(text, `"`+id+`"`) || strings.Contains(text, `"`+strings.ReplaceAll(id, ".", "__")+`"`) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}

// TestWhatMayNotBeCalledIsNotShown: what a caller may not call by level, role, scope or policy is in no search,
// context, related list, list of MCP or export of its own, and a call and an explanation of it are answered as of a
// tool that does not exist. Only who has an allow rule with see, as auditors, operators and publishers, has it in the
// registry's lists, with callable false, and is told why a call is refused.
func TestWhatMayNotBeCalledIsNotShown(t *testing.T) {
	t.Parallel()
	k := leveledSystem(t, map[string]string{"access.agent_failures": "-1"})
	conn := dialAgent(t, k, "reader/1")
	registry := l03v1.NewToolRegistryClient(conn)
	for _, caller := range leveledCallers {
		t.Run(caller.name, func(t *testing.T) {
			c := as(t, k, k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: strings.ReplaceAll(caller.name, " ", "-"), Roles: caller.roles, Scope: caller.scope, CreatedBy: "test"}))
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+c.key)
			callable := slices.Sorted(slices.Values(caller.callable))
			visible := slices.Sorted(slices.Values(slices.Concat(caller.callable, caller.lookat)))
			for face, text := range shownBy(t, ctx, c, registry) {
				if got := leveledIn(text); !slices.Equal(got, callable) {
					t.Errorf("%s shows %q, the caller may call %q: %s", face, got, callable, text)
				}
			}
			for face, got := range listedBy(t, ctx, c, registry) {
				if ids := slices.Sorted(maps.Keys(got)); !slices.Equal(ids, visible) {
					t.Errorf("%s has %q, want %q", face, ids, visible)
				}
				for id, may := range got {
					if may != slices.Contains(callable, id) {
						t.Errorf("%s says of %s callable %v", face, id, may)
					}
				}
			}
			for id := range leveled {
				want := "404 E3001"
				switch {
				case slices.Contains(callable, id):
					want = "200 "
				case slices.Contains(visible, id):
					want = "403 E320"
				}
				for face, got := range calledBy(t, c, id) {
					if !strings.HasPrefix(got, want) {
						t.Errorf("%s of %s: %s, want %s", face, id, got, want)
					}
				}
			}
		})
	}
}

// shownBy are the answers that show tools to be called.
func shownBy(t *testing.T, ctx context.Context, c *client, registry l03v1.ToolRegistryClient) map[string]string {
	t.Helper()
	mcp := func(method, params string) string {
		return strings.ReplaceAll(c.do("POST", "/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, "Accept", mcpAccept).body, `\"`, `"`)
	}
	all := map[string]string{
		"a search":          c.do("GET", "/api/v1/tools/retrieval/search?q=lantern&limit=50", "").body,
		"a context":         c.do("POST", "/api/v1/tools/retrieval/context", `{"q":"lantern","phase":"initial_planning"}`).body,
		"an export":         c.do("GET", "/api/v1/tools/export?as=mcp", "").body,
		"tools/list of MCP": mcp("tools/list", `{}`),
		"find_tools of MCP": mcp("tools/call", `{"name":"find_tools","arguments":{"query":"lantern","limit":20}}`),
		"a context of MCP":  mcp("tools/call", `{"name":"find_tools","arguments":{"query":"lantern","phase":"initial_planning"}}`),
	}
	described := ""
	for id := range leveled {
		if text := mcp("tools/call", `{"name":"describe_tool","arguments":{"tool_id":"`+id+`"}}`); strings.Contains(text, `"input_schema"`) {
			described += `"` + id + `"`
		}
	}
	all["describe_tool of MCP"] = described
	found, _ := registry.QueryByCapability(ctx, &l03v1.QueryByCapabilityRequest{Query: "lantern", MaxTools: 50})
	of := ""
	for _, m := range found.GetMatches() {
		of += `"` + m.GetTool().GetToolId() + `"`
	}
	all["a search over gRPC"] = of
	// The tools that one names are shown to who may see that one.
	if a := c.do("GET", "/api/v1/tools/retrieval/related/open.lamp?relationshipType=alternatives&maxResults=10", ""); a.status == 200 {
		all["related tools"] = a.body
	}
	return all
}

// listedBy are the registry's lists: the tools with whether the caller may call them.
func listedBy(t *testing.T, ctx context.Context, c *client, registry l03v1.ToolRegistryClient) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{"gRPC ListTools": {}, "gRPC GetTool": {}, "REST getTool": {}}
	for name, query := range map[string]string{"REST list": "", "REST list by words": "&capability_query=lantern"} {
		var list struct {
			Tools []struct {
				ToolID   string `json:"tool_id"`
				Callable *bool
			}
		}
		if err := json.Unmarshal([]byte(c.do("GET", "/api/v1/tools?page_size=200"+query, "").want(t, 200).body), &list); err != nil {
			t.Fatal(err)
		}
		all[name] = map[string]bool{}
		for _, tool := range list.Tools {
			if leveled[tool.ToolID] != "" {
				all[name][tool.ToolID] = *tool.Callable
			}
		}
	}
	got, err := registry.ListTools(ctx, &l03v1.ListToolsRequest{PageSize: 200})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range got.GetTools() {
		if leveled[tool.GetToolId()] != "" {
			all["gRPC ListTools"][tool.GetToolId()] = tool.GetCallable()
		}
	}
	for id := range leveled {
		if tool, err := registry.GetTool(ctx, &l03v1.GetToolRequest{ToolId: id}); err == nil {
			all["gRPC GetTool"][id] = tool.GetCallable()
		}
		if a := c.do("GET", "/api/v1/tools/"+id, ""); a.status == 200 {
			all["REST getTool"][id] = a.at(t, "callable") == true
		}
	}
	return all
}

// calledBy calls a tool and explains a call of it.
func calledBy(t *testing.T, c *client, id string) map[string]string {
	t.Helper()
	said := func(a answer) string {
		code, _ := a.at(t, "code").(string)
		return fmt.Sprintf("%d %s", a.status, code)
	}
	explained := c.do("POST", "/api/v1/tools/invoke", envelope(id, `{"text":"yes"}`, `"dry_run":true`))
	x := "200 "
	for _, step := range explained.at(t, "steps").([]any) {
		s := step.(map[string]any)
		if s["verdict"] == "refuse" {
			x = map[bool]string{true: "404 ", false: "403 "}[s["step"] == "resolve"] + s["code"].(string)
			break
		}
	}
	if strings.Contains(id, "risky") { // it waits for a person, whom the test does not ask
		return map[string]string{"an explanation": x}
	}
	over := c.do("POST", "/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+strings.ReplaceAll(id, ".", "__")+`","arguments":{"text":"yes"}}}`, "Accept", mcpAccept).body
	m := "200 "
	switch {
	case strings.Contains(over, `"code":-32602`) && strings.Contains(over, "E3001"):
		m = "404 E3001"
	case strings.Contains(over, "E320"):
		m = "403 E320"
	case !strings.Contains(over, `"isError":false`) && strings.Contains(over, "rror"):
		m = over
	}
	return map[string]string{"a call": said(c.call(id, `{"text":"yes"}`)), "a call over MCP": m, "an explanation": x}
}

// unlike are ids of requests and calls, and numbers.
var unlike = regexp.MustCompile(`req-[0-9a-z-]+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]+(\.[0-9]+)?`)

// TestAHiddenToolLooksLikeNone: the answers about a tool that exists for others and of one that does not exist differ
// in the id alone, over each face, in the caller's own record, and after the attempts that block a caller. The record of
// who may read it has the reason, and the attempt is counted.
func TestAHiddenToolLooksLikeNone(t *testing.T) {
	t.Parallel()
	k := leveledSystem(t, map[string]string{"access.agent_failures": "3"})
	c := as(t, k, k.Key("default", "ann", "agent"))
	boss := admin(t, k)
	ask := func(c *client, id string) (all []string, record string) {
		a := c.call(id, `{}`)
		record = a.text(t, "invocation_id")
		own := c.do("GET", "/api/v1/invocations/"+record, "").want(t, 200)
		list := c.do("GET", "/api/v1/invocations?page_size=1", "").want(t, 200)
		x := c.call(id, `{}`, `"dry_run":true`)
		name := strings.ReplaceAll(id, ".", "__")
		mcp := func(params string) string {
			return c.do("POST", "/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`, "Accept", mcpAccept).body
		}
		for _, text := range []string{fmt.Sprint(a.status, a.body), own.body, list.body, x.body, mcp(`{"name":"` + name + `","arguments":{}}`),
			mcp(`{"name":"call_tool","arguments":{"tool_id":"` + id + `"}}`), mcp(`{"name":"describe_tool","arguments":{"tool_id":"` + id + `"}}`),
			c.do("GET", "/api/v1/tools/"+id, "").body, c.do("GET", "/api/v1/tools/"+id+"/versions", "").body, c.call(id+"@1.0.0", `{}`).body,
			c.call(name, `{}`).body, c.call(name, `{}`, `"dry_run":true`).body, c.do("GET", "/api/v1/tools/"+name, "").body, c.do("GET", "/api/v1/invocations?page_size=1&tool_id="+name, "").body,
			c.do("POST", "/api/v1/tools/invoke/model", `{"type":"tool_use","id":"t","name":"`+name+`","input":{}}`).body} {
			all = append(all, strings.ReplaceAll(strings.ReplaceAll(text, id, "ID"), name, "NAME"))
		}
		return all, record
	}
	same := func(a, b string) bool { // but for ids and times
		return unlike.ReplaceAllString(a, "#") == unlike.ReplaceAllString(b, "#")
	}
	var record string
	for round := range 3 { // the block comes within the first
		var hidden, none []string
		hidden, record = ask(c, "ward.policy")
		none, _ = ask(c, "wxyz.polixy")
		for i := range hidden {
			if !same(hidden[i], none[i]) {
				t.Errorf("round %d, answer %d of a hidden tool: %s\nof none: %s", round, i, hidden[i], none[i])
			}
		}
	}
	whole := boss.do("GET", "/api/v1/invocations/"+record, "").want(t, 200)
	if !strings.Contains(whole.body, string(toolkeep.PolicyDenied)) || !strings.Contains(whole.body, "nurses only") {
		t.Errorf("the record of a hidden tool's call has not the reason: %s", whole)
	}
	events := boss.do("GET", "/api/v1/audit/events?type=ai.agent.tool.authorization_denied&agent_id=ann&page_size=100", "").want(t, 200).body
	if n := strings.Count(events, "nurses only"); n == 0 || !strings.Contains(events, "ward.policy") {
		t.Errorf("the audit has %d denials with their reason: %s", n, events)
	}
	// What it may call it still calls, and what it may see and not call is E3810 without a reason now.
	c.call("open.public", `{}`).success(t)
	blocked := c.call("open.argument", `{"text":"no"}`).want(t, 429).refused(t, toolkeep.AuthFailuresLimited)
	if strings.Contains(blocked.body, "not that") {
		t.Errorf("a block tells the reason: %s", blocked)
	}
	at := "/api/v1/invocations/" + blocked.text(t, "invocation_id")
	if own := c.do("GET", at, "").want(t, 200).body; strings.Contains(own, "not that") || !strings.Contains(own, string(toolkeep.AuthFailuresLimited)) {
		t.Errorf("the caller reads in its own record: %s", own)
	}
	if whole := boss.do("GET", at, "").want(t, 200).body; !strings.Contains(whole, "not that") || !strings.Contains(whole, string(toolkeep.AuthFailuresLimited)) {
		t.Errorf("the record of a call during a block has not the reason: %s", whole)
	}
	c.call("open.argument", `{"text":"yes"}`).success(t)
}

// TestWhoActsSaysWhichToolsExist: a tool that a rule hides from a key alone, or from the person that it acts for, exists over
// MCP as it does over REST: for who acts. What does not exist looks like none.
func TestWhoActsSaysWhichToolsExist(t *testing.T) {
	t.Parallel()
	k := leveledSystem(t, map[string]string{"access.agent_failures": "-1"})
	k.Publish(toolkeeptest.Manifest("desk.person", "1.0.0", "echo", reads, `"risk":"low","tags":["by-person"]`),
		toolkeeptest.Manifest("desk.machine", "1.0.0", "echo", reads, `"risk":"low","tags":["by-machine"]`))
	c, boss := as(t, k, k.Key("default", "desk", "agent", "actor")), admin(t, k)
	mcp := func(person, params string) string {
		headers := []string{"Accept", mcpAccept}
		if person != "" {
			headers = append(headers, "X-User-ID", person)
		}
		return c.do("POST", "/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`, headers...).body
	}
	for _, person := range []string{"", "zoe"} {
		there, hidden := "machine", "person"
		if person != "" {
			there, hidden = hidden, there
		}
		for _, params := range []string{`{"name":"desk__NAME","arguments":{"text":"yes"}}`, `{"name":"call_tool","arguments":{"tool_id":"desk__NAME","arguments":{"text":"yes"}}}`} {
			got := mcp(person, strings.Replace(params, "NAME", there, 1))
			if !strings.Contains(got, `"isError":false`) && strings.Contains(got, "rror") {
				t.Errorf("desk.%s for %q: %s", there, person, got)
			}
			one, none := mcp(person, strings.Replace(params, "NAME", hidden, 1)), mcp(person, strings.Replace(params, "NAME", "wxyz", 1))
			one, none = unlike.ReplaceAllString(one, "#"), unlike.ReplaceAllString(none, "#")
			if strings.ReplaceAll(one, hidden, "wxyz") != none || !strings.Contains(one, "there is no tool") {
				t.Errorf("desk.%s for %q: %s\nof none: %s", hidden, person, one, none)
			}
		}
	}
	events := boss.do("GET", "/api/v1/audit/events?type=ai.agent.tool.authorization_denied&page_size=100", "").want(t, 200).body
	for _, why := range []string{"needs a person", "not for people"} {
		if n := strings.Count(events, `"message":"`+why+`"`); n != 2 {
			t.Errorf("%d denials say %q, want 2, by the name and through call_tool: %s", n, why, events)
		}
	}
}
