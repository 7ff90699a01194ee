package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/reload"
)

// Store is the subset of the store that Access uses.
type Store interface {
	toolkeep.Applier
	toolkeep.Watcher
}

// Config configures an Access.
type Config struct {
	// Load returns every key, including revoked ones, and the feed position they are
	// current to. Required.
	Load  func(ctx context.Context) ([]toolkeep.APIKey, int64, error)
	Store Store  // required
	Roles []Role // custom roles, in addition to the built-in ones
	// RolesText and RolesFile hold the custom roles as ReadRoles reads them, instead of Roles. The file is read again within a
	// second of a change; one that cannot be used leaves the last roles.
	RolesText []byte
	RolesFile string
	OAuth     *OAuth // accepts access tokens in addition to API keys; nil accepts none
	// IssuersFile names further issuers (ParseIssuers), to which BaseURL is the URL of this server; "": there are none.
	IssuersFile string
	BaseURL     func() string
	// CertificatesFile has the rules of client certificates (ParseCertificates) and is read again when
	// it changes; "": no certificate names a caller.
	CertificatesFile string
	// SameSubject demands that a key or token belongs to the subject of the client certificate with it.
	SameSubject bool
	Failures    FailureLimits
	Signing     Signing
	Sessions    Sessions           // of browsers
	Tokens      *capability.Tokens // verifies capability tokens; nil refuses each
	// TokenRequired demands a capability token of every call.
	TokenRequired bool
	Policy        Policy // decides calls after the roles; nil: roles decide alone
	// Share returns this node's share of a limit that all nodes keep together, and their
	// number; nil for a node alone.
	Share func(limit int) (share, nodes int)
	// Fresh returns when the keys are recent enough to decide by, or E3003; nil where no other
	// process changes them.
	Fresh func(ctx context.Context) error
	// OnFailure receives every failure, for events and metrics. It must not block.
	OnFailure func(Failure)
	Clock     func() time.Time // default time.Now
	Log       *slog.Logger     // default discards
}

// Access holds the keys and roles. Call Start before Authenticate.
type Access struct {
	config     Config
	keys       atomic.Pointer[keyring] // nil before Start
	current    atomic.Pointer[generation]
	failures   *failures
	trail      *trail
	issuers    issuers // none if no tokens are accepted
	issuersSum string
	// certificates is nil if no certificate names a caller.
	certificates *reload.Files[*Certificates]
	roles        *reload.Files[*[]Role] // nil without a file of roles
	verifier     *signing.Verifier
	shared       *secrets // Config.Signing.Shared
	proxies      *secrets // Config.Signing.Proxy
	results      *secrets // Config.Signing.Results
	ended        endedSessions
	position     toolkeep.FeedPosition // up to which the keys of all nodes are known

	mu      sync.Mutex // serialises key changes, Start and Stop
	cancel  context.CancelFunc
	stopped bool
	done    sync.WaitGroup
	issuing sync.Mutex // serialises Bootstrap, CreateKey, RotateKey, SetScope and RevokeKey
}

// keyring is an immutable set of keys by id.
type keyring struct{ byID map[string]*held }

// held is a key with the permissions of its roles, computed on first use.
type held struct {
	key     toolkeep.APIKey
	rights  atomic.Pointer[rights]
	signing atomic.Pointer[[][]byte] // the opened signing secret, nil before its first use
}

type rights struct {
	of                 *generation
	roles, permissions []string
}

