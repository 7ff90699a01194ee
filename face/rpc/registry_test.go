package rpc

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// TestToolIsShown: a manifest names no tool that does not exist for the caller.
func TestToolIsShown(t *testing.T) {
	s := newSystem()
	tool := toolOf("demo.related", "text", `{}`)
	tool.Manifest.Relationships = []byte(`{"alternatives":["demo.other","demo.text"]}`)
	tool.Raw = []byte(`{"relationships":{"alternatives":["demo.other","demo.text"]},"tool_id":"demo.related"}`)
	s.catalog.tools = append(s.catalog.tools, tool)
	r := l03v1.NewToolRegistryClient(s.start(t))
	for subject, want := range map[string]string{"admin": string(tool.Raw), "agent": `{"relationships":{"alternatives":["demo.text"]},"tool_id":"demo.related"}`} {
		got, err := r.GetTool(as(t.Context(), subject), &l03v1.GetToolRequest{ToolId: "demo.related"})
		if err != nil || string(got.ManifestJson) != want || got.Digest != tool.Digest {
			t.Errorf("%s: %v %v", subject, got, err)
		}
	}
}

func TestRegistry(t *testing.T) {
	r := l03v1.NewToolRegistryClient(newSystem().start(t))
	admin, agent := as(t.Context(), "admin"), as(t.Context(), "agent")
	tool, err := r.GetTool(agent, &l03v1.GetToolRequest{ToolId: "demo.text"})
	if err != nil || tool.Version != "1.0.0" || tool.State != "active" || string(tool.ManifestJson) != `{"tool_id":"demo.text"}` || len(tool.Versions) != 1 {
		t.Errorf("%v %v", tool, err)
	}
	_, err = r.GetTool(agent, &l03v1.GetToolRequest{ToolId: "demo.other"})
	wantCode(t, err, toolkeep.ToolNotFound)
	list := func(ctx context.Context, q *l03v1.ListToolsRequest) string {
		t.Helper()
		out, err := r.ListTools(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, s := range out.Tools {
			ids = append(ids, s.ToolId)
		}
		return fmt.Sprintf("%s %d %d/%d", strings.Join(ids, ","), out.TotalCount, out.Page, out.PageSize)
	}
	for _, c := range []struct {
		ctx  context.Context
		q    *l03v1.ListToolsRequest
		want string
	}{
		{admin, &l03v1.ListToolsRequest{}, "demo.text,demo.other 2 1/50"},
		{agent, &l03v1.ListToolsRequest{}, "demo.text 1 1/50"},
		{admin, &l03v1.ListToolsRequest{Page: 2, PageSize: 1}, "demo.other 2 2/1"},
		{admin, &l03v1.ListToolsRequest{Page: 9, PageSize: 200}, " 2 9/200"},
		{admin, &l03v1.ListToolsRequest{Filters: map[string]string{"category": "other"}}, "demo.other 1 1/50"},
		{admin, &l03v1.ListToolsRequest{CapabilityQuery: "anything", Page: 2, PageSize: 1}, "demo.other 2 2/1"},
		{agent, &l03v1.ListToolsRequest{CapabilityQuery: "anything"}, "demo.text 1 1/50"},
	} {
		if got := list(c.ctx, c.q); got != c.want {
			t.Errorf("%v: %s, want %s", c.q, got, c.want)
		}
	}
	for q, code := range map[*l03v1.ListToolsRequest]toolkeep.Code{
		{PageSize: 201}: toolkeep.InvalidParameters,
		{Page: 1 << 31}: toolkeep.InvalidParameters,
		{Filters: map[string]string{"colour": "x"}}:  toolkeep.MalformedRequest,
		{CapabilityQuery: strings.Repeat("x", 3000)}: toolkeep.InvalidParameters,
	} {
		_, err := r.ListTools(admin, q)
		wantCode(t, err, code)
	}
	found, err := r.QueryByCapability(agent, &l03v1.QueryByCapabilityRequest{Query: "text", Category: "text"})
	if err != nil || len(found.Matches) != 1 || found.Matches[0].Tool.ToolId != "demo.text" || found.Matches[0].Explanation.AsMap()["why"].([]any)[0] != "name" {
		t.Errorf("%v %v", found, err)
	}
	for strategy, want := range map[string]string{"": "hybrid", "hybrid": "hybrid", "semantic": "semantic", "keyword": "keyword", "category": "category", "session": "session"} {
		found, err = r.QueryByCapability(agent, &l03v1.QueryByCapabilityRequest{Query: "text", Category: "text", Strategy: strategy, SessionId: "s-1"})
		if err != nil || len(found.Matches) != 1 {
			t.Fatal(strategy, err, found)
		}
		e := found.Matches[0].Explanation.AsMap()
		if e["strategy"] != want || e["semantic"] != 0.5 || e["keyword"] != 0.25 || e["degraded"] != "t/agent/s-1" {
			t.Errorf("%s: %v", strategy, e)
		}
		if w, _ := e["weights"].(map[string]any); e["history"] != 0.75 || e["success"] != 0.9 || e["complexity"] != 1.0 || e["action"] != -1.0 || e["learned"] != 0.125 || e["named"] != true ||
			w["semantic"] != 0.4 || w["keyword"] != 0.3 || w["history"] != 0.2 || w["success"] != 0.1 || w["complexity"] != 0.1 {
			t.Errorf("%s: %v", strategy, e)
		}
	}
	for q, code := range map[*l03v1.QueryByCapabilityRequest]toolkeep.Code{
		{}:                                 toolkeep.InvalidParameters,
		{Query: "x", MaxTools: 51}:         toolkeep.InvalidParameters,
		{Query: "x", Strategy: "guess"}:    toolkeep.InvalidParameters,
		{Query: "x", Strategy: "category"}: toolkeep.MalformedRequest,
		{Query: "a\x00b"}:                  toolkeep.InvalidEncoding,
		{Query: "a\x1bb"}:                  toolkeep.InvalidEncoding,
		{Query: "x", SessionId: strings.Repeat("s", 5000)}: toolkeep.InvalidParameters,
	} {
		_, err := r.QueryByCapability(admin, q)
		wantCode(t, err, code)
	}
	blind := newSystem()
	blind.Search = nil
	_, err = l03v1.NewToolRegistryClient(blind.start(t)).QueryByCapability(as(t.Context(), "admin"), &l03v1.QueryByCapabilityRequest{Query: "x"})
	wantCode(t, err, toolkeep.IndexUnavailable)
}
