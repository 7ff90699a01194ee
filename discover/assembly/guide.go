package assembly

import (
	"context"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Search finds tools; discover.Index is one.
type Search interface {
	Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report)
	// Tools gives every tool that visible lets through.
	Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool
}

// Usage is what is learned of a tool from how one tenant used it. Its methods answer
// from memory. They may name tools that the asking principal does not see: the
// caller looks each up among the visible ones.
type Usage interface {
	// Pairings are tools that are called in the same conversations as tool, those with
	// the highest score first, at most n.
	Pairings(tenant, tool string, n int) []Pairing
	// Failures are the errors that tool gave, the most frequent first.
	Failures(tenant, tool string) []SeenError
}

// Pairing is a tool that is called together with another.
type Pairing struct {
	ToolID   string
	Score    float64 // 0 to 1: how often together, of how often at all
	Sequence string  // before, after or parallel: when ToolID is called, seen from the other
}

// SeenError is an error that a tool gave.
type SeenError struct {
	Code       toolkeep.Code
	Count      int
	Resolution string // what mostly helped, "" if nothing is known; names no tool
}

// Guide makes contexts and finds related tools for a caller. Its methods are safe
// for concurrent use.
type Guide struct {
	Search  Search
	Usage   Usage   // nil: manifests alone
	Budgets Budgets // of the phases
	Shares  Shares  // how near a tool must be
}

// Asker is for whom a Guide answers.
type Asker struct {
	Session discover.Session
	// Visible lets through the tools that exist for the asker; it is never nil.
	Visible  func(*toolkeep.Tool) bool
	Audience string // what Visible depends on, as discover.Query has it
}

// Gather fills in what a request is answered from: the visible tools, those that a
// search for its question finds, what is learned of them, and the budgets. What it
// gives can be built in several formats.
func (g *Guide) Gather(ctx context.Context, r Request, a Asker) Request {
	if r.Query == "" {
		r.Query = discover.PlainQuestion(toolkeep.ClipBytes(Query(r.Messages), maxQuestion))
	}
	r.All = g.Search.Tools(a.Visible)
	if strings.TrimSpace(r.Query) != "" {
		var report discover.Report
		r.Found, report = g.Search.Find(ctx, discover.Query{Text: r.Query, Limit: discover.MaxResults, Session: a.Session, Audience: a.Audience}, a.Visible)
		r.Degraded = report.Degraded
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

// maxQuestion is how many bytes of a user's message are searched for.
const maxQuestion = 2000

// Context is what a model is shown. E3312 for a request that contradicts itself or is
// over a bound.
func (g *Guide) Context(ctx context.Context, r Request, a Asker) (*Context, error) {
	return Build(g.Gather(ctx, r, a))
}

// Relationship is how tools are related (Discovery 4.1).
type Relationship string

// Relationships.
const (
	Dependencies Relationship = "dependencies" // tools that must be called or be there first
	Pairings     Relationship = "pairings"     // tools that are called before, after or beside
	Alternatives Relationship = "alternatives" // tools that do the like
)

// Bounds of a list of related tools.
const (
	DefaultRelated = 3
	MaxRelated     = 10
)

// Related is a tool that is related to another.
type Related struct {
	Tool *toolkeep.Tool
	// Score is 1 for what the manifest names; for a learned pairing how often both are
	// called together, below 1; for a tool that was found because it is alike, how
	// much of the other's own score it has, below 1.
	Score    float64
	Together float64 // of a pairing: the score that was learned, 0 if none was
	Sequence string  // of a pairing: before, after or parallel; "" if the manifest does not say
	Source   string  // manifest, usage or search
}

// Sources of relationships.
const (
	FromManifest = "manifest"
	FromUsage    = "usage"
	FromSearch   = "search"
)

// Related gives the tools of one kind of relationship that the asker sees: those
// that the manifest names, in its order, then what was learned or found, best first. limit
// is 1 to 10; 0 is 3.
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

// Relations are the tools that are known to be related to one, without a search.
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

// Named are the tools that the asker sees and that a tool's manifest names, and those that are called
// with it, at most 10 of those learned.
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
	// One pass over the tools: those that were not named are not asked about.
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

// declared tells whether the manifest itself names the tool.
func declared(list []Related, t *toolkeep.Tool) bool {
	return slices.ContainsFunc(list, func(r Related) bool { return r.Tool.ID == t.ID && r.Source == FromManifest })
}

// refID is the tool of a reference, which may end in @range.
func refID(ref string) string {
	id, _, _ := strings.Cut(ref, "@")
	return id
}

// below1 keeps what is learned below what a manifest says.
func below1(score float64) float64 { return min(max(score, 0), 0.999) }

// The share of a tool's own score that another has at least to do the like, with meanings
// and by words alone, of which even likes share fewer.
const (
	likeEnough  = 0.5
	likeByWords = 0.4
)

// alike finds visible tools that do what a tool does, best first: a search for what it
// says of itself, where it finds itself first, measures the others by its own score.
func (g *Guide) alike(ctx context.Context, of *toolkeep.Tool, limit int, a Asker) []Related {
	// It belongs to no conversation: what was called before must not change what is alike.
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

// purpose is what a tool does, in a few words, so that it is one wish for the search.
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
