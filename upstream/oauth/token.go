package oauth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

const (
	// early is how long before its expiry a token is renewed, at most half its life.
	early = 30 * time.Second
	// lease is how long a node may use a refresh token exclusively. It is longer than
	// the request and the writes around it.
	lease = 30 * time.Second
	// look is how often a node that waits for another node's refresh polls the item,
	// besides the feed.
	look = 250 * time.Millisecond
	// again is the pause before a failed write of a token is repeated.
	again = time.Second
)

// record is the sealed body of a token's item: the token and all that renewing it
// needs.
type record struct {
	URL          string    `json:"url"` // of the MCP server; the token is valid for no other
	Issuer       string    `json:"issuer"`
	Access       string    `json:"access"`
	Refresh      string    `json:"refresh,omitempty"`
	Expiry       time.Time `json:"expiry,omitzero"`
	At           time.Time `json:"at"` // when Access was issued
	TokenURL     string    `json:"token_url"`
	Resource     string    `json:"resource"`
	ClientID     string    `json:"client_id"`
	ClientSecret string    `json:"client_secret,omitempty"`
	Method       string    `json:"method"`
	Scopes       []string  `json:"scopes,omitempty"` // granted
	Asked        []string  `json:"asked,omitempty"`  // requested
	// Renewing is until when a node uses the refresh token.
	Renewing time.Time `json:"renewing,omitzero"`
}

// due reports whether the token is to be renewed.
func (rec *record) due(now time.Time) bool {
	ahead := early
	if half := rec.Expiry.Sub(rec.At) / 2; !rec.At.IsZero() && half < ahead {
		ahead = half
	}
	return !rec.Expiry.IsZero() && !now.Add(ahead).Before(rec.Expiry)
}

// take stores the response of a token endpoint.
func (rec *record) take(g granted, now time.Time) {
	rec.Access, rec.Expiry, rec.At, rec.Renewing = g.access, g.expiry, now, time.Time{}
	if g.refresh != "" {
		rec.Refresh = g.refresh
	}
	switch {
	case g.scopes != nil:
		rec.Scopes = g.scopes
	case rec.Scopes == nil:
		rec.Scopes = rec.Asked
	}
}

// token is this node's copy of one account's token. mu guards all non-atomic fields,
// and is never held during a request to an authorization server.
type token struct {
	mu         chan struct{} // a lock whose wait can be cancelled
	known      bool
	rec        record // as stored; Access "" is none
	revision   int64
	unsaved    bool // rec is newer than the store
	refreshing *refresh
	release    func() // releases the secrets in Redact

	stale atomic.Bool   // the store has another revision
	seen  atomic.Int64  // revision
	news  chan struct{} // closed at a change; guarded by Logins.mu
}

// refresh is one use of a refresh token, shared by all callers waiting for it.
type refresh struct {
	done   chan struct{}
	access string
	err    error
}

func (l *Logins) token(r Ref) *token {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tokens[r.key()]
	if t == nil {
		if len(l.tokens) >= maxTokens {
			l.evict()
		}
		t = &token{mu: make(chan struct{}, 1), news: make(chan struct{}), release: func() {}}
		l.tokens[r.key()] = t
	}
	return t
}

// evict drops some unused tokens. It is called with mu held.
func (l *Logins) evict() {
	n := 0
	for key, t := range l.tokens {
		select {
		case t.mu <- struct{}{}:
			if t.refreshing == nil && !t.unsaved {
				t.release()
				t.known, t.release = false, func() {}
				delete(l.tokens, key)
				n++
			}
			<-t.mu
		default:
		}
		if n >= maxTokens/100 {
			return
		}
	}
}

// changed marks a token as stale: the store has another revision; revision 0 means any.
func (l *Logins) changed(tenant, id string, revision int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tokens[accountKey(tenant, id)]
	if t == nil || revision != 0 && revision == t.seen.Load() {
		return
	}
	t.stale.Store(true)
	close(t.news)
	t.news = make(chan struct{})
}

func (l *Logins) newsOf(t *token) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.news
}

func (t *token) lock(ctx context.Context) error {
	select {
	case t.mu <- struct{}{}:
		return nil
	case <-ctx.Done():
		return gaveUp(ctx)
	}
}

func (t *token) unlock() { <-t.mu }

func gaveUp(ctx context.Context) error {
	return unsent(toolkeep.NewError(toolkeep.Cancelled, "the call ended while its login was looked up").Because(ctx.Err()))
}

