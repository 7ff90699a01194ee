package vault

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/hashicorp/vault/api"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

const (
	loginTimeout = 30 * time.Second
	lookupSelf   = "auth/token/lookup-self"
	// A login older than this is repeated when Vault refuses a request, in case the policies of its role have
	// changed; a younger one only if its token is invalid.
	loginSettled = time.Minute
)

// client talks to Vault with the server's login. Its goroutines end with close.
type client struct {
	config    Config
	http      *http.Client
	transport *transport
	life      context.Context // ends at close
	stop      context.CancelFunc
	wg        sync.WaitGroup

	mu      sync.Mutex // never held during a request to Vault
	file    tokenFile
	session *session
	pending *pendingLogin
	timer   *time.Timer     // renews the session
	trouble *toolkeep.Error // why the last login or the token was refused; nil after it was accepted
	closed  bool
}

// session is one token. It is immutable except for what client.mu guards.
type session struct {
	api     *api.Client
	token   string
	ours    bool // from a login, so ours to revoke
	since   time.Time
	expires time.Time // zero is never, or unknown; guarded
	looked  bool      // it could look itself up once; guarded
}

// pendingLogin is a login in progress, shared by all its waiters.
type pendingLogin struct {
	done    chan struct{}
	session *session
	err     error
}

func newClient(c Config) (*client, error) {
	t, err := newTransport(c)
	if err != nil {
		return nil, err
	}
	cl := &client{config: c, transport: t, file: tokenFile{name: c.Auth.TokenFile}}
	cl.http = &http.Client{Transport: t, CheckRedirect: egress.NoRedirects}
	cl.life, cl.stop = context.WithCancel(context.Background())
	if _, err := cl.newAPI(""); err != nil {
		cl.stop()
		return nil, err
	}
	return cl, nil
}

// newAPI makes an API client for one token. The library reads VAULT_… variables; their address, token, namespace
// and TLS settings are overridden.
func (c *client) newAPI(token string) (*api.Client, error) {
	address := c.config.Address
	if _, ok := unixPath(address); ok {
		address = unixAddress
	}
	a, err := api.NewClient(&api.Config{
		Address: address, HttpClient: c.http, MaxRetries: retries,
		MinRetryWait: baseDelay, MaxRetryWait: maxDelay, CheckRetry: retry, Backoff: backoff,
	})
	if err != nil {
		return nil, wrong("the client of Vault cannot be made; look at its address and at the VAULT_… variables of the environment").Because(err)
	}
	a.SetToken(token)
	a.SetHeaders(http.Header{api.RequestHeaderName: {"true"}}) // drops headers from the environment
	if c.config.Namespace != "" {
		a.SetNamespace(c.config.Namespace)
	}
	return a, nil
}

// request is one API request, sent with some session's token.
type request func(*api.Logical) (*api.Response, error)

func get(ctx context.Context, path string, params map[string][]string) request {
	return func(l *api.Logical) (*api.Response, error) { return l.ReadRawWithDataWithContext(ctx, path, params) }
}

func put(ctx context.Context, path string, body map[string]any) request {
	return func(l *api.Logical) (*api.Response, error) {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		defer clear(b)
		return l.WriteRawWithContext(ctx, path, b)
	}
}

// do sends the request, and once more after a new login if Vault refuses it. It returns the response bytes, which
// the caller wipes.
func (c *client) do(ctx context.Context, what string, r request) ([]byte, error) {
	s, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := r(s.api.Logical())
	if status(err) == http.StatusForbidden {
		if next, ferr := c.afresh(ctx, s); ferr != nil {
			return nil, ferr
		} else if next != nil {
			s = next
			resp, err = r(s.api.Logical())
		}
	}
	if err != nil {
		return nil, failed(ctx, what, err, append(c.config.Auth.secrets(), s.token)...)
	}
	c.accepted(s)
	return take(resp.Response)
}

// current returns the current session; it logs in if there is none.
func (c *client) current(ctx context.Context) (*session, error) {
	c.mu.Lock()
	if c.config.Auth.Method == Token {
		defer c.mu.Unlock()
		return c.static()
	}
	if c.session != nil && c.session.usable(c.config.Now()) {
		defer c.mu.Unlock()
		return c.session, nil
	}
	f, err := c.startLogin()
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.wait(ctx)
}

// usable turns false shortly before the token expires, so that it does not expire during a request.
func (s *session) usable(now time.Time) bool {
	if s.expires.IsZero() {
		return true
	}
	margin := min(10*time.Second, s.expires.Sub(s.since)/10)
	return now.Before(s.expires.Add(-margin))
}

