package catalog

import (
	"iter"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Page limits of List.
const (
	DefaultPage = 50
	MaxPage     = 1000
)

// Filter selects tools. Empty fields do not filter.
type Filter struct {
	Category          string
	Tags              []string // all of them
	Capability        string
	Namespace         string // the part of the id before the dot
	Folder            string // the version that is shown was published from the folder of this name
	IncludeDeprecated bool   // also deprecated tools and versions
	// Among, if not nil, are the ids to list, in this order; else all tools are listed, by id.
	Among []string
	// Keep, if not nil, is asked last about the version that represents each tool; false leaves the tool out. It must not change what it is given.
	Keep func(toolkeep.Version) bool
	// Sort is SortID or SortPublished, with - before it for the reverse; "" is by id, or the order of Among.
	Sort   string
	Offset int
	Limit  int // default 50, at most 1,000
}

// Orders of a list.
const (
	SortID        = "id"
	SortPublished = "published" // when the version that represents the tool was published
)

// Summary is one tool in a list, from its latest version.
type Summary struct {
	ToolID           string                `json:"tool_id"`
	ToolName         string                `json:"tool_name,omitempty"`
	Description      string                `json:"description"`
	ShortDescription string                `json:"short_description,omitempty"`
	Category         string                `json:"category"`
	Versions         []string              `json:"versions"` // highest first; active ones, and deprecated ones if requested
	LatestVersion    string                `json:"latest_version"`
	Tags             []string              `json:"tags,omitempty"`
	RequiresApproval bool                  `json:"requires_approval"`
	State            toolkeep.VersionState `json:"state"`          // of the latest version
	Held             *toolkeep.Hold        `json:"held,omitempty"` // if the latest version is held
	SideEffects      string                `json:"side_effects"`
	Risk             string                `json:"risk"`
	Source           string                `json:"source"` // kind of the executor
}

// List returns a page of the tools of the principal's tenant and of all tenants with a version that visible admits,
// ordered by id unless f.Among or f.Sort orders them, and the total count. Sunset, blocked and removed versions are never listed.
func (c *Catalog) List(p *toolkeep.Principal, f Filter, visible func(*toolkeep.Tool) bool) ([]Summary, int) {
	if f.Limit <= 0 {
		f.Limit = DefaultPage
	}
	f.Limit = min(f.Limit, MaxPage)
	f.Offset = max(f.Offset, 0)

	s := c.current.Load()
	tenant := tenantOf(p)
	var all []representation
	for e := range s.tools(tenant, f.Among) {
		if f.Namespace != "" && !inNamespace(e.key.id, f.Namespace) {
			continue
		}
		// visible costs more than a look at the manifests.
		if !slices.ContainsFunc(e.versions, func(v *version) bool { return f.matches(v.Tool.Manifest) }) {
			continue
		}
		latest := e.represented(f, visible)
		if latest == nil || !f.matches(latest.Tool.Manifest) || f.Folder != "" && latest.Life.Folder != f.Folder {
			continue
		}
		if f.Keep == nil || f.Keep(latest.Version) {
			all = append(all, representation{e, latest})
		}
	}
	f.sort(all)
	from := min(f.Offset, len(all))
	page := make([]Summary, min(f.Limit, len(all)-from))
	for i := range page {
		page[i] = all[from+i].entry.summary(all[from+i].latest, f, visible)
	}
	return page, len(all)
}

// representation is a tool with the version that represents it.
type representation struct {
	entry  *entry
	latest *version
}

func (f *Filter) sort(all []representation) {
	order, reverse := strings.CutPrefix(f.Sort, "-")
	var compare func(a, b representation) int
	switch order {
	case SortID:
		compare = func(a, b representation) int { return strings.Compare(a.entry.key.id, b.entry.key.id) }
	case SortPublished:
		compare = func(a, b representation) int { return a.latest.Life.PublishedAt.Compare(b.latest.Life.PublishedAt) }
	default:
		return
	}
	slices.SortStableFunc(all, func(a, b representation) int {
		if reverse {
			a, b = b, a
		}
		return compare(a, b)
	})
}

// tools yields the tools of a tenant and of all tenants: those among the ids, or all of them by id if among is nil.
func (s *Snapshot) tools(tenant string, among []string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if among != nil {
			for _, id := range among {
				if e := s.find(tenant, id, nil); e != nil && !yield(e) {
					return
				}
			}
			return
		}
		for i, k := range s.order {
			if k.tenant != "" && k.tenant != tenant {
				continue
			}
			// Keys of one id are adjacent; the shared one comes first and hides the other.
			if k.tenant != "" && s.entry(toolKey{id: k.id}) != nil && i > 0 {
				continue
			}
			if !yield(s.entry(*k)) {
				return
			}
		}
	}
}

