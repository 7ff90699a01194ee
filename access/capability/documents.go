package capability

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jws"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/jwt"
)

// Kinds of documents: the server's own keys, which belong to no tenant, and revoked names.
const (
	KeyKind     = "token_key"
	RevokedKind = "token_revoked"
)

type keyBody struct {
	Alg    string    `json:"alg"`
	Made   time.Time `json:"made_at"`
	Public []byte    `json:"public"` // PKIX
	Sealed []byte    `json:"sealed"` // PKCS #8
}

type revokedBody struct {
	Until time.Time `json:"until"`
}

// Load reads the keys and the revocation list.
func (t *Tokens) Load(ctx context.Context) error {
	for _, kind := range []string{KeyKind, RevokedKind} {
		docs, _, err := t.c.Store.Documents(ctx, kind)
		if err != nil {
			return toolkeep.NewError(toolkeep.RegistryUnavailable, "the keys and the revocation list of capability tokens cannot be loaded").Because(err)
		}
		for _, d := range docs {
			t.put(d)
		}
	}
	return nil
}

// Follow applies a change of the feed; applying one twice is harmless.
func (t *Tokens) Follow(c toolkeep.Committed) {
	switch ch := c.Change.(type) {
	case toolkeep.PutDocument:
		t.put(ch.Document)
	case toolkeep.DeleteDocument:
		switch ch.Kind {
		case KeyKind:
			t.change(func(o ownKeys) { delete(o, ch.ID) })
		case RevokedKind:
			t.mu.Lock()
			delete(t.revoked, revokedID{ch.Tenant, ch.ID})
			t.mu.Unlock()
		}
	}
}

func (t *Tokens) put(d toolkeep.Document) {
	switch d.Kind {
	case KeyKind:
		t.putKey(d)
	case RevokedKind:
		var b revokedBody
		if json.Unmarshal(d.Body, &b) != nil || b.Until.IsZero() {
			b.Until = t.c.Clock().Add(t.kept()) // it is revoked, whatever its body says
		}
		t.mu.Lock()
		t.revoked[revokedID{d.Tenant, d.ID}] = b.Until
		t.mu.Unlock()
	}
}

func (t *Tokens) putKey(d toolkeep.Document) {
	if k := t.readKey(d); k != nil {
		t.change(func(o ownKeys) { o[k.id] = k })
	}
}

