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

// Pauses between two looks at a server of which tools are held. After a session of the
// tenant could not be opened or read, the next one is tried later, after at most
// recheckFailed.
const (
	recheckLeast  = 2 * time.Second
	recheckMost   = 10 * time.Second
	recheckFailed = time.Minute
)

// watched is a server of which tools are held. Of its fields, the goroutine that looks at
// it has those after busy.
type watched struct {
	at   time.Time // the next look
	wait time.Duration
	busy atomic.Bool // a server that hangs delays no other

	// persons: it lets in persons only, so a session of the tenant is not tried again.
	persons bool
	alone   time.Time // the next session of the tenant
	failed  time.Duration
}

// recheck looks again and again at the servers of which tools are held: a hold ends when
// the pinned definition is back, also at an idle server.
func (s *Servers) recheck() {
	t := time.NewTicker(recheckLeast)
	defer t.Stop()
	all := map[tenantServer]*watched{}
	for {
		select {
		case <-s.run.Done():
			return
		case <-t.C:
		}
		s.renewOutdated()
		now, held := time.Now(), s.heldServers()
		for v := range all {
			if held[v] == "" {
				delete(all, v)
			}
		}
		for v, session := range held {
			w := all[v]
			if w == nil {
				w = new(watched)
				all[v] = w
			}
			if now.Before(w.at) || !w.busy.CompareAndSwap(false, true) {
				continue
			}
			w.wait = min(max(2*w.wait, recheckLeast), recheckMost)
			w.at = now.Add(w.wait)
			s.done.Go(func() {
				defer w.busy.Store(false)
				s.look(v, w, session)
			})
		}
	}
}

// look reads what a server offers a tenant: in the open sessions of persons, and in one of
// the tenant, which has only the credentials of the server's definition. What is read is
// compared by DefinitionsRead, which the pool calls.
func (s *Servers) look(v tenantServer, w *watched, session string) {
	ctx, cancel := context.WithTimeout(s.run, readTime)
	defer cancel()
	alone := !w.persons && !time.Now().Before(w.alone)
	_, err := s.c.Pool.Recheck(ctx, v.tenant, v.name, alone)
	if err == nil {
		if alone {
			w.failed = 0
		}
		return
	}
	s.c.Log.Debug("an MCP server with held tools cannot be read without a person", "server", v.name, "error", err)
	w.failed = min(max(2*w.failed, recheckMost), recheckFailed)
	w.alone = time.Now().Add(w.failed)
	e := toolkeep.AsError(err)
	w.persons = w.persons || session != upstream.SessionShared && e != nil &&
		slices.Contains([]toolkeep.Code{toolkeep.LoginRequired, toolkeep.SecretNotFound, toolkeep.SecretAccessDenied}, e.Code)
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
