package toolkeeptest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

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
