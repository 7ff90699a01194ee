package toolkeeptest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// auditEntry is an entry of the journal as REST shows it.
type auditEntry struct {
	ID   string         `json:"id"`
	Type string         `json:"type"`
	Data map[string]any `json:"data"`
}

// audited returns the entries that a query finds, newest first.
func audited(t testing.TB, k *toolkeeptest.Toolkeep, query string) []auditEntry {
	t.Helper()
	var page struct {
		Events []auditEntry `json:"events"`
	}
	a := admin(t, k).do("GET", "/api/v1/audit/events?page_size=200&"+query, "").want(t, 200)
	if err := json.Unmarshal([]byte(a.body), &page); err != nil {
		t.Fatal(err)
	}
	return page.Events
}

const mcpAccept = "application/json, text/event-stream"

func dialAgent(t testing.TB, k *toolkeeptest.Toolkeep, agent string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(k.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUserAgent(agent))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Each face's calls have the address and the program of their client in the audit, and what looks like a
// secret in its name is not kept.
func TestCallsHaveTheirClient(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"http.trusted_proxies": "127.0.0.1"}})
	const token = "ghp_0123456789abcdefghijklmnopqrstuvwxyzAB"
	key := k.Key("default", "robot", "agent")
	c := as(t, k, key)
	c.do("POST", "/api/v1/tools/invoke", envelope("std.uuid", `{}`), "User-Agent", "rest-robot/1 "+token, "X-Forwarded-For", "192.0.2.7").want(t, 200)
	c.do("POST", "/api/v1/tools/invoke", envelope("no.such", `{}`), "User-Agent", "refused-robot/1", "X-Forwarded-For", "2001:db8::7").want(t, 404)
	c.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"std__uuid","arguments":{}}}`,
		"User-Agent", "mcp-robot/1\t"+strings.Repeat("x", 1000), "Accept", mcpAccept).want(t, 200)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
	if _, err := l03v1.NewToolExecutionClient(dialAgent(t, k, "grpc-robot/1")).InvokeTool(ctx, &l03v1.ToolInvocationRequest{ToolId: "std.uuid"}); err != nil {
		t.Fatal(err)
	}
	queued := c.call("std.uuid", `{}`, `"execution_options":{"async_mode":true}`).want(t, 202).id(t)
	c.ended(queued)

	faces := map[any]bool{}
	for _, e := range audited(t, k, "agent_id=robot") {
		if e.Data["invocation_id"] == nil {
			continue
		}
		addr, agent := e.Data["ip_address"], e.Data["user_agent"].(string)
		want := "127.0.0.1"
		switch {
		case strings.HasPrefix(agent, "rest-robot/1"):
			want = "192.0.2.7"
		case strings.HasPrefix(agent, "refused-robot/1"):
			want = "2001:db8::7"
		case strings.HasPrefix(agent, "mcp-robot/1"), strings.HasPrefix(agent, "grpc-robot/1"), e.ID == queued && agent != "":
		default:
			t.Errorf("%v has the user agent %q", e.Data, agent)
		}
		if addr != want || len(agent) > 256 || strings.ContainsAny(agent, "\t\n") || strings.Contains(agent, token) {
			t.Errorf("%q came from %v with %d bytes, want %s", agent, addr, len(agent), want)
		}
		faces[e.Data["face"]] = true
	}
	if len(faces) != 3 {
		t.Errorf("the faces are %v", faces)
	}
}

// A call of a name that no tool has is recorded over each face, and so is one whose arguments are recorded.
func TestEveryAttemptIsRecorded(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"audit.inputs": "redacted"}})
	key := k.Key("default", "robot", "agent")
	c := as(t, k, key)
	c.call("no.such", `{"n":1}`).want(t, 404)
	for _, at := range []string{"/mcp", "/mcp/all"} {
		c.do("POST", at, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no__such","arguments":{"n":1}}}`, "Accept", mcpAccept).want(t, 200)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
	if _, err := l03v1.NewToolExecutionClient(dialAgent(t, k, "robot")).InvokeTool(ctx, &l03v1.ToolInvocationRequest{ToolId: "no.such"}); err == nil {
		t.Error("an unknown tool was called")
	}
	c.call("std.hash", `{"text":"write to ann@example.com"}`).success(t)
	var got []string
	for _, e := range audited(t, k, "agent_id=robot") {
		got = append(got, fmt.Sprint(e.Data["face"], " ", e.Data["tool_id"], " ", e.Data["error_code"], " ", jsonText(t, e.Data["parameters"])))
	}
	slices.Sort(got)
	if want := []string{"grpc no.such E3001 null", "mcp no__such E3001 null", "mcp no__such E3001 null", "rest no.such E3001 null",
		`rest std.hash <nil> {"algorithm":"sha256","input_encoding":"utf8","output_encoding":"hex","text":"write to [email]"}`}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// A session's calls over any face have what it called before and the beginning of their results, which
