package servers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/secret/tokenexchange"
	"github.com/toolkeep/toolkeep/upstream"
)

// readTime bounds the reading of definitions for a request.
const readTime = 2 * time.Minute

// maxShownLog is how much of a server's log, in bytes, comes with the error of an
// import.
const maxShownLog = 4 << 10

// ImportOptions say how a server is imported.
type ImportOptions struct {
	Shared bool // it serves all tenants
	DryRun bool // connect, read and compare, and change nothing
	// Compare only checks the definition and compares it with the stored one: Plan.Definition. Nothing is connected or changed.
	Compare bool
}

// Import adds or changes a server, and publishes the tools of a new one. Of a known one
// it does what Refresh would. E3008, E3011, E3013, E3201, E3407, E3541, E3963, E3965 and
// what the server answers; with details.log where it wrote any.
func (s *Servers) Import(ctx context.Context, p *toolkeep.Principal, name string, body []byte, o ImportOptions) (*Plan, error) {
	id := serverID{p.Tenant, name}
	if o.Shared {
		id.owner = ""
		if p.Tenant != access.HomeTenant {
			return nil, toolkeep.NewError(toolkeep.PermissionDenied, "servers for all tenants are imported by administrators of the tenant %s", access.HomeTenant)
		}
	}
	spec, err := upstream.ParseSpec(name, id.owner, body)
	if err != nil {
		return nil, err
	}
	if s.clashes(id) {
		return nil, toolkeep.NewError(toolkeep.StateConflict, "the name %s is taken: a server for all tenants and one of a tenant cannot have the same", name)
	}
	if spec.Transport == upstream.Stdio && !s.mayStart(p.Tenant) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "programs run on the server's host as the server's user, which no tenant but %s may have started; "+
			"reach the MCP server by http or sse, or have the operator name the tenant %s in mcp.stdio_tenants", access.HomeTenant, p.Tenant)
	}
	old, replaces := s.get(id)
	var before *upstream.Spec
	if replaces {
		before, _ = upstream.ParseSpec(name, id.owner, old.Body) // one that cannot be read has no values to keep
	}
	if before != nil && spec.Folder != "" { // a folder marks what it adds, not what it changes
		spec.Folder = before.Folder
	}
	if faults := spec.Validate(); len(faults) > 0 {
		return nil, toolkeep.FaultsError(toolkeep.InvalidManifest, "the definition of the MCP server is invalid: "+faults[0].Pointer+": "+faults[0].Message, faults)
	}
	if spec.Auth != nil {
		faults := tokenexchange.CheckManifest(&toolkeep.Manifest{Auth: []toolkeep.AuthSpec{*spec.Auth}, Permissions: &toolkeep.Permissions{Network: spec.Network}})
		for i := range faults {
			faults[i].Pointer = strings.Replace(faults[i].Pointer, "/auth/0", "/auth", 1)
		}
		if len(faults) > 0 {
			return nil, toolkeep.FaultsError(toolkeep.InvalidManifest, "the definition of the MCP server is invalid: "+faults[0].Pointer+": "+faults[0].Message, faults)
		}
	}
	if s.isOwn(spec) {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "%s leads to a Toolkeep of this machine, and its tools would call themselves if it is this one. Leave it out; another Toolkeep is named by its url, or by TOOLKEEP_URL in env", name)
	}
	definition := DefinitionNew
	if replaces {
		definition = DefinitionChanged
		if before != nil && s.c.Credentials.same(spec, before) {
			definition = DefinitionSame
		}
	}
	if err := s.c.Credentials.seal(spec, before); err != nil {
		return nil, err
	}
	if o.Compare {
		return &Plan{Server: name, Definition: definition}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	defs, err := s.probe(ctx, p, spec)
	if errors.Is(err, errSharedSession) && spec.Session == "" {
		spec.Session = upstream.SessionPrincipal
		defs, err = s.probe(ctx, p, spec)
	}
	if err != nil {
		return nil, err
	}
	c := comparison{id: id, spec: spec.Filled(), defs: defs, by: publisher(id.owner, p)}
	if !replaces {
		c.accepts, c.firstImport, c.whole = everything, true, true
	}
	if o.DryRun {
		plan, _, err := s.plan(ctx, c)
		if err != nil {
			return nil, err
		}
		return s.answer(c, plan), nil
	}
	doc := toolkeep.Document{Kind: upstream.DocumentKind, Tenant: id.owner, ID: name, Body: spec.Body(), UpdatedAt: s.c.Clock(), UpdatedBy: p.Subject}
	if err := s.put(ctx, doc, old.Revision); err != nil {
		return nil, err
	}
	if replaces { // a program has no address
		if err := s.c.Credentials.Logins.EndLogins(ctx, name, id.owner, spec.URL); err != nil {
			s.c.Log.Warn("pending logins at an earlier address of an MCP server end by themselves", "server", name, "error", err)
		}
	}
	var plan *Plan
	if err = s.position.Await(ctx, s.c.Store); err != nil {
		err = toolkeep.NewError(toolkeep.RecordUnavailable, "this node does not see the MCP server %s in its store yet; try again in a moment", name).Because(err)
	} else {
		plan, err = s.reconcile(ctx, c)
	}
	if err != nil && !replaces {
		// The next import accepts all tools only if the server is not stored.
		if rmErr := s.remove(context.WithoutCancel(ctx), id, p.Subject); rmErr != nil {
			s.c.Log.Warn("an MCP server whose import failed stays stored", "server", name, "error", rmErr)
		}
	}
	return plan, err
}

