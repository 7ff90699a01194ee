package node

import (
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/face/rest"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// servers keeps the MCP servers of the store running, and their tools in the
// catalogue. It implements rest.Servers.
//
// A definition is pinned by being published. What a server offers later is
// compared with that whenever its lists are read: what differs holds the tool
// until somebody accepts it. Nothing of this is kept beside the catalogue, so
// every node comes to the same, and a comparison made twice changes nothing.
type servers struct {
	n      *Node
	config upstream.Config
	up     *upstream.Servers
	logins *oauth.Logins
	sealer invoke.Sealer
	pool   *egress.Pool
	// changed is told when a server's resources or prompts may have changed.
	changed func(server, tenant string)

	mu      sync.Mutex
	items   map[serverID]toolkeep.Document
	pending map[serverID][]string // tools that nobody accepted yet
	turns   map[serverID]*sync.Mutex
	offers  map[view]map[string]string    // what each tenant was shown last: digests by tool
	news    map[view]upstream.Definitions // what could not be compared
	wake    chan struct{}
	done    sync.WaitGroup
	run     context.Context // from start to end
	stop    context.CancelFunc

	index struct {
		sync.Mutex
		of    *catalog.Snapshot
		tools map[serverID]map[string]pinned
		pins  map[serverID]map[string][]string         // accepted digests by the server's name of a tool
		made  map[serverID]map[string][]*toolkeep.Tool // managed ones by the server's name of a tool
	}
}

// serverID names a server.
type serverID struct{ owner, name string }

// pinned is a tool of a server: its highest version.
type pinned struct {
	tool *toolkeep.Tool
	life toolkeep.Lifecycle
	own  string // the server's name of it
	// digest is that of the definition that it was made of; "" for a tool that
	// somebody published by hand, which is no pin.
	digest string
}

// serverCauses are those of the blocks that a server's definitions lead to, and undo.
var serverCauses = []toolkeep.Cause{toolkeep.CauseServerRemoved, toolkeep.CauseDefinitionGone}

// blockedByServer tells whether it was blocked because of the server and not by an
// administrator.
func (p pinned) blockedByServer() bool {
	return p.life.State == toolkeep.Blocked && slices.Contains(serverCauses, p.life.Cause)
}

// heldByAdministrator tells whether a person holds it: that is not for a server to change.
func (p pinned) heldByAdministrator() bool {
	return p.life.Held != nil && p.life.Held.Cause == toolkeep.CauseAdministrator
}

func (p pinned) live() bool {
	return p.life.State != toolkeep.Removed && p.life.State != toolkeep.Blocked
}

func (n *Node) buildServers() (err error) {
	if err := n.buildSecrets(); err != nil {
		return err
	}
	s := &servers{n: n, sealer: n.sealer, items: map[serverID]toolkeep.Document{}, pending: map[serverID][]string{},
		turns: map[serverID]*sync.Mutex{}, offers: map[view]map[string]string{}, news: map[view]upstream.Definitions{},
		wake: make(chan struct{}, 1), changed: func(string, string) {}}
	pool, err := n.egressConfig()
	if err != nil {
		return err
	}
	s.pool = egress.NewPool(pool)
	client := func(tenant string, network []toolkeep.HostPort) *http.Client {
		return &http.Client{Transport: s.pool.Transport(tenant, egress.NewAllowList(network)),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	s.logins = oauth.New(oauth.Config{Store: n.store, Sealer: n.sealer, PublicURL: n.publicURL, Client: client, Redact: n.redact,
		Clock: n.options.Clock, Log: n.logger("mcp_login")})
	s.config = upstream.Config{
		Keeper: n.options.Keeper, Dir: filepath.Join(n.config.Data, "mcp"),
		Client: canon.Append(nil, map[string]any{"name": "toolkeep", "version": n.options.Version}), Secrets: sealedSecrets{n.secrets, n.sealer}, Redact: n.redact,
		Log: n.logger("mcp"), Clock: n.options.Clock, HTTPClient: client, Authorize: s.authorize, OnDefinitions: s.heard, VerifyPinned: s.verifyPinned,
		Accepted: s.acceptedDefinitions,
	}
	s.up = upstream.New(s.config)
	n.servers = s
	return nil
}

// start loads the servers and follows the feed.
func (s *servers) start(ctx context.Context) error {
	items, seq, err := s.n.store.Documents(ctx, upstream.DocumentKind)
	if err != nil {
		return err
	}
	for _, it := range items {
		s.items[serverID{it.Tenant, it.ID}] = it
	}
	s.run, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.set()
	if err := s.logins.Sweep(ctx); err != nil {
		return err
	}
	s.done.Go(func() { s.follow(s.run, seq) })
	s.done.Go(s.compareLoop)
	return nil
}

// end stops every server. ctx bounds how long calls under way may go on.
func (s *servers) end(ctx context.Context) {
	if s.stop != nil {
		s.stop()
	}
	s.logins.Stop()
	_ = s.up.Stop(ctx) // it has no error, and leaves nothing behind
	s.done.Wait()
	s.pool.Close()
}

func (s *servers) follow(ctx context.Context, after int64) {
	s.n.watch(ctx, after, func(c toolkeep.Committed) {
		s.logins.Follow(c)
		switch ch := c.Change.(type) {
		case toolkeep.PutDocument:
			if ch.Document.Kind == upstream.DocumentKind {
				s.take(ch.Document)
			}
		case toolkeep.DeleteDocument:
			if ch.Kind == upstream.DocumentKind {
				s.drop(serverID{ch.Tenant, ch.ID})
			}
		}
	}, func(err error) {
		s.n.logger("mcp").Warn("the feed of MCP servers broke; it is taken up again", "error", err)
	})
}

func (s *servers) take(it toolkeep.Document) {
	s.mu.Lock()
	id := serverID{it.Tenant, it.ID}
	if old, has := s.items[id]; has && old.Revision >= it.Revision {
		s.mu.Unlock()
		return
	}
	s.items[id] = it
	s.mu.Unlock()
	s.set()
}

func (s *servers) drop(id serverID) {
	s.mu.Lock()
	_, has := s.items[id]
	delete(s.items, id)
	delete(s.pending, id)
	maps.DeleteFunc(s.offers, func(v view, _ map[string]string) bool { return v.serverID == id })
	s.mu.Unlock()
	if has {
		s.set()
	}
}

// set makes the stored servers the running ones.
func (s *servers) set() {
	s.mu.Lock()
	defer s.mu.Unlock()
	specs := make([]upstream.Spec, 0, len(s.items))
	for id, it := range s.items {
		spec, err := upstream.ParseSpec(it.ID, it.Tenant, it.Body)
		if err != nil {
			s.n.logger("mcp").Error("a stored MCP server cannot be read and is left out", "server", id.name, "error", err)
			continue
		}
		specs = append(specs, *spec)
	}
	s.up.Set(specs)
}

// item is the stored server.
func (s *servers) item(id serverID) (toolkeep.Document, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	it, ok := s.items[id]
	return it, ok
}

// clashes tells whether the name is taken between a tenant and all tenants: their
// tools would have the same ids.
func (s *servers) clashes(id serverID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.items {
		if other.name == id.name && other.owner != id.owner && (other.owner == "" || id.owner == "") {
			return true
		}
	}
	return false
}

// owned finds a server of the principal's tenant or of all, with who owns it.
func (s *servers) owned(p *toolkeep.Principal, name string) (toolkeep.Document, bool) {
	if it, ok := s.item(serverID{p.Tenant, name}); ok {
		return it, true
	}
	return s.item(serverID{"", name})
}

// changeable is owned for who wants to change it: what belongs to all tenants
// is changed by administrators of the home tenant alone.
func (s *servers) changeable(p *toolkeep.Principal, name string) (toolkeep.Document, error) {
	it, ok := s.owned(p, name)
	if !ok {
		return it, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no MCP server %q", name[:min(len(name), 64)])
	}
	if it.Tenant == "" && (p.Tenant != System().Tenant || !p.May(toolkeep.PermLifecycle)) {
		return it, toolkeep.NewError(toolkeep.PermissionDenied, "the MCP server %s serves all tenants; administrators of the tenant %s change it", name, System().Tenant)
	}
	return it, nil
}

// tools gives the tools that call a server.
func (s *servers) tools(id serverID) map[string]pinned {
	s.index.Lock()
	defer s.index.Unlock()
	s.reindex()
	return s.index.tools[id]
}

// managed are the tools that were made of the server's definitions.
func (s *servers) managed(id serverID) map[string]pinned {
	out := map[string]pinned{}
	for tool, t := range s.tools(id) {
		if isManaged(id, tool, t) {
			out[tool] = t
		}
	}
	return out
}

// isManaged tells whether a tool was made of a definition of the server that it calls.
func isManaged(of serverID, tool string, t pinned) bool {
	namespace, _, _ := strings.Cut(tool, ".")
	return namespace == of.name && t.digest != ""
}

// accepted are the digests of the definitions of a server's tool that somebody
// accepted last.
func (s *servers) accepted(id serverID, tool string) []string {
	s.index.Lock()
	defer s.index.Unlock()
	s.reindex()
	return s.index.pins[id][tool]
}

// acceptedDefinitions implements upstream.Config.Accepted.
func (s *servers) acceptedDefinitions(owner, server, tool string) (defs [][]byte) {
	s.index.Lock()
	s.reindex()
	made := s.index.made[serverID{owner, server}][tool]
	s.index.Unlock()
	for _, t := range made {
		if def, err := source.Definition(t); err == nil {
			defs = append(defs, def)
		}
	}
	return defs
}

// reindex is called with the index locked.
func (s *servers) reindex() {
	now := s.n.catalog.Snapshot()
	if s.index.of == now {
		return
	}
	tools := map[serverID]map[string]pinned{}
	for v := range now.All() { // the highest version of an id comes last
		if v.Tool.Manifest.Execution.Kind != source.Kind {
			continue
		}
		binding := v.Tool.Manifest.Execution.Binding
		of := serverID{v.Tool.Tenant, mcp.Text(binding, "server")}
		if tools[of] == nil {
			tools[of] = map[string]pinned{}
		}
		t := pinned{tool: v.Tool, life: v.Life, own: mcp.Text(binding, "tool")}
		if src := v.Tool.Manifest.Source; src != nil {
			t.digest = src.Digest
		}
		tools[of][v.Tool.ID] = t
	}
	pins, made := map[serverID]map[string][]string{}, map[serverID]map[string][]*toolkeep.Tool{}
	for of, all := range tools {
		pins[of], made[of] = make(map[string][]string, len(all)), make(map[string][]*toolkeep.Tool, len(all))
		for id, t := range all {
			if t.digest == "" {
				continue
			}
			pins[of][t.own] = append(pins[of][t.own], t.digest)
			if isManaged(of, id, t) {
				made[of][t.own] = append(made[of][t.own], t.tool)
			}
		}
	}
	s.index.of, s.index.tools, s.index.pins, s.index.made = now, tools, pins, made
}

// known are the tool names of the other servers that the owner's callers see.
func (s *servers) known(id serverID) *source.Names {
	names := source.NewNames()
	s.tools(id)
	s.index.Lock()
	defer s.index.Unlock()
	for other, tools := range s.index.tools {
		if other == id || other.owner != "" && id.owner != "" && other.owner != id.owner {
			continue
		}
		for _, t := range tools {
			names.Add(other.name, t.own)
		}
	}
	return names
}

// names are the servers that exist for a principal: those of which it may see a tool.
func (s *servers) names(p *toolkeep.Principal) []string {
	seen := map[string]bool{}
	for _, owner := range []string{p.Tenant, ""} {
		s.mu.Lock()
		var ids []serverID
		for id := range s.items {
			if id.owner == owner && !seen[id.name] {
				ids = append(ids, id)
			}
		}
		s.mu.Unlock()
		for _, id := range ids {
			if s.exists(p, id) {
				seen[id.name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// has tells whether names gives the server.
func (s *servers) has(p *toolkeep.Principal, name string) bool {
	for _, owner := range []string{p.Tenant, ""} {
		id := serverID{owner, name}
		if _, ok := s.item(id); ok && s.exists(p, id) {
			return true
		}
	}
	return false
}

// exists tells whether a principal may see anything of the server. One without
// tools counts by its namespace.
func (s *servers) exists(p *toolkeep.Principal, id serverID) bool {
	tools := s.tools(id)
	for _, t := range tools {
		if s.n.access.Visible(p, t.tool) {
			return true
		}
	}
	return len(tools) == 0 && s.n.access.Visible(p, &toolkeep.Tool{ID: id.name + ".server", Tenant: id.owner,
		Manifest: &toolkeep.Manifest{ToolID: id.name + ".server", SideEffects: "reads", Risk: "low"}})
}

// sealedSecrets opens the literal values of specs, which lie sealed in the store.
type sealedSecrets struct {
	*secret.Resolver
	sealer invoke.Sealer
}

// What stands before a sealed value of a spec: of one that is a secret, and of one
// that does not look like one, which is left where it stands in results and logs.
const (
	sealedScheme = "sealed://"
	keptScheme   = "kept://"
)

func isSealed(v string) bool {
	return strings.Contains(v, sealedScheme) || strings.Contains(v, keptScheme)
}

var sealedValue = []byte("mcp_server value")

// Resolve implements upstream.Secrets. What stands in a definition is chosen by those who
// may change it: the administrators of the tenant whose server it is, and those of the
// operator's own tenant for a server of all.
func (s sealedSecrets) Resolve(ctx context.Context, spec *upstream.Spec, p *toolkeep.Principal, ref string) (upstream.Value, error) {
	text, hide := strings.CutPrefix(ref, sealedScheme)
	kept := false
	if !hide {
		text, kept = strings.CutPrefix(ref, keptScheme)
	}
	if !hide && !kept {
		v, err := s.Fetch(ctx, p, ref)
		if err != nil {
			return upstream.Value{}, err
		}
		defer v.Wipe()
		text := v.Text()
		return upstream.Value{Text: text, Held: secret.Parts("", text), Scope: v.Scope.RedactionScope(p)}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		raw, err = s.sealer.Open(raw, sealedValue)
	}
	if err != nil {
		return upstream.Value{}, toolkeep.NewError(toolkeep.SecretNotFound, "a value of the MCP server's definition cannot be opened; put the definition again").Because(err)
	}
	v := upstream.Value{Text: string(raw), Scope: redact.Scope{Tenant: spec.Tenant}}
	if hide {
		v.Held = []string{v.Text}
		if _, word, two := strings.Cut(v.Text, " "); two { // behind Bearer or Basic
			v.Held = append(v.Held, word)
		}
	}
	return v, nil
}

// hidden stands for a literal value that is not shown.
const hidden = "(hidden)"

// seal hides the literal values of environment and headers. hidden takes the
// value that was there before.
func (s *servers) seal(spec, before *upstream.Spec) error {
	hide := func(now, old map[string]string) error {
		for k, v := range now {
			sealed, err := s.sealOne(k, v, old[k])
			if err != nil {
				return err
			}
			now[k] = sealed
		}
		return nil
	}
	var old upstream.Spec
	if before != nil {
		old = *before
	}
	if err := errors.Join(hide(spec.Env, old.Env), hide(spec.Headers, old.Headers)); err != nil || spec.OAuth == nil || spec.OAuth.ClientSecret == "" {
		return err
	}
	was := ""
	if old.OAuth != nil {
		was = old.OAuth.ClientSecret
	}
	login := *spec.OAuth
	var err error
	login.ClientSecret, err = s.sealOne("oauth.client_secret", login.ClientSecret, was)
	spec.OAuth = &login
	return err
}

func (s *servers) sealOne(name, v, before string) (string, error) {
	if _, _, ref := upstream.Secret(v); ref {
		if isSealed(v) {
			return "", toolkeep.NewError(toolkeep.InvalidParameters, "%s: a value cannot begin with %s or %s; write the value itself", name, sealedScheme, keptScheme)
		}
		return v, nil
	}
	if v == hidden {
		if before == "" {
			return "", toolkeep.NewError(toolkeep.InvalidParameters, "%s is %s, and there was no value before", name, hidden)
		}
		return before, nil
	}
	// Nobody can tell a password by its look, so that all are sealed and hidden.
	scheme := keptScheme
	if looksSecret(name, v) {
		scheme = sealedScheme
	}
	sealed, err := s.sealer.Seal([]byte(strings.TrimPrefix(v, "text:")), sealedValue)
	if err != nil {
		return "", err
	}
	return scheme + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// shown is a spec's body for people.
func shown(spec *upstream.Spec) []byte {
	show := *spec
	mask := func(m map[string]string) map[string]string {
		out := maps.Clone(m)
		for k, v := range out {
			if isSealed(v) {
				out[k] = hidden
			}
		}
		return out
	}
	show.Env, show.Headers = mask(spec.Env), mask(spec.Headers)
	if spec.OAuth != nil && isSealed(spec.OAuth.ClientSecret) {
		login := *spec.OAuth
		login.ClientSecret = hidden
		show.OAuth = &login
	}
	return show.Body()
}

// authorize speaks OAuth for HTTP servers whose definition has no credentials of
// its own.
func (s *servers) authorize(_ context.Context, spec *upstream.Spec, p *toolkeep.Principal) (upstream.Authorizer, error) {
	for name := range spec.Headers {
		if strings.EqualFold(name, "Authorization") {
			return nil, nil
		}
	}
	if p.Subject == "" {
		return noLogin{spec.Name}, nil
	}
	return s.logins.Account(s.account(spec, p)), nil
}

func (s *servers) account(spec *upstream.Spec, p *toolkeep.Principal) oauth.Ref {
	r := oauth.Ref{Server: spec.Name, URL: spec.URL, Tenant: p.Tenant, Subject: p.Subject, Network: spec.Network}
	if o := spec.OAuth; o != nil {
		r.ClientID, r.Scopes = o.ClientID, o.Scopes
		if o.ClientSecret != "" {
			who := *p
			r.ClientSecret = func(ctx context.Context) (string, error) { return s.value(ctx, spec, &who, o.ClientSecret) }
		}
	}
	return r
}

// value resolves a value of a definition.
func (s *servers) value(ctx context.Context, spec *upstream.Spec, p *toolkeep.Principal, v string) (string, error) {
	prefix, ref, ok := upstream.Secret(v)
	if !ok {
		return strings.TrimPrefix(v, "text:"), nil
	}
	secret, err := s.config.Secrets.Resolve(ctx, spec, p, ref)
	return prefix + secret.Text, err
}

// noLogin is the authorizer of a session that belongs to a whole tenant: nobody's
// account may be used for all.
type noLogin struct{ server string }

var errOwnSession = errors.New("the session is not one principal's")

func (noLogin) Header(context.Context) (http.Header, error) { return nil, nil }

func (n noLogin) Unauthorized(context.Context, *http.Response) error {
	e := toolkeep.NewError(toolkeep.SecretAccessDenied, "the MCP server %s wants a login, and its session is shared; set session to principal, or give it an Authorization header", n.server).
		Because(errOwnSession)
	e.NothingSent = true
	return e
}

var _ rest.Servers = (*servers)(nil)