// the outcome of a call that failed does not have.
func TestCallsOfASession(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	key := k.Key("default", "robot", "agent")
	c := as(t, k, key)
	c.do("POST", "/api/v1/tools/invoke", envelope("std.hash", `{"text":"a"}`), "X-Session-ID", "s").want(t, 200)
	c.do("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"std__uuid","arguments":{}}}`, "X-Session-ID", "s", "Accept", mcpAccept).want(t, 200)
	c.do("POST", "/api/v1/tools/invoke", envelope("std.hash", `{}`), "X-Session-ID", "s").want(t, 400)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key, "x-session-id", "s")
	if _, err := l03v1.NewToolExecutionClient(dialAgent(t, k, "robot")).InvokeTool(ctx, &l03v1.ToolInvocationRequest{ToolId: "std.echo"}); err != nil {
		t.Fatal(err)
	}
	var prior, summaries []string
	for _, e := range audited(t, k, "agent_id=robot&type=succeeded") {
		prior = append(prior, jsonText(t, e.Data["prior_tools_in_session"]))
		text, _ := e.Data["result_summary"].(string)
		summaries = append(summaries, text)
	}
	if got := strings.Join(prior, " "); got != `["std.hash","std.uuid"] ["std.hash"] null` {
		t.Errorf("the tools before are %s", got)
	}
	if len(summaries) != 3 || summaries[0] != "{}" || !strings.Contains(summaries[1], "uuid") || !strings.Contains(summaries[2], "sha256") {
		t.Errorf("the summaries are %q", summaries)
	}
	if failed := audited(t, k, "agent_id=robot&type=failed"); len(failed) != 1 || failed[0].Data["result_summary"] != nil || failed[0].Data["prior_tools_in_session"] != nil {
		t.Errorf("the refused call is %v", failed)
	}
}

