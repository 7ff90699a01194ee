package tokenexchange

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// Auth types that are exchanged for a token.
const (
	ClientCredentials = "oauth2_client_credentials"
	Refresh           = "oauth2_refresh"
	GoogleAccount     = "google_service_account"
	AzureAD           = "azure_ad"
	Exchange          = "oauth2_token_exchange"
	Assertion         = "oauth2_identity_assertion"
)

const (
	defaultKept   = 4096
	defaultWait   = 30 * time.Second
	defaultLife   = 5 * time.Minute // if the response names none
	marginAtEnd   = 30 * time.Second
	keysPerHolder = 8 // refresh tokens that map to one holder
	sweepEvery    = time.Minute
)

// Config configures a Minter. Client is required.
type Config struct {
	// Client returns the HTTP client for requests of the tenant's tools whose permissions.network are allow. Its
	// redirect policy and timeout are not used.
	Client func(tenant string, allow []toolkeep.HostPort) *http.Client
	// Clock returns the time; nil is time.Now.
	Clock func() time.Time
	// kept is the maximum number of kept tokens of callers, of other tokens, and of rotated refresh tokens that are
	// not stored, each; default 4096.
	kept int
	// timeout bounds a request for a token; default 30 s.
	timeout time.Duration
}

// Minter mints and keeps access tokens. It is safe for concurrent use and must be closed.
type Minter struct {
	config Config
	life   context.Context // ends at Close
	stop   context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // never held during a token request
	holders map[[32]byte]*holder
	recent  *list.List // of *holder, latest first; without those that are held
	callers *list.List // the same, of callers' own tokens, which must not push out the others
	only    int        // holders with the only copy of a refresh token
	swept   time.Time  // when ended tokens of callers were last dropped
	waiting int        // callers waiting for requests
	closed  bool
}

// holder is one token and its refresh state, held or in one of the Minter's lists. Minter.mu guards it.
type holder struct {
	keys    [][32]byte // the first is its original key
	token   []byte     // nil if none
	until   time.Time  // latest time to hand it out
	expires time.Time  // zero if the response named none
	refresh string     // the newest refresh token, "" is the secret's own
	rotated string     // the same, until a caller has taken it to store it
	only    bool       // it is not known to be stored
	pending *pending
	tenant  string
	list    *list.List    // Minter.recent or Minter.callers
	el      *list.Element // in list; nil while it is held, see keep
}

// pending is a request in progress, shared by all its waiters.
type pending struct {
	done    chan struct{}
	token   []byte // after done; then never written again
	expires time.Time
	err     error
}

// New makes a Minter.
func New(c Config) *Minter {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.kept <= 0 {
		c.kept = defaultKept
	}
	if c.timeout <= 0 {
		c.timeout = defaultWait
	}
	m := &Minter{config: c, holders: make(map[[32]byte]*holder), recent: list.New(), callers: list.New()}
	m.life, m.stop = context.WithCancel(context.Background())
	return m
}

// Close cancels requests in progress and wipes kept tokens. It may be called more than once.
func (m *Minter) Close() {
	m.mu.Lock()
	m.closed = true
	for _, h := range m.holders {
		m.drop(h)
	}
	m.mu.Unlock()
	m.stop()
	m.wg.Wait()
}

// Mints reports whether an auth type's secret is exchanged for a token.
func Mints(authType string) bool { return toolkeep.AuthSpec{Type: authType}.Minted() }

