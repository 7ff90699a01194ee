package assembly

import (
	"context"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Search finds tools; discover.Index implements it.
type Search interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
	// Tools returns every tool for which visible is true.
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
}

// Usage is what one tenant's calls taught about a tool. Its methods answer from memory. They may
// name tools that the principal does not see: the caller looks each up among the visible ones.
type Usage interface {
	// Pairings returns at most n tools called in the same conversations as tool, highest score
	// first.
	Pairings(tenant, tool string, n int) []Pairing
	// Failures returns the errors that tool returned, most frequent first.
	Failures(tenant, tool string) []SeenError
}

// Pairing is a tool that is called together with another.
type Pairing struct {
	ToolID   string
	Score    float64 // 0 to 1: joint calls as a share of all calls
	Sequence string  // before, after or parallel: when ToolID is called relative to the other
}

// SeenError is an error that a tool returned.
type SeenError struct {
	Code       toolkeep.Code
	Count      int
	Resolution string // the usual remedy, "" if unknown; names no tool
}

// Guide builds contexts and finds related tools for a caller. Its methods are safe for concurrent
// use.
type Guide struct {
	Search  Search
	Usage   Usage   // nil: only manifests are used
	Budgets Budgets // of the phases
	Shares  Shares  // thresholds for near tools
}

// Asker is the principal a Guide answers.
type Asker struct {
	Session discover.Session
	// Visible reports whether a tool exists for the asker; it is never nil.
	Visible  func(*toolkeep.Tool) bool
	Audience string // what Visible depends on, as in discover.Query
}

// Gather fills in the data for a request: the visible tools, the search results for its query, what
// was learned about them, and the budgets. The result can be built in several formats.
func (g *Guide) Gather(ctx context.Context, r Request, a Asker) Request {
	if r.Query == "" {
		r.Query = discover.PlainQuery(Query(r.Messages))
	}
	r.All = g.Search.Tools(a.Visible)
	if strings.TrimSpace(r.Query) != "" {
		var report discover.Report
		r.Found, report = g.Search.Find(ctx, discover.Query{Text: r.Query, Limit: discover.MaxResults, Session: a.Session, Audience: a.Audience}, a.Visible)
		r.Degraded, r.Cut = report.Degraded, report.Cut
	}
	r.Budgets, r.Shares = g.Budgets, g.Shares
	r.Alike = func(tool *toolkeep.Tool, limit int) (out []*toolkeep.Tool) {
		for _, one := range g.alike(ctx, tool, limit, a) {
			out = append(out, one.Tool)
		}
		return out
	}
	if g.Usage != nil {
		r.Pairings = func(tool string, n int) []Pairing { return g.Usage.Pairings(a.Session.Tenant, tool, n) }
		r.Failures = func(tool string) []SeenError { return g.Usage.Failures(a.Session.Tenant, tool) }
	}
	return r
}

// Context returns what a model is shown. E3312 for a request that contradicts itself or exceeds a
// limit.
func (g *Guide) Context(ctx context.Context, r Request, a Asker) (*Context, error) {
	return Build(g.Gather(ctx, r, a))
}

// Relationship is how tools are related (Discovery 4.1).
type Relationship string

// Relationships.
const (
	Dependencies Relationship = "dependencies" // tools that must be called or exist first
	Pairings     Relationship = "pairings"     // tools called before, after or in parallel
	Alternatives Relationship = "alternatives" // tools that do something similar
)

// Limits of a list of related tools.
const (
	DefaultRelated = 3
	MaxRelated     = 10
)

// Related is a tool that is related to another.
type Related struct {
	Tool *toolkeep.Tool
	// Score is 1 for tools the manifest names; for a learned pairing it is how often both are
	// called together, below 1; for a similar tool it is its share of the other's own score, below
	// 1.
	Score    float64
	Together float64 // of a pairing: the learned score, 0 if there is none
	Sequence string  // of a pairing: before, after or parallel; "" if the manifest does not say
	Source   string  // manifest, usage or search
}

// Sources of relationships.
const (
	FromManifest = "manifest"
	FromUsage    = "usage"
	FromSearch   = "search"
)

// Related returns the tools of one kind of relationship that the asker sees: those the manifest
// names, in its order, then those learned or found, best first. limit is 1 to 10; 0 means 3.
func (g *Guide) Related(ctx context.Context, of *toolkeep.Tool, kind Relationship, limit int, a Asker) []Related {
	if limit <= 0 {
		limit = DefaultRelated
	}
	limit = min(limit, MaxRelated)
	known := g.Named(of, a)
	out := known.list(kind)
	if kind == Alternatives && len(out) < limit {
		for _, r := range g.alike(ctx, of, MaxRelated, a) {
			if !has(known.Alternatives, r.Tool) && !has(known.Dependencies, r.Tool) && !declared(known.Pairings, r.Tool) {
				out = append(out, r)
			}
		}
	}
	return out[:min(len(out), limit)]
}