// of returns the record if it is for this server's address, not for an earlier server
// of the same name.
func (t *token) of(r Ref) record {
	if t.rec.URL != r.URL {
		return record{}
	}
	return t.rec
}

// set takes over the stored record. It is called with the lock held.
func (l *Logins) set(r Ref, t *token, rec record, revision int64) {
	release := l.c.Redact.Hold(redact.Scope{Tenant: r.Tenant, Person: r.Subject, Upstream: redact.URLHost(r.URL)}, rec.Access, rec.Refresh, rec.ClientSecret)
	t.release()
	t.known, t.rec, t.revision, t.release = true, rec, revision, release
	t.seen.Store(revision)
}

// load reads the token if it is unknown or stale, and always if fresh. It is called
// with the lock held.
func (l *Logins) load(ctx context.Context, r Ref, t *token, fresh bool) error {
	if t.unsaved && !l.save(ctx, r, t) {
		return nil // the store is down: the copy is the latest known
	}
	stale := t.stale.Load()
	if t.known && !stale && !fresh {
		return nil
	}
	t.stale.Store(false)
	it, err := l.c.Store.Document(ctx, TokenKind, r.Tenant, r.id())
	if errors.Is(err, toolkeep.ErrNotFound) {
		l.set(r, t, record{}, 0)
		return nil
	}
	if err != nil {
		if stale {
			t.stale.Store(true)
		}
		if ctx.Err() != nil {
			return gaveUp(ctx)
		}
		return storeFault(err, "the login at the MCP server "+r.Server+" cannot be read now; try again")
	}
	var rec record
	plain, err := l.c.Sealer.Open(it.Body, tokenPlace(r))
	if err == nil {
		err = json.Unmarshal(plain, &rec)
	}
	if err != nil { // sealed with another key file: the login is lost
		l.c.Log.Error("a stored login cannot be opened; the principal has to log in again", "server", r.Server, "tenant", r.Tenant, "agent_id", r.Subject, "error", err)
		rec = record{}
	}
	l.set(r, t, rec, it.Revision)
	return nil
}

// save writes a token whose first write failed; false: it failed again. It is called
// with the lock held.
func (l *Logins) save(ctx context.Context, r Ref, t *token) bool {
	switch err := l.put(ctx, r, t.rec, t.revision); {
	case err == nil:
		t.revision++
		t.seen.Store(t.revision)
	case errors.Is(err, toolkeep.ErrStale): // a login or a logout came in between
		t.stale.Store(true)
	default:
		return false
	}
	t.unsaved = false
	return true
}

func (l *Logins) put(ctx context.Context, r Ref, rec record, expect int64) error {
	plain, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	sealed, err := l.c.Sealer.Seal(plain, tokenPlace(r))
	if err != nil {
		return err
	}
	item := toolkeep.Document{Kind: TokenKind, Tenant: r.Tenant, ID: r.id(), Body: sealed, UpdatedAt: l.c.Clock(), UpdatedBy: r.Subject}
	return storeFault(l.c.Store.Apply(ctx, toolkeep.PutDocument{Document: item, Expect: expect}), "the login at the MCP server "+r.Server+" cannot be stored now; try again")
}

func tokenPlace(r Ref) []byte { return []byte(TokenKind + "\x00" + r.Tenant + "\x00" + r.id()) }

// current reads the store's current token.
func (l *Logins) current(ctx context.Context, r Ref) (access string, rec record, err error) {
	t := l.token(r)
	if err := t.lock(ctx); err != nil {
		return "", rec, err
	}
	defer t.unlock()
	if err := l.load(ctx, r, t, true); err != nil {
		return "", rec, err
	}
	rec = t.of(r)
	return rec.Access, rec, nil
}

// Token returns the account's bearer token, renewed if it is about to expire; "" if
// there is no login or it has ended. E3965; E3403 if it must be renewed and the
// authorization server does not respond.
func (l *Logins) Token(ctx context.Context, r Ref) (string, error) {
	t := l.token(r)
	if err := t.lock(ctx); err != nil {
		return "", err
	}
	if err := l.load(ctx, r, t, false); err != nil {
		t.unlock()
		return "", err
	}
	rec, now := t.of(r), l.c.Clock()
	if rec.Access == "" || !rec.due(now) {
		t.unlock()
		return rec.Access, nil
	}
	if rec.Refresh == "" {
		t.unlock()
		if now.Before(rec.Expiry) {
			return rec.Access, nil
		}
		return "", nil
	}
	f := l.startRefresh(r, t, rec.Access)
	t.unlock()
	access, err := f.wait(ctx)
	if err != nil && ctx.Err() == nil && l.c.Clock().Before(rec.Expiry) {
		return rec.Access, nil // it is still valid for a moment
	}
	return access, err
}

