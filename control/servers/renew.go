package servers

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// restartKind is the kind of documents by which a restart reaches all nodes; the id is the
// server's.
const restartKind = "mcp_restart"

// restartOrder is the body of such a document.
type restartOrder struct {
	Tenant string `json:"tenant"` // whose sessions end
}

// Restart ends a server's sessions for the principal's tenant on every node, and forgets its
// failures. E3013, and E3965 if the other nodes cannot be told.
func (s *Servers) Restart(ctx context.Context, p *toolkeep.Principal, name string) error {
	doc, err := s.find(p, name)
	if err != nil {
		return err
	}
	body, err := json.Marshal(restartOrder{p.Tenant})
	if err != nil {
		return err
	}
	d := toolkeep.Document{Kind: restartKind, Tenant: doc.Tenant, ID: doc.ID, Body: body, UpdatedBy: p.Subject}
	if err := s.c.Store.Apply(ctx, toolkeep.PutDocument{Document: d, Expect: toolkeep.AnyRevision}); err != nil {
		if local := s.c.Pool.Restart(p, name); local != nil {
			return local
		}
		return toolkeep.NewError(toolkeep.RecordUnavailable, "this node restarted the MCP server %s; the others could not be told, so run `toolkeep servers restart %s` again later", name, name).Because(err)
	}
	if err := s.position.Await(ctx, s.c.Store); err != nil {
		s.c.Log.Warn("an MCP server is restarted a moment later on this node", "server", name, "error", err)
	}
	return nil
}

// restart carries out what Restart ordered, here or on another node.
func (s *Servers) restart(d toolkeep.Document) {
	var order restartOrder
	if err := json.Unmarshal(d.Body, &order); err != nil {
		s.c.Log.Error("the order to restart an MCP server cannot be read", "server", d.ID, "error", err)
		return
	}
	s.end(tenantServer{serverID{d.Tenant, d.ID}, order.Tenant})
}

// end ends the sessions of a tenant at a server. One that was removed meanwhile has none.
func (s *Servers) end(v tenantServer) {
	err := s.c.Pool.Restart(&toolkeep.Principal{Tenant: v.tenant}, v.name)
	if err != nil && !toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
		s.c.Log.Error("an MCP server cannot be restarted", "server", v.name, "error", err)
	}
}

// dropOrder removes the order of a server that is removed.
func (s *Servers) dropOrder(ctx context.Context, id serverID, by string) {
	err := s.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: restartKind, Tenant: id.owner, ID: id.name, Expect: toolkeep.AnyRevision, By: by})
	if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
		s.c.Log.Warn("the last order to restart a removed MCP server stays stored", "server", id.name, "error", err)
	}
}

// agreement is what sessions that are older than the latest acceptance of a server's
// definitions have offered of them since.
type agreement struct {
	accepted time.Time
	offered  map[time.Time]map[string]bool // the server's names of tools, by when the session began
}

// outdated reports whether a session shows an older definition than one that was accepted after
// it began, such as another node's: a newer process may well offer it. A session that offered
// the accepted definition of a tool is not: what it shows of that tool later, the server changed.
// Nor is one whose beginning is not known, and a tool that it does not show says nothing.
func (s *Servers) outdated(v tenantServer, o offering) bool {
	x, unlock := s.read()
	accepted := x.changed[v.serverID]
	if o.since.IsZero() || !o.since.Before(accepted) {
		unlock()
		return false
	}
	var same, other []string
	for tool, t := range x.tools[v.serverID] {
		switch shown := o.digests[t.name]; {
		case shown == "" || !isManaged(v.serverID, tool, t) || !t.live():
		case shown == t.digest:
			same = append(same, t.name)
		case t.life.Held == nil:
			other = append(other, t.name)
		}
	}
	unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.agreed[v]
	if !a.accepted.Equal(accepted) {
		a = agreement{accepted, map[time.Time]map[string]bool{}}
		s.agreed[v] = a
	}
	offered := a.offered[o.since]
	if offered == nil {
		offered = map[string]bool{}
		a.offered[o.since] = offered
	}
	for _, name := range same {
		offered[name] = true
	}
	return slices.ContainsFunc(other, func(name string) bool { return !offered[name] })
}

// ended reports whether a session that began then was ended as outdated: what it shows says
// nothing any more. It is called with mu held.
func (s *Servers) ended(v tenantServer, since time.Time) bool {
	return !since.IsZero() && since.Before(s.renewed[v])
}

// renewOutdated renews the servers whose sessions here are outdated.
func (s *Servers) renewOutdated() {
	s.mu.Lock()
	offered := maps.Clone(s.offered)
	s.mu.Unlock()
	for v, o := range offered {
		if s.outdated(v, o) {
			s.renew(v, o.since)
		}
	}
}

// renew ends the sessions of a tenant at a server of which the one that began at since is
// outdated, and reads it in a new one. Until that was read, by this or in the session of the
// next call, nothing is known of what it offers here, and nothing is held for it.
func (s *Servers) renew(v tenantServer, since time.Time) {
	s.mu.Lock()
	if s.run.Err() != nil || s.ended(v, since) {
		s.mu.Unlock()
		return
	}
	delete(s.offered, v)
	delete(s.agreed, v)
	s.renewed[v] = time.Now()
	s.mu.Unlock()
	s.c.Log.Info("an MCP server is older here than the definition that was accepted; new calls start it again", "server", v.name, "owner", v.owner)
	if err := s.c.Pool.Renew(v.tenant, v.name); err != nil {
		s.c.Log.Info("an MCP server that is older than the definition that was accepted was removed", "server", v.name)
		return
	}
	s.spawn(func() {
		ctx, cancel := context.WithTimeout(s.run, readTime)
		defer cancel()
		if _, err := s.c.Pool.Recheck(ctx, v.tenant, v.name, true); err != nil && s.run.Err() == nil {
			s.c.Log.Info("an MCP server that was started again is read in the next session", "server", v.name, "error", err)
		}
	})
}

// noteChanges records when the accepted definitions of a server changed, as this node saw it.
func (x *index) noteChanges(before map[serverID]map[string][]string) {
	for id, digests := range x.digests {
		if !maps.EqualFunc(before[id], digests, slices.Equal[[]string]) {
			x.changed[id] = time.Now()
		}
	}
}

// offering is what a server offered a tenant in a session that began at since: digests by the
// server's name of a tool.
type offering struct {
	digests map[string]string
	since   time.Time
}