// mayStart tells whether administrators of a tenant may have programs started. A
// program can read what the server can, the secrets of all tenants included.
func (s *Servers) mayStart(tenant string) bool {
	return tenant == access.HomeTenant || slices.Contains(s.c.StdioTenants, tenant) || slices.Contains(s.c.StdioTenants, "*")
}

// probe starts the server once, apart from those that run, and reads what it offers.
func (s *Servers) probe(ctx context.Context, p *toolkeep.Principal, spec *upstream.Spec) (upstream.Definitions, error) {
	pool := s.c.Probe()
	defer func() {
		now, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancel() // nothing is under way
		_ = pool.Stop(now)
	}()
	enabled := *spec
	enabled.Disabled = false
	pool.Set([]upstream.Spec{enabled})
	defs, err := pool.Refresh(ctx, p, spec.Name)
	var e *toolkeep.Error
	if !errors.As(err, &e) {
		return defs, err
	}
	if e.Code == toolkeep.DestinationForbidden {
		inner := toolkeep.NewError(e.Code, "the MCP server %s is at an address that only its definition can open; if it is meant to be reached there, "+
			"name the host under network, or import it with --allow HOST:PORT", spec.Name).Because(e)
		inner.Details, inner.NothingSent = e.Details, true
		return defs, inner
	}
	// Its log goes with the server, which is not stored.
	told := *e
	told.Details = maps.Clone(e.Details)
	if log, logErr := pool.Logs(p, spec.Name); logErr == nil && len(log) > 0 {
		told.With("log", strings.ToValidUTF8(string(log[max(0, len(log)-maxShownLog):]), ""))
	}
	return defs, &told
}

// Remove ends a server and blocks its tools, with cause server_removed. folder, if set, must be the folder that the server was
// applied from. E3013, E3201, E3963, E3965.
func (s *Servers) Remove(ctx context.Context, p *toolkeep.Principal, name, folder string) error {
	doc, err := s.findToChange(p, name)
	if err != nil {
		return err
	}
	if spec, err := upstream.ParseSpec(doc.ID, doc.Tenant, doc.Body); folder != "" && (err != nil || spec.Folder != folder) {
		return toolkeep.NewError(toolkeep.StateConflict, "the MCP server %s was not applied from the folder %s, so it is not removed with it", name, folder).Because(err)
	}
	id := serverID{doc.Tenant, doc.ID}
	defer s.lock(id)()
	for tool, t := range s.tools(id) {
		if t.live() {
			if err := s.block(ctx, publisher(doc.Tenant, p), tool, toolkeep.CauseServerRemoved, "the MCP server "+name+" was removed"); err != nil {
				return err
			}
		}
	}
	if err := s.remove(ctx, id, p.Subject); err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the MCP server cannot be removed now").Because(err)
	}
	if err := s.c.Catalog.SetAbout(ctx, publisher(doc.Tenant, p), name, "", catalog.AboutForget, doc.Tenant == ""); err != nil {
		s.c.Log.Warn("what a removed MCP server said of itself is still kept", "server", name, "owner", doc.Tenant, "error", err)
	}
	return s.c.Credentials.Logins.Remove(ctx, doc.ID, doc.Tenant)
}
