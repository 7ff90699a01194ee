package secret

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Scope is whose a secret is.
type Scope string

// Scopes, in the order in which a name is looked for (Agent 5.2).
const (
	User         Scope = "user"         // one person's or agent's
	Workspace    Scope = "workspace"    // of a part of the tenant
	Organisation Scope = "organisation" // the whole tenant's
	Server       Scope = "server"       // the operator's: env, file, and what has no other scope
)

// Value is one resolved secret. Text gives it; Wipe overwrites the bytes that this
// package holds.
type Value struct {
	Bytes          []byte
	Scope          Scope // user, workspace, organisation, or server for env, file and what has no scope
	Store, Version string
	Expires        time.Time // zero is never, or unknown
	// KeptSince is set where the store could not be reached and this is what it last
	// gave, at that time.
	KeptSince time.Time
}

// Text gives the secret as text, a copy that Wipe does not reach.
func (v Value) Text() string { return string(v.Bytes) }

// Wipe overwrites the secret.
func (v Value) Wipe() { clear(v.Bytes) }

// States of a secret.
const (
	Ready   = "ready"
	Missing = "missing"
	Expired = "expired"
	// Unreadable is one that is there and does not open: it was sealed with a key that
	// this server does not have.
	Unreadable = "unreadable"
)

// Status is what can be told of a secret without its value.
type Status struct {
	State          string // ready, missing, expired, unreadable
	Scope          Scope
	Store, Version string
	Expires        time.Time
}

// Store reads the references of one scheme; rest is what stands after "scheme://".
// A credential that the store makes for a call ends with the context it was read with.
//
// Errors: E3401 none in any scope, E3402 refused, E3403 unreachable (retryable); all
// with NothingSent. Look tells what is missing or expired by its Status.
type Store interface {
	Scheme() string
	Read(ctx context.Context, p *toolkeep.Principal, rest string) (Value, error)
	Look(ctx context.Context, p *toolkeep.Principal, rest string) (Status, error)
}

// Replacer is a Store that can put a new value in the place of one that was read,
// such as a refresh token that its server has replaced. A value that somebody has
// changed since stays.
type Replacer interface {
	Replace(ctx context.Context, p *toolkeep.Principal, rest string, old Value, value []byte) error
}

// Glancer is a Store that tells a status at once, from what it knows already.
type Glancer interface {
	Glance(p *toolkeep.Principal, rest string) Status
}

// Sealing makes values unreadable at rest; *Sealer and Vault's transit do.
type Sealing interface {
	Seal(plain, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)
}

// Opener is a Sealing that knows at once of what was sealed whether it has the key.
// False is sure; true may still fail to open.
type Opener interface {
	Opens(sealed []byte) bool
}

// user is who a principal's own secrets belong to: the person for whom it acts, else
// itself.
func user(p *toolkeep.Principal) string {
	if p.OnBehalf != "" {
		return p.OnBehalf
	}
	return p.Subject
}
