package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/suggest"
)

// Limits of a key's fields.
const (
	maxSubject  = 256 // bytes
	maxKeyName  = 200 // bytes
	maxKeyRoles = 32
	maxScope    = 100
	maxPattern  = 200 // bytes
)

// CreateKey creates a key in the principal's tenant. Of spec it reads Subject, Name,
// Roles, Scope and ExpiresAt. The text is the bearer value for the key's owner; it is
// shown only once.
//
// The principal needs the permission keys:admin, and cannot grant what it does not
// have: unless it has the role admin, the new roles must be among its own, and if its
// scope is narrowed, the new scope must lie within it. Errors: E3201; E3310 with every
// fault; E3965.
func (a *Access) CreateKey(ctx context.Context, p *toolkeep.Principal, spec toolkeep.APIKey) (key toolkeep.APIKey, text string, err error) {
	return a.createKey(ctx, p, spec, nil)
}

// createKey is CreateKey; finish, if set, completes the key before it is stored.
func (a *Access) createKey(ctx context.Context, p *toolkeep.Principal, spec toolkeep.APIKey, finish func(*toolkeep.APIKey) error) (key toolkeep.APIKey, text string, err error) {
	if err := a.mayMake(p, &spec); err != nil {
		return key, "", err
	}
	a.issuing.Lock()
	defer a.issuing.Unlock()
	return a.issue(ctx, toolkeep.APIKey{Tenant: p.Tenant, Subject: spec.Subject, Name: spec.Name, Roles: slices.Clone(spec.Roles),
		Scope: slices.Clone(spec.Scope), Workspace: spec.Workspace, ExpiresAt: spec.ExpiresAt, CreatedBy: p.Subject}, finish, nil, func(k toolkeep.APIKey) []toolkeep.Change {
		data := map[string]any{"subject": k.Subject, "roles": canon.Strings(k.Roles)}
		if len(k.Scope) > 0 {
			data["scope"] = canon.Strings(k.Scope)
		}
		return []toolkeep.Change{a.keyEvent("created", p, k.ID, data)}
	})
}

// mayMake reports whether the principal may make such a key. E3201, E3310.
func (a *Access) mayMake(p *toolkeep.Principal, spec *toolkeep.APIKey) error {
	if !p.May(toolkeep.PermKeys) {
		return refused("making API keys needs the permission %s", toolkeep.PermKeys)
	}
	if faults := a.checkSpec(spec); len(faults) > 0 {
		return toolkeep.FaultsError(toolkeep.InputValidationFailed, "the key cannot be made: "+faults[0].Pointer+": "+faults[0].Message, faults)
	}
	return mayHand(p, spec)
}

// mayHand checks that a principal has what a key gives. E3201.
func mayHand(p *toolkeep.Principal, spec *toolkeep.APIKey) error {
	if err := mayGive(p, spec.Roles, spec.Scope); err != nil {
		return err
	}
	if p.Workspace != "" && spec.Workspace != p.Workspace && !slices.Contains(p.Roles, Admin) {
		return refused("the caller's key belongs to the workspace %s; give the new key the same", p.Workspace)
	}
	return nil
}

