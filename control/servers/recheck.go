package servers

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/upstream"
)

// Pauses between two looks at a server of which tools are held.
const (
	recheckLeast = 2 * time.Second
	recheckMost  = 10 * time.Second
)

// recheck reads the definitions of servers that have held tools again. A hold ends when
// the pinned definition is back, also at a server without calls. A server with sessions a
// person is read in those that are open, and in one of the tenant where the definition has
// the credentials for it.
func (s *Servers) recheck() {
	t := time.NewTicker(recheckLeast)
	defer t.Stop()
	type look struct {
		at   time.Time // the next one
		wait time.Duration
		busy atomic.Bool // a server that hangs delays no other
		// persons: it lets in persons only, so it is not asked without one again
		persons atomic.Bool
	}
	looks := map[tenantServer]*look{}
	for {
		select {
		case <-s.run.Done():
			return
		case <-t.C:
		}
		now, held := time.Now(), s.heldServers()
		for v := range looks {
			if held[v] == "" {
				delete(looks, v)
			}
		}
		for v, session := range held {
			l := looks[v]
			if l == nil {
				l = new(look)
				looks[v] = l
			}
			if now.Before(l.at) || !l.busy.CompareAndSwap(false, true) {
				continue
			}
			l.wait = min(max(2*l.wait, recheckLeast), recheckMost)
			l.at = now.Add(l.wait)
			s.done.Go(func() {
				defer l.busy.Store(false)
				if session == upstream.SessionShared {
					s.look(v)
				} else if s.lookAsPersons(v, !l.persons.Load()) {
					l.persons.Store(true)
				}
			})
		}
	}
}

// look reads what a server offers a tenant. What it offers is compared while it is read,
// by DefinitionsRead; here it is compared again, because that is told of news alone.
func (s *Servers) look(v tenantServer) {
	ctx, cancel := context.WithTimeout(s.run, readTime)
	defer cancel()
	p := publisher(v.tenant, nil)
	defs, err := s.c.Pool.Refresh(ctx, p, v.name)
	if err != nil {
		s.c.Log.Debug("an MCP server with held tools cannot be read", "server", v.name, "error", err)
		return
	}
	s.DefinitionsRead(v.name, v.tenant, defs)
}

// lookAsPersons is look for a server whose sessions belong to persons. alone: a session of
// the tenant is asked too. refused reports that the server or its definition has no
// credentials for that.
func (s *Servers) lookAsPersons(v tenantServer, alone bool) (refused bool) {
	ctx, cancel := context.WithTimeout(s.run, readTime)
	defer cancel()
	defs, err := s.c.Pool.Recheck(ctx, v.tenant, v.name, alone)
	if err != nil {
		s.c.Log.Debug("an MCP server with held tools cannot be read without a person", "server", v.name, "error", err)
	}
	if defs.Tools != nil {
		s.DefinitionsRead(v.name, v.tenant, defs)
	}
	e := toolkeep.AsError(err)
	return e != nil && slices.Contains([]toolkeep.Code{toolkeep.LoginRequired, toolkeep.SecretNotFound, toolkeep.SecretAccessDenied}, e.Code)
}

// heldServers are the servers of which a tool is held for what they offered, by tenant, with
// who shares their sessions.
func (s *Servers) heldServers() map[tenantServer]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[tenantServer]string{}
	for id, doc := range s.stored {
		held := false
		for _, t := range s.managed(id) {
			held = held || t.life.Held != nil && !t.heldByAdministrator() && t.live()
		}
		if !held {
			continue
		}
		spec, err := upstream.ParseSpec(doc.ID, doc.Tenant, doc.Body)
		if err != nil || spec.Disabled {
			continue
		}
		seen, session := false, spec.Filled().Session
		for v := range s.offered {
			if v.serverID == id {
				out[v], seen = session, true
			}
		}
		if !seen {
			tenant := id.owner
			if tenant == "" {
				tenant = access.HomeTenant
			}
			out[tenantServer{id, tenant}] = session
		}
	}
	return out
}
