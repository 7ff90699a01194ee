package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// memory is a store of versions, documents and their feed.
type memory struct {
	mu       sync.Mutex
	feed     []toolkeep.Committed
	versions []toolkeep.Version
	docs     []toolkeep.Document
	grown    chan struct{}
	lag      time.Duration // of the feed
	// refuse, where set, says why a change fails.
	refuse func(toolkeep.Change) error
}

func (m *memory) Apply(_ context.Context, changes ...toolkeep.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range changes {
		if m.refuse != nil {
			if err := m.refuse(c); err != nil {
				return err
			}
		}
	}
	for _, c := range changes {
		switch ch := c.(type) {
		case toolkeep.PublishVersion:
			m.versions = append(m.versions, ch.Version)
		case toolkeep.SetLifecycle:
			for i, v := range m.versions {
				if v.Tool.Tenant == ch.Tenant && v.Tool.ID == ch.ToolID && v.Tool.Version == ch.Version {
					m.versions[i].Life = ch.Life
				}
			}
		case toolkeep.PutDocument:
			i := m.find(ch.Document.Kind, ch.Document.Tenant, ch.Document.ID)
			var revision int64
			if i >= 0 {
				revision = m.docs[i].Revision
				m.docs = slices.Delete(m.docs, i, i+1)
			}
			if ch.Expect != revision && ch.Expect != toolkeep.AnyRevision {
				return toolkeep.ErrStale
			}
			ch.Document.Revision = revision + 1
			m.docs = append(m.docs, ch.Document)
			c = ch
		case toolkeep.DeleteDocument:
			i := m.find(ch.Kind, ch.Tenant, ch.ID)
			if i < 0 {
				return toolkeep.ErrNotFound
			}
			m.docs = slices.Delete(m.docs, i, i+1)
		}
		m.feed = append(m.feed, toolkeep.Committed{Seq: int64(len(m.feed) + 1), Change: c})
	}
	close(m.grown)
	m.grown = make(chan struct{})
	return nil
}

// slow has the feed bring each change that much later.
func (m *memory) slow(lag time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lag = lag
}

func (m *memory) find(kind, tenant, id string) int {
	return slices.IndexFunc(m.docs, func(d toolkeep.Document) bool { return d.Kind == kind && d.Tenant == tenant && d.ID == id })
}

func (m *memory) Head(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.feed)), nil
}

func (m *memory) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		for {
			m.mu.Lock()
			batch, grown, lag := m.feed[after:], m.grown, m.lag
			m.mu.Unlock()
			if lag > 0 && len(batch) > 0 {
				select {
				case <-ctx.Done():
					return
				case <-time.After(lag):
				}
			}
			for _, c := range batch {
				if ctx.Err() != nil || !yield(c, nil) {
					return
				}
				after = c.Seq
			}
			select {
			case <-ctx.Done():
				return
			case <-grown:
			}
		}
	}
}

func (m *memory) Documents(_ context.Context, kind string) ([]toolkeep.Document, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.docs), func(d toolkeep.Document) bool { return kind != "" && d.Kind != kind }), int64(len(m.feed)), nil
}

func (m *memory) Versions(context.Context) ([]toolkeep.Version, int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.versions), int64(len(m.feed)), nil
}

// fails has the store refuse until the result is called.
func (m *memory) fails(refuse func(toolkeep.Change) error) (mend func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = refuse
	return func() { m.mu.Lock(); defer m.mu.Unlock(); m.refuse = nil }
}

// pool is upstream.Servers whose every server offers the same.
type pool struct {
	running []upstream.Running
	mu      sync.Mutex
	specs   []upstream.Spec
	defs    upstream.Definitions
	errs    []error // of the next readings
	log     string
	told    []string
	onRead  func()
	// refuses, where set, is why a session without a person is not opened; lets tells
	// whether a person's session is open.
	refuses error
	lets    bool
	// newer, where set, is what the session that Renew leads to shows.
	newer *upstream.Definitions
	// onDefinitions is told of what Recheck reads.
	onDefinitions func(server, tenant string, d upstream.Definitions)
}

func (p *pool) tell(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, what)
}

func (p *pool) Set(specs []upstream.Spec) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.specs = slices.Clone(specs)
}

