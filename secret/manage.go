package secret

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// eventRotated is emitted when a value replaces another.
const eventRotated = "ai.agent.tool.secret.rotated"

// Where identifies a secret of a tenant.
type Where struct {
	Name  string
	Scope Scope  // "" is user
	Owner string // the workspace or user; "" is the caller's
}

// Put is a value to store.
type Put struct {
	Where
	Value   []byte // the caller's; Set does not wipe it
	Expires time.Time
}

// Info describes a stored secret, never its value.
type Info struct {
	Name    string
	Scope   Scope
	Owner   string
	Version int64
	SetAt   time.Time
	SetBy   string
	Expires time.Time // zero is never
	State   string    // ready, expired or unreadable
}

// Ref returns the reference used in manifests.
func (i Info) Ref() string { return "secret://" + i.Name }

// MayChange checks that the caller may change secrets of a scope: always its own user's; any other needs
// secrets:admin. The name, and a scope that does not exist, are not looked at. E3201.
func (l *Local) MayChange(p *toolkeep.Principal, w Where) error {
	switch w.Scope {
	case "", User:
		if cmp.Or(w.Owner, user(p)) == user(p) {
			return nil
		}
	case Workspace, Organisation:
	default:
		return nil
	}
	if p.May(toolkeep.PermSecretsAdmin) {
		return nil
	}
	return refuse(toolkeep.PermissionDenied, "secrets of scope %s need the permission %s; your own (scope user) you may always change",
		cmp.Or(w.Scope, User), toolkeep.PermSecretsAdmin).With("permission", toolkeep.PermSecretsAdmin)
}

// mayChange resolves w and checks that the caller may change secrets there. E3201, E3301.
func (l *Local) mayChange(p *toolkeep.Principal, w Where) (scopedName, error) {
	at := scopedName{scope: w.Scope, owner: w.Owner, name: w.Name}
	if !nameForm.MatchString(w.Name) {
		return at, refuse(toolkeep.InvalidParameters, "the name of a secret must be 1 to %d of a-z, 0-9, dot, hyphen and underscore, and begin with a letter or digit", MaxName)
	}
	if p.Tenant == "" {
		return at, refuse(toolkeep.PermissionDenied, "the caller belongs to no tenant")
	}
	switch at.scope {
	case "", User:
		at.scope = User
		at.owner = cmp.Or(at.owner, user(p))
	case Workspace:
		at.owner = cmp.Or(at.owner, p.Workspace)
		if at.owner == "" {
			return at, refuse(toolkeep.InvalidParameters, "say which workspace: your key belongs to none")
		}
	case Organisation:
		if at.owner != "" {
			return at, refuse(toolkeep.InvalidParameters, "a secret of the organisation has neither user nor workspace")
		}
	default:
		return at, refuse(toolkeep.InvalidParameters, "the scope must be user, workspace or organisation")
	}
	if len(at.owner) > MaxOwner {
		return at, refuse(toolkeep.InvalidParameters, "the name of the user or workspace is over %d bytes", MaxOwner)
	}
	return at, l.MayChange(p, w)
}

// Set stores a value and replaces any earlier one. The next call on any node uses it.
//
// Errors: E3201; E3301 an invalid name, value or time; E3965 the store fails.
func (l *Local) Set(ctx context.Context, p *toolkeep.Principal, put Put) (Info, error) {
	at, err := l.mayChange(p, put.Where)
	if err != nil {
		return Info{}, err
	}
	switch _, err := checkValue(string(put.Value), "secret://"+put.Name); {
	case err != nil:
		e := toolkeep.AsError(err)
		return Info{}, refuse(toolkeep.InvalidParameters, "%s", e.Message)
	case !put.Expires.IsZero() && !put.Expires.After(l.c.Clock()):
		return Info{}, refuse(toolkeep.InvalidParameters, "the secret would be expired at once")
	}
	for range 10 { // a concurrent change makes it read again
		var before body
		it, before, err := l.get(ctx, p.Tenant, at)
		if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
			if it.Revision == 0 { // an unreadable value is replaced
				return Info{}, err
			}
		}
		m := meta{Name: at.name, Scope: at.scope, Owner: at.owner, Version: before.Version + 1, SetAt: l.c.Clock().UTC(), SetBy: p.Subject,
			Expires: put.Expires.UTC().Truncate(time.Second)}
		if put.Expires.IsZero() {
			m.Expires = time.Time{}
		}
		err = l.put(ctx, p, at, m, put.Value, it.Revision, before.Version)
		if errors.Is(err, toolkeep.ErrStale) {
			continue
		}
		if err != nil {
			return Info{}, err
		}
		info := l.info(m, nil)
		info.State = Ready
		return info, nil
	}
	return Info{}, refuse(toolkeep.RecordUnavailable, "other requests change the secret %s at the same time; try again", at.name)
}

