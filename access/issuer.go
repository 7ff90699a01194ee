package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
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

	"github.com/lestrrat-go/jwx/v3/jwa"
	"github.com/lestrrat-go/jwx/v3/jwk"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// MethodOAuth is Principal.Method of who came with a token.
const MethodOAuth = "oauth"

// OAuth makes the server take access tokens (RFC 9068) of one issuer, beside API keys.
type OAuth struct {
	// Issuer is what the claim iss of every token must be, to the letter: an https URL,
	// or http on loopback. Required.
	Issuer string
	// BaseURL is where this server is reached, without a slash at its end. It is asked
	// when a request comes. Required.
	BaseURL func() string
	// Audience are values of aud of which a token must have one. Without any, that is
	// BaseURL or one of the MCP endpoints below it.
	Audience []string
	// JWKSURL is where the issuer's keys are; "" is what the issuer's metadata says
	// (RFC 8414, else OpenID Connect Discovery).
	JWKSURL string
	// SubjectClaim names who it is; default sub.
	SubjectClaim string
	// TenantClaim names the tenant; default tenant.
	TenantClaim string
	// DefaultTenant is the tenant of tokens that have no TenantClaim; "" refuses them.
	DefaultTenant string
	// WorkspaceClaim names the workspace, whose secrets come before the tenant's own;
	// "" takes none from tokens, and a token without the claim has none.
	WorkspaceClaim string
	// Scopes gives the role of each scope. Other scopes grant nothing. Required.
	Scopes map[string]string

	Client *http.Client  // default one without redirects
	Every  time.Duration // between fetches of the keys; default 10 min
	// Floor is the least time between two fetches, also where tokens name keys that
	// are not known; default 30 s.
	Floor time.Duration
	// KeepFor is how long the last keys are good while the issuer does not answer;
	// default 24 h.
	KeepFor time.Duration
	// Timeout bounds one request to the issuer; default 5 s.
	Timeout time.Duration
}

// algorithms are those that a token may be signed by: none with a shared secret,
// which a public key could be taken for, and none without a signature.
var algorithms = map[string]jwa.SignatureAlgorithm{
	"RS256": jwa.RS256(), "PS256": jwa.PS256(), "ES256": jwa.ES256(), "EdDSA": jwa.EdDSA(),
}

var algorithmNames = slices.Sorted(maps.Keys(algorithms))

const (
	maxKeysBody     = 1 << 20 // bytes of a key set, and of the issuer's metadata
	maxIssuerKeys   = 100
	maxKeyID        = 1024 // bytes
	maxSessions     = 8192 // verified tokens that are remembered
	longestFailWait = 5 * time.Minute
)

// issuer knows the keys of one authorization server. One goroutine fetches them;
// requests ask it for more and wait for what is under way.
//
//	start -> fetching -> waiting -(Every, or a failure's pause, or ask)-> fetching …
//
// Keys are replaced as a whole, and with them every session that was verified by
// the old ones. A fetch that fails changes nothing but failing.
type issuer struct {
	c     OAuth
	now   func() time.Time
	log   *slog.Logger
	roles []string // all that scopes can give
	wake  chan struct{}
	over  chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	keys   *keyset
	got    time.Time     // when keys were last confirmed
	tried  time.Time     // when a fetch last began
	failed error         // of the last fetch
	flight chan struct{} // closed when the fetch under way ends; nil without one
}

