package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/face/rest"
	"github.com/toolkeep/toolkeep/upstream"
)

// choice is what a comparison may do without anybody being asked.
type choice struct {
	fresh  bool                 // publish tools that are new
	accept func(id string) bool // take over what changed or is gone; nil takes nothing
	by     *toolkeep.Principal  // who publishes
	item   serverID             // owner and name
	spec   *upstream.Spec
	defs   upstream.Definitions
}

// steward is the principal under which a server's tools are published.
func steward(owner string) *toolkeep.Principal {
	p := System()
	if owner != "" {
		p.Tenant = owner
	}
	return p
}

// heard takes note of definitions that were read; the loop compares them.
func (s *servers) heard(server, tenant string, d upstream.Definitions) {
	s.changed(server, tenant)
	s.mu.Lock()
	s.news[serverID{tenant, server}] = d
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *servers) reconcileLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		s.mu.Lock()
		news := s.news
		s.news = map[serverID]upstream.Definitions{}
		s.mu.Unlock()
		for id, defs := range news {
			it, ok := s.owned(&toolkeep.Principal{Tenant: id.owner}, id.name)
			if !ok {
				continue
			}
			spec, err := upstream.ParseSpec(it.ID, it.Tenant, it.Body)
			if err == nil {
				_, err = s.reconcile(ctx, choice{by: steward(it.Tenant), item: serverID{it.Tenant, it.ID}, spec: spec.Filled(), defs: defs})
			}
			if err != nil && ctx.Err() == nil {
				s.n.logger("mcp").Error("the definitions of an MCP server could not be compared with the pinned ones", "server", id.name, "error", err)
			}
		}
	}
}

// plan compares definitions with what is pinned.
func (s *servers) plan(ctx context.Context, c choice) (*source.Plan, map[string]pinned, error) {
	have := s.tools(c.item)
	var live []string
	for id, t := range have {
		if t.live() {
			live = append(live, id)
		}
	}
	slices.Sort(live)
	plan, err := source.Read(ctx, c.defs.Tools, source.Options{Server: c.item.name, Previous: s.n.previous(c.by), Published: live,
		Known: s.known(c.item), TrustAnnotations: true, Timeout: c.spec.CallTimeout, MaxTools: c.spec.MaxTools})
	return plan, have, err
}

// actions are what a comparison leads to.
type actions struct {
	publish  [][]byte
	hold     []catalog.HoldChange
	activate []string          // blocked tools that are back
	block    []string          // tools that are gone
	retire   map[string]string // tools whose old versions end: the new version
}

