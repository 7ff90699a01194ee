package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/canon"
)

// MethodProxy is the Principal.Method of a caller that a trusted proxy names.
const MethodProxy = "proxy"

// Secret reads a secret of the settings.
type Secret func(ctx context.Context) (string, error)

// Signing configures signatures of requests.
type Signing struct {
	// Sealer seals and opens the signing secrets of API keys; nil: no key can have one.
	Sealer Sealer
	// Faces are where every request must be signed: rest, mcp, grpc.
	Faces []string
	// Shared are what callers sign with that have no signing secret of their own; each verifies.
	Shared []Secret
	Skew   time.Duration // of timestamps; default 30 s
	// Proxy are what trusted proxies sign with that name the caller; none: no proxy may.
	Proxy []Secret
	// Results signs what callers get of calls; nil: nothing does.
	Results Secret
	// ProxyRoles and ProxyTenants are what they may give; no others.
	ProxyRoles, ProxyTenants []string
}

// Sealer seals and opens what is stored; context is bound to it.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// ResultKey returns the key that signs results, nil if none does; while it cannot be read again, the last one. It waits for a
// read for a second at most, and only if it has no key, or has not read it for ten seconds. The error says why there is none.
func (a *Access) ResultKey() ([]byte, error) {
	if a.config.Signing.Results == nil {
		return nil, nil
	}
	keys, err := a.results.last()
	if err != nil {
		return nil, err
	}
	return keys[0], nil
}

// claimsPerMinute bounds the nonces that this node has kept, far above what it can serve.
const claimsPerMinute = 500_000

// nonces keeps nonces in the store.
type nonces struct {
	a *Access

	mu     sync.Mutex
	minute int64
	count  int
}

func (n *nonces) Claim(ctx context.Context, nonce [sha256.Size]byte) (bool, error) {
	now := n.a.config.Clock()
	n.mu.Lock()
	if m := now.Unix() / 60; m != n.minute {
		n.minute, n.count = m, 0
	}
	n.count++
	over := n.count > claimsPerMinute
	n.mu.Unlock()
	if over {
		return false, errors.New("more signed requests came within a minute than nonces are kept for")
	}
	err := n.a.config.Store.Apply(ctx, toolkeep.ClaimNonce{Nonce: nonce, At: now})
	if errors.Is(err, toolkeep.ErrNonceTaken) {
		return false, nil
	}
	return err == nil, err
}

func newVerifier(a *Access) *signing.Verifier {
	return &signing.Verifier{Nonces: &nonces{a: a}, Skew: a.config.Signing.Skew, Now: a.config.Clock}
}

// signingPrefix begins the text of a signing secret, so that it is not taken for a key.
const signingPrefix = "tks_"

// newSigningSecret returns a secret with 256 random bits.
func newSigningSecret() string {
	var raw [32]byte
	rand.Read(raw[:])
	return signingPrefix + inBase62(new(big.Int).SetBytes(raw[:]), secretChars)
}

func signingContext(k *toolkeep.APIKey) []byte {
	return []byte("signing secret of " + k.Tenant + "/" + k.ID)
}

// Signed checks the signature of a request of the principal at a face; r is nil if it has none.
// The holder of a key with a signing secret must sign with it, everywhere; others must sign with a
// shared secret where the face demands it. What fails counts for the agent at the address: a block
// refuses what fails, and never a request that is signed well. E3404, E3405, E3406, E3408, E3810,
// E3403, E3965, and errors of reading the body.
func (a *Access) Signed(ctx context.Context, p *toolkeep.Principal, face string, r *signing.Request) error {
	if p.Method == MethodProxy {
		return nil // AuthenticateProxy has checked it
	}
	h := a.keyOf(p)
	if p.KeyID != "" && h == nil {
		return toolkeep.NewError(toolkeep.Unauthenticated, "the API key is not valid any more")
	}
	own := h != nil && h.key.RequireSignature
	if r != nil && r.CallOnly && face != "mcp" {
		return nil // the gate hands it to the pipeline with the call, and refuses what is no call
	}
	if r == nil {
		switch {
		case own:
			return a.unsigned(p, signing.Refused(signing.Missing, "this key's requests must be signed with its signing secret; see docs/identity.md"))
		case slices.Contains(a.config.Signing.Faces, face):
			return a.unsigned(p, signing.Refused(signing.Missing, "requests must be signed at this face (signing.required); see docs/identity.md"))
		}
		return nil
	}
	scope, keys, err := a.signsWith(p, h)
	if err == nil {
		err = a.verifier.Verify(ctx, r, scope, keys)
	}
	return a.unsigned(p, err)
}

