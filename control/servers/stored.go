package servers

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/upstream"
)

// follow applies a change of the feed.
func (s *Servers) follow(c toolkeep.Committed) {
	defer s.position.Reach(c.Seq)
	s.c.Credentials.Logins.Follow(c)
	switch ch := c.Change.(type) {
	case toolkeep.PutDocument:
		switch ch.Document.Kind {
		case upstream.DocumentKind:
			s.putStored(ch.Document)
		case restartKind:
			s.restart(ch.Document)
		}
	case toolkeep.DeleteDocument:
		if ch.Kind == upstream.DocumentKind {
			s.deleteStored(serverID{ch.Tenant, ch.ID})
		}
	}
}

func (s *Servers) putStored(d toolkeep.Document) {
	s.mu.Lock()
	s.stored[serverID{d.Tenant, d.ID}] = d
	s.mu.Unlock()
	s.setPool()
}

func (s *Servers) deleteStored(id serverID) {
	s.mu.Lock()
	_, has := s.stored[id]
	delete(s.stored, id)
	delete(s.pending, id)
	maps.DeleteFunc(s.offered, func(v tenantServer, _ offering) bool { return v.serverID == id })
	maps.DeleteFunc(s.agreed, func(v tenantServer, _ agreement) bool { return v.serverID == id })
	maps.DeleteFunc(s.renewed, func(v tenantServer, _ time.Time) bool { return v.serverID == id })
	s.mu.Unlock()
	if has {
		s.setPool()
	}
}

// setPool makes the stored servers the running ones.
func (s *Servers) setPool() {
	s.mu.Lock()
	defer s.mu.Unlock()
	specs := make([]upstream.Spec, 0, len(s.stored))
	for id, d := range s.stored {
		spec, err := upstream.ParseSpec(d.ID, d.Tenant, d.Body)
		if err != nil {
			s.c.Log.Error("a stored MCP server cannot be read and is left out", "server", id.name, "error", err)
			continue
		}
		specs = append(specs, *spec)
	}
	s.c.Pool.Set(specs)
}

func (s *Servers) get(id serverID) (toolkeep.Document, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.stored[id]
	return d, ok
}

// put stores a server that must have the revision, 0 for none. E3963, E3965.
func (s *Servers) put(ctx context.Context, d toolkeep.Document, revision int64) error {
	err := s.c.Store.Apply(ctx, toolkeep.PutDocument{Document: d, Expect: revision})
	switch {
	case errors.Is(err, toolkeep.ErrStale):
		return toolkeep.NewError(toolkeep.StateConflict, "another request changed the MCP server %s at the same time; read it and send your change again", d.ID)
	case err != nil:
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the MCP server cannot be stored now").Because(err)
	}
	return nil
}

// remove deletes a server from the store and waits until it no longer runs here. ErrNotFound.
func (s *Servers) remove(ctx context.Context, id serverID, by string) error {
	if err := s.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: upstream.DocumentKind, Tenant: id.owner, ID: id.name, Expect: toolkeep.AnyRevision, By: by}); err != nil {
		return err
	}
	s.dropOrder(ctx, id, by)
	if err := s.position.Await(ctx, s.c.Store); err != nil {
		s.c.Log.Warn("an MCP server was removed, and this node still runs it for a moment", "server", id.name, "error", err)
	}
	return nil
}

// find gives a server of the principal's tenant or, behind those, of all. E3013.
func (s *Servers) find(p *toolkeep.Principal, name string) (toolkeep.Document, error) {
	for _, owner := range []string{p.Tenant, ""} {
		if d, ok := s.get(serverID{owner, name}); ok {
			return d, nil
		}
	}
	return toolkeep.Document{}, noServer(name)
}

// noServer is E3013.
func noServer(name string) error {
	return toolkeep.NewError(toolkeep.ResourceNotFound, "there is no MCP server %q", name[:min(len(name), 64)])
}

// findToChange is find for a change: servers of all tenants are changed by administrators
// of the home tenant alone. E3013, E3201.
func (s *Servers) findToChange(p *toolkeep.Principal, name string) (toolkeep.Document, error) {
	d, err := s.find(p, name)
	if err == nil && d.Tenant == "" && (p.Tenant != access.HomeTenant || !p.May(toolkeep.PermLifecycle)) {
		err = toolkeep.NewError(toolkeep.PermissionDenied, "the MCP server %s serves all tenants; administrators of the tenant %s change it", name, access.HomeTenant)
	}
	return d, err
}

// clashes tells whether the name is taken between a tenant and all tenants: their
// tools would have the same ids.
func (s *Servers) clashes(id serverID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for other := range s.stored {
		if other.name == id.name && other.owner != id.owner && (other.owner == "" || id.owner == "") {
			return true
		}
	}
	return false
}
