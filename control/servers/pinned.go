package servers

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/mcp"
)

// pinned is a tool that calls a server: its highest version.
type pinned struct {
	tool *toolkeep.Tool
	life toolkeep.Lifecycle
	name string // the server's own name of it
	// digest is that of the definition that it was made of; "" for a tool that was
	// published by hand, which is no pin.
	digest string
}

// serverCauses are those of the blocks that this package makes and undoes.
var serverCauses = []toolkeep.Cause{toolkeep.CauseServerRemoved, toolkeep.CauseDefinitionGone}

func (p pinned) live() bool {
	return p.life.State != toolkeep.Removed && p.life.State != toolkeep.Blocked
}

func (p pinned) blockedByAdministrator() bool {
	return p.life.State == toolkeep.Blocked && !slices.Contains(serverCauses, p.life.Cause)
}

func (p pinned) heldByAdministrator() bool {
	return p.life.Held != nil && p.life.Held.Cause == toolkeep.CauseAdministrator
}

// index is a snapshot of the catalogue by servers.
type index struct {
	mu      sync.Mutex
	of      *catalog.Snapshot
	tools   map[serverID]map[string]pinned           // by tool id
	digests map[serverID]map[string][]string         // of pins, by the server's name of a tool
	made    map[serverID]map[string][]*toolkeep.Tool // managed tools, by the server's name of a tool
	changed map[serverID]time.Time                   // when digests changed since the first reading
}

// read gives the index of the catalogue as it is now, locked.
func (s *Servers) read() (x *index, unlock func()) {
	x = &s.index
	x.mu.Lock()
	now := s.c.Catalog.Snapshot()
	if x.of == now {
		return x, x.mu.Unlock
	}
	first, before := x.of == nil, x.digests
	x.of, x.tools, x.digests, x.made = now, map[serverID]map[string]pinned{}, map[serverID]map[string][]string{}, map[serverID]map[string][]*toolkeep.Tool{}
	for v := range now.All() { // the highest version of an id comes last
		if v.Tool.Manifest.Execution.Kind != source.Kind {
			continue
		}
		binding := v.Tool.Manifest.Execution.Binding
		id := serverID{v.Tool.Tenant, mcp.Text(binding, "server")}
		if x.tools[id] == nil {
			x.tools[id] = map[string]pinned{}
		}
		t := pinned{tool: v.Tool, life: v.Life, name: mcp.Text(binding, "tool")}
		if src := v.Tool.Manifest.Source; src != nil {
			t.digest = src.Digest
		}
		x.tools[id][v.Tool.ID] = t
	}
	for id, tools := range x.tools {
		x.digests[id], x.made[id] = make(map[string][]string, len(tools)), make(map[string][]*toolkeep.Tool, len(tools))
		for tool, t := range tools {
			if t.digest != "" {
				x.digests[id][t.name] = append(x.digests[id][t.name], t.digest)
			}
			if isManaged(id, tool, t) {
				x.made[id][t.name] = append(x.made[id][t.name], t.tool)
			}
		}
	}
	for _, names := range x.digests {
		for _, digests := range names {
			slices.Sort(digests)
		}
	}
	if first {
		x.changed = map[serverID]time.Time{}
	} else {
		x.noteChanges(before)
	}
	return x, x.mu.Unlock
}

// tools are those that call a server. The map must not be changed.
func (s *Servers) tools(id serverID) map[string]pinned {
	x, unlock := s.read()
	defer unlock()
	return x.tools[id]
}

// managed are the tools that were made of the server's definitions.
func (s *Servers) managed(id serverID) map[string]pinned {
	out := map[string]pinned{}
	for tool, t := range s.tools(id) {
		if isManaged(id, tool, t) {
			out[tool] = t
		}
	}
	return out
}

// isManaged tells whether a tool was made of a definition of the server that it calls.
func isManaged(id serverID, tool string, t pinned) bool {
	namespace, _, _ := strings.Cut(tool, ".")
	return namespace == id.name && t.digest != ""
}

// otherNames are the tool names of the other servers that the owner's callers see.
func (s *Servers) otherNames(id serverID) *source.Names {
	names := source.NewNames()
	x, unlock := s.read()
	defer unlock()
	for other, tools := range x.tools {
		if other == id || other.owner != "" && id.owner != "" && other.owner != id.owner {
			continue
		}
		for _, t := range tools {
			names.Add(other.name, t.name)
		}
	}
	return names
}

// highest gives the highest version of a tool, in whatever state: its number is taken.
func (s *Servers) highest(p *toolkeep.Principal, id string) *toolkeep.Tool {
	all, err := s.c.Catalog.Versions(p, id, func(*toolkeep.Tool) bool { return true })
	if err != nil || len(all) == 0 {
		return nil
	}
	t, err := all[0].Tool.Whole()
	if err != nil {
		return all[0].Tool // damaged: Publish refuses to compare with it
	}
	return t
}