// MustSign reports whether a signature is demanded of the principal at a face: by its key, or by the face.
func (a *Access) MustSign(p *toolkeep.Principal, face string) bool {
	h := a.keyOf(p)
	return h != nil && h.key.RequireSignature || slices.Contains(a.config.Signing.Faces, face)
}

// signsWith returns the secrets of a principal, whose key is h, nil for none; scope distinguishes
// its nonces.
func (a *Access) signsWith(p *toolkeep.Principal, h *held) (scope string, keys signing.Keys, err error) {
	switch {
	case h != nil && h.key.RequireSignature:
		return "key/" + p.KeyID, func(context.Context) ([][]byte, error) { return a.ownSecret(h) }, nil
	case len(a.config.Signing.Shared) == 0:
		return "", nil, signing.Refused(signing.Wrong, "request signatures are not configured on this server for this caller; leave %s and %s out", signing.HeaderSignature, signing.HeaderTimestamp)
	}
	// All of them have the same secrets: a request that another of them sends again, with a client
	// certificate of its own, is no new one.
	return "shared", a.shared.get, nil
}

// TakeHandover notes the nonce of a request that another node has checked. E3406, E3965.
func (a *Access) TakeHandover(ctx context.Context, nonce string) error {
	return a.verifier.Once(ctx, "handover", nonce)
}

// SignedCall is Signed for the signature of a call alone, whose arguments are known.
func (a *Access) SignedCall(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call, arguments map[string]any) error {
	h := a.keyOf(p)
	if p.Method == MethodProxy || p.KeyID != "" && h == nil {
		return signing.Refused(signing.Incomplete, "the request's own signature is needed here")
	}
	scope, keys, err := a.signsWith(p, h)
	if err == nil {
		agent := c.Subject
		if agent == "" {
			agent = p.Subject
		}
		err = a.verifier.VerifyCall(ctx, &signing.Call{Signature: c.Signature.Value, Timestamp: c.Signature.Timestamp, RequestID: c.Signature.RequestID,
			Tool: c.Tool, Agent: agent, Parameters: canon.Append(nil, arguments)}, scope, keys)
	}
	return a.unsigned(p, err)
}

func (a *Access) keyOf(p *toolkeep.Principal) *held {
	if p.KeyID == "" {
		return nil
	}
	return a.keys.Load().byID[p.KeyID]
}

// ownSecret opens the signing secret of a key.
func (a *Access) ownSecret(h *held) ([][]byte, error) {
	if s := h.signing.Load(); s != nil {
		return *s, nil
	}
	if a.config.Signing.Sealer == nil {
		return nil, noSecret(errors.New("there is no sealer"))
	}
	plain, err := a.config.Signing.Sealer.Open(h.key.Signing, signingContext(&h.key))
	if err != nil {
		return nil, noSecret(err)
	}
	s := [][]byte{plain}
	h.signing.Store(&s)
	return s, nil
}

// How long secrets of the settings are kept once they are read: a request with a wrong signature must
// not cost a read each, and a rotation serves within secretsKept. A failed read is tried again after
// secretsFailed. A read lasts secretsWait at most, of which a result that it signs waits for secretsFirst.
const (
	secretsKept   = 5 * time.Second
	secretsFailed = time.Second
	secretsWait   = 10 * time.Second
	secretsFirst  = time.Second
)

