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

// Kinds of the items in the store.
const (
	TokenKind = "mcp_token" // id: server/subject
	LoginKind = "mcp_login" // id: hash of the state; of no tenant
)

// Store keeps items.
type Store interface {
	toolkeep.Applier
	// Document gives one item; toolkeep.ErrNotFound.
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	// Documents gives all of a kind and the place in the feed up to which they count.
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Sealer makes tokens unreadable at rest.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Config is what Logins are made of.
type Config struct {
	Store  Store  // required
	Sealer Sealer // required
	// PublicURL is the address under which people reach this server, without a
	// slash at its end; the callback and the login page stand below it. Required.
	PublicURL func() string
	// Client makes the HTTP client that may reach the hosts; required. Redirects are
	// followed only where metadata is read, over connections of its transport.
	Client func(tenant string, allow []toolkeep.HostPort) *http.Client
	// ClientID is the address of a client metadata document that stands elsewhere;
	// default: our own, where PublicURL is https.
	ClientID string
	// Redact learns the tokens that are in use, each for whose account it is; nil:
	// nobody does.
	Redact *redact.Redactor
	// LoginTime is how long a person has; default 10 minutes.
	LoginTime time.Duration
	// Begin bounds discovery and registration, which a call waits for; default 15 s.
	Begin time.Duration
	// MaxLogins are under way at once on this node; default 1000.
	MaxLogins int
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
	// ClientID is a registration made by hand, "" without one, and ClientSecret
	// gives its secret; nil: it has none.
	ClientID     string
	ClientSecret func(context.Context) (string, error)
	Scopes       []string // to ask for instead of what the server says
}

// id is the id of the token's item.
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

// Logins keeps tokens and logins. Follow must be fed.
type Logins struct {
	c Config

	mu      sync.Mutex
	stopped bool
	work    sync.WaitGroup
	tokens  map[string]*token // by account
	logins  map[string]*begun // by account: what this node began
	swept   time.Time

	ctx  context.Context // of what a stop may cut off
	stop context.CancelFunc
}

// maxTokens bounds what a node knows of; the rest is read anew.
const maxTokens = 10_000

// New makes Logins.
func New(c Config) *Logins {
	if c.LoginTime == 0 {
		c.LoginTime = 10 * time.Minute
	}
	if c.Begin == 0 {
		c.Begin = 15 * time.Second
	}
	if c.MaxLogins == 0 {
		c.MaxLogins = 1000
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

// Stop ends what is under way and waits. A refresh goes on to its end, at most
// requestTime: its answer would be lost, and with it the login.
func (l *Logins) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.stop()
	l.work.Wait()
}

// spawn starts work that Stop waits for; false after Stop.
func (l *Logins) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return false
	}
	l.work.Go(f)
	return true
}

// Sweep drops logins whose time is over.
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
		if now.Sub(it.UpdatedAt) <= l.c.LoginTime {
			continue
		}
		err := l.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: it.Kind, Tenant: it.Tenant, ID: it.ID, Expect: it.Revision})
		if err != nil && !errors.Is(err, toolkeep.ErrStale) && !errors.Is(err, toolkeep.ErrNotFound) {
			return err
		}
	}
	return nil
}

// sweepDue tells whether it is time for another Sweep. It is called with mu held.
func (l *Logins) sweepDue() bool { return l.c.Clock().Sub(l.swept) > l.c.LoginTime }

// Follow takes over a change of the feed.
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

// Challenge looks at an answer 401 or 403 to a request that carried the bearer
// used ("" for none). retry says that the request may be sent again, with what
// Token gives now. Otherwise the error is E3407, with details.url for the person
// to open; E3402 where the server refuses for another reason than scope or token,
// or wants scopes that the login was not given; E3540 where how to log in cannot
// be found out; E3403, E3965. Each says that nothing was sent: the server did not
// act on a request that it refused so.
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
		// Nothing is left of it.
	case now != "" && now != used:
		return true, nil // somebody logged in, or it was renewed, since the request left
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

// Account speaks for one principal at one server. It is an upstream.Authorizer.
type Account struct {
	logins *Logins
	ref    Ref
}

// Account gives who speaks for an account.
func (l *Logins) Account(r Ref) *Account { return &Account{l, r} }

// Header gives the bearer, or nothing without a login. Errors as Token.
func (a *Account) Header(ctx context.Context) (http.Header, error) {
	token, err := a.logins.Token(ctx, a.ref)
	if err != nil || token == "" {
		return nil, err
	}
	return http.Header{"Authorization": {"Bearer " + token}}, nil
}

// Unauthorized is nil where the request may be sent again. Errors as Challenge.
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

// young is how old a token must be for a refusal to be taken as its end: another
// that is refused at once does not help, a login may.
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

// challenge is what a refusal says of how to get in.
type challenge struct {
	heard    bool // there was an answer to read
	metadata string
	scopes   []string
	widen    bool // the token is good and has too few scopes
}

// challengeOf reads WWW-Authenticate. A header that cannot be read says nothing:
// the well-known addresses tell as much.
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

// Bounds of what a server may ask for.
const (
	maxScopes = 100
	maxScope  = 256 // bytes
)

// scopesOf reads a list of scopes and leaves out what is none (RFC 6749, 3.3).
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

// storeFault makes the caller's error of what the store said.
func storeFault(err error, what string) error {
	if err == nil || errors.Is(err, toolkeep.ErrStale) {
		return err
	}
	return unsent(toolkeep.NewError(toolkeep.RecordUnavailable, "%s", what).Because(err))
}