// RotateKey makes another key like one of the principal's tenant: with its subject, name, roles, scope, workspace,
// demand of signatures, and lifetime from now on, where it has one. The old key expires after overlap, or when it was to expire if that is
// sooner; 0 ends it at once. secret is what requests are signed with, "" of a key that does not demand it.
//
// The principal needs what CreateKey demands for such a key. Errors: E3201; E3013 no such key; E3301 it was revoked, has expired, or has a successor;
// E3310 it could not be made today; E3403; E3963 it was changed at the same time; E3003, E3965.
func (a *Access) RotateKey(ctx context.Context, p *toolkeep.Principal, id string, overlap time.Duration) (key toolkeep.APIKey, text, secret string, err error) {
	if !p.May(toolkeep.PermKeys) {
		return key, "", "", refused("rotating API keys needs the permission %s", toolkeep.PermKeys)
	}
	a.issuing.Lock()
	defer a.issuing.Unlock()
	if err := a.newest(ctx); err != nil {
		return key, "", "", err
	}
	now := a.config.Clock().UTC()
	old, ok := a.key(p.Tenant, id)
	switch {
	case !ok:
		return key, "", "", noKey(nil)
	case !old.RevokedAt.IsZero() || !old.ExpiresAt.IsZero() && !now.Before(old.ExpiresAt):
		return key, "", "", toolkeep.NewError(toolkeep.InvalidParameters, "this key was revoked or has expired; make a new one for its subject")
	case old.Successor != "":
		return key, "", "", rotated(old.Successor)
	}
	spec := toolkeep.APIKey{Tenant: p.Tenant, Subject: old.Subject, Name: old.Name, Roles: slices.Clone(old.Roles), Scope: slices.Clone(old.Scope),
		Workspace: old.Workspace, CreatedBy: p.Subject}
	if !old.ExpiresAt.IsZero() {
		spec.ExpiresAt = now.Add(old.ExpiresAt.Sub(old.CreatedAt))
	}
	if err := a.mayMake(p, &spec); err != nil {
		return key, "", "", err
	}
	var finish func(*toolkeep.APIKey) error
	if old.RequireSignature {
		if secret, finish, err = a.signed(); err != nil {
			return key, "", "", err
		}
	}
	key, text, err = a.issue(ctx, spec, finish, nil, func(k toolkeep.APIKey) []toolkeep.Change {
		end := toolkeep.RevokeKey{Tenant: p.Tenant, ID: id, At: now, By: p.Subject, Successor: k.ID, Expires: now.Add(overlap), Scope: old.Scope}
		end.End(&old)
		return []toolkeep.Change{end, a.keyEvent("rotated", p, id, map[string]any{"successor": k.ID, "expires_at": old.ExpiresAt.Format(time.RFC3339)})}
	})
	if err != nil {
		secret = ""
	}
	if errors.Is(err, toolkeep.ErrStale) {
		err = toolkeep.NewError(toolkeep.StateConflict, "the key was changed, rotated or revoked at the same time; read it and send your change again").Because(err)
	}
	return key, text, secret, err
}

func rotated(successor string) error {
	return toolkeep.NewError(toolkeep.InvalidParameters, "this key has a successor, %s; if the text of that one was lost, revoke it and make a new key", successor)
}

// keyEvent is what the audit has of a change of a key by a principal.
func (a *Access) keyEvent(what string, p *toolkeep.Principal, id string, data map[string]any) toolkeep.Change {
	data["key_id"], data["by"] = id, p.Subject
	return toolkeep.AppendEvent{Event: toolkeep.Event{ID: uuid.Must(uuid.NewV7()).String(), Type: "ai.agent.auth.key_" + what, Tenant: p.Tenant,
		Time: a.config.Clock().UTC(), Data: canon.Append(nil, data)}}
}

// issue stores a new key, which finish completes if it is set, together with the changes that with, if it is set, returns. The key is usable when
// issue returns, before the feed delivers it. keep, if set, receives the text before
// the key is stored.
func (a *Access) issue(ctx context.Context, spec toolkeep.APIKey, finish func(*toolkeep.APIKey) error, keep func(text string) error, with func(toolkeep.APIKey) []toolkeep.Change) (toolkeep.APIKey, string, error) {
	key, text := NewKey(spec, a.config.Clock())
	for a.keys.Load() != nil && a.keys.Load().byID[key.ID] != nil {
		key, text = NewKey(spec, a.config.Clock())
	}
	if finish != nil {
		if err := finish(&key); err != nil {
			return toolkeep.APIKey{}, "", toolkeep.NewError(toolkeep.SecretRetrievalFailed, "the key's signing secret could not be sealed; the key was not made").Because(err)
		}
	}
	if keep != nil {
		if err := keep(text); err != nil {
			return toolkeep.APIKey{}, "", err
		}
	}
	changes := []toolkeep.Change{toolkeep.PutKey{Key: key}}
	if with != nil {
		changes = append(changes, with(key)...)
	}
	if err := a.config.Store.Apply(ctx, changes...); err != nil {
		return toolkeep.APIKey{}, "", toolkeep.NewError(toolkeep.RecordUnavailable, "the key could not be stored; it was not made").Because(err)
	}
	for _, c := range changes {
		a.Follow(toolkeep.Committed{Change: c})
	}
	key.Hash, key.Signing = [32]byte{}, nil
	return key, text, nil
}

