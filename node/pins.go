package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/face/rest"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

// choice is what a comparison may do without anybody being asked.
type choice struct {
	imports bool                 // the server is new: everything is accepted
	accept  func(id string) bool // take over what changed or is gone; nil takes nothing
	seen    map[string]string    // tools that are held, with the definition that they are held for
	by      *toolkeep.Principal  // who publishes
	item    serverID             // owner and name
	spec    *upstream.Spec
	defs    upstream.Definitions
}

// accepted tells whether somebody accepts the definition. What changed once more
// since the tool was held is not what they have looked at.
func (c *choice) accepted(t *source.PlannedTool) bool {
	if c.imports {
		return true
	}
	seen, held := c.seen[t.ID]
	return c.accept != nil && c.accept(t.ID) && (!held || seen == t.Digest)
}

// steward is the principal under which a server's tools are published.
func steward(owner string) *toolkeep.Principal {
	p := System()
	if owner != "" {
		p.Tenant = owner
	}
	return p
}

// actor is steward in somebody's name.
func actor(owner string, by *toolkeep.Principal) *toolkeep.Principal {
	p := steward(owner)
	p.Subject = by.Subject
	return p
}

// plan compares definitions with what is pinned.
func (s *servers) plan(ctx context.Context, c choice) (*source.Plan, map[string]pinned, error) {
	have := s.managed(c.item)
	var live []string
	for id, t := range have {
		if t.live() {
			live = append(live, id)
		}
	}
	slices.Sort(live)
	previous := s.n.previous(c.by)
	plan, err := source.Read(ctx, c.defs.Tools, source.Options{Server: c.item.name, Previous: previous, Published: live,
		Known: s.known(c.item), TrustAnnotations: true, Timeout: c.spec.CallTimeout, MaxTools: c.spec.MaxTools,
		Withheld: c.defs.Withheld})
	if err != nil {
		return nil, nil, err
	}
	plan.Tools = slices.DeleteFunc(plan.Tools, func(t source.PlannedTool) bool {
		if _, ours := have[t.ID]; ours || previous(t.ID) == nil {
			return false
		}
		plan.Refused = append(plan.Refused, source.Refused{Index: -1, ID: t.ID, Tool: t.Tool, Digest: t.Digest,
			Reason: "the id " + t.ID + " belongs to a tool that does not come from this server"})
		return true
	})
	return plan, have, nil
}

// actions are what a comparison leads to.
type actions struct {
	publish  [][]byte
	hold     []catalog.HoldChange
	held     []string          // tools that are held from now on, or for something else
	activate []string          // blocked tools that are back
	block    []string          // tools that are gone
	retire   map[string]string // tools whose old versions end: the new version
}

func (a *actions) add(c *choice, t *source.PlannedTool, was pinned, known bool) {
	if known && was.life.State == toolkeep.Blocked && !was.blockedByServer() {
		return // what an administrator blocked stays so
	}
	accepted := c.accepted(t)
	policy := c.spec.OnChange == upstream.OnChangeAdditive && !grave(t.Findings)
	release := func() {
		if known && was.life.Held != nil && !was.heldByAdministrator() {
			a.hold = append(a.hold, catalog.HoldChange{ToolID: t.ID})
		}
	}
	back := func() {
		if known && was.life.State == toolkeep.Blocked {
			a.activate = append(a.activate, t.ID)
		}
	}
	switch t.Change {
	case source.ChangeNew:
		if accepted || policy {
			a.publish = append(a.publish, t.Manifest)
		}
	case source.ChangeUnchanged:
		release()
		if accepted || policy {
			back()
		}
	case source.ChangeGone:
		switch {
		case accepted:
			release()
			a.block = append(a.block, t.ID)
		case c.defs.Settled: // else it may come yet
			a.keep(was, t.ID, toolkeep.Hold{Cause: toolkeep.CauseDefinitionGone, Why: fmt.Sprintf(
				"the MCP server %s does not offer this tool any more; `toolkeep servers accept %s` takes it out", c.item.name, c.item.name)})
		}
	default:
		// The definition is the accepted one where only our own settings changed, such
		// as a time limit.
		same := known && was.digest == t.Digest
		switch {
		case same && !was.live() && !accepted && !policy:
		case accepted || same || policy && t.Additive:
			a.publish = append(a.publish, t.Manifest)
			release()
			back()
			if !t.Additive && !same {
				a.retire[t.ID] = t.Version
			}
		case known && was.live():
			a.keep(was, t.ID, toolkeep.Hold{Cause: toolkeep.CauseDefinitionChanged, Digest: t.Digest, Why: fmt.Sprintf(
				"the MCP server %s offers another definition than the accepted one; `toolkeep servers diff %s` shows what changed, `toolkeep servers accept %s` takes it over",
				c.item.name, c.item.name, c.item.name)})
		}
	}
}

