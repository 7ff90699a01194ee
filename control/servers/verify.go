package servers

import (
	"slices"
	"strconv"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/mcp"
)

// VerifyPinned is E3012 unless the definition of the tool that the server offered the
// tenant last is an accepted one. It asks neither the store nor the server. A tool that
// the server does not offer is the server's to refuse.
func (s *Servers) VerifyPinned(owner, server, tenant, tool string) error {
	id := serverID{owner, server}
	s.mu.Lock()
	now, known := s.offered[tenantServer{id, tenant}]
	s.mu.Unlock()
	digest, offered := now.digests[tool]
	if known && !offered || slices.Contains(s.accepted(id, tool), digest) {
		return nil
	}
	why := "the MCP server " + server + " offers another definition of its tool " + strconv.Quote(tool[:min(len(tool), 100)]) + " than an accepted one"
	if !known {
		why = "what the MCP server " + server + " offers could not be compared with what was accepted"
	}
	todo := "toolkeep servers diff " + server + " shows the change, toolkeep servers accept " + server + " accepts it"
	e := toolkeep.NewError(toolkeep.DefinitionChanged, "%s; %s", why, todo).With("server", server).With("reason", why).With("todo", todo)
	if offered {
		e.With("seen_digest", digest)
	}
	e.NothingSent = true
	return e
}

// accepted are the digests of a server's tool that were accepted last.
func (s *Servers) accepted(id serverID, tool string) []string {
	x, unlock := s.read()
	defer unlock()
	return x.digests[id][tool]
}

// AcceptedDefinitions gives the definitions that the tools made of a server's tool were
// accepted with.
func (s *Servers) AcceptedDefinitions(owner, server, tool string) (defs [][]byte) {
	x, unlock := s.read()
	made := x.made[serverID{owner, server}][tool]
	unlock()
	for _, t := range made {
		if def, err := source.Definition(t); err == nil {
			defs = append(defs, def)
		}
	}
	return defs
}

// digestsOf are those of definitions by the server's names of them.
func digestsOf(defs [][]byte) map[string]string {
	out := make(map[string]string, len(defs))
	for _, def := range defs {
		name := mcp.Text(def, "name")
		if _, twice := out[name]; twice {
			continue // the first one stands
		}
		digest, err := source.Digest(def)
		if err != nil {
			digest = canon.Digest(def)
		}
		out[name] = digest
	}
	return out
}
