package secret

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Scope is the level that owns a secret.
type Scope string

// Scopes, in lookup order (Agent 5.2).
const (
	User         Scope = "user"         // one person's or agent's
	Workspace    Scope = "workspace"    // a part of the tenant
	Organisation Scope = "organisation" // the whole tenant
	Server       Scope = "server"       // the operator: env, file, and everything without another scope
)

// ScopeNamed is the scope of a name; the spelling organization is taken too.
func ScopeNamed(name string) Scope {
	if name == "organization" {
		return Organisation
	}
	return Scope(name)
}

// Value is one resolved secret. Text gives it; Wipe overwrites the bytes that this
// package holds.
type Value struct {
	Bytes          []byte
	Scope          Scope // user, workspace, organisation, or server for env, file and secrets without a scope
	Store, Version string
	Expires        time.Time // zero is never, or unknown
	// KeptSince is set if the store was unreachable and the value is the last one it returned, at that time.
	KeptSince time.Time
	Leased    bool // made for this call by the store, which revokes it when the call's ctx ends
}

// Text returns the secret as text, a copy that Wipe does not overwrite.
func (v Value) Text() string { return string(v.Bytes) }

// Wipe overwrites the secret.
func (v Value) Wipe() { clear(v.Bytes) }

// States of a secret.
const (
	Ready   = "ready"
	Missing = "missing"
	Expired = "expired"
	// Unreadable means that the value exists but was sealed with a key that this server does not have.
	Unreadable = "unreadable"
)

// Status describes a secret without its value.
type Status struct {
	State          string // ready, missing, expired, unreadable
	Scope          Scope
	Store, Version string
	Expires        time.Time
}

// Store reads the references of one scheme; rest is the text after "scheme://". A credential that the store makes
// for a call ends with the context it was read with.
//
// Errors: E3401 none in any scope, E3402 refused, E3403 unreachable (retryable); all with NothingSent. Look reports
// missing and expired secrets in its Status.
type Store interface {
	Scheme() string
	Read(ctx context.Context, p *toolkeep.Principal, rest string) (Value, error)
	Look(ctx context.Context, p *toolkeep.Principal, rest string) (Status, error)
}

// Replacer is a Store that can replace a value that was read, such as a rotated refresh token. A value that has
// changed since the read stays.
type Replacer interface {
	Replace(ctx context.Context, p *toolkeep.Principal, rest string, old Value, value []byte) error
}

// Glancer is a Store that can report a status at once, from memory.
type Glancer interface {
	Glance(p *toolkeep.Principal, rest string) Status
}

// Sealing encrypts data at rest; *Sealer and vault.Transit implement it.
type Sealing interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Opener is a Sealing that can tell at once whether it has the key of a sealed value. False is certain; true may
// still fail to open.
type Opener interface {
	Opens(sealed []byte) bool
}

// user returns the owner of a principal's own secrets: the person it acts for, else itself.
func user(p *toolkeep.Principal) string {
	if p.OnBehalf != "" {
		return p.OnBehalf
	}
	return p.Subject
}
