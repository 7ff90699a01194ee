package mcpserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

// library is an upstream built with the official SDK. With ask its prompt asks the caller for a
// city.
func library(t *testing.T, stateless bool) (*sdk.Server, string) {
	t.Helper()
	srv := sdk.NewServer(&sdk.Implementation{Name: "library", Version: "9"}, &sdk.ServerOptions{
		Instructions:       "Be quiet.",
		SubscribeHandler:   func(context.Context, *sdk.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
		CompletionHandler: func(_ context.Context, r *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			v := []string{r.Params.Argument.Value + "is", r.Params.Ref.Name + r.Params.Ref.URI}
			return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: v}}, nil
		},
	})
	srv.AddPrompt(&sdk.Prompt{Name: "greet me", Arguments: []*sdk.PromptArgument{{Name: "who"}}}, func(ctx context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		text := "Hello " + r.Params.Arguments["who"]
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
			{Role: "user", Content: &sdk.TextContent{Text: text}},
			{Role: "user", Content: &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "book://1", Text: "x"}}}}}, nil
	})
	srv.AddPrompt(&sdk.Prompt{Name: "ask"}, func(ctx context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		q := &sdk.ElicitParams{Message: "Which city?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}}
		answer, ok := r.Params.InputResponses["city"]
		if !ok {
			if stateless {
				return &sdk.GetPromptResult{InputRequests: sdk.InputRequestMap{"city": q}, RequestState: "s"}, nil
			}
			got, err := r.Session.Elicit(ctx, q)
			if err != nil {
				return nil, err
			}
			answer = got
		}
		city, _ := answer.(*sdk.ElicitResult).Content["city"].(string)
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: "In " + city}}}}, nil
	})
	read := func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: r.Params.URI, Text: "text of " + r.Params.URI}}}, nil
	}
	srv.AddResource(&sdk.Resource{Name: "one", URI: "book://1"}, read)
	srv.AddResource(&sdk.Resource{Name: "two", URI: "book://2"}, read)
	srv.AddResourceTemplate(&sdk.ResourceTemplate{Name: "page", URITemplate: "page://{n}"}, read)
	srv.AddTool(&sdk.Tool{Name: "read.book", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		t.Error("a tool was called past the pipeline")
		return &sdk.CallToolResult{}, nil
	})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, &sdk.StreamableHTTPOptions{Stateless: stateless}))
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return srv, h.URL
}

