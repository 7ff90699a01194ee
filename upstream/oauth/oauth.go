package oauth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/toolkeep/toolkeep"
)

// Kinds of the items in the store.
const (
	TokenKind = "mcp_token" // id: server/subject
	LoginKind = "mcp_login" // id: hash of the state
)

// Store keeps items.
type Store interface {
	toolkeep.Applier
	// Item gives one item; toolkeep.ErrNotFound.
	Item(ctx context.Context, kind, tenant, id string) (toolkeep.Item, error)
	// Items gives all of a kind and the place in the feed up to which they count.
	Items(ctx context.Context, kind string) ([]toolkeep.Item, int64, error)
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
	// Client makes the HTTP client that may reach the hosts; required.
	Client func(tenant string, allow []toolkeep.HostPort) *http.Client
	// LoginTime is how long a person has; default 10 minutes.
	LoginTime time.Duration
	// Begin bounds discovery and registration, which a call waits for; default 15 s.
	Begin time.Duration
	// MaxLogins are under way at once; default 1000.
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
	// ClientID and ClientSecret are a registration made by hand, "" without one.
	ClientID, ClientSecret string
	Scopes                 []string // to ask for instead of what the server says
}

func (r Ref) id() string { return r.Server + "/" + r.Subject }

// Logins keeps tokens and logins. Follow must be fed.
type Logins struct {
	c       Config
	mu      sync.Mutex
	tokens  map[string]*token   // by tenant, server, subject
	pending map[string]*pending // by the same
	byState map[string]*pending // by the item's id
	ctx     context.Context
	stop    context.CancelFunc
	done    sync.WaitGroup
}

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
	l := &Logins{c: c, tokens: map[string]*token{}, pending: map[string]*pending{}, byState: map[string]*pending{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// Stop ends the logins under way and waits.
func (l *Logins) Stop() {
	l.stop()
	l.done.Wait()
}

// Sweep drops logins that nobody waits for any more.
func (l *Logins) Sweep(ctx context.Context) error {
	items, _, err := l.c.Store.Items(ctx, LoginKind)
	if err != nil {
		return err
	}
	for _, it := range items {
		if l.c.Clock().Sub(it.UpdatedAt) > 2*l.c.LoginTime {
			err := l.c.Store.Apply(ctx, toolkeep.DropItem{Kind: it.Kind, Tenant: it.Tenant, ID: it.ID, Expect: it.Revision})
			if err != nil && !errors.Is(err, toolkeep.ErrStale) && !errors.Is(err, toolkeep.ErrNotFound) {
				return err
			}
		}
	}
	return nil
}

// Follow takes over a change of the feed.
func (l *Logins) Follow(c toolkeep.Committed) {
	switch ch := c.Change.(type) {
	case toolkeep.PutItem:
		switch ch.Item.Kind {
		case TokenKind:
			l.forget(ch.Item.Tenant, ch.Item.ID)
		case LoginKind:
			l.deliver(ch.Item)
		}
	case toolkeep.DropItem:
		if ch.Kind == TokenKind {
			l.forget(ch.Tenant, ch.ID)
		}
	}
}

// forget lets the next use read the token anew.
func (l *Logins) forget(tenant, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tokens, tenant+"\x00"+id)
}

func (r Ref) key() string { return r.Tenant + "\x00" + r.id() }

// pending is a login under way on this node.
type pending struct {
	ref    Ref
	id     string        // of the item, "" until the address is known
	ready  chan struct{} // closed when id or err is set
	err    error
	result chan *auth.AuthorizationResult
}

// loginItem is the body of a login's item, sealed.
type loginItem struct {
	URL     string    `json:"url"`
	Nonce   string    `json:"nonce"` // the browser's mark
	Server  string    `json:"server"`
	Tenant  string    `json:"tenant"`
	Subject string    `json:"subject"`
	Until   time.Time `json:"until"`
	Code    string    `json:"code,omitempty"`
	State   string    `json:"state,omitempty"`
	Iss     string    `json:"iss,omitempty"`
	Denied  string    `json:"denied,omitempty"`
}

// Challenge looks at an answer 401 or 403 to a request that carried the bearer
// used ("" for none). retry says that the request may be sent again, with what
// Token gives now. Otherwise the error is E3407, with details.url for the person
// to open; E3402 where the server refuses for another reason than scope or token;
// E3540 where its authorization cannot be found out; E3965.
func (l *Logins) Challenge(ctx context.Context, r Ref, used string, resp *http.Response) (retry bool, err error) {
	challenges, err := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate"))
	if err != nil {
		return false, toolkeep.NewError(toolkeep.MCPError, "the MCP server %s refuses with a WWW-Authenticate header that cannot be read", r.Server).Because(err)
	}
	widen := resp.StatusCode == http.StatusForbidden && slices.ContainsFunc(challenges, func(c oauthex.Challenge) bool {
		return c.Params["error"] == "insufficient_scope"
	})
	if resp.StatusCode == http.StatusForbidden && !widen {
		return false, toolkeep.NewError(toolkeep.SecretAccessDenied, "the MCP server %s forbids this to the account of %s", r.Server, r.Subject)
	}
	if !widen {
		now, err := l.renewed(ctx, r, used)
		if err != nil {
			return false, err
		}
		if now != "" && now != used {
			return true, nil
		}
	}
	return false, l.Login(ctx, r, resp)
}

// Login begins a login, or finds the one under way. resp is the refusing answer,
// of which the headers are read; nil asks without one. The error is E3407 with
// details.url, or why no login could begin.
func (l *Logins) Login(ctx context.Context, r Ref, resp *http.Response) error {
	l.mu.Lock()
	p := l.pending[r.key()]
	switch {
	case l.ctx.Err() != nil:
		l.mu.Unlock()
		return toolkeep.NewError(toolkeep.Draining, "this node is shutting down; ask another")
	case p == nil && len(l.pending) >= l.c.MaxLogins:
		l.mu.Unlock()
		return toolkeep.NewError(toolkeep.RateLimitExceeded, "%d logins are under way already", l.c.MaxLogins).After(time.Minute)
	case p == nil:
		p = &pending{ref: r, ready: make(chan struct{}), result: make(chan *auth.AuthorizationResult, 1)}
		l.pending[r.key()] = p
		head := &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody}
		if resp != nil {
			head.StatusCode, head.Header = resp.StatusCode, resp.Header.Clone()
		}
		l.done.Add(1)
		go l.run(p, head)
	}
	l.mu.Unlock()
	select {
	case <-p.ready:
	case <-ctx.Done():
		return toolkeep.NewError(toolkeep.Cancelled, "the call ended while the login of %s was prepared", r.Server).Because(ctx.Err())
	}
	if p.err != nil {
		return p.err
	}
	at := l.c.PublicURL() + "/oauth/login/" + p.id
	return toolkeep.NewError(toolkeep.LoginRequired, "%s has not logged in at the MCP server %s yet: open %s, then call again", r.Subject, r.Server, at).
		With("url", at).With("server", r.Server)
}

