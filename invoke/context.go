package invoke

import (
	"context"
	"crypto/sha256"
	"strings"
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

// contextNotes is what explain says of the context.
func (f *flight) contextNotes() string {
	notes := f.context.Notes(f.tool().Manifest, retryOf(f.tool()).attempts)
	if len(notes) == 0 {
		return ""
	}
	return "the agent's context: " + strings.Join(notes, "; ")
}
