package invoke

import (
	"context"
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// kit is what a call holds of its secrets while it is carried out.
type kit struct {
	creds    []toolkeep.Credential
	uses     []toolkeep.SecretUse // of all tries
	warnings []toolkeep.Warning
	spec     toolkeep.AuthSpec // the alternative that was taken
	renewed  bool              // the secrets were fetched afresh, which happens once a call
	release  func()            // lets go of what was made for this call, and lets redaction forget
}

// equip resolves the secrets of the first alternative of the manifest's auth that can
// be had. The kit is never nil, and its uses stand where it fails too.
func (p *Pipeline) equip(ctx context.Context, j *job) (*kit, error) {
	k := &kit{release: func() {}}
	var first error
	for i, spec := range j.tool.Manifest.Auth {
		err := p.credentials(ctx, j, k, spec, false)
		if err == nil {
			k.spec = spec
			return k, nil
		}
		if i == 0 {
			first = err
		}
	}
	if first == nil {
		return k, nil
	}
	e := p.cleaned(toolkeep.AsError(first), j.clean)
	e.NothingSent = true
	return k, e
}

// credentials resolves one alternative: the scheme itself and those that must
// go with it (settings.also). What the kit held before is let go when that is done.
func (p *Pipeline) credentials(ctx context.Context, j *job, k *kit, spec toolkeep.AuthSpec, fresh bool) error {
	// What a store makes for the call ends with own.
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
		got, err := p.credential(own, j, &s, fresh)
		if s.Secret != "" {
			k.uses = append(k.uses, useOf(s, got, err))
		}
		forget = append(forget, p.Redact.Hold(got.Value.Scope.RedactionScope(j.principal), got.Held...))
		if err != nil {
			end()
			release() // what was read stays known for a while
			return err
		}
		creds = append(creds, toolkeep.Credential{Spec: s, Value: got.Value.Text()})
		got.Value.Wipe()
		warnings = append(warnings, got.Warnings...)
	}
	before := k.release
	k.creds, k.warnings = creds, warnings
	k.release = func() { end(); release() }
	before()
	return nil
}

func (p *Pipeline) credential(ctx context.Context, j *job, s *toolkeep.AuthSpec, fresh bool) (got secret.Equipped, err error) {
	if s.Secret == "" {
		return got, noSecretNamed(*s)
	}
	if s.Secret, err = j.context.Fill(j.tool.Manifest, s.Secret); err != nil {
		return got, err
	}
	return p.Secrets.Credential(ctx, j.principal, j.tool.Manifest, *s, fresh)
}

// renew fetches the secrets afresh after the upstream refused them; false if that was
// done before or fails. What was refused was not carried out, so a call that writes
// may be sent again too.
func (p *Pipeline) renew(ctx context.Context, j *job, k *kit, e *toolkeep.Error) bool {
	if e.Code != toolkeep.SecretAccessDenied || len(k.creds) == 0 || k.renewed {
		return false
	}
	k.renewed = true
	if err := p.credentials(ctx, j, k, k.spec, true); err != nil {
		p.Log.Warn("a refused secret could not be fetched afresh", "invocation_id", j.id, "tool_id", j.tool.ID, "error", err)
		return false
	}
	return true
}

func noSecretNamed(s toolkeep.AuthSpec) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.SecretNotFound,
		"the tool authenticates by %s and its definition names no secret; import it again with --secret %v=env://NAME", s.Type, s.Settings["scheme"])
}

// useOf is what is recorded of a secret's use.
func useOf(s toolkeep.AuthSpec, got secret.Equipped, err error) toolkeep.SecretUse {
	u := toolkeep.SecretUse{Hash: secret.RefHash(s.Secret), Scope: string(got.Value.Scope), Store: got.Value.Store, Version: got.Value.Version}
	if err != nil {
		u.Code = toolkeep.AsError(err).Code
	}
	return u
}

// use puts what the kit has to tell into the result.
func (k *kit) use(res *toolkeep.Result) {
	res.Secrets = slices.Clone(k.uses)
	res.Warnings = append(res.Warnings, k.warnings...)
}