// static returns the session of a configured token. c.mu is held.
func (c *client) static() (*session, error) {
	if c.closed {
		return nil, errClosed()
	}
	token := c.config.Auth.Token
	if c.file.name != "" {
		var err error
		if token, err = c.file.read(); err != nil {
			return nil, err
		}
	}
	if c.session != nil && c.session.token == token {
		return c.session, nil
	}
	a, err := c.newAPI(token)
	if err != nil {
		return nil, err
	}
	c.session, c.trouble = &session{api: a, token: token, since: c.config.Now()}, nil
	// A token that expires is renewed as well; its remaining life is queried first.
	c.renewIn(c.session, 0)
	return c.session, nil
}

// afresh returns another session that may succeed where refused did not, or nil.
func (c *client) afresh(ctx context.Context, refused *session) (*session, error) {
	c.mu.Lock()
	now := c.session
	c.mu.Unlock()
	if now != nil && now != refused {
		return now, nil // another caller logged in meanwhile
	}
	if c.config.Auth.Method == Token {
		c.mu.Lock()
		c.file.token = ""
		s, err := c.static()
		c.mu.Unlock()
		if err != nil || s != refused {
			return s, err
		}
		if _, err := get(ctx, lookupSelf, nil)(s.api.Logical()); status(err) == http.StatusForbidden {
			return nil, c.ended(s)
		}
		return nil, nil
	}
	if c.config.Now().Sub(refused.since) < loginSettled {
		if _, err := get(ctx, lookupSelf, nil)(refused.api.Logical()); status(err) != http.StatusForbidden {
			return nil, nil // the token is valid: the policy refuses
		}
	}
	c.mu.Lock()
	if c.session == refused {
		c.session = nil
	}
	f, err := c.startLogin()
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.wait(ctx)
}

// ended is the error of a configured token that Vault no longer knows. A token that may not
// look itself up is refused in the same way.
func (c *client) ended(s *session) *toolkeep.Error {
	e := refuse(toolkeep.SecretAccessDenied, "the token that logs this server in to Vault has expired or was revoked (Vault refuses %s); "+
		"the operator must set a new one in vault.token or the file of vault.token_file", lookupSelf)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.trouble = e
	}
	return e
}

// accepted forgets an earlier refusal of the session.
func (c *client) accepted(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.trouble = nil
	}
}

// health returns why Vault does not accept this server, as far as it is known: nil before
// the first request.
func (c *client) health(ctx context.Context) error {
	c.mu.Lock()
	s := c.session
	if c.config.Auth.Method == Token && !c.closed {
		var err error
		if s, err = c.static(); err != nil {
			c.mu.Unlock()
			return err
		}
	}
	trouble := c.trouble // static forgets that of an earlier token
	look := s != nil && !s.ours && s.looked
	c.mu.Unlock()
	if look {
		switch _, err := get(ctx, lookupSelf, nil)(s.api.Logical()); {
		case err == nil:
			c.accepted(s)
			return nil
		case status(err) == http.StatusForbidden:
			return c.ended(s)
		}
	}
	if trouble != nil {
		return trouble
	}
	return nil
}

// startLogin joins the login in progress or starts one. c.mu is held.
func (c *client) startLogin() (*pendingLogin, error) {
	if c.closed {
		return nil, errClosed()
	}
	if c.session != nil && c.session.usable(c.config.Now()) { // made between unlocking and here
		done := make(chan struct{})
		close(done)
		return &pendingLogin{done: done, session: c.session}, nil
	}
	if c.pending != nil {
		return c.pending, nil
	}
	f := &pendingLogin{done: make(chan struct{})}
	c.pending = f
	// All waiters share the login, so it outlives any single caller.
	c.wg.Go(func() {
		f.session, f.err = c.login()
		c.mu.Lock()
		c.pending = nil
		if f.err == nil {
			c.session = f.session
		}
		c.trouble = nil
		if toolkeep.IsCode(f.err, toolkeep.SecretAccessDenied) { // not that Vault cannot be reached
			c.trouble = toolkeep.AsError(f.err)
		}
		c.mu.Unlock()
		close(f.done)
	})
	return f, nil
}

func (f *pendingLogin) wait(ctx context.Context) (*session, error) {
	select {
	case <-f.done:
		return f.session, f.err
	case <-ctx.Done():
		return nil, failed(ctx, "log in", ctx.Err())
	}
}

