package servers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

// Plan is what a server's definitions are against the pinned ones.
type Plan struct {
	Server    string
	Tools     []Tool
	Refused   []source.Refused // definitions that cannot become tools
	Warnings  []string
	Published int // versions that were published now
	Held      int // tools that wait for review
	// Definition is set with ImportOptions.Compare alone.
	Definition Definition
}

// Definition is how a definition compares with the stored one.
type Definition string

const (
	DefinitionNew     Definition = "new"
	DefinitionChanged Definition = "changed"
	DefinitionSame    Definition = "same"
)

// Tool is one definition, or a tool whose definition is gone.
type Tool struct {
	source.PlannedTool
	State   ToolState
	Changes []source.Change // what differs from the pinned definition
	// Definition is what is offered where nothing is pinned, as JSON with the invisible characters of its texts and names escaped.
	// It is left out once an answer has 2 MiB of them, which a warning says.
	Definition []byte
}

// ToolState is what stands in the catalogue for a definition.
type ToolState string

const (
	ToolPublished ToolState = "published"
	ToolHeld      ToolState = "held"
	ToolPending   ToolState = "pending" // not accepted yet
	ToolBlocked   ToolState = "blocked"
)

// comparison is what a server offers, with who accepts what of it.
type comparison struct {
	id      serverID
	spec    *upstream.Spec
	defs    upstream.Definitions
	by      *toolkeep.Principal    // publishes
	accepts func(tool string) bool // what changed, is new or is gone; nil accepts nothing
	whole   bool                   // accepts is for all that the server offers
	// seen are the held tools with the digest that each is held for: a definition that
	// has changed once more is not what was looked at.
	seen map[string]string
	// expected, if not nil, is the digest of each definition that may be accepted, "" of one that is gone.
	expected map[string]string
	// firstImport is set for the import that first shows the tools: a tool with a finding
	// of severity high waits until an operator accepts it.
	firstImport bool
}

// everything accepts all tools.
func everything(string) bool { return true }

func (c *comparison) accepted(t *source.PlannedTool) bool {
	seen, held := c.seen[t.ID]
	return c.accepts != nil && c.accepts(t.ID) && (!held || seen == t.Digest) && !(c.firstImport && grave(t.Findings))
}

// publisher is the principal under which an owner's tools are published, in the name of
// by where that is not nil.
func publisher(owner string, by *toolkeep.Principal) *toolkeep.Principal {
	p := access.System()
	if owner != "" {
		p.Tenant = owner
	}
	if by != nil {
		p.Subject = by.Subject
	}
	return p
}

// plan compares definitions with what is pinned, and changes nothing.
func (s *Servers) plan(ctx context.Context, c comparison) (*source.Plan, map[string]pinned, error) {
	have := s.managed(c.id)
	var live []string
	for id, t := range have {
		if t.live() {
			live = append(live, id)
		}
	}
	slices.Sort(live)
	taken := 0
	if c.firstImport {
		taken = s.neighbours(c.id)
	}
	previous := func(id string) *toolkeep.Tool { return s.highest(c.by, id) }
	plan, err := source.Read(ctx, c.defs.Tools, source.Options{Server: c.id.name, Previous: previous, Published: live,
		Known: s.otherNames(c.id), TrustAnnotations: true, Timeout: c.spec.CallTimeout, MaxTools: c.spec.MaxTools,
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
	if taken > 0 {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("the namespace %s has %d other tools already: keys, roles and sets of tools that are limited to %s.* now cover the tools of this server too; import it under a name of its own if that is not meant",
			c.id.name, taken, c.id.name))
	}
	return plan, have, nil
}

// neighbours counts the tools of a server's namespace that do not come from it and that its owner can be shown.
func (s *Servers) neighbours(id serverID) int {
	have, others := s.managed(id), map[string]bool{}
	for v := range s.c.Catalog.Snapshot().All() {
		t := v.Tool
		if _, ours := have[t.ID]; !ours && strings.HasPrefix(t.ID, id.name+".") && (t.Tenant == "" || t.Tenant == id.owner) && v.Life.State != toolkeep.Removed {
			others[t.ID] = true
		}
	}
	return len(others)
}

// answer is a plan with what stands in the catalogue now.
func (s *Servers) answer(c comparison, plan *source.Plan) *Plan {
	have := s.managed(c.id)
	defs := make(map[string][]byte, len(c.defs.Tools))
	for _, d := range c.defs.Tools {
		if digest, err := source.Digest(d); err == nil {
			defs[digest] = d
		}
	}
	out := &Plan{Server: c.id.name, Refused: plan.Refused, Warnings: plan.Warnings}
	room, unshown := shownDefinitions, 0
	for _, t := range plan.Tools {
		was, known := have[t.ID]
		tool := Tool{PlannedTool: t, State: ToolPending}
		if known {
			tool.State = stateOf(was, t.Change)
			if now := defs[t.Digest]; now != nil && t.Change != source.ChangeUnchanged {
				if before, err := source.Definition(was.tool); err == nil {
					tool.Changes = source.Diff(before, now)
				}
			}
		} else if now := defs[t.Digest]; now != nil {
			if tool.Definition = source.Readable(now); room < len(tool.Definition) {
				tool.Definition, room = nil, 0
			}
			if room -= len(tool.Definition); tool.Definition == nil {
				unshown++
			}
		}
		if tool.State == ToolHeld {
			out.Held++
		}
		out.Tools = append(out.Tools, tool)
	}
	for _, r := range plan.Refused {
		if have[r.ID].life.Held != nil {
			out.Held++
		}
	}
	if unshown > 0 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("the definitions of %d new tools are too long to be shown here; accept the others first, and compare again", unshown))
	}
	return out
}

// shownDefinitions bounds the definitions of new tools in one answer, in bytes.
const shownDefinitions = 2 << 20

func stateOf(t pinned, change string) ToolState {
	switch {
	case t.life.Held != nil:
		return ToolHeld
	case t.live():
		return ToolPublished
	case change == source.ChangeGone || t.blockedByAdministrator():
		return ToolBlocked
	}
	return ToolPending // it was taken out, and is offered again
}

// Diff reads what a server offers now and compares it with what is pinned. It changes
// nothing. E3013, and what the server answers.
func (s *Servers) Diff(ctx context.Context, p *toolkeep.Principal, name string) (*Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	c, err := s.readNow(ctx, p, name, s.c.Pool.Compare)
	if err != nil {
		return nil, err
	}
	plan, _, err := s.plan(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.answer(c, plan), nil
}
