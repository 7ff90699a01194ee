package rpc

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/secret"
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
		{Filters: map[string]string{"colour": "x"}}:                    toolkeep.MalformedRequest,
		{CapabilityQuery: strings.Repeat("é", discover.MaxQuestion+1)}: toolkeep.InvalidParameters,
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
		if e["strategy"] != want || e["semantic"] != 0.5 || e["keyword"] != 0.25 || e["degraded"] != "t/agent/s-1" || e["query_cut"] != nil {
			t.Errorf("%s: %v", strategy, e)
		}
		if w, _ := e["weights"].(map[string]any); e["history"] != 0.75 || e["success"] != 0.9 || e["complexity"] != 1.0 || e["action"] != -1.0 || e["learned"] != 0.125 || e["named"] != true ||
			w["semantic"] != 0.4 || w["keyword"] != 0.3 || w["history"] != 0.2 || w["success"] != 0.1 || w["complexity"] != 0.1 {
			t.Errorf("%s: %v", strategy, e)
		}
	}
	found, err = r.QueryByCapability(agent, &l03v1.QueryByCapabilityRequest{Query: strings.Repeat("é", discover.MaxQuestion+1), Category: "text"})
	if err != nil || found.Matches[0].Explanation.AsMap()["query_cut"] != true {
		t.Errorf("a question that is cut: %v, %v", found, err)
	}
	for q, code := range map[*l03v1.QueryByCapabilityRequest]toolkeep.Code{
		{}:                                 toolkeep.InvalidParameters,
		{Query: "x", MaxTools: 51}:         toolkeep.InvalidParameters,
		{Query: "x", Strategy: "guess"}:    toolkeep.InvalidParameters,
		{Query: "x", Strategy: "category"}: toolkeep.MalformedRequest,
		{Query: "x", Category: "no-such"}:  toolkeep.NoToolMatches,
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

// fakeAuthState tells the state of each tool's secrets, by id.
type fakeAuthState map[string]string

func (f fakeAuthState) ToolAuth(_ context.Context, p *toolkeep.Principal, t *toolkeep.Tool, ask bool) *secret.Auth {
	if f[t.ID] == "" || ask || p.Subject != "admin" {
		return nil
	}
	return &secret.Auth{State: f[t.ID]}
}

// TestAuthStatus: lists and searches tell how each tool stands with its secrets for the caller.
func TestAuthStatus(t *testing.T) {
	s := newSystem()
	s.ToolAuth = fakeAuthState{"demo.other": "missing"}.ToolAuth
	r := l03v1.NewToolRegistryClient(s.start(t))
	list, err := r.ListTools(as(t.Context(), "admin"), &l03v1.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := r.QueryByCapability(as(t.Context(), "admin"), &l03v1.QueryByCapabilityRequest{Query: "x"})
	if err != nil {
		t.Fatal(err)
	}
	all := list.Tools
	for _, m := range found.Matches {
		all = append(all, m.Tool)
	}
	if len(all) != 4 {
		t.Fatalf("%v", all)
	}
	for _, tool := range all {
		if want := map[string]string{"demo.other": "missing"}[tool.ToolId]; tool.AuthStatus != want {
			t.Errorf("%s has %q, want %q", tool.ToolId, tool.AuthStatus, want)
		}
	}
}

// TestListByTags: tags and the filter tag are asked for together.
func TestListByTags(t *testing.T) {
	r := l03v1.NewToolRegistryClient(newSystem().start(t))
	for q, want := range map[*l03v1.ListToolsRequest]int{
		{Tags: []string{"a"}}: 2, {Tags: []string{"a", "none"}}: 0,
		{Filters: map[string]string{"tag": "none"}}: 0, {Tags: []string{"none"}, Filters: map[string]string{"tag": "a"}}: 0,
	} {
		if out, err := r.ListTools(as(t.Context(), "admin"), q); err != nil || len(out.Tools) != want {
			t.Errorf("%v: %v %v", q, out, err)
		}
	}
	_, err := r.ListTools(as(t.Context(), "admin"), &l03v1.ListToolsRequest{Tags: make([]string, maxTags+1)})
	wantCode(t, err, toolkeep.InvalidParameters)
}

// TestGzip: a compressed request is read and answered compressed, and the size limit holds for what it unpacks to.
func TestGzip(t *testing.T) {
	s := newSystem()
	s.front.Limits.BodyBytes = 1 << 16
	var packed atomic.Int64
	r := l03v1.NewToolRegistryClient(s.start(t, grpc.WithStatsHandler(wireSizes{&packed})))
	found, err := r.ListTools(as(t.Context(), "admin"), &l03v1.ListToolsRequest{}, grpc.UseCompressor(gzip.Name))
	if err != nil || len(found.Tools) != 2 || packed.Load() != 1 {
		t.Errorf("%v %v, %d compressed answers", found, err, packed.Load())
	}
	_, err = r.ListTools(as(t.Context(), "admin"), &l03v1.ListToolsRequest{CapabilityQuery: strings.Repeat("x", 1<<24)}, grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("16 MiB packed into a few KiB: %v", err)
	}
}

// wireSizes counts the compressed answers.
type wireSizes struct{ packed *atomic.Int64 }

func (wireSizes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (wireSizes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (wireSizes) HandleConn(context.Context, stats.ConnStats)                       {}
func (w wireSizes) HandleRPC(_ context.Context, s stats.RPCStats) {
	if in, ok := s.(*stats.InHeader); ok && in.Compression == gzip.Name {
		w.packed.Add(1)
	}
}
