package catalog

import (
	"fmt"
	"sync"

	"github.com/Masterminds/semver/v3"
	"github.com/maypok86/otter/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/pack"
)

// wholeBytes bounds the memory of unpacked manifests: those of some thousand tools that are called. The others cost
// about 0.1 ms at their next call.
const wholeBytes = 32 << 20

// reader makes versions from a store's records, and their whole tools.
type reader struct {
	defaults Defaults
	wholes   *otter.Cache[*packed, *toolkeep.Tool]
	// Tools without these members share one of each.
	retry               *toolkeep.RetrySpec
	cache               *toolkeep.CacheSpec
	result, resultOfMCP *toolkeep.ResultSpec

	mu   sync.Mutex
	sems map[string]*semver.Version
}

func newReader(d Defaults) *reader {
	plain, mcp := &toolkeep.Manifest{}, &toolkeep.Manifest{Execution: toolkeep.ExecutionSpec{Kind: "mcp"}}
	d.fill(plain)
	d.fill(mcp)
	return &reader{
		defaults: d, retry: plain.Retry, cache: plain.Cache, result: plain.Result, resultOfMCP: mcp.Result, sems: map[string]*semver.Version{},
		wholes: otter.Must(&otter.Options[*packed, *toolkeep.Tool]{MaximumWeight: wholeBytes,
			// Raw, which the schemas share, and the other members.
			Weigher: func(_ *packed, t *toolkeep.Tool) uint32 { return uint32(len(t.Raw) + 4096) }})}
}

// packed is what a version's outline lacks.
type packed struct {
	*pack.Manifest
	by *reader
}

// Whole returns the whole tool, with defaults. E3003 if the stored manifest cannot be unpacked or is
// not the published one.
func (p *packed) Whole(outline *toolkeep.Tool) (*toolkeep.Tool, error) {
	if t, ok := p.by.wholes.GetIfPresent(p); ok {
		return t, nil
	}
	t, err := p.WholeBy(outline, func(raw []byte) (*toolkeep.Manifest, error) {
		if have := canon.Digest(raw); have != outline.Digest {
			return nil, fmt.Errorf("its digest is %s, not %s", have, outline.Digest)
		}
		return p.by.defaults.decode(raw)
	})
	if err == nil {
		p.by.wholes.Set(p, t)
	}
	return t, err
}

// version makes a version with an outline from a store's record.
func (r *reader) version(v toolkeep.Version) (*version, error) {
	sem, err := r.sem(v.Tool.Version)
	if err != nil {
		return nil, err
	}
	if p, ok := v.Tool.Packed.(*packed); ok && p.by == r {
		return &version{Version: v, sem: sem}, nil
	}
	body, err := pack.Of(v.Tool)
	if err != nil {
		return nil, err
	}
	m := v.Tool.Manifest
	if _, stored := v.Tool.Packed.(*pack.Manifest); !stored || m == nil {
		raw := v.Tool.Raw
		if raw == nil {
			raw, err = body.Raw()
		}
		if err == nil {
			m, err = pack.Decode(raw)
		}
		if err != nil {
			return nil, err
		}
	}
	v.Tool = r.outlined(v.Tool, m, body)
	return &version{Version: v, sem: sem}, nil
}

// loaded is version for a record that the reader alone has: a stored outline becomes the version's.
func (r *reader) loaded(v toolkeep.Version) (version, error) {
	body, stored := v.Tool.Packed.(*pack.Manifest)
	if !stored || v.Tool.Manifest == nil {
		made, err := r.version(v)
		if err != nil {
			return version{}, err
		}
		return *made, nil
	}
	sem, err := r.sem(v.Tool.Version)
	if err != nil {
		return version{}, err
	}
	r.complete(v.Tool, body)
	return version{Version: v, sem: sem}, nil
}

// fresh makes the version of a manifest that is published, without a lifecycle.
func (r *reader) fresh(s submitted) (*version, error) {
	sem, err := r.sem(s.whole.Version)
	if err != nil {
		return nil, err
	}
	body, err := pack.New(s.whole)
	if err != nil {
		return nil, err
	}
	return &version{Version: toolkeep.Version{Tool: r.outlined(s.whole, s.checked.tool.Manifest, body)}, sem: sem}, nil
}

// outlined returns t with the outline of m, its manifest without defaults.
func (r *reader) outlined(t *toolkeep.Tool, m *toolkeep.Manifest, body *pack.Manifest) *toolkeep.Tool {
	o := *t
	o.Raw, o.Manifest = nil, pack.Outline(m)
	r.complete(&o, body)
	return &o
}

// complete gives an outline its defaults and what it lacks.
func (r *reader) complete(t *toolkeep.Tool, body *pack.Manifest) {
	m := t.Manifest
	m.ToolID, m.Version, t.Packed = t.ID, t.Version, &packed{body, r} // one text in memory
	retry, cache, result := m.Retry == nil, m.Cache == nil, m.Result == nil
	r.defaults.fill(m)
	if retry {
		m.Retry = r.retry
	}
	if cache {
		m.Cache = r.cache
	}
	if result && m.Execution.Kind == "mcp" {
		m.Result = r.resultOfMCP
	} else if result {
		m.Result = r.result
	}
}

// maxSems bounds the version numbers that tools share: most have one of few.
const maxSems = 1024

func (r *reader) sem(text string) (*semver.Version, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sem := r.sems[text]; sem != nil {
		return sem, nil
	}
	sem, err := semver.StrictNewVersion(text)
	if err == nil && len(r.sems) < maxSems {
		r.sems[text] = sem
	}
	return sem, err
}
