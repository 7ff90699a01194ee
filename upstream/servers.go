package upstream

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/redact"
)

// Secrets resolves a spec's secret references for the principal that a session acts
// for.
type Secrets interface {
	Resolve(ctx context.Context, s *Spec, p *toolkeep.Principal, ref string) (Value, error)
}

// Value is a resolved reference.
type Value struct {
	Text  string
	Held  []string     // secret parts, to be redacted
	Scope redact.Scope // whose results Held is redacted from
}

// Authorizer authorizes one principal's requests to one HTTP server. Header returns
// headers to add to each request. Unauthorized is called on HTTP 401, and on 403 if the
// server asks for more scopes; if it returns nil the request is sent once more. An
// error of either, such as E3407, reaches the caller unchanged.
type Authorizer interface {
	Header(ctx context.Context) (http.Header, error)
	Unauthorized(ctx context.Context, r *http.Response) error
}

// Config configures Servers. Reaper (on Linux) and Dir are required for stdio servers;
// everything else has a default.
type Config struct {
	// Reaper is the argv prefix of the reaper process, a program that passes the rest
	// of its arguments to RunReaper, such as {"/proc/self/exe", "__reaper"}.
	Reaper []string
	// Dir holds a private folder for each tenant and stdio server.
	Dir string
	// Client is the implementation object sent to servers; default
	// {"name":"toolkeep","version":"dev"}.
	Client []byte
	// Secrets resolves references; if nil, every reference is E3401.
	Secrets Secrets
	// Redact holds the secrets of running servers, and redacts logs and what callers
	// see; nil creates one.
	Redact *redact.Redactor
	Log    *slog.Logger // nil: none
	Clock  func() time.Time
	// HTTPClient returns the client for a tenant and the inner addresses its spec
	// opens; nil uses Go's default client, which reaches every address.
	HTTPClient func(tenant string, network []toolkeep.HostPort) *http.Client
	// Authorize returns the Authorizer of a principal, whose subject is "" in a session
	// of the whole tenant; a nil Authorizer means none. An error fails the session.
	Authorize func(ctx context.Context, s *Spec, p *toolkeep.Principal) (Authorizer, error)
	// OnDefinitions is called with definitions that changed, or that replace unsettled
	// ones. Calls for one server and tenant do not overlap, and tool calls that wait
	// for a new session continue when it returns.
	OnDefinitions func(server, tenant string, d Definitions)
	// Accepted returns the accepted definitions of a server's tool, see server.taken;
	// nil means none are known.
	Accepted func(owner, server, tool string) [][]byte
	// VerifyPinned checks before each tools/call that the tool's definition is an
	// accepted one; its error reaches the caller. With OnDefinitions set, the tools of
	// a new session have been read by then.
	VerifyPinned func(owner, server, tenant, tool string) error

	// What follows only tests set.

	stopGrace     time.Duration // between closing stdin, SIGTERM and SIGKILL; default 2 s
	restartLimit  int           // failures within restartWindow until a server rests; default 5
	restartWindow time.Duration // default 5 min
	backoffBase   time.Duration // pause after the second failure, doubled at each; default 1 s
	backoffMax    time.Duration // default 30 s
	cooling       time.Duration // how long a failed server rests; default 1 min
	logBytes      int           // kept for each server and tenant; default 256 KiB
}

// drainTime is for calls on a server that Set changes or removes.
const drainTime = 30 * time.Second

