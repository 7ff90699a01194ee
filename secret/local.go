package secret

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// DocumentKind is the kind of the items that hold sealed secrets.
const DocumentKind = "secret"

// Bounds of stored secrets.
const (
	MaxName  = 128
	MaxOwner = 512 // bytes of a workspace's or user's name
)

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)

// Documents is the part of a store that keeps sealed secrets.
type Documents interface {
	toolkeep.Applier
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// LocalConfig sets up a Local. Store and Sealer are required.
type LocalConfig struct {
	Store  Documents
	Sealer Sealing
	Clock  func() time.Time // default time.Now
	// Rotated is told of every try to put a value in the place of another; nil is
	// told nothing.
	Rotated func(ok bool)
}

// Local keeps secrets sealed in the store, for secret://name. It implements Store,
// Replacer and Glancer and is safe for concurrent use.
//
// A name may have a value in several scopes of a tenant; the user's comes before the
// workspace's and that before the organisation's. One that has expired is not passed
// over for a broader one: whoever set it meant it.
type Local struct {
	c LocalConfig

	mu    sync.RWMutex
	known map[placed]entry // what Glance tells; follows the feed
}

// placed names an item.
type placed struct{ tenant, id string }

// entry is what is known of an item without its value.
type entry struct {
	revision int64
	meta     meta
	head     []byte // of what is sealed: enough for Opener
}

// headBytes are enough to tell the key with which something was sealed.
const headBytes = 1 + idBytes

// meta is what is told of a secret.
type meta struct {
	Name    string    `json:"name"`
	Scope   Scope     `json:"scope"`
	Owner   string    `json:"owner,omitempty"` // of user and workspace
	Version int64     `json:"version"`         // counts values; sealing one anew does not change it
	SetAt   time.Time `json:"set_at"`
	SetBy   string    `json:"set_by,omitempty"`
	Expires time.Time `json:"expires_at,omitzero"`
}

// body is an item's body.
type body struct {
	meta
	Sealed []byte `json:"sealed"`
}

// NewLocal makes a Local.
func NewLocal(c LocalConfig) *Local {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Rotated == nil {
		c.Rotated = func(bool) {}
	}
	return &Local{c: c, known: map[placed]entry{}}
}

// Scheme implements Store.
func (l *Local) Scheme() string { return "secret" }

// Start reads what Glance tells and gives the place in the feed from which Follow is
// to be told.
func (l *Local) Start(ctx context.Context) (int64, error) {
	items, seq, err := l.c.Store.Documents(ctx, DocumentKind)
	if err != nil {
		return 0, err
	}
	for _, it := range items {
		l.take(it)
	}
	return seq, nil
}

// Follow takes a change of the feed.
func (l *Local) Follow(c toolkeep.Committed) {
	switch ch := c.Change.(type) {
	case toolkeep.PutDocument:
		if ch.Document.Kind == DocumentKind {
			l.take(ch.Document)
		}
	case toolkeep.DeleteDocument:
		if ch.Kind == DocumentKind {
			l.mu.Lock()
			delete(l.known, placed{ch.Tenant, ch.ID})
			l.mu.Unlock()
		}
	}
}

func (l *Local) take(it toolkeep.Document) {
	var b body
	if json.Unmarshal(it.Body, &b) != nil {
		return
	}
	k := placed{it.Tenant, it.ID}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, has := l.known[k]; !has || old.revision < it.Revision {
		l.known[k] = entry{it.Revision, b.meta, slices.Clone(b.Sealed[:min(len(b.Sealed), headBytes)])}
	}
}

// place is where a name stands in one scope.
type place struct {
	scope       Scope
	owner, name string
}

// id is the item's. Owners may be any text, so their hash stands for them.
func (p place) id() string {
	if p.scope == Organisation {
		return "organisation/" + p.name
	}
	sum := sha256.Sum256([]byte(p.owner))
	return string(p.scope) + "/" + hex.EncodeToString(sum[:]) + "/" + p.name
}

// places are where a name is looked for, in their order.
func places(p *toolkeep.Principal, name string) []place {
	all := make([]place, 0, 3)
	if who := user(p); who != "" {
		all = append(all, place{User, who, name})
	}
	if p.Workspace != "" {
		all = append(all, place{Workspace, p.Workspace, name})
	}
	return append(all, place{Organisation, "", name})
}

// checkName refuses what cannot be a name.
func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return refuse(toolkeep.SecretNotFound, "the name of a secret must be 1 to %d of a-z, 0-9, dot, hyphen and underscore, and begin with a letter or digit", MaxName)
	}
	return nil
}

// Read gives the value of the first scope that has the name.
//
// Errors: E3401 none has it, or the one that has it has expired; E3403 the store
// cannot be reached after three tries (retryable), or the value cannot be opened.
func (l *Local) Read(ctx context.Context, p *toolkeep.Principal, rest string) (Value, error) {
	if err := mayLook(p, rest); err != nil {
		return Value{}, err
	}
	for _, at := range places(p, rest) {
		it, b, err := l.get(ctx, p.Tenant, at)
		if errors.Is(err, toolkeep.ErrNotFound) {
			continue
		}
		if err != nil {
			return Value{}, err
		}
		v := Value{Scope: at.scope, Store: "secret", Version: strconv.FormatInt(b.Version, 10), Expires: b.Expires}
		if l.over(b.meta) {
			return v, refuse(toolkeep.SecretNotFound, "the secret %s (scope %s) expired at %s; set a new one with `toolkeep secrets set %s`",
				rest, at.scope, b.Expires.UTC().Format(time.RFC3339), rest).With("state", Expired).With("scope", string(at.scope))
		}
		if v.Bytes, err = l.c.Sealer.Open(b.Sealed, bind(it.Tenant, it.ID, b.meta)); err != nil {
			if codeIs(err, toolkeep.SecretRetrievalFailed) { // what opens it is away
				return Value{}, err
			}
			return Value{}, unopened(rest, at.scope).Because(err)
		}
		return v, nil
	}
	return Value{}, refuse(toolkeep.SecretNotFound, "there is no secret %q%s; set it with `toolkeep secrets set %s`", rest, lookedIn(p), rest).With("state", Missing)
}