// New returns an Access. Faults in the roles, in those of proxies, or in OAuth are E3008.
func New(c Config) (*Access, error) {
	if c.Load == nil || c.Store == nil {
		return nil, errors.New("access: Load and Store are required")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a := &Access{config: c, failures: newFailures(c.Failures, c.Clock, c.Log)}
	a.failures.share = c.Share
	a.trail = newTrail(a)
	a.verifier = newVerifier(a)
	a.shared, a.proxies = &secrets{from: a.config.Signing.Shared, clock: a.config.Clock}, &secrets{from: a.config.Signing.Proxy, clock: a.config.Clock}
	a.results = &secrets{from: []Secret{a.config.Signing.Results}, clock: a.config.Clock, log: a.config.Log}
	if err := a.openRoles(); err != nil {
		return nil, err
	}
	if err := a.openCertificates(); err != nil {
		return nil, err
	}
	if err := checkProxyRoles(c.Signing.ProxyRoles, a.current.Load().rules); err != nil {
		return nil, err
	}
	var more []OAuth
	if c.IssuersFile != "" {
		var err error
		if more, err = readIssuers(c.IssuersFile, c.BaseURL); err != nil {
			return nil, err
		}
	}
	a.issuersSum = sumOf(more)
	var faults []toolkeep.Fault
	a.issuers, faults = newIssuers(c.OAuth, more, a.current.Load().rules, c.Clock, c.Log)
	if err := issuersFault(faults); err != nil {
		return nil, err
	}
	return a, nil
}

// SetRoles replaces the custom roles and discards all remembered decisions. If there
// are faults (E3008, which lists all of them), the roles do not change.
func (a *Access) SetRoles(own []Role) error {
	rules, faults := compile(own)
	if len(faults) == 0 {
		next := newGeneration(rules)
		next.own = own
		a.current.Store(next)
	}
	return rolesFault(faults)
}

// ListRoles returns the custom roles that mean anything in the principal's tenant, by name, as they count now, and the file of
// the setting access.roles_file, "" without one. That, and which other tenants have a role, is told to the home tenant alone. It
// needs the permission keys:admin. E3201.
func (a *Access) ListRoles(p *toolkeep.Principal) (own []Role, file string, err error) {
	if !p.May(toolkeep.PermKeys) {
		return nil, "", refused("listing roles needs the permission %s", toolkeep.PermKeys)
	}
	g := a.current.Load()
	for _, r := range g.own {
		if !g.rules.known(p.Tenant, r.Name) {
			continue
		}
		if len(r.Tenants) > 0 && p.Tenant != HomeTenant {
			r.Tenants = []string{p.Tenant}
		}
		r.Inherits = slices.DeleteFunc(slices.Clone(r.Inherits), func(name string) bool { return !g.rules.known(p.Tenant, name) })
		own = append(own, r)
	}
	slices.SortFunc(own, func(x, y Role) int { return strings.Compare(x.Name, y.Name) })
	if p.Tenant == HomeTenant {
		file = a.config.RolesFile
	}
	return own, file, nil
}

func rolesFault(faults []toolkeep.Fault) error {
	if len(faults) == 0 {
		return nil
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest, "the roles cannot be used: "+faults[0].Pointer+": "+faults[0].Message, faults)
}

// Start loads the keys and follows the feed until Stop. The keys of OAuth issuers are
// fetched in the background; requests with its tokens wait for the first fetch.
func (a *Access) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancel != nil || a.stopped {
		return nil
	}
	keys, seq, err := a.config.Load(ctx)
	if err != nil {
		return toolkeep.NewError(toolkeep.RegistryUnavailable, "the API keys cannot be loaded").Because(err)
	}
	ring := &keyring{byID: make(map[string]*held, len(keys))}
	for _, k := range keys {
		ring.add(k)
	}
	if a.config.Tokens != nil { // they are newer than seq, and what the feed repeats does no harm
		if err := a.config.Tokens.Load(ctx); err != nil {
			return err
		}
	}
	if err := a.ended.load(ctx, &a.config.Sessions); err != nil {
		return err
	}
	a.keys.Store(ring)
	a.position.Reach(seq)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a.cancel = cancel
	a.done.Go(func() { a.follow(run, seq) })
	if a.roles != nil {
		a.done.Go(func() { a.followRoles(run) })
	}
	a.trail.done.Go(func() { a.trail.run(run) })
	for _, o := range a.issuers {
		go o.run(run)
	}
	return nil
}