// keep holds a tool.
func (a *actions) keep(was pinned, id string, h toolkeep.Hold) {
	if was.heldByAdministrator() {
		return
	}
	a.hold = append(a.hold, catalog.HoldChange{ToolID: id, Hold: &h})
	if now := was.life.Held; now == nil || now.Digest != h.Digest || now.Cause != h.Cause {
		a.held = append(a.held, id)
	}
}

func grave(findings []source.Finding) bool {
	return slices.ContainsFunc(findings, func(f source.Finding) bool { return f.Severity == source.High })
}

// reconcile compares and acts, for one server once at a time.
func (s *servers) reconcile(ctx context.Context, c choice) (*rest.ServerPlan, error) {
	defer s.turn(c.item)()
	if _, ok := s.item(c.item); !ok {
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "the MCP server %s was removed", c.item.name)
	}
	plan, have, err := s.plan(ctx, c)
	if err != nil {
		return nil, err
	}
	a := actions{retire: map[string]string{}}
	for i := range plan.Tools {
		t := &plan.Tools[i]
		was, known := have[t.ID]
		a.add(&c, t, was, known)
		if seen, held := c.seen[t.ID]; held && c.accept != nil && c.accept(t.ID) && seen != t.Digest && t.Change != source.ChangeUnchanged {
			plan.Warnings = append(plan.Warnings, t.ID+" has changed once more since it was held, and is not accepted; look at it again")
		}
	}
	for _, r := range plan.Refused {
		if was, known := have[r.ID]; known && was.live() {
			a.keep(was, r.ID, toolkeep.Hold{Cause: toolkeep.CauseDefinitionInvalid, Digest: r.Digest, Why: fmt.Sprintf(
				"the MCP server %s offers a definition now that cannot become a tool: %s", c.item.name, r.Reason[:min(len(r.Reason), 1000)])})
		}
	}
	published, refused, err := s.act(ctx, c, a)
	if err != nil {
		return nil, err
	}
	if len(a.held) > 0 {
		s.n.logger("mcp").Warn("an MCP server changed what was accepted of it; the tools are held", "event", "ai.agent.tool.definition.changed",
			"server", c.item.name, "owner", c.item.owner, "tools", len(a.held), "first", a.held[:min(len(a.held), 20)])
	}
	plan.Tools = slices.DeleteFunc(plan.Tools, func(t source.PlannedTool) bool {
		return slices.ContainsFunc(refused, func(r source.Refused) bool { return r.ID == t.ID })
	})
	plan.Refused = append(plan.Refused, refused...)
	out := s.answer(c, plan)
	out.Published = published
	s.notePending(c.item, out)
	return out, nil
}

// turn waits until nobody else compares the server; call what it gives at the end.
func (s *servers) turn(id serverID) func() {
	s.mu.Lock()
	l := s.turns[id]
	if l == nil {
		l = new(sync.Mutex)
		s.turns[id] = l
	}
	s.mu.Unlock()
	l.Lock()
	return l.Unlock
}

func (s *servers) act(ctx context.Context, c choice, a actions) (published int, refused []source.Refused, err error) {
	cat := s.n.catalog
	for part := range slices.Chunk(a.publish, catalog.MaxBatch) {
		n, bad, err := s.publish(ctx, c, part)
		published, refused = published+n, append(refused, bad...)
		if err != nil {
			return published, refused, err
		}
	}
	for _, id := range a.activate {
		if err := s.setState(ctx, c.by, id, "", catalog.StateChange{State: toolkeep.Active, BlockedFor: serverCauses}); err != nil {
			return published, refused, err
		}
	}
	for id, version := range a.retire {
		if err := s.retire(ctx, c, id, version); err != nil {
			return published, refused, err
		}
	}
	for part := range slices.Chunk(a.hold, catalog.MaxBatch) {
		if err := cat.SetHolds(ctx, c.by, part); err != nil {
			return published, refused, err
		}
	}
	for _, id := range a.block {
		if err := s.blockTool(ctx, c.by, id, toolkeep.CauseDefinitionGone, "the MCP server "+c.item.name+" does not offer this tool any more"); err != nil {
			return published, refused, err
		}
	}
	return published, refused, nil
}

