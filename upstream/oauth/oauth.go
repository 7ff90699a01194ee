package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// Kinds of stored items.
const (
	TokenKind = "mcp_token" // id: server/subject
	LoginKind = "mcp_login" // id: hash of the state; without a tenant
)

// Store holds items.
type Store interface {
	toolkeep.Applier
	// Document returns one item, or toolkeep.ErrNotFound.
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	// Documents returns all items of a kind and the feed position they include.
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Sealer encrypts tokens at rest.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Config configures Logins.
type Config struct {
	Store  Store  // required
	Sealer Sealer // required
	// PublicURL is the address at which people reach this server, without a trailing
	// slash; the callback and the login page are below it. Required.
	PublicURL func() string
	// Client returns an HTTP client that may reach the hosts; required. Redirects are
	// followed only for metadata, over connections of its transport.
	Client func(tenant string, allow []toolkeep.HostPort) *http.Client
	// ClientID is the address of a client metadata document hosted elsewhere; default:
	// Toolkeep's own, if PublicURL is https.
	ClientID string
	// Redact holds the tokens in use, each in its account's scope; nil: they are not
	// redacted.
	Redact *redact.Redactor
	// loginTime is how long a person may take; default 10 minutes.
	loginTime time.Duration
	// beginTime bounds discovery and registration, during which a call waits; default 15 s.
	beginTime time.Duration
	// maxLogins bounds the logins under way on this node; default 1000.
	maxLogins int
	Clock     func() time.Time
	Log       *slog.Logger
}

// Ref is one principal's account at one server.
type Ref struct {
	Server  string
	URL     string // of the MCP server
	Tenant  string // of the principal
	Subject string
	Network []toolkeep.HostPort
	// ClientID is the manual registration's id, or "". ClientSecret returns its secret;
	// nil means there is none.
	ClientID     string
	ClientSecret func(context.Context) (string, error)
	Scopes       []string // requested instead of those the server names
}

// id is the id of the token's stored item.
func (r Ref) id() string {
	if id := r.Server + "/" + r.Subject; len(id) <= toolkeep.MaxDocumentID {
		return id
	}
	sum := sha256.Sum256([]byte(r.Subject))
	return r.Server + "/sha256:" + hex.EncodeToString(sum[:])
}

func (r Ref) key() string { return accountKey(r.Tenant, r.id()) }

func accountKey(tenant, id string) string { return tenant + "\x00" + id }

func (r Ref) secret(ctx context.Context) (string, error) {
	if r.ClientSecret == nil {
		return "", nil
	}
	return r.ClientSecret(ctx)
}

// Logins manages tokens and logins. Follow must receive the store's feed.
type Logins struct {
	c Config

	mu      sync.Mutex
	stopped bool
	work    sync.WaitGroup
	tokens  map[string]*token // by account
	logins  map[string]*begun // by account: those this node began
	swept   time.Time
	sweeper *time.Timer // ends pending logins in time; nil while none is pending

	ctx  context.Context // of work that a stop may cut off
	stop context.CancelFunc
}

// maxTokens bounds the tokens kept in memory; others are read from the store.
const maxTokens = 10_000

// New returns Logins.
func New(c Config) *Logins {
	if c.loginTime == 0 {
		c.loginTime = 10 * time.Minute
	}
	if c.beginTime == 0 {
		c.beginTime = 15 * time.Second
	}
	if c.maxLogins == 0 {
		c.maxLogins = 1000
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Redact == nil {
		c.Redact = redact.NewRedactor(c.Clock)
	}
	l := &Logins{c: c, tokens: map[string]*token{}, logins: map[string]*begun{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Stop ends work under way and waits. A refresh completes, in at most requestTime:
// without its response the login would be lost.
func (l *Logins) Stop() {
	l.mu.Lock()
	l.stopped = true
	if l.sweeper != nil {
		l.sweeper.Stop()
	}
	l.mu.Unlock()
	l.stop()
	l.work.Wait()
}

// spawn starts work that Stop waits for; it returns false after Stop.
func (l *Logins) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.work.Go(f)
	return true
}

// Sweep deletes expired logins.
func (l *Logins) Sweep(ctx context.Context) error {
	now := l.c.Clock()
	l.mu.Lock()
	l.swept = now
	for key, b := range l.logins {
		if b.isReady() && !now.Before(b.until) {
			delete(l.logins, key)
		}
	}
	l.mu.Unlock()
	items, _, err := l.c.Store.Documents(ctx, LoginKind)
	if err != nil {
		return err
	}
	for _, it := range items {
		if now.Sub(it.UpdatedAt) < l.c.loginTime {
			continue
		}
		err := l.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: it.Kind, Tenant: it.Tenant, ID: it.ID, Expect: it.Revision})
		if err != nil && !errors.Is(err, toolkeep.ErrStale) && !errors.Is(err, toolkeep.ErrNotFound) {
			return err
		}
	}
	return nil
}

// sweepDue reports whether another Sweep is due. It is called with mu held.
func (l *Logins) sweepDue() bool { return l.c.Clock().Sub(l.swept) > l.c.loginTime }

// Follow applies a change of the feed.
func (l *Logins) Follow(c toolkeep.Committed) {
	switch ch := c.Change.(type) {
	case toolkeep.PutDocument:
		if ch.Document.Kind == TokenKind {
			l.changed(ch.Document.Tenant, ch.Document.ID, ch.Document.Revision)
		}
	case toolkeep.DeleteDocument:
		switch ch.Kind {
		case TokenKind:
			l.changed(ch.Tenant, ch.ID, 0)
		case LoginKind:
			l.over(ch.ID)
		}
	}
}

// over forgets a login that has ended.
func (l *Logins) over(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, b := range l.logins {
		if b.isReady() && b.id == id {
			delete(l.logins, key)
		}
	}
}

// Challenge handles a 401 or 403 response to a request sent with the bearer token used
// ("" for none). retry says that the request may be sent again with Token's current
// value. Otherwise the error is E3407, with details.url for the person to open; E3402
// if the server refuses for another reason than scope or token, or requires scopes that
// the login was not given; E3540 if discovery fails; E3403, E3965. Each says that
// nothing was sent: the server did not act on the refused request.
func (l *Logins) Challenge(ctx context.Context, r Ref, used string, resp *http.Response) (retry bool, err error) {
	ask := challengeOf(resp)
	if resp.StatusCode == http.StatusForbidden && !ask.widen {
		return false, unsent(toolkeep.NewError(toolkeep.SecretAccessDenied, "the MCP server %s forbids this to the account of %s", r.Server, r.Subject))
	}
	now, rec, err := l.current(ctx, r)
	switch {
	case err != nil:
		return false, err
	case now != "" && rec.Refresh == "" && !rec.Expiry.IsZero() && !l.c.Clock().Before(rec.Expiry):
		// The token has expired and cannot be refreshed.
	case now != "" && now != used:
		return true, nil // a login or a refresh happened since the request was sent
	case now != "" && ask.widen && len(ask.scopes) > 0 && subset(ask.scopes, rec.Asked):
		return false, notEnough(r, ask.scopes)
	case now != "" && !ask.widen && l.c.Clock().Sub(rec.At) > young:
		now, err := l.renewed(ctx, r, used)
		if err != nil {
			return false, err
		}
		if now != "" && now != used {
			return true, nil
		}
	}
	return false, l.begin(ctx, r, ask)
}

// Account authorizes one principal at one server. It is an upstream.Authorizer.
type Account struct {
	logins *Logins
	ref    Ref
}

// Account returns the Authorizer of an account.
func (l *Logins) Account(r Ref) *Account { return &Account{l, r} }

// Header returns the bearer token, or nothing without a login. Errors as Token.
func (a *Account) Header(ctx context.Context) (http.Header, error) {
	token, err := a.logins.Token(ctx, a.ref)
	if err != nil || token == "" {
		return nil, err
	}
	return http.Header{"Authorization": {"Bearer " + token}}, nil
}

// Unauthorized returns nil if the request may be sent again. Errors as Challenge.
func (a *Account) Unauthorized(ctx context.Context, resp *http.Response) error {
	used := ""
	if resp.Request != nil {
		used = strings.TrimPrefix(resp.Request.Header.Get("Authorization"), "Bearer ")
	}
	again, err := a.logins.Challenge(ctx, a.ref, used, resp)
	if err == nil && !again {
		err = unsent(toolkeep.NewError(toolkeep.SecretAccessDenied, "the MCP server %s refuses the login of %s", a.ref.Server, a.ref.Subject))
	}
	return err
}

// young is the age below which a refused token is not refreshed: if a new token is
// refused at once, another one does not help, but a login may.
const young = 10 * time.Second

func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

func subset(a, of []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(of, s) })
}