// Stop stops following the feed and waits for the follower. The keys loaded so far stay
// valid.
func (a *Access) Stop() {
	a.mu.Lock()
	a.stopped = true
	if a.cancel != nil {
		a.cancel()
	}
	started := a.cancel != nil
	a.mu.Unlock()
	a.done.Wait()
	a.trail.done.Wait()
	a.results.stop()
	for _, o := range a.issuers {
		if started {
			<-o.over
		}
	}
}

// follow reads the feed and resumes at the last position when the feed breaks.
func (a *Access) follow(ctx context.Context, after int64) {
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	wait := shortest
	for ctx.Err() == nil {
		for c, err := range a.config.Store.Watch(ctx, after) {
			if errors.Is(err, toolkeep.ErrClosed) {
				return
			}
			if err != nil {
				if ctx.Err() == nil {
					a.config.Log.Error("the feed of key changes broke; revocations made elsewhere are seen late", "error", err, "retry_in", wait)
				}
				break
			}
			after, wait = c.Seq, shortest
			a.Follow(c)
			a.position.Reach(c.Seq)
		}
		toolkeep.Sleep(ctx, wait)
		wait = min(2*wait, longest)
	}
}

// Follow applies a feed change that concerns keys, capability tokens or sessions. Start calls it;
// applying a change twice is harmless.
func (a *Access) Follow(c toolkeep.Committed) {
	if a.config.Tokens != nil {
		a.config.Tokens.Follow(c)
	}
	a.ended.follow(c)
	switch ch := c.Change.(type) {
	case toolkeep.PutKey:
		a.change(func(r *keyring) { r.add(ch.Key) })
	case toolkeep.RevokeKey:
		a.change(func(r *keyring) { r.revoke(ch) })
	}
}

// change replaces the keyring with a modified copy.
func (a *Access) change(do func(*keyring)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.keys.Load()
	if old == nil {
		return // Start will load it
	}
	next := &keyring{byID: maps.Clone(old.byID)}
	do(next)
	a.keys.Store(next)
}

// add inserts a key. A revoked key stays revoked, and one with a successor expires, in any order of changes; an id that
// belongs to another tenant stays with that tenant.
func (r *keyring) add(k toolkeep.APIKey) {
	if old := r.byID[k.ID]; old != nil {
		if old.key.Tenant != k.Tenant {
			return
		}
		if k.RevokedAt.IsZero() {
			k.RevokedAt = old.key.RevokedAt
		}
		if k.Successor == "" && old.key.Successor != "" {
			k.Successor, k.ExpiresAt = old.key.Successor, old.key.ExpiresAt
		}
	}
	r.byID[k.ID] = &held{key: k}
}

func (r *keyring) revoke(c toolkeep.RevokeKey) {
	old := r.byID[c.ID]
	if old == nil || old.key.Tenant != c.Tenant {
		return
	}
	k := old.key
	if c.At.IsZero() {
		c.At = k.CreatedAt.Add(1) // revoked, at an unknown time
	}
	if !c.End(&k) {
		return
	}
	r.byID[c.ID] = &held{key: k}
}