// publish publishes manifests together; where the catalogue refuses one of them,
// each by itself.
func (s *servers) publish(ctx context.Context, c choice, manifests [][]byte) (published int, refused []source.Refused, err error) {
	o := catalog.PublishOptions{Shared: c.item.owner == ""}
	done, err := s.n.catalog.Publish(ctx, c.by, manifests, o)
	for _, d := range done {
		if d.Created {
			published++
		}
	}
	var e *toolkeep.Error
	if err == nil || !errors.As(err, &e) || e.Code != toolkeep.DuplicateTool && e.Code != toolkeep.InvalidManifest {
		return published, nil, err
	}
	if len(manifests) == 1 {
		own := mcp.Get(manifests[0], "execution", "binding")
		return 0, []source.Refused{{Index: -1, ID: mcp.Text(manifests[0], "tool_id"), Tool: mcp.Text(own, "tool"), Reason: e.Message}}, nil
	}
	for _, m := range manifests {
		n, bad, err := s.publish(ctx, c, [][]byte{m})
		published, refused = published+n, append(refused, bad...)
		if err != nil {
			return published, refused, err
		}
	}
	return published, refused, nil
}

// retire ends the versions below a new one whose definition the server does not
// keep any more: E3009 then names the new one.
func (s *servers) retire(ctx context.Context, c choice, id, version string) error {
	all, err := s.n.catalog.Versions(c.by, id, func(*toolkeep.Tool) bool { return true })
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.Tool.Version == version || v.Life.State == toolkeep.Removed || v.Tool.Tenant != c.item.owner {
			continue
		}
		err := s.setState(ctx, c.by, id, v.Tool.Version, catalog.StateChange{State: toolkeep.Removed, Now: true, Successor: version,
			Reason: "the MCP server " + c.item.name + " changed this tool"})
		if err != nil && !is(err, toolkeep.ToolRemoved) {
			return err
		}
	}
	return nil
}

func (s *servers) blockTool(ctx context.Context, by *toolkeep.Principal, id string, cause toolkeep.Cause, reason string) error {
	err := s.setState(ctx, by, id, "", catalog.StateChange{State: toolkeep.Blocked, Cause: cause, Reason: reason})
	if is(err, toolkeep.ToolRemoved) {
		return nil
	}
	return err
}

// setState moves versions to what follows from a server's definitions. Another node that
// compares the same server does so at the same moment: then it is tried again, as things
// are now.
func (s *servers) setState(ctx context.Context, by *toolkeep.Principal, id, version string, ch catalog.StateChange) (err error) {
	for range 3 {
		if _, err = s.n.catalog.SetState(ctx, by, id, version, ch); !is(err, toolkeep.StateConflict) {
			break
		}
	}
	return err
}

func is(err error, code toolkeep.Code) bool {
	var e *toolkeep.Error
	return errors.As(err, &e) && e.Code == code
}

// answer is the plan with what stands in the catalogue now.
func (s *servers) answer(c choice, plan *source.Plan) *rest.ServerPlan {
	have := s.managed(c.item)
	defs := make(map[string][]byte, len(c.defs.Tools))
	for _, d := range c.defs.Tools {
		if digest, err := source.Digest(d); err == nil {
			defs[digest] = d
		}
	}
	out := &rest.ServerPlan{Server: c.item.name, Refused: plan.Refused, Warnings: plan.Warnings}
	for _, t := range plan.Tools {
		st := rest.ServerTool{PlannedTool: t, State: "pending"}
		if was, known := have[t.ID]; known {
			switch {
			case was.life.Held != nil:
				st.State = "held"
				out.Held++
			case !was.live() && (t.Change == source.ChangeGone || !was.blockedByServer()):
				st.State = "blocked"
			case !was.live():
				// It was taken out, and is back.
			default:
				st.State = "published"
			}
			if now := defs[t.Digest]; now != nil && t.Change != source.ChangeUnchanged {
				if before, err := source.Definition(was.tool); err == nil {
					st.Changes = source.Diff(before, now)
				}
			}
		}
		out.Tools = append(out.Tools, st)
	}
	for _, r := range plan.Refused {
		if have[r.ID].life.Held != nil {
			out.Held++
		}
	}
	return out
}