// renewed returns another token than the refused one, or "" if there is none.
func (l *Logins) renewed(ctx context.Context, r Ref, used string) (string, error) {
	t := l.token(r)
	if err := t.lock(ctx); err != nil {
		return "", err
	}
	if err := l.load(ctx, r, t, false); err != nil {
		t.unlock()
		return "", err
	}
	rec := t.of(r)
	switch {
	case rec.Access != used:
		t.unlock()
		return rec.Access, nil
	case rec.Refresh == "":
		t.unlock()
		return "", nil
	}
	f := l.startRefresh(r, t, used)
	t.unlock()
	return f.wait(ctx)
}

func (f *refresh) wait(ctx context.Context) (string, error) {
	select {
	case <-f.done:
		return f.access, f.err
	case <-ctx.Done():
		return "", gaveUp(ctx)
	}
}

// startRefresh joins the refresh under way, or starts one. It is called with the lock
// held.
func (l *Logins) startRefresh(r Ref, t *token, old string) *refresh {
	if t.refreshing != nil {
		return t.refreshing
	}
	f := &refresh{done: make(chan struct{})}
	t.refreshing = f
	started := l.spawn(func() {
		f.access, f.err = l.renew(r, t, old)
		t.mu <- struct{}{}
		t.refreshing = nil
		t.unlock()
		close(f.done)
	})
	if !started {
		t.refreshing = nil
		f.err = draining()
		close(f.done)
	}
	return f
}

// renew uses the refresh token once it has claimed it. If the authorization server
// rejects it for good, the login ends.
func (l *Logins) renew(r Ref, t *token, old string) (string, error) {
	rec, revision, err := l.claim(r, t, old)
	if err != nil || rec.Access != old || rec.Refresh == "" {
		return rec.Access, err
	}
	// No cancellation from here on: the response with the new token comes only once.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), lease-time.Second)
	defer cancel()
	who := identity{rec.ClientID, rec.ClientSecret, rec.Method}
	if r.ClientID == rec.ClientID && r.ClientSecret != nil {
		who.secret, err = r.secret(ctx)
	}
	var got granted
	if err == nil {
		got, err = l.grant(ctx, r, rec.TokenURL, who, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {rec.Refresh}, "resource": {rec.Resource}})
	}
	if err != nil {
		return l.unrenewed(ctx, r, t, rec, revision, err)
	}
	rec.take(got, l.c.Clock())
	err = l.put(ctx, r, rec, revision)
	t.mu <- struct{}{}
	defer t.unlock()
	switch {
	case err == nil:
		l.set(r, t, rec, revision+1)
		return rec.Access, nil
	case errors.Is(err, toolkeep.ErrStale): // a login or a logout came in between
		err = l.load(ctx, r, t, true)
		return t.of(r).Access, err
	}
	l.c.Log.Error("a renewed login could not be stored; storing it is tried again", "server", r.Server, "tenant", r.Tenant, "agent_id", r.Subject, "error", err)
	l.set(r, t, rec, revision)
	t.unsaved = true
	l.spawn(func() { l.keepTrying(r, t) })
	return rec.Access, nil
}

// claim reserves the refresh token for this node. If it returns no error and rec.Access
// differs from old, another node has already renewed it.
func (l *Logins) claim(r Ref, t *token, old string) (rec record, revision int64, err error) {
	for {
		news := l.newsOf(t)
		t.mu <- struct{}{}
		err := l.load(l.ctx, r, t, true)
		rec, revision := t.of(r), t.revision
		t.unlock()
		if err != nil || rec.Access != old || rec.Refresh == "" {
			return rec, revision, err
		}
		now := l.c.Clock()
		if left := rec.Renewing.Sub(now); left > 0 {
			timer := time.NewTimer(min(left, look))
			select {
			case <-news:
			case <-timer.C:
			case <-l.ctx.Done():
			}
			timer.Stop()
			if l.ctx.Err() != nil {
				return record{}, 0, draining()
			}
			continue
		}
		claimed := rec
		claimed.Renewing = now.Add(lease)
		if err = l.put(l.ctx, r, claimed, revision); errors.Is(err, toolkeep.ErrStale) {
			continue
		}
		return rec, revision + 1, err
	}
}

