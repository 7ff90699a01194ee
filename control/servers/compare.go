package servers

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/upstream"
)

// DefinitionsRead takes over what a server offers a tenant now: it is compared with what
// was accepted before this returns, so that calls that wait for a new session go on then.
// What cannot be compared, because the store is away, is compared later; VerifyPinned
// knows it at once.
func (s *Servers) DefinitionsRead(server, tenant string, d upstream.Definitions) {
	v := tenantServer{serverID{d.Owner, server}, tenant}
	digests := digestsOf(d.Tools)
	s.mu.Lock()
	before, known := s.offered[v]
	s.mu.Unlock()
	if known {
		s.outdated(v, before) // what that session offered of what was accepted meanwhile is noted
	}
	s.mu.Lock()
	if s.ended(v, d.Since) {
		s.mu.Unlock()
		return
	}
	s.offered[v] = offering{digests, d.Since}
	s.mu.Unlock()
	s.compareOrRetry(v, d, digests)
}

func (s *Servers) compareOrRetry(v tenantServer, d upstream.Definitions, digests map[string]string) {
	if s.superseded(v, d.Since, digests) {
		return
	}
	err := s.compare(v.serverID, d, digests)
	if err == nil || s.run.Err() != nil {
		return
	}
	s.c.Log.Error("the definitions of an MCP server could not be compared with the pinned ones", "server", v.name, "error", err)
	s.mu.Lock()
	s.failed[v] = d
	s.mu.Unlock()
	select {
	case s.retry <- struct{}{}:
	default:
	}
}

// superseded reports whether what a session shows is not to be compared, because it was ended
// as outdated. One that is outdated is ended now.
func (s *Servers) superseded(v tenantServer, since time.Time, digests map[string]string) bool {
	s.mu.Lock()
	ended := s.ended(v, since)
	s.mu.Unlock()
	if !ended && s.outdated(v, offering{digests, since}) {
		s.renew(v, since)
		return true
	}
	return ended
}

// compareAgain repeats the comparisons that failed.
func (s *Servers) compareAgain() {
	const least, most = time.Second, time.Minute
	for wait := least; ; wait = min(2*wait, most) {
		select {
		case <-s.run.Done():
			return
		case <-s.retry:
		}
		select {
		case <-s.run.Done():
			return
		case <-time.After(wait):
		}
		s.mu.Lock()
		failed := s.failed
		s.failed = map[tenantServer]upstream.Definitions{}
		s.mu.Unlock()
		for v, d := range failed {
			s.compareOrRetry(v, d, digestsOf(d.Tools))
		}
		s.mu.Lock()
		if len(s.failed) == 0 {
			wait = least / 2
		}
		s.mu.Unlock()
	}
}

// compare compares what a server offers with what is pinned, where digests alone do not
// show that it is the same.
func (s *Servers) compare(id serverID, d upstream.Definitions, digests map[string]string) error {
	doc, ok := s.get(id)
	if !ok {
		return nil // it was removed meanwhile
	}
	spec, err := upstream.ParseSpec(doc.ID, doc.Tenant, doc.Body)
	if err != nil {
		return err
	}
	if s.asPinned(id, digests) {
		s.mu.Lock()
		delete(s.pending, id)
		s.mu.Unlock()
		return nil
	}
	_, err = s.reconcile(s.run, comparison{id: id, spec: spec.Filled(), defs: d, by: publisher(id.owner, nil)})
	return err
}

// asPinned tells whether a server offers exactly what was accepted of it.
func (s *Servers) asPinned(id serverID, digests map[string]string) bool {
	live := 0
	for _, t := range s.managed(id) {
		if t.life.Held != nil || t.live() != (digests[t.name] != "") || t.live() && digests[t.name] != t.digest {
			return false
		}
		if t.live() {
			live++
		}
	}
	return live == len(digests)
}

// readNow reads what a server offers now, by Refresh or Compare of the pool: in a new session
// if the one that was read is outdated. E3013, E3541 if that was not to be had, and what the
// pool answers.
func (s *Servers) readNow(ctx context.Context, p *toolkeep.Principal, name string, read func(context.Context, *toolkeep.Principal, string) (upstream.Definitions, error)) (comparison, error) {
	doc, err := s.find(p, name)
	if err != nil {
		return comparison{}, err
	}
	spec, err := upstream.ParseSpec(doc.ID, doc.Tenant, doc.Body)
	if err != nil {
		return comparison{}, err
	}
	c := comparison{id: serverID{doc.Tenant, doc.ID}, spec: spec.Filled(), by: publisher(doc.Tenant, nil)}
	for range 3 { // a read of the session that is ended may have been under way
		if c.defs, err = read(ctx, p, name); err != nil || !s.superseded(tenantServer{c.id, p.Tenant}, c.defs.Since, digestsOf(c.defs.Tools)) {
			return c, err
		}
	}
	return c, toolkeep.NewError(toolkeep.MCPUnavailable, "the MCP server %s is older on this node than the definition that was accepted and is being started again; send it again", name).After(time.Second)
}