func (a *actions) add(c choice, t source.PlannedTool, have map[string]pinned) {
	was, known := have[t.ID]
	held := known && was.life.Held != nil
	accepted := c.accept != nil && c.accept(t.ID)
	policy := c.spec.OnChange == upstream.OnChangeAdditive && !grave(t.Findings)
	release := func() {
		if held {
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
		if c.fresh || accepted || policy {
			a.publish = append(a.publish, t.Manifest)
		}
	case source.ChangeUnchanged:
		release()
		if c.fresh || accepted {
			back()
		}
	case source.ChangeGone:
		if accepted {
			release()
			a.block = append(a.block, t.ID)
			return
		}
		a.hold = append(a.hold, catalog.HoldChange{ToolID: t.ID, Hold: &toolkeep.Hold{Why: fmt.Sprintf(
			"the MCP server %s does not offer this tool any more; `toolkeep servers accept %s` takes it out", c.item.name, c.item.name)}})
	default:
		// The definition is the accepted one where only our own settings changed, such
		// as a time limit.
		same := known && was.tool.Manifest.Source != nil && was.tool.Manifest.Source.Digest == t.Digest
		if accepted || same || policy && t.Additive {
			a.publish = append(a.publish, t.Manifest)
			release()
			back()
			if !t.Additive && !same {
				a.retire[t.ID] = t.Version
			}
			return
		}
		a.hold = append(a.hold, catalog.HoldChange{ToolID: t.ID, Hold: &toolkeep.Hold{Digest: t.Digest, Why: fmt.Sprintf(
			"the MCP server %s offers another definition than the accepted one; `toolkeep servers diff %s` shows what changed, `toolkeep servers accept %s` takes it over",
			c.item.name, c.item.name, c.item.name)}})
	}
}

func grave(findings []source.Finding) bool {
	return slices.ContainsFunc(findings, func(f source.Finding) bool { return f.Severity == source.High })
}

// reconcile compares and acts.
func (s *servers) reconcile(ctx context.Context, c choice) (*rest.ServerPlan, error) {
	plan, have, err := s.plan(ctx, c)
	if err != nil {
		return nil, err
	}
	a := actions{retire: map[string]string{}}
	for _, t := range plan.Tools {
		a.add(c, t, have)
	}
	for _, r := range plan.Refused {
		if was, known := have[r.ID]; known && was.live() {
			a.hold = append(a.hold, catalog.HoldChange{ToolID: r.ID, Hold: &toolkeep.Hold{Digest: r.Digest, Why: fmt.Sprintf(
				"the MCP server %s offers a definition now that cannot become a tool: %s", c.item.name, r.Reason[:min(len(r.Reason), 1000)])}})
		}
	}
	published, err := s.act(ctx, c, a)
	if err != nil {
		return nil, err
	}
	out := s.answer(c, plan)
	out.Published = published
	s.notePending(c.item, out)
	return out, nil
}

func (s *servers) act(ctx context.Context, c choice, a actions) (published int, err error) {
	cat := s.n.catalog
	for part := range slices.Chunk(a.publish, catalog.MaxBatch) {
		done, err := cat.Publish(ctx, c.by, part, catalog.PublishOptions{Shared: c.item.owner == ""})
		if err != nil {
			return published, err
		}
		for _, d := range done {
			if d.Created {
				published++
			}
		}
	}
	for _, id := range a.activate {
		if _, err := cat.SetState(ctx, c.by, id, "", catalog.StateChange{State: toolkeep.Active}); err != nil {
			return published, err
		}
	}
	for id, version := range a.retire {
		if err := s.retire(ctx, c, id, version); err != nil {
			return published, err
		}
	}
	for part := range slices.Chunk(a.hold, catalog.MaxBatch) {
		if err := cat.SetHolds(ctx, c.by, part); err != nil {
			return published, err
		}
	}
	for _, id := range a.block {
		if err := s.blockTool(ctx, c.by, id, "the MCP server "+c.item.name+" does not offer this tool any more"); err != nil {
			return published, err
		}
	}
	return published, nil
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
		_, err := s.n.catalog.SetState(ctx, c.by, id, v.Tool.Version, catalog.StateChange{State: toolkeep.Removed, Now: true, Successor: version,
			Reason: "the MCP server " + c.item.name + " changed this tool"})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *servers) blockTool(ctx context.Context, by *toolkeep.Principal, id, why string) error {
	_, err := s.n.catalog.SetState(ctx, by, id, "", catalog.StateChange{State: toolkeep.Blocked, Reason: why})
	var e *toolkeep.Error
	if errors.As(err, &e) && e.Code == toolkeep.ToolRemoved {
		return nil
	}
	return err
}

// answer is the plan with what stands in the catalogue now.
func (s *servers) answer(c choice, plan *source.Plan) *rest.ServerPlan {
	have := s.tools(c.item)
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
			case !was.live():
				st.State = "blocked"
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
	s.mu.Lock()
	old, replaces := s.items[id]
	s.mu.Unlock()
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
	c := choice{by: steward(id.owner), item: id, spec: spec.Filled(), defs: defs, fresh: !replaces}
	if o.DryRun {
		plan, _, err := s.plan(ctx, c)
		if err != nil {
			return nil, err
		}
		return s.answer(c, plan), nil
	}
	item := toolkeep.Item{Kind: upstream.ItemKind, Tenant: id.owner, ID: name, Body: spec.Body(), UpdatedAt: s.n.now(), UpdatedBy: p.Subject}
	err = s.n.store.Apply(ctx, toolkeep.PutItem{Item: item, Expect: old.Revision})
	switch {
	case errors.Is(err, toolkeep.ErrStale):
		return nil, toolkeep.NewError(toolkeep.StateConflict, "the MCP server %s was changed by somebody else meanwhile; look at it and put it again", name)
	case err != nil:
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the MCP server cannot be kept now").Because(err)
	}
	item.Revision = old.Revision + 1
	s.take(item)
	return s.reconcile(ctx, c)
}

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
	return one.Definitions(ctx, p, spec.Name)
}