func (c Config) filled() Config {
	if c.Client == nil {
		c.Client = []byte(`{"name":"toolkeep","version":"dev"}`)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Redact == nil {
		c.Redact = redact.NewRedactor(c.Clock)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.stopGrace = cmp.Or(c.stopGrace, 2*time.Second)
	c.restartLimit = cmp.Or(c.restartLimit, 5)
	c.restartWindow = cmp.Or(c.restartWindow, 5*time.Minute)
	c.backoffBase = cmp.Or(c.backoffBase, time.Second)
	c.backoffMax = cmp.Or(c.backoffMax, 30*time.Second)
	c.cooling = cmp.Or(c.cooling, time.Minute)
	c.logBytes = cmp.Or(c.logBytes, 256<<10)
	return c
}

// settings is the Config plus what lives as long as Servers.
type settings struct {
	Config
	ctx context.Context // ends when Stop's time is up
}

func (c *settings) client() []byte { return c.Client }

// Servers are all MCP servers behind this process. It is safe for concurrent use.
type Servers struct {
	config *settings
	kill   context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	servers map[ident]*server
	stopped bool
	ended   chan struct{} // closed when Stop is done
}

// ident names a server: two tenants may use the same name.
type ident struct{ tenant, name string }

// New returns Servers without any server.
func New(c Config) *Servers {
	s := &Servers{config: &settings{Config: c.filled()}, servers: make(map[ident]*server), ended: make(chan struct{})}
	s.config.ctx, s.kill = context.WithCancel(context.Background())
	return s
}

// Stop refuses new calls with E3912, gives calls under way until ctx ends, and then
// ends every session. When it returns, no process, goroutine or descriptor of a server
// is left, whatever the servers did; that may take three times stopGrace longer than
// ctx. It may be called more than once.
func (s *Servers) Stop(ctx context.Context) error {
	s.mu.Lock()
	first := !s.stopped
	s.stopped = true
	list := make([]*server, 0, len(s.servers))
	for _, srv := range s.servers {
		list = append(list, srv)
	}
	s.mu.Unlock()
	if !first {
		<-s.ended
		return nil
	}
	var closing sync.WaitGroup
	for _, srv := range list {
		closing.Go(func() { srv.close(ctx) })
	}
	closing.Wait()
	s.kill()
	s.work.Wait()
	close(s.ended)
	return nil
}

// Set replaces the set of servers. A server whose spec changed gets no new calls, its
// calls under way are cut off after drainTime, and its sessions end. Its replacement
// keeps the log and, until it has been read itself, the definitions. Specs must have
// passed Validate; if two share name and tenant, the last one wins.
func (s *Servers) Set(specs []Spec) {
	want := make(map[ident]*Spec, len(specs))
	for i := range specs {
		spec := specs[i].Filled()
		want[ident{spec.Tenant, spec.Name}] = spec
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	for id, srv := range s.servers {
		if spec := want[id]; spec != nil && string(spec.Body()) == string(srv.spec.Body()) {
			delete(want, id)
			continue
		}
		if want[id] == nil {
			delete(s.servers, id)
			s.config.Log.Info("MCP server removed", "server", id.name, "owner", id.tenant)
		}
		s.work.Go(func() {
			ctx, cancel := context.WithTimeout(s.config.ctx, drainTime)
			defer cancel()
			srv.close(ctx)
		})
	}
	for id, spec := range want {
		srv := &server{config: s.config, spec: spec, work: &s.work, slots: make(map[key]*slot), states: make(map[string]*tenantState)}
		if old := s.servers[id]; old != nil {
			srv.inherit(old)
		}
		s.servers[id] = srv
		s.config.Log.Info("MCP server set", "server", id.name, "owner", id.tenant, "transport", spec.Transport)
	}
}

// inherit takes over the state of the server it replaces.
func (s *server) inherit(old *server) {
	old.mu.Lock()
	defer old.mu.Unlock()
	for tenant, st := range old.states {
		st.defs.mu.Lock()
		last, seen, have := st.defs.last, st.defs.seen, st.defs.have
		st.defs.mu.Unlock()
		s.states[tenant] = &tenantState{
			tenant: tenant, log: st.log, messages: bucket{rate: noteRate, burst: 4 * noteRate},
			defs: &definitions{last: last, seen: seen, have: have, doubted: true},
		}
		st.log.note("the definition of the server was changed")
	}
}

// Get finds a server by name, first among those of the principal's tenant, then among
// those of all tenants. The Spec must not be changed.
func (s *Servers) Get(p *toolkeep.Principal, name string) (*Spec, bool) {
	srv := s.find(p, name)
	if srv == nil {
		return nil, false
	}
	return srv.spec, true
}

func (s *Servers) find(p *toolkeep.Principal, name string) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	if srv := s.servers[ident{p.Tenant, name}]; srv != nil {
		return srv
	}
	return s.servers[ident{"", name}]
}

// UpstreamOf names a server for redact.Scope, "" if the principal sees none of that name.
func (s *Servers) UpstreamOf(p *toolkeep.Principal, name string) string {
	if srv := s.find(p, name); srv != nil {
		return srv.spec.upstream()
	}
	return ""
}

// ActsForCaller reports whether a server needs the token that the principal came with.
func (s *Servers) ActsForCaller(p *toolkeep.Principal, name string) bool {
	srv := s.find(p, name)
	return srv != nil && srv.spec.Auth != nil
}

// Local reports whether a server is a program that this node runs (stdio).
func (s *Servers) Local(p *toolkeep.Principal, name string) bool {
	srv := s.find(p, name)
	return srv != nil && srv.spec.Transport == Stdio
}

// open finds the server for a call.
func (s *Servers) open(p *toolkeep.Principal, name string) (*server, error) {
	s.mu.Lock()
	stopped := s.stopped
	s.mu.Unlock()
	srv := s.find(p, name)
	switch {
	case stopped:
		return nil, draining()
	case srv == nil:
		return nil, unsentError(toolkeep.NewError(toolkeep.MCPUnavailable, "there is no MCP server %s (any more)", strconv.Quote(toolkeep.ClipBytes(name, 64))))
	case srv.spec.Disabled:
		return nil, down(srv.spec.Name, "it is switched off", true)
	}
	return srv, nil
}

// Peer is the connected caller of a running request. Neither method is called after the
// call, or the Binding's Close, has returned; a method that already runs may go on.
type Peer interface {
	// Ask sends the caller a request of the server: elicitation/create,
	// sampling/createMessage or roots/list. It must return when ctx ends.
	Ask(ctx context.Context, method string, params []byte) (result []byte, err error)
	// Notify delivers progress, log messages, list changes and the like, one at a time
	// and in order. If it is slow, it delays only the end of its own call.
	Notify(method string, params []byte)
}

// AskEach sends a peer the requests of inputRequests one by one.
func AskEach(ctx context.Context, p Peer, inputRequests []byte) (inputResponses []byte, err error) {
	out := []byte{'{'}
	for name, q := range mcp.Members(inputRequests) {
		result, err := p.Ask(ctx, mcp.Text(q, "method"), mcp.Get(q, "params"))
		if err != nil {
			return nil, err
		}
		out = member(out, name, result)
	}
	return append(out, '}'), nil
}

// Request is one caller's request to one server.
type Request struct {
	Principal *toolkeep.Principal
	Server    string
	Method    string
	// Params is a JSON object accepted by mcp.Parse or mcp.Check, or nil. A
	// progressToken in its _meta requests progress, which Peer receives under that
	// token.
	Params []byte
	// Session is the downstream session, or "". If the server may send requests to its
	// client, requests with the same Session reach the same upstream session.
	Session string
	Peer    Peer // nil without a connected caller
	// PeerCapabilities is the caller's raw MCP client capabilities object; nil means
	// everything that the server may ask for.
	PeerCapabilities []byte
	// Legacy says that the caller speaks a revision up to 2025-11-25. A session of its
	// own is then opened with initialize, if the server supports both.
	Legacy   bool
	MaxBytes int64 // of the result; 0 means the spec's limit
}

// passable refuses methods that belong to a session, not to a caller.
func passable(method string) error {
	switch {
	case method == mcp.MethodInitialize, method == mcp.MethodDiscover, method == mcp.MethodListen, strings.HasPrefix(method, "notifications/"), method == "":
		return mcp.NewError(mcp.CodeMethodNotFound, "this method is not forwarded")
	}
	return nil
}

// Do runs one request. The result is redacted for the principal, except that of a
// tools/call, which the pipeline redacts.
//
// A session is opened if there is none. If it turns out to be dead before any of the
// request was sent, a new one is opened, once. The end of ctx cancels the request at
// the server.
//
// Errors: *mcp.Error is the server's own answer. Everything else is a *toolkeep.Error
// whose NothingSent is exact: E3541 the server is down, resting, switched off or
// unknown; E3540 it violated the protocol; E3502 no sign of life within call_timeout_s
// (a server request that waits for the caller stops that clock), or ctx had a deadline;
// E3902 ctx was cancelled; E3710 the result is too large; E3802 all sessions are in
// use; E3407 the principal has to log in; E3401 to E3403 secrets; E3402 also HTTP 401
// and 403; E3503, E3505, E3510, E3520, E3801 as for HTTP tools; E3912 after Stop.
func (s *Servers) Do(ctx context.Context, r *Request) (*Answer, error) {
	if err := passable(r.Method); err != nil {
		return nil, err
	}
	srv, err := s.open(r.Principal, r.Server)
	if err != nil {
		return nil, err
	}
	switch r.Method {
	case mcp.MethodSetLevel, mcp.MethodSubscribe, mcp.MethodUnsubscribe:
		// They change the session for everyone who shares it.
		return nil, mcp.NewError(mcp.CodeMethodNotFound, r.Method+" needs a session that outlasts the call")
	}
	if r.Peer == nil && r.Method == mcp.MethodCallTool {
		return srv.do(ctx, r) // nothing to redact
	}
	cleaner := s.config.Redact.For(r.Principal).From(srv.spec.upstream())
	own := *r
	own.Peer = guarded(r.Peer, cleaner)
	a, err := srv.do(ctx, &own)
	return cleaned(cleaner, r.Method, a, err)
}

// Bind attaches a downstream session; see Binding. It ignores the request's Method,
// Params and MaxBytes. Errors are those of Do.
func (s *Servers) Bind(ctx context.Context, r *Request) (*Binding, error) {
	srv, err := s.open(r.Principal, r.Server)
	if err != nil {
		return nil, err
	}
	return srv.bind(ctx, r)
}

// Definitions returns what the server offers to the principal's tenant: the latest
// complete read, which may be older than the server, or a new read if there is none. It
// fails only if there are no definitions. Everything is redacted like a result, except
// the tools, which are compared with the accepted ones.
func (s *Servers) Definitions(ctx context.Context, p *toolkeep.Principal, name string) (Definitions, error) {
	srv, err := s.open(p, name)
	if err != nil {
		return Definitions{}, err
	}
	d, err := srv.definitionsFor(ctx, p, false)
	cleaner := s.config.Redact.For(p).From(srv.spec.upstream())
	if err != nil {
		err = cleanedError(cleaner, err)
	}
	return d.cleaned(cleaner), err
}

// Refresh reads the definitions now, and gives a server that has just started time to
// complete them: 250 ms, or 2 s if something is missing. On an error it also returns
// the previous definitions.
func (s *Servers) Refresh(ctx context.Context, p *toolkeep.Principal, name string) (Definitions, error) {
	srv, err := s.open(p, name)
	if err != nil {
		return Definitions{}, err
	}
	return srv.definitionsFor(ctx, p, true)
}

// Compare reads the definitions now, as Refresh does, but does not store them:
// OnDefinitions is not called, and Definitions still returns the old ones.
func (s *Servers) Compare(ctx context.Context, p *toolkeep.Principal, name string) (Definitions, error) {
	srv, err := s.open(p, name)
	if err != nil {
		return Definitions{}, err
	}
	return srv.compare(ctx, p)
}

// EndSession ends the sessions that were opened for a downstream session of the tenant
// (Request.Session), with their programs. One that serves a call ends with the call.
func (s *Servers) EndSession(tenant, session string) {
	if session == "" {
		return
	}
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.servers))
	s.mu.Unlock()
	for _, srv := range list {
		srv.endSession(tenant, session)
	}
}

