package secrets

import (
	"context"
	"errors"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// Resealed is what a rotation of the sealing key did.
type Resealed struct {
	Key       string `json:"key" doc:"id of the key that seals now"`
	Keys      int    `json:"keys" doc:"keys that the server has"`
	Resealed  int    `json:"resealed" doc:"items sealed again"`
	Unchanged int    `json:"unchanged" doc:"items that the key had sealed already, or that hold nothing sealed"`
	Failed    int    `json:"failed" doc:"items that stay as they were; the log says why"`
}

// sealedKind is a kind of documents that hold something sealed.
type sealedKind struct {
	kind string
	// reseal seals a document under the newest key; done is false where that has been done.
	reseal func(it toolkeep.Document) (body []byte, done bool, err error)
	aside  bool // its bodies are not in the feed
}

// sealedKinds are all of them but logins under way, which end by themselves within
// minutes.
func sealedKinds(s *Sealer, now func() time.Time) []sealedKind {
	return []sealedKind{
		{kind: secret.DocumentKind, reseal: func(it toolkeep.Document) ([]byte, bool, error) { return secret.Reseal(s, s.Stale, it) }},
		{kind: overlay.DocumentKind, reseal: func(it toolkeep.Document) ([]byte, bool, error) { return overlay.Reseal(s, s.Stale, it) }},
		{kind: oauth.TokenKind, reseal: func(it toolkeep.Document) ([]byte, bool, error) { return oauth.Reseal(s, s.Stale, it, now()) }},
		{kind: capability.KeyKind, reseal: func(it toolkeep.Document) ([]byte, bool, error) { return capability.Reseal(s, s.Stale, it) }},
		{kind: audit.KeyKind, reseal: func(it toolkeep.Document) ([]byte, bool, error) { return audit.Reseal(s, s.Stale, it) }},
		{kind: archive.KeyKind, reseal: func(it toolkeep.Document) ([]byte, bool, error) { return audit.Reseal(s, s.Stale, it) }},
		{kind: audit.PersonKind, reseal: func(it toolkeep.Document) ([]byte, bool, error) { return audit.ResealPerson(s, s.Stale, it) }, aside: true},
		{kind: audit.PersonDigestKind, reseal: func(it toolkeep.Document) ([]byte, bool, error) { return audit.ResealPerson(s, s.Stale, it) }, aside: true},
		{kind: upstream.DocumentKind, reseal: func(it toolkeep.Document) ([]byte, bool, error) { return upstream.Reseal(s, s.Stale, it) }},
	}
}

// RotateSealKey makes a new key, unless fresh is false, and seals all that is stored
// under the newest one. Everything can be read at every moment, also where it ends half
// way: the old keys stay. What cannot be sealed again is counted, logged and left.
//
// Errors: E3201 not an administrator of the home tenant, E3301 Vault's transit engine
// seals and has no new key from here, E3403 the key file, E3965 the store fails.
func (s *Secrets) RotateSealKey(ctx context.Context, p *toolkeep.Principal, fresh bool) (Resealed, error) {
	var out Resealed
	if p.Tenant != access.HomeTenant || !p.May(toolkeep.PermSecretsAdmin) {
		return out, toolkeep.NewError(toolkeep.PermissionDenied, "the sealing key serves all tenants; administrators of the tenant %s (permission %s) rotate it", access.HomeTenant, toolkeep.PermSecretsAdmin)
	}
	sealer := s.c.Sealer
	if fresh {
		if sealer.transit != nil {
			return out, toolkeep.NewError(toolkeep.InvalidParameters, "Vault's transit engine seals here: rotate its key with `vault write -f transit/keys/NAME/rotate`")
		}
		if _, err := sealer.keys.AddKey(); err != nil {
			return out, err
		}
	}
	out.Key, out.Keys = sealer.keys.Newest(), sealer.keys.Keys()
	if sealer.transit != nil {
		out.Key = "transit/" + sealer.transit.Key()
	}
	ctx = context.WithoutCancel(ctx) // the caller may leave; what was begun is finished
	for _, k := range sealedKinds(sealer, s.c.Clock) {
		if err := s.resealAll(ctx, k, &out); err != nil {
			return out, err
		}
	}
	if out.Failed > 0 {
		s.c.Log.Warn("an old sealing key is still needed", "failed", out.Failed)
	} else if err := s.resealCheck(ctx); err != nil {
		return out, toolkeep.NewError(toolkeep.RecordUnavailable, "the store cannot be written now; what was resealed stays so; rotate again without a new key").Because(err)
	}
	s.c.Log.Info("the sealing key was rotated", "key", out.Key, "resealed", out.Resealed, "failed", out.Failed, "by", p.Subject)
	return out, nil
}

// resealCheck seals the check after all else and if that succeeded, so that it needs the
// old key as long as anything does.
func (s *Secrets) resealCheck(ctx context.Context) error {
	for {
		it, err := readCheck(ctx, s.c.Store)
		if err != nil {
			return err
		}
		if sealed, err := secret.Checked(it.Body); it.Body != nil && err == nil && !s.c.Sealer.Stale(sealed) {
			return nil
		}
		fresh, err := secret.NewCheck(s.c.Sealer)
		if err != nil {
			return err
		}
		fresh.UpdatedBy = access.System().Subject
		if err = s.c.Store.Apply(ctx, toolkeep.PutDocument{Document: fresh, Expect: it.Revision}); !errors.Is(err, toolkeep.ErrStale) {
			return err
		}
	}
}

func (s *Secrets) resealAll(ctx context.Context, k sealedKind, out *Resealed) error {
	items, _, err := s.c.Store.Documents(ctx, k.kind)
	if err != nil {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the store cannot be read now; what was resealed stays so; rotate again without a new key").Because(err)
	}
	for _, it := range items {
		switch done, err := s.resealOne(ctx, k, it); {
		case err != nil:
			out.Failed++
			s.c.Log.Error("a document cannot be sealed under the newest key and stays as it is", "kind", k.kind, "tenant", it.Tenant, "error", err)
		case done:
			out.Resealed++
			if s.c.Hook != nil {
				s.c.Hook("resealed")
			}
		default:
			out.Unchanged++
		}
	}
	return nil
}

// resealTries bounds how often one document is read again that others change.
const resealTries = 10

func (s *Secrets) resealOne(ctx context.Context, k sealedKind, it toolkeep.Document) (bool, error) {
	for try := 0; ; try++ {
		body, done, err := k.reseal(it)
		if !errors.Is(err, oauth.ErrRenewing) {
			if err != nil || !done {
				return false, err
			}
			it.Body = body
			err = s.c.Store.Apply(ctx, toolkeep.PutDocument{Document: it, Expect: it.Revision, OmitBody: k.aside})
			if err == nil {
				return true, nil
			}
			if !errors.Is(err, toolkeep.ErrStale) {
				return false, err
			}
		}
		if try == resealTries {
			return false, errors.New("other requests keep changing it")
		}
		select {
		case <-time.After(time.Duration(try) * 100 * time.Millisecond):
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if it, err = s.c.Store.Document(ctx, k.kind, it.Tenant, it.ID); errors.Is(err, toolkeep.ErrNotFound) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
}
