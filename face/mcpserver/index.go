package mcpserver

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/mcp"
)

// index is what one tenant's principals may be shown of one snapshot of the
// catalogue. It is built once a snapshot and tenant and never modified.
type index struct {
	of     *catalog.Snapshot
	tools  []*entry // sorted by name
	byName map[string]*entry
	byID   map[string]*entry

	upstream sync.Once // fills origin when a relay view first asks
	origin   map[string]map[string]*entry
}

// entry is one tool.
type entry struct {
	id, name string
	active   []*shownTool // the one that Resolve would give first
	any      *shownTool   // of a tool that has no active version: its newest
}

// shownTool is one version with its definition, which is rendered when first
// listed and kept as long as the version is in the catalogue.
type shownTool struct {
	tool *toolkeep.Tool
	def  atomic.Pointer[definition]
}

// maxIndexes bounds how many tenants have one; above that all are built again.
const maxIndexes = 1000

type indexes struct {
	mu    sync.Mutex
	byTen map[string]*index
}

func (x *indexes) init() { x.byTen = map[string]*index{} }

// index gives the present one of a tenant.
func (s *Server) index(tenant string) *index {
	now := s.c.Catalog.Snapshot()
	x := &s.indexes
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.byTen[tenant]
	if old != nil && old.of == now {
		return old
	}
	if len(x.byTen) >= maxIndexes {
		clear(x.byTen)
	}
	ix := buildIndex(now, tenant, old, func(name, id, other string) {
		s.log.Error("two tools have one MCP name; only the first can be called by it", "name", name, "tool", other, "hidden", id)
	})
	x.byTen[tenant] = ix
	return ix
}

func buildIndex(of *catalog.Snapshot, tenant string, old *index, collide func(name, id, other string)) *index {
	ix := &index{of: of, byName: map[string]*entry{}, byID: map[string]*entry{}}
	rendered := map[*toolkeep.Tool]*shownTool{}
	if old != nil {
		for _, e := range old.byID {
			for _, t := range e.active {
				rendered[t.tool] = t
			}
		}
	}
	shown := func(t *toolkeep.Tool) *shownTool {
		if have := rendered[t]; have != nil {
			return have
		}
		return &shownTool{tool: t}
	}
	var e *entry
	var owner string
	done := func() {
		if e == nil {
			return
		}
		// Highest first, stable before prerelease, as Resolve prefers.
		slices.Reverse(e.active)
		slices.SortStableFunc(e.active, func(a, b *shownTool) int { return prerelease(a) - prerelease(b) })
		if len(e.active) > 0 {
			e.any = e.active[0]
		}
		ix.enter(e, collide)
	}
	for v := range of.All() {
		t := v.Tool
		if t.Tenant != "" && t.Tenant != tenant {
			continue
		}
		if e == nil || e.id != t.ID {
			done()
			e, owner = &entry{id: t.ID}, t.Tenant
		}
		if t.Tenant != owner {
			continue // the shared tool hides the tenant's own
		}
		if v.Life.State == toolkeep.Active {
			e.active = append(e.active, shown(t))
		} else {
			e.any = shown(t)
		}
	}
	done()
	slices.SortFunc(ix.tools, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	return ix
}

func prerelease(t *shownTool) int {
	v, err := semver.StrictNewVersion(t.tool.Version)
	if err == nil && v.Prerelease() == "" {
		return 0
	}
	return 1
}

func (ix *index) enter(e *entry, collide func(name, id, other string)) {
	ix.byID[e.id] = e
	e.name = mcp.ToolName(e.id)
	if ix.byName[e.name] != nil {
		// A long id's name may be another's by intent; then the later one by id gets
		// a name of its own.
		e.name = mcp.NameWithHash(e.id)
	}
	if other := ix.byName[e.name]; other != nil {
		collide(e.name, e.id, other.id)
	} else {
		ix.byName[e.name] = e
	}
	ix.tools = append(ix.tools, e)
}

// pick is the version that stands for the tool in a list, nil if there is none
// for the caller.
func (e *entry) pick(visible func(*toolkeep.Tool) bool) *shownTool {
	for _, t := range e.active {
		if visible(t.tool) {
			return t
		}
	}
	return nil
}

// newest is the version whose manifest speaks for the tool even if none is
// active.
func (e *entry) newest() *toolkeep.Tool { return e.any.tool }

// of gives the tools of kind mcp by the name that their upstream has for them.
func (ix *index) ofUpstream(server string) map[string]*entry {
	ix.upstream.Do(func() {
		ix.origin = map[string]map[string]*entry{}
		for _, e := range ix.tools {
			name, tool, ok := upstreamOf(e.newest())
			if !ok {
				continue
			}
			if ix.origin[name] == nil {
				ix.origin[name] = map[string]*entry{}
			}
			ix.origin[name][tool] = e
		}
	})
	return ix.origin[server]
}

// upstreamOf reads the binding of a tool of kind mcp.
func upstreamOf(t *toolkeep.Tool) (server, tool string, ok bool) {
	x := t.Manifest.Execution
	if x.Kind != kindMCP {
		return "", "", false
	}
	server, tool = mcp.Text(x.Binding, "server"), mcp.Text(x.Binding, "tool")
	return server, tool, server != "" && tool != ""
}

const kindMCP = "mcp"