// Relations are a tool's known related tools, without a search.
type Relations struct {
	Dependencies, Pairings, Alternatives []Related
}

func (r Relations) list(kind Relationship) []Related {
	switch kind {
	case Dependencies:
		return r.Dependencies
	case Pairings:
		return r.Pairings
	case Alternatives:
		return r.Alternatives
	}
	return nil
}

// Named returns the visible tools that a tool's manifest names, and those called together with it,
// at most 10 of those learned.
func (g *Guide) Named(of *toolkeep.Tool, a Asker) Relations {
	m := read[relationships](of.Manifest.Relationships)
	var learned []Pairing
	if g.Usage != nil {
		learned = g.Usage.Pairings(a.Session.Tenant, of.ID, MaxRelated)
	}
	wanted := map[string]*toolkeep.Tool{}
	want := func(ref string) {
		if id := refID(ref); id != of.ID {
			wanted[id] = nil
		}
	}
	for _, ref := range slices.Concat(m.Dependencies, m.Alternatives) {
		want(ref)
	}
	for _, p := range m.Pairings {
		want(p.ToolID)
	}
	for _, p := range learned {
		want(p.ToolID)
	}
	var r Relations
	if len(wanted) == 0 {
		return r
	}
	// One pass over the tools; visibility is checked only for named ones.
	for _, t := range g.Search.Tools(func(t *toolkeep.Tool) bool { _, ok := wanted[t.ID]; return ok && a.Visible(t) }) {
		if wanted[t.ID] == nil || t.Tenant == "" {
			wanted[t.ID] = t
		}
	}
	add := func(to *[]Related, ref string, one Related) {
		if one.Tool = wanted[refID(ref)]; one.Tool != nil && !has(*to, one.Tool) {
			*to = append(*to, one)
		}
	}
	for _, ref := range m.Dependencies {
		add(&r.Dependencies, ref, Related{Score: 1, Source: FromManifest})
	}
	for _, p := range m.Pairings {
		add(&r.Pairings, p.ToolID, Related{Score: 1, Sequence: p.Sequence, Source: FromManifest})
	}
	for _, p := range learned {
		score := below1(p.Score)
		add(&r.Pairings, p.ToolID, Related{Score: score, Sequence: sequenceOf(p.Sequence), Source: FromUsage})
		for i := range r.Pairings {
			if r.Pairings[i].Tool.ID == p.ToolID {
				r.Pairings[i].Together = score
			}
		}
	}
	for _, ref := range m.Alternatives {
		add(&r.Alternatives, ref, Related{Score: 1, Source: FromManifest})
	}
	return r
}

func has(list []Related, t *toolkeep.Tool) bool {
	return slices.ContainsFunc(list, func(r Related) bool { return r.Tool.ID == t.ID })
}

// declared reports whether the manifest itself names the tool.
func declared(list []Related, t *toolkeep.Tool) bool {
	return slices.ContainsFunc(list, func(r Related) bool { return r.Tool.ID == t.ID && r.Source == FromManifest })
}

// refID returns the tool id of a reference, which may end in @range.
func refID(ref string) string {
	id, _, _ := strings.Cut(ref, "@")
	return id
}

// below1 keeps learned scores below those from a manifest.
func below1(score float64) float64 { return min(max(score, 0), 0.999) }

// The minimum share of a tool's own score that a similar tool needs, with embeddings and by words
// alone; word scores of similar tools share less.
const (
	likeEnough  = 0.5
	likeByWords = 0.4
)

// alike finds visible tools similar to a tool, best first: it searches for the tool's own purpose,
// and measures the others by the score of the tool itself.
func (g *Guide) alike(ctx context.Context, of *toolkeep.Tool, limit int, a Asker) []Related {
	// The search has no session: earlier calls must not change what is similar.
	found, report := g.Search.Find(ctx, discover.Query{Text: purpose(of), Limit: limit + 1, Session: discover.Session{Tenant: a.Session.Tenant}, Audience: a.Audience}, a.Visible)
	own := 0.0
	for _, m := range found {
		if m.Tool.ID == of.ID {
			own = m.Score
		}
		own = max(own, m.Score)
	}
	least := likeEnough
	if report.Strategy == discover.Keyword {
		least = likeByWords
	}
	var out []Related
	for _, m := range found {
		share := m.Score / max(own, 1e-9)
		if m.Tool.ID == of.ID || share < least || len(out) == limit || has(out, m.Tool) {
			continue
		}
		out = append(out, Related{Tool: m.Tool, Score: below1(share), Source: FromSearch})
	}
	return out
}

// purpose describes a tool in a few words, so that search sees a single request.
func purpose(t *toolkeep.Tool) string {
	m := t.Manifest
	text := oneLine(m.ShortDescription)
	if text == "" {
		text = oneLine(toolkeep.ClipBytes(m.Description, 1000))
		if i := strings.Index(text, ". "); i > 20 {
			text = text[:i]
		}
	}
	return toolkeep.ClipBytes(text, 300)
}
