package mcpserver

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/mcp"
)

// indexes keep MCP's view of the catalogue up to date. The tools of each owner are stored once, for
// all principals, and changes are applied at the next request.
type indexes struct {
	collide func(name, id, other string)
	current atomic.Pointer[parts]

	mu      sync.Mutex
	noted   *catalog.Snapshot // changes up to this snapshot are in changed, or need a full scan
	changed map[owned][]toolkeep.Version
	all     bool // a full scan is due
}

// maxChanged bounds the pending changes; above it the whole catalogue is scanned again.
const maxChanged = 256

type owned struct{ owner, id string }

// parts are the tools of one snapshot by owner, "" for shared tools. They are immutable.
type parts struct {
	of      *catalog.Snapshot
	byOwner map[string]*part
	views   sync.Map // *index by tenant
}

// note records what is new in a snapshot. It is called with each snapshot, in order.
func (x *indexes) note(s *catalog.Snapshot) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.noted == s {
		return
	}
	before := x.noted
	x.noted = s
	if x.all || before == nil {
		x.all = true
		return
	}
	versions, ok := s.Changed(before.Seq())
	if !ok {
		x.all, x.changed = true, nil
		return
	}
	fresh := map[owned][]toolkeep.Version{}
	for v := range versions {
		k := owned{v.Tool.Tenant, v.Tool.ID}
		fresh[k] = append(fresh[k], v)
	}
	if x.changed == nil {
		x.changed = fresh
	} else {
		maps.Copy(x.changed, fresh)
	}
	if len(x.changed) > maxChanged {
		x.all, x.changed = true, nil
	}
}

// parts returns the parts of the current snapshot.
func (x *indexes) parts(c Catalog) *parts {
	have := x.current.Load()
	if have != nil && have.of == c.Snapshot() {
		return have
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := c.Snapshot()
	if have = x.current.Load(); have != nil && have.of == now {
		return have
	}
	if x.noted != now { // note has not been called with this snapshot yet
		x.noted, x.all = now, true
	}
	next := &parts{of: now}
	if have == nil || x.all {
		next.byOwner = x.whole(now, have)
	} else {
		next.byOwner = maps.Clone(have.byOwner)
		byOwner := map[string][]*entry{}
		for k, versions := range x.changed {
			byOwner[k.owner] = append(byOwner[k.owner], newEntry(versions, have.byOwner[k.owner].id(k.id)))
		}
		for owner, list := range byOwner {
			next.byOwner[owner] = have.byOwner[owner].with(list, x.collide)
		}
	}
	x.changed, x.all = nil, false
	x.current.Store(next)
	return next
}

// whole scans every version.
func (x *indexes) whole(now *catalog.Snapshot, have *parts) map[string]*part {
	lists := map[string][]*entry{}
	var versions []toolkeep.Version
	done := func() {
		if len(versions) == 0 {
			return
		}
		t := versions[0].Tool
		var old *entry
		if have != nil {
			old = have.byOwner[t.Tenant].id(t.ID)
		}
		lists[t.Tenant] = append(lists[t.Tenant], newEntry(versions, old))
		versions = versions[:0]
	}
	for v := range now.All() {
		if len(versions) > 0 && (versions[0].Tool.ID != v.Tool.ID || versions[0].Tool.Tenant != v.Tool.Tenant) {
			done()
		}
		versions = append(versions, v)
	}
	done()
	out := make(map[string]*part, len(lists))
	for owner, list := range lists {
		out[owner] = newPart(list, nil, x.collide)
	}
	return out
}

// index returns what a tenant's principals may be shown of the current snapshot.
func (s *Server) index(tenant string) *index {
	p := s.indexes.parts(s.c.Catalog)
	if v, ok := p.views.Load(tenant); ok {
		return v.(*index)
	}
	v, _ := p.views.LoadOrStore(tenant, newIndex(p, tenant, s.indexes.collide))
	return v.(*index)
}

// index is what one tenant sees: the shared tools, and those of its own tools that they do not
// shadow.
type index struct {
	shared, own *part // nil: no tools

	upstream sync.Once // fills origin
	origin   map[string]map[string]*entry
}

func newIndex(p *parts, tenant string, collide func(name, id, other string)) *index {
	ix := &index{shared: p.byOwner[""]}
	own := p.byOwner[tenant]
	if tenant == "" || own == nil {
		return ix
	}
	hidden := false
	for _, e := range own.tools {
		hidden = hidden || ix.shared.id(e.id) != nil || ix.shared.name(e.name) != nil
	}
	if ix.own = own; !hidden {
		return ix
	}
	var list []*entry
	for _, e := range own.tools {
		if ix.shared.id(e.id) == nil {
			other := *e // in other tenants it has another name or none
			list = append(list, &other)
		}
	}
	ix.own = newPart(list, ix.shared, collide)
	return ix
}

func (ix *index) id(id string) *entry {
	if e := ix.shared.id(id); e != nil {
		return e
	}
	return ix.own.id(id)
}

func (ix *index) name(name string) *entry {
	if e := ix.shared.name(name); e != nil {
		return e
	}
	return ix.own.name(name)
}

// tools yields all tools by name.
func (ix *index) tools() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		a, b := ix.shared.list(), ix.own.list()
		for len(a)+len(b) > 0 {
			from := &a
			if len(a) == 0 || len(b) > 0 && b[0].name < a[0].name {
				from = &b
			}
			if !yield((*from)[0]) {
				return
			}
			*from = (*from)[1:]
		}
	}
}

