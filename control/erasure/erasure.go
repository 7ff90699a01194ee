// Package erasure carries out that a person asks for the erasure of what is recorded.
package erasure

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

const eventErased = "ai.agent.audit.erased"

// Records are the records of a store, sealed by person.
type Records interface {
	// Digest returns the keyed digest of a person, in hex.
	Digest(ctx context.Context, tenant, person string) (string, error)
	// Has reports whether a person has a key.
	Has(ctx context.Context, tenant, person string) (bool, error)
	// Destroy destroys the key of a person and commits further changes with that. It reports whether there was a key.
	Destroy(ctx context.Context, tenant, person, by string, with ...toolkeep.Change) (found bool, err error)
}

// Config configures Erasure. Records, Forget and Documents are required.
type Config struct {
	Records Records
	// Forget makes search forget what it learned of a person of the principal's tenant; it may be repeated.
	Forget func(ctx context.Context, p *toolkeep.Principal, person string) error
	// Documents reads the legal holds: while one of the tenant stands, nothing of it is erased.
	Documents func(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)

	Clock func() time.Time // default time.Now
	Log   *slog.Logger     // default discards
}

// Erasure erases. It is safe for concurrent use.
type Erasure struct{ c Config }

// New makes one.
func New(c Config) *Erasure {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Erasure{c}
}

// Done is what an erasure did.
type Done struct {
	Digest string `json:"person_digest" doc:"names the person in the event of the erasure, which does not have the name"`
	HadKey bool   `json:"had_key" doc:"false: nothing was sealed for the person, perhaps because the id is another"`
}

// Erase destroys the key of a person of the principal's tenant, so that nothing opens what was recorded until now, and
// has search forget the person. What was learned goes first: an erasure that failed or was cut off has no event, and is
// to be repeated. The event is in the transaction that destroys the key.
//
// Errors: E3201 without the permission, E3301 no person, E3963 a legal hold of the tenant, E3965 the store cannot do it now.
func (x *Erasure) Erase(ctx context.Context, p *toolkeep.Principal, person string) (Done, error) {
	if !p.May(toolkeep.PermErase) {
		return Done{}, toolkeep.NewError(toolkeep.PermissionDenied, "an erasure needs the permission %s, which none of your roles grants", toolkeep.PermErase).
			With("reason", "RBAC_DENIED").With("permission", toolkeep.PermErase)
	}
	if person == "" {
		return Done{}, toolkeep.NewError(toolkeep.InvalidParameters, "name the person whose records are to be erased")
	}
	if err := x.held(ctx, p.Tenant); err != nil {
		return Done{}, err
	}
	var done Done
	var err error
	if done.Digest, err = x.c.Records.Digest(ctx, p.Tenant, person); err != nil {
		return Done{}, unavailable(err)
	}
	if done.HadKey, err = x.c.Records.Has(ctx, p.Tenant, person); err != nil { // Forget's event makes one
		return Done{}, unavailable(err)
	}
	if err := x.c.Forget(ctx, p, person); err != nil {
		return Done{}, unavailable(err)
	}
	if err := x.held(ctx, p.Tenant); err != nil { // one that was made since
		return Done{}, err
	}
	event, err := x.event(p, done.Digest)
	if err != nil {
		return Done{}, unavailable(err)
	}
	if _, err = x.c.Records.Destroy(ctx, p.Tenant, person, p.Subject, event); err != nil {
		return Done{}, unavailable(err)
	}
	x.c.Log.Info("what was recorded of a person was erased", "tenant", p.Tenant, "person_digest", done.Digest, "had_key", done.HadKey, "by", p.Subject)
	return done, nil
}

// held refuses what a legal hold of the tenant forbids. A hold that covers other records of the person counts too: the key is one.
func (x *Erasure) held(ctx context.Context, tenant string) error {
	holds, _, err := x.c.Documents(ctx, toolkeep.LegalHoldKind)
	if err != nil {
		return unavailable(err)
	}
	for _, d := range holds {
		if d.Tenant == tenant {
			return toolkeep.NewError(toolkeep.StateConflict, "the legal hold %s keeps what is recorded of your tenant, so nothing of it is erased; remove the hold when it is over (toolkeep audit hold remove), then repeat the erasure", d.ID).
				With("hold", d.ID)
		}
	}
	return nil
}

func (x *Erasure) event(p *toolkeep.Principal, digest string) (toolkeep.AppendEvent, error) {
	id, err := uuid.NewV7()
	data := map[string]any{"agent_did": p.Subject, "person_digest": digest, "tenant_id": p.Tenant}
	if p.OnBehalf != "" {
		data["user_did"] = p.OnBehalf
	}
	return toolkeep.AppendEvent{Event: toolkeep.Event{ID: id.String(), Type: eventErased, Tenant: p.Tenant, Time: x.c.Clock().UTC(), Person: p.Person(), Data: canon.Append(nil, data)}}, err
}

func unavailable(err error) error {
	var known *toolkeep.Error
	if errors.As(err, &known) {
		return known
	}
	return toolkeep.NewError(toolkeep.RecordUnavailable, "the erasure could not be carried out now, or not wholly; repeat it").After(time.Second).Because(err)
}