// unrenewed handles a refresh that yielded no token.
func (l *Logins) unrenewed(ctx context.Context, r Ref, t *token, rec record, revision int64, cause error) (string, error) {
	if !ends(r, cause) {
		rec.Renewing = time.Time{}
		if err := l.put(ctx, r, rec, revision); err != nil && !errors.Is(err, toolkeep.ErrStale) {
			l.c.Log.Warn("the end of an attempt to renew a login could not be recorded", "server", r.Server, "error", err)
		}
		l.c.Log.Warn("a login at an MCP server could not be renewed", "server", r.Server, "tenant", r.Tenant, "agent_id", r.Subject, "error", cause)
		var own *toolkeep.Error
		if errors.As(cause, &own) {
			e := *own
			return "", unsent(&e)
		}
		return "", unsent(toolkeep.NewError(toolkeep.SecretRetrievalFailed, "the login of %s at the MCP server %s could not be renewed now; try again", r.Subject, r.Server).
			With("server", r.Server).Because(cause))
	}
	err := l.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: TokenKind, Tenant: r.Tenant, ID: r.id(), Expect: revision, By: r.Subject})
	if err != nil && !errors.Is(err, toolkeep.ErrStale) && !errors.Is(err, toolkeep.ErrNotFound) {
		return "", storeFault(err, "the end of the login at the MCP server "+r.Server+" cannot be recorded now; try again")
	}
	t.mu <- struct{}{}
	defer t.unlock()
	if err != nil { // a login happened meanwhile
		err = l.load(ctx, r, t, true)
		return t.of(r).Access, err
	}
	l.c.Log.Warn("a login at an MCP server has ended", "server", r.Server, "tenant", r.Tenant, "agent_id", r.Subject, "error", cause)
	l.set(r, t, record{}, 0)
	return "", nil
}

// ends reports whether a refusal ends the login. The secret of a manual registration
// may have been replaced before it is updated here.
func ends(r Ref, err error) bool {
	var s *statusError
	if !errors.As(err, &s) {
		return false
	}
	switch s.code {
	case "invalid_grant", "invalid_scope", "invalid_target", "unsupported_grant_type":
		return true
	case "invalid_client", "unauthorized_client":
		return r.ClientID == ""
	case "":
		return s.status == http.StatusBadRequest || s.status == http.StatusUnauthorized
	}
	return false
}

// keepTrying repeats the write of a token until the store takes it.
func (l *Logins) keepTrying(r Ref, t *token) {
	timer := time.NewTicker(again)
	defer timer.Stop()
	for {
		last := false
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			last = true
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), requestTime)
		t.mu <- struct{}{}
		done := !t.unsaved || l.save(ctx, r, t)
		t.unlock()
		cancel()
		if done || last {
			return
		}
	}
}

// Logout deletes the account's token, and revokes it where the authorization server has
// an endpoint for that (RFC 7009). A revocation that fails is logged: the login here has
// ended. E3965.
func (l *Logins) Logout(ctx context.Context, r Ref) error {
	_, rec, err := l.current(ctx, r)
	if err != nil {
		return err
	}
	err = l.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: TokenKind, Tenant: r.Tenant, ID: r.id(), Expect: toolkeep.AnyRevision, By: r.Subject})
	if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
		return storeFault(err, "the login at the MCP server "+r.Server+" cannot be ended now; try again")
	}
	l.changed(r.Tenant, r.id(), 0)
	if rec.Access != "" {
		if err := l.revoke(context.WithoutCancel(ctx), r, rec); err != nil {
			l.c.Log.Warn("a login at an MCP server was not revoked; its tokens end by themselves", "server", r.Server, "tenant", r.Tenant, "agent_id", r.Subject, "error", err)
		}
	}
	return nil
}

// Remove deletes the tokens and the pending logins of a removed server: those of the owner's tenant, or of all
// tenants if owner is "".
func (l *Logins) Remove(ctx context.Context, server, owner string) error {
	err := l.EndLogins(ctx, server, owner, "")
	items, _, listErr := l.c.Store.Documents(ctx, TokenKind)
	err = errors.Join(err, listErr)
	for _, it := range items {
		if !strings.HasPrefix(it.ID, server+"/") || owner != "" && it.Tenant != owner {
			continue
		}
		drop := toolkeep.DeleteDocument{Kind: TokenKind, Tenant: it.Tenant, ID: it.ID, Expect: toolkeep.AnyRevision}
		if e := l.c.Store.Apply(ctx, drop); e != nil && !errors.Is(e, toolkeep.ErrNotFound) {
			err = e
			continue
		}
		l.changed(it.Tenant, it.ID, 0)
	}
	return storeFault(err, "the logins at the MCP server "+server+" cannot be removed now; try again")
}
