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
		return toolkeep.NewError(toolkeep.RecordUnavailable, "this node restarted the MCP server %s; the others could not be told, so send it again later", name).Because(err)
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

// outdated reports whether a session shows an older definition than one that was accepted after
// it began, such as another node's: a newer process may well offer it. A session whose beginning
// is not known is not, and for each acceptance there is one new process.
func (s *Servers) outdated(v tenantServer, o offering) bool {
	s.mu.Lock()
	since := o.since
	if renewed := s.renewed[v]; !since.IsZero() && renewed.After(since) {
		since = renewed
	}
	s.mu.Unlock()
	x, unlock := s.read()
	defer unlock()
	if since.IsZero() || !since.Before(x.changed[v.serverID]) {
		return false
	}
	for tool, t := range x.tools[v.serverID] {
		if isManaged(v.serverID, tool, t) && t.live() && t.life.Held == nil && o.digests[t.name] != t.digest {
			return true
		}
	}
	return false
}

// renewOutdated renews the servers whose sessions here are outdated.
func (s *Servers) renewOutdated() {
	s.mu.Lock()
	offered := maps.Clone(s.offered)
	s.mu.Unlock()
	for v, o := range offered {
		if s.outdated(v, o) {
			s.renew(v)
		}
	}
}

// renew ends the sessions of a tenant at a server that is outdated, and reads it in a new one.
// Until that was read, by this or in the session of the next call, nothing is known of what it
// offers here, and nothing is held for it.
func (s *Servers) renew(v tenantServer) {
	s.mu.Lock()
	delete(s.offered, v)
	s.renewed[v] = time.Now()
	s.mu.Unlock()
	s.c.Log.Info("an MCP server is older here than the definition that was accepted; it is started again", "server", v.name, "owner", v.owner)
	s.done.Go(func() {
		s.end(v)
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