// behind puts MCP servers behind the face.
func (s *system) behind(specs ...upstream.Spec) *upstream.Servers {
	client := &http.Client{Transport: &http.Transport{}}
	servers := upstream.New(upstream.Config{HTTPClient: func(string, []toolkeep.HostPort) *http.Client { return client }, Log: s.Log})
	servers.Set(specs)
	names := func(p *toolkeep.Principal) []string {
		var names []string
		for _, spec := range specs {
			if spec.Tenant == "" || spec.Tenant == p.Tenant {
				names = append(names, spec.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	s.Upstreams = Behind(servers, names, func(p *toolkeep.Principal, name string) bool { return slices.Contains(names(p), name) })
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = servers.Stop(ctx)
		client.CloseIdleConnections()
	})
	return servers
}

func TestRelayAcrossTheEras(t *testing.T) {
	for name, stateless := range map[string]bool{"legacy upstream": false, "modern upstream": true} {
		srv, url := library(t, stateless)
		s := newSystem(t)
		s.behind(upstream.Spec{Name: "library", Transport: upstream.HTTP, URL: url, Capabilities: []string{upstream.CapElicitation}})
		s.publish(mcpManifest("library", "read.book", ""), manifest("demo.echo"))
		s.start()
		for _, version := range []string{"2025-06-18", "2026-07-28"} {
			t.Run(name+", client "+version, func(t *testing.T) { relayOnce(t, s, srv, version) })
		}
	}
}

func relayOnce(t *testing.T, s *system, srv *sdk.Server, version string) {
	updated := make(chan string, 10)
	cs := sdkClient(t, s, "/mcp/servers/library", &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"city": "Paris"}}, nil
		},
		ResourceUpdatedHandler: func(_ context.Context, r *sdk.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI },
	}, version)
	ctx := t.Context()
	init := cs.InitializeResult()
	if init.ProtocolVersion != version || init.ServerInfo == nil || init.ServerInfo.Name != "library" || init.Instructions != "Be quiet." || !init.Capabilities.Resources.Subscribe || init.Capabilities.Completions == nil {
		t.Errorf("%+v", init)
	}
	tools, err := cs.ListTools(ctx, nil)
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != "read.book" {
		t.Fatalf("%+v %v", tools, err)
	}
	res, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "read.book", Arguments: map[string]any{"x": "y"}})
	if err != nil || res.IsError {
		t.Errorf("%+v %v", res, err)
	}
	if _, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "library__read_book", Arguments: map[string]any{}}); err == nil {
		t.Error("the relay knows a prefixed name")
	}
	if _, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "read.bok", Arguments: map[string]any{}}); err == nil || !strings.Contains(err.Error(), "did you mean read.book?") {
		t.Errorf("a misspelt name: %v", err)
	}
	if _, err := cs.CallTool(ctx, &sdk.CallToolParams{Name: "find_tool", Arguments: map[string]any{}}); err == nil || strings.Contains(err.Error(), "did you mean") {
		t.Errorf("a name of Toolkeep's own: %v", err)
	}
	prompts, err := cs.ListPrompts(ctx, nil)
	if err != nil || len(prompts.Prompts) != 2 || prompts.Prompts[1].Name != "greet me" {
		t.Fatalf("%+v %v", prompts, err)
	}
	got, err := cs.GetPrompt(ctx, &sdk.GetPromptParams{Name: "greet me", Arguments: map[string]string{"who": "Ada"}})
	if err != nil || got.Messages[0].Content.(*sdk.TextContent).Text != "Hello Ada" || got.Messages[1].Content.(*sdk.EmbeddedResource).Resource.URI != "book://1" {
		t.Errorf("%+v %v", got, err)
	}
	if got, err = cs.GetPrompt(ctx, &sdk.GetPromptParams{Name: "ask"}); err != nil || got.Messages[0].Content.(*sdk.TextContent).Text != "In Paris" {
		t.Errorf("%+v %v", got, err)
	}
	resources, err := cs.ListResources(ctx, nil)
	if err != nil || len(resources.Resources) != 2 || resources.Resources[0].URI != "book://1" {
		t.Fatalf("%+v %v", resources, err)
	}
	if templates, err := cs.ListResourceTemplates(ctx, nil); err != nil || len(templates.ResourceTemplates) != 1 {
		t.Errorf("%+v %v", templates, err)
	}
	text, err := cs.ReadResource(ctx, &sdk.ReadResourceParams{URI: "page://7"})
	if err != nil || text.Contents[0].Text != "text of page://7" {
		t.Errorf("%+v %v", text, err)
	}
	if _, err := cs.ReadResource(ctx, &sdk.ReadResourceParams{URI: "none://7"}); err == nil || strings.Contains(err.Error(), "E3") {
		t.Errorf("the upstream's error is not passed on: %v", err)
	}
	done, err := cs.Complete(ctx, &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/prompt", Name: "greet me"}, Argument: sdk.CompleteParamsArgument{Name: "who", Value: "Par"}})
	if err != nil || !slices.Equal(done.Completion.Values, []string{"Paris", "greet me"}) {
		t.Errorf("%+v %v", done, err)
	}
	if err := cs.Subscribe(ctx, &sdk.SubscribeParams{URI: "book://2"}); err != nil {
		t.Fatal(err)
	}
	// The subscription may not have reached the upstream yet.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); ; {
		select {
		case uri := <-updated:
			if uri != "book://2" {
				t.Errorf("%s was updated", uri)
			}
			return
		case <-tick.C:
			_ = srv.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: "book://2"})
		case <-late:
			t.Fatal("nothing was updated")
		}
	}
}

