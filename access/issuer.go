package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
)

// MethodOAuth is the Principal.Method of a caller with an access token.
const MethodOAuth = "oauth"

// OAuth makes the server accept access tokens (RFC 9068) of an issuer, beside API
// keys.
type OAuth struct {
	// Issuer is the claim iss of every token, byte for byte: an https URL, or http on
	// loopback. Required.
	Issuer string
	// BaseURL returns the URL of this server without a trailing slash; it is called for
	// each request. Required.
	BaseURL func() string `json:"-"`
	// Audience lists the accepted values of aud; default BaseURL and the MCP endpoints
	// below it.
	Audience []string
	// JWKSURL is the URL of the issuer's keys; default the one in the issuer's metadata
	// (RFC 8414, else OpenID Connect Discovery).
	JWKSURL string
	// SubjectClaim is the claim with the subject; default sub.
	SubjectClaim string
	// TenantClaim is the claim with the tenant; default tenant.
	TenantClaim string
	// DefaultTenant is the tenant of tokens without TenantClaim; "" refuses such
	// tokens.
	DefaultTenant string
	// WorkspaceClaim is the claim with the workspace, whose secrets take precedence
	// over the tenant's; "" ignores workspaces. A token without the claim has no
	// workspace.
	WorkspaceClaim string
	// Tenants are the only tenants that its tokens may name, and no other issuer's may; none: all that are no other
	// issuer's.
	Tenants []string
	// Scopes maps a scope to its role. Other scopes grant nothing. Required.
	Scopes map[string]string

	Client *http.Client  `json:"-"` // default: a client that follows no redirects
	Every  time.Duration // between fetches of the keys; default 10 min
	// Floor is the least time between two fetches, also when tokens name unknown keys;
	// default 30 s.
	Floor time.Duration
	// KeepFor is how long the last fetched keys stay in use while the issuer is
	// unreachable; default 24 h.
	KeepFor time.Duration
	// Timeout bounds one request to the issuer; default 5 s.
	Timeout time.Duration
}

const (
	maxKeysBody     = 1 << 20 // bytes of a key set, and of the issuer's metadata
	longestFailWait = 5 * time.Minute
)

// issuer holds the keys of one authorization server. One goroutine fetches them, on
// schedule or when a request asks.
//
// A fetch replaces all keys together with the sessions that they verified. A failed
// fetch keeps the keys and sets failed.
type issuer struct {
	c     OAuth
	now   func() time.Time
	log   *slog.Logger
	roles []string           // all roles that scopes can grant
	owner map[string]string  // the issuers of tenants that belong to one
	asks  chan chan struct{} // fetch requests; each is closed when it is done
	over  chan struct{}      // closed when the goroutine has ended
	tried time.Time          // start of the last fetch; used only by the goroutine

	mu      sync.Mutex
	keys    *keyset
	got     time.Time // last time the keys were confirmed
	fetches int       // number of completed fetches
	failed  error     // error of the last fetch
}

// newIssuer checks the configuration, which is at a place of the settings. Its faults belong to E3008.
func newIssuer(c OAuth, at string, rules ruleset, clock func() time.Time, log *slog.Logger) (*issuer, []toolkeep.Fault) {
	var faults []toolkeep.Fault
	fault := func(pointer, rule, format string, args ...any) {
		faults = append(faults, toolkeep.Fault{Pointer: at + pointer, Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	if err := CheckIssuerURL(c.Issuer); err != nil {
		fault("/issuer", "format", "%s", err)
	}
	if err := CheckIssuerURL(c.JWKSURL); c.JWKSURL != "" && err != nil {
		fault("/jwks_url", "format", "%s", err)
	}
	if c.BaseURL == nil {
		fault("/base_url", "required", "the URL of this server is missing")
	}
	if len(c.Scopes) == 0 {
		fault("/scopes", "required", "no scope is mapped to a role, so no token could call anything; add one")
	}
	for _, s := range slices.Sorted(maps.Keys(c.Scopes)) {
		if r := c.Scopes[s]; rules[r] == nil {
			fault("/scopes/"+escape(s), "enum", "%s", noRole(r, rules.names()))
		}
	}
	fill := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	fill(&c.Every, 10*time.Minute)
	fill(&c.Floor, 30*time.Second)
	fill(&c.KeepFor, 24*time.Hour)
	fill(&c.Timeout, 5*time.Second)
	if c.SubjectClaim == "" {
		c.SubjectClaim = "sub"
	}
	if c.TenantClaim == "" {
		c.TenantClaim = "tenant"
	}
	if c.Client == nil {
		c.Client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
			CheckRedirect: egress.NoRedirects}
	}
	roles := slices.Sorted(maps.Values(c.Scopes))
	return &issuer{c: c, now: clock, log: log, roles: slices.Compact(roles), asks: make(chan chan struct{}), over: make(chan struct{})}, faults
}

// CheckIssuerURL checks the URL of an issuer or of its keys: it must use https, or http
// on loopback.
func CheckIssuerURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return errors.New("it is not a URL; write https://host/path")
	case u.User != nil || u.Fragment != "" || u.RawQuery != "":
		return errors.New("remove the user, query or fragment from the URL")
	case u.Scheme == "https":
		return nil
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()) {
		return nil
	}
	return errors.New("the URL must begin with https:// (http:// only on loopback)")
}

