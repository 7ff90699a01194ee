package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// credentialSet holds a running call's secrets.
type credentialSet struct {
	creds    []toolkeep.Credential
	uses     []toolkeep.SecretUse // of all tries
	warnings []toolkeep.Warning
	spec     toolkeep.AuthSpec // the alternative used
	renewed  bool              // the secrets were fetched again, once per call
	release  func()            // revokes credentials made for this call, and ends their redaction
}

// equip resolves the secrets of the first available alternative in the manifest's auth. A call with its caller's own
// token never goes past an alternative that needs it: who was refused there would get the rights of the next.
// The set is never nil, and has its uses even after a failure.
func (p *Pipeline) equip(ctx context.Context, w *prepared) (*credentialSet, error) {
	k := &credentialSet{release: func() {}}
	var first error
	for i, spec := range w.tool.Manifest.Auth {
		err := p.credentials(ctx, w, k, spec, false)
		if err == nil {
			k.spec = spec
			return k, nil
		}
		own := takesCaller(w.principal, spec)
		if i == 0 || own {
			first = err
		}
		if own {
			break
		}
	}
	if first == nil {
		return k, nil
	}
	e := p.cleaned(toolkeep.AsError(first), w.cleaner)
	e.NothingSent = true
	return k, e
}

// credentials resolves one alternative: the scheme and those sent with it
// (settings.also). It then releases the set's old credentials.
func (p *Pipeline) credentials(ctx context.Context, w *prepared, k *credentialSet, spec toolkeep.AuthSpec, fresh bool) error {
	// Credentials that a store creates for the call end with own.
	own, end := context.WithCancel(ctx)
	var creds []toolkeep.Credential
	var forget []func()
	release := func() {
		for _, f := range forget {
			f()
		}
	}
	var warnings []toolkeep.Warning
	for _, s := range secret.Entries(spec) {
		if s.Type == "none" {
			continue
		}
		got, err := p.credential(own, w, &s, fresh)
		if s.Secret != "" {
			k.uses = append(k.uses, useOf(s, got, err))
		}
		forget = append(forget, p.Redact.Hold(got.Value.Scope.RedactionScope(w.principal).At(w.upstream), got.Held...))
		if err != nil {
			end()
			release() // what was read stays redacted for a while
			return err
		}
		creds = append(creds, toolkeep.Credential{Spec: s, Value: got.Value.Text(), Leased: got.Value.Leased})
		got.Value.Wipe()
		warnings = append(warnings, got.Warnings...)
	}
	before := k.release
	k.creds, k.warnings = creds, warnings
	k.release = func() { end(); release() }
	before()
	return nil
}

func (p *Pipeline) credential(ctx context.Context, w *prepared, s *toolkeep.AuthSpec, fresh bool) (got secret.Equipped, err error) {
	if s.Secret == "" {
		return got, noSecretNamed(*s)
	}
	if s.NeedsCaller() && w.principal.Token == nil {
		return got, callerUnknown(w.tool.Ref())
	}
	if s.Secret, err = w.overlay.Fill(w.tool.Manifest, s.Secret); err != nil {
		return got, err
	}
	if err := tokenAllows(w.call.Grant, s.Secret); err != nil {
		return got, err
	}
	return p.Secrets.Credential(ctx, w.principal, w.tool.Manifest, *s, fresh)
}

// refresh fetches the secrets again after the upstream refused them; it returns false
// if that was done before or fails. A refused request was not executed, so a writing
// call may be repeated too.
func (p *Pipeline) refresh(ctx context.Context, w *prepared, k *credentialSet, e *toolkeep.Error) bool {
	if e.Code != toolkeep.SecretAccessDenied || len(k.creds) == 0 || k.renewed {
		return false
	}
	k.renewed = true
	if err := p.credentials(ctx, w, k, k.spec, true); err != nil {
		p.seldom.Warn("a refused secret could not be fetched again", "invocation_id", w.id, "tool_id", w.tool.ID, "error", err)
		return false
	}
	return true
}

func noSecretNamed(s toolkeep.AuthSpec) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.SecretNotFound,
		"the tool authenticates by %s and its definition names no secret; import it again with --secret %v=env://NAME", s.Type, s.Settings["scheme"])
}

// useOf returns the record of a secret's use.
func useOf(s toolkeep.AuthSpec, got secret.Equipped, err error) toolkeep.SecretUse {
	u := toolkeep.SecretUse{Hash: secret.RefHash(s.Secret), Scope: string(got.Value.Scope), Store: got.Value.Store, Version: got.Value.Version}
	if err != nil {
		u.Code = toolkeep.AsError(err).Code
	}
	return u
}
