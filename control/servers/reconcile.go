package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

// actions are what a comparison leads to.
type actions struct {
	publish  []*catalog.Checked
	hold     []catalog.HoldChange // holds and releases
	held     []string             // tools that are held from now on, or for another cause or digest
	activate []string             // blocked tools that are offered again
	block    []string             // tools that are gone
	retire   map[string]string    // tools whose older versions end, with the version to move to
}

// decide adds what follows for one tool of the plan.
func (a *actions) decide(c *comparison, t *source.PlannedTool, was pinned, known bool) {
	if known && (was.blockedByAdministrator() || was.heldByAdministrator()) {
		return // a new version would pass over what the administrator decided
	}
	accepted := c.accepted(t)
	additive := c.spec.OnChange == upstream.OnChangeAdditive && !grave(t.Findings)
	switch t.Change {
	case source.ChangeNew:
		if accepted || additive {
			a.publish = append(a.publish, t.Checked)
		}
	case source.ChangeUnchanged:
		a.release(t.ID, was)
		if accepted || additive {
			a.unblock(t.ID, was)
		}
	case source.ChangeGone:
		switch {
		case accepted:
			a.release(t.ID, was)
			a.block = append(a.block, t.ID)
		case c.defs.Settled: // else it may come yet
			a.holdTool(t.ID, was, toolkeep.Hold{Cause: toolkeep.CauseDefinitionGone, Why: fmt.Sprintf(
				"the MCP server %s does not offer this tool any more; `toolkeep servers accept %s` takes it out", c.id.name, c.id.name)})
		}
	default:
		// The definition is the accepted one where only our own settings changed, such
		// as a time limit.
		same := known && was.digest == t.Digest
		switch {
		case same && !was.live() && !accepted && !additive:
		case accepted || same || additive && t.Additive:
			a.publish = append(a.publish, t.Checked)
			a.release(t.ID, was)
			a.unblock(t.ID, was)
			if !t.Additive && !same {
				a.retire[t.ID] = t.Version
			}
		case known && was.live():
			a.holdTool(t.ID, was, toolkeep.Hold{Cause: toolkeep.CauseDefinitionChanged, Digest: t.Digest, Why: fmt.Sprintf(
				"the MCP server %s offers another definition than the accepted one; `toolkeep servers diff %s` shows what changed, `toolkeep servers accept %s` takes it over",
				c.id.name, c.id.name, c.id.name)})
		}
	}
}

// release lifts a hold that is not an administrator's.
func (a *actions) release(id string, was pinned) {
	if was.life.Held != nil && !was.heldByAdministrator() {
		a.hold = append(a.hold, catalog.HoldChange{ToolID: id})
	}
}

// unblock activates a tool that is blocked.
func (a *actions) unblock(id string, was pinned) {
	if was.life.State == toolkeep.Blocked {
		a.activate = append(a.activate, id)
	}
}