// challenge is what a refusal says about access.
type challenge struct {
	heard    bool // there was a response to read
	metadata string
	scopes   []string
	widen    bool // the token is valid but lacks scopes
}

// challengeOf reads WWW-Authenticate. An unreadable header is ignored: the well-known
// addresses give the same information.
func challengeOf(resp *http.Response) challenge {
	if resp == nil {
		return challenge{}
	}
	c := challenge{heard: true}
	for _, h := range resp.Header.Values("WWW-Authenticate") {
		list, err := oauthex.ParseWWWAuthenticate([]string{h})
		if err != nil {
			continue
		}
		for _, one := range list {
			if one.Scheme != "bearer" {
				continue
			}
			if c.metadata == "" {
				c.metadata = one.Params["resource_metadata"]
			}
			if c.scopes == nil {
				c.scopes = scopesOf(one.Params["scope"])
			}
			if resp.StatusCode == http.StatusForbidden && one.Params["error"] == "insufficient_scope" {
				c.widen = true
			}
		}
	}
	return c
}

// Limits of a server's requested scopes.
const (
	maxScopes = 100
	maxScope  = 256 // bytes
)

// scopesOf parses a scope list and drops invalid scopes (RFC 6749, 3.3).
func scopesOf(text string) []string {
	var list []string
	for _, s := range strings.Fields(text) {
		if len(s) <= maxScope && len(list) < maxScopes && isScope(s) {
			list = union(list, []string{s})
		}
	}
	return list
}

func isScope(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c <= 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return s != ""
}

func unsent(e *toolkeep.Error) *toolkeep.Error {
	e.NothingSent = true
	return e
}

func draining() error {
	return unsent(toolkeep.NewError(toolkeep.Draining, "this node is shutting down; send the call again").After(time.Second))
}

// storeFault turns a store error into the caller's error.
func storeFault(err error, what string) error {
	if err == nil || errors.Is(err, toolkeep.ErrStale) {
		return err
	}
	return unsent(toolkeep.NewError(toolkeep.RecordUnavailable, "%s", what).Because(err))
}