// run takes one login to its end.
func (l *Logins) run(p *pending, resp *http.Response) {
	defer l.done.Done()
	ctx, cancel := context.WithTimeout(l.ctx, l.c.LoginTime)
	defer cancel()
	begin := time.AfterFunc(l.c.Begin, cancel)
	var kept error
	asked := false
	err := l.authorize(ctx, p, resp, func(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		if !begin.Stop() {
			return nil, context.DeadlineExceeded
		}
		asked = true
		return l.ask(ctx, p, args.URL)
	}, &kept)
	if kept != nil {
		err = kept
	}
	begin.Stop()
	l.mu.Lock()
	delete(l.pending, p.ref.key())
	delete(l.byState, p.id)
	l.mu.Unlock()
	if err != nil {
		l.c.Log.Warn("a login at an MCP server did not succeed", "server", p.ref.Server, "agent_id", p.ref.Subject, "error", err)
	}
	select {
	case <-p.ready:
	default:
		p.err = beginFailed(p.ref, asked, err)
		close(p.ready)
	}
	if p.id != "" {
		drop := toolkeep.DropItem{Kind: LoginKind, ID: p.id, Expect: -1}
		if err := l.c.Store.Apply(context.WithoutCancel(ctx), drop); err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
			l.c.Log.Warn("a finished login could not be taken out of the store", "error", err)
		}
	}
}

func beginFailed(r Ref, asked bool, err error) error {
	if err == nil { // without a question: the server let us in meanwhile
		return toolkeep.NewError(toolkeep.MCPUnavailable, "the MCP server %s refused for want of a login and then asked for none; call again", r.Server)
	}
	var own *toolkeep.Error
	if errors.As(err, &own) {
		return own
	}
	what := "how to log in at the MCP server %s cannot be found out; its operator has to look at the server's log"
	if asked {
		what = "the login at the MCP server %s could not be kept; try again"
	}
	e := toolkeep.NewError(toolkeep.MCPError, what, r.Server).Because(err)
	e.NothingSent = true
	return e
}