// put seals and commits. ErrStale, E3965.
func (l *Local) put(ctx context.Context, p *toolkeep.Principal, at scopedName, m meta, value []byte, revision, before int64) error {
	id := at.id()
	sealed, err := l.c.Sealer.Seal(value, bind(p.Tenant, id, m))
	if err != nil {
		l.rotated(before, false)
		return toolkeep.AsError(err)
	}
	raw, err := json.Marshal(body{m, sealed})
	if err != nil {
		return toolkeep.AsError(err)
	}
	changes := []toolkeep.Change{toolkeep.PutDocument{Expect: revision,
		Document: toolkeep.Document{Kind: DocumentKind, Tenant: p.Tenant, ID: id, Body: raw, UpdatedAt: m.SetAt, UpdatedBy: p.Subject}}}
	if before > 0 {
		event, err := uuid.NewV7()
		if err != nil {
			return toolkeep.AsError(err)
		}
		changes = append(changes, toolkeep.AppendEvent{Event: toolkeep.Event{ID: event.String(), Type: eventRotated, Tenant: p.Tenant, Time: m.SetAt,
			Data: canon.Append(nil, map[string]any{"secret_hash": RefHash("secret://" + at.name), "scope": string(at.scope), "store": "secret",
				"version": strconv.FormatInt(m.Version, 10), "previous_version": strconv.FormatInt(before, 10), "by": p.Subject})}})
	}
	err = l.c.Store.Apply(ctx, changes...)
	switch {
	case errors.Is(err, toolkeep.ErrStale):
		return err
	case err != nil:
		l.rotated(before, false)
		return refuse(toolkeep.RecordUnavailable, "the secret cannot be stored now; try again").Because(err)
	}
	l.rotated(before, true)
	l.take(toolkeep.Document{Kind: DocumentKind, Tenant: p.Tenant, ID: id, Body: raw, Revision: revision + 1})
	return nil
}

func (l *Local) rotated(before int64, ok bool) {
	if before > 0 {
		l.c.Rotated(ok)
	}
}

// RefHash replaces a reference where its text should not appear (Execution 8.6).
func RefHash(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	return hex.EncodeToString(sum[:])
}

// Replace implements Replacer.
func (l *Local) Replace(ctx context.Context, p *toolkeep.Principal, rest string, old Value, value []byte) error {
	for _, at := range scopedNames(p, rest) {
		if at.scope != old.Scope {
			continue
		}
		it, b, err := l.get(ctx, p.Tenant, at)
		if err != nil || strconv.FormatInt(b.Version, 10) != old.Version {
			return err // ErrNotFound: deleted, and stays deleted
		}
		m := b.meta
		m.Version, m.SetAt, m.SetBy = b.Version+1, l.c.Clock().UTC(), p.Subject
		if err = l.put(ctx, p, at, m, value, it.Revision, b.Version); errors.Is(err, toolkeep.ErrStale) {
			return nil
		}
		return err
	}
	return nil
}

// Delete removes a secret. E3201, E3013, E3301, E3965.
func (l *Local) Delete(ctx context.Context, p *toolkeep.Principal, w Where) error {
	at, err := l.mayChange(p, w)
	if err != nil {
		return err
	}
	err = l.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: DocumentKind, Tenant: p.Tenant, ID: at.id(), Expect: toolkeep.AnyRevision, By: p.Subject})
	switch {
	case errors.Is(err, toolkeep.ErrNotFound):
		return refuse(toolkeep.ResourceNotFound, "there is no secret %s in the scope %s", at.name, at.scope)
	case err != nil:
		return refuse(toolkeep.RecordUnavailable, "the secret could not be removed; calls still use it").Because(err)
	}
	l.mu.Lock()
	delete(l.known, itemKey{p.Tenant, at.id()})
	l.mu.Unlock()
	return nil
}

// List returns the secrets that the caller's calls could use, or with secrets:admin all of the tenant's, by name
// and then from the narrowest scope. It does not say which tools use them. E3403.
func (l *Local) List(ctx context.Context, p *toolkeep.Principal) ([]Info, error) {
	var items []toolkeep.Document
	err := tries(ctx, func() (err error) {
		items, _, err = l.c.Store.Documents(ctx, DocumentKind)
		return err
	})
	if err != nil {
		return nil, refuse(toolkeep.SecretRetrievalFailed, "the store of secrets cannot be reached; try again").Because(err)
	}
	all := p.May(toolkeep.PermSecretsAdmin)
	var list []Info
	for _, it := range items {
		var b body
		if it.Tenant != p.Tenant || json.Unmarshal(it.Body, &b) != nil {
			continue
		}
		serves := b.Scope == Organisation || b.Scope == Workspace && b.Owner == p.Workspace || b.Scope == User && b.Owner == user(p)
		if all || serves {
			list = append(list, l.info(b.meta, b.Sealed))
		}
	}
	slices.SortFunc(list, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(rank(a.Scope), rank(b.Scope)), cmp.Compare(a.Owner, b.Owner))
	})
	return list, nil
}

func rank(s Scope) int { return slices.Index([]Scope{User, Workspace, Organisation}, s) }

func (l *Local) info(m meta, sealed []byte) Info {
	return Info{Name: m.Name, Scope: m.Scope, Owner: m.Owner, Version: m.Version, SetAt: m.SetAt, SetBy: m.SetBy, Expires: m.Expires, State: l.status(m, sealed).State}
}

// Reseal seals an item of DocumentKind again under the sealer's newest key. done is false if that key sealed it
// already.
func Reseal(s Sealing, stale func([]byte) bool, it toolkeep.Document) (raw []byte, done bool, err error) {
	var b body
	if err := json.Unmarshal(it.Body, &b); err != nil {
		return nil, false, err
	}
	if !stale(b.Sealed) {
		return nil, false, nil
	}
	at := bind(it.Tenant, it.ID, b.meta)
	plain, err := s.Open(b.Sealed, at)
	if err != nil {
		return nil, false, err
	}
	defer clear(plain)
	if b.Sealed, err = s.Seal(plain, at); err != nil {
		return nil, false, err
	}
	raw, err = json.Marshal(b)
	return raw, err == nil, err
}