// ofUpstream returns the tools of kind mcp by the name their upstream uses.
func (ix *index) ofUpstream(server string) map[string]*entry {
	own := ix.own.ofUpstream(server)
	if len(own) == 0 {
		return ix.shared.ofUpstream(server)
	}
	ix.upstream.Do(func() {
		ix.origin = map[string]map[string]*entry{}
		for name, tools := range ix.own.origin {
			both := maps.Clone(tools)
			maps.Copy(both, ix.shared.ofUpstream(name))
			ix.origin[name] = both
		}
	})
	return ix.origin[server]
}

// part is the tools of one owner. It is immutable; a nil part has no tools.
type part struct {
	tools  []*entry // sorted by name
	byName map[string]*entry
	byID   map[string]*entry

	upstream sync.Once // fills origin at the first request of a relay view
	origin   map[string]map[string]*entry
}

// newPart names the tools so that no name collides with one in beside.
func newPart(list []*entry, beside *part, collide func(name, id, other string)) *part {
	p := &part{byName: make(map[string]*entry, len(list)), byID: make(map[string]*entry, len(list))}
	taken := func(name string) *entry {
		if e := p.byName[name]; e != nil {
			return e
		}
		return beside.name(name)
	}
	slices.SortFunc(list, func(a, b *entry) int { return strings.Compare(a.id, b.id) })
	for _, e := range list {
		p.byID[e.id] = e
		e.name = mcp.ToolName(e.id)
		if taken(e.name) != nil {
			// A long id may be chosen so that its name collides with another; then the later id
			// gets a name with its hash.
			e.name = mcp.NameWithHash(e.id)
		}
		if other := taken(e.name); other != nil {
			collide(e.name, e.id, other.id)
		} else {
			p.byName[e.name] = e
		}
	}
	p.tools = list
	slices.SortStableFunc(p.tools, byEntryName)
	return p
}

func byEntryName(a, b *entry) int { return strings.Compare(a.name, b.name) }

// with returns the part with some tools added or changed; list has no names yet.
func (p *part) with(list []*entry, collide func(name, id, other string)) *part {
	if p == nil {
		return newPart(list, nil, collide)
	}
	next := &part{tools: slices.Clone(p.tools), byName: maps.Clone(p.byName), byID: maps.Clone(p.byID)}
	for _, e := range list {
		old := p.byID[e.id]
		if old == nil {
			e.name = mcp.ToolName(e.id)
		} else {
			e.name = old.name
		}
		if next.byName[e.name] != old {
			return p.renamed(list, collide) // names depend on all tools that compete for them
		}
		next.byID[e.id], next.byName[e.name] = e, e
		if i, _ := slices.BinarySearchFunc(next.tools, e, byEntryName); old != nil {
			next.tools[i] = e
		} else {
			next.tools = slices.Insert(next.tools, i, e)
		}
	}
	return next
}

// renamed is like with, but names all tools again.
func (p *part) renamed(list []*entry, collide func(name, id, other string)) *part {
	byID := make(map[string]*entry, len(p.byID)+len(list))
	for id, e := range p.byID {
		same := *e
		byID[id] = &same
	}
	for _, e := range list {
		byID[e.id] = e
	}
	return newPart(slices.Collect(maps.Values(byID)), nil, collide)
}

func (p *part) id(id string) *entry {
	if p == nil {
		return nil
	}
	return p.byID[id]
}

func (p *part) name(name string) *entry {
	if p == nil {
		return nil
	}
	return p.byName[name]
}

func (p *part) list() []*entry {
	if p == nil {
		return nil
	}
	return p.tools
}

func (p *part) ofUpstream(server string) map[string]*entry {
	if p == nil {
		return nil
	}
	p.upstream.Do(func() {
		p.origin = map[string]map[string]*entry{}
		for _, e := range p.tools {
			name, tool, ok := upstreamOf(e.newest())
			if !ok {
				continue
			}
			if p.origin[name] == nil {
				p.origin[name] = map[string]*entry{}
			}
			p.origin[name][tool] = e
		}
	})
	return p.origin[server]
}

// entry is one tool.
type entry struct {
	id, name string
	active   []*shownTool // the version Resolve prefers is first
	any      *shownTool   // the newest version, if no version is active
}

// shownTool is one version with its definition, which is rendered when first listed and kept as
// long as the version is in the catalogue.
type shownTool struct {
	tool *toolkeep.Tool
	def  atomic.Pointer[definition]
}

// newEntry reads the versions of a tool, lowest first. old is the tool's previous entry, nil for a
// new tool.
func newEntry(versions []toolkeep.Version, old *entry) *entry {
	e := &entry{id: versions[0].Tool.ID}
	shown := func(t *toolkeep.Tool) *shownTool {
		if old != nil {
			for _, have := range old.active {
				if have.tool == t {
					return have
				}
			}
		}
		return &shownTool{tool: t}
	}
	for _, v := range versions {
		if v.Life.State == toolkeep.Active {
			e.active = append(e.active, shown(v.Tool))
		} else {
			e.any = shown(v.Tool)
		}
	}
	// Highest first, stable before prerelease, like Resolve.
	slices.Reverse(e.active)
	slices.SortStableFunc(e.active, func(a, b *shownTool) int { return prerelease(a) - prerelease(b) })
	if len(e.active) > 0 {
		e.any = e.active[0]
	}
	return e
}

func prerelease(t *shownTool) int {
	v, err := semver.StrictNewVersion(t.tool.Version)
	if err == nil && v.Prerelease() == "" {
		return 0
	}
	return 1
}

// pick returns the version that represents the tool in a list, nil if the caller sees none.
func (e *entry) pick(visible func(*toolkeep.Tool) bool) *shownTool {
	for _, t := range e.active {
		if visible(t.tool) {
			return t
		}
	}
	return nil
}

// newest returns the version whose manifest represents the tool even if none is active.
func (e *entry) newest() *toolkeep.Tool { return e.any.tool }

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