// run fetches until ctx ends. Only requests wait for the first fetch: the server must
// start even if the issuer is down.
func (o *issuer) run(ctx context.Context) {
	defer close(o.over)
	pause := o.c.Floor
	var ask chan struct{}
	for ctx.Err() == nil {
		wait := o.c.Every
		if o.refresh(ctx) != nil {
			wait, pause = min(pause, o.c.Every), min(2*pause, longestFailWait)
		} else {
			pause = o.c.Floor
		}
		if ask != nil {
			close(ask)
		}
		ask = o.await(ctx, wait)
	}
}

// await returns after d, or earlier with a fetch request. Requests within Floor of the
// last fetch are answered without another fetch.
func (o *issuer) await(ctx context.Context, d time.Duration) chan struct{} {
	due := time.NewTimer(d)
	defer due.Stop()
	for {
		select {
		case <-due.C:
			return nil
		case <-ctx.Done():
			return nil
		case ask := <-o.asks:
			if o.now().Sub(o.tried) >= o.c.Floor {
				return ask
			}
			close(ask)
		}
	}
}

// refresh fetches the keys once.
func (o *issuer) refresh(ctx context.Context) error {
	o.tried = o.now()
	set, err := o.fetch(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.failed
	o.failed = err
	o.fetches++
	if err != nil {
		if before == nil {
			o.log.Error("the keys of the OAuth issuer cannot be fetched", "issuer", o.c.Issuer, "error", err)
		}
		return err
	}
	if before != nil {
		o.log.Info("the keys of the OAuth issuer can be fetched again", "issuer", o.c.Issuer)
	}
	o.got = o.now()
	if o.keys == nil || o.keys.sum != set.sum {
		o.keys = set // also drops the sessions verified by the old keys
	}
	return nil
}

// ask requests a fetch, unless the last one was less than Floor ago, and waits for a
// fetch in progress. It reports whether a fetch completed meanwhile.
func (o *issuer) ask(ctx context.Context) bool {
	before := o.fetched()
	answer := make(chan struct{})
	select {
	case o.asks <- answer:
		select {
		case <-answer:
		case <-o.over:
		case <-ctx.Done():
		}
	case <-o.over:
	case <-ctx.Done():
	}
	return o.fetched() != before
}

func (o *issuer) fetched() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fetches
}

// current returns the keys, or nil if there are none or they are older than KeepFor.
func (o *issuer) current() *keyset {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil || o.now().Sub(o.got) > o.c.KeepFor {
		return nil
	}
	return o.keys
}

// failing returns the error of the last fetch.
func (o *issuer) failing() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// health returns an error while the keys cannot be fetched.
func (o *issuer) health() error {
	set := o.current()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.failed != nil && set != nil:
		return fmt.Errorf("the keys of the OAuth issuer cannot be fetched; the keys of %s are used until %s: %w",
			o.got.UTC().Format(time.RFC3339), o.got.Add(o.c.KeepFor).UTC().Format(time.RFC3339), o.failed)
	case o.failed != nil:
		return fmt.Errorf("the keys of the OAuth issuer cannot be fetched; every token is refused: %w", o.failed)
	case set == nil:
		return errors.New("the keys of the OAuth issuer have not been fetched yet")
	}
	return nil
}

// fetch gets the issuer's keys.
func (o *issuer) fetch(ctx context.Context) (*keyset, error) {
	at := o.c.JWKSURL
	if at == "" {
		var err error
		if at, err = o.discover(ctx); err != nil {
			return nil, err
		}
	}
	body, err := o.get(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	return parseKeys(body)
}

// discover reads the URL of the keys from the issuer's metadata.
func (o *issuer) discover(ctx context.Context) (string, error) {
	u, err := url.Parse(o.c.Issuer)
	if err != nil {
		return "", err
	}
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	origin := u.Scheme + "://" + u.Host
	var errs []error
	for _, at := range []string{origin + "/.well-known/oauth-authorization-server" + path, origin + path + "/.well-known/openid-configuration"} {
		jwks, err := o.metadata(ctx, at)
		if err == nil {
			return jwks, nil
		}
		errs = append(errs, fmt.Errorf("metadata: %w", err))
	}
	return "", errors.Join(errs...)
}

func (o *issuer) metadata(ctx context.Context, at string) (string, error) {
	body, err := o.get(ctx, at)
	if err != nil {
		return "", err
	}
	m, err := canon.ParseObject(body, canon.Limits{Bytes: maxKeysBody})
	if err != nil {
		return "", fmt.Errorf("%s: %w", at, err)
	}
	if iss, _ := m["issuer"].(string); iss != o.c.Issuer {
		return "", fmt.Errorf("%s names the issuer %.200q, not %q", at, iss, o.c.Issuer)
	}
	jwks, _ := m["jwks_uri"].(string)
	if err := CheckIssuerURL(jwks); err != nil {
		return "", fmt.Errorf("%s has no usable jwks_uri: %w", at, err)
	}
	return jwks, nil
}

func (o *issuer) get(ctx context.Context, at string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, fmt.Errorf("%s is not a valid request URL", at)
	}
	req.Header.Set("Accept", "application/json")
	res, err := o.c.Client.Do(req)
	if err != nil {
		var outer *url.Error // repeats the URL and may reveal more of it
		if errors.As(err, &outer) {
			err = outer.Err
		}
		return nil, fmt.Errorf("%s does not answer: %w", at, plainNetError(err))
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %d", at, res.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxKeysBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer of %s broke off: %w", at, err)
	case len(body) > maxKeysBody:
		return nil, fmt.Errorf("%s answers with more than %d bytes", at, maxKeysBody)
	}
	return body, nil
}

// plainNetError removes the resolved IP addresses.
func plainNetError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
