package servers

import (
	"maps"
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/upstream"
)

// State is a server with what it does now for a tenant.
type State struct {
	upstream.Status
	Held int // tools that wait for review
	// Spec is its definition, without literal values; nil for a server of all tenants that
	// the principal's tenant does not keep.
	Spec    []byte
	Pending []string // ids of offered tools that were not accepted yet, on this node
	Nodes   []OnNode // of the nodes that live, by name, what they do for the server
}

// List gives every server of the principal's tenant and of all, by name.
func (s *Servers) List(p *toolkeep.Principal) []State {
	var out []State
	live := s.liveNodes()
	for _, st := range s.c.Pool.Status(p) {
		id := serverID{st.Owner, st.Name}
		v := State{Status: st, Nodes: s.on(live, st, p.Tenant)}
		tools := 0
		for _, t := range s.tools(id) {
			if !t.live() {
				continue
			}
			tools++
			if t.life.Held != nil {
				v.Held++
			}
		}
		if v.Tools == 0 { // its lists were not read since the start
			v.Tools = tools
		}
		if doc, ok := s.get(id); ok && (id.owner != "" || p.Tenant == access.HomeTenant) {
			if spec, err := upstream.ParseSpec(doc.ID, doc.Tenant, doc.Body); err == nil {
				v.Spec = withoutValues(spec.Filled())
			}
		}
		s.mu.Lock()
		v.Pending = slices.Clone(s.pending[id])
		s.mu.Unlock()
		out = append(out, v)
	}
	return out
}

// Names are the servers that exist for a principal: those of which it may see a tool.
func (s *Servers) Names(p *toolkeep.Principal) []string {
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(s.stored))
	s.mu.Unlock()
	var names []string
	for _, id := range ids {
		if (id.owner == p.Tenant || id.owner == "") && s.visible(p, id) {
			names = append(names, id.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Exists tells whether Names has the server.
func (s *Servers) Exists(p *toolkeep.Principal, name string) bool {
	for _, owner := range []string{p.Tenant, ""} {
		id := serverID{owner, name}
		if _, ok := s.get(id); ok && s.visible(p, id) {
			return true
		}
	}
	return false
}

// visible tells whether a principal may see anything of the server. One without
// tools counts by its namespace.
func (s *Servers) visible(p *toolkeep.Principal, id serverID) bool {
	tools := s.tools(id)
	for _, t := range tools {
		if s.c.Visible(p, t.tool) {
			return true
		}
	}
	return len(tools) == 0 && s.c.Visible(p, &toolkeep.Tool{ID: id.name + ".server", Tenant: id.owner, Digest: "mcp:" + id.name,
		Manifest: &toolkeep.Manifest{ToolID: id.name + ".server", SideEffects: "reads", Risk: "low", Execution: toolkeep.ExecutionSpec{Kind: "mcp"}}})
}

// Logs gives the latest lines of a server's log for the principal's tenant. E3013.
func (s *Servers) Logs(p *toolkeep.Principal, name string) ([]byte, error) {
	return s.c.Pool.Logs(p, name)
}