// Mint exchanges the secret of spec for an access token for the principal's tenant. fresh requests a new token
// although one is kept, because the upstream refused that one. The caller wipes the value. rotated is a refresh
// token that must be stored in place of the secret's, "" for none; only one caller gets it.
//
// Types that need the caller's own token (toolkeep.AuthSpec.NeedsCaller) exchange p.Token; what they give serves this
// token of this principal alone, and not beyond its end.
// A token of a caller that has ended is dropped within a minute in which others are asked for.
//
// Errors, all before anything is sent to the tool: E3402 the secret or the auth entry cannot be used, or the token
// endpoint refuses it (its code is in details.oauth_error, what it concerns in details.reason); E3403 the endpoint is unreachable or its response is
// invalid, or there are too many refresh tokens that could not be stored (retryable); E3505 the tool may not reach it.
func (m *Minter) Mint(ctx context.Context, p *toolkeep.Principal, allow []toolkeep.HostPort, spec toolkeep.AuthSpec, plain string, fresh bool) (token secret.Value, rotated string, err error) {
	g, err := parseGrant(spec, plain)
	if err != nil {
		return secret.Value{}, "", err
	}
	if err := checkEndpoint(g.endpoint, allow); err != nil {
		return secret.Value{}, "", err
	}
	var of []string
	if spec.NeedsCaller() {
		if g.first != nil {
			err = checkEndpoint(g.first.endpoint, allow)
		}
		if err == nil {
			err = g.forCaller(p, m.config.Clock())
		}
		if err != nil {
			return secret.Value{}, "", err
		}
		of = holderOf(p)
	}
	tenant := ""
	if p != nil {
		tenant = p.Tenant
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return secret.Value{}, "", unreachable("the server is shutting down and asks for no more tokens")
	}
	list := m.recent
	if g.caller != nil {
		list = m.callers
		m.sweep()
	}
	key := keyOf(tenant, spec, append([]string{g.identity, g.refresh}, of...)...)
	h := m.holders[key]
	switch {
	case h == nil && g.refresh != "" && m.only >= m.config.kept:
		m.mu.Unlock()
		return secret.Value{}, "", unreachable("the server holds the only copy of %d rotated refresh tokens, and asks for no more tokens that way; keep such secrets where Toolkeep can write, as secret://", m.config.kept)
	case h == nil:
		h = &holder{keys: [][32]byte{key}, tenant: tenant, list: list}
		m.holders[key] = h
	case g.refresh != "" && g.refresh == h.refresh:
		m.stored(h)
	}
	f := h.pending
	if f == nil && !fresh && h.token != nil && m.config.Clock().Before(h.until) {
		defer m.mu.Unlock()
		m.keep(h)
		return h.give()
	}
	if f == nil {
		f = m.start(h, g, spec, tenant, m.config.Client(tenant, allow))
	}
	m.waiting++
	m.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		err = ended(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting--
	if err == nil {
		err = f.err
	}
	if err != nil {
		return secret.Value{}, "", err
	}
	rotated, h.rotated = h.rotated, ""
	return secret.Value{Bytes: append([]byte(nil), f.token...), Expires: f.expires}, rotated, nil
}

// give copies the kept token. m.mu is held.
func (h *holder) give() (secret.Value, string, error) {
	rotated := h.rotated
	h.rotated = ""
	return secret.Value{Bytes: append([]byte(nil), h.token...), Expires: h.expires}, rotated, nil
}

// start requests a token in the background: all waiters share the request, and cancelling it would lose a rotated
// refresh token. m.mu is held.
func (m *Minter) start(h *holder, g grant, spec toolkeep.AuthSpec, tenant string, client *http.Client) *pending {
	f := &pending{done: make(chan struct{})}
	h.pending = f
	m.keep(h)
	clear(h.token)
	h.token = nil
	if h.refresh != "" {
		g.refresh = h.refresh
	}
	m.wg.Go(func() {
		ctx, cancel := context.WithTimeout(m.life, m.config.timeout)
		defer cancel()
		now := m.config.Clock()
		a, err := g.exchange(ctx, client, now)
		m.mu.Lock()
		defer m.mu.Unlock()
		defer close(f.done)
		h.pending = nil
		defer m.keep(h)
		if err != nil {
			f.err = err
			if toolkeep.AsError(err).Details["oauth_error"] == "invalid_grant" { // the refresh token is worth nothing
				m.stored(h)
			}
			if h.refresh == "" {
				m.drop(h)
			}
			return
		}
		f.token = []byte(a.token)
		life := a.life
		if life > 0 {
			f.expires = now.Add(life)
		} else {
			life = defaultLife
		}
		if a.refresh != "" && a.refresh != g.refresh {
			h.refresh, h.rotated = a.refresh, a.refresh
			if !m.closed {
				if !h.only {
					h.only = true
					m.only++
				}
				m.alias(h, keyOf(tenant, spec, g.identity, a.refresh))
			}
		}
		until := now.Add(life - min(marginAtEnd, life/2))
		if g.caller != nil { // nothing outlives the token that it was got for
			if end := g.caller.Ends(); f.expires.IsZero() || f.expires.After(end) {
				f.expires = end
			}
			if until.After(g.caller.Ends()) {
				until = g.caller.Ends()
			}
		}
		h.expires, h.until = f.expires, until
		if !m.closed {
			h.token = append([]byte(nil), f.token...)
		}
	})
	return f
}

// keyOf returns a holder's key. Parts are length-prefixed, so different lists never give the same text.
func keyOf(tenant string, spec toolkeep.AuthSpec, parts ...string) [32]byte {
	entry, err := json.Marshal(spec, json.Deterministic(true))
	h := sha256.New()
	for _, part := range append([]string{tenant, string(entry)}, parts...) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	if err != nil { // settings come from JSON, so they marshal
		panic(err)
	}
	return [32]byte(h.Sum(nil))
}

// Stored is told that a rotated refresh token is stored: it may be forgotten here.
func (m *Minter) Stored(tenant, rotated string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.holders {
		if h.only && h.tenant == tenant && h.refresh == rotated {
			m.stored(h)
			m.keep(h)
		}
	}
}

// stored says that the holder has no only copy. m.mu is held.
func (m *Minter) stored(h *holder) {
	if h.only {
		h.only = false
		m.only--
	}
}

// keep makes a holder the latest of its list and drops the oldest over the limit. A holder with a request in progress or
// with the only copy of a refresh token is in no list and not dropped. m.mu is held.
func (m *Minter) keep(h *holder) {
	switch {
	case m.holders[h.keys[0]] != h: // dropped
	case h.pending != nil || h.only:
		if h.el != nil {
			h.list.Remove(h.el)
			h.el = nil
		}
	case h.el != nil:
		h.list.MoveToFront(h.el)
	default:
		h.el = h.list.PushFront(h)
		if h.list.Len() > m.config.kept {
			m.drop(h.list.Back().Value.(*holder))
		}
	}
}

// sweep drops callers' tokens that have ended, at most once a minute. m.mu is held.
func (m *Minter) sweep() {
	now := m.config.Clock()
	if now.Sub(m.swept) < sweepEvery {
		return
	}
	m.swept = now
	for el := m.callers.Front(); el != nil; {
		h := el.Value.(*holder)
		el = el.Next()
		if !now.Before(h.until) {
			m.drop(h)
		}
	}
}

// alias maps a rotated refresh token, once stored, to the same holder. m.mu is held.
func (m *Minter) alias(h *holder, key [32]byte) {
	if other := m.holders[key]; other != nil && other != h {
		return
	}
	m.holders[key] = h
	h.keys = append(h.keys, key)
	if len(h.keys) > keysPerHolder {
		delete(m.holders, h.keys[1])
		h.keys = append(h.keys[:1], h.keys[2:]...)
	}
}

// drop removes a holder. m.mu is held.
func (m *Minter) drop(h *holder) {
	if h.el != nil {
		h.list.Remove(h.el)
		h.el = nil
	}
	for _, k := range h.keys {
		delete(m.holders, k)
	}
	m.stored(h)
	clear(h.token)
	h.token = nil
}

func ended(ctx context.Context) *toolkeep.Error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return unreachable("the token endpoint did not answer in the time that the call had")
	}
	return refuse(toolkeep.Cancelled, "the call ended while its access token was asked for").Because(ctx.Err())
}

func unreachable(format string, args ...any) *toolkeep.Error {
	return refuse(toolkeep.SecretRetrievalFailed, format, args...)
}

func refuse(code toolkeep.Code, format string, args ...any) *toolkeep.Error {
	e := toolkeep.NewError(code, format, args...)
	e.NothingSent = true
	return e
}
