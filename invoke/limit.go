package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
)

// limit reads what the agent adds to the tool, and takes the tool's bucket and a slot. A waiting call takes them when a
// worker carries it.
func (p *Pipeline) limit(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	if err := p.readContext(ctx, f); err != nil {
		return nil, err
	}
	if f.waits() {
		return nil, nil
	}
	return nil, f.gate.take(f)
}

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
