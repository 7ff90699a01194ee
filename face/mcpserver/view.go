package mcpserver

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// view is what one URL shows. A session belongs to one view.
type view struct {
	key   string // all, search, auto, sets/NAME, servers/NAME
	kind  viewKind
	set   *Set   // of kind viewSet
	relay string // server of kind viewRelay
}

type viewKind int

const (
	viewAll viewKind = iota
	viewSearch
	viewAuto
	viewSet
	viewRelay
)

func builtinViews() map[string]*view {
	return map[string]*view{
		"all": {key: "all", kind: viewAll}, "search": {key: "search", kind: viewSearch}, "auto": {key: "auto", kind: viewAuto},
	}
}

// viewAt finds the view of a path: /mcp, /mcp/{view}, /mcp/sets/{name},
// /mcp/servers/{name}. E3013.
func (s *Server) viewAt(urlPath string, p *toolkeep.Principal) (*view, error) {
	rest := strings.Trim(strings.TrimPrefix(urlPath, "/mcp"), "/")
	if rest == "" {
		return s.views[s.c.View], nil
	}
	if v := s.views[rest]; v != nil {
		return v, nil
	}
	if name, ok := strings.CutPrefix(rest, "sets/"); ok && s.c.Set != nil && len(name) <= s.limits.KeyBytes {
		if set, ok := s.c.Set(p, name); ok {
			return &view{key: rest, kind: viewSet, set: set}, nil
		}
	}
	if name, ok := strings.CutPrefix(rest, "servers/"); ok && s.c.Upstreams != nil && len(name) <= s.limits.KeyBytes {
		if _, ok := s.c.Upstreams.Get(p, name); ok {
			return &view{key: rest, kind: viewRelay, relay: name}, nil
		}
	}
	return nil, toolkeep.NewError(toolkeep.ResourceNotFound,
		"there is no MCP view at %s; there are /mcp, /mcp/all, /mcp/search, /mcp/auto, /mcp/sets/NAME and /mcp/servers/NAME", toolkeep.ClipBytes(urlPath, 200))
}

// includes reports whether a tool belongs to the view.
func (v *view) includes(t *toolkeep.Tool) bool { return v.kind != viewSet || v.set.Includes(t) }

// Includes reports whether a tool is in the set.
func (s *Set) Includes(t *toolkeep.Tool) bool {
	m := t.Manifest
	namespace, _, _ := strings.Cut(t.ID, ".")
	if slices.Contains(s.Namespaces, namespace) || m.Category != "" && slices.Contains(s.Categories, m.Category) {
		return true
	}
	for _, pattern := range s.Tools {
		if pattern == t.ID {
			return true
		}
		if ok, err := path.Match(pattern, t.ID); ok && err == nil {
			return true
		}
	}
	for _, tag := range m.Tags {
		if slices.Contains(s.Tags, tag) {
			return true
		}
	}
	return false
}

// sees reports whether a tool is shown to the caller within the view: it may call it. exists reports whether
// a call of it is told why it is refused.
func (x *exchange) sees(t *toolkeep.Tool) bool   { return x.v.includes(t) && x.s.c.Callable(x.p, t) }
func (x *exchange) exists(t *toolkeep.Tool) bool { return x.v.includes(t) && x.s.c.Visible(x.p, t) }

// audience returns the key of the callers that share search results in this view and category.
func (x *exchange) audience(category string) string {
	switch {
	case x.s.c.Audience == nil:
		return ""
	case x.v.kind == viewSet:
		// A set's content may differ on another node, and after a restart.
		return x.s.c.Audience(x.p, "set", fmt.Sprintf("%q", *x.v.set), "category", category)
	case category != "":
		return x.s.c.Audience(x.p, "category", category)
	}
	return x.s.c.Audience(x.p)
}

// listing is what tools/list currently shows to one caller.
type listing struct {
	search bool // the four tools of view search come first
	tools  []listed
}

