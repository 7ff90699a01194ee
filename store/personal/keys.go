package personal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
)

// MaxKeys bounds the keys in memory: about 1.5 KB each.
const MaxKeys = 10_000

const (
	author    = "toolkeep"
	digestID  = "key" // of the document with the key of digests
	keyBytes  = audit.PersonKeyBytes
	idBytes   = 16
	markBytes = 8
	version1  = 1
	headBytes = 1 + idBytes + markBytes
	overhead  = headBytes + 12 + 16
	makeTime  = 10 * time.Second // bounds the making of a key
	makeTries = 5
)

// Documents is what Keys needs of a store.
type Documents interface {
	toolkeep.BoundedApplier
	toolkeep.Applier
	Head(ctx context.Context) (int64, error)
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
}

// Keys are the keys of persons. It is safe for concurrent use; what is in memory is found without a lock.
type Keys struct {
	store  Documents
	log    *slog.Logger
	sealer atomic.Pointer[audit.PersonSealer]
	digest atomic.Pointer[[keyBytes]byte]

	people sync.Map // who -> *key
	byID   sync.Map // ref -> *key
	gone   sync.Map // goneRef: a destroyed key never comes back

	mu     sync.Mutex // of what follows, and of changes to the maps
	epoch  int64      // of drops: what was read before one is not kept
	count  int        // of byID
	lost   int        // of gone
	making map[who]chan struct{}
}

type (
	who struct{ tenant, person string }
	id  [idBytes]byte
	ref struct {
		tenant string
		id     id
	}
	goneRef struct {
		ref
		mark [markBytes]byte
	}
)

type key struct {
	ref
	mark [markBytes]byte
	aead cipher.AEAD
}

// NewKeys returns the keys of a store's persons. Use must be called before the first one is needed.
func NewKeys(store Documents, log *slog.Logger) *Keys {
	return &Keys{store: store, log: toolkeep.Seldom(log, 1, nil), making: make(map[who]chan struct{})}
}

// Use sets what seals keys at rest.
func (k *Keys) Use(s audit.PersonSealer) { k.sealer.Store(&s) }

var errNoSealer = errors.New("personal: the server's sealing key is not open yet")

func (k *Keys) seals() (audit.PersonSealer, error) {
	if s := k.sealer.Load(); s != nil {
		return *s, nil
	}
	return nil, errNoSealer
}

// Start returns the feed position from which on Follow must see the changes.
func (k *Keys) Start(ctx context.Context) (after int64, err error) {
	if after, err = k.store.Head(ctx); err != nil {
		return 0, err
	}
	k.forget(func(*key) bool { return true })
	return after, nil
}

// Follow drops a key that was destroyed or replaced. A new document replaces none: the one before was deleted.
func (k *Keys) Follow(c toolkeep.Committed) {
	switch d := c.Change.(type) {
	case toolkeep.DeleteDocument:
		k.drop(d.Kind, d.Tenant, d.ID)
	case toolkeep.PutDocument:
		if d.Expect != toolkeep.NoRevision {
			k.drop(d.Document.Kind, d.Document.Tenant, d.Document.ID)
		}
	}
}

func (k *Keys) drop(kind, tenant, name string) {
	switch kind {
	case audit.PersonKind:
		k.forget(func(x *key) bool { return x.tenant == tenant && hex.EncodeToString(x.id[:]) == name })
	case audit.PersonDigestKind: // the persons have other digests then
		k.forget(func(*key) bool { return true })
	}
}

// forget takes keys out of memory, and the one of digests, which is soon read again.
func (k *Keys) forget(is func(*key) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.epoch++
	k.digest.Store(nil)
	k.people.Range(func(w, x any) bool {
		if is(x.(*key)) {
			k.people.Delete(w)
		}
		return true
	})
	k.byID.Range(func(r, x any) bool {
		if is(x.(*key)) {
			k.byID.Delete(r)
			k.count--
		}
		return true
	})
}

func (k *Keys) now() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.epoch
}

// keep takes a key into memory that was read since epoch; w is nil if its person is not known.
func (k *Keys) keep(x *key, w *who, epoch int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.epoch != epoch {
		return
	}
	if _, ok := k.byID.Swap(x.ref, x); !ok {
		k.count++
	}
	if w != nil {
		k.people.Store(*w, x)
	}
	if k.count <= MaxKeys {
		return
	}
	// Which ones leave does not matter much: each can be read again.
	leaving := make(map[*key]bool)
	k.byID.Range(func(r, other any) bool {
		if other != x {
			k.byID.Delete(r)
			k.count--
			leaving[other.(*key)] = true
		}
		return k.count > MaxKeys*3/4
	})
	k.people.Range(func(w, other any) bool {
		if leaving[other.(*key)] {
			k.people.Delete(w)
		}
		return true
	})
}