func unopened(name string, scope Scope) *toolkeep.Error {
	return refuse(toolkeep.SecretRetrievalFailed, "the secret %s (scope %s) cannot be opened: it was sealed with a key that this server does not have; set it anew, or put the key back", name, scope)
}

func lookedIn(p *toolkeep.Principal) string {
	if p.Workspace != "" {
		return " of the user, the workspace or the organisation"
	}
	return " of the user or the organisation"
}

func mayLook(p *toolkeep.Principal, name string) error {
	if p == nil || p.Tenant == "" {
		return refuse(toolkeep.SecretAccessDenied, "a secret:// reference belongs to a tenant, and the caller has none")
	}
	return checkName(name)
}

// Look tells of the first scope that has the name, and whether its value opens.
func (l *Local) Look(ctx context.Context, p *toolkeep.Principal, rest string) (Status, error) {
	if err := mayLook(p, rest); err != nil {
		return Status{}, err
	}
	for _, at := range places(p, rest) {
		it, b, err := l.get(ctx, p.Tenant, at)
		if errors.Is(err, toolkeep.ErrNotFound) {
			continue
		}
		if err != nil {
			return Status{}, err
		}
		st := l.status(b.meta, b.Sealed)
		if st.State != Ready {
			return st, nil
		}
		plain, err := l.c.Sealer.Open(b.Sealed, bind(it.Tenant, it.ID, b.meta))
		clear(plain)
		if codeIs(err, toolkeep.SecretRetrievalFailed) { // what opens it is away
			return Status{}, err
		}
		if err != nil {
			st.State = Unreadable
		}
		return st, nil
	}
	return Status{State: Missing, Store: "secret"}, nil
}

// Glance implements Glancer.
func (l *Local) Glance(p *toolkeep.Principal, rest string) Status {
	if mayLook(p, rest) == nil {
		l.mu.RLock()
		defer l.mu.RUnlock()
		for _, at := range places(p, rest) {
			if e, has := l.known[placed{p.Tenant, at.id()}]; has {
				return l.status(e.meta, e.head)
			}
		}
	}
	return Status{State: Missing, Store: "secret"}
}

// status is what can be told without opening the value.
func (l *Local) status(m meta, sealed []byte) Status {
	s := Status{State: Ready, Scope: m.Scope, Store: "secret", Version: strconv.FormatInt(m.Version, 10), Expires: m.Expires}
	o, knows := l.c.Sealer.(Opener)
	switch {
	case l.over(m):
		s.State = Expired
	case knows && !o.Opens(sealed):
		s.State = Unreadable
	}
	return s
}

func (l *Local) over(m meta) bool { return !m.Expires.IsZero() && !l.c.Clock().Before(m.Expires) }

// bind says what a sealed value belongs to: moved to another tenant or name, or with
// another expiry, it does not open.
func bind(tenant, id string, m meta) []byte {
	return fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d\x00%d", DocumentKind, tenant, id, m.Version, m.Expires.Unix())
}

// get reads an item; ErrNotFound, E3403.
func (l *Local) get(ctx context.Context, tenant string, at place) (it toolkeep.Document, b body, err error) {
	err = tries(ctx, func() error {
		it, err = l.c.Store.Document(ctx, DocumentKind, tenant, at.id())
		return err
	})
	switch {
	case errors.Is(err, toolkeep.ErrNotFound):
		return it, b, err
	case err != nil && ctx.Err() != nil:
		return it, b, refuse(toolkeep.Cancelled, "the call ended before its secret was read").Because(err)
	case err != nil:
		return it, b, refuse(toolkeep.SecretRetrievalFailed, "the store of secrets cannot be reached; try again").Because(err).After(time.Second)
	}
	if err = json.Unmarshal(it.Body, &b); err != nil {
		return it, b, refuse(toolkeep.SecretRetrievalFailed, "the stored secret %s cannot be read; set it anew", at.name).Because(err)
	}
	return it, b, nil
}

// triesBase is the pause before the second try; the next is twice that.
const triesBase = 40 * time.Millisecond

// tries does something up to three times, as long as ctx lasts. That there is nothing
// of that name, and that somebody was faster, is an answer.
func tries(ctx context.Context, do func() error) error {
	for i := 0; ; i++ {
		err := do()
		if err == nil || i == 2 || errors.Is(err, toolkeep.ErrNotFound) || errors.Is(err, toolkeep.ErrStale) || errors.Is(err, toolkeep.ErrClosed) {
			return err
		}
		t := time.NewTimer(triesBase<<i + rand.N(triesBase/2))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

var (
	_ Store    = (*Local)(nil)
	_ Replacer = (*Local)(nil)
	_ Glancer  = (*Local)(nil)
)
