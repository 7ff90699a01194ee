package invoke

import (
	"context"
	"crypto/sha256"
	"strings"

	"github.com/toolkeep/toolkeep/secret"
)

// readContext asks what the caller's agent adds to the tool, before anything that
// depends on it: rate, key of the cache, deadline, attempts, secrets.
func (p *Pipeline) readContext(ctx context.Context, f *flight) (err error) {
	if p.Context == nil {
		return nil
	}
	f.context, err = p.Context.Of(ctx, f.principal, f.tool())
	return err
}

// takeContext takes from the bucket of the context's own rate after take has given
// the other limits, so that a refusal by one of these costs nothing here.
func (p *Pipeline) takeContext(f *flight, take func(*flight) error) error {
	if f.context == nil || f.context.PerMinute == 0 {
		return take(f)
	}
	if err := p.Context.Peek(f.principal, f.tool(), f.context); err != nil {
		return err
	}
	if err := take(f); err != nil {
		return err
	}
	err := p.Context.Take(f.principal, f.tool(), f.context)
	if err != nil {
		f.free()
	}
	return err
}

// keyHash is the hash of the arguments as the cache's key has it: a context that
// changes results makes another question of the same arguments.
func (f *flight) keyHash() [32]byte {
	if !f.context.Changes() {
		return f.row.ArgsHash
	}
	d := f.context.Digest()
	return sha256.Sum256(append(f.row.ArgsHash[:], d[:]...))
}

// withSecrets adds to the hash what the tool's secrets are for the caller now, so that
// a result ends with the credential that got it: changed, deleted or expired, or with
// a narrower one before it, it asks another question. ok is false where none of the
// alternatives is at hand; then nothing is given from the cache, and nothing kept.
func (p *Pipeline) withSecrets(ctx context.Context, f *flight, hash [32]byte) (_ [32]byte, ok bool) {
	m := f.tool().Manifest
	b := append(make([]byte, 0, 256), hash[:]...)
	f.blind = false
	for _, spec := range m.Auth {
		ready := true
		for _, s := range secret.Entries(spec) {
			if s.Type == "none" {
				continue
			}
			ref, err := f.context.Fill(m, s.Secret)
			if err != nil || secret.Allowed(m, ref) != nil {
				ready = false
				break
			}
			mark, has := p.Secrets.Mark(ctx, f.principal, ref)
			if !has {
				ready = false
				break
			}
			f.blind = f.blind || mark.Blind
			b = append(b, mark.Sum[:]...)
		}
		if ready { // this is the one that a call takes
			return sha256.Sum256(append(b, 1)), true
		}
		b = append(b, 0)
	}
	return hash, false
}

// contextNotes is what explain says of the context.
func (f *flight) contextNotes() string {
	notes := f.context.Notes(f.tool().Manifest, retryOf(f.tool()).attempts)
	if len(notes) == 0 {
		return ""
	}
	return "the agent's context: " + strings.Join(notes, "; ")
}
