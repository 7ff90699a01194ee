package oauth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// begun is a login that this node began; a second request for the same login gets its
// address.
type begun struct {
	ref    Ref
	ready  chan struct{} // closed once the other fields are set
	id     string        // of the item
	until  time.Time
	scopes []string // requested
	none   bool     // the server requires no login
	err    error
}

func (b *begun) isReady() bool {
	select {
	case <-b.ready:
		return true
	default:
		return false
	}
}

// serves reports whether the login fits an account and a challenge.
func (b *begun) serves(l *Logins, r Ref, ask challenge) bool {
	if b.ref.URL != r.URL || b.ref.ClientID != r.ClientID {
		return false
	}
	return !b.isReady() || l.c.Clock().Before(b.until) && subset(ask.scopes, b.scopes)
}

// Login begins a login, or finds the one under way, for an account that may already
// have one. resp is the refusing response, of which only the headers are read. With
// resp nil it returns nil if the server publishes no login metadata. Errors as
// Challenge.
func (l *Logins) Login(ctx context.Context, r Ref, resp *http.Response) error {
	return l.begin(ctx, r, challengeOf(resp))
}

func (l *Logins) begin(ctx context.Context, r Ref, ask challenge) error {
	l.mu.Lock()
	b := l.logins[r.key()]
	if b == nil || !b.serves(l, r, ask) {
		switch {
		case l.stopped:
			l.mu.Unlock()
			return draining()
		case len(l.logins) >= l.c.maxLogins:
			due := l.sweepDue()
			l.mu.Unlock()
			if due {
				l.spawn(func() { l.sweep(l.ctx) })
			}
			return unsent(toolkeep.NewError(toolkeep.RateLimitExceeded, "%d logins are under way already", l.c.maxLogins).After(time.Minute))
		}
		if old := b; old != nil && old.isReady() && old.id != "" && (old.ref.URL != r.URL || old.ref.ClientID != r.ClientID) {
			l.work.Go(func() { l.end(l.ctx, old) }) // its registration was replaced
		}
		b = &begun{ref: r, ready: make(chan struct{})}
		l.logins[r.key()] = b
		l.work.Go(func() { l.prepare(b, ask) })
	}
	l.mu.Unlock()
	select {
	case <-b.ready:
	case <-ctx.Done():
		return unsent(toolkeep.NewError(toolkeep.Cancelled, "the call ended while the login at the MCP server %s was prepared", r.Server).Because(ctx.Err()))
	}
	if b.err != nil || b.none {
		return b.err
	}
	at := l.c.PublicURL() + "/oauth/login/" + b.id
	// The address is not in the message, which goes into logs and events: a person who opens
	// it first could log the principal in with their own account.
	return unsent(toolkeep.NewError(toolkeep.LoginRequired, "%s has to log in at the MCP server %s: open details.url in a browser, then call again", r.Subject, r.Server).
		With("url", at).With("server", r.Server))
}

// end deletes a login whose registration is gone. What fails here ends in time.
func (l *Logins) end(ctx context.Context, b *begun) {
	drop := toolkeep.DeleteDocument{Kind: LoginKind, ID: b.id, Expect: toolkeep.AnyRevision, By: b.ref.Subject}
	if err := l.c.Store.Apply(ctx, drop); err != nil && !errors.Is(err, toolkeep.ErrNotFound) && ctx.Err() == nil {
		l.c.Log.Warn("a login that is over could not be taken out of the store", "server", b.ref.Server, "error", err)
	}
}

// EndLogins ends the pending logins at a server of a tenant (owner "" is all tenants) whose
// address is not, or no longer, url. E3965.
func (l *Logins) EndLogins(ctx context.Context, server, owner, url string) error {
	items, _, err := l.c.Store.Documents(ctx, LoginKind)
	for _, it := range items {
		g, revision, ferr := l.find(ctx, it.ID)
		if toolkeep.IsCode(ferr, toolkeep.RecordUnavailable) {
			err = ferr
			continue
		}
		if ferr != nil || g.Server != server || g.Address == url || owner != "" && g.Tenant != owner {
			continue // what cannot be read cannot be finished either
		}
		drop := toolkeep.DeleteDocument{Kind: LoginKind, ID: it.ID, Expect: revision}
		if e := l.c.Store.Apply(ctx, drop); e != nil && !errors.Is(e, toolkeep.ErrNotFound) && !errors.Is(e, toolkeep.ErrStale) {
			err = e
			continue
		}
		l.over(it.ID)
	}
	return storeFault(err, "the pending logins at the MCP server "+server+" cannot be ended now; try again")
}