// secret returns the key in a document, and makes it if there is none, or the operator gave up the one that was there.
// One that this node cannot open stays, since another node may: its error is toolkeep.ErrKeyAway.
func (k *Keys) secret(ctx context.Context, kind, tenant, name string) ([]byte, error) {
	s, err := k.seals()
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		expect, lost := int64(toolkeep.NoRevision), false
		d, err := k.store.Document(ctx, kind, tenant, name)
		switch {
		case err == nil:
			plain, _, err := audit.OpenPerson(s, &d)
			if errors.Is(err, audit.ErrPersonLost) {
				expect, lost = d.Revision, true
				break
			}
			if err != nil {
				k.log.Error("a key of a person's records cannot be opened, so nothing is recorded with it: give this node the sealing key of the other nodes; if that key is lost, give it up with the file seal.lost in the data directory and start again",
					"kind", kind, "tenant", tenant, "id", name, "error", err)
				return nil, fmt.Errorf("%w: %w", toolkeep.ErrKeyAway, err)
			}
			return plain, nil
		case !errors.Is(err, toolkeep.ErrNotFound):
			return nil, err
		}
		plain := make([]byte, keyBytes)
		rand.Read(plain) // never fails
		d = toolkeep.Document{Kind: kind, Tenant: tenant, ID: name, UpdatedBy: author}
		if d.Body, err = audit.SealPerson(s, plain, &d, lost); err != nil {
			return nil, err
		}
		err = k.store.ApplyWithin(ctx, toolkeep.PutDocument{OmitBody: true, Expect: expect, Document: d})
		if err == nil {
			return plain, nil
		}
		var left *toolkeep.PendingError
		if errors.As(err, &left) { // of the key alone: what it is to seal is not under way
			return nil, fmt.Errorf("%w: %w", toolkeep.ErrKeyAway, context.Cause(ctx))
		}
		if !errors.Is(err, toolkeep.ErrStale) || try == makeTries {
			return nil, err
		}
	}
}

func newKey(r ref, plain []byte) (*key, error) {
	block, err := aes.NewCipher(plain)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	sum := sha256.Sum256(append([]byte("toolkeep person key\x00"), plain...))
	return &key{ref: r, mark: [markBytes]byte(sum[:markBytes]), aead: aead}, err
}

// Digest returns the digest of a person, in hex: the same for as long as the sealing key is there.
func (k *Keys) Digest(ctx context.Context, tenant, person string) (string, error) {
	d, err := k.digestOf(ctx, who{tenant, person})
	return hex.EncodeToString(d[:]), err
}

func (k *Keys) digestOf(ctx context.Context, w who) (d id, err error) {
	with := k.digest.Load()
	if with == nil {
		epoch := k.now()
		plain, err := k.secret(ctx, audit.PersonDigestKind, "", digestID)
		if err != nil {
			return d, err
		}
		with = (*[keyBytes]byte)(plain)
		k.mu.Lock()
		if k.epoch == epoch {
			k.digest.Store(with)
		}
		k.mu.Unlock()
	}
	mac := hmac.New(sha256.New, with[:])
	mac.Write([]byte(w.tenant + "\x00" + w.person))
	copy(d[:], mac.Sum(nil))
	return d, nil
}