func TestRelayOfAServerThatIsDown(t *testing.T) {
	s := newSystem(t)
	s.behind(upstream.Spec{Name: "gone", Transport: upstream.HTTP, URL: "http://127.0.0.1:1/mcp"}, upstream.Spec{Name: "bare", Transport: upstream.HTTP, URL: "http://127.0.0.1:1/mcp"},
		upstream.Spec{Name: "theirs", Tenant: "u", Transport: upstream.HTTP, URL: "http://127.0.0.1:1/mcp"})
	s.publish(mcpManifest("gone", "read", ""))
	s.start()
	h := s.session("/mcp/servers/gone", "2025-11-25", "{}")
	want(t, s.names("/mcp/servers/gone", h...), "read")
	e := s.post("/mcp/servers/gone", `{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, h...).failure(t, 200, mcp.CodeInternal)
	if !strings.Contains(string(e.Data), `"code":"E3541"`) {
		t.Errorf("%s %s", e.Message, e.Data)
	}
	s.post("/mcp/servers/gone", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}`, h...).failure(t, 200, mcp.CodeInternal)
	s.post("/mcp/servers/bare", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`).failure(t, 200, mcp.CodeInternal)
	s.post("/mcp/servers/theirs", listCall).problem(t, 404, toolkeep.ResourceNotFound)
	if a := s.modern("/mcp/servers/gone", "server/discover", "{}", "{}"); a.result(t, "capabilities") != `{"tools":{"listChanged":true}}` {
		t.Errorf("%s", a.body)
	}
	// A server that is down does not empty the list.
	want(t, s.names("/mcp/all"), "gone__read")
	if a := s.post("/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`); a.result(t, "resources") != "[]" {
		t.Errorf("%s", a.body)
	}
}

func TestResourcesAndPromptsOfAllServers(t *testing.T) {
	s := newSystem(t)
	_, one := library(t, false)
	_, two := library(t, true)
	s.behind(upstream.Spec{Name: "lib-a", Transport: upstream.HTTP, URL: one, Capabilities: []string{upstream.CapElicitation}}, upstream.Spec{Name: "lib-b", Transport: upstream.HTTP, URL: two})
	visible := s.Visible
	s.Visible = func(p *toolkeep.Principal, t *toolkeep.Tool) bool {
		return visible(p, t) && !(p.Subject == "bob" && strings.HasPrefix(t.ID, "lib-a."))
	}
	s.Limits.pageSize = 3
	s.start()
	list := func(method, member, key string, headers ...string) []string {
		var out []string
		cursor := ""
		for range 10 {
			a := s.post("/mcp/all", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+cursor+`}}`, headers...)
			for v := range mcp.Elements([]byte(a.result(t, member))) {
				out = append(out, mcp.Text(v, key))
			}
			next := a.result(t, "nextCursor")
			if next == "" {
				break
			}
			cursor = `"cursor":` + next
		}
		return out
	}
	want(t, list("resources/list", "resources", "uri"), "toolkeep+lib-a:book://1", "toolkeep+lib-a:book://2", "toolkeep+lib-b:book://1", "toolkeep+lib-b:book://2")
	want(t, list("resources/list", "resources", "uri", "Authorization: Bearer bob"), "toolkeep+lib-b:book://1", "toolkeep+lib-b:book://2")
	want(t, list("resources/templates/list", "resourceTemplates", "uriTemplate"), "toolkeep+lib-a:page://{n}", "toolkeep+lib-b:page://{n}")
	want(t, list("prompts/list", "prompts", "name"), "lib-a__ask", "lib-a__greet_me", "lib-b__ask", "lib-b__greet_me")
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		cs := sdkClient(t, s, "/mcp/all", &sdk.ClientOptions{
			ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
				return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"city": "Paris"}}, nil
			}}, version)
		text, err := cs.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "toolkeep+lib-b:page://7"})
		if err != nil || text.Contents[0].URI != "toolkeep+lib-b:page://7" || text.Contents[0].Text != "text of page://7" {
			t.Errorf("%+v %v", text, err)
		}
		got, err := cs.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "lib-b__greet_me", Arguments: map[string]string{"who": "Ada"}})
		if err != nil || got.Messages[0].Content.(*sdk.TextContent).Text != "Hello Ada" || got.Messages[1].Content.(*sdk.EmbeddedResource).Resource.URI != "toolkeep+lib-b:book://1" {
			t.Errorf("%+v %v", got, err)
		}
		if got, err = cs.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "lib-a__ask"}); err != nil || got.Messages[0].Content.(*sdk.TextContent).Text != "In Paris" {
			t.Errorf("%+v %v", got, err)
		}
		done, err := cs.Complete(t.Context(), &sdk.CompleteParams{Ref: &sdk.CompleteReference{Type: "ref/resource", URI: "toolkeep+lib-a:page://{n}"}, Argument: sdk.CompleteParamsArgument{Name: "n", Value: "1"}})
		if err != nil || done.Completion.Values[1] != "page://{n}" {
			t.Errorf("%+v %v", done, err)
		}
	}
	for body, code := range map[string]int64{
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"toolkeep+lib-a:book://1"}}`:                 mcp.CodeResourceNotFound,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"book://1"}}`:                                mcp.CodeResourceNotFound,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{}}`:                                                mcp.CodeInvalidParams,
		`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"lib-a__ask"}}`:                                mcp.CodeInvalidParams,
		`{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"x"},"argument":{"name":"n"}}}`: mcp.CodeInvalidParams,
		`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"a:b"}}`:                                mcp.CodeMethodNotFound,
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{}}`:                                              mcp.CodeInvalidParams,
	} {
		s.post("/mcp/all", body, "Authorization: Bearer bob").failure(t, 200, code)
	}
	s.modern("/mcp/all", "resources/read", `{"uri":"toolkeep+no:book://1"}`, "{}").failure(t, 400, mcp.CodeInvalidParams)
	h := s.session("/mcp/all", "2025-11-25", "{}")
	rd, _ := s.events("GET", "/mcp/all", "", h...)
	s.server.UpstreamChanged("lib-a", "")
	if m, _ := next(t, rd); m.Method != mcp.NotificationPromptsChanged {
		t.Errorf("%s", m.Bytes())
	}
}