// secrets reads secrets of the settings, and keeps them for a while.
type secrets struct {
	from  []Secret
	clock func() time.Time
	log   *slog.Logger // of reads beside

	mu   sync.Mutex // of who reads, and of the following
	kept atomic.Pointer[keptSecrets]

	beside  sync.WaitGroup
	first   chan struct{} // of the read beside; closed after secretsFirst, or with its end; nil: there is none
	cancel  context.CancelFunc
	stopped bool
}

type keptSecrets struct {
	keys  [][]byte // of the last read that did not fail, if err says why a later one did
	err   error
	until time.Time
}

// fresh returns what was read, nil if it is to be read again.
func (s *secrets) fresh() *keptSecrets {
	if k := s.kept.Load(); k != nil && s.clock().Before(k.until) {
		return k
	}
	return nil
}

// last is current for what must not wait: it reads beside, and while that fails it returns what it read before.
func (s *secrets) last() ([][]byte, error) {
	k := s.fresh()
	if k == nil {
		first := s.readBeside()
		k = s.kept.Load()
		if first != nil && (k == nil || len(k.keys) == 0 || k.err == nil && s.clock().Sub(k.until) > secretsKept) {
			<-first
			k = s.kept.Load()
		}
	}
	switch {
	case k == nil:
		return nil, fmt.Errorf("the key was not read within %v, and reading it goes on", secretsFirst)
	case len(k.keys) == 0:
		return nil, k.err
	}
	return k.keys, nil
}

// readBeside begins a read, unless one is under way or has just ended, and returns its first. It is nil without a read.
func (s *secrets) readBeside() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first != nil || s.stopped || s.fresh() != nil {
		return s.first
	}
	first := make(chan struct{})
	begun := sync.OnceFunc(func() { close(first) })
	timer := time.AfterFunc(secretsFirst, begun)
	ctx, cancel := context.WithCancel(context.Background())
	s.first, s.cancel = first, cancel
	s.beside.Go(func() {
		defer cancel()
		k := &keptSecrets{}
		k.keys, k.err = s.read(ctx)
		k.until = s.clock().Add(secretsKept)
		old := s.kept.Load()
		if k.err != nil {
			k.until = s.clock().Add(secretsFailed)
			if old != nil {
				k.keys = old.keys
			}
		}
		switch failed := old != nil && old.err != nil; {
		case k.err != nil && !failed && len(k.keys) > 0:
			s.log.Warn("the key that signs results cannot be read; the one that was read last signs on", "code", toolkeep.SecretRetrievalFailed, "error", k.err)
		case k.err == nil && failed:
			s.log.Info("the key that signs results is read again")
		}
		s.mu.Lock()
		s.kept.Store(k)
		s.first = nil
		s.mu.Unlock()
		timer.Stop()
		begun()
	})
	return first
}

// stop ends the read beside, and waits for it; none begins any more.
func (s *secrets) stop() {
	s.mu.Lock()
	s.stopped = true
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Unlock()
	s.beside.Wait()
}

func (s *secrets) get(ctx context.Context) ([][]byte, error) {
	keys, err := s.current(ctx)
	if err != nil {
		return nil, noSecret(err)
	}
	return keys, nil
}

func (s *secrets) current(ctx context.Context) ([][]byte, error) {
	k := s.fresh()
	if k == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if k = s.fresh(); k == nil {
			k = &keptSecrets{}
			k.keys, k.err = s.read(context.WithoutCancel(ctx)) // others get what it read
			k.until = s.clock().Add(secretsKept)
			if k.err != nil {
				k.until = s.clock().Add(secretsFailed)
			}
			s.kept.Store(k)
		}
	}
	return k.keys, k.err
}

