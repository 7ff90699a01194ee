package capability

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/jwt"
)

// Issuer is the claim iss of tokens that a server makes itself.
const Issuer = "toolkeep"

// DefaultLife is the longest lifetime of a token by default.
const DefaultLife = 24 * time.Hour

// Store is the part of the store that Tokens uses.
type Store interface {
	toolkeep.Applier
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Sealer encrypts the server's own keys at rest.
type Sealer interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Config configures Tokens.
type Config struct {
	Store  Store  // required
	Sealer Sealer // required
	// KeysFile has the public keys of outside issuers, see ReadKeys; "" accepts only tokens
	// that this server made.
	KeysFile string
	// Issuers are the accepted values of iss of outside issuers; empty accepts every issuer
	// whose key is in KeysFile.
	Issuers []string
	// Audience has the values of aud of which a token must have one. Empty: a token needs
	// no aud; one that has it must name BaseURL.
	Audience []string
	BaseURL  func() string // of this server without a trailing slash; nil: none
	// Algorithm signs the tokens that this server makes: RS256 (the default), ES256, EdDSA.
	Algorithm string
	// Life is the longest time between iat and exp; default 24 h.
	Life time.Duration
	// Wait is the longest that a call may wait and run after it was admitted. A revocation stops
	// waiting calls too, so it is kept at least as long; default 0.
	Wait  time.Duration
	Node  string           // author of documents
	Clock func() time.Time // default time.Now
	Log   *slog.Logger     // default discards
}

const (
	maxVerified = 8192 // tokens that are remembered
	// MaxRevoked bounds the revocation list of a tenant.
	MaxRevoked = 10_000
)

// Tokens verifies capability tokens, and makes and revokes them. Call Load, then Follow with
// each change of the feed.
type Tokens struct {
	c    Config
	file *keyFile

	mu       sync.RWMutex
	own      ownKeys
	revoked  map[revokedID]time.Time // until when the revocation is kept
	verified map[[sha256.Size]byte]*Token
	changes  uint64 // of keys, own and outside; each empties verified

	signing sync.Mutex // serialises the making of keys
	signers map[string]any
}

type revokedID struct{ tenant, id string }

// Token is a verified token.
type Token struct {
	Claims
	versions *semver.Constraints // nil: every version
	key      string              // see Key
}

var _ toolkeep.Narrowing = (*Token)(nil)

// New returns Tokens. E3008 if the file of keys cannot be read.
func New(c Config) (*Tokens, error) {
	if c.Store == nil || c.Sealer == nil {
		return nil, errors.New("capability: Store and Sealer are required")
	}
	c.Algorithm, c.Life = cmp.Or(c.Algorithm, "RS256"), cmp.Or(c.Life, DefaultLife)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tokens{c: c, revoked: map[revokedID]time.Time{}, verified: map[[sha256.Size]byte]*Token{}, signers: map[string]any{}}
	t.file = &keyFile{path: c.KeysFile, now: c.Clock}
	if _, err := t.file.look(); err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "tokens.keys_file: the public keys of capability tokens cannot be read: %s", err)
	}
	t.file.changed = t.forget
	t.file.fail = func(err error) {
		c.Log.Error("the public keys of capability tokens cannot be read; the last ones stay in use", "error", err)
	}
	return t, nil
}

// invalid is E3209 of a token whose signature is not proven: the caller is not told which
// check failed, the log is.
func invalid(why string) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.TokenInvalid,
		"the capability token cannot be verified: this server accepts neither its form, its issuer nor its signature; get a new one from an issuer that the server trusts, or leave it out").
		Because(errors.New(why))
}

// Verify verifies a token: signature, issuer, audience, times, revocation. What it is for is
// Allows's to check. E3207, E3208, E3209, E3210, E3215; E3003 if the store cannot be asked for
// the key.
func (t *Tokens) Verify(text toolkeep.CapabilityToken) (*Token, *toolkeep.Error) {
	if len(text) > jwt.MaxToken {
		return nil, invalid("it is longer than the largest token")
	}
	changes := t.keyChanges() // before any key is read
	named, _ := t.file.look()
	sum := sha256.Sum256([]byte(text))
	t.mu.RLock()
	v := t.verified[sum]
	t.mu.RUnlock()
	if v == nil {
		var err *toolkeep.Error
		if v, err = t.verify(string(text), named); err != nil {
			return nil, err
		}
		t.remember(sum, v, changes)
	}
	if err := t.current(v); err != nil {
		return nil, err
	}
	return v, t.Revoked(&v.Grant)
}

func (t *Tokens) keyChanges() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.changes
}