// Notifications an upstream sends during a call reach only the client of its relay.
func TestWhatAnUpstreamTellsDuringACall(t *testing.T) {
	s := newSystem(t)
	s.behind(upstream.Spec{Name: "files", Transport: upstream.HTTP, URL: "http://127.0.0.1:1/mcp"})
	s.Invoker = fakeInvoker(func(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		if n, ok := c.Caller.(toolkeep.Notifier); ok {
			n.Notify(mcp.NotificationMessage, []byte(`{"level":"error","data":"loud"}`))
			n.Notify(mcp.NotificationToolsChanged, nil)
			n.Notify(mcp.NotificationProgress, []byte(`{"progressToken":"not the client's"}`))
		}
		return echo(ctx, p, c)
	})
	s.publish(mcpManifest("files", "read", ""))
	s.start()
	a := s.post("/mcp/servers/files", own("", "read", "{}"), s.session("/mcp/servers/files", "2025-06-18", "{}")...)
	if strings.Count(a.body, "data: ") != 2 || !strings.Contains(a.body, "loud") {
		t.Errorf("%s", a.body)
	}
	if a = s.post("/mcp/all", own("", "files__read", "{}"), s.session("/mcp/all", "2025-06-18", `{"roots":{}}`)...); a.result(t, "isError") != "" {
		t.Errorf("%s", a.body)
	}
}

// TestNamesOfAnAddress: an address has the name of what lists it, and must be visible under the name of
// each template that may yield it.
func TestNamesOfAnAddress(t *testing.T) {
	d := upstream.Definitions{
		Resources: [][]byte{[]byte(`{"uri":"book://1","name":"one"}`), []byte(`{"uri":"page://plain/index","name":"index"}`)},
		Templates: [][]byte{[]byte(`{"uriTemplate":"page://plain/{n}","name":"plain"}`), []byte(`{"uriTemplate":"page://{kind}/{n}","name":"any"}`),
			[]byte(`{"uriTemplate":"file:///{+path}","name":"files"}`), []byte(`{"uriTemplate":"odd://{n","name":"odd"}`), []byte(`{"uriTemplate":"a.b://{n}"}`)},
	}
	for uri, want := range map[string]string{"book://1": "one", "page://plain/index": "index", "page://plain/{n}": "plain", "page://plain/1": "plain any odd",
		"page://other/1": "any odd", "page://plain/1/2": "odd", "file:///a/b\nc": "files odd", "a.b://1": "odd a.b://{n}", "axb://1": "odd"} {
		if got := strings.Join(namesOf(d, uri), " "); got != want {
			t.Errorf("%s has the names %s, want %s", uri, got, want)
		}
	}
	d.Templates = d.Templates[:3]
	if got := namesOf(d, "axb://1"); len(got) != 1 || got[0] != "axb://1" {
		t.Errorf("what is listed nowhere has the names %s", got)
	}
}

