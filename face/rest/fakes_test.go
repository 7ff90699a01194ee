package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/function"
	"github.com/toolkeep/toolkeep/catalog/source/grpc"
	"github.com/toolkeep/toolkeep/control/health"
	"github.com/toolkeep/toolkeep/control/imports"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/invoke"
)

// Fakes with function fields; a nil field is a call that the test did not expect.

type fakeAuth func(bearer, addr string) (*toolkeep.Principal, error)

func (f fakeAuth) Authenticate(_ context.Context, bearer, addr string) (*toolkeep.Principal, error) {
	return f(bearer, addr)
}

type fakeInvoker func(context.Context, *toolkeep.Principal, *toolkeep.Call) (*toolkeep.Result, error)

func (f fakeInvoker) Invoke(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
	if c.Fault != nil {
		c.Fault.InvocationID = "refused-1"
		return nil, c.Fault
	}
	return f(ctx, p, c)
}

type fakeCalls struct {
	get     func(*toolkeep.Principal, string) (*toolkeep.Invocation, error)
	list    func(*toolkeep.Principal, toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error)
	cancel  func(p *toolkeep.Principal, id, why string) (bool, string, error)
	watch   func(context.Context, *toolkeep.Principal, string) iter.Seq2[*toolkeep.Invocation, error]
	follow  func(context.Context, *toolkeep.Principal, toolkeep.InvocationFilter) iter.Seq2[invoke.LiveEvent, error]
	explain func(*toolkeep.Principal, *toolkeep.Call) (any, error)
}

func (f *fakeCalls) Get(_ context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error) {
	return f.get(p, id)
}
func (f *fakeCalls) List(_ context.Context, p *toolkeep.Principal, q toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
	return f.list(p, q)
}
func (f *fakeCalls) Cancel(_ context.Context, p *toolkeep.Principal, id, why string) (bool, string, error) {
	return f.cancel(p, id, why)
}
func (f *fakeCalls) Watch(ctx context.Context, p *toolkeep.Principal, id string) iter.Seq2[*toolkeep.Invocation, error] {
	return f.watch(ctx, p, id)
}
func (f *fakeCalls) Requeue(_ context.Context, p *toolkeep.Principal, id string) (*toolkeep.Invocation, error) {
	return f.get(p, id)
}
func (f *fakeCalls) Follow(ctx context.Context, p *toolkeep.Principal, q toolkeep.InvocationFilter) iter.Seq2[invoke.LiveEvent, error] {
	return f.follow(ctx, p, q)
}
func (f *fakeCalls) Explain(_ context.Context, p *toolkeep.Principal, c *toolkeep.Call) (any, error) {
	return f.explain(p, c)
}
func (f *fakeCalls) Result(v *toolkeep.Invocation) *toolkeep.Result {
	r := &toolkeep.Result{InvocationID: v.ID, State: v.State, ToolID: v.ToolID, ToolVersion: v.Version, CallID: v.CallID,
		Output: v.Output, StartedAt: v.StartedAt, EndedAt: v.EndedAt, Attempts: v.Attempts, Warnings: v.Warnings}
	if v.Code != "" {
		r.Error = toolkeep.NewError(v.Code, "%s", v.Message)
	}
	return r
}

type fakeCatalog struct {
	resolve  func(p *toolkeep.Principal, tool, rng string) (toolkeep.Version, []toolkeep.Warning, error)
	publish  func(*toolkeep.Principal, [][]byte, catalog.PublishOptions) ([]catalog.Published, error)
	setState func(id, version string, ch catalog.StateChange) (toolkeep.Lifecycle, error)
	list     func(catalog.Filter) ([]catalog.Summary, int)
	versions func(id string) ([]toolkeep.Version, error)
	sees     func(visible func(*toolkeep.Tool) bool) // is told what Describe may show
	said     []string                                // by SetAbout and SetChoice
	chosen   map[string]catalog.Choice               // by SetChoice
}

func (f *fakeCatalog) Describe(_ context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	return f.Find(p, tool, rng, visible)
}

func (f *fakeCatalog) Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	if f.sees != nil {
		f.sees(visible)
	}
	if f.resolve == nil {
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "there is no tool %s", toolkeep.ClipBytes(tool, 100))
	}
	v, warnings, err := f.resolve(p, tool, rng)
	if err == nil && v.Tool != nil && visible != nil && !visible(v.Tool) {
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "there is no tool %s", toolkeep.ClipBytes(tool, 100))
	}
	return v, warnings, err
}
func (f *fakeCatalog) Publish(_ context.Context, p *toolkeep.Principal, m [][]byte, o catalog.PublishOptions) ([]catalog.Published, error) {
	return f.publish(p, m, o)
}
func (f *fakeCatalog) SetAbout(_ context.Context, p *toolkeep.Principal, namespace, text string, from catalog.AboutFrom, shared bool) error {
	f.said = append(f.said, fmt.Sprintf("%s %s %q %t %d", p.Tenant, namespace, text, shared, from))
	return nil
}