// Authenticate returns the principal of an API key or access token. addr is the
// client's address without port. ctx bounds the wait for the keys of the token's issuer.
// A valid key or token is always admitted: blocks refuse requests without one.
//
// Errors: E3214, with the same message for an unknown key and a wrong secret; E3810
// while the address, or the agent at it, is blocked after too many failures; E3003
// before Start, while the issuer's keys are not available, for an unknown key while the
// store cannot be asked whether another node has made it, and from Config.Fresh.
func (a *Access) Authenticate(ctx context.Context, bearer, addr string) (*toolkeep.Principal, error) {
	ring := a.keys.Load()
	if ring == nil {
		return nil, toolkeep.NewError(toolkeep.RegistryUnavailable, "the API keys are not loaded yet; try again shortly").After(time.Second)
	}
	net := network(addr)
	if bearer == "" {
		if err := a.failures.blocked(culprit{addr: net}); err != nil {
			a.tell(Failure{Reason: "blocked", Addr: addr})
			return nil, err
		}
		a.tell(Failure{Reason: "no_credential", Addr: addr})
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "no API key was sent; send the header Authorization: Bearer and a key")
	}
	if a.config.Fresh != nil {
		if err := a.config.Fresh(ctx); err != nil {
			return nil, err
		}
	}
	if looksLikeToken(bearer) {
		return a.token(ctx, bearer, addr, net)
	}
	id, secret, ok := parseKey(bearer)
	if !ok {
		return nil, a.guessed(Failure{Reason: "malformed", Addr: addr}, net,
			"the bearer is not an API key or has a typing error; copy the whole key, from tk_ on")
	}
	h, err := a.find(ctx, ring, id)
	if err != nil {
		return nil, err
	}
	hash, want := sha256.Sum256([]byte(secret)), [32]byte{}
	if h != nil {
		want = h.key.Hash
	}
	same := subtle.ConstantTimeCompare(hash[:], want[:]) == 1
	if h == nil || !same {
		f := Failure{Reason: "unknown_key", KeyID: id, Addr: addr}
		if h != nil {
			f.Reason, f.Tenant, f.Subject = "wrong_secret", h.key.Tenant, h.key.Subject
		}
		return nil, a.guessed(f, net, "the API key is not valid")
	}
	return a.admit(h, addr, net)
}

// Applied and AwaitApplied make Access a toolkeep.FeedFollower.
func (a *Access) Applied() int64 { return a.position.Applied() }

func (a *Access) AwaitApplied(ctx context.Context, seq int64) error {
	return a.position.AwaitApplied(ctx, seq)
}

// unknownWait is how long an unknown key waits for what other nodes have made.
const unknownWait = time.Second

// find returns a key of the ring. One that is unknown may have been made on another node
// just now, so it is looked for again among all that is committed. nil if there is none.
func (a *Access) find(ctx context.Context, ring *keyring, id string) (*held, error) {
	if h := ring.byID[id]; h != nil {
		return h, nil
	}
	ctx, cancel := context.WithTimeout(ctx, unknownWait)
	defer cancel()
	if err := a.position.Await(ctx, a.config.Store); err != nil {
		return nil, toolkeep.NewError(toolkeep.RegistryUnavailable,
			"this node does not know the API key, and cannot ask the store now whether another node does; try again").
			After(time.Second).Because(err)
	}
	return a.keys.Load().byID[id], nil
}

// admit accepts the caller with the right secret, unless the key is revoked or expired.
func (a *Access) admit(h *held, addr, net string) (*toolkeep.Principal, error) {
	k := &h.key
	f := Failure{Tenant: k.Tenant, Subject: k.Subject, KeyID: k.ID, Addr: addr}
	if !k.RevokedAt.IsZero() {
		f.Reason = "revoked"
		return nil, a.outdated(f, net, "the API key was revoked; ask for another")
	}
	if !k.ExpiresAt.IsZero() && !a.config.Clock().Before(k.ExpiresAt) {
		f.Reason = "expired"
		return nil, a.outdated(f, net, "the API key expired; ask for another")
	}
	p := principalOf(k, a.rightsOf(&h.rights, k.Tenant, k.Roles))
	p.Addr = addr
	return p, nil
}

func principalOf(k *toolkeep.APIKey, r *rights) *toolkeep.Principal {
	return &toolkeep.Principal{Subject: k.Subject, Tenant: k.Tenant, Roles: r.roles, Method: "api_key", KeyID: k.ID, Until: k.ExpiresAt,
		Scope: k.Scope, Workspace: k.Workspace, Permissions: r.permissions}
}

// PrincipalOf returns who a key is for, with the permissions that its roles have now. It does not
// say whether the key is valid.
func (a *Access) PrincipalOf(k *toolkeep.APIKey) *toolkeep.Principal {
	return principalOf(k, a.current.Load().rights(k.Tenant, k.Roles))
}

