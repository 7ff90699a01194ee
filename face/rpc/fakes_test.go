package rpc

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fakeAuth func(bearer, addr string) (*toolkeep.Principal, error)

func (f fakeAuth) Authenticate(_ context.Context, bearer, addr string) (*toolkeep.Principal, error) {
	return f(bearer, addr)
}

type fakeInvoker func(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error)

func (f fakeInvoker) Invoke(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
	return f(ctx, p, c)
}

type fakeCalls struct {
	get     func(p *toolkeep.Principal, id string) (*toolkeep.Invocation, error)
	cancel  func(p *toolkeep.Principal, id, why string) (bool, string, error)
	watch   func(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error]
	explain func(c *toolkeep.Call) (any, error)
}

func (f *fakeCalls) Get(_ context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error) {
	return f.get(p, id)
}
func (f *fakeCalls) Cancel(_ context.Context, p *toolkeep.Principal, id, why string) (bool, string, error) {
	return f.cancel(p, id, why)
}
func (f *fakeCalls) Watch(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error] {
	return f.watch(ctx, p, id)
}
func (f *fakeCalls) Explain(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (any, error) {
	return f.explain(c)
}
func (f *fakeCalls) Result(v *toolkeep.Invocation) *toolkeep.Result {
	return &toolkeep.Result{InvocationID: v.ID, State: v.State, Output: v.Output, Progress: v.Progress}
}

type fakeCatalog struct {
	tools []*toolkeep.Tool
}

func (f *fakeCatalog) Describe(_ context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	return f.Find(p, tool, rng, visible)
}

func (f *fakeCatalog) Find(_ *toolkeep.Principal, tool, _ string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	for _, t := range f.tools {
		if t.ID == tool && visible(t) {
			return toolkeep.Version{Tool: t, Life: toolkeep.Lifecycle{State: toolkeep.Active}}, nil, nil
		}
	}
	return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "there is no tool %s", tool)
}

func (f *fakeCatalog) List(_ *toolkeep.Principal, q catalog.Filter, visible func(*toolkeep.Tool) bool) ([]catalog.Summary, int) {
	var all []catalog.Summary
	for _, t := range f.tools {
		if visible(t) && (q.Among == nil || slices.Contains(q.Among, t.ID)) && !slices.Contains(q.Tags, "none") && (q.Category == "" || t.Manifest.Category == q.Category) {
			all = append(all, catalog.Summary{ToolID: t.ID, Category: t.Manifest.Category, Versions: []string{t.Version}, LatestVersion: t.Version, State: toolkeep.Active})
		}
	}
	lo := min(q.Offset, len(all))
	return all[lo:min(lo+q.Limit, len(all))], len(all)
}

func (f *fakeCatalog) Versions(p *toolkeep.Principal, id string, visible func(*toolkeep.Tool) bool) ([]toolkeep.Version, error) {
	v, _, err := f.Find(p, id, "", visible)
	return []toolkeep.Version{v}, err
}

type fakeSearch struct{ f *fakeCatalog }

// Find finds all tools, and returns in Degraded whose query it was.
func (s fakeSearch) Find(_ context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report) {
	var out []discover.Match
	for _, t := range s.f.tools {
		if (q.Category == "" || t.Manifest.Category == q.Category) && visible(t) && len(out) < q.Limit {
			out = append(out, discover.Match{Tool: t, Score: 1, Why: []string{"name"}, Parts: discover.Parts{Semantic: 0.5, Keyword: 0.25, History: 0.75, Success: 0.9, Complexity: 1, Action: -1, Learned: 0.125, Named: true}})
		}
	}
	r := discover.Report{Strategy: cmp.Or(q.Strategy, discover.Hybrid), Weights: discover.DefaultWeights, Cut: len([]rune(q.Text)) > discover.MaxQuestion}
	if q.Session.ID != "" {
		r.Degraded = q.Session.Tenant + "/" + q.Session.Subject + "/" + q.Session.ID
	}
	return out, r
}

func (s fakeSearch) Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool {
	return slices.DeleteFunc(slices.Clone(s.f.tools), func(t *toolkeep.Tool) bool { return !visible(t) })
}

func toolOf(id, category, schema string) *toolkeep.Tool {
	return &toolkeep.Tool{ID: id, Version: "1.0.0", Digest: "sha256:ab", Raw: []byte(`{"tool_id":"` + id + `"}`),
		Manifest: &toolkeep.Manifest{ToolID: id, Version: "1.0.0", Category: category, Description: "A tool", ParametersSchema: json.RawMessage(schema)}}
}

// system is a face over fakes; tests change its parts before start.
type system struct {
	Config
	front   gate.Config // of the gate in front of the face
	calls   *fakeCalls
	catalog *fakeCatalog
	log     servertest.Log
	server  *Server
}

// newSystem sets up two callers, admin (all permissions) and agent (none).
func newSystem() *system {
	s := &system{calls: &fakeCalls{}, catalog: &fakeCatalog{tools: []*toolkeep.Tool{
		toolOf("demo.text", "text", `{"properties":{"text":{"type":"string"},"n":{"type":"integer"}}}`), toolOf("demo.other", "other", `{}`)}}}
	s.front.Auth = fakeAuth(func(bearer, addr string) (*toolkeep.Principal, error) {
		switch bearer {
		case "admin":
			return &toolkeep.Principal{Subject: "admin", Tenant: "t", Permissions: []string{"*"}, Addr: addr}, nil
		case "agent":
			return &toolkeep.Principal{Subject: "agent", Tenant: "t", Addr: addr}, nil
		}
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "send a valid key")
	})
	s.Config = Config{
		Invoker: fakeInvoker(func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error) {
			return succeeded(), nil
		}),
		Calls: s.calls, Catalog: s.catalog, Search: fakeSearch{s.catalog},
		Visible: func(p *toolkeep.Principal, t *toolkeep.Tool) bool {
			return p.Subject == "admin" || t.ID != "demo.other"
		},
		Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	s.Callable = func(p *toolkeep.Principal, t *toolkeep.Tool) bool { return s.Visible(p, t) }
	return s
}

var at = time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)

const someID = "01900000-0000-7000-8000-000000000001"

func succeeded() *toolkeep.Result {
	return &toolkeep.Result{InvocationID: someID, CallID: "call-1", ToolID: "demo.text", ToolVersion: "1.2.0",
		State: toolkeep.CallSucceeded, Output: []byte(`{"html":"<b>","n":9007199254740993}`), Attempts: 1,
		StartedAt: at, EndedAt: at.Add(15 * time.Millisecond), ToolTime: 10 * time.Millisecond, Overhead: 300 * time.Microsecond}
}

// start serves over an in-memory connection and ends with the test.
func (s *system) start(t testing.TB, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	return s.serve(t, l, append(more, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))...)
}

// face is the face behind its gate.
func (s *system) face() *Server {
	s.Gate = gate.New(s.front)
	return New(s.Config)
}

func (s *system) serve(t testing.TB, l net.Listener, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	s.server = s.face()
	done := make(chan error, 1)
	go func() { done <- s.server.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///server", append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.server.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return conn
}

func as(ctx context.Context, key string, more ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append(more, "authorization", "Bearer "+key)...)
}

// ask returns a request with the fields every call has.
func ask(change func(*l03v1.ToolInvocationRequest)) *l03v1.ToolInvocationRequest {
	m := &l03v1.ToolInvocationRequest{ToolId: "demo.text"}
	if change != nil {
		change(m)
	}
	return m
}