// holdTool holds a tool that an administrator does not hold already.
func (a *actions) holdTool(id string, was pinned, h toolkeep.Hold) {
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
func (s *Servers) reconcile(ctx context.Context, c comparison) (*Plan, error) {
	defer s.lock(c.id)()
	if _, ok := s.get(c.id); !ok {
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "the MCP server %s was removed", c.id.name)
	}
	plan, have, err := s.plan(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := c.asExpected(plan); err != nil {
		return nil, err
	}
	a := actions{retire: map[string]string{}}
	for i := range plan.Tools {
		t := &plan.Tools[i]
		was, known := have[t.ID]
		a.decide(&c, t, was, known)
		if known && was.heldByAdministrator() && c.accepts != nil && c.accepts(t.ID) && t.Change != source.ChangeUnchanged {
			plan.Warnings = append(plan.Warnings, t.ID+" is held by an administrator, so it was not accepted; let it go first")
		}
		if seen, held := c.seen[t.ID]; held && c.accepts(t.ID) && seen != t.Digest && t.Change != source.ChangeUnchanged {
			plan.Warnings = append(plan.Warnings, t.ID+" changed again since it was held, so it was not accepted; compare it again")
		}
	}
	for _, r := range plan.Refused {
		if was, known := have[r.ID]; known && was.live() {
			a.holdTool(r.ID, was, toolkeep.Hold{Cause: toolkeep.CauseDefinitionInvalid, Digest: r.Digest, Why: fmt.Sprintf(
				"the MCP server %s offers a definition now that cannot become a tool: %s", c.id.name, r.Reason[:min(len(r.Reason), 1000)])})
		}
	}
	published, refused, err := s.act(ctx, c, a)
	if err != nil {
		return nil, err
	}
	s.setAbout(ctx, c)
	if len(a.held) > 0 {
		s.c.Log.Warn("an MCP server changed accepted tools; they are held for review", "event", "ai.agent.tool.definition.changed",
			"server", c.id.name, "owner", c.id.owner, "tools", len(a.held), "first", a.held[:min(len(a.held), 20)])
	}
	plan.Tools = slices.DeleteFunc(plan.Tools, func(t source.PlannedTool) bool {
		return slices.ContainsFunc(refused, func(r source.Refused) bool { return r.ID == t.ID })
	})
	plan.Refused = append(plan.Refused, refused...)
	out := s.answer(c, plan)
	out.Published = published
	s.notePending(c.id, out)
	return out, nil
}

// setAbout keeps what the server says of itself, for searches, when all its tools are accepted for the first time. Later it
// changes by hand alone: a comparison does not show it, so an accept of tools is no word on it.
func (s *Servers) setAbout(ctx context.Context, c comparison) {
	if !c.whole {
		return
	}
	title := cmp.Or(mcp.Text(c.defs.Server, "title"), mcp.Text(c.defs.Server, "name"))
	text, found := catalog.AboutText(title, mcp.Text(c.defs.Server, "description"), c.defs.Instructions)
	if found != nil {
		s.c.Log.Warn("what an MCP server says of itself is not looked for in searches", "server", c.id.name, "owner", c.id.owner, "finding", found.Message, "text", found.Text)
	}
	if err := s.c.Catalog.SetAbout(ctx, c.by, c.id.name, text, catalog.AboutOfServer, c.id.owner == ""); err != nil {
		s.c.Log.Warn("what an MCP server says of itself was not kept", "server", c.id.name, "owner", c.id.owner, "error", err)
	}
}

func (s *Servers) notePending(id serverID, plan *Plan) {
	var ids []string
	for _, t := range plan.Tools {
		if t.State == ToolPending {
			ids = append(ids, t.ID)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(ids) > len(s.pending[id]) {
		s.c.Log.Info("an MCP server offers tools that were not accepted yet", "server", id.name, "tools", len(ids))
	}
	s.pending[id] = ids
}

func (s *Servers) act(ctx context.Context, c comparison, a actions) (published int, refused []source.Refused, err error) {
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
		if err := s.c.Catalog.SetHolds(ctx, c.by, part); err != nil {
			return published, refused, err
		}
	}
	for _, id := range a.block {
		if err := s.block(ctx, c.by, id, toolkeep.CauseDefinitionGone, "the MCP server "+c.id.name+" does not offer this tool any more"); err != nil {
			return published, refused, err
		}
	}
	return published, refused, nil
}

// publish publishes manifests together; where the catalogue refuses one of them,
// each by itself.
func (s *Servers) publish(ctx context.Context, c comparison, manifests []*catalog.Checked) (published int, refused []source.Refused, err error) {
	done, err := s.c.Catalog.PublishChecked(ctx, c.by, manifests, catalog.PublishOptions{Shared: c.id.owner == ""})
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
		raw := manifests[0].Raw()
		binding := mcp.Get(raw, "execution", "binding")
		return 0, []source.Refused{{Index: -1, ID: mcp.Text(raw, "tool_id"), Tool: mcp.Text(binding, "tool"), Reason: e.Message}}, nil
	}
	for _, m := range manifests {
		n, bad, err := s.publish(ctx, c, []*catalog.Checked{m})
		published, refused = published+n, append(refused, bad...)
		if err != nil {
			return published, refused, err
		}
	}
	return published, refused, nil
}

// retire removes the versions below a new one whose definition the server does not
// keep: E3009 then names the new one.
func (s *Servers) retire(ctx context.Context, c comparison, id, version string) error {
	all, err := s.c.Catalog.Versions(c.by, id, func(*toolkeep.Tool) bool { return true })
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.Tool.Version == version || v.Life.State == toolkeep.Removed || v.Tool.Tenant != c.id.owner {
			continue
		}
		err := s.setState(ctx, c.by, id, v.Tool.Version, catalog.StateChange{State: toolkeep.Removed, Now: true, Successor: version,
			Reason: "the MCP server " + c.id.name + " changed this tool"})
		if err != nil && !toolkeep.IsCode(err, toolkeep.ToolRemoved) {
			return err
		}
	}
	return nil
}