// read fails without any key.
func (s *secrets) read(ctx context.Context) (keys [][]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, secretsWait)
	defer cancel()
	for _, read := range s.from {
		text, e := read(ctx)
		if e == nil && len(text) < signing.MinKey {
			e = errors.New("a signing secret is shorter than 32 bytes")
		}
		if e != nil {
			err = e
			continue
		}
		keys = append(keys, []byte(text))
	}
	if len(keys) > 0 {
		err = nil
	}
	return keys, err
}

func noSecret(err error) error {
	return toolkeep.NewError(toolkeep.SecretRetrievalFailed, "the secret that verifies the request's signature cannot be read now; nothing was executed").
		Because(err).After(time.Second)
}

// failed are the reasons of failed signatures for Failure.
var failed = map[toolkeep.Code]string{toolkeep.SignatureInvalid: "wrong_signature", toolkeep.TimestampInvalid: "stale_signature",
	toolkeep.ReplayDetected: "replayed", toolkeep.BodyAltered: "altered_body"}

// unsigned counts a request of a known caller whose signature failed, and returns its error, or
// E3810 during a block of the agent at the address. Other errors, and none, are returned as they are.
func (a *Access) unsigned(p *toolkeep.Principal, err error) error {
	reason := failed[codeOf(err)]
	if reason == "" {
		return err
	}
	f := Failure{Reason: reason, Tenant: p.Tenant, Subject: p.Subject, KeyID: p.KeyID, Addr: p.Addr}
	if e := a.outdated(f, network(p.Addr), ""); codeOf(e) == toolkeep.AuthFailuresLimited {
		return e
	}
	return err
}

// Unsigned counts a signature of a request that cannot have it, as one that does not match. The error
// is err, or E3810 during a block.
func (a *Access) Unsigned(p *toolkeep.Principal, err error) error { return a.unsigned(p, err) }

func codeOf(err error) toolkeep.Code {
	if e := toolkeep.AsError(err); err != nil {
		return e.Code
	}
	return ""
}

// AuthenticateProxy returns the principal that a trusted proxy names in signed headers. trusted says
// that the request comes from an address of the proxies, or that any may be one. The headers give
// subject, tenant, roles, chain and, as those of a call, user and session; they are believed only
// with a proxy's signature, and only as far as Signing.ProxyRoles and ProxyTenants go. E3214 for what
// it may not say, with details.reason PROXY_UNKNOWN, PROXY_TENANT, PROXY_ROLE or PROXY_NAME; E3404 to
// E3406, E3408; E3810.
func (a *Access) AuthenticateProxy(ctx context.Context, r *signing.Request, trusted bool, addr string) (*toolkeep.Principal, error) {
	s := &a.config.Signing
	one := func(name string) string {
		if vs := r.Header(strings.ToLower(name)); len(vs) > 0 {
			return vs[0] // the signature covers it, and there is one
		}
		return ""
	}
	refuse := func(reason, code string, err *toolkeep.Error) error {
		e := a.guessed(Failure{Reason: reason, Addr: addr}, network(addr), "")
		if codeOf(e) == toolkeep.AuthFailuresLimited {
			return e
		}
		if code != "" {
			err.With("reason", code)
		}
		return err
	}
	no := func(code, format string, args ...any) error {
		return refuse("proxy_refused", code, toolkeep.NewError(toolkeep.Unauthenticated, format, args...))
	}
	if len(s.Proxy) == 0 || !trusted {
		return nil, no("PROXY_UNKNOWN", "%s is for trusted proxies, of which this request comes from none; leave it out, and send a key", signing.HeaderSubject)
	}
	if err := a.verifier.Verify(ctx, r, "proxy", a.proxies.get); err != nil {
		if reason := failed[codeOf(err)]; reason != "" {
			return nil, refuse(reason, "", toolkeep.AsError(err))
		}
		return nil, err
	}
	p := &toolkeep.Principal{Subject: one(signing.HeaderSubject), Tenant: one(signing.HeaderTenant), Method: MethodProxy, Addr: addr,
		OnBehalf: one("x-user-id"), Session: one("x-session-id"), Roles: list(one(signing.HeaderRoles)), Chain: list(one(signing.HeaderChain))}
	if p.Tenant == "" {
		p.Tenant = HomeTenant
	}
	if p.OnBehalf == "" && len(p.Chain) > 0 {
		p.OnBehalf = p.Chain[0]
	}
	if p.OnBehalf == p.Subject {
		p.OnBehalf = ""
	}
	if len(p.Chain) > toolkeep.MaxChain {
		return nil, no("PROXY_CHAIN", "%s has more than %d names", signing.HeaderChain, toolkeep.MaxChain)
	}
	for _, name := range append([]string{p.Subject, p.Tenant, "x" + p.OnBehalf, "x" + p.Session}, p.Chain...) {
		if name == "" || len(name) > maxSubject || !plain(name) || strings.TrimSpace(name) != name {
			return nil, no("PROXY_NAME", "a name in the proxy's headers is empty, has more than %d bytes, or control characters or outer spaces", maxSubject)
		}
	}
	if !slices.Contains(s.ProxyTenants, p.Tenant) {
		return nil, no("PROXY_TENANT", "proxies may not speak for this tenant (proxy.tenants)")
	}
	for _, role := range p.Roles {
		if !slices.Contains(s.ProxyRoles, role) {
			return nil, no("PROXY_ROLE", "proxies may not give the role %.100q (proxy.roles)", role)
		}
	}
	means := a.current.Load().rights(p.Tenant, p.Roles)
	p.Roles, p.Permissions = means.roles, means.permissions
	return p, nil
}

