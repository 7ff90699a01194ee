package invoke

import "github.com/toolkeep/toolkeep"

// gate holds the methods that consume something; explain has a twin that looks.
type gate interface {
	takeRequest(f *flight) error
	take(f *flight) error
	recall(f *flight) *toolkeep.Result
}

// taking consumes.
type taking struct{ p *Pipeline }

func (g taking) takeRequest(f *flight) error {
	if f.isChild() {
		return nil // the root took it
	}
	return g.p.Limits.TakeRequest(f.principal)
}

func (g taking) take(f *flight) error {
	return g.p.takeContext(f, func(f *flight) (err error) {
		f.release, err = g.p.Limits.Take(f.principal, f.tool(), f.isChild())
		return err
	})
}

func (g taking) recall(f *flight) *toolkeep.Result {
	res, ok := g.p.Recall.Get(f.cacheKey)
	if !ok {
		return nil
	}
	own := *res
	own.Cached, own.Attempts, own.ToolTime = true, 0, 0
	f.clear(&own)
	return &own
}

// looking only looks.
type looking struct{ p *Pipeline }

func (g looking) takeRequest(f *flight) error { return g.p.Limits.PeekRequest(f.principal) }

func (g looking) take(f *flight) error {
	if f.context != nil {
		if err := g.p.Context.Peek(f.principal, f.tool(), f.context); err != nil {
			return err
		}
	}
	return g.p.Limits.Peek(f.principal, f.tool(), false)
}

func (g looking) recall(f *flight) *toolkeep.Result {
	if g.p.Recall.Peek(f.cacheKey) {
		f.explained.note(StepRecall, "a cached result would be given")
	}
	return nil
}