// authorize runs the SDK's flow.
func (l *Logins) authorize(ctx context.Context, p *pending, resp *http.Response, fetch auth.AuthorizationCodeFetcher, kept *error) error {
	r := p.ref
	redirect := l.c.PublicURL() + "/oauth/callback"
	client := l.c.Client(r.Tenant, r.Network)
	granted := l.granted(ctx, r)
	c := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL: redirect, AuthorizationCodeFetcher: fetch, Client: client, RequestRefreshToken: true,
		ScopeFilter: func(discovered []string) []string {
			want := discovered
			if len(r.Scopes) > 0 {
				want = r.Scopes
			}
			return union(granted, want)
		},
		NewTokenSource: func(ctx context.Context, cfg *oauth2.Config, t *oauth2.Token) (oauth2.TokenSource, error) {
			*kept = l.keep(ctx, r, recordOf(cfg, t))
			return oauth2.StaticTokenSource(t), *kept
		},
	}
	if r.ClientID != "" {
		c.PreregisteredClient = &oauthex.ClientCredentials{ClientID: r.ClientID}
		if r.ClientSecret != "" {
			c.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: r.ClientSecret}
		}
	} else {
		if u, err := url.Parse(redirect); err == nil && u.Scheme == "https" {
			c.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: l.c.PublicURL() + MetadataPath}
		}
		c.DynamicClientRegistrationConfig = &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			RedirectURIs: []string{redirect}, ClientName: "Toolkeep", TokenEndpointAuthMethod: "none",
			GrantTypes: []string{"authorization_code", "refresh_token"}, ResponseTypes: []string{"code"},
		}}
	}
	h, err := auth.NewAuthorizationCodeHandler(c)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, nil)
	if err != nil {
		return err
	}
	return h.Authorize(ctx, req, resp)
}

func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// ask stores the login for the page and the callback, and waits for the code.
func (l *Logins) ask(ctx context.Context, p *pending, address string) (*auth.AuthorizationResult, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	state := u.Query().Get("state")
	if state == "" {
		return nil, errors.New("the authorization address has no state")
	}
	id := stateID(state)
	it := loginItem{URL: address, Nonce: rand.Text(), Server: p.ref.Server, Tenant: p.ref.Tenant, Subject: p.ref.Subject,
		Until: l.c.Clock().Add(l.c.LoginTime)}
	l.mu.Lock()
	p.id = id
	l.byState[id] = p
	l.mu.Unlock()
	if err := l.putLogin(ctx, id, it, 0); err != nil {
		p.id = ""
		return nil, err
	}
	close(p.ready)
	select {
	case res := <-p.result:
		if res.Code == "" {
			return nil, fmt.Errorf("the authorization server answered %s", res.Iss)
		}
		return res, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("nobody logged in: %w", ctx.Err())
	}
}

// stateID names a login's item without giving its state away.
func stateID(state string) string {
	h := sha256.Sum256([]byte(state))
	return hex.EncodeToString(h[:16])
}

func (l *Logins) putLogin(ctx context.Context, id string, it loginItem, expect int64) error {
	plain, err := json.Marshal(it)
	if err != nil {
		return err
	}
	sealed, err := l.c.Sealer.Seal(plain, []byte(LoginKind+"\x00"+id))
	if err != nil {
		return err
	}
	item := toolkeep.Item{Kind: LoginKind, ID: id, Body: sealed, UpdatedAt: l.c.Clock(), UpdatedBy: it.Subject}
	return recordFault(l.c.Store.Apply(ctx, toolkeep.PutItem{Item: item, Expect: expect}))
}

func (l *Logins) openLogin(it toolkeep.Item) (loginItem, error) {
	var body loginItem
	plain, err := l.c.Sealer.Open(it.Body, []byte(LoginKind+"\x00"+it.ID))
	if err == nil {
		err = json.Unmarshal(plain, &body)
	}
	return body, err
}

func recordFault(err error) error {
	if err == nil || errors.Is(err, toolkeep.ErrStale) {
		return err
	}
	return toolkeep.NewError(toolkeep.RecordUnavailable, "the login cannot be kept now").Because(err)
}

// deliver hands a code from the feed to the login that waits for it here.
func (l *Logins) deliver(it toolkeep.Item) {
	l.mu.Lock()
	p := l.byState[it.ID]
	l.mu.Unlock()
	if p == nil {
		return
	}
	body, err := l.openLogin(it)
	if err != nil || body.Code == "" && body.Denied == "" {
		return
	}
	res := &auth.AuthorizationResult{Code: body.Code, State: body.State, Iss: body.Iss}
	if body.Denied != "" {
		res = &auth.AuthorizationResult{Iss: body.Denied}
	}
	select {
	case p.result <- res:
	default:
	}
}