// forget forgets the verified tokens: keys have changed.
func (t *Tokens) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked()
}

func (t *Tokens) forgetLocked() {
	t.changes++
	clear(t.verified)
}

// remember keeps a verified token, unless the keys have changed since they were read: the one that
// verified it may be gone. A full memory is cleared first.
func (t *Tokens) remember(sum [sha256.Size]byte, v *Token, changes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changes != changes {
		return
	}
	if len(t.verified) >= maxVerified {
		clear(t.verified)
	}
	t.verified[sum] = v
}

// verify checks what does not change with time.
func (t *Tokens) verify(text string, named map[string][]*jwt.Key) (*Token, *toolkeep.Error) {
	if strings.Count(text, ".") != 2 || strings.ContainsFunc(text, notTokenText) {
		return nil, invalid("it is not a signed token: three parts in base64url")
	}
	h, err := jwt.ReadHeader(text, "jwt", "at+jwt")
	if err != nil {
		return nil, invalid(err.Error())
	}
	if h.Alg == "PS256" {
		return nil, invalid("capability tokens are signed by RS256, ES256 or EdDSA")
	}
	payload, own, bad := t.open(text, h, named)
	if bad != nil {
		return nil, bad
	}
	c, err := readClaims(payload, text[:strings.LastIndexByte(text, '.')])
	if err != nil {
		var bad *claimsError
		errors.As(err, &bad)
		return nil, toolkeep.NewError(bad.code, "%s", bad.text)
	}
	iss := c.Grant.Issuer
	switch {
	case own != (iss == Issuer):
		return nil, invalid("its issuer and its key do not belong together")
	case !own && len(t.c.Issuers) > 0 && !slices.Contains(t.c.Issuers, iss):
		return nil, invalid("its issuer is not one of tokens.issuers")
	case c.Expires.Sub(c.IssuedAt) > t.c.Life:
		return nil, toolkeep.NewError(toolkeep.TokenInvalid, "the capability token lives longer than %s, the longest that this server accepts; get one that expires earlier", t.c.Life)
	}
	if why := t.audience(c.Audience); why != "" {
		return nil, toolkeep.NewError(toolkeep.TokenScopeMismatch, "%s", why)
	}
	return tokenOf(c), nil
}

func notTokenText(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.')
}

func tokenOf(c *Claims) *Token {
	v := &Token{Claims: *c}
	if c.Grant.Version != "" {
		v.versions, _ = semver.NewConstraint(c.Grant.Version) // it was read before
	}
	g := &c.Grant
	shown, _ := json.Marshal([]any{slices.Sorted(slices.Values(g.Tools)), g.Version, g.AllowsOperation(true), g.AllowsOperation(false)}) // texts never fail
	sum := sha256.Sum256(shown)
	v.key = string(sum[:])
	return v
}

// Key implements toolkeep.Narrowing: tokens for the same tools, versions and operations share it.
func (v *Token) Key() string { return v.key }

// Shows implements toolkeep.Narrowing. What has no version is shown by its id and side effects.
func (v *Token) Shows(t *toolkeep.Tool) bool {
	return v.Grant.AllowsTool(t.ID) && (t.Version == "" || v.allowsVersion(t.Version)) && v.Grant.AllowsOperation(t.Writes())
}

// open returns the payload of a token with a valid signature. own says that the server made it.
// The store is asked last: a token of an outside issuer does not need it. E3003, E3209.
func (t *Tokens) open(text string, h jwt.Header, named map[string][]*jwt.Key) (payload []byte, own bool, err *toolkeep.Error) {
	t.mu.RLock()
	k := t.own[h.KeyID]
	t.mu.RUnlock()
	if k == nil {
		payload, why := openNamed(text, h, named)
		if why == "" {
			return payload, false, nil
		}
		if k, err = t.storedKey(h.KeyID); err != nil {
			return nil, false, err
		}
		if k == nil {
			return nil, false, invalid(why)
		}
	}
	if !k.expires.IsZero() && t.c.Clock().After(k.expires) {
		return nil, true, invalid("its key was replaced and its last token has expired")
	}
	payload, bad := k.key.Verify([]byte(text), h.Alg)
	if bad != nil {
		return nil, true, invalid("its signature is wrong")
	}
	return payload, true, nil
}

// openNamed verifies by the keys of outside issuers; why says why none of them fits.
func openNamed(text string, h jwt.Header, named map[string][]*jwt.Key) (payload []byte, why string) {
	list := named[h.KeyID]
	if len(list) == 0 { // a key without a name may be meant by every name
		list = named[""]
	}
	if h.KeyID == "" && len(list) == 0 && len(named) == 1 { // the only key needs no name
		for _, l := range named {
			list = l
		}
	}
	for _, k := range list {
		if !k.Fits(h.Alg) {
			continue
		}
		if payload, err := k.Verify([]byte(text), h.Alg); err == nil {
			return payload, ""
		}
		why = "its signature is wrong"
	}
	return nil, cmp.Or(why, "no key fits its kid and algorithm")
}

