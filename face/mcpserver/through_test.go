package mcpserver

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/executor/mcptool"
	"github.com/toolkeep/toolkeep/upstream"
)

// A client of either era in front, a server of either era behind, and the importer, the executor
// and the upstream client between them: questions, progress, log messages, structured content and
// errors pass through.
func TestThroughToAnUpstreamAndBack(t *testing.T) {
	for name, stateless := range map[string]bool{"legacy upstream": false, "modern upstream": true} {
		srv := sdk.NewServer(&sdk.Implementation{Name: "shop", Version: "1"}, nil)
		sdk.AddTool(srv, &sdk.Tool{Name: "order", Title: "Order", Annotations: &sdk.ToolAnnotations{Title: "x"}}, func(ctx context.Context, r *sdk.CallToolRequest, in struct {
			N int `json:"n"`
		}) (*sdk.CallToolResult, map[string]any, error) {
			if token := r.Params.GetProgressToken(); token != nil {
				if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: 1, Total: 2, Message: "half"}); err != nil {
					t.Error(err)
				}
			}
			q := &sdk.ElicitParams{Message: "Which city?", RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}}
			answer, ok := r.Params.InputResponses["city"]
			if !ok && stateless {
				return &sdk.CallToolResult{InputRequests: sdk.InputRequestMap{"city": q}, RequestState: "s"}, nil, nil
			}
			if !ok {
				got, err := r.Session.Elicit(ctx, q)
				if err != nil {
					return nil, nil, err
				}
				answer = got
			}
			return nil, map[string]any{"city": answer.(*sdk.ElicitResult).Content["city"], "n": in.N}, nil
		})
		h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return srv }, &sdk.StreamableHTTPOptions{Stateless: stateless}))
		t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
		s := newSystem(t)
		servers := s.behind(upstream.Spec{Name: "shop", Transport: upstream.HTTP, URL: h.URL, Capabilities: []string{upstream.CapElicitation}})
		s.imports(servers, "shop")
		s.Invoker = s.executing(mcptool.New(servers))
		s.start()
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			for _, path := range []string{"/mcp/all", "/mcp/servers/shop"} {
				t.Run(name+", client "+version+", "+path, func(t *testing.T) { orderOnce(t, s, version, path) })
			}
		}
	}
}

// imports publishes a server's tools like `toolkeep import mcp`.
func (s *system) imports(servers *upstream.Servers, name string) {
	s.t.Helper()
	p := &toolkeep.Principal{Subject: "alice", Tenant: "t", Permissions: []string{"*"}}
	d, err := servers.Definitions(s.t.Context(), p, name)
	if err != nil {
		s.t.Fatal(err)
	}
	plan, err := source.Read(s.t.Context(), d.Tools, source.Options{Server: name, Namespace: name})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, tool := range plan.Tools {
		s.publish(string(tool.Manifest))
	}
}

// executing is the pipeline reduced to its execution step.
func (s *system) executing(e toolkeep.Executor) fakeInvoker {
	return func(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		v, _, err := s.catalog.Resolve(ctx, p, c.Tool, c.Range, nil)
		if err != nil {
			return nil, err
		}
		args, err := canon.ParseObject(c.Arguments, canon.Limits{})
		if err != nil {
			return nil, err
		}
		out, err := e.Execute(ctx, &toolkeep.Execution{Tool: v.Tool, Args: args, Principal: p, InvocationID: "inv-1", Attempt: 1, Session: c.Session, Caller: c.Caller})
		res := &toolkeep.Result{InvocationID: "inv-1", ToolID: v.Tool.ID, ToolVersion: v.Tool.Version, State: toolkeep.CallSucceeded}
		if err != nil {
			res.State, res.Error = toolkeep.CallFailed, toolkeep.AsError(err)
			return res, nil
		}
		res.Output = canon.Append(nil, out.Value)
		return res, nil
	}
}

func orderOnce(t *testing.T, s *system, version, path string) {
	var mu sync.Mutex
	var progress []string
	cs := sdkClient(t, s, path, &sdk.ClientOptions{
		ElicitationHandler: func(context.Context, *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"city": "Paris"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
			mu.Lock()
			defer mu.Unlock()
			progress = append(progress, r.Params.Message)
		},
	}, version)
	tool := "shop__order"
	if strings.HasPrefix(path, "/mcp/servers/") {
		tool = "order"
	}
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 || list.Tools[0].Name != tool || list.Tools[0].Title != "Order" || list.Tools[0].OutputSchema == nil || list.Tools[0].Annotations.Title != "x" {
		t.Fatalf("%+v %v", list, err)
	}
	params := &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"n": 3}}
	params.SetProgressToken("p")
	res, err := cs.CallTool(t.Context(), params)
	if err != nil || res.IsError {
		t.Fatalf("%+v %v", res, err)
	}
	if got, _ := json.Marshal(res.StructuredContent); string(got) != `{"city":"Paris","n":3}` {
		t.Errorf("%s", got)
	}
	until(t, "progress", func() bool { mu.Lock(); defer mu.Unlock(); return len(progress) > 0 && progress[0] == "half" })
	// A tool's refusal starts with its own words.
	res, err = cs.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: map[string]any{"n": "many"}})
	if err != nil || !res.IsError || res.Meta["toolkeep/code"] != "E3540" || len(res.Content) < 2 {
		t.Errorf("%+v %v", res, err)
	}
}