// Restart ends the sessions of the principal's tenant, including calls under way, and
// clears failures. It returns E3013 if there is no such server.
func (s *Servers) Restart(p *toolkeep.Principal, name string) error {
	srv := s.find(p, name)
	if srv == nil {
		return unknown(name)
	}
	srv.restart(p.Tenant)
	return nil
}

// Renew has the tenant's next calls go to new sessions of a server. It ends the sessions so
// far, each once no call runs in it any more, and keeps failures. E3013 if there is no such
// server.
func (s *Servers) Renew(tenant, name string) error {
	srv := s.find(&toolkeep.Principal{Tenant: tenant}, name)
	if srv == nil {
		return unknown(name)
	}
	srv.renew(tenant)
	return nil
}

// Logs returns the latest lines of the server's stderr and session events for the
// principal's tenant, redacted. It returns E3013 if there is no such server.
func (s *Servers) Logs(p *toolkeep.Principal, name string) ([]byte, error) {
	srv := s.find(p, name)
	if srv == nil {
		return nil, unknown(name)
	}
	return srv.state(p.Tenant).log.bytes(), nil
}

func unknown(name string) error {
	return unsentError(toolkeep.NewError(toolkeep.ResourceNotFound, "there is no MCP server %s", strconv.Quote(toolkeep.ClipBytes(name, 64))))
}

// visible lists the servers that the principal sees, by name.
func (s *Servers) visible(p *toolkeep.Principal) []*server {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*server
	for id, srv := range s.servers {
		if id.tenant == p.Tenant || id.tenant == "" && s.servers[ident{p.Tenant, id.name}] == nil {
			list = append(list, srv)
		}
	}
	slices.SortFunc(list, func(a, b *server) int { return cmp.Compare(a.spec.Name, b.spec.Name) })
	return list
}
