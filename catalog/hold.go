package catalog

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// HoldChange is one change of a SetHolds.
type HoldChange struct {
	ToolID  string
	Version string         // "" is every version except removed ones
	Hold    *toolkeep.Hold // nil lifts the hold
}

// Hold stops a version, or with version "" every version except removed ones, from being executed until Release:
// Resolve returns E3012. The version stays in lists, search and Describe, and keeps its state, so ranges still
// select it: nothing else runs in its place. Waiting calls are refused at their re-check, running ones continue.
//
// h.Why is required, at most 2,000 bytes, and is shown to callers; h.Cause "" is administrator; h.Digest is "" or a
// canon.Digest; h.At zero is now. Holding again with the same cause, text and digest changes nothing, otherwise it
// replaces the hold. The lifecycle returned is that of the highest version held. Hold returns when this catalogue
// shows it.
//
// Errors: E3201 without servers:admin; E3001, E3004 unknown tool or version; E3009 the version is removed; E3301
// for a hold without reason or with an invalid digest; E3003, E3963, E3965 as Publish.
func (c *Catalog) Hold(ctx context.Context, p *toolkeep.Principal, toolID, version string, h *toolkeep.Hold) (toolkeep.Lifecycle, error) {
	if h == nil {
		return toolkeep.Lifecycle{}, badState("a hold needs a reason; Release lifts one")
	}
	return c.setHolds(ctx, p, []HoldChange{{toolID, version, h}}, true)
}

// Release lifts the hold of a version, or with version "" of every one. Without a hold it changes nothing. Errors
// are those of Hold.
func (c *Catalog) Release(ctx context.Context, p *toolkeep.Principal, toolID, version string) (toolkeep.Lifecycle, error) {
	return c.setHolds(ctx, p, []HoldChange{{toolID, version, nil}}, true)
}

// SetHolds is Hold and Release for up to MaxBatch tools, all or none, in one commit. Of two changes of one version
// the last one counts. What an administrator holds stays as it is.
//
// Errors are those of Hold, and E3301 for more than MaxBatch.
func (c *Catalog) SetHolds(ctx context.Context, p *toolkeep.Principal, changes []HoldChange) error {
	if len(changes) == 0 {
		return nil
	}
	_, err := c.setHolds(ctx, p, changes, false)
	return err
}

// HoldByHand holds one version for an administrator, who needs catalog:admin instead of servers:admin, or with why nil lets it
// go. A hold that has another cause stays as it is: the definition behind it is accepted, or comes back. Doing the same again
// changes nothing.
//
// Errors: E3201 without catalog:admin; E3963 for a version that is held for another cause; else those of Hold.
func (c *Catalog) HoldByHand(ctx context.Context, p *toolkeep.Principal, toolID, version string, why *string) (toolkeep.Lifecycle, error) {
	if p == nil || p.Tenant == "" || !p.May(toolkeep.PermLifecycle) {
		return toolkeep.Lifecycle{}, denied(toolkeep.PermLifecycle, "hold or release a tool")
	}
	var h *toolkeep.Hold
	if why != nil {
		h = &toolkeep.Hold{Cause: toolkeep.CauseAdministrator, Why: *why}
	}
	return c.changeHolds(ctx, p, []HoldChange{{toolID, version, h}}, true, func(m move) error {
		if held := m.from.Life.Held; held != nil && held.Cause != toolkeep.CauseAdministrator {
			return toolkeep.NewError(toolkeep.StateConflict, "%s is held already, because its definition at the MCP server is not the accepted one (%s); it is accepted there, or blocked here", m.from.Tool.Ref(), held.Cause)
		}
		return nil
	})
}

func (c *Catalog) setHolds(ctx context.Context, p *toolkeep.Principal, list []HoldChange, byHand bool) (toolkeep.Lifecycle, error) {
	if p == nil || p.Tenant == "" || !p.May(toolkeep.PermServers) {
		return toolkeep.Lifecycle{}, denied(toolkeep.PermServers, "hold or release a tool")
	}
	return c.changeHolds(ctx, p, list, byHand, func(move) error { return nil })
}

// changeHolds asks may about each version. What an administrator holds changes by hand alone.
func (c *Catalog) changeHolds(ctx context.Context, p *toolkeep.Principal, list []HoldChange, byHand bool, may func(move) error) (toolkeep.Lifecycle, error) {
	if len(list) > MaxBatch {
		return toolkeep.Lifecycle{}, badState("%d tools are to be held or released; at most %d at once", len(list), MaxBatch)
	}
	for _, ch := range list {
		if err := checkHold(ch.Hold); err != nil {
			return toolkeep.Lifecycle{}, err
		}
	}
	if !c.running() {
		return toolkeep.Lifecycle{}, unreadable(errors.New("catalog: Hold without Start"))
	}
	ids := make([]string, len(list))
	for i, ch := range list {
		ids[i] = ch.ToolID
	}
	defer c.busy.take(ids)()

	return c.carryOut(ctx, p,
		func() ([]move, error) {
			moves, err := c.holdMoves(p, list, byHand)
			for i := 0; err == nil && i < len(moves); i++ {
				err = may(moves[i])
			}
			return moves, err
		},
		func(m move, at time.Time) (toolkeep.Change, error) {
			return appendEvent(eventDefinition, p.Tenant, at, holdData(m.to, m.from.Life.Held, p.Subject))
		})
}