func (s *servers) notePending(id serverID, plan *rest.ServerPlan) {
	var names []string
	for _, t := range plan.Tools {
		if t.State == "pending" {
			names = append(names, t.ID)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(names) > len(s.pending[id]) {
		s.n.logger("mcp").Info("an MCP server offers tools that nobody has accepted", "server", id.name, "tools", len(names))
	}
	s.pending[id] = names
}

// readTime bounds the reading of definitions that somebody waits for.
const readTime = 2 * time.Minute

// PutServer implements rest.Servers.
func (s *servers) PutServer(ctx context.Context, p *toolkeep.Principal, name string, body []byte, o rest.ServerOptions) (*rest.ServerPlan, error) {
	id := serverID{p.Tenant, name}
	if o.Shared {
		id.owner = ""
		if p.Tenant != System().Tenant {
			return nil, toolkeep.NewError(toolkeep.PermissionDenied, "servers for all tenants are kept by administrators of the tenant %s", System().Tenant)
		}
	}
	spec, err := upstream.ParseSpec(name, id.owner, body)
	if err != nil {
		return nil, err
	}
	if s.clashes(id) {
		return nil, toolkeep.NewError(toolkeep.StateConflict, "the name %s is taken: a server for all tenants and one of a tenant cannot have the same", name)
	}
	if spec.Transport == upstream.Stdio && !s.mayRun(p.Tenant) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "programs run on the server's host as the server's user, which no tenant but %s may have started; "+
			"reach the MCP server by http or sse, or have the operator name the tenant %s in mcp.stdio_tenants", System().Tenant, p.Tenant)
	}
	old, replaces := s.item(id)
	var before *upstream.Spec
	if replaces {
		before, _ = upstream.ParseSpec(name, id.owner, old.Body) // one that cannot be read has no values to keep
	}
	if faults := spec.Validate(); len(faults) > 0 {
		return nil, toolkeep.FaultsError(toolkeep.InvalidManifest, "the MCP server cannot be taken: "+faults[0].Pointer+": "+faults[0].Message, faults)
	}
	if err := s.seal(spec, before); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	defs, err := s.probe(ctx, p, spec)
	if errors.Is(err, errOwnSession) && spec.Session == "" {
		spec.Session = upstream.SessionPrincipal
		defs, err = s.probe(ctx, p, spec)
	}
	if err != nil {
		return nil, err
	}
	c := choice{by: actor(id.owner, p), item: id, spec: spec.Filled(), defs: defs, imports: !replaces}
	if o.DryRun {
		plan, _, err := s.plan(ctx, c)
		if err != nil {
			return nil, err
		}
		return s.answer(c, plan), nil
	}
	item := toolkeep.Document{Kind: upstream.DocumentKind, Tenant: id.owner, ID: name, Body: spec.Body(), UpdatedAt: s.n.now(), UpdatedBy: p.Subject}
	if err := s.put(ctx, item, old.Revision); err != nil {
		return nil, err
	}
	plan, err := s.reconcile(ctx, c)
	if err != nil && !replaces {
		// A second import is to be the first one again.
		now := context.WithoutCancel(ctx)
		if s.n.store.Apply(now, toolkeep.DeleteDocument{Kind: upstream.DocumentKind, Tenant: id.owner, ID: name, Expect: toolkeep.AnyRevision, By: p.Subject}) == nil {
			s.drop(id)
		}
	}
	return plan, err
}

// mayRun tells whether administrators of a tenant may have programs started. A
// program can read what the server can, the secrets of all tenants included.
func (s *servers) mayRun(tenant string) bool {
	list := s.n.config.MCP.StdioTenants
	return tenant == System().Tenant || slices.Contains(list, tenant) || slices.Contains(list, "*")
}

