package node

import (
	"slices"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

// view is what one tenant is shown of a server.
type view struct {
	serverID
	tenant string
}

// heard compares definitions that were read with the pinned ones before it
// returns: the calls that wait for a new session go on then. What cannot be
// compared now, because the store is away, is compared later; vouch does not need
// it.
func (s *servers) heard(server, tenant string, d upstream.Definitions) {
	s.changed(server, tenant)
	v := view{serverID{d.Owner, server}, tenant}
	offered := digests(d.Tools)
	s.mu.Lock()
	s.offers[v] = offered
	s.mu.Unlock()
	s.try(v, d, offered)
}

func (s *servers) try(v view, d upstream.Definitions, offered map[string]string) {
	err := s.compare(v.serverID, d, offered)
	if err == nil || s.run.Err() != nil {
		return
	}
	s.n.logger("mcp").Error("the definitions of an MCP server could not be compared with the pinned ones", "server", v.name, "error", err)
	s.mu.Lock()
	s.news[v] = d
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// compareLoop repeats the comparisons that failed.
func (s *servers) compareLoop() {
	const least, most = time.Second, time.Minute
	for wait := least; ; wait = min(2*wait, most) {
		select {
		case <-s.run.Done():
			return
		case <-s.wake:
		}
		select {
		case <-s.run.Done():
			return
		case <-time.After(wait):
		}
		s.mu.Lock()
		news := s.news
		s.news = map[view]upstream.Definitions{}
		s.mu.Unlock()
		for v, d := range news {
			s.try(v, d, digests(d.Tools))
		}
		s.mu.Lock()
		if len(s.news) == 0 {
			wait = least / 2
		}
		s.mu.Unlock()
	}
}

// digests are those of definitions by the server's names of them.
func digests(defs [][]byte) map[string]string {
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

// compare compares what a server offers with what is pinned, where it is not the
// same at first sight.
func (s *servers) compare(id serverID, d upstream.Definitions, offered map[string]string) error {
	it, ok := s.item(id)
	if !ok {
		return nil // it was removed meanwhile
	}
	spec, err := upstream.ParseSpec(it.ID, it.Tenant, it.Body)
	if err != nil {
		return err
	}
	if s.asPinned(id, offered) {
		s.mu.Lock()
		delete(s.pending, id)
		s.mu.Unlock()
		return nil
	}
	_, err = s.reconcile(s.run, choice{by: steward(id.owner), item: id, spec: spec.Filled(), defs: d})
	return err
}

// asPinned tells whether a server offers exactly what was accepted of it.
func (s *servers) asPinned(id serverID, offered map[string]string) bool {
	live := 0
	for _, t := range s.managed(id) {
		if t.life.Held != nil || t.live() != (offered[t.own] != "") || t.live() && offered[t.own] != t.digest {
			return false
		}
		if t.live() {
			live++
		}
	}
	return live == len(offered)
}

// verifyPinned implements upstream.Config.VerifyPinned: a tool runs only if the definition that
// the server showed last is an accepted one. It needs neither the store nor a hold
// that every node knows of already. A tool that the server does not show is the
// server's to refuse.
func (s *servers) verifyPinned(owner, server, tenant, tool string) error {
	id := serverID{owner, server}
	s.mu.Lock()
	offers, known := s.offers[view{id, tenant}]
	s.mu.Unlock()
	now, offered := offers[tool]
	if known && !offered || slices.Contains(s.accepted(id, tool), now) {
		return nil
	}
	why := "the MCP server " + server + " offers another definition of its tool " + strconv.Quote(tool[:min(len(tool), 100)]) + " than an accepted one"
	if !known {
		why = "what the MCP server " + server + " offers could not be compared with what was accepted"
	}
	todo := "toolkeep servers diff " + server + " shows the change, toolkeep servers accept " + server + " accepts it"
	e := toolkeep.NewError(toolkeep.DefinitionChanged, "%s; %s", why, todo).With("server", server).With("reason", why).With("todo", todo)
	if offered {
		e.With("seen_digest", now)
	}
	e.NothingSent = true
	return e
}
