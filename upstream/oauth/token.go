package oauth

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"

	"github.com/toolkeep/toolkeep"
)

// early is how long before its end a token is renewed.
const early = 30 * time.Second

// record is the body of a token's item, sealed: the token and all that renewing
// it needs.
type record struct {
	Access       string           `json:"access"`
	Refresh      string           `json:"refresh,omitempty"`
	Expiry       time.Time        `json:"expiry,omitzero"`
	TokenURL     string           `json:"token_url"`
	ClientID     string           `json:"client_id"`
	ClientSecret string           `json:"client_secret,omitempty"`
	AuthStyle    oauth2.AuthStyle `json:"auth_style,omitempty"`
	Scopes       []string         `json:"scopes,omitempty"`
}

func recordOf(cfg *oauth2.Config, t *oauth2.Token) record {
	scopes := cfg.Scopes
	if s, _ := t.Extra("scope").(string); s != "" {
		scopes = strings.Fields(s)
	}
	return record{Access: t.AccessToken, Refresh: t.RefreshToken, Expiry: t.Expiry, TokenURL: cfg.Endpoint.TokenURL,
		ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, AuthStyle: cfg.Endpoint.AuthStyle, Scopes: scopes}
}

// token is what this node knows of one account's token. Its lock is held while it
// is read or renewed, so that one flight serves all.
type token struct {
	mu       chan struct{} // a lock that can be given up
	known    bool
	rec      record // Access "" is none
	revision int64
}

func (l *Logins) token(r Ref) *token {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tokens[r.key()]
	if t == nil {
		t = &token{mu: make(chan struct{}, 1)}
		l.tokens[r.key()] = t
	}
	return t
}

func (t *token) lock(ctx context.Context) error {
	select {
	case t.mu <- struct{}{}:
		return nil
	case <-ctx.Done():
		return toolkeep.NewError(toolkeep.Cancelled, "the call ended while its login was looked up").Because(ctx.Err())
	}
}

// Token gives the bearer of the account, renewed where it is about to end; ""
// where nobody has logged in, or the login has ended. E3965, E3403 where it is to
// be renewed and the authorization server does not answer.
func (l *Logins) Token(ctx context.Context, r Ref) (string, error) {
	t := l.token(r)
	if err := t.lock(ctx); err != nil {
		return "", err
	}
	defer func() { <-t.mu }()
	if err := l.load(ctx, r, t); err != nil {
		return "", err
	}
	if t.rec.Access == "" || t.rec.Expiry.IsZero() || l.c.Clock().Add(early).Before(t.rec.Expiry) {
		return t.rec.Access, nil
	}
	return l.renew(ctx, r, t)
}

// renewed gives a token other than the one that was refused, "" where there is none.
func (l *Logins) renewed(ctx context.Context, r Ref, used string) (string, error) {
	t := l.token(r)
	if err := t.lock(ctx); err != nil {
		return "", err
	}
	defer func() { <-t.mu }()
	t.known = false
	if err := l.load(ctx, r, t); err != nil {
		return "", err
	}
	if t.rec.Access == "" || t.rec.Access != used {
		return t.rec.Access, nil
	}
	return l.renew(ctx, r, t)
}

func (l *Logins) load(ctx context.Context, r Ref, t *token) error {
	if t.known {
		return nil
	}
	it, err := l.c.Store.Item(ctx, TokenKind, r.Tenant, r.id())
	if errors.Is(err, toolkeep.ErrNotFound) {
		t.known, t.rec, t.revision = true, record{}, 0
		return nil
	}
	if err != nil {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the login at %s cannot be read now", r.Server).Because(err)
	}
	var rec record
	plain, err := l.c.Sealer.Open(it.Body, sealPlace(r))
	if err == nil {
		err = json.Unmarshal(plain, &rec)
	}
	if err != nil { // another key file: the login is of no use any more
		l.c.Log.Error("a stored login cannot be opened; the principal has to log in again", "server", r.Server, "agent_id", r.Subject, "error", err)
		rec = record{}
	}
	t.known, t.rec, t.revision = true, rec, it.Revision
	return nil
}