func (s *Servers) block(ctx context.Context, by *toolkeep.Principal, id string, cause toolkeep.Cause, reason string) error {
	err := s.setState(ctx, by, id, "", catalog.StateChange{State: toolkeep.Blocked, Cause: cause, Reason: reason})
	if toolkeep.IsCode(err, toolkeep.ToolRemoved) {
		return nil
	}
	return err
}

// setState moves versions to what follows from a server's definitions. Another node that
// compares the same server does so at the same moment: then it is tried again, as things
// are now.
func (s *Servers) setState(ctx context.Context, by *toolkeep.Principal, id, version string, ch catalog.StateChange) (err error) {
	for range 3 {
		if _, err = s.c.Catalog.SetState(ctx, by, id, version, ch); !toolkeep.IsCode(err, toolkeep.StateConflict) {
			break
		}
	}
	return err
}

// Refresh reads what a server offers now, and holds and releases its tools as that wants.
// E3013, and what the server answers.
func (s *Servers) Refresh(ctx context.Context, p *toolkeep.Principal, name string) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	c, err := s.readNow(ctx, p, name, s.c.Pool.Refresh)
	if err != nil {
		return err
	}
	_, err = s.reconcile(ctx, c)
	return err
}

// Accept takes over what a server offers now: of the tools with these ids, or of all.
// What changed once more since it was held is left out with a warning. E3013, E3201,
// E3301 for an id that is not the server's, and what the server answers. With expected, by tool id the
// digest that each definition was shown with ("" where it is gone), all is accepted as it was shown or nothing: E3963.
func (s *Servers) Accept(ctx context.Context, p *toolkeep.Principal, name string, tools []string, expected map[string]string) (*Plan, error) {
	doc, err := s.findToChange(p, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	seen := map[string]string{}
	for id, t := range s.managed(serverID{doc.Tenant, doc.ID}) {
		if t.life.Held != nil {
			seen[id] = t.life.Held.Digest
		}
	}
	c, err := s.readNow(ctx, p, name, s.c.Pool.Refresh)
	if err != nil {
		return nil, err
	}
	if expected != nil {
		seen = expected
	}
	c.by, c.seen, c.expected, c.accepts, c.whole = publisher(doc.Tenant, p), seen, expected, everything, len(tools) == 0
	if len(tools) > 0 {
		plan, _, err := s.plan(ctx, c)
		if err != nil {
			return nil, err
		}
		for _, id := range tools {
			if !slices.ContainsFunc(plan.Tools, func(t source.PlannedTool) bool { return t.ID == id }) {
				return nil, toolkeep.NewError(toolkeep.InvalidParameters, "%q is not a tool of the MCP server %s; `toolkeep servers diff %s` lists them", id[:min(len(id), 100)], name, name)
			}
		}
		c.accepts = func(id string) bool { return slices.Contains(tools, id) }
	}
	return s.reconcile(ctx, c)
}

// asExpected refuses a plan by which something else would be accepted than was shown. E3963.
func (c *comparison) asExpected(plan *source.Plan) error {
	if c.expected == nil {
		return nil
	}
	offered := map[string]bool{}
	for i := range plan.Tools {
		t := &plan.Tools[i]
		offered[t.ID] = true
		if digest, shown := c.expected[t.ID]; c.accepts(t.ID) && (shown && digest != t.Digest || !shown && t.Change != source.ChangeUnchanged) {
			return toolkeep.NewError(toolkeep.StateConflict, "the MCP server %s offers another definition of %s than the one in expected; nothing was accepted; compare again", c.id.name, toolkeep.ClipBytes(t.ID, 100))
		}
	}
	for id := range c.expected {
		if !offered[id] {
			return toolkeep.NewError(toolkeep.StateConflict, "the MCP server %s does not offer %q, which is in expected, as a tool; nothing was accepted; compare again", c.id.name, toolkeep.ClipBytes(id, 100))
		}
	}
	return nil
}