// CheckProxyRoles checks that the roles that proxies may give exist; own are the custom ones. E3008.
func CheckProxyRoles(give []string, own []Role) error {
	rules, _ := compile(own)
	return checkProxyRoles(give, rules)
}

func checkProxyRoles(give []string, rules ruleset) error {
	var faults []toolkeep.Fault
	for i, role := range give {
		if rules[role] == nil {
			faults = append(faults, toolkeep.Fault{Pointer: fmt.Sprintf("/proxy/roles/%d", i), Rule: "enum", Message: noRole(role, rules.names())})
		}
	}
	if len(faults) > 0 {
		return toolkeep.FaultsError(toolkeep.InvalidManifest, "trusted proxies cannot be used: "+faults[0].Pointer+": "+faults[0].Message, faults)
	}
	return nil
}

// list splits a header at commas.
func list(text string) (all []string) {
	if text == "" {
		return nil
	}
	for s := range strings.SplitSeq(text, ",") {
		all = append(all, strings.TrimSpace(s))
	}
	return all
}

// CreateSignedKey is CreateKey for a key whose requests must be signed, everywhere; secret is what
// they are signed with. Like the text it is shown only once.
func (a *Access) CreateSignedKey(ctx context.Context, p *toolkeep.Principal, spec toolkeep.APIKey) (key toolkeep.APIKey, text, secret string, err error) {
	secret, finish, err := a.signed()
	if err != nil {
		return key, "", "", err
	}
	if key, text, err = a.createKey(ctx, p, spec, finish); err != nil {
		secret = ""
	}
	return key, text, secret, err
}

// signed makes a secret for signatures, and returns what gives it to a new key. E3403.
func (a *Access) signed() (secret string, finish func(*toolkeep.APIKey) error, err error) {
	if a.config.Signing.Sealer == nil {
		return "", nil, toolkeep.NewError(toolkeep.SecretRetrievalFailed, "this server seals no signing secrets")
	}
	secret = newSigningSecret()
	return secret, func(k *toolkeep.APIKey) (err error) {
		k.RequireSignature = true
		k.Signing, err = a.config.Signing.Sealer.Seal([]byte(secret), signingContext(k))
		return err
	}, nil
}