// checkSpec returns every fault of a requested key.
func (a *Access) checkSpec(k *toolkeep.APIKey) []toolkeep.Fault {
	var faults []toolkeep.Fault
	fault := func(pointer, rule, format string, args ...any) {
		faults = append(faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	if k.Subject == "" || len(k.Subject) > maxSubject || !plain(k.Subject) || strings.TrimSpace(k.Subject) != k.Subject {
		fault("/subject", "format", "who uses the key: 1 to %d bytes without control characters and outer spaces", maxSubject)
	}
	if len(k.Name) > maxKeyName || !plain(k.Name) {
		fault("/name", "format", "at most %d bytes without control characters", maxKeyName)
	}
	if len(k.Roles) == 0 || len(k.Roles) > maxKeyRoles {
		fault("/roles", "items", "1 to %d roles; a key without a role could do nothing", maxKeyRoles)
	}
	rules := a.current.Load().rules
	for i, r := range k.Roles {
		if !rules.known(k.Tenant, r) {
			fault(fmt.Sprintf("/roles/%d", i), "enum", "%s", noRole(r, slices.DeleteFunc(rules.names(), func(n string) bool { return !rules.known(k.Tenant, n) })))
		}
	}
	if len(k.Workspace) > maxSubject || !plain(k.Workspace) || strings.TrimSpace(k.Workspace) != k.Workspace {
		fault("/workspace", "format", "at most %d bytes without control characters and outer spaces", maxSubject)
	}
	faults = append(faults, checkScope(k.Scope)...)
	if !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(a.config.Clock()) {
		fault("/expires_at", "future", "the key would be expired at once")
	}
	return faults
}

func checkScope(scope []string) (faults []toolkeep.Fault) {
	fault := func(pointer, rule, format string, args ...any) {
		faults = append(faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: fmt.Sprintf(format, args...)})
	}
	if len(scope) > maxScope {
		fault("/scope", "items", "at most %d patterns", maxScope)
	}
	for i, s := range scope {
		if _, err := path.Match(s, ""); err != nil || s == "" || len(s) > maxPattern {
			fault(fmt.Sprintf("/scope/%d", i), "pattern", "no pattern on tool ids; write one such as weather.* or weather.current")
		} else if !couldMatch(s) {
			fault(fmt.Sprintf("/scope/%d", i), "pattern", "no tool's id can match this; an id is namespace.name, so write one such as weather.* or weather.current, and several as an entry each")
		}
	}
	return faults
}

// couldMatch reports whether a pattern can match any tool id. One that cannot, such as
// a bare namespace or several patterns with commas, is a mistake.
func couldMatch(pattern string) bool {
	const wild = "*?[\\"
	for _, c := range pattern {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("._-]^"+wild, c)) {
			return false
		}
	}
	return strings.ContainsAny(pattern, "."+wild)
}