type listed struct {
	name string
	tool *shownTool
}

// listing chooses the tools.
func (x *exchange) listing() listing {
	switch x.v.kind {
	case viewSearch:
		return listing{search: true}
	case viewAuto:
		return x.autoListing()
	case viewRelay:
		return x.relayListing()
	}
	return x.allListing(0)
}

// fingerprint identifies a listing.
func (l listing) fingerprint() uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	mix := func(s string) {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	if l.search {
		mix("search")
	}
	for _, t := range l.tools {
		mix(t.name)
		mix(t.tool.tool.Digest)
	}
	return h
}

// list serves tools/list.
func (x *exchange) list(m *mcp.Message, dst []byte) ([]byte, error) {
	l := x.listing()
	if x.ses != nil {
		x.ses.mu.Lock()
		x.ses.shown, x.ses.listed, x.ses.narrowed = l.fingerprint(), true, x.p.Narrowed
		x.ses.mu.Unlock()
	}
	after, err := x.s.cursor(m)
	if err != nil {
		x.read(audit.Read{What: audit.ReadList, Err: toolkeep.NewError(toolkeep.InvalidParameters, "the cursor is not one of this server's")})
		return nil, err
	}
	dst = append(dst, `{"tools":[`...)
	first, shown := true, 0
	if l.search && after == "" {
		for _, t := range searchTools() {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(dst, t...)
		}
	}
	from, _ := slices.BinarySearchFunc(l.tools, after, func(t listed, name string) int { return strings.Compare(t.name, name) })
	for from < len(l.tools) && l.tools[from].name <= after {
		from++
	}
	next := ""
	for i, t := range l.tools[from:] {
		if i == x.s.limits.pageSize {
			next = l.tools[from+i-1].name
			break
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		shown++
		dst = x.appendAuth(appendTool(dst, t.name, t.tool.definition()), t.tool.tool)
	}
	x.read(audit.Read{What: audit.ReadList, Found: shown})
	return x.endList(append(dst, ']'), next), nil
}

// endList closes the result of a list.
func (x *exchange) endList(dst []byte, next string) []byte {
	if next != "" {
		dst = canon.AppendString(append(dst, `,"nextCursor":`...), cursorAfter(next))
	}
	if x.modern {
		dst = x.s.cacheable(dst, "private")
	}
	return append(dst, '}')
}

// greeting is a view's description of itself.
type greeting struct {
	capabilities []byte
	info         []byte // serverInfo
	instructions string
}

func serverInfo(version string) []byte {
	if version == "" {
		version = "unknown"
	}
	b := append([]byte(nil), `{"name":"toolkeep","title":"Toolkeep","version":`...)
	return append(canon.AppendString(b, version), '}')
}

const searchInstructions = "Toolkeep holds many tools and shows you a few. Describe what you need to find_tools, in words; " +
	"then use a tool that it found with call_tool. describe_tool shows a tool's parameters in full. " +
	"A call that is still running or waits for a person answers with an invocation_id; ask get_invocation for its result."

const allInstructions = "The tools come from many servers behind Toolkeep, named namespace__name. " +
	"A call that fails says in its result what to do and whether to try again."

func (v *view) greeting(ctx context.Context, x *exchange) (*greeting, error) {
	if v.kind == viewRelay {
		return x.relayGreeting(ctx)
	}
	g := &greeting{info: x.s.info, instructions: allInstructions}
	switch v.kind {
	case viewSearch, viewAuto:
		g.instructions = searchInstructions
		if v.kind == viewAuto && !x.listing().search {
			g.instructions = allInstructions
		}
	case viewSet:
		if v.set.Instructions != "" {
			g.instructions = v.set.Instructions
		}
	}
	caps := `{"tools":{"listChanged":true}`
	if x.hasUpstreams() {
		caps += `,"resources":{"listChanged":true},"prompts":{"listChanged":true},"completions":{}`
	}
	g.capabilities = []byte(caps + "}")
	return g, nil
}
