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

// Limits of stored secrets.
const (
	MaxName  = 128
	MaxOwner = 512 // bytes of a workspace or user name
)

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)

// Documents is the part of a store that holds sealed secrets.
type Documents interface {
	toolkeep.Applier
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// LocalConfig configures a Local. Store and Sealer are required.
type LocalConfig struct {
	Store  Documents
	Sealer Sealing
	Clock  func() time.Time // default time.Now
	// Rotated is called after each attempt to replace a value; nil is ignored.
	Rotated func(ok bool)
	// LookUp lets a call read from the store and ends the read's context when the call need not wait any longer; its
	// error is the read's, or that the store is away. Nil lets calls read for as long as their own time lasts.
	LookUp func(ctx context.Context, read func(context.Context) error) error
}

// Local stores sealed secrets for secret://name. It implements Store, Replacer and Glancer and is safe for
// concurrent use.
//
// A name may have a value in several scopes of a tenant: user comes before workspace, workspace before
// organisation. An expired value still hides the broader ones, because it was set on purpose.
type Local struct {
	c LocalConfig

	mu    sync.RWMutex
	known map[itemKey]entry // for Glance; follows the feed
}

// itemKey identifies an item.
type itemKey struct{ tenant, id string }

// entry is the metadata of an item, without its value.
type entry struct {
	revision int64
	meta     meta
	head     []byte // of the sealed value: enough for Opener
}

// headBytes is the length of the head that identifies the sealing key.
const headBytes = 1 + idBytes

// meta is the visible metadata of a secret.
type meta struct {
	Name    string    `json:"name"`
	Scope   Scope     `json:"scope"`
	Owner   string    `json:"owner,omitempty"` // in user and workspace scope
	Version int64     `json:"version"`         // counts values; resealing does not change it
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
	return &Local{c: c, known: map[itemKey]entry{}}
}

// Scheme implements Store.
func (l *Local) Scheme() string { return "secret" }

// Start loads what Glance reports and returns the feed position from which to call Follow.
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

// Follow applies a change from the feed.
func (l *Local) Follow(c toolkeep.Committed) {
	switch ch := c.Change.(type) {
	case toolkeep.PutDocument:
		if ch.Document.Kind == DocumentKind {
			l.take(ch.Document)
		}
	case toolkeep.DeleteDocument:
		if ch.Kind == DocumentKind {
			l.mu.Lock()
			delete(l.known, itemKey{ch.Tenant, ch.ID})
			l.mu.Unlock()
		}
	}
}

func (l *Local) take(it toolkeep.Document) {
	var b body
	if json.Unmarshal(it.Body, &b) != nil {
		return
	}
	k := itemKey{it.Tenant, it.ID}
	l.mu.Lock()
	defer l.mu.Unlock()
	if old, has := l.known[k]; !has || old.revision < it.Revision {
		l.known[k] = entry{it.Revision, b.meta, slices.Clone(b.Sealed[:min(len(b.Sealed), headBytes)])}
	}
}

// scopedName is a name in one scope.
type scopedName struct {
	scope       Scope
	owner, name string
}

// id returns the item's id. Owners may be any text, so the id holds their hash.
func (s scopedName) id() string {
	if s.scope == Organisation {
		return "organisation/" + s.name
	}
	sum := sha256.Sum256([]byte(s.owner))
	return string(s.scope) + "/" + hex.EncodeToString(sum[:]) + "/" + s.name
}

// scopedNames returns where a name is looked up, in order.
func scopedNames(p *toolkeep.Principal, name string) []scopedName {
	all := make([]scopedName, 0, 3)
	if who := user(p); who != "" {
		all = append(all, scopedName{User, who, name})
	}
	if p.Workspace != "" {
		all = append(all, scopedName{Workspace, p.Workspace, name})
	}
	return append(all, scopedName{Organisation, "", name})
}

// checkName refuses invalid names.
func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return refuse(toolkeep.SecretNotFound, "the name of a secret must be 1 to %d of a-z, 0-9, dot, hyphen and underscore, and begin with a letter or digit", MaxName)
	}
	return nil
}

// Read returns the value from the first scope that has the name.
//
// Errors: E3401 no scope has it, or its value has expired; E3403 the store cannot be reached after three tries or
// within the time of LookUp (retryable), or the value cannot be opened.
func (l *Local) Read(ctx context.Context, p *toolkeep.Principal, rest string) (Value, error) {
	if err := mayLook(p, rest); err != nil {
		return Value{}, err
	}
	for _, at := range scopedNames(p, rest) {
		it, b, err := l.lookUp(ctx, p.Tenant, at)
		if errors.Is(err, toolkeep.ErrNotFound) {
			continue
		}
		if err != nil {
			return Value{}, err
		}
		v := Value{Scope: at.scope, Store: "secret", Version: strconv.FormatInt(b.Version, 10), Expires: b.Expires}
		if l.over(b.meta) {
			return v, refuse(toolkeep.SecretNotFound, "the secret %s%s expired at %s; set a new one with %s",
				rest, at.owned(), b.Expires.UTC().Format(time.RFC3339), at.advice()).With("state", Expired).With("scope", string(at.scope))
		}
		if v.Bytes, err = l.c.Sealer.Open(b.Sealed, bind(it.Tenant, it.ID, b.meta)); err != nil {
			if toolkeep.IsCode(err, toolkeep.SecretRetrievalFailed) { // the key service is unreachable
				return Value{}, err
			}
			return Value{}, unopened(rest, at.scope).Because(err)
		}
		return v, nil
	}
	return Value{}, refuse(toolkeep.SecretNotFound, "there is no secret %q %s; set it with `toolkeep secrets set %s --scope organisation`%s",
		rest, lookedIn(p), rest, forOne(p)).With("state", Missing)
}