// plain reports whether a text is UTF-8 without control characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// mayGive checks that the creator has everything it grants.
func mayGive(p *toolkeep.Principal, roles, scope []string) error {
	if !slices.Contains(p.Roles, Admin) {
		for _, r := range roles {
			if !slices.Contains(p.Roles, r) {
				return refused("the role %s is not one of the caller's; only a key with the role %s can grant every role", r, Admin)
			}
		}
	}
	if len(p.Scope) == 0 {
		return nil
	}
	if len(scope) == 0 {
		return refused("the caller's key is narrowed to [%s]; give the new key a scope within it", strings.Join(p.Scope, ", "))
	}
	for _, s := range scope {
		// A pattern is certainly within another if both are equal, or if it is a plain
		// id that matches.
		within := slices.Contains(p.Scope, s) || (!strings.ContainsAny(s, `*?[\`) && toolkeep.MatchesAny(p.Scope, s))
		if !within {
			return refused("the scope %q is not within the caller's own, [%s]; repeat one of its patterns or name tool ids that match", s, strings.Join(p.Scope, ", "))
		}
	}
	return nil
}

// SetScope gives a key of the principal's tenant another scope; an empty one does not narrow. When it returns, calls on this node
// have it, and those on another once that has followed the store, as after a revocation. The principal must have what
// the key gives, as for CreateKey. Errors: E3201; E3013 no such key; E3301 it was revoked or has expired, or is the tenant's last admin
// key, which cannot be narrowed; E3310 with every fault; E3963 the key was changed at the same time; E3003, E3965. With dryRun all is
// checked and nothing changed.
func (a *Access) SetScope(ctx context.Context, p *toolkeep.Principal, id string, scope []string, dryRun bool) (toolkeep.APIKey, error) {
	none := toolkeep.APIKey{}
	if !p.May(toolkeep.PermKeys) {
		return none, refused("changing API keys needs the permission %s", toolkeep.PermKeys)
	}
	a.issuing.Lock()
	defer a.issuing.Unlock()
	if err := a.newest(ctx); err != nil {
		return none, err
	}
	k, ok := a.key(p.Tenant, id)
	if !ok {
		return none, noKey(nil)
	}
	now := a.config.Clock().UTC()
	if !k.RevokedAt.IsZero() || !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt) {
		return none, toolkeep.NewError(toolkeep.InvalidParameters, "this key was revoked or has expired; make a new one for its subject")
	}
	from := k.Scope
	if faults := checkScope(scope); len(faults) > 0 { // of the scope alone: a key with a role that left can be narrowed too
		return none, toolkeep.FaultsError(toolkeep.InputValidationFailed, "the key cannot have this scope: "+faults[0].Pointer+": "+faults[0].Message, faults)
	}
	asked := k
	asked.Scope = slices.Clone(scope)
	if err := mayHand(p, &asked); err != nil {
		return none, err
	}
	if len(scope) > 0 && a.lastAdmin(k) {
		return none, toolkeep.NewError(toolkeep.InvalidParameters, "this is the tenant's last valid key with the role %s; make another before you narrow it", Admin)
	}
	k = asked
	if !dryRun && !slices.Equal(from, scope) {
		err := a.config.Store.Apply(ctx, toolkeep.ScopeKey{Tenant: p.Tenant, ID: id, From: from, Scope: k.Scope},
			a.keyEvent("scoped", p, id, map[string]any{"subject": k.Subject, "scope": canon.Strings(k.Scope), "scope_before": canon.Strings(from)}))
		switch {
		case errors.Is(err, toolkeep.ErrStale):
			return none, toolkeep.NewError(toolkeep.StateConflict, "the key was changed at the same time; read it and send your change again").Because(err)
		case errors.Is(err, toolkeep.ErrNotFound):
			return none, noKey(err)
		case err != nil:
			return none, toolkeep.NewError(toolkeep.RecordUnavailable, "the scope could not be stored; the key is as it was").Because(err)
		}
		// Only the feed may say what the key is now: it can hold an older change that this node has not read.
		if err := a.position.Await(ctx, a.config.Store); err != nil {
			return none, toolkeep.NewError(toolkeep.RecordUnavailable, "the scope is stored, and this node has not read it yet; list the keys in a moment").Because(err)
		}
	}
	k.Hash, k.Signing = [32]byte{}, nil
	return k, nil
}

// newest waits until this node knows all keys as they are in the store: another one may have changed them. E3003.
func (a *Access) newest(ctx context.Context) error {
	if err := a.position.Await(ctx, a.config.Store); err != nil {
		return toolkeep.NewError(toolkeep.RegistryUnavailable, "this node cannot read the newest keys from the store now; try again").After(time.Second).Because(err)
	}
	return nil
}

// RevokeKey revokes a key of the principal's tenant immediately. The principal needs
// the permission keys:admin and, unless it has the role admin, all roles of the key.
// The last valid admin key cannot be revoked. Errors: E3201; E3013; E3301; E3965.
func (a *Access) RevokeKey(ctx context.Context, p *toolkeep.Principal, id string) error {
	if !p.May(toolkeep.PermKeys) {
		return refused("revoking API keys needs the permission %s", toolkeep.PermKeys)
	}
	a.issuing.Lock()
	defer a.issuing.Unlock()
	k, ok := a.key(p.Tenant, id)
	if !ok {
		return noKey(nil)
	}
	if !k.RevokedAt.IsZero() {
		return nil
	}
	if err := mayGive(&toolkeep.Principal{Roles: p.Roles}, k.Roles, nil); err != nil {
		return refused("the key has roles that the caller does not have; only the role %s revokes it", Admin)
	}
	if a.lastAdmin(k) {
		return toolkeep.NewError(toolkeep.InvalidParameters, "this is the tenant's last valid key with the role %s; make another before you revoke it", Admin)
	}
	change := toolkeep.RevokeKey{Tenant: p.Tenant, ID: id, At: a.config.Clock().UTC(), By: p.Subject}
	if err := a.config.Store.Apply(ctx, change, a.keyEvent("revoked", p, id, map[string]any{})); errors.Is(err, toolkeep.ErrNotFound) {
		return noKey(err)
	} else if err != nil {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the key could not be revoked; it is still valid").Because(err)
	}
	a.Follow(toolkeep.Committed{Change: change})
	return nil
}

func noKey(cause error) error {
	return toolkeep.NewError(toolkeep.ResourceNotFound, "there is no API key with this id in the caller's tenant; list the keys to see their ids").Because(cause)
}

func (a *Access) key(tenant, id string) (toolkeep.APIKey, bool) {
	if ring := a.keys.Load(); ring != nil {
		if h := ring.byID[id]; h != nil && h.key.Tenant == tenant {
			return h.key, true
		}
	}
	return toolkeep.APIKey{}, false
}

// lastAdmin reports whether no other valid, unscoped admin key is left, of those that do not expire where k does not.
func (a *Access) lastAdmin(k toolkeep.APIKey) bool {
	now := a.config.Clock()
	if !isAdmin(&k, now) {
		return false
	}
	for _, h := range a.keys.Load().byID {
		if h.key.ID != k.ID && h.key.Tenant == k.Tenant && isAdmin(&h.key, now) && (h.key.ExpiresAt.IsZero() || !k.ExpiresAt.IsZero()) {
			return false
		}
	}
	return true
}

// isAdmin reports whether a key is a valid, unscoped admin key.
func isAdmin(k *toolkeep.APIKey, now time.Time) bool {
	return slices.Contains(k.Roles, Admin) && len(k.Scope) == 0 && k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt))
}

// ListKeys returns every key of the principal's tenant, including revoked and expired
// ones, oldest first and without hashes. It needs the permission keys:admin. E3201.
func (a *Access) ListKeys(_ context.Context, p *toolkeep.Principal) ([]toolkeep.APIKey, error) {
	if !p.May(toolkeep.PermKeys) {
		return nil, refused("listing API keys needs the permission %s", toolkeep.PermKeys)
	}
	keys := []toolkeep.APIKey{}
	if ring := a.keys.Load(); ring != nil {
		for _, h := range ring.byID {
			if h.key.Tenant == p.Tenant {
				k := h.key
				k.Hash, k.Signing, k.Roles, k.Scope = [32]byte{}, nil, slices.Clone(k.Roles), slices.Clone(k.Scope)
				keys = append(keys, k)
			}
		}
	}
	slices.SortFunc(keys, func(x, y toolkeep.APIKey) int {
		if c := x.CreatedAt.Compare(y.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(x.ID, y.ID)
	})
	return keys, nil
}

// Holders returns who the valid API keys of a subject are for, the oldest key first.
func (a *Access) Holders(tenant, subject string) (all []*toolkeep.Principal) {
	keys, err := a.ListKeys(context.Background(), &toolkeep.Principal{Tenant: tenant, Permissions: []string{toolkeep.PermKeys}})
	if err != nil {
		return nil
	}
	now := a.config.Clock()
	for i := range keys {
		if k := &keys[i]; k.Subject == subject && k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt)) {
			all = append(all, a.PrincipalOf(k))
		}
	}
	return all
}

// firstKey is the item that records that a store has its first admin key. It is created
// in one Apply with the key, only if it does not exist, so that of all nodes starting
// on an empty store exactly one creates a key.
const firstKey = "first_admin_key"

// Bootstrap creates the first admin key, with the subject admin in HomeTenant, if
// the store has no keys, and returns its text; if there are keys it returns "". The
// text cannot be had again. keep, if set, receives the text before the key is stored:
// if the process dies in between, a text without a key is left, which the next start
// replaces, and never a key whose text is lost. If several nodes do this on one store
// at once, one creates the key; on every other node keep is called a second time, with
// "", and must drop the text, and Bootstrap returns "". Call it after Start. E3003,
// E3965, and errors of keep.
func (a *Access) Bootstrap(ctx context.Context, keep func(text string) error) (text string, err error) {
	a.issuing.Lock()
	defer a.issuing.Unlock()
	ring := a.keys.Load()
	if ring == nil {
		return "", toolkeep.NewError(toolkeep.RegistryUnavailable, "the API keys are not loaded yet").After(time.Second)
	}
	if len(ring.byID) > 0 {
		return "", nil
	}
	claim := toolkeep.PutDocument{Expect: toolkeep.NoRevision, Document: toolkeep.Document{Kind: firstKey, Tenant: HomeTenant, ID: "admin",
		Body: []byte("{}"), UpdatedBy: "bootstrap"}}
	var kept string
	_, text, err = a.issue(ctx, toolkeep.APIKey{Tenant: HomeTenant, Subject: "admin", Name: "made on first start",
		Roles: []string{Admin}, CreatedBy: "bootstrap"}, nil, func(t string) error {
		kept = t
		if keep == nil {
			return nil
		}
		return keep(t)
	}, func(toolkeep.APIKey) []toolkeep.Change { return []toolkeep.Change{claim} })
	if errors.Is(err, toolkeep.ErrStale) {
		return a.loadFirst(ctx, kept, keep)
	}
	return text, err
}

// Recover makes another admin key, with the subject admin in HomeTenant, after the first
// was lost. It checks no permission: its caller controls the store. lost is the text
// of the old key, "" without one: if it is still a valid admin key, nothing is made (E3301).
// keep receives the new text before the key is stored. Call it after Start. E3003, E3965,
// and errors of keep.
func (a *Access) Recover(ctx context.Context, lost string, keep func(text string) error) (toolkeep.APIKey, error) {
	a.issuing.Lock()
	defer a.issuing.Unlock()
	ring := a.keys.Load()
	if ring == nil {
		return toolkeep.APIKey{}, toolkeep.NewError(toolkeep.RegistryUnavailable, "the API keys are not loaded yet").After(time.Second)
	}
	if id, word, ok := parseKey(lost); ok {
		hash := sha256.Sum256([]byte(word))
		if h := ring.byID[id]; h != nil && subtle.ConstantTimeCompare(hash[:], h.key.Hash[:]) == 1 && isAdmin(&h.key, a.config.Clock()) {
			return toolkeep.APIKey{}, toolkeep.NewError(toolkeep.InvalidParameters, "the key %s is still a valid admin key, so none was made", id)
		}
	}
	key, _, err := a.issue(ctx, toolkeep.APIKey{Tenant: HomeTenant, Subject: "admin", Name: "made by keys recover",
		Roles: []string{Admin}, CreatedBy: "keys recover"}, nil, keep, nil)
	return key, err
}

// loadFirst loads the keys of a store that got its first key since Start. If that key is
// not the node's own (a commit whose reply was lost may have stored it), the node drops
// its own text.
func (a *Access) loadFirst(ctx context.Context, text string, keep func(text string) error) (string, error) {
	keys, _, err := a.config.Load(ctx)
	if err != nil {
		return "", toolkeep.NewError(toolkeep.RegistryUnavailable, "the API keys cannot be loaded").Because(err)
	}
	if len(keys) == 0 {
		return "", toolkeep.NewError(toolkeep.RegistryUnavailable,
			"the store records that its first admin key was made, but holds no key; restore the store from a backup, or start with an empty one")
	}
	a.change(func(r *keyring) {
		for _, k := range keys {
			r.add(k)
		}
	})
	id, _, _ := parseKey(text)
	if slices.ContainsFunc(keys, func(k toolkeep.APIKey) bool { return k.ID == id }) {
		return text, nil
	}
	if keep != nil {
		err = keep("")
	}
	return "", err
}

// noRole says that a role does not exist and suggests the likely one.
func noRole(role string, there []string) string {
	if meant := suggest.Suggest(role, there); meant != "" {
		return fmt.Sprintf("there is no role %q; did you mean %s?", role, meant)
	}
	more := ""
	if len(there) > maxRolesTold {
		there, more = there[:maxRolesTold], " and others"
	}
	return fmt.Sprintf("there is no role %q; there are %s%s, and the setting access.roles_file can define more", role, strings.Join(there, ", "), more)
}

// maxRolesTold bounds the role names in an error.
const maxRolesTold = 20

// known reports whether there is a role in a tenant.
func (rs ruleset) known(tenant, name string) bool {
	c := rs[name]
	return c != nil && (len(c.tenants) == 0 || slices.Contains(c.tenants, tenant))
}

// names returns the name of every role, sorted.
func (rs ruleset) names() []string {
	names := make([]string, 0, len(rs))
	for n := range rs {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