// lookFor bounds the question for a key that this node has not heard of.
const lookFor = time.Second

// storedKey asks the store for a key of the server that this node has not heard of: another node
// may have made it just now. nil if there is none. E3003 if the store does not answer.
func (t *Tokens) storedKey(id string) (*ownKey, *toolkeep.Error) {
	if len(id) != 43 { // a thumbprint in base64url
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookFor)
	defer cancel()
	for {
		changes := t.keyChanges()
		d, err := t.c.Store.Document(ctx, KeyKind, "", id)
		switch {
		case errors.Is(err, toolkeep.ErrNotFound):
			return nil, nil
		case err != nil:
			return nil, toolkeep.NewError(toolkeep.RegistryUnavailable,
				"the key of the capability token cannot be looked up in the store now; try again").Because(err).After(time.Second)
		}
		if k, current := t.putKeySince(d, changes); current {
			return k, nil
		}
	}
}

// audience says why aud does not name this server, "" if it does.
func (t *Tokens) audience(aud []string) string {
	want := t.c.Audience
	switch {
	case len(want) == 0 && aud == nil:
		return ""
	case len(want) == 0 && t.c.BaseURL != nil:
		want = []string{t.c.BaseURL()}
	}
	for _, a := range aud {
		if slices.Contains(want, strings.TrimSuffix(a, "/")) || slices.Contains(want, a) {
			return ""
		}
	}
	return "the capability token is for another server; get one whose audience (aud) is this one"
}

// current checks a token's times. E3210.
func (t *Tokens) current(v *Token) *toolkeep.Error {
	now := t.c.Clock()
	switch {
	case !now.Before(v.Expires.Add(jwt.Skew)):
		return toolkeep.NewError(toolkeep.TokenExpired, "the capability token has expired; get a new one")
	case now.Add(jwt.Skew).Before(v.IssuedAt), now.Add(jwt.Skew).Before(v.NotBefore):
		return toolkeep.NewError(toolkeep.TokenExpired, "the capability token is not valid yet; check the clocks, or send it later")
	}
	return nil
}

// Revoked is E3208 if the token of a grant, or one that it was made from, was revoked.
func (t *Tokens) Revoked(g *toolkeep.Grant) *toolkeep.Error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, no := t.revoked[revokedID{g.Tenant, g.ID}]
	for _, id := range g.Parents {
		if _, is := t.revoked[revokedID{g.Tenant, id}]; is {
			no = true
		}
	}
	if !no {
		return nil
	}
	return toolkeep.NewError(toolkeep.TokenRevoked, "the capability token, or one that it was made from, was revoked; get a new one").With("jti", g.ID)
}

// OfGrant returns the token of a grant that a call's record kept: it was verified when the
// call was admitted.
func OfGrant(g *toolkeep.Grant) *Token { return tokenOf(&Claims{Grant: *g}) }

// Allows is E3215 if the token is not for the caller or not for the tool.
func (v *Token) Allows(p *toolkeep.Principal, t *toolkeep.Tool) *toolkeep.Error {
	g := &v.Grant
	no := func(format string, args ...any) *toolkeep.Error {
		return toolkeep.NewError(toolkeep.TokenScopeMismatch, "the capability token "+format, args...)
	}
	switch {
	case g.Tenant != p.Tenant:
		return no("is for another tenant than the caller's")
	case g.Agent != p.Subject:
		return no("is for another agent than the caller; only the agent of its claim agent_did may use it")
	case !g.AllowsTool(t.ID):
		return no("does not allow %s; its claim tool_id names what it allows", t.ID)
	case !v.allowsVersion(t.Version):
		return no("does not allow version %s of %s; its claim tool_version is %s", t.Version, t.ID, g.Version)
	case !g.AllowsOperation(t.Writes()):
		if t.Writes() {
			return no("does not allow a tool that writes; its claim allowed_operations lacks %s", toolkeep.OperationExecute)
		}
		return no("does not allow calls; its claim allowed_operations has neither %s nor %s", toolkeep.OperationExecute, toolkeep.OperationRead)
	}
	return nil
}

func (v *Token) allowsVersion(version string) bool {
	if v.Grant.Version == "" {
		return true
	}
	s, err := semver.StrictNewVersion(version)
	return err == nil && v.versions != nil && v.versions.Check(s)
}