// of returns the key of a person, which is made if there is none.
func (k *Keys) of(ctx context.Context, w who) (*key, error) {
	for {
		if x, ok := k.people.Load(w); ok {
			return x.(*key), nil
		}
		k.mu.Lock()
		done, busy := k.making[w]
		if !busy {
			done = make(chan struct{})
			k.making[w] = done
		}
		k.mu.Unlock()
		if !busy {
			x, err := k.find(ctx, w)
			k.mu.Lock()
			delete(k.making, w)
			k.mu.Unlock()
			close(done)
			return x, err
		}
		select { // others of this process wait for the one that asks the store
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (k *Keys) find(ctx context.Context, w who) (*key, error) {
	ctx, cancel := context.WithTimeout(ctx, makeTime)
	defer cancel()
	epoch := k.now()
	d, err := k.digestOf(ctx, w)
	if err != nil {
		return nil, err
	}
	r := ref{w.tenant, d}
	if x, ok := k.byID.Load(r); ok {
		k.keep(x.(*key), &w, epoch)
		return x.(*key), nil
	}
	plain, err := k.secret(ctx, audit.PersonKind, w.tenant, hex.EncodeToString(d[:]))
	if err != nil {
		return nil, err
	}
	x, err := newKey(r, plain)
	if err == nil {
		k.keep(x, &w, epoch)
	}
	return x, err
}

// seal seals what is about an entry of a person.
func (k *Keys) seal(ctx context.Context, w who, plain []byte, about string) ([]byte, error) {
	x, err := k.of(ctx, w)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(plain)+overhead)
	out = append(append(append(out, version1), x.id[:]...), x.mark[:]...)
	return x.aead.Seal(out, nil, plain, bound(out, w.tenant, about)), nil
}

// bound is what a sealed value belongs to.
func bound(head []byte, tenant, about string) []byte {
	b := make([]byte, 0, len(head)+len(tenant)+1+len(about))
	b = append(append(b, head...), tenant...)
	return append(append(b, 0), about...)
}

var errErased = errors.New("personal: the key was destroyed")

// open opens what seal sealed. errErased or audit.ErrPersonUnreadable: nothing here opens it, since the key is gone or
// the value is damaged. toolkeep.ErrKeyAway: the key cannot be read now.
func (k *Keys) open(ctx context.Context, tenant string, sealed []byte, about string) ([]byte, error) {
	if len(sealed) < overhead || sealed[0] != version1 {
		return nil, errDamaged
	}
	head := sealed[:headBytes]
	r := goneRef{ref{tenant, id(head[1:])}, [markBytes]byte(head[1+idBytes:])}
	x, err := k.opener(ctx, r)
	if errors.Is(err, errErased) || errors.Is(err, audit.ErrPersonUnreadable) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", toolkeep.ErrKeyAway, err)
	}
	plain, err := x.aead.Open(nil, nil, sealed[headBytes:], bound(head, tenant, about))
	if err != nil {
		return nil, errDamaged
	}
	return plain, nil
}

var errDamaged = fmt.Errorf("%w: a sealed value is damaged", audit.ErrPersonUnreadable)

// opener finds the key with which a value was sealed.
func (k *Keys) opener(ctx context.Context, r goneRef) (*key, error) {
	if x, ok := k.byID.Load(r.ref); ok && x.(*key).mark == r.mark {
		return x.(*key), nil
	}
	if _, ok := k.gone.Load(r); ok {
		return nil, errErased
	}
	s, err := k.seals()
	if err != nil {
		return nil, err
	}
	epoch := k.now()
	d, err := k.store.Document(ctx, audit.PersonKind, r.tenant, hex.EncodeToString(r.id[:]))
	if errors.Is(err, toolkeep.ErrNotFound) {
		return nil, k.note(r)
	}
	if err != nil {
		return nil, err
	}
	plain, lost, err := audit.OpenPerson(s, &d)
	if err != nil {
		return nil, err
	}
	x, err := newKey(r.ref, plain)
	if err != nil {
		return nil, err
	}
	k.keep(x, nil, epoch)
	switch {
	case x.mark == r.mark:
		return x, nil
	case lost: // it may have been that one
		return nil, audit.ErrPersonLost
	}
	return nil, k.note(r)
}

// note remembers that a key is gone. The entry that names it was committed after its key, so a key that is not found
// now was destroyed, and one that another stands for too: only where a key was given up is it replaced.
func (k *Keys) note(r goneRef) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lost >= MaxKeys {
		k.gone.Clear()
		k.lost = 0
	}
	if _, known := k.gone.LoadOrStore(r, struct{}{}); !known {
		k.lost++
	}
	return errErased
}

// Has reports whether a person has a key, also one that cannot be opened.
func (k *Keys) Has(ctx context.Context, tenant, person string) (bool, error) {
	name, err := k.Digest(ctx, tenant, person)
	if err != nil {
		return false, err
	}
	_, err = k.store.Document(ctx, audit.PersonKind, tenant, name)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Destroy destroys the key of a person, and commits other changes with that. It reports whether there was
// a key. Other nodes use it no more when the feed has told them.
func (k *Keys) Destroy(ctx context.Context, tenant, person, by string, with ...toolkeep.Change) (found bool, err error) {
	name, err := k.Digest(ctx, tenant, person)
	if err != nil {
		return false, err
	}
	err = k.store.Apply(ctx, append([]toolkeep.Change{toolkeep.DeleteDocument{Kind: audit.PersonKind, Tenant: tenant, ID: name, Expect: toolkeep.AnyRevision, By: by}}, with...)...)
	found = !errors.Is(err, toolkeep.ErrNotFound)
	if !found && len(with) > 0 {
		err = k.store.Apply(ctx, with...)
	} else if !found {
		err = nil
	}
	k.drop(audit.PersonKind, tenant, name)
	return found && err == nil, err
}