// newIssuer checks the configuration. Faults are E3008's.
func newIssuer(c OAuth, rules ruleset, clock func() time.Time, log *slog.Logger) (*issuer, []toolkeep.Fault) {
	var faults []toolkeep.Fault
	fault := func(pointer, rule, format string, args ...any) {
		faults = append(faults, toolkeep.Fault{Pointer: "/oauth" + pointer, Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	if err := CheckIssuerURL(c.Issuer); err != nil {
		fault("/issuer", "format", "%s", err)
	}
	if err := CheckIssuerURL(c.JWKSURL); c.JWKSURL != "" && err != nil {
		fault("/jwks_url", "format", "%s", err)
	}
	if c.BaseURL == nil {
		fault("/base_url", "required", "the server's own URL is not named")
	}
	if len(c.Scopes) == 0 {
		fault("/scopes", "required", "no scope gives a role; no token could do anything")
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
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	roles := slices.Sorted(maps.Values(c.Scopes))
	return &issuer{c: c, now: clock, log: log, roles: slices.Compact(roles), wake: make(chan struct{}, 1), over: make(chan struct{})}, faults
}

// CheckIssuerURL tells what is wrong with the URL of an issuer or its keys: they
// come over TLS, or from this machine.
func CheckIssuerURL(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return errors.New("it is no URL; write https://host/path")
	case u.User != nil || u.Fragment != "" || u.RawQuery != "":
		return errors.New("the URL must have no user, query or fragment")
	case u.Scheme == "https":
		return nil
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()) {
		return nil
	}
	return errors.New("the URL must begin with https:// (http:// on loopback alone)")
}

// start begins to fetch. It does not wait: an issuer that is down must not keep
// the server from starting.
func (o *issuer) start(ctx context.Context) {
	o.flight = make(chan struct{}) // requests wait for the first keys
	go func() {
		defer close(o.over)
		o.run(ctx)
	}()
}

func (o *issuer) run(ctx context.Context) {
	pause := o.c.Floor
	for {
		wait := o.c.Every
		if o.refresh(ctx) != nil {
			wait = min(pause, o.c.Every)
			pause = min(2*pause, longestFailWait)
		} else {
			pause = o.c.Floor
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-o.wake:
		case <-ctx.Done():
			t.Stop()
			return
		}
		t.Stop()
	}
}

// refresh fetches the keys once.
func (o *issuer) refresh(ctx context.Context) error {
	o.mu.Lock()
	if o.flight == nil {
		o.flight = make(chan struct{})
	}
	select {
	case <-o.wake: // whoever asked meanwhile is served by this one
	default:
	}
	o.tried = o.now()
	o.mu.Unlock()

	set, err := o.fetch(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.flight)
	o.flight = nil
	if ctx.Err() != nil {
		return ctx.Err()
	}
	before := o.failed
	o.failed = err
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
		o.keys = set // and none of the sessions that the old ones verified
	}
	return nil
}

// ask has the keys fetched, unless that was done less than Floor ago, and waits
// for a fetch that is under way. It tells whether there was one.
func (o *issuer) ask(ctx context.Context) bool {
	o.mu.Lock()
	if o.flight == nil {
		if o.now().Sub(o.tried) < o.c.Floor {
			o.mu.Unlock()
			return false
		}
		o.flight = make(chan struct{})
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	flight := o.flight
	o.mu.Unlock()
	select {
	case <-flight:
		return true
	case <-o.over:
	case <-ctx.Done():
	}
	return false
}

// current are the keys, nil where there are none that may still be used.
func (o *issuer) current() *keyset {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.keys == nil || o.now().Sub(o.got) > o.c.KeepFor {
		return nil
	}
	return o.keys
}

// failing is why the keys could not be fetched last time.
func (o *issuer) failing() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// health says what is wrong with the keys.
func (o *issuer) health() error {
	set := o.current()
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.failed != nil && set != nil:
		return fmt.Errorf("the keys of the OAuth issuer cannot be fetched; those of %s are used until %s: %w",
			o.got.UTC().Format(time.RFC3339), o.got.Add(o.c.KeepFor).UTC().Format(time.RFC3339), o.failed)
	case o.failed != nil:
		return fmt.Errorf("the keys of the OAuth issuer cannot be fetched; no token is taken: %w", o.failed)
	case set == nil:
		return errors.New("the keys of the OAuth issuer are not fetched yet")
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

// discover finds out where the keys are.
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
		return "", fmt.Errorf("%s is of the issuer %.200q, not %q", at, iss, o.c.Issuer)
	}
	jwks, _ := m["jwks_uri"].(string)
	if err := CheckIssuerURL(jwks); err != nil {
		return "", fmt.Errorf("%s has no jwks_uri that can be used: %w", at, err)
	}
	return jwks, nil
}

func (o *issuer) get(ctx context.Context, at string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, o.c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be asked for", at)
	}
	req.Header.Set("Accept", "application/json")
	res, err := o.c.Client.Do(req)
	if err != nil {
		var outer *url.Error // says the address again, and may say more of it
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
		return nil, fmt.Errorf("%s breaks off: %w", at, err)
	case len(body) > maxKeysBody:
		return nil, fmt.Errorf("%s answers with more than %d bytes", at, maxKeysBody)
	}
	return body, nil
}

// plainNetError leaves addresses that a name resolved to out.
func plainNetError(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// verifyKey is one key of the issuer for signatures.
type verifyKey struct {
	alg string // the only one that it is for, "" any that fits
	raw any    // *rsa.PublicKey, *ecdsa.PublicKey, ed25519.PublicKey
}

// fits tells whether the key may verify by an algorithm: its type decides, never
// the token.
func (k *verifyKey) fits(alg string) bool {
	if k.alg != "" && k.alg != alg {
		return false
	}
	switch raw := k.raw.(type) {
	case *rsa.PublicKey:
		return alg == "RS256" || alg == "PS256"
	case *ecdsa.PublicKey:
		return alg == "ES256" && raw.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}

// keyset is what the issuer published at one time, and what was verified by it.
type keyset struct {
	sum  [32]byte
	byID map[string][]*verifyKey // "" those without a name

	mu       sync.RWMutex
	verified map[[32]byte]*session // by the token's SHA-256
}

// parseKeys reads a JWK set. What is not for verifying by an algorithm that we
// know is passed over; a set without any is an error.
func parseKeys(body []byte) (*keyset, error) {
	set, err := jwk.Parse(body, jwk.WithStrictKeySetParsing(false), jwk.WithMaxKeys(maxIssuerKeys))
	if err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	s := &keyset{sum: sha256.Sum256(body), byID: make(map[string][]*verifyKey), verified: make(map[[32]byte]*session)}
	for i := range set.Len() {
		key, _ := set.Key(i)
		k := verifying(key)
		if k == nil {
			continue
		}
		kid, _ := key.KeyID()
		s.byID[kid] = append(s.byID[kid], k)
	}
	if len(s.byID) == 0 {
		return nil, fmt.Errorf("key set: none of its %d keys is for verifying by %s", set.Len(), strings.Join(algorithmNames, ", "))
	}
	return s, nil
}

// verifying gives a key that we may verify with, nil for others.
func verifying(key jwk.Key) *verifyKey {
	if use, ok := key.KeyUsage(); ok && use != "sig" {
		return nil
	}
	if ops, ok := key.KeyOps(); ok && !slices.Contains(ops, jwk.KeyOpVerify) {
		return nil
	}
	public, err := jwk.PublicKeyOf(key)
	if err != nil {
		return nil // not one that this program knows
	}
	k := &verifyKey{}
	if err := jwk.Export(public, &k.raw); err != nil {
		return nil
	}
	if alg, ok := key.Algorithm(); ok {
		if k.alg = alg.String(); k.alg == "Ed25519" { // its new name (RFC 9864)
			k.alg = "EdDSA"
		}
	}
	if !slices.ContainsFunc(algorithmNames, k.fits) {
		return nil
	}
	return k
}

// find gives the key that a token names and that fits its algorithm. A token that
// names none means the only key that fits.
func (s *keyset) find(h header) *verifyKey {
	if s == nil {
		return nil
	}
	list := s.byID[h.kid]
	if h.kid == "" {
		list = slices.Concat(slices.Collect(maps.Values(s.byID))...)
	}
	var found *verifyKey
	for _, k := range list {
		switch {
		case !k.fits(h.alg):
		case found != nil:
			return nil // there is no telling which
		default:
			found = k
		}
	}
	return found
}

func (s *keyset) session(sum [32]byte) *session {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.verified[sum]
}

// remember keeps a session. Where there are too many it starts anew.
func (s *keyset) remember(sum [32]byte, v *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.verified) >= maxSessions {
		clear(s.verified)
	}
	s.verified[sum] = v
}