// put stores a server that must have the revision, 0 for none.
func (s *servers) put(ctx context.Context, item toolkeep.Document, revision int64) error {
	err := s.n.store.Apply(ctx, toolkeep.PutDocument{Document: item, Expect: revision})
	switch {
	case errors.Is(err, toolkeep.ErrStale):
		return toolkeep.NewError(toolkeep.StateConflict, "the MCP server %s was changed by somebody else meanwhile; look at it and put it again", item.ID)
	case err != nil:
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the MCP server cannot be kept now").Because(err)
	}
	item.Revision = revision + 1
	s.take(item)
	return nil
}

// maxShownLog is how much of a server's log, in bytes, comes with the error of an
// import.
const maxShownLog = 4 << 10

// probe starts the server once, apart from those that run, and reads what it
// offers.
func (s *servers) probe(ctx context.Context, p *toolkeep.Principal, spec *upstream.Spec) (upstream.Definitions, error) {
	config := s.config
	config.OnDefinitions = nil
	one := upstream.New(config)
	defer func() {
		now, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancel() // nothing is under way
		_ = one.Stop(now)
	}()
	try := *spec
	try.Disabled = false
	one.Set([]upstream.Spec{try})
	defs, err := one.Refresh(ctx, p, spec.Name)
	var e *toolkeep.Error
	if errors.As(err, &e) && e.Code == toolkeep.DestinationForbidden {
		inner := toolkeep.NewError(e.Code, "the MCP server %s is at an address that only its definition can open; if it is meant to be reached there, "+
			"name the host under network, or import it with --allow HOST:PORT", spec.Name).Because(e)
		inner.Details, inner.NothingSent = e.Details, true
		return defs, inner
	}
	if e != nil {
		// Its log goes with the server that is not kept.
		said := *e
		said.Details = maps.Clone(e.Details)
		if log, logErr := one.Logs(p, spec.Name); logErr == nil && len(log) > 0 {
			said.With("log", strings.ToValidUTF8(string(log[max(0, len(log)-maxShownLog):]), ""))
		}
		return defs, &said
	}
	return defs, err
}

// RemoveServer implements rest.Servers.
func (s *servers) RemoveServer(ctx context.Context, p *toolkeep.Principal, name string) error {
	it, err := s.changeable(p, name)
	if err != nil {
		return err
	}
	id := serverID{it.Tenant, it.ID}
	defer s.turn(id)()
	for tool, t := range s.tools(id) {
		if t.live() {
			if err := s.blockTool(ctx, actor(it.Tenant, p), tool, toolkeep.CauseServerRemoved, "the MCP server "+name+" was removed"); err != nil {
				return err
			}
		}
	}
	err = s.n.store.Apply(ctx, toolkeep.DeleteDocument{Kind: upstream.DocumentKind, Tenant: it.Tenant, ID: it.ID, Expect: toolkeep.AnyRevision, By: p.Subject})
	if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the MCP server cannot be removed now").Because(err)
	}
	s.drop(id)
	return s.logins.Remove(ctx, it.ID, it.Tenant)
}

// ListServers implements rest.Servers.
func (s *servers) ListServers(_ context.Context, p *toolkeep.Principal) ([]rest.ServerState, error) {
	var out []rest.ServerState
	for _, st := range s.up.Status(p) {
		id := serverID{st.Owner, st.Name}
		v := rest.ServerState{Status: st}
		live := 0
		for _, t := range s.tools(id) {
			if !t.live() {
				continue
			}
			live++
			if t.life.Held != nil {
				v.Held++
			}
		}
		if v.Tools == 0 { // nobody has read its lists since the start
			v.Tools = live
		}
		// How a server for all tenants is started is its keepers' business.
		if spec, ok := s.up.Get(p, st.Name); ok && (spec.Tenant != "" || p.Tenant == System().Tenant) {
			v.Spec = shown(spec)
		}
		s.mu.Lock()
		v.Pending = slices.Clone(s.pending[id])
		s.mu.Unlock()
		out = append(out, v)
	}
	return out, nil
}