// holdCauses lists the allowed causes of a hold.
var holdCauses = []toolkeep.Cause{toolkeep.CauseAdministrator, toolkeep.CauseDefinitionChanged, toolkeep.CauseDefinitionGone, toolkeep.CauseDefinitionInvalid}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func checkHold(h *toolkeep.Hold) error {
	switch {
	case h == nil:
		return nil
	case strings.TrimSpace(h.Why) == "":
		return badState("a hold needs a reason, which callers are shown")
	case len(h.Why) > maxReasonLength:
		return badState("the reason has %d bytes; at most %d are kept", len(h.Why), maxReasonLength)
	case h.Digest != "" && !digestPattern.MatchString(h.Digest):
		return badState("%q is not a digest; write sha256: and 64 lower-case hex digits", toolkeep.ClipBytes(h.Digest, 200))
	case h.Cause != "" && !slices.Contains(holdCauses, h.Cause):
		return badState("%q is not a cause of a hold", toolkeep.ClipBytes(string(h.Cause), 200))
	}
	return nil
}

// holdMoves computes the new lifecycle of every named version, once each. It never returns an empty list without an
// error.
func (c *Catalog) holdMoves(p *toolkeep.Principal, list []HoldChange, byHand bool) ([]move, error) {
	s := c.current.Load()
	now := c.today()
	var moves []move
	at := map[*version]int{}
	for _, ch := range list {
		e := s.find(p.Tenant, ch.ToolID, nil)
		if e == nil {
			return nil, notFound(ch.ToolID)
		}
		if e.key.tenant == "" {
			if err := c.mayShare(p); err != nil {
				return nil, err
			}
		}
		targets, err := e.targets(ch.Version, toolkeep.Active)
		if err != nil {
			return nil, err
		}
		for _, v := range targets {
			i, known := at[v]
			if !known {
				i = len(moves)
				at[v] = i
				moves = append(moves, move{from: v})
			}
			to := *v
			if was := v.Life.Held; byHand || was == nil || was.Cause != toolkeep.CauseAdministrator { // else only by hand
				to.Life.Held = held(was, ch.Hold, now)
			}
			moves[i].to = &to
		}
	}
	return moves, nil
}

// held returns the hold to write; an equal hold stays as it is.
func held(before, h *toolkeep.Hold, now time.Time) *toolkeep.Hold {
	if h == nil {
		return nil
	}
	own := *h
	if own.Cause == "" {
		own.Cause = toolkeep.CauseAdministrator
	}
	if before != nil && before.Cause == own.Cause && before.Why == own.Why && before.Digest == own.Digest {
		return before
	}
	if own.At.IsZero() {
		own.At = now
	}
	own.At = own.At.UTC().Truncate(time.Microsecond)
	return &own
}

// sameLife compares lifecycles by value: their holds are pointers, which differ after a store read.
func sameLife(a, b toolkeep.Lifecycle) bool {
	if (a.Held == nil) != (b.Held == nil) {
		return false
	}
	if a.Held != nil && *a.Held != *b.Held {
		return false
	}
	a.Held, b.Held = nil, nil
	return a == b
}

// heldBack makes E3012.
func heldBack(v toolkeep.Version) error {
	h, server := v.Life.Held, serverOf(v.Tool)
	todo := "toolkeep servers diff " + server + " shows the change, toolkeep servers accept " + server + " accepts it"
	if h.Cause == toolkeep.CauseAdministrator {
		todo = "an administrator lets it go (DELETE /api/v1/tools/" + v.Tool.ID + "/versions/" + v.Tool.Version + "/hold)"
	}
	err := toolkeep.NewError(toolkeep.DefinitionChanged, "%s is held for review: %s; %s", v.Tool.Ref(), h.Why, todo).
		With("tool_id", v.Tool.ID).With("version", v.Tool.Version).With("state", string(v.Life.State)).
		With("cause", string(h.Cause)).With("reason", h.Why).With("held_at", stamp(h.At)).With("server", server).With("todo", todo)
	if h.Digest != "" {
		err.With("seen_digest", h.Digest)
	}
	return err
}

// serverOf returns the MCP server of a tool: from its source, else its namespace, which is the server's name.
func serverOf(t *toolkeep.Tool) string {
	if src := t.Manifest.Source; src != nil {
		if name, ok := src.Metadata["server"].(string); ok && name != "" {
			return toolkeep.ClipBytes(name, 200)
		}
	}
	namespace, _, _ := strings.Cut(t.ID, ".")
	return namespace
}
