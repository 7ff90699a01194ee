package node

import "context"

// part is one part of a node. A part whose start failed is not stopped: it leaves nothing
// behind. start and stop may be nil.
type part struct {
	name  string
	start func(ctx context.Context) error
	stop  func()
}

// when is start where on is set, else nothing.
func when(on bool, start func(context.Context) error) func(context.Context) error {
	if on {
		return start
	}
	return nil
}

// running are parts that were started.
type running struct{ parts []part }

// start starts parts in order. It ends at the first that fails; those before it go on
// until stop.
func (r *running) start(ctx context.Context, parts []part) error {
	for _, p := range parts {
		if p.start != nil {
			if err := p.start(ctx); err != nil {
				return err
			}
		}
		r.parts = append(r.parts, p)
	}
	return nil
}

// stop stops what was started, in reverse. A second one has nothing to stop.
func (r *running) stop() {
	for len(r.parts) > 0 {
		last := len(r.parts) - 1
		p := r.parts[last]
		r.parts = r.parts[:last]
		if p.stop != nil {
			p.stop()
		}
	}
}