func unopened(name string, scope Scope) *toolkeep.Error {
	return refuse(toolkeep.SecretRetrievalFailed, "the secret %s (scope %s) cannot be opened: it was sealed with a key that this server does not have; set it again, or put the key back", name, scope)
}

// lookedIn names the scopes that are read for a caller, as they are looked up.
func lookedIn(p *toolkeep.Principal) string {
	text := "of the organisation (scope organisation)"
	if p.Workspace != "" {
		text = "of the workspace " + p.Workspace + " (scope workspace) or " + text
	}
	if who := user(p); who != "" {
		text = "of " + who + " (scope user) or " + text
	}
	return text
}

// owned names the scope and its owner.
func (s scopedName) owned() string {
	if s.owner != "" {
		return fmt.Sprintf(" of %s (scope %s)", s.owner, s.scope)
	}
	return fmt.Sprintf(" (scope %s)", s.scope)
}

// advice is the command that sets the secret again. It works for every user who may set it.
func (s scopedName) advice() string {
	if s.owner != "" {
		return fmt.Sprintf("`toolkeep secrets set %s --scope %s --%[2]s` and that name", s.name, s.scope)
	}
	return fmt.Sprintf("`toolkeep secrets set %s --scope %s`", s.name, s.scope)
}

// forOne says how the caller alone gets a secret.
func forOne(p *toolkeep.Principal) string {
	who := user(p)
	if who == "" {
		return ""
	}
	return fmt.Sprintf(", or for %s alone with `--scope user --user` and that name", who)
}

func mayLook(p *toolkeep.Principal, name string) error {
	if p == nil || p.Tenant == "" {
		return refuse(toolkeep.SecretAccessDenied, "a secret:// reference belongs to a tenant, and the caller has none")
	}
	return checkName(name)
}

// Look returns the status of the first scope that has the name, and whether its value opens.
func (l *Local) Look(ctx context.Context, p *toolkeep.Principal, rest string) (Status, error) {
	if err := mayLook(p, rest); err != nil {
		return Status{}, err
	}
	for _, at := range scopedNames(p, rest) {
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
		if toolkeep.IsCode(err, toolkeep.SecretRetrievalFailed) { // the key service is unreachable
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
		for _, at := range scopedNames(p, rest) {
			if e, has := l.known[itemKey{p.Tenant, at.id()}]; has {
				return l.status(e.meta, e.head)
			}
		}
	}
	return Status{State: Missing, Store: "secret"}
}

// status returns what is known without opening the value.
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

// bind returns the context that a sealed value is bound to. A value moved to another tenant or name, or given
// another expiry, does not open.
func bind(tenant, id string, m meta) []byte {
	return fmt.Appendf(nil, "%s\x00%s\x00%s\x00%d\x00%d", DocumentKind, tenant, id, m.Version, m.Expires.Unix())
}

// get reads an item. ErrNotFound, E3403.
func (l *Local) get(ctx context.Context, tenant string, at scopedName) (it toolkeep.Document, b body, err error) {
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
		return it, b, refuse(toolkeep.SecretRetrievalFailed, "the stored secret %s cannot be read; set it again", at.name).Because(err)
	}
	return it, b, nil
}

// lookUp is get for a call.
func (l *Local) lookUp(ctx context.Context, tenant string, at scopedName) (it toolkeep.Document, b body, err error) {
	if l.c.LookUp == nil {
		return l.get(ctx, tenant, at)
	}
	away := l.c.LookUp(ctx, func(ctx context.Context) error {
		it, b, err = l.get(ctx, tenant, at)
		return err
	})
	if away != err {
		return it, b, refuse(toolkeep.SecretRetrievalFailed, "the store of secrets cannot be reached; try again").Because(away).After(time.Second)
	}
	return it, b, err
}

// triesBase is the pause before the second try; the pause then doubles.
const triesBase = 40 * time.Millisecond

// tries calls do up to three times while ctx lasts. Not found and stale are final answers.
func tries(ctx context.Context, do func() error) error {
	for i := 0; ; i++ {
		err := do()
		if err == nil || i == 2 || errors.Is(err, toolkeep.ErrNotFound) || errors.Is(err, toolkeep.ErrStale) || errors.Is(err, toolkeep.ErrClosed) {
			return err
		}
		if !toolkeep.Sleep(ctx, triesBase<<i+rand.N(triesBase/2)) {
			return err
		}
	}
}

var (
	_ Store    = (*Local)(nil)
	_ Replacer = (*Local)(nil)
	_ Glancer  = (*Local)(nil)
)