// represented returns the version that represents the tool in a list.
func (e *entry) represented(f Filter, visible func(*toolkeep.Tool) bool) *version {
	if v := e.latest; v != nil && (visible == nil || visible(v.Tool)) {
		return v
	}
	var best *version
	for _, v := range slices.Backward(e.versions) {
		if !f.shows(v) || (visible != nil && !visible(v.Tool)) {
			continue
		}
		if best == nil || better(v, best) {
			best = v
		}
	}
	return best
}

// better orders like Resolve: stable before prerelease, active before deprecated.
func better(v, than *version) bool {
	if v.stable() != than.stable() {
		return v.stable()
	}
	return v.state() == toolkeep.Active && than.state() != toolkeep.Active
}

func (f *Filter) shows(v *version) bool {
	return v.state() == toolkeep.Active || f.IncludeDeprecated && v.state() == toolkeep.Deprecated
}

func (f *Filter) matches(m *toolkeep.Manifest) bool {
	return (f.Category == "" || m.Category == f.Category) &&
		m.HasTags(f.Tags) &&
		(f.Capability == "" || slices.Contains(m.Capabilities, f.Capability))
}

func inNamespace(id, namespace string) bool {
	rest, ok := strings.CutPrefix(id, namespace)
	return ok && strings.HasPrefix(rest, ".")
}

func (e *entry) summary(latest *version, f Filter, visible func(*toolkeep.Tool) bool) Summary {
	m := latest.Tool.Manifest
	s := Summary{
		ToolID: latest.Tool.ID, ToolName: m.ToolName, Description: m.Description, ShortDescription: m.ShortDescription,
		Category: m.Category, LatestVersion: latest.Tool.Version, Tags: m.Tags, RequiresApproval: m.RequiresApproval,
		State: latest.state(), Held: latest.Life.Held, SideEffects: m.SideEffects, Risk: m.Risk,
		Source: m.Execution.Kind,
	}
	for _, v := range slices.Backward(e.versions) {
		if f.shows(v) && (visible == nil || visible(v.Tool)) {
			s.Versions = append(s.Versions, v.Tool.Version)
		}
	}
	return s
}

// Highest returns the highest version of a tool in any state, nil if there is none: an import continues from its
// number, even if it is blocked.
func (c *Catalog) Highest(p *toolkeep.Principal, toolID string) *toolkeep.Tool {
	all, err := c.Versions(p, toolID, func(*toolkeep.Tool) bool { return true })
	if err != nil || len(all) == 0 {
		return nil
	}
	if t, err := all[0].Tool.Whole(); err == nil {
		return t
	}
	return all[0].Tool // damaged: Publish refuses to compare with it
}

// Versions returns every version of a tool that visible admits, in every state, highest first, with outlines.
//
// Errors: E3001.
func (c *Catalog) Versions(p *toolkeep.Principal, toolID string, visible func(*toolkeep.Tool) bool) ([]toolkeep.Version, error) {
	by := &viewer{c.current.Load(), p, visible}
	e := by.of.find(tenantOf(p), toolID, visible)
	if e == nil {
		return nil, notFound(toolID)
	}
	seen := e.visible(visible)
	if len(seen) == 0 {
		return nil, notFound(toolID)
	}
	out := make([]toolkeep.Version, len(seen))
	for i, v := range seen {
		out[i] = by.version(v)
	}
	return out, nil
}