// rightsOf returns what roles that were given mean now, computed on first use.
func (a *Access) rightsOf(known *atomic.Pointer[rights], tenant string, given []string) *rights {
	g := a.current.Load()
	r := known.Load()
	if r == nil || r.of != g {
		r = g.rights(tenant, given)
		known.Store(r)
	}
	return r
}

func (g *generation) rights(tenant string, given []string) *rights {
	roles := g.rules.of(tenant, given)
	return &rights{of: g, roles: roles, permissions: g.rules.permissions(roles)}
}

// Refresh re-checks a stored principal against the current keys and roles. Subject and
// OnBehalf stay; if the subject is not the key's own, the key must still have the
// permission act-as. A key that has expired since does not end the calls it admitted. A
// principal without a key keeps only the roles that a scope of the issuer or a rule of certificates
// still gives. One that a capability token narrowed stays narrowed. E3214, E3201, E3208, and E3003 as
// Authenticate.
func (a *Access) Refresh(ctx context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	if err := a.sessionHolds(p); err != nil {
		return nil, err
	}
	token, narrowed := p.Narrowed.(*capability.Token)
	if narrowed && a.config.Tokens != nil {
		if err := a.config.Tokens.Revoked(&token.Grant); err != nil {
			return nil, err
		}
	}
	now, err := a.refresh(ctx, p)
	if narrowed && err == nil && now != p {
		now.Permissions = nil
	}
	return now, err
}

func (a *Access) refresh(ctx context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	ring := a.keys.Load()
	if ring == nil {
		return nil, toolkeep.NewError(toolkeep.RegistryUnavailable, "the API keys are not loaded yet; try again shortly").After(time.Second)
	}
	own, subject, err := a.refreshCertificate(p)
	if err != nil {
		return nil, err
	}
	if p.KeyID == "" {
		now, err := a.refreshOutside(p, own)
		if err == nil && subject != "" && now.Subject != subject && !now.May(toolkeep.PermActAs) {
			return nil, certificateGone("names no such caller any more")
		}
		return now, err
	}
	h, err := a.find(ctx, ring, p.KeyID)
	if err != nil {
		return nil, err
	}
	if h == nil || h.key.Tenant != p.Tenant || !h.key.RevokedAt.IsZero() {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the API key that admitted the call is not valid any more")
	}
	if subject != "" && h.key.Subject != subject {
		return nil, certificateGone("names no such caller any more")
	}
	now, r := *p, a.rightsOf(&h.rights, h.key.Tenant, h.key.Roles)
	now.Roles, now.Scope, now.Workspace, now.Permissions, now.Method = r.roles, h.key.Scope, h.key.Workspace, r.permissions, "api_key"
	if now.Subject != h.key.Subject && !now.May(toolkeep.PermActAs) {
		return nil, refused("the API key that admitted the call may not act as another subject any more")
	}
	if ends := h.key.ExpiresAt; !ends.IsZero() && (now.Until.IsZero() || ends.Before(now.Until)) { // it was rotated meanwhile
		now.Until = ends
	}
	return &now, nil
}

// guessed counts a failure without the right secret, for the address and, if known, for
// the agent as seen from it. It returns the caller's error: E3214 with the message, or
// E3810 during a block.
func (a *Access) guessed(f Failure, net, message string) error {
	if err := a.failures.blocked(culprit{addr: net}); err != nil {
		f.Reason = "blocked"
		a.tell(f)
		return err
	}
	l := a.failures.limits
	if a.failures.note(culprit{addr: net}, a.failures.perAddr(), l.AddrBlock) {
		a.config.Log.Warn("address blocked after too many authentication failures", "addr", net, "for", l.AddrBlock)
	}
	return a.outdated(f, net, message)
}