// putKeySince puts a key that was read from the store after changes of keys. If there was another
// change in between, which may have removed this key, current is false and nothing is put.
func (t *Tokens) putKeySince(d toolkeep.Document, changes uint64) (k *ownKey, current bool) {
	if k = t.readKey(d); k == nil {
		return nil, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changes != changes {
		return nil, false
	}
	t.changeLocked(func(o ownKeys) { o[k.id] = k })
	return t.own[k.id], true
}

// readKey reads the document of a key, nil if it is damaged.
func (t *Tokens) readKey(d toolkeep.Document) *ownKey {
	var b keyBody
	err := json.Unmarshal(d.Body, &b)
	var public any
	if err == nil {
		public, err = x509.ParsePKIXPublicKey(b.Public)
	}
	var id string
	if err == nil {
		id, err = thumbprint(public)
	}
	key := jwt.NewKey(public)
	if err != nil || key == nil || id != d.ID || !key.Fits(b.Alg) {
		t.c.Log.Error("a key of capability tokens in the store cannot be read; tokens that it signed are refused", "kid", d.ID)
		return nil
	}
	return &ownKey{id: id, alg: b.Alg, made: b.Made, public: b.Public, sealed: b.Sealed, key: key}
}

// change changes the server's keys, and forgets the tokens that they verified.
func (t *Tokens) change(do func(ownKeys)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changeLocked(do)
}

func (t *Tokens) changeLocked(do func(ownKeys)) {
	t.own = t.own.with(t.c.Life, do)
	t.forgetLocked()
}

// kept is how long a revoked name is kept: until no token of that name can be valid, and no call
// that one admitted can still wait.
func (t *Tokens) kept() time.Duration { return max(t.c.Life, t.c.Wait) + 2*jwt.Skew }

// Revoke returns the changes that revoke a name in a tenant, and drop what need not be kept
// any more. Follow them when they are committed. E3922 if the tenant's list is full.
func (t *Tokens) Revoke(tenant, id, by string) ([]toolkeep.Change, error) {
	now := t.c.Clock()
	body, err := json.Marshal(revokedBody{now.Add(t.kept()).UTC()})
	if err != nil {
		return nil, err
	}
	changes := []toolkeep.Change{toolkeep.PutDocument{Expect: toolkeep.AnyRevision,
		Document: toolkeep.Document{Kind: RevokedKind, Tenant: tenant, ID: id, Body: body, UpdatedBy: by}}}
	n := 0
	t.mu.RLock()
	defer t.mu.RUnlock()
	for r, until := range t.revoked {
		switch {
		case r.tenant != tenant || r.id == id:
		case now.After(until) && len(changes) < 100:
			changes = append(changes, toolkeep.DeleteDocument{Kind: RevokedKind, Tenant: tenant, ID: r.id, Expect: toolkeep.AnyRevision, By: by})
		default:
			n++
		}
	}
	if n >= MaxRevoked {
		return nil, toolkeep.NewError(toolkeep.ResourceExhausted, "the tenant has revoked %d tokens that may still be valid, which is the most that is kept; rotate the keys of tokens to end all tokens", n)
	}
	return changes, nil
}

// RotateKey makes a new key, which signs from now on. Old keys verify until their last token
// has expired; with drop they are removed at once, which ends every token of this server. The
// changes of record, such as an event, are committed together with the key; nil: none. E3965.
func (t *Tokens) RotateKey(ctx context.Context, by string, drop bool, record func(kid string) []toolkeep.Change) (kid string, err error) {
	t.signing.Lock()
	defer t.signing.Unlock()
	t.mu.RLock()
	old := t.own.sorted()
	t.mu.RUnlock()
	now := t.c.Clock()
	var more []toolkeep.Change
	for _, k := range old {
		if drop || !k.expires.IsZero() && now.After(k.expires) {
			more = append(more, toolkeep.DeleteDocument{Kind: KeyKind, ID: k.id, Expect: toolkeep.AnyRevision, By: by})
		}
	}
	k, err := t.makeKey(ctx, by, func(kid string) []toolkeep.Change {
		if record != nil {
			more = append(more, record(kid)...)
		}
		return more
	})
	if err != nil {
		return "", err
	}
	return k.id, nil
}

// makeKey makes a key of the configured algorithm, which is the newest, with other changes; nil:
// none. t.signing is held.
func (t *Tokens) makeKey(ctx context.Context, by string, with func(kid string) []toolkeep.Change) (*ownKey, error) {
	fail := func(err error) (*ownKey, error) {
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the key of capability tokens could not be made and stored").Because(err)
	}
	private, err := generate(t.c.Algorithm)
	if err != nil {
		return fail(err)
	}
	id, err := thumbprint(private.Public())
	if err != nil {
		return fail(err)
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return fail(err)
	}
	plain, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fail(err)
	}
	sealed, err := t.c.Sealer.Seal(plain, sealContext(id))
	clear(plain)
	if err != nil {
		return fail(err)
	}
	body, err := json.Marshal(keyBody{Alg: t.c.Algorithm, Made: t.madeNow(), Public: public, Sealed: sealed})
	if err != nil {
		return fail(err)
	}
	changes := []toolkeep.Change{toolkeep.PutDocument{Expect: toolkeep.NoRevision,
		Document: toolkeep.Document{Kind: KeyKind, ID: id, Body: body, UpdatedBy: by}}}
	if with != nil {
		changes = append(changes, with(id)...)
	}
	if err := t.c.Store.Apply(ctx, changes...); err != nil {
		return fail(err)
	}
	for _, c := range changes {
		t.Follow(toolkeep.Committed{Change: c})
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if k := t.own[id]; k != nil {
		return k, nil
	}
	return fail(errors.New("another node removed it"))
}

// madeNow is the time of a new key: now, but after that of the newest one, which a node whose clock
// is ahead may have made.
func (t *Tokens) madeNow() time.Time {
	now := t.c.Clock()
	t.mu.RLock()
	defer t.mu.RUnlock()
	if k := t.own.newest(t.c.Algorithm); k != nil && !now.After(k.made) {
		now = k.made.Add(time.Nanosecond)
	}
	return now.UTC()
}

// Reseal seals a key of the store under the newest sealing key, if stale says that it is not;
// done says that body is another.
func Reseal(s Sealer, stale func([]byte) bool, d toolkeep.Document) (body []byte, done bool, err error) {
	var b keyBody
	if err := json.Unmarshal(d.Body, &b); err != nil {
		return nil, false, err
	}
	if !stale(b.Sealed) {
		return nil, false, nil
	}
	plain, err := s.Open(b.Sealed, sealContext(d.ID))
	if err != nil {
		return nil, false, err
	}
	defer clear(plain)
	if b.Sealed, err = s.Seal(plain, sealContext(d.ID)); err != nil {
		return nil, false, err
	}
	body, err = json.Marshal(b)
	return body, err == nil, err
}

func sealContext(id string) []byte { return []byte(KeyKind + ":" + id) }

// signer returns the key that signs, which is made if there is none.
func (t *Tokens) signer(ctx context.Context) (*ownKey, any, error) {
	t.signing.Lock()
	defer t.signing.Unlock()
	t.mu.RLock()
	k := t.own.newest(t.c.Algorithm)
	t.mu.RUnlock()
	if k == nil {
		var err error
		if k, err = t.makeKey(ctx, t.c.Node, nil); err != nil {
			return nil, nil, err
		}
	}
	if s := t.signers[k.id]; s != nil {
		return k, s, nil
	}
	plain, err := t.c.Sealer.Open(k.sealed, sealContext(k.id))
	if err != nil {
		return nil, nil, toolkeep.AsError(err)
	}
	private, err := x509.ParsePKCS8PrivateKey(plain)
	clear(plain)
	if _, ok := private.(crypto.Signer); err != nil || !ok {
		return nil, nil, toolkeep.NewError(toolkeep.InternalError, "the key of capability tokens in the store is damaged; rotate it").Because(err)
	}
	t.signers = map[string]any{k.id: private}
	return k, private, nil
}

// sign makes a token's text.
func (t *Tokens) sign(ctx context.Context, claims []byte) (string, error) {
	k, private, err := t.signer(ctx)
	if err != nil {
		return "", err
	}
	head := jws.NewHeaders()
	for name, v := range map[string]any{jws.KeyIDKey: k.id, jws.TypeKey: "JWT"} {
		if err := head.Set(name, v); err != nil {
			return "", err
		}
	}
	text, err := jws.Sign(claims, jws.WithKey(signature(k.alg), private, jws.WithProtectedHeaders(head)))
	return string(text), err
}

// PublicKeys returns the server's own keys that verify tokens, as a JWK set: others verify its
// tokens with them.
func (t *Tokens) PublicKeys() ([]byte, error) {
	t.mu.RLock()
	keys := t.own.sorted()
	t.mu.RUnlock()
	set := jwk.NewSet()
	now := t.c.Clock()
	for _, k := range keys {
		if !k.expires.IsZero() && now.After(k.expires) {
			continue
		}
		public, err := x509.ParsePKIXPublicKey(k.public)
		if err != nil {
			return nil, err
		}
		j, err := jwk.Import(public)
		if err != nil {
			return nil, err
		}
		for name, v := range map[string]any{jwk.KeyIDKey: k.id, jwk.AlgorithmKey: signature(k.alg), jwk.KeyUsageKey: "sig"} {
			if err := j.Set(name, v); err != nil {
				return nil, err
			}
		}
		if err := set.AddKey(j); err != nil {
			return nil, err
		}
	}
	return json.Marshal(set, json.Deterministic(true))
}