// RemoveServer implements rest.Servers.
func (s *servers) RemoveServer(ctx context.Context, p *toolkeep.Principal, name string) error {
	it, _, err := s.changeable(p, name)
	if err != nil && it.ID == "" {
		return err
	}
	id := serverID{it.Tenant, it.ID}
	for tool, t := range s.tools(id) {
		if t.live() {
			if err := s.blockTool(ctx, steward(it.Tenant), tool, "the MCP server "+name+" was removed"); err != nil {
				return err
			}
		}
	}
	err = s.n.store.Apply(ctx, toolkeep.DropItem{Kind: upstream.ItemKind, Tenant: it.Tenant, ID: it.ID, Expect: toolkeep.AnyRevision, By: p.Subject})
	if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the MCP server cannot be removed now").Because(err)
	}
	s.drop(id)
	return nil
}

// ListServers implements rest.Servers.
func (s *servers) ListServers(_ context.Context, p *toolkeep.Principal) ([]rest.ServerState, error) {
	var out []rest.ServerState
	for _, st := range s.up.Status(p) {
		id := serverID{st.Owner, st.Name}
		v := rest.ServerState{Status: st}
		for _, t := range s.tools(id) {
			if t.life.Held != nil {
				v.Held++
			}
		}
		if spec, ok := s.up.Get(p, st.Name); ok {
			v.Spec = shown(spec)
		}
		s.mu.Lock()
		v.Pending = slices.Clone(s.pending[id])
		s.mu.Unlock()
		out = append(out, v)
	}
	return out, nil
}

// current reads what a server offers now.
func (s *servers) current(ctx context.Context, p *toolkeep.Principal, name string) (choice, error) {
	it, ok := s.owned(p, name)
	if !ok {
		return choice{}, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no MCP server %q", name[:min(len(name), 64)])
	}
	spec, err := upstream.ParseSpec(it.ID, it.Tenant, it.Body)
	if err != nil {
		return choice{}, err
	}
	defs, err := s.up.Refresh(ctx, p, name)
	return choice{by: steward(it.Tenant), item: serverID{it.Tenant, it.ID}, spec: spec.Filled(), defs: defs}, err
}

// ServerDiff implements rest.Servers.
func (s *servers) ServerDiff(ctx context.Context, p *toolkeep.Principal, name string) (*rest.ServerPlan, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	c, err := s.current(ctx, p, name)
	if err != nil {
		return nil, err
	}
	return s.reconcile(ctx, c)
}

// AcceptServer implements rest.Servers.
func (s *servers) AcceptServer(ctx context.Context, p *toolkeep.Principal, name string, tools []string) (*rest.ServerPlan, error) {
	if _, _, err := s.changeable(p, name); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	c, err := s.current(ctx, p, name)
	if err != nil {
		return nil, err
	}
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
		_, err := s.ServerDiff(ctx, p, name)
		return err
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
	_, err = s.up.Refresh(ctx, p, name)
	return err
}

// ServerLogs implements rest.Servers.
func (s *servers) ServerLogs(_ context.Context, p *toolkeep.Principal, name string) ([]byte, error) {
	return s.up.Logs(p, name)
}
