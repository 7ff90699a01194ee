package servers

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/upstream"
)

// Pauses between two looks at a server of which tools are held.
const (
	recheckLeast = 2 * time.Second
	recheckMost  = 10 * time.Second
)

// recheck reads the definitions of servers that have held tools again. A hold ends when
// the pinned definition is back, also at a server without calls. Servers that need each
// person's own login are read in the calls of these persons.
func (s *Servers) recheck() {
	t := time.NewTicker(recheckLeast)
	defer t.Stop()
	type look struct {
		at   time.Time // the next one
		wait time.Duration
		busy atomic.Bool // a server that hangs delays no other
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
			if !held[v] {
				delete(looks, v)
			}
		}
		for v := range held {
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
				s.look(v)
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

// heldServers are the servers of which a tool is held for what they offered, by tenant.
func (s *Servers) heldServers() map[tenantServer]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[tenantServer]bool{}
	for id, doc := range s.stored {
		held := false
		for _, t := range s.managed(id) {
			held = held || t.life.Held != nil && !t.heldByAdministrator() && t.live()
		}
		if !held {
			continue
		}
		spec, err := upstream.ParseSpec(doc.ID, doc.Tenant, doc.Body)
		if err != nil || spec.Disabled || spec.Session == upstream.SessionPrincipal {
			continue
		}
		seen := false
		for v := range s.offered {
			if v.serverID == id {
				out[v], seen = true, true
			}
		}
		if !seen {
			tenant := id.owner
			if tenant == "" {
				tenant = access.HomeTenant
			}
			out[tenantServer{id, tenant}] = true
		}
	}
	return out
}