// TestRelayChecksWhatTheServerReads: what a request names is visible, however it is written, or the
// server does not get the request; what templates list can be read, and what they hide cannot.
func TestRelayChecksWhatTheServerReads(t *testing.T) {
	_, url := library(t, true)
	s := newSystem(t)
	s.behind(upstream.Spec{Name: "library", Transport: upstream.HTTP, URL: url})
	hidden := map[string]bool{"library.two": true, "library.ask": true}
	s.Visible = func(_ *toolkeep.Principal, tool *toolkeep.Tool) bool { return !hidden[tool.ID] }
	s.start()
	ask := func(path, method, params string) answer {
		return s.post(path, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	}
	const relay = "/mcp/servers/library"
	for _, x := range []struct{ path, method, params string }{
		{relay, "resources/read", `{"uri":"book://1"}`},
		{relay, "resources/read", `{"uri":"page://1"}`},
		{"/mcp/all", "resources/read", `{"uri":"toolkeep+library:page://1"}`},
		{relay, "prompts/get", `{"name":"greet me"}`},
		{relay, "completion/complete", `{"ref":{"type":"ref/resource","uri":"page://{n}"},"argument":{"name":"n","value":"x"}}`},
	} {
		if a := ask(x.path, x.method, x.params); a.message(t).Err != nil {
			t.Errorf("%s %s %s is refused: %s", x.path, x.method, x.params, a.body)
		}
	}
	hidden["library.page"] = true
	for _, x := range []struct{ path, method, params string }{
		{relay, "resources/read", `{"uri":"book://2"}`},
		{relay, "resources/read", `{"URI":"book://2"}`},
		{relay, "resources/read", `{"uri":"book://1","Uri":"book://2"}`},
		{relay, "resources/read", `{"uri":["book://2"]}`},
		{relay, "resources/read", `{}`},
		{relay, "resources/subscribe", `{"URI":"book://2"}`},
		{relay, "resources/read", `{"uri":"page://1"}`},
		{"/mcp/all", "resources/read", `{"uri":"toolkeep+library:page://1"}`},
		{"/mcp/all", "resources/read", `{"uri":"toolkeep+library:book://1","URI":"book://2"}`},
		{relay, "prompts/get", `{"Name":"ask"}`},
		{relay, "prompts/get", `{"name":7}`},
		{"/mcp/all", "prompts/get", `{"name":"library__greet me","NAME":"ask"}`},
		{relay, "completion/complete", `{"ref":{"type":"ref/resource","uri":"page://{n}"},"argument":{"name":"n","value":"x"}}`},
		{relay, "completion/complete", `{"ref":{"type":"ref/prompt","Name":"ask"},"argument":{"name":"n","value":"x"}}`},
		{relay, "completion/complete", `{"ref":{"type":"ref/prompt","name":"greet me"},"REF":{"type":"ref/prompt","name":"ask"},"argument":{"name":"n","value":"x"}}`},
		{relay, "completion/complete", `{"ref":{"uri":"book://2"},"argument":{"name":"n","value":"x"}}`},
	} {
		e := ask(x.path, x.method, x.params).message(t).Err
		if e == nil || e.Code != mcp.CodeInvalidParams && e.Code != mcp.CodeResourceNotFound {
			t.Errorf("%s %s %s: %+v", x.path, x.method, x.params, e)
		}
	}
}

// counted counts requests.
type counted struct{ n atomic.Int64 }

func (c *counted) TakeRequest(context.Context, *toolkeep.Principal) (toolkeep.RateLeft, error) {
	c.n.Add(1)
	return toolkeep.RateLeft{}, nil
}

// TestAnswersAreNotCounted: the request that brings an answer to a question of a prompt follows the one that was counted. One
// whose requestState this server did not send is counted.
func TestAnswersAreNotCounted(t *testing.T) {
	_, url := library(t, false)
	s := newSystem(t)
	var n counted
	s.front.Requests = &n
	s.behind(upstream.Spec{Name: "library", Transport: upstream.HTTP, URL: url, Capabilities: []string{upstream.CapElicitation}})
	s.publish(mcpManifest("library", "read.book", ""))
	s.start()
	send := func(more string, counted int64) answer {
		t.Helper()
		before := n.n.Load()
		a := s.modern("/mcp/servers/library", "prompts/get", `{"name":"ask"`+more+`}`, `{"elicitation":{}}`)
		if got := n.n.Load() - before; got != counted {
			t.Errorf("%d requests are counted, want %d: %s", got, counted, a.body)
		}
		return a
	}
	answered := func(state string) string {
		return `,"requestState":` + state + `,"inputResponses":{"q1":{"action":"accept","content":{"city":"Paris"}}}`
	}
	a := send("", 1)
	send(answered(`"AAAA"`), 1)
	if a = send(answered(a.result(t, "requestState")), 0); !strings.Contains(a.body, "In Paris") {
		t.Error(a.body)
	}
}