// current reads what a server offers now, by Refresh or Compare of the upstream servers.
func (s *servers) current(ctx context.Context, p *toolkeep.Principal, name string, read func(context.Context, *toolkeep.Principal, string) (upstream.Definitions, error)) (choice, error) {
	it, ok := s.owned(p, name)
	if !ok {
		return choice{}, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no MCP server %q", name[:min(len(name), 64)])
	}
	spec, err := upstream.ParseSpec(it.ID, it.Tenant, it.Body)
	if err != nil {
		return choice{}, err
	}
	defs, err := read(ctx, p, name)
	return choice{by: steward(it.Tenant), item: serverID{it.Tenant, it.ID}, spec: spec.Filled(), defs: defs}, err
}

// ServerDiff implements rest.Servers.
func (s *servers) ServerDiff(ctx context.Context, p *toolkeep.Principal, name string) (*rest.ServerPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	c, err := s.current(ctx, p, name, s.up.Compare)
	if err != nil {
		return nil, err
	}
	plan, _, err := s.plan(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.answer(c, plan), nil
}

// refresh reads what a server offers now, and holds and releases as that wants.
func (s *servers) refresh(ctx context.Context, p *toolkeep.Principal, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	c, err := s.current(ctx, p, name, s.up.Refresh)
	if err != nil {
		return err
	}
	_, err = s.reconcile(ctx, c)
	return err
}

// AcceptServer implements rest.Servers.
func (s *servers) AcceptServer(ctx context.Context, p *toolkeep.Principal, name string, tools []string) (*rest.ServerPlan, error) {
	it, err := s.changeable(p, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	seen := map[string]string{}
	for id, t := range s.managed(serverID{it.Tenant, it.ID}) {
		if t.life.Held != nil {
			seen[id] = t.life.Held.Digest
		}
	}
	c, err := s.current(ctx, p, name, s.up.Refresh)
	if err != nil {
		return nil, err
	}
	c.by, c.seen = actor(it.Tenant, p), seen
	if len(tools) > 0 {
		plan, _, err := s.plan(ctx, c)
		if err != nil {
			return nil, err
		}
		for _, id := range tools {
			if !slices.ContainsFunc(plan.Tools, func(t source.PlannedTool) bool { return t.ID == id }) {
				return nil, toolkeep.NewError(toolkeep.InvalidParameters, "%q is no tool of the MCP server %s; `toolkeep servers diff %s` lists them", id[:min(len(id), 100)], name, name)
			}
		}
	}
	c.accept = func(id string) bool { return len(tools) == 0 || slices.Contains(tools, id) }
	return s.reconcile(ctx, c)
}

// SteerServer implements rest.Servers.
func (s *servers) SteerServer(ctx context.Context, p *toolkeep.Principal, name, action string) error {
	switch action {
	case "restart":
		return s.up.Restart(p, name)
	case "refresh":
		return s.refresh(ctx, p, name)
	}
	it, ok := s.owned(p, name)
	if !ok || !s.exists(p, serverID{it.Tenant, it.ID}) {
		return toolkeep.NewError(toolkeep.ResourceNotFound, "there is no MCP server %q", name[:min(len(name), 64)])
	}
	spec, err := upstream.ParseSpec(it.ID, it.Tenant, it.Body)
	if err != nil {
		return err
	}
	if spec.Transport == upstream.Stdio {
		return toolkeep.NewError(toolkeep.InvalidParameters, "the MCP server %s is a program of ours and knows no logins", name)
	}
	if action == "logout" {
		return s.logins.Logout(ctx, s.account(spec, p))
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	return s.logIn(ctx, p, spec)
}

// logIn is nil if the principal can use the server, and E3407 where a login is
// missing, also one that the server wants for its tools alone and not for its
// lists.
func (s *servers) logIn(ctx context.Context, p *toolkeep.Principal, spec *upstream.Spec) error {
	if _, err := s.up.Refresh(ctx, p, spec.Name); err != nil {
		return err
	}
	if auth, err := s.authorize(ctx, spec, p); err != nil || auth == nil || spec.Filled().Session == upstream.SessionShared {
		return err
	}
	r := s.account(spec, p)
	token, err := s.logins.Token(ctx, r)
	if err != nil || token != "" {
		return err
	}
	return s.logins.Login(ctx, r, nil)
}

// ServerLogs implements rest.Servers.
func (s *servers) ServerLogs(_ context.Context, p *toolkeep.Principal, name string) ([]byte, error) {
	return s.up.Logs(p, name)
}