func (f *fakeCatalog) Choices(context.Context, *toolkeep.Principal, string, bool) (map[string]catalog.Choice, error) {
	return f.chosen, nil
}

func (f *fakeCatalog) SetChoice(_ context.Context, _ *toolkeep.Principal, namespace, title string, c catalog.Choice, shared bool) error {
	f.said = append(f.said, fmt.Sprintf("%s %s %v %t", namespace, title, c, shared))
	f.chosen = map[string]catalog.Choice{title: c}
	return nil
}

func (f *fakeCatalog) PublishChecked(ctx context.Context, p *toolkeep.Principal, checked []*catalog.Checked, o catalog.PublishOptions) ([]catalog.Published, error) {
	var m [][]byte
	for _, c := range checked {
		m = append(m, c.Raw())
	}
	return f.Publish(ctx, p, m, o)
}
func (f *fakeCatalog) Highest(*toolkeep.Principal, string) *toolkeep.Tool { return nil }
func (f *fakeCatalog) SetState(_ context.Context, _ *toolkeep.Principal, id, version string, ch catalog.StateChange) (toolkeep.Lifecycle, error) {
	return f.setState(id, version, ch)
}
func (f *fakeCatalog) HoldByHand(_ context.Context, _ *toolkeep.Principal, id, version string, why *string) (toolkeep.Lifecycle, error) {
	life := toolkeep.Lifecycle{State: toolkeep.Active}
	if why != nil {
		life.Held = &toolkeep.Hold{Cause: toolkeep.CauseAdministrator, Why: *why}
	}
	f.said = append(f.said, id+"@"+version)
	return life, nil
}
func (f *fakeCatalog) List(_ *toolkeep.Principal, q catalog.Filter, _ func(*toolkeep.Tool) bool) ([]catalog.Summary, int) {
	return f.list(q)
}
func (f *fakeCatalog) Versions(_ *toolkeep.Principal, id string, _ func(*toolkeep.Tool) bool) ([]toolkeep.Version, error) {
	return f.versions(id)
}

type fakeSearch func(string, int, func(*toolkeep.Tool) bool) []discover.Match

func (f fakeSearch) Find(_ context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report) {
	wanted := func(t *toolkeep.Tool) bool {
		return (q.Category == "" || t.Manifest.Category == q.Category) && visible(t)
	}
	return f.search(q.Text, q.Limit, wanted), discover.Report{Strategy: discover.Keyword, Weights: discover.DefaultWeights}
}

func (f fakeSearch) Count(discover.Query, func(*toolkeep.Tool) bool) map[string]int {
	return map[string]int{"utility": 4, "mail": 3}
}

func (f fakeSearch) Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool {
	var out []*toolkeep.Tool
	for _, m := range f.search("", discover.MaxResults, visible) {
		out = append(out, m.Tool)
	}
	return out
}

func (f fakeSearch) search(q string, n int, visible func(*toolkeep.Tool) bool) []discover.Match {
	return f(q, n, visible)
}

type fakeSearchAdmin struct {
	flush   func(scope, id string) error
	reindex func(ids []string, embeddings bool) (int, error)
}

func (f *fakeSearchAdmin) Flush(_ context.Context, _ *toolkeep.Principal, scope, id string) error {
	return f.flush(scope, id)
}

func (f *fakeSearchAdmin) Reindex(_ context.Context, _ *toolkeep.Principal, ids []string, embeddings bool) (int, error) {
	return f.reindex(ids, embeddings)
}

type fakeKeys struct {
	create func(toolkeep.APIKey) (toolkeep.APIKey, string, error)
	revoke func(string) error
	list   func() ([]toolkeep.APIKey, error)
}

