package invoke_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/inspect"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/resultcache"
	"github.com/toolkeep/toolkeep/schema"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/blob"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is one pipeline over a real store, with hand-made neighbours.
type harness struct {
	t        *testing.T
	dir      string
	store    *sqlite.Store
	pipeline *invoke.Pipeline
	config   invoke.Config
	catalog  *fakeCatalog
	access   *fakeAccess
	limits   *fakeLimits
	executor *fakeExecutor
	observed chan *toolkeep.Invocation
	redact   *redact.Redactor

	mu    sync.Mutex
	queue []toolkeep.Enqueue
}

var alice = &toolkeep.Principal{Subject: "alice", Tenant: "acme", Roles: []string{"agent"}, KeyID: "k1"}

func newHarness(t *testing.T, change ...func(*invoke.Config)) *harness {
	t.Helper()
	h := &harness{t: t, dir: t.TempDir(), catalog: &fakeCatalog{tools: map[string]*toolkeep.Tool{}}, access: &fakeAccess{},
		limits: newLimits(), executor: &fakeExecutor{}, observed: make(chan *toolkeep.Invocation, 1000), redact: redact.NewRedactor(time.Now)}
	h.open(change...)
	t.Cleanup(h.close)
	return h
}

func (h *harness) open(change ...func(*invoke.Config)) {
	h.t.Helper()
	ctx := context.Background()
	var err error
	h.store, err = sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(h.dir, "toolkeep.db"),
		Enqueue: func(_ context.Context, _ *sql.Tx, e toolkeep.Enqueue) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.queue = append(h.queue, e)
			return nil
		}})
	if err != nil {
		h.t.Fatal(err)
	}
	blobs, err := blob.Open(filepath.Join(h.dir, "blobs"))
	if err != nil {
		h.t.Fatal(err)
	}
	sealer, err := secret.OpenSealer(filepath.Join(h.dir, "seal.key"))
	if err != nil {
		h.t.Fatal(err)
	}
	schemas := schema.NewCache(0)
	h.config = invoke.Config{
		Catalog: h.catalog, Access: h.access, Limits: h.limits, Results: resultcache.New(resultcache.Config{}), Secrets: fakeSecrets{}, Sealer: sealer,
		Blobs: blobs, Store: h.store, Invocations: h.store.Invocations(), Marks: h.store.CallMarks(), Executors: map[string]toolkeep.Executor{"builtin": h.executor},
		Schemas: schemas, Inspector: inspect.New(inspect.Config{Schemas: schemas}), Redact: h.redact, Node: "node-1", Alone: true,
		SpoolPath: filepath.Join(h.dir, "spool.jsonl"), Observer: observer(h.observed),
		RecordWait: 5 * time.Second, // a busy machine is not a store that is away
	}
	for _, f := range change {
		f(&h.config)
	}
	if h.pipeline, err = invoke.New(h.config); err != nil {
		h.t.Fatal(err)
	}
	if err := h.pipeline.Start(ctx); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) close() {
	h.pipeline.Stop()
	if err := h.store.Close(); err != nil {
		h.t.Error(err)
	}
}