func (p *pool) names() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, s := range p.specs {
		names = append(names, s.Tenant+"/"+s.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (p *pool) Status(who *toolkeep.Principal) (out []upstream.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.specs {
		if s.Tenant == who.Tenant || s.Tenant == "" {
			out = append(out, upstream.Status{Name: s.Name, Owner: s.Tenant, State: upstream.StateIdle})
		}
	}
	slices.SortFunc(out, func(a, b upstream.Status) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (p *pool) Running() []upstream.Running {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

func (p *pool) read() (upstream.Definitions, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.onRead != nil {
		p.onRead()
	}
	if len(p.errs) > 0 {
		err := p.errs[0]
		p.errs = p.errs[1:]
		return upstream.Definitions{}, err
	}
	return p.defs, nil
}

func (p *pool) Refresh(_ context.Context, _ *toolkeep.Principal, name string) (upstream.Definitions, error) {
	p.tell("refresh " + name)
	return p.read()
}

func (p *pool) Compare(_ context.Context, _ *toolkeep.Principal, name string) (upstream.Definitions, error) {
	p.tell("compare " + name)
	return p.read()
}

func (p *pool) Recheck(_ context.Context, tenant, name string, alone bool) (upstream.Definitions, error) {
	p.tell(fmt.Sprintf("recheck %s alone:%t", name, alone))
	p.mu.Lock()
	lets, refuses, tell := p.lets, p.refuses, p.onDefinitions
	p.mu.Unlock()
	if lets || alone && refuses == nil {
		d, err := p.read()
		if err == nil {
			tell(name, tenant, d)
		}
		return d, err
	}
	if alone {
		return upstream.Definitions{}, refuses
	}
	return upstream.Definitions{}, nil
}

func (p *pool) Restart(_ *toolkeep.Principal, name string) error {
	p.tell("restart " + name)
	return nil
}

func (p *pool) Renew(_, name string) error {
	p.tell("renew " + name)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.newer != nil {
		p.defs = *p.newer
	}
	return nil
}

func (p *pool) Logs(*toolkeep.Principal, string) ([]byte, error) { return []byte(p.log), nil }

func (p *pool) Stop(context.Context) error { return nil }

// sealer writes values backwards.
type sealer struct{}

func (sealer) Seal(plain, context []byte) ([]byte, error) {
	out := append(slices.Clone(context), plain...)
	slices.Reverse(out)
	return out, nil
}

func (sealer) Open(sealed, context []byte) ([]byte, error) {
	out := slices.Clone(sealed)
	slices.Reverse(out)
	plain, ok := bytes.CutPrefix(out, context)
	if !ok {
		return nil, errors.New("sealed for something else")
	}
	return plain, nil
}

type secrets map[string]secret.Value

func (s secrets) Fetch(_ context.Context, _ *toolkeep.Principal, ref string) (secret.Value, error) {
	v, ok := s[ref]
	if !ok {
		return v, toolkeep.NewError(toolkeep.SecretNotFound, "there is no %s", ref)
	}
	v.Bytes = bytes.Clone(v.Bytes)
	return v, nil
}

// logins has the tokens of accounts, "tenant/subject@server".
type logins struct {
	tokens map[string]string
	told   []string
}

func (l *logins) note(what string, r oauth.Ref) string {
	key := r.Tenant + "/" + r.Subject + "@" + r.Server
	l.told = append(l.told, what+" "+key)
	return key
}

func (l *logins) Account(oauth.Ref) *oauth.Account { return &oauth.Account{} }
func (l *logins) Token(_ context.Context, r oauth.Ref) (string, error) {
	return l.tokens[l.note("token", r)], nil
}
func (l *logins) Login(_ context.Context, r oauth.Ref, _ *http.Response) error {
	return toolkeep.NewError(toolkeep.LoginRequired, "log in: %s", l.note("login", r))
}
func (l *logins) Logout(_ context.Context, r oauth.Ref) error {
	l.note("logout", r)
	return nil
}
func (l *logins) Remove(_ context.Context, server, owner string) error {
	l.told = append(l.told, "remove "+owner+"/"+server)
	return nil
}
func (l *logins) EndLogins(_ context.Context, server, owner, url string) error {
	l.told = append(l.told, "end "+owner+"/"+server+" "+url)
	return nil
}
func (l *logins) Sweep(context.Context) error { return nil }
func (l *logins) Follow(toolkeep.Committed)   {}

// fixture is Servers over a real catalogue and fakes of everything else.
type fixture struct {
	*Servers
	t       *testing.T
	store   *memory
	catalog *catalog.Catalog
	pool    *pool
	probe   *pool
	logins  *logins
	secrets secrets
}

func newFixture(t *testing.T, change func(*Config)) *fixture {
	t.Helper()
	return newNode(t, &memory{grown: make(chan struct{})}, change)
}

// newNode is a fixture on a store, which others may share.
func newNode(t *testing.T, store *memory, change func(*Config)) *fixture {
	t.Helper()
	h := &fixture{t: t, store: store, pool: &pool{}, logins: &logins{tokens: map[string]string{}}, secrets: secrets{}}
	h.probe = &pool{}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	h.catalog = catalog.New(catalog.Config{Store: h.store, Load: h.store.Versions, Log: quiet, Home: access.HomeTenant,
		Checkers: map[string]catalog.Checker{"mcp": func(*toolkeep.Manifest) []toolkeep.Fault { return nil }}})
	if err := h.catalog.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.catalog.Stop)
	c := Config{Catalog: h.catalog, Store: h.store, Pool: h.pool, Probe: func() Pool { return h.probe },
		Credentials: &Credentials{Secrets: h.secrets, Sealer: sealer{}, Logins: h.logins},
		Visible: func(p *toolkeep.Principal, tool *toolkeep.Tool) bool {
			return (tool.Tenant == "" || tool.Tenant == p.Tenant) && p.Subject != "blind"
		}}
	if change != nil {
		change(&c)
	}
	h.Servers = New(c)
	h.pool.onDefinitions = h.DefinitionsRead
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Servers.Stop)
	return h
}

func admin(tenant string) *toolkeep.Principal {
	return &toolkeep.Principal{Tenant: tenant, Subject: "boss", Permissions: []string{"*"}}
}

const httpSpec = `{"transport":"http","url":"https://mcp.example/"}`

// tool is a definition whose parameters are required strings.
func tool(name, description string, params ...string) []byte {
	properties, required := "", ""
	for i, p := range params {
		if i > 0 {
			properties, required = properties+",", required+","
		}
		properties, required = properties+`"`+p+`":{"type":"string"}`, required+`"`+p+`"`
	}
	return []byte(`{"name":"` + name + `","description":"` + description + `","inputSchema":{"type":"object","properties":{` + properties + `},"required":[` + required + `]}}`)
}

// offers has the servers offer definitions from now on.
func (h *fixture) offers(defs ...[]byte) upstream.Definitions {
	d := upstream.Definitions{Tools: defs, Settled: true, Owner: "acme"}
	h.pool.mu.Lock()
	h.pool.defs = d
	h.pool.mu.Unlock()
	h.probe.mu.Lock()
	h.probe.defs = d
	h.probe.mu.Unlock()
	return d
}

// imports imports the server pages of the tenant acme.
func (h *fixture) imports(spec string, defs ...[]byte) *Plan {
	h.t.Helper()
	h.offers(defs...)
	p, err := h.Import(h.t.Context(), admin("acme"), "pages", []byte(spec), ImportOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// read has the pool tell that it read definitions.
func (h *fixture) read(defs ...[]byte) { h.DefinitionsRead("pages", "acme", h.offers(defs...)) }

func (h *fixture) accept(tools ...string) *Plan {
	h.t.Helper()
	p, err := h.Accept(h.t.Context(), admin("acme"), "pages", tools, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// setState is what an administrator does.
func (h *fixture) setState(id, version string, ch catalog.StateChange) {
	h.t.Helper()
	if _, err := h.catalog.SetState(h.t.Context(), admin("acme"), id, version, ch); err != nil {
		h.t.Fatal(err)
	}
}

// states are the versions of acme's tools, with what blocks or holds them.
func (h *fixture) states() string {
	h.t.Helper()
	var out []string
	for v := range h.catalog.Snapshot().All() {
		one := strings.TrimPrefix(v.Tool.Ref(), "pages.") + " " + string(v.Life.State)
		if v.Life.Cause != "" {
			one += ":" + string(v.Life.Cause)
		}
		if v.Life.Held != nil {
			one += " held:" + string(v.Life.Held.Cause)
		}
		out = append(out, one)
	}
	return strings.Join(out, ", ")
}

func (h *fixture) want(states string) {
	h.t.Helper()
	if got := h.states(); got != states {
		h.t.Errorf("the catalogue has\n%s\nwant\n%s", got, states)
	}
}

func wantCode(t *testing.T, err error, code toolkeep.Code) *toolkeep.Error {
	t.Helper()
	e := toolkeep.AsError(err)
	if e == nil || e.Code != code {
		t.Errorf("the error is %v, want %s", err, code)
	}
	return e
}