// renew uses the refresh token. One that the server refuses ends the login.
func (l *Logins) renew(ctx context.Context, r Ref, t *token) (string, error) {
	old := t.rec
	if old.Refresh == "" {
		return "", nil
	}
	cfg := &oauth2.Config{ClientID: old.ClientID, ClientSecret: old.ClientSecret,
		Endpoint: oauth2.Endpoint{TokenURL: old.TokenURL, AuthStyle: old.AuthStyle}, Scopes: old.Scopes}
	asked := context.WithValue(ctx, oauth2.HTTPClient, l.c.Client(r.Tenant, r.Network))
	got, err := cfg.TokenSource(asked, &oauth2.Token{RefreshToken: old.Refresh, Expiry: time.Unix(1, 0)}).Token()
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && (refused.ErrorCode != "" || refused.Response != nil && refused.Response.StatusCode/100 == 4 &&
		refused.Response.StatusCode != http.StatusTooManyRequests):
		return l.ended(ctx, r, t, refused)
	case err != nil:
		e := toolkeep.NewError(toolkeep.SecretRetrievalFailed, "the login of %s at the MCP server %s could not be renewed now; try again", r.Subject, r.Server).Because(err)
		e.NothingSent = true
		return "", e
	}
	rec := recordOf(cfg, got)
	if rec.Refresh == "" {
		rec.Refresh = old.Refresh
	}
	err = l.store(ctx, r, rec, t.revision)
	if errors.Is(err, toolkeep.ErrStale) { // another node was first
		t.known = false
		if err := l.load(ctx, r, t); err != nil {
			return "", err
		}
		return t.rec.Access, nil
	}
	if err != nil {
		// The old refresh token may be used up: this node goes on with the new one.
		l.c.Log.Error("a renewed login could not be kept", "server", r.Server, "agent_id", r.Subject, "error", err)
		t.rec = rec
		return rec.Access, nil
	}
	t.rec, t.revision = rec, t.revision+1
	return rec.Access, nil
}

// ended takes a login out that the authorization server does not know any more,
// unless another node renewed it meanwhile.
func (l *Logins) ended(ctx context.Context, r Ref, t *token, cause *oauth2.RetrieveError) (string, error) {
	err := l.c.Store.Apply(ctx, toolkeep.DropItem{Kind: TokenKind, Tenant: r.Tenant, ID: r.id(), Expect: t.revision})
	if errors.Is(err, toolkeep.ErrStale) {
		t.known = false
		if err := l.load(ctx, r, t); err != nil {
			return "", err
		}
		return t.rec.Access, nil
	}
	l.c.Log.Warn("a login at an MCP server has ended", "server", r.Server, "agent_id", r.Subject, "oauth_error", cause.ErrorCode)
	t.rec, t.revision = record{}, 0
	return "", nil
}

// keep stores the token of a finished login, whatever stood there.
func (l *Logins) keep(ctx context.Context, r Ref, rec record) error { return l.store(ctx, r, rec, -1) }

func (l *Logins) store(ctx context.Context, r Ref, rec record, expect int64) error {
	plain, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	sealed, err := l.c.Sealer.Seal(plain, sealPlace(r))
	if err != nil {
		return err
	}
	item := toolkeep.Item{Kind: TokenKind, Tenant: r.Tenant, ID: r.id(), Body: sealed, UpdatedAt: l.c.Clock(), UpdatedBy: r.Subject}
	return recordFault(l.c.Store.Apply(ctx, toolkeep.PutItem{Item: item, Expect: expect}))
}

func sealPlace(r Ref) []byte { return []byte(TokenKind + "\x00" + r.Tenant + "\x00" + r.id()) }

// granted are the scopes that the account has, for a login that widens them.
func (l *Logins) granted(ctx context.Context, r Ref) []string {
	t := l.token(r)
	if t.lock(ctx) != nil {
		return nil
	}
	defer func() { <-t.mu }()
	if err := l.load(ctx, r, t); err != nil {
		return nil
	}
	return t.rec.Scopes
}

// Logout forgets the account's token. It is not revoked at the authorization
// server.
func (l *Logins) Logout(ctx context.Context, r Ref) error {
	err := l.c.Store.Apply(ctx, toolkeep.DropItem{Kind: TokenKind, Tenant: r.Tenant, ID: r.id(), Expect: -1})
	if err == nil || errors.Is(err, toolkeep.ErrNotFound) {
		l.forget(r.Tenant, r.id())
		return nil
	}
	return recordFault(err)
}