func (c *client) login() (*session, error) {
	ctx, cancel := context.WithTimeout(c.life, loginTimeout)
	defer cancel()
	a, err := c.newAPI("")
	if err != nil {
		return nil, err
	}
	secret, err := c.config.Auth.login(ctx, a)
	if err == nil && (secret == nil || secret.Auth == nil || secret.Auth.ClientToken == "") {
		err = errors.New("the login was answered without a token")
	}
	if err != nil {
		e := c.loginFailed(ctx, err)
		c.config.Log.Warn("the login to Vault failed", "method", c.config.Auth.Method, "error", e.Cause)
		return nil, e
	}
	if a, err = c.newAPI(secret.Auth.ClientToken); err != nil {
		return nil, err
	}
	now := c.config.Now()
	s := &session{api: a, token: secret.Auth.ClientToken, ours: true, since: now}
	if d := time.Duration(secret.Auth.LeaseDuration) * time.Second; d > 0 {
		s.expires = now.Add(d)
		if secret.Auth.Renewable {
			c.mu.Lock()
			c.renewIn(s, d*2/3)
			c.mu.Unlock()
		}
	}
	return s, nil
}

// loginFailed separates a refused login from an unreachable Vault.
func (c *client) loginFailed(ctx context.Context, err error) *toolkeep.Error {
	var known *toolkeep.Error
	if errors.As(err, &known) {
		return known
	}
	if code := status(err); code >= 400 && code < 500 && code != http.StatusTooManyRequests {
		return refuse(toolkeep.SecretAccessDenied, "Vault refuses this server's login by %s; the operator must check vault.role and the settings of that login method", c.config.Auth.Method).
			Because(cause(err, c.config.Auth.secrets()...))
	}
	e := failed(ctx, "log in", err, c.config.Auth.secrets()...)
	if e.Code == toolkeep.Cancelled { // only by close
		return errClosed()
	}
	return e
}

// renewIn schedules the next renewal of s. c.mu is held.
func (c *client) renewIn(s *session, d time.Duration) {
	if c.closed {
		return
	}
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		if c.closed || c.session != s {
			c.mu.Unlock()
			return
		}
		c.wg.Add(1)
		c.mu.Unlock()
		defer c.wg.Done()
		c.renew(s)
	})
}

// renew extends a token's life. A token that cannot be renewed is treated as expired, so the next request logs in.
func (c *client) renew(s *session) {
	ctx, cancel := context.WithTimeout(c.life, loginTimeout)
	defer cancel()
	life, err := c.lifeOf(ctx, s)
	if err != nil {
		if c.life.Err() == nil {
			c.config.Log.Warn("the token for Vault could not be renewed", "error", cause(err, s.token))
		}
		return
	}
	if life <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ours {
		s.expires = c.config.Now().Add(life)
	}
	c.renewIn(s, max(life*2/3, time.Second))
}

// lifeOf renews the token if possible and returns its remaining life; 0 means that it never expires or is not to be
// renewed.
func (c *client) lifeOf(ctx context.Context, s *session) (time.Duration, error) {
	if !s.ours {
		var look struct {
			Data struct {
				Renewable bool  `json:"renewable"`
				TTL       int64 `json:"creation_ttl"` // 0 never expires
			} `json:"data"`
		}
		if err := c.ask(s, get(ctx, lookupSelf, nil), &look); err != nil {
			return 0, err
		}
		c.mu.Lock()
		s.looked = true
		c.mu.Unlock()
		if !look.Data.Renewable || look.Data.TTL == 0 {
			return 0, nil
		}
	}
	var renewed struct {
		Auth struct {
			Duration int64 `json:"lease_duration"`
		} `json:"auth"`
	}
	if err := c.ask(s, put(ctx, "auth/token/renew-self", map[string]any{}), &renewed); err != nil {
		return 0, err
	}
	return time.Duration(renewed.Auth.Duration) * time.Second, nil
}

// ask sends a request with exactly this session and decodes the response into out.
func (c *client) ask(s *session, r request, out any) error {
	resp, err := r(s.api.Logical())
	if err != nil {
		return err
	}
	b, err := take(resp.Response)
	if err != nil {
		return err
	}
	defer clear(b)
	return json.Unmarshal(b, out)
}

// close revokes the token if it is ours, and waits for requests in progress.
func (c *client) close(ctx context.Context) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.wg.Wait()
		return
	}
	c.closed = true
	s := c.session
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	if s != nil && s.ours {
		if _, err := put(ctx, "auth/token/revoke-self", map[string]any{})(s.api.Logical()); err != nil {
			c.config.Log.Warn("the token for Vault could not be revoked", "error", cause(err, s.token))
		}
	}
	c.stop()
	c.wg.Wait()
	c.transport.base.CloseIdleConnections()
}

func errClosed() *toolkeep.Error {
	return refuse(toolkeep.SecretRetrievalFailed, "the server is shutting down and asks Vault for nothing more")
}

// trimmed returns a path without leading and trailing slashes, which Vault adds.
func trimmed(p string) string { return strings.Trim(p, "/") }