func (l *Logins) sweep(ctx context.Context) {
	if err := l.Sweep(ctx); err != nil && ctx.Err() == nil {
		l.c.Log.Warn("logins that are over could not be taken out of the store", "error", err)
	}
}

// prepare runs discovery and stores the login. It has its own time limit: the first
// caller may give up while others wait.
func (l *Logins) prepare(b *begun, ask challenge) {
	ctx, cancel := context.WithTimeout(l.ctx, l.c.beginTime)
	defer cancel()
	err := l.tryBegin(ctx, b, ask)
	if err != nil {
		l.c.Log.Warn("a login at an MCP server could not begin", "server", b.ref.Server, "tenant", b.ref.Tenant, "agent_id", b.ref.Subject, "error", err)
		b.err = explain(b.ref, err)
	}
	l.mu.Lock()
	close(b.ready)
	if (b.err != nil || b.none) && l.logins[b.ref.key()] == b {
		delete(l.logins, b.ref.key())
	}
	due := l.sweepDue()
	if l.sweeper == nil && b.err == nil && !b.none {
		l.sweeper = time.AfterFunc(l.c.loginTime, l.sweepLater)
	}
	l.mu.Unlock()
	if due {
		l.sweep(l.ctx)
	}
}

// sweepLater ends the logins whose time is over, and comes back while others are pending.
func (l *Logins) sweepLater() {
	l.spawn(func() {
		l.sweep(l.ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.sweeper = nil
		if len(l.logins) > 0 && !l.stopped {
			l.sweeper = time.AfterFunc(l.c.loginTime/10+time.Millisecond, l.sweepLater)
		}
	})
}

func (l *Logins) tryBegin(ctx context.Context, b *begun, ask challenge) error {
	r := b.ref
	w, err := l.discover(ctx, r, ask)
	if err != nil {
		return err
	}
	if b.none = w == nil; b.none {
		return nil
	}
	_, rec, err := l.current(ctx, r)
	if err != nil {
		return err
	}
	want := ask.scopes
	if len(want) == 0 {
		want = w.scopes
	}
	if len(r.Scopes) > 0 {
		want = r.Scopes
		if ask.widen {
			want = union(want, ask.scopes)
		}
	}
	if rec.Issuer == w.issuer { // a login for more scopes keeps the granted ones
		want = union(rec.Scopes, want)
	}
	if ask.widen && rec.Access != "" && subset(want, rec.Asked) {
		return notEnough(r, want)
	}
	if w.offline && !slices.Contains(want, "offline_access") {
		want = append(slices.Clone(want), "offline_access")
	}
	redirect := l.c.PublicURL() + "/oauth/callback"
	who, err := l.client(ctx, r, w, redirect)
	if err != nil {
		return err
	}
	b.scopes, b.until = want, l.c.Clock().Add(l.c.loginTime)
	state, verifier := rand.Text(), rand.Text()+rand.Text()
	b.id = stateID(state)
	return l.putLogin(ctx, b.id, login{
		URL: authorizeURL(w, who, redirect, state, verifier, want), Mark: rand.Text(), Server: r.Server, Address: r.URL, Tenant: r.Tenant, Subject: r.Subject,
		Network: r.Network, Until: b.until, Verifier: verifier, Redirect: redirect, Issuer: w.issuer, IssuerSent: w.issuerSent,
		TokenURL: w.tokenURL, Resource: w.resource, ClientID: who.id, ClientSecret: who.secret, Method: who.method, Scopes: want,
	})
}

func notEnough(r Ref, scopes []string) error {
	return unsent(toolkeep.NewError(toolkeep.SecretAccessDenied,
		"the MCP server %s requires scopes (%s) that the login of %s asked for and did not get; log out and in again with an account that has them",
		r.Server, toolkeep.ClipBytes(strings.Join(scopes, " "), 200), r.Subject))
}

// authorizeURL returns the address for the browser. An endpoint's own query is kept.
func authorizeURL(w *way, who identity, redirect, state, verifier string, scopes []string) string {
	u, _ := url.Parse(w.authorizeURL) // already checked
	q := u.Query()
	sum := sha256.Sum256([]byte(verifier))
	for name, v := range map[string]string{
		"response_type": "code", "client_id": who.id, "redirect_uri": redirect, "state": state, "resource": w.resource,
		"code_challenge": base64.RawURLEncoding.EncodeToString(sum[:]), "code_challenge_method": "S256", "scope": strings.Join(scopes, " "),
	} {
		if q.Del(name); v != "" {
			q.Set(name, v)
		}
	}
	if slices.Contains(scopes, "offline_access") {
		q.Set("prompt", "consent") // OpenID Connect requires consent for offline_access
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// login is the sealed body of a login's item.
type login struct {
	URL     string `json:"url"`  // of the authorization server
	Mark    string `json:"mark"` // the browser's cookie
	Server  string `json:"server"`
	Address string `json:"address"` // of the MCP server
	Tenant  string `json:"tenant"`
	Subject string `json:"subject"`

	Network      []toolkeep.HostPort `json:"network,omitempty"`
	Until        time.Time           `json:"until"`
	Verifier     string              `json:"verifier"`
	Redirect     string              `json:"redirect"`
	Issuer       string              `json:"issuer"`
	IssuerSent   bool                `json:"issuer_sent,omitempty"`
	TokenURL     string              `json:"token_url"`
	Resource     string              `json:"resource"`
	ClientID     string              `json:"client_id"`
	ClientSecret string              `json:"client_secret,omitempty"`
	Method       string              `json:"method"`
	Scopes       []string            `json:"scopes,omitempty"`
}

func (g *login) ref() Ref {
	return Ref{Server: g.Server, URL: g.Address, Tenant: g.Tenant, Subject: g.Subject, Network: g.Network}
}

// stateID names a login's item without revealing its state.
func stateID(state string) string {
	h := sha256.Sum256([]byte(state))
	return hex.EncodeToString(h[:16])
}

func loginPlace(id string) []byte { return []byte(LoginKind + "\x00" + id) }

func (l *Logins) putLogin(ctx context.Context, id string, g login) error {
	plain, err := json.Marshal(g)
	if err != nil {
		return err
	}
	sealed, err := l.c.Sealer.Seal(plain, loginPlace(id))
	if err != nil {
		return err
	}
	item := toolkeep.Document{Kind: LoginKind, ID: id, Body: sealed, UpdatedAt: l.c.Clock(), UpdatedBy: g.Subject}
	return storeFault(l.c.Store.Apply(ctx, toolkeep.PutDocument{Document: item, Expect: toolkeep.NoRevision}), "a login cannot be stored now; try again")
}

// errOver means that a login was completed or has expired.
var errOver = errors.New("the login is over")

// find returns a login under way and its revision.
func (l *Logins) find(ctx context.Context, id string) (login, int64, error) {
	var g login
	if len(id) != 32 {
		return g, 0, errOver
	}
	it, err := l.c.Store.Document(ctx, LoginKind, "", id)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return g, 0, errOver
	}
	if err != nil {
		return g, 0, storeFault(err, "the pending login cannot be read now; try again")
	}
	plain, err := l.c.Sealer.Open(it.Body, loginPlace(id))
	if err == nil {
		err = json.Unmarshal(plain, &g)
	}
	if err == nil && !l.c.Clock().Before(g.Until) {
		err = errOver
	}
	return g, it.Revision, err
}

// answer is what the authorization server put into the callback.
type answer struct{ code, issuer, denied string }

// finish removes the login from the store, exchanges the code and stores the token.
// errOver: another request removed it first.
func (l *Logins) finish(ctx context.Context, id string, g login, revision int64, a answer) error {
	drop := toolkeep.DeleteDocument{Kind: LoginKind, ID: id, Expect: revision, By: g.Subject}
	switch err := l.c.Store.Apply(ctx, drop); {
	case errors.Is(err, toolkeep.ErrNotFound), errors.Is(err, toolkeep.ErrStale):
		return errOver
	case err != nil:
		return storeFault(err, "the login cannot be stored now")
	}
	l.over(id)
	if a.denied != "" {
		return refuse("it answered %s", toolkeep.ClipBytes(a.denied, 200))
	}
	if a.code == "" || len(a.code) > maxToken {
		return refuse("it sent no code")
	}
	// RFC 9207: a code issued by another server must not be exchanged here.
	if a.issuer != g.Issuer && (a.issuer != "" || g.IssuerSent) {
		return refuse("the answer does not come from %s", toolkeep.ClipBytes(g.Issuer, 200))
	}
	got, err := l.grant(ctx, g.ref(), g.TokenURL, identity{g.ClientID, g.ClientSecret, g.Method}, url.Values{
		"grant_type": {"authorization_code"}, "code": {a.code}, "redirect_uri": {g.Redirect}, "code_verifier": {g.Verifier}, "resource": {g.Resource},
	})
	if err != nil {
		return err
	}
	rec := record{URL: g.Address, Issuer: g.Issuer, TokenURL: g.TokenURL, Resource: g.Resource,
		ClientID: g.ClientID, ClientSecret: g.ClientSecret, Method: g.Method, Asked: g.Scopes}
	rec.take(got, l.c.Clock())
	if err := l.put(ctx, g.ref(), rec, toolkeep.AnyRevision); err != nil {
		return err
	}
	l.changed(g.Tenant, g.ref().id(), 0)
	return nil
}
