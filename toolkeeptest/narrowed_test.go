package toolkeeptest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// hiddenWords are in every tool, prompt and resource that the token of TestTokensNarrowLists does not allow.
var hiddenWords = []string{"zyzzyva", "hush.two", "hush__two", "secretly"}

func showsHidden(text string) bool {
	return slices.ContainsFunc(hiddenWords, func(w string) bool { return strings.Contains(text, w) })
}

// question is a request that is no call. named says that it asks for a hidden tool by its id.
type question struct {
	name  string
	named bool
	ask   func(c *client, token string) answer
}

// TestTokensNarrowLists: over each face, what a capability token does not allow is in no answer of its
// holder, exactly as what the key's scope hides; and the same subject without the token sees it before and
// after. Each route of REST that reads, each method of gRPC and each of MCP's own tools must be here.
func TestTokensNarrowLists(t *testing.T) {
	t.Parallel()
	k := withServers(t, map[string]string{"access.agent_failures": "-1"}) // its questions call a tool that does not exist
	boss := admin(t, k)
	hidden := []string{`"tags":["zyzzyva"],"category":"zyzzyva","explanation":"It goes with zyzzyva."`}
	k.Publish(toolkeeptest.Manifest("hush.one", "1.0.0", "echo", append(hidden, `"relationships":{"alternatives":["hush.two"]}`)...), toolkeeptest.Manifest("hush.two", "1.0.0", "echo", hidden...),
		toolkeeptest.Manifest("plain.one", "1.0.0", "echo", `"relationships":{"dependencies":["hush.two"],"alternatives":["hush.one"]}`))
	s := offerByHTTP(t, definition("plainly", "Goes with a zebra."), definition("secretly", "Goes with zyzzyva."))
	for _, name := range []string{"plain", "secretly"} {
		s.server.AddPrompt(&sdk.Prompt{Name: name}, func(context.Context, *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: "it is " + name}}}}, nil
		})
		read := func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "book://" + name, Text: "it is " + name}}}, nil
		}
		s.server.AddResource(&sdk.Resource{Name: name, URI: "book://" + name}, read)
		s.server.AddResourceTemplate(&sdk.ResourceTemplate{Name: name, URITemplate: "page://" + name + "/{n}"}, read)
	}
	boss.put(t, "mixed", s)
	boss.put(t, "hush", offerByHTTP(t, definition("third", "Goes with zyzzyva.")))

	shown := []string{"plain.*", "mixed.plain*"}
	bare := as(t, k, k.Key("default", "bot", "agent"))
	scoped := as(t, k, k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "bot", Roles: []string{"agent"}, Scope: shown, CreatedBy: "test"}))
	made := boss.do("POST", "/api/v1/tokens", jsonText(t, map[string]any{"agent_did": "bot", "tool_id": shown})).want(t, 201)
	token := made.text(t, "token")

	seen := map[string]bool{} // questions whose answers show what the token hides
	for _, q := range slices.Concat(restQuestions(t, boss), mcpQuestions(t, bare), grpcQuestions(t, k)) {
		before, narrowed, byScope, after := q.ask(bare, ""), q.ask(bare, token), q.ask(scoped, ""), q.ask(bare, "")
		if showsHidden(narrowed.body) || q.named && narrowed.status < 300 {
			t.Errorf("%s shows the holder of a token what it hides: %s", q.name, narrowed)
		}
		if showsHidden(byScope.body) {
			t.Errorf("%s shows what the scope hides: %s", q.name, byScope)
		}
		if narrowed.status != byScope.status {
			t.Errorf("%s: with a token %s\nwith a scope %s", q.name, narrowed, byScope)
		}
		if showsHidden(before.body) != showsHidden(after.body) || before.status != after.status {
			t.Errorf("%s: before the token came %s\nafter it %s", q.name, before, after)
		}
		seen[q.name] = showsHidden(before.body) || q.named && before.status < 300
	}
	for _, name := range []string{"listTools", "exportTools", "getTool", "getToolHealth", "listVersions", "diffVersions", "searchTools", "searchToolsLong", "toolContext", "relatedTools", "getManifest",
		"all tools/list", "search find_tools", "search describe_tool", "all prompts/list", "all resources/list", "all resources/templates/list", "all resources/read",
		"all prompts/get", "servers/mixed tools/list", "servers/mixed prompts/list", "servers/mixed resources/list", "servers/mixed resources/templates/list",
		"servers/mixed resources/read", "servers/mixed prompts/get", "servers/hush tools/list", "ListTools", "GetTool", "GetToolHealth", "QueryByCapability", "ToolContext"} {
		if !seen[name] {
			t.Errorf("%s shows nothing of the hidden tools without the token, so that the test shows nothing of it", name)
		}
	}

	refused := bare.do("POST", "/api/v1/tools/invoke", envelope("hush.one", `{}`), "X-Capability-Token", token).want(t, 403)
	refused.refused(t, toolkeep.TokenScopeMismatch)
	near := bare.do("POST", "/api/v1/tools/invoke", envelope("hush.twoo", `{}`), "X-Capability-Token", token).want(t, 404)
	if showsHidden(strings.ReplaceAll(near.body, "hush.twoo", "")) {
		t.Errorf("a typing mistake shows a hidden name: %s", near)
	}
	mistyped := bare.do("POST", "/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hush__twoo","arguments":{}}}`, "X-Capability-Token", token, "Accept", mcpAccept)
	if showsHidden(strings.ReplaceAll(mistyped.body, "hush__twoo", "")) {
		t.Errorf("a typing mistake shows a hidden name: %s", mistyped)
	}
}

// TestTokensChooseVersions: a call whose token allows older versions alone gets the newest of them, as
// the lists of its holder say.
func TestTokensChooseVersions(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	k.Publish(toolkeeptest.Manifest("plain.one", "1.0.0", "echo"), toolkeeptest.Manifest("plain.one", "1.3.0", "echo"))
	k.Publish(toolkeeptest.Manifest("plain.one", "2.0.0", "echo"))
	c := as(t, k, k.Key("default", "bot", "agent"))
	token := admin(t, k).do("POST", "/api/v1/tokens", `{"agent_did":"bot","tool_id":["plain.*"],"tool_version":"^1"}`).want(t, 201).text(t, "token")
	if got := c.do("GET", "/api/v1/tools/plain.one", "", "X-Capability-Token", token).want(t, 200).text(t, "version"); got != "1.3.0" {
		t.Errorf("shown is %s", got)
	}
	c.do("POST", "/api/v1/tools/invoke", envelope("plain.one", `{}`), "X-Capability-Token", token).success(t)
	list := c.do("GET", "/api/v1/invocations", "").want(t, 200)
	if got := list.text(t, "invocations", "0", "tool_version"); got != "1.3.0" {
		t.Errorf("called is %s", got)
	}
	c.do("POST", "/api/v1/tools/invoke", `{"tool_id":"plain.one","tool_version":"2.0.0","parameters":{}}`, "X-Capability-Token", token).want(t, 403).refused(t, toolkeep.TokenScopeMismatch)
}

// restQuestions are all GETs of the served document, and the POSTs of its tag retrieval.
func restQuestions(t *testing.T, boss *client) (all []question) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Tags        []string
			Parameters  []struct {
				Name, In string
				Required bool
			}
		}
	}
	if err := json.Unmarshal([]byte(boss.do("GET", "/openapi.json", "").want(t, 200).body), &doc); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"q": "zyzzyva", "relationshipType": "alternatives", "from": "1.0.0", "to": "1.0.0", "as": "mcp", "subject": "bot", "tool_id": "hush.one"}
	bodies := map[string]string{"searchToolsLong": `{"q":"zyzzyva"}`, "toolContext": `{"q":"zyzzyva","phase":"tool_selection"}`, "retrievalFeedback": `{"eventId":"x"}`}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			read := strings.Contains(path, "/retrieval/")
			if method != "get" && !(method == "post" && read) {
				continue
			}
			body, known := bodies[op.OperationID]
			if method == "post" && !known {
				t.Errorf("the test has no body for %s", op.OperationID)
			}
			if op.OperationID == "watchInvocations" {
				continue // its answer has no end; TestFollowHidden of package invoke shows what it tells
			}
			at, query := path, url.Values{}
			for _, p := range op.Parameters {
				switch {
				case p.In == "path" && strings.HasPrefix(strings.ToLower(p.Name), "tool"):
					at = strings.ReplaceAll(at, "{"+p.Name+"}", "hush.one")
				case p.In == "path":
					at = strings.ReplaceAll(at, "{"+p.Name+"}", "mixed")
				case p.In == "query" && p.Required && values[p.Name] == "":
					t.Errorf("the test has no value for %s of %s", p.Name, op.OperationID)
				case p.In == "query" && p.Required:
					query.Set(p.Name, values[p.Name])
				}
			}
			ask := func(query string, body string) func(*client, string) answer {
				return func(c *client, token string) answer {
					return c.do(strings.ToUpper(method), at+query, body, tokenHeader(token)...)
				}
			}
			of := ""
			if len(query) > 0 {
				of = "?" + query.Encode()
			}
			all = append(all, question{op.OperationID, strings.Contains(at, "hush.one"), ask(of, body)})
			if op.OperationID == "listTools" {
				all = append(all, question{"listTools by words", false, ask("?capability_query=zyzzyva", "")})
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("the document has only %d reading routes", len(all))
	}
	return all
}

func tokenHeader(token string) []string {
	if token == "" {
		return nil
	}
	return []string{"X-Capability-Token", token}
}

// mcpQuestions are the methods of MCP that list and read, at each view, and its own tools, with the token in
// the headers and in _meta.
func mcpQuestions(t *testing.T, c *client) (all []question) {
	t.Helper()
	own := map[string]string{"find_tools": `{"query":"zyzzyva"}`, "describe_tool": `{"tool_id":"hush.one"}`, "get_invocation": `{"invocation_id":"x"}`, "call_tool": `{"tool_id":"no.such"}`}
	var list struct {
		Result struct{ Tools []struct{ Name string } }
	}
	if err := json.Unmarshal([]byte(c.says("/search", "", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).body), &list); err != nil || len(list.Result.Tools) == 0 {
		t.Fatal(err)
	}
	for _, tool := range list.Result.Tools {
		if own[tool.Name] == "" {
			t.Errorf("the test does not ask MCP's own tool %s", tool.Name)
		}
	}
	add := func(view, name, method, params string, named bool) {
		for _, inMeta := range []bool{false, true} {
			of := view + " " + name
			if inMeta {
				of += ", in _meta"
			}
			all = append(all, question{of, named, func(c *client, token string) answer {
				header, params := append([]string{"Accept", mcpAccept}, tokenHeader(token)...), params
				if inMeta && token != "" {
					header = header[:2]
					params = strings.TrimSuffix(params, "}") + `,"_meta":{"toolkeep/capability-token":"` + token + `"}}`
					params = strings.Replace(params, "{,", "{", 1)
				}
				a := c.do("POST", "/mcp/"+view, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, header...)
				if strings.Contains(a.body, `"isError":true`) || strings.Contains(a.body, `"error":`) {
					a.status = 400
				}
				return a
			}})
		}
	}
	for _, view := range []string{"all", "search", "auto", "servers/mixed", "servers/hush"} {
		add(view, "tools/list", "tools/list", `{}`, view == "servers/hush")
		for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list"} {
			add(view, method, method, `{}`, view == "servers/hush")
		}
		uri, prompt := "toolkeep+mixed:book://secretly", "mixed__secretly"
		if relay := strings.HasPrefix(view, "servers/"); relay {
			uri, prompt = "book://secretly", "secretly"
		} else {
			for name, arguments := range own {
				add(view, name, "tools/call", `{"name":"`+name+`","arguments":`+arguments+`}`, name == "describe_tool")
			}
		}
		asked := map[string]string{"resources/read": `{"uri":"` + uri + `"}`, "prompts/get": `{"name":"` + prompt + `"}`,
			"completion/complete": `{"ref":{"type":"ref/prompt","name":"` + prompt + `"},"argument":{"name":"n","value":"x"}}`}
		for method, params := range asked {
			add(view, method, method, params, true)
		}
	}
	for i := range all {
		ask := all[i].ask
		all[i].ask = func(c *client, token string) answer { // errors repeat the address that was asked for
			a := ask(c, token)
			if a.status == 400 {
				a.body = strings.ReplaceAll(a.body, "book://secretly", "")
			}
			return a
		}
	}
	return all
}

// grpcQuestions are the methods of each service but those that call.
func grpcQuestions(t *testing.T, k *toolkeeptest.Toolkeep) (all []question) {
	t.Helper()
	conn := dialAgent(t, k, "reader/1")
	requests := map[string]struct {
		in    proto.Message
		out   proto.Message
		named bool
	}{
		"GetTool":           {&l03v1.GetToolRequest{ToolId: "hush.one"}, &l03v1.Tool{}, true},
		"GetToolHealth":     {&l03v1.GetToolHealthRequest{ToolId: "hush.one"}, &l03v1.ToolHealthStatus{}, true},
		"ListTools":         {&l03v1.ListToolsRequest{}, &l03v1.ListToolsResponse{}, false},
		"QueryByCapability": {&l03v1.QueryByCapabilityRequest{Query: "zyzzyva"}, &l03v1.QueryByCapabilityResponse{}, false},
		"ToolContext":       {&l03v1.ToolContextRequest{Query: "zyzzyva", Phase: "tool_selection"}, &l03v1.ToolContextResponse{}, false},
		"Feedback":          {&l03v1.FeedbackRequest{}, &l03v1.FeedbackResponse{}, false},
		"GetInvocation":     {&l03v1.GetInvocationRequest{InvocationId: "x"}, &l03v1.ToolInvocationResult{}, false},
	}
	calls := []string{"InvokeTool", "InvokeToolStream", "CancelInvocation"}
	for _, service := range []grpc.ServiceDesc{l03v1.ToolExecution_ServiceDesc, l03v1.ToolRegistry_ServiceDesc, l03v1.ToolRetrieval_ServiceDesc} {
		for _, m := range service.Methods {
			x, known := requests[m.MethodName]
			if !known {
				if !slices.Contains(calls, m.MethodName) {
					t.Errorf("the test does not ask %s", m.MethodName)
				}
				continue
			}
			all = append(all, question{m.MethodName, x.named, func(c *client, token string) answer {
				ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+c.key)
				if token != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, "x-capability-token", token)
				}
				out := proto.Clone(x.out)
				if err := conn.Invoke(ctx, "/"+service.ServiceName+"/"+m.MethodName, x.in, out); err != nil {
					return answer{status: 400, body: err.Error()}
				}
				return answer{status: 200, body: fmt.Sprint(out)}
			}})
		}
	}
	return all
}