func (f *fakeKeys) CreateKey(_ context.Context, _ *toolkeep.Principal, k toolkeep.APIKey) (toolkeep.APIKey, string, error) {
	return f.create(k)
}
func (f *fakeKeys) CreateSignedKey(_ context.Context, _ *toolkeep.Principal, k toolkeep.APIKey) (toolkeep.APIKey, string, string, error) {
	k.RequireSignature = true
	made, text, err := f.create(k)
	return made, text, "tks_of_" + text, err
}
func (f *fakeKeys) RotateKey(_ context.Context, _ *toolkeep.Principal, id string, overlap time.Duration) (toolkeep.APIKey, string, string, error) {
	made, text, err := f.create(toolkeep.APIKey{Subject: "of " + id, Name: overlap.String()})
	return made, text, "", err
}
func (f *fakeKeys) ListRoles(*toolkeep.Principal) ([]access.Role, string, error) {
	return []access.Role{{Name: "clerk", Allow: []access.Rule{{Tools: []string{"demo.*"}}}}}, "/etc/roles.yaml", nil
}
func (f *fakeKeys) SetScope(_ context.Context, _ *toolkeep.Principal, id string, scope []string, _ bool) (toolkeep.APIKey, error) {
	return toolkeep.APIKey{ID: id, Subject: "bot", Roles: []string{"agent"}, Scope: scope}, nil
}
func (f *fakeKeys) RevokeKey(_ context.Context, _ *toolkeep.Principal, id string) error {
	return f.revoke(id)
}
func (f *fakeKeys) ListKeys(context.Context, *toolkeep.Principal) ([]toolkeep.APIKey, error) {
	return f.list()
}

type fakeBlobs func(id string) (toolkeep.Blob, io.ReadCloser, error)

func (f fakeBlobs) Open(_ context.Context, id string) (toolkeep.Blob, io.ReadCloser, error) {
	return f(id)
}

// fakeImports imports no documents for real.
type fakeImports func(r imports.Request) (*imports.Plan, []catalog.Published, error)

func (f fakeImports) OpenAPI(_ context.Context, _ *toolkeep.Principal, r imports.Request) (*imports.Plan, []catalog.Published, error) {
	return f(r)
}

func (f fakeImports) GRPC(_ context.Context, _ *toolkeep.Principal, o grpc.Options, pub catalog.PublishOptions) (*imports.Plan, []catalog.Published, error) {
	return f(imports.Request{Location: o.Target, Document: o.Protoset, Namespace: o.Namespace, Name: fmt.Sprintln(o.Plaintext, o.Services, o.Methods, o.Deadline, o.Auth), PublishOptions: pub})
}

func (f fakeImports) Functions(_ context.Context, _ *toolkeep.Principal, o function.Options, pub catalog.PublishOptions) (*imports.Plan, []catalog.Published, error) {
	return f(imports.Request{Server: o.URL, Document: o.Data, Namespace: o.Namespace, Name: fmt.Sprintln(o.Form, o.Method, o.SideEffects, o.Auth), PublishOptions: pub})
}

func (fakeImports) SetAbout(context.Context, *toolkeep.Principal, string, string, catalog.AboutFrom, bool) error {
	return nil
}

func (fakeImports) Choices(context.Context, *toolkeep.Principal, string, bool) (map[string]catalog.Choice, error) {
	return nil, nil
}

func (fakeImports) SetChoice(context.Context, *toolkeep.Principal, string, string, catalog.Choice, bool) error {
	return nil
}

func (fakeImports) Publish(context.Context, *toolkeep.Principal, *imports.Batch) error { return nil }

// front is what the gate before the face is made of.
type front = gate.Config

// system is a face over fakes; tests change its parts.
type system struct {
	Config
	front
	calls   *fakeCalls
	catalog *fakeCatalog
	keys    *fakeKeys
	log     bytes.Buffer
}