// outdated is guessed for a caller with the right secret of a revoked or expired key, or
// with a token that the issuer has signed: it is not guessing, so the address is neither
// counted nor asked for.
func (a *Access) outdated(f Failure, net, message string) error {
	l, c := a.failures.limits, culprit{tenant: f.Tenant, subject: f.Subject, addr: net}
	if f.Subject != "" {
		if err := a.failures.blocked(c); err != nil {
			f.Reason = "blocked"
			a.tell(f)
			return err
		}
		if a.failures.note(c, l.PerAgent, l.AgentBlock) {
			a.config.Log.Warn("agent blocked at an address after too many authentication failures", "tenant", f.Tenant, "subject", f.Subject, "addr", net, "for", l.AgentBlock)
		}
	}
	a.failures.noteGlobal()
	a.tell(f)
	return toolkeep.NewError(toolkeep.Unauthenticated, "%s", message)
}

// NoteDenied counts a refused call of a tool for who acted, from any address.
func (a *Access) NoteDenied(p *toolkeep.Principal, tool string) {
	c := a.actor(p)
	f := Failure{Reason: "denied", Tool: cmp.Or(tool, "?"), Tenant: c.tenant, Subject: p.Subject, OnBehalf: p.OnBehalf, Chain: p.Chain, KeyID: p.KeyID, Addr: p.Addr}
	if a.failures.blocked(c) != nil {
		f.Reason = "blocked"
		a.tell(f)
		return
	}
	a.count(p, c)
	a.failures.noteGlobal()
	a.tell(f)
}

// count counts a refused call of who acts.
func (a *Access) count(p *toolkeep.Principal, c culprit) {
	if l := a.failures.limits; a.failures.note(c, l.PerAgent, l.AgentBlock) {
		a.config.Log.Warn("calls blocked after too many were refused", "tenant", c.tenant, "agent", c.subject, "subject", p.Subject, "on_behalf_of", p.OnBehalf, "for", l.AgentBlock)
	}
}

// NoteUnknown counts a call of a tool that does not exist, without telling of it. It counts as
// NoteDenied does: else a block would say which of the tools that the caller does not see exist.
func (a *Access) NoteUnknown(p *toolkeep.Principal) {
	a.count(p, a.actor(p))
}

// NoteRefused tells of a refused authorisation of what is no call. It counts for no
// block. permission is what was missing, "" if it has no name.
func (a *Access) NoteRefused(p *toolkeep.Principal, permission string) {
	a.tell(Failure{Reason: "denied", Tenant: p.Tenant, Subject: p.Subject, OnBehalf: p.OnBehalf, Chain: p.Chain, KeyID: p.KeyID, Addr: p.Addr, Permission: permission})
}

// Blocked returns E3810 for a while after too many refused calls of who acts, in place of the reasons of
// further ones. It is for refused calls alone: who acts still makes the calls that are allowed.
func (a *Access) Blocked(p *toolkeep.Principal) error { return a.failures.blocked(a.actor(p)) }

// actor identifies who acts: an agent, and the subject and the person that it acts for.
// Thus an agent blocks neither its other users nor a subject that has a key of its own.
func (a *Access) actor(p *toolkeep.Principal) culprit {
	c := culprit{person: p.OnBehalf}
	if c.tenant, c.subject = a.owner(p); c.subject != p.Subject {
		c.as = p.Subject
	}
	return c
}

// owner returns the tenant and subject that own the principal's key.
func (a *Access) owner(p *toolkeep.Principal) (tenant, subject string) {
	if ring := a.keys.Load(); ring != nil {
		if h := ring.byID[p.KeyID]; h != nil && h.key.Tenant == p.Tenant {
			return h.key.Tenant, h.key.Subject
		}
	}
	return p.Tenant, p.Subject
}

func (a *Access) tell(f Failure) {
	f.At = a.config.Clock()
	a.trail.tell(f, network(f.Addr))
	if a.config.OnFailure != nil {
		a.config.OnFailure(f)
	}
}
