package access

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

const (
	// EndedKind is the kind of the documents that name the sessions that were ended, until none of that name could be valid.
	EndedKind = "session_ended"
	// MaxEnded is how many ended sessions a tenant has at most.
	MaxEnded = 10_000
	// LinkLife is how long a login link can be used, once; below toolkeep.NonceHold, for which its use is remembered.
	LinkLife = 10 * time.Minute
	// renewAfter is how long after its last renewal a session in use is renewed.
	renewAfter = 5 * time.Minute
	// maxSession is the longest text of a session or login link, in bytes.
	maxSession = 4 << 10
)

// How a session began, as toolkeep.ConsoleSession has it.
const (
	byKey  = "key"
	byLink = "link"
)

var (
	sessionContext = []byte("a session of the console")
	linkContext    = []byte("a login link of the console")
)

// Sessions configures the sessions of browsers.
type Sessions struct {
	Life time.Duration // of a session; 0: there are none
	Idle time.Duration // without a request, after which it ends
	// Documents reads those of a kind in the store. It is asked where Life is set.
	Documents func(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// sealed is what a session's cookie holds: it stands in no store, and every node with the sealing key opens it. It has no rights
// in it: those are its key's, which is looked up at each request.
type sealed struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	Key    string `json:"key"`
	Method string `json:"method"`
	CSRF   []byte `json:"csrf"`  // SHA-256 of the token that goes with it
	Until  int64  `json:"until"` // Unix seconds
	Used   int64  `json:"used"`
}

// link is what a login link holds.
type link struct {
	Tenant string `json:"tenant"`
	Key    string `json:"key"`
	Nonce  string `json:"nonce"`
	Until  int64  `json:"until"`
}

type endedBody struct {
	Until time.Time `json:"until"`
}

// endedSessions are those that were ended and could still be valid.
type endedSessions struct {
	mu  sync.Mutex
	all map[endedID]time.Time // until when they are kept
}

type endedID struct{ tenant, id string }

func (e *endedSessions) load(ctx context.Context, c *Sessions) error {
	if c.Life <= 0 || c.Documents == nil {
		return nil
	}
	docs, _, err := c.Documents(ctx, EndedKind)
	if err != nil {
		return toolkeep.NewError(toolkeep.RegistryUnavailable, "the sessions that were ended cannot be loaded").Because(err)
	}
	for _, d := range docs {
		e.put(d)
	}
	return nil
}

func (e *endedSessions) follow(c toolkeep.Committed) {
	switch ch := c.Change.(type) {
	case toolkeep.PutDocument:
		if ch.Document.Kind == EndedKind {
			e.put(ch.Document)
		}
	case toolkeep.DeleteDocument:
		if ch.Kind == EndedKind {
			e.mu.Lock()
			delete(e.all, endedID{ch.Tenant, ch.ID})
			e.mu.Unlock()
		}
	}
}

func (e *endedSessions) put(d toolkeep.Document) {
	var b endedBody
	if json.Unmarshal(d.Body, &b) != nil || b.Until.IsZero() {
		b.Until = time.Now().AddDate(1, 0, 0) // it has ended, whatever its body says
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.all == nil {
		e.all = map[endedID]time.Time{}
	}
	e.all[endedID{d.Tenant, d.ID}] = b.Until
}

func (e *endedSessions) has(tenant, id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.all[endedID{tenant, id}]
	return ok
}

// over is the answer to a session that holds no more. It is nothing that was guessed: what holds no more was sealed here.
func over(reason, format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.Unauthenticated, format, args...).With("reason", reason)
}

func sessionOver() *toolkeep.Error {
	return over("SESSION_OVER", "the session has ended, or its key is not valid any more; log in again")
}

// seal writes v as text that only the nodes of this store can read.
func (a *Access) seal(v any, context []byte) (string, error) {
	plain, err := json.Marshal(v)
	if err == nil && a.config.Signing.Sealer == nil {
		err = errors.New("there is no sealer")
	}
	var text []byte
	if err == nil {
		text, err = a.config.Signing.Sealer.Seal(plain, context)
	}
	if err != nil {
		return "", toolkeep.NewError(toolkeep.SecretRetrievalFailed, "the session could not be sealed").Because(err)
	}
	return base64.RawURLEncoding.EncodeToString(text), nil
}

// unseal reads what seal wrote.
func (a *Access) unseal(text string, context []byte, v any) bool {
	if len(text) > maxSession || a.config.Signing.Sealer == nil || a.config.Sessions.Life <= 0 {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := a.config.Signing.Sealer.Open(raw, context)
	return err == nil && json.Unmarshal(plain, v) == nil
}

// open reads a session with the token that goes with it. E3214.
func (a *Access) open(cookie, token string) (*sealed, *toolkeep.Error) {
	var s sealed
	if !a.unseal(cookie, sessionContext, &s) {
		return nil, sessionOver()
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], s.CSRF) != 1 {
		return nil, over("CSRF_WRONG", "X-Toolkeep-CSRF does not belong to the session; log in again")
	}
	ends := time.Unix(min(s.Until, s.Used+int64(a.config.Sessions.Idle/time.Second)), 0)
	if !a.config.Clock().Before(ends) || a.ended.has(s.Tenant, s.ID) {
		return nil, sessionOver()
	}
	return &s, nil
}

// AuthenticateSession returns the principal of a browser's session: that of its key, as that is now. token is what goes with the
// session beside its cookie. A session that holds no more counts for no block; a key that was revoked or has expired counts as
// in Authenticate, and so do its errors; a rotated one is E3214.
func (a *Access) AuthenticateSession(ctx context.Context, cookie, token, addr string) (*toolkeep.Principal, error) {
	ring := a.keys.Load()
	if ring == nil {
		return nil, toolkeep.NewError(toolkeep.RegistryUnavailable, "the API keys are not loaded yet; try again shortly").After(time.Second)
	}
	if a.config.Fresh != nil {
		if err := a.config.Fresh(ctx); err != nil {
			return nil, err
		}
	}
	s, no := a.open(cookie, token)
	if no != nil {
		a.tell(Failure{Reason: "session", Addr: addr})
		return nil, no
	}
	p, err := a.ofKey(ctx, ring, s.Tenant, s.Key, addr)
	if err != nil {
		return nil, err
	}
	// This request is a use of the session, so that its idle time begins again. A stream ends with that.
	until := time.Unix(s.Until, 0)
	if !p.Until.IsZero() && p.Until.Before(until) {
		until = p.Until
	}
	idle := a.config.Clock().Add(a.config.Sessions.Idle)
	if until.Before(idle) {
		idle = until
	}
	p.Until = idle
	p.Console = &toolkeep.ConsoleSession{ID: s.ID, Method: s.Method, Until: until, IdleUntil: idle}
	return p, nil
}

// ofKey returns the principal of a key without its text, which what was sealed here stands for.
func (a *Access) ofKey(ctx context.Context, ring *keyring, tenant, id, addr string) (*toolkeep.Principal, error) {
	h, err := a.find(ctx, ring, id)
	switch {
	case err != nil:
		return nil, err
	case h == nil || h.key.Tenant != tenant || h.key.Successor != "":
		a.tell(Failure{Reason: "session", KeyID: id, Tenant: tenant, Addr: addr})
		return nil, sessionOver()
	}
	return a.admit(h, addr, network(addr))
}

// MayHaveSession checks that a principal may begin a session or make a login link: it came with its own API key, all of whose
// rights it has, and whose requests need no signature. E3201 where it did not, and where there are no sessions.
func (a *Access) MayHaveSession(p *toolkeep.Principal) error {
	h := a.keyOf(p)
	switch {
	case a.config.Sessions.Life <= 0:
		return refused("this server has no sessions (console.enabled)")
	case h == nil:
		return refused("a session is of an API key; send one in Authorization: Bearer")
	case p.Console != nil:
		return refused("a session begins with a key itself, not with another session: it would never end")
	case p.Narrowed != nil || p.Subject != h.key.Subject || p.OnBehalf != "":
		return refused("a session has all that its key may; send neither a capability token nor another user")
	case a.MustSign(p, "rest"):
		return refused("requests with this key must be signed, which a browser does not do; use another key")
	case h.key.Successor != "":
		return refused("this key was rotated; use its successor")
	}
	return nil
}

// BeginSession begins a session of the key that the principal came with. cookie and token are shown this once. E3201, E3965.
func (a *Access) BeginSession(ctx context.Context, p *toolkeep.Principal) (cookie, token string, s *toolkeep.ConsoleSession, err error) {
	if err := a.MayHaveSession(p); err != nil {
		return "", "", nil, err
	}
	return a.begin(ctx, p, byKey)
}

func (a *Access) begin(ctx context.Context, p *toolkeep.Principal, method string) (cookie, token string, s *toolkeep.ConsoleSession, err error) {
	now := a.config.Clock()
	until := now.Add(a.config.Sessions.Life)
	token = rand.Text()
	sum := sha256.Sum256([]byte(token))
	in := sealed{ID: uuid.NewString(), Tenant: p.Tenant, Key: p.KeyID, Method: method, CSRF: sum[:], Until: until.Unix(), Used: now.Unix()}
	if cookie, err = a.seal(in, sessionContext); err != nil {
		return "", "", nil, err
	}
	if err = a.config.Store.Apply(ctx, a.sessionEvent("begun", p, in.ID, map[string]any{"method": method})); err != nil {
		return "", "", nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the session could not be recorded; it was not begun").Because(err)
	}
	return cookie, token, &toolkeep.ConsoleSession{ID: in.ID, Method: method, Until: time.Unix(in.Until, 0), IdleUntil: now.Add(min(a.config.Sessions.Idle, a.config.Sessions.Life))}, nil
}

func (a *Access) sessionEvent(what string, p *toolkeep.Principal, id string, data map[string]any) toolkeep.Change {
	data["session_id"], data["key_id"], data["subject"] = id, p.KeyID, p.Subject
	if p.Addr != "" {
		data["ip_address"] = p.Addr
	}
	return toolkeep.AppendEvent{Event: toolkeep.Event{Person: p.Person(), ID: uuid.Must(uuid.NewV7()).String(), Type: "ai.agent.auth.session_" + what, Tenant: p.Tenant,
		Time: a.config.Clock().UTC(), Data: canon.Append(nil, data)}}
}

// RenewSession returns the cookie of a session in use with its idle time begun again, "" where it needs none or holds no more.
func (a *Access) RenewSession(cookie, token string) (renewed string, life time.Duration) {
	s, no := a.open(cookie, token)
	now := a.config.Clock()
	if no != nil || now.Sub(time.Unix(s.Used, 0)) < min(renewAfter, a.config.Sessions.Idle/2) {
		return "", 0
	}
	s.Used = now.Unix()
	renewed, err := a.seal(s, sessionContext)
	if err != nil {
		return "", 0
	}
	return renewed, time.Unix(s.Until, 0).Sub(now)
}

// EndSession ends the session that the principal came with, on all nodes within a second. Without one there is nothing to end.
// E3922 where the tenant has ended MaxEnded that could still be valid, E3965.
func (a *Access) EndSession(ctx context.Context, p *toolkeep.Principal) error {
	if p.Console == nil {
		return nil
	}
	body, err := json.Marshal(endedBody{p.Console.Until.Add(time.Minute).UTC()}) // clocks of nodes differ
	if err != nil {
		return err
	}
	changes := []toolkeep.Change{a.sessionEvent("ended", p, p.Console.ID, map[string]any{}), toolkeep.PutDocument{Expect: toolkeep.AnyRevision,
		Document: toolkeep.Document{Kind: EndedKind, Tenant: p.Tenant, ID: p.Console.ID, Body: body, UpdatedBy: p.Subject}}}
	n, now := 0, a.config.Clock()
	a.ended.mu.Lock()
	for e, until := range a.ended.all {
		switch {
		case e.tenant != p.Tenant || e.id == p.Console.ID:
		case now.After(until) && len(changes) < 100:
			changes = append(changes, toolkeep.DeleteDocument{Kind: EndedKind, Tenant: e.tenant, ID: e.id, Expect: toolkeep.AnyRevision, By: p.Subject})
		default:
			n++
		}
	}
	a.ended.mu.Unlock()
	if n >= MaxEnded {
		return toolkeep.NewError(toolkeep.ResourceExhausted, "the tenant has ended %d sessions that could still be valid, the most that are kept; revoke or rotate the key, which ends its sessions", n)
	}
	err = a.config.Store.Apply(ctx, changes...)
	if errors.Is(err, toolkeep.ErrNotFound) { // another node swept the same
		changes = changes[:2]
		err = a.config.Store.Apply(ctx, changes...)
	}
	if err != nil {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the session could not be ended; try again").Because(err)
	}
	for _, c := range changes {
		a.ended.follow(toolkeep.Committed{Change: c})
	}
	return nil
}

// MakeLink makes the text of a login link for the key that the principal came with: it begins one session, within LinkLife.
// E3201.
func (a *Access) MakeLink(p *toolkeep.Principal) (text string, until time.Time, err error) {
	if err := a.MayHaveSession(p); err != nil {
		return "", until, err
	}
	until = a.config.Clock().Add(LinkLife)
	text, err = a.seal(link{p.Tenant, p.KeyID, rand.Text(), until.Unix()}, linkContext)
	return text, until, err
}

// RedeemLink begins a session by the text of a login link. A text that nothing was sealed as counts as a guess of the address.
// E3214 for one that is wrong, too old or used, and as AuthenticateSession, BeginSession; E3810.
func (a *Access) RedeemLink(ctx context.Context, text, addr string) (p *toolkeep.Principal, cookie, token string, err error) {
	ring := a.keys.Load()
	if ring == nil {
		return nil, "", "", toolkeep.NewError(toolkeep.RegistryUnavailable, "the API keys are not loaded yet; try again shortly").After(time.Second)
	}
	var l link
	if !a.unseal(text, linkContext, &l) {
		return nil, "", "", a.guessed(Failure{Reason: "link", Addr: addr}, network(addr), "the login link is not one of this server; make another with toolkeep console")
	}
	if !a.config.Clock().Before(time.Unix(l.Until, 0)) {
		return nil, "", "", over("LINK_OVER", "the login link is older than ten minutes; make another with toolkeep console")
	}
	if p, err = a.ofKey(ctx, ring, l.Tenant, l.Key, addr); err == nil {
		err = a.MayHaveSession(p)
	}
	if err != nil {
		return nil, "", "", err
	}
	if err = a.verifier.Once(ctx, "login link", l.Nonce); err != nil {
		if toolkeep.IsCode(err, toolkeep.ReplayDetected) {
			err = over("LINK_USED", "the login link was used before; make another with toolkeep console")
		}
		return nil, "", "", err
	}
	cookie, token, p.Console, err = a.begin(ctx, p, byLink)
	return p, cookie, token, err
}

// sessionHolds is Refresh for the session that the principal came by.
func (a *Access) sessionHolds(p *toolkeep.Principal) error {
	if s := p.Console; s != nil {
		h := a.keyOf(p)
		if a.ended.has(p.Tenant, s.ID) || cmp.Compare(a.config.Clock().Unix(), s.Until.Unix()) >= 0 || h != nil && h.key.Successor != "" {
			return sessionOver()
		}
	}
	return nil
}