// newSystem knows admin (all permissions), agent (none), operator (of the home tenant) and
// limited (refused).
func newSystem() *system {
	s := &system{calls: &fakeCalls{}, catalog: &fakeCatalog{}, keys: &fakeKeys{}}
	s.Auth = fakeAuth(func(bearer, addr string) (*toolkeep.Principal, error) {
		switch bearer {
		case "admin":
			return &toolkeep.Principal{Subject: "admin", Tenant: "t", Permissions: []string{"*"}, Addr: addr}, nil
		case "agent":
			return &toolkeep.Principal{Subject: "agent", Tenant: "t", Addr: addr}, nil
		case "operator": // of the server
			return &toolkeep.Principal{Subject: "operator", Tenant: "default", Permissions: []string{toolkeep.PermOperate}, Addr: addr}, nil
		case "limited":
			return nil, toolkeep.NewError(toolkeep.AuthFailuresLimited, "too many failures").After(90 * time.Second)
		}
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "send a valid key")
	})
	s.Config = Config{
		Invoker: fakeInvoker(nil), Calls: s.calls, Catalog: s.catalog, Keys: s.keys,
		Visible: func(*toolkeep.Principal, *toolkeep.Tool) bool { return true },
		Search:  fakeSearch(nil),
		// The document has the routes of usage; tests of them have a fake of their own.
		Retrievals: &fakeUsage{}, Learning: &fakeUsage{},
		Blobs:       fakeBlobs(nil),
		Invalidate:  func(context.Context, string, string, string) (int, error) { return 0, nil },
		SearchAdmin: &fakeSearchAdmin{},
		Nodes:       fakeNodes(nil),
		Policies:    fakePolicies(nil),
		Breakers:    fakeBreakers(nil),
		ToolHealth: func(_ *toolkeep.Principal, t *toolkeep.Tool) health.Health {
			return health.Health{ToolID: t.ID, Status: health.Degraded, Breaker: "closed"}
		},
		Health:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status":"UP"}`) }),
		Version: "1.2.3",
		Log:     slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	s.Callable = func(p *toolkeep.Principal, t *toolkeep.Tool) bool { return s.Visible(p, t) }
	s.Imports = imports.New(imports.Config{Catalog: s.catalog, Visible: func(p *toolkeep.Principal, t *toolkeep.Tool) bool { return s.Visible(p, t) }})
	return s
}

// api is the face behind its gate.
func (s *system) api() *API {
	s.front.Log = s.Config.Log
	s.Gate = gate.New(s.front)
	return New(s.Config)
}

// decodeCall reads a call as a face of newSystem does.
func decodeCall(body []byte, h http.Header) (c *toolkeep.Call, dryRun bool) {
	a := decoding()
	c = &toolkeep.Call{Face: "rest"}
	a.gate.Call(gate.HTTP(h), c)
	return c, a.decodeCall(body, c)
}

var decoding = sync.OnceValue(func() *API { return newSystem().api() })

// do sends one request to the handler; headers are "Name: value". The caller is
// admin unless a header says otherwise.
func (s *system) do(t *testing.T, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return send(t, s.api(), method, path, body, headers...)
}

// send is do for a handler that is there; it holds the exchange against the
// document.
func send(t *testing.T, h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, path, rd)
	r.Host = "127.0.0.1:8080"
	r.Header.Set("Authorization", "Bearer admin")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		if k == "Host" {
			r.Host = v
			continue
		}
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	theContract().check(t, r, body, w)
	return w
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Fatalf("status %d, want %d; body %s", w.Code, want, w.Body)
	}
}

// problem reads a problem document and checks that it is one, with the code.
func problem(t *testing.T, w *httptest.ResponseRecorder, want toolkeep.Code) *gate.Problem {
	t.Helper()
	if ct := w.Header().Get("Content-Type"); ct != gate.ProblemType {
		t.Fatalf("Content-Type %q, want a problem; status %d body %s", ct, w.Code, w.Body)
	}
	var p gate.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	if p.Code != string(want) || p.Status != w.Code || p.Name != want.Info().Name || p.Class != want.Info().Class {
		t.Fatalf("problem %+v with status %d, want code %s", p, w.Code, want)
	}
	return &p
}

func decode(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var m map[string]any
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return m
}

var at = time.Date(2026, 1, 2, 3, 4, 5, 600_000_000, time.UTC)

func succeeded() *toolkeep.Result {
	return &toolkeep.Result{InvocationID: "01900000-0000-7000-8000-000000000001", CallID: "call-1", ToolID: "demo.hash", ToolVersion: "1.2.0",
		State: toolkeep.CallSucceeded, Output: []byte(`{"n":9007199254740993,"html":"<b>"}`), Attempts: 1,
		StartedAt: at, EndedAt: at.Add(15 * time.Millisecond), ToolTime: 10 * time.Millisecond, Overhead: 300 * time.Microsecond}
}

func demoTool() *toolkeep.Tool {
	return &toolkeep.Tool{ID: "demo.hash", Version: "1.2.0", Digest: "sha256:ab", Raw: []byte(`{"tool_id":"demo.hash"}`),
		Manifest: &toolkeep.Manifest{ToolID: "demo.hash", Version: "1.2.0", Description: "Hashes text", Category: "utility", Verb: "hash",
			Complexity: "low", Tags: []string{"text"},
			ParametersSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"},"algorithm":{"type":"string"}},"required":["text"]}`),
			Examples:         []toolkeep.Example{{Scenario: "a word", Input: json.RawMessage(`{"text":"a"}`)}}}}
}

// number is what decode makes of a number.
func number(s string) json.Number { return json.Number(s) }