// tool registers a tool named std.NAME.
func (h *harness) tool(name string, change ...func(*toolkeep.Manifest)) *toolkeep.Tool {
	m := &toolkeep.Manifest{ToolID: "std." + name, Version: "1.0.0", Description: "a tool of the test", SideEffects: "reads", Risk: "low",
		Execution:        toolkeep.ExecutionSpec{Kind: "builtin"},
		ParametersSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}},"additionalProperties":false}`),
		Retry:            &toolkeep.RetrySpec{BaseDelayMS: new(int64)}}
	for _, f := range change {
		f(m)
	}
	t := &toolkeep.Tool{ID: m.ToolID, Version: m.Version, Digest: "sha256:" + name, Manifest: m}
	h.catalog.mu.Lock()
	h.catalog.tools[t.ID] = t
	h.catalog.mu.Unlock()
	return t
}

func writes(m *toolkeep.Manifest) { m.SideEffects = "writes" }

func (h *harness) call(c *toolkeep.Call) (*toolkeep.Result, *toolkeep.Error) {
	h.t.Helper()
	res, err := h.pipeline.Invoke(context.Background(), alice, c)
	if (res == nil) == (err == nil) {
		h.t.Fatalf("Invoke gave %v and %v; exactly one must be set", res, err)
	}
	return res, toolkeep.AsError(err)
}

func (h *harness) row(id string) *toolkeep.Invocation {
	h.t.Helper()
	v, err := h.store.Invocations().Get(context.Background(), toolkeep.CallRef{Tenant: "acme", ID: id})
	if err != nil {
		h.t.Fatalf("the row of %s: %v", id, err)
	}
	return v
}

// work runs everything queued, as the queue's worker would.
func (h *harness) work() {
	h.t.Helper()
	for {
		h.mu.Lock()
		if len(h.queue) == 0 {
			h.mu.Unlock()
			return
		}
		e := h.queue[0]
		h.queue = h.queue[1:]
		h.mu.Unlock()
		if err := h.pipeline.Run(context.Background(), e.Call); err != nil {
			h.t.Fatal(err)
		}
	}
}

func wantCode(t *testing.T, err *toolkeep.Error, code toolkeep.Code) {
	t.Helper()
	if err == nil || err.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
}

type observer chan *toolkeep.Invocation

func (o observer) Called(v *toolkeep.Invocation, _ *toolkeep.Tool, _ *toolkeep.Error, _ []time.Duration) {
	own := *v
	o <- &own
}

type fakeCatalog struct {
	mu    sync.Mutex
	tools map[string]*toolkeep.Tool
	gone  atomic.Bool // every tool is blocked
}

func (c *fakeCatalog) Resolve(_ context.Context, _ *toolkeep.Principal, tool, _ string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tools[strings.TrimPrefix(tool, "capability:")]
	if t == nil { // as exports name it
		t = c.tools[strings.Replace(tool, "__", ".", 1)]
	}
	if t == nil || !visible(t) {
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "no tool %s", tool)
	}
	if c.gone.Load() {
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolBlocked, "%s is blocked", tool).With("tool_id", t.ID)
	}
	return toolkeep.Version{Tool: t, Life: toolkeep.Lifecycle{State: toolkeep.Active}}, nil, nil
}

func (c *fakeCatalog) Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	if visible == nil {
		visible = func(*toolkeep.Tool) bool { return true }
	}
	return c.Resolve(context.Background(), p, tool, rng, visible)
}

func (c *fakeCatalog) Offering(_ *toolkeep.Principal, name string, visible func(*toolkeep.Tool) bool) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, t := range c.tools {
		if slices.Contains(t.Manifest.Capabilities, name) && visible(t) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

type fakeAccess struct {
	deny     atomic.Bool
	denials  atomic.Int64
	unknowns atomic.Int64
	revoked  atomic.Bool
	unknown  atomic.Bool // the key cannot be looked up
	blocked  atomic.Pointer[toolkeep.Error]
	policy   access.Policy // nil: none
	actAs    bool
	hidden   string // id of a tool

	hiddenFrom string // the one whom it is hidden from; "" is all
}

func (a *fakeAccess) Policy() access.Policy { return a.policy }

func (a *fakeAccess) SignedCall(context.Context, *toolkeep.Principal, *toolkeep.Call, map[string]any) error {
	return toolkeep.NewError(toolkeep.SignatureInvalid, "signatures are not verified here")
}
func (a *fakeAccess) ActingAs(p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Principal, error) {
	if c.Subject != "" && c.Subject != p.Subject && a.actAs {
		return p.As(c.Subject, c.User)
	}
	if c.Subject != "" && c.Subject != p.Subject {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "not you")
	}
	return p, nil
}

func (a *fakeAccess) Refresh(_ context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	if a.unknown.Load() {
		return nil, toolkeep.NewError(toolkeep.RegistryUnavailable, "the keys cannot be read")
	}
	if a.revoked.Load() {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the key was revoked")
	}
	return p, nil
}

func (a *fakeAccess) Blocked(*toolkeep.Principal) error {
	if e := a.blocked.Load(); e != nil {
		own := *e
		return &own
	}
	return nil
}

func (a *fakeAccess) NoteDenied(*toolkeep.Principal, string) { a.denials.Add(1) }

func (a *fakeAccess) NoteUnknown(*toolkeep.Principal) { a.unknowns.Add(1) }

func (a *fakeAccess) Sees(p *toolkeep.Principal, _ *toolkeep.Call) *toolkeep.Principal { return p }

func (a *fakeAccess) Visible(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	return t.ID != a.hidden || a.hiddenFrom != "" && p.Subject != a.hiddenFrom
}

func (a *fakeAccess) Callable(p *toolkeep.Principal, t *toolkeep.Tool) bool { return a.Visible(p, t) }

func (a *fakeAccess) Authorise(*toolkeep.Principal, *toolkeep.Tool, *toolkeep.Call) access.Decision {
	if a.deny.Load() {
		return access.Decision{Code: toolkeep.PermissionDenied, Reason: "denied by the test", Checks: []access.Check{{Name: "roles", Reason: "denied by the test"}}}
	}
	return access.Decision{Allowed: true, Checks: []access.Check{{Name: "roles", Allowed: true, Reason: "the test lets it"}}}
}

// fakeLimits refuses what the test says. The slots are real ones, without rates.
type fakeLimits struct {
	*limit.Limits
	refuse atomic.Pointer[toolkeep.Error]
	taken  atomic.Int64
	called atomic.Int64 // Take
}

// agentSlots is how many calls an agent may have at once in the tests.
const agentSlots = 1000

func newLimits() *fakeLimits {
	return &fakeLimits{Limits: limit.New(limit.Config{PerAgentRPM: -1, PerToolRPM: -1, GlobalRPM: -1, Concurrent: agentSlots})}
}

func (l *fakeLimits) TakeRequest(context.Context, *toolkeep.Principal) (toolkeep.RateLeft, error) {
	l.taken.Add(1)
	return toolkeep.RateLeft{}, nil
}

func (l *fakeLimits) Take(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, upstream string, above *limit.Slots) (*limit.Slots, error) {
	l.called.Add(1)
	if e := l.refuse.Load(); e != nil {
		own := *e
		return nil, &own
	}
	return l.Limits.Take(ctx, p, t, upstream, above)
}

func (l *fakeLimits) Peek(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, upstream string, child bool) error {
	if e := l.refuse.Load(); e != nil {
		return e
	}
	return l.Limits.Peek(ctx, p, t, upstream, child)
}

// held returns how many slots of alice's are in use.
func (l *fakeLimits) held() int {
	var free []*limit.Slots
	for {
		s, err := l.Limits.Take(context.Background(), alice, &toolkeep.Tool{ID: "std.none", Manifest: &toolkeep.Manifest{}}, "", nil)
		if err != nil {
			break
		}
		free = append(free, s)
	}
	for _, s := range free {
		s.Release()
	}
	return agentSlots - len(free)
}

type fakeSecrets struct{}

func (fakeSecrets) Credential(_ context.Context, _ *toolkeep.Principal, m *toolkeep.Manifest, s toolkeep.AuthSpec, _ bool) (secret.Equipped, error) {
	if err := secret.Allowed(m, s.Secret); err != nil {
		return secret.Equipped{}, err
	}
	if v, ok := strings.CutPrefix(s.Secret, "env://"); ok && v != "MISSING" {
		text := "s3cret-value-of-" + v
		return secret.Equipped{Value: secret.Value{Bytes: []byte(text), Scope: secret.Server, Store: "env"}, Held: []string{text}}, nil
	}
	return secret.Equipped{}, toolkeep.NewError(toolkeep.SecretNotFound, "no secret %s", s.Secret)
}

func (f fakeSecrets) Look(ctx context.Context, p *toolkeep.Principal, ref string) (secret.Status, error) {
	return secret.Status{State: secret.Ready, Scope: secret.Server}, f.Check(ctx, p, ref)
}

func (f fakeSecrets) Check(ctx context.Context, p *toolkeep.Principal, ref string) error {
	_, err := f.Credential(ctx, p, &toolkeep.Manifest{}, toolkeep.AuthSpec{Secret: ref}, false)
	return err
}

func (f fakeSecrets) Fingerprint(ctx context.Context, p *toolkeep.Principal, ref string) (secret.Fingerprint, bool) {
	return secret.Fingerprint{}, f.Check(ctx, p, ref) == nil
}

// fakeExecutor runs do, and counts.
type fakeExecutor struct {
	calls atomic.Int64
	do    func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error)
	from  map[string]string // upstreams of tools
}

func (e *fakeExecutor) UpstreamOf(_ *toolkeep.Principal, t *toolkeep.Tool) string {
	return e.from[t.ID]
}
func (*fakeExecutor) Kind() string                              { return "builtin" }
func (*fakeExecutor) Check(*toolkeep.Manifest) []toolkeep.Fault { return nil }
func (e *fakeExecutor) Execute(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
	n := e.calls.Add(1)
	if e.do != nil {
		return e.do(ctx, x)
	}
	return &toolkeep.Output{Value: map[string]any{"run": json.Number(fmt.Sprint(n))}, HasValue: true}, nil
}

// hold lets a test hold executions: each sends on started and waits.
func hold(started chan<- struct{}, goOn <-chan struct{}) func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
	return func(ctx context.Context, _ *toolkeep.Execution) (*toolkeep.Output, error) {
		started <- struct{}{}
		select {
		case <-goOn:
			return &toolkeep.Output{Value: "done", HasValue: true}, nil
		case <-ctx.Done():
			return nil, toolkeep.NewError(toolkeep.Cancelled, "stopped").Because(context.Cause(ctx))
		}
	}
}

var errBroken = errors.New("broken by the test")

func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}