// Reads over each face are events, refused ones too, soon after the answer; a query is in none.
func TestReadsAreEvents(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	key := k.Key("default", "robot", "agent")
	c := as(t, k, key)
	reads := map[string]string{} // what is told of each, in the order of what happens
	for _, x := range []struct {
		path string
		want int
		told string
	}{
		{"/api/v1/tools?page_size=2", 200, "list allowed 2"},
		{"/api/v1/tools?page_size=9999", 400, "list refused E3301"},
		{"/api/v1/tools/std.hash", 200, "manifest allowed 1 std.hash"},
		{"/api/v1/tools/std.hash/versions", 200, "versions allowed 1 std.hash"},
		{"/api/v1/tools/std.hash/diff?from=1.0.0&to=1.0.0", 200, "diff allowed 1 std.hash"},
		{"/api/v1/tools/export?as=mcp&tool=std.hash", 200, "export allowed 1"},
		{"/api/v1/tools/export?as=mcp&tool=no.such", 404, "export refused E3001"},
		{"/api/v1/tools/retrieval/manifest/std.uuid", 200, "manifest allowed 1 std.uuid"},
		{"/api/v1/tools/retrieval/manifest/no.such", 404, "manifest refused E3001 no.such"},
		{"/api/v1/tools/retrieval/related/no.such?relationshipType=pairings", 404, "related refused E3001 no.such"},
		{"/api/v1/tools/retrieval/related/std.hash?relationshipType=dependencies", 200, "related allowed 0 std.hash"},
		{"/api/v1/tools/retrieval/search?q=my%20hidden%20purpose&strategy=category", 400, "search refused E3312"},
	} {
		c.do("GET", x.path, "", "X-Session-ID", "s", "User-Agent", "reader/1").want(t, x.want)
		reads["rest "+x.told] = x.path
	}
	c.do("POST", "/api/v1/tools/retrieval/context", `{"phase":"no such phase"}`, "X-Session-ID", "s", "User-Agent", "reader/1").want(t, 400)
	reads["rest context refused E3301"] = "context"
	for message, told := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`:                                                                      "list allowed",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"describe_tool","arguments":{"tool_id":"std.hash"}}}`: "manifest allowed 1 std.hash",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"describe_tool","arguments":{"tool_id":"no.such"}}}`:  "manifest refused E3001 no.such",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find_tools","arguments":{"query":"x","limit":99}}}`:  "search refused E3301",
	} {
		c.do("POST", "/mcp/all", message, "X-Session-ID", "s", "User-Agent", "reader/1", "Accept", mcpAccept).want(t, 200)
		reads["mcp "+told] = message
	}
	registry := l03v1.NewToolRegistryClient(dialAgent(t, k, "reader/1"))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key, "x-session-id", "s")
	if _, err := registry.GetTool(ctx, &l03v1.GetToolRequest{ToolId: "std.hash"}); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.ListTools(ctx, &l03v1.ListToolsRequest{PageSize: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := registry.GetTool(ctx, &l03v1.GetToolRequest{ToolId: "no.such"}); err == nil {
		t.Error("an unknown tool was read")
	}
	if _, err := registry.QueryByCapability(ctx, &l03v1.QueryByCapabilityRequest{Query: "my hidden purpose", MaxTools: 9999}); err == nil {
		t.Error("too many tools were asked for")
	}
	for _, told := range []string{"manifest allowed 1 std.hash", "list allowed 3", "manifest refused E3001 no.such", "search refused E3301"} {
		reads["grpc "+told] = "grpc"
	}

	var events []auditEntry
	waitUntil(t, "the events of the reads", func() bool {
		events = audited(t, k, "agent_id=robot&type=read")
		return len(events) >= len(reads)
	})
	for _, e := range events {
		d := e.Data
		told := strings.TrimSpace(strings.Join([]string{d["face"].(string), d["what"].(string), d["decision"].(string)}, " "))
		for _, name := range []string{"found", "error_code", "tool_id"} {
			if d[name] != nil && !(name == "found" && d["face"] == "mcp" && d["what"] == "list") {
				told += " " + strings.Trim(jsonText(t, d[name]), `"`)
			}
		}
		if _, ok := reads[told]; !ok {
			t.Errorf("told of %q", told)
		}
		delete(reads, told)
		if text := jsonText(t, d); !strings.Contains(text, `"user_agent":"reader/1`) || d["ip_address"] != "127.0.0.1" || d["session_id"] != "s" || strings.Contains(text, "hidden purpose") {
			t.Errorf("the event is %s", text)
		}
	}
	for told, of := range reads {
		t.Errorf("nothing tells %q of %s", told, of)
	}
	if refused := audited(t, k, "agent_id=robot&type=read&decision=refused&tool_id=no.such"); len(refused) != 4 {
		t.Errorf("found %d refused reads of the unknown tool", len(refused))
	}
	admin(t, k).do("GET", "/api/v1/audit/verify", "").want(t, 200)
}

// With audit.reads=refused only those are told, and a tool that the reader may not see is one.
func TestRefusedReadsAlone(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"audit.reads": "refused"}})
	k.Publish(toolkeeptest.Manifest("demo.hidden", "1.0.0", "uuid"))
	c := as(t, k, k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "robot", Roles: []string{"agent"}, Scope: []string{"std.*"}, CreatedBy: "test"}))
	c.do("GET", "/api/v1/tools", "").want(t, 200)
	c.do("GET", "/api/v1/tools/demo.hidden", "").refused(t, toolkeep.ToolNotFound)
	waitUntil(t, "the event of the refused read", func() bool { return len(audited(t, k, "agent_id=robot&type=read")) > 0 })
	if got := audited(t, k, "agent_id=robot&type=read"); len(got) != 1 || got[0].Data["tool_id"] != "demo.hidden" || got[0].Data["error_code"] != "E3001" {
		t.Errorf("the events are %v", got)
	}
}
