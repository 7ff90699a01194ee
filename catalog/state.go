package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
)

const maxReasonLength = 2000

// StateChange moves one or all versions of a tool to another state.
type StateChange struct {
	State     toolkeep.VersionState
	Cause     toolkeep.Cause // of a block; "" is administrator
	Reason    string         // for people, at most 2,000 bytes
	Successor string         // version, or another tool as namespace.name[@range]
	// Date is the end of execution for sunset (required), and the earliest removal for deprecated (default: 90 days
	// from now). Other states take no date.
	Date time.Time
	Now  bool // an administrator waives the 90 days between deprecation and removal
	// Folder, if set, prunes: the state is blocked, the cause toolkeep.CausePruned, and every version must have been published
	// from the folder (E3963). Versions that are blocked stay as they are.
	Folder string
	// Expect, if set, is the state that every moved version must be in: the state that the decision was based on.
	Expect toolkeep.VersionState
	// BlockedFor, if set, skips every version that is not blocked for one of these causes: an automatic change
	// undoes only automatic changes.
	BlockedFor []toolkeep.Cause
}

// blockCauses lists the allowed causes of a block.
var blockCauses = []toolkeep.Cause{toolkeep.CauseAdministrator, toolkeep.CauseServerRemoved, toolkeep.CauseDefinitionGone, toolkeep.CausePruned}

// SetState moves a version, or with version "" all of them, to another state and returns the new lifecycle, of the
// highest version moved if there are several. It returns when this catalogue shows it.
//
//	active     -> deprecated, sunset, blocked, removed (with Now)
//	deprecated -> active, sunset, blocked, removed
//	sunset     -> active, deprecated, blocked, removed
//	blocked    -> active, removed
//	removed    is final
//
// Sunset and removal come no earlier than 90 days after the deprecation unless Now is set. With version "" it skips
// removed versions and, for deprecated and sunset, versions already further on their way out. Of versions that
// would become active, only the highest five do; the others become deprecated. A hold stays: only Release lifts it.
// A block for a cause other than administrator leaves blocked versions unchanged.
//
// Errors: E3201 without catalog:admin; E3001, E3004 unknown tool or version; E3009 the version is removed; E3301
// for a move or date that is not allowed, with details.earliest if it is too early; E3963 if another change moved a
// version meanwhile, or it is not in the state Expect; E3003, E3965 as Publish.
func (c *Catalog) SetState(ctx context.Context, p *toolkeep.Principal, toolID, versionText string, ch StateChange) (toolkeep.Lifecycle, error) {
	if p == nil || p.Tenant == "" || !p.May(toolkeep.PermLifecycle) {
		return toolkeep.Lifecycle{}, denied(toolkeep.PermLifecycle, "change the state of a version")
	}
	if err := ch.check(); err != nil {
		return toolkeep.Lifecycle{}, err
	}
	if !c.running() {
		return toolkeep.Lifecycle{}, unreadable(errors.New("catalog: SetState without Start"))
	}
	seen := c.current.Load().find(p.Tenant, toolID, nil)
	if seen != nil {
		toolID = seen.key.id
	}
	defer c.busy.take([]string{toolID})()
	return c.carryOut(ctx, p,
		func() ([]move, error) { return c.stateMoves(p, seen, toolID, versionText, ch) },
		func(m move, at time.Time) (toolkeep.Change, error) {
			return appendEvent(eventChanged, p.Tenant, at, stateData(m.to, m.from.state(), p.Subject))
		})
}

// carryOut computes moves and applies those that change something, each with its event. It returns the lifecycle of
// the last one.
func (c *Catalog) carryOut(ctx context.Context, p *toolkeep.Principal, work func() ([]move, error), event func(move, time.Time) (toolkeep.Change, error)) (toolkeep.Lifecycle, error) {
	var life toolkeep.Lifecycle
	err := c.afresh(ctx, func() error {
		moves, err := work()
		if err != nil {
			return err
		}
		if len(moves) == 0 {
			return nil
		}
		life = moves[len(moves)-1].to.Life
		now := c.today()
		var changes []toolkeep.Change
		for _, m := range moves {
			if sameLife(m.from.Life, m.to.Life) {
				continue
			}
			told, err := event(m, now)
			if err != nil {
				return err
			}
			changes = append(changes, toolkeep.SetLifecycle{
				Tenant: m.to.Tool.Tenant, ToolID: m.to.Tool.ID, Version: m.to.Tool.Version, Life: m.to.Life, By: p.Subject, From: &m.from.Life}, told)
		}
		if len(changes) == 0 {
			return nil
		}
		return c.apply(ctx, changes)
	})
	if err != nil {
		return toolkeep.Lifecycle{}, err
	}
	return life, nil
}

// stateMoves computes a SetState on the current state, and refuses it if a version was moved since seen.
func (c *Catalog) stateMoves(p *toolkeep.Principal, seen *entry, toolID, versionText string, ch StateChange) ([]move, error) {
	s := c.current.Load()
	e := s.find(p.Tenant, toolID, nil)
	if e == nil {
		return nil, notFound(toolID)
	}
	if e.key.tenant == "" {
		if err := c.mayShare(p); err != nil {
			return nil, err
		}
	}
	targets, err := e.targets(versionText, ch.State)
	if err != nil {
		return nil, err
	}
	if ch.BlockedFor != nil {
		targets = slices.DeleteFunc(targets, func(v *version) bool {
			return v.state() != toolkeep.Blocked || !slices.Contains(ch.BlockedFor, v.Life.Cause)
		})
	}
	for _, v := range targets {
		if ch.Folder != "" && v.Life.Folder != ch.Folder {
			return nil, toolkeep.NewError(toolkeep.StateConflict, "%s was not published from the folder %s, so it is not pruned with it", v.Tool.Ref(), ch.Folder).With("tool_id", v.Tool.ID).With("version", v.Tool.Version)
		}
		if old := seen.find(v.Tool.Version); old != nil && !sameState(old.Life, v.Life) || ch.Expect != "" && ch.Expect != v.state() {
			return nil, conflict(v.Tool.Ref()).With("tool_id", v.Tool.ID).With("version", v.Tool.Version).With("state", string(v.state()))
		}
	}
	if err := checkSuccessor(s, e, p.Tenant, targets, ch.Successor); err != nil {
		return nil, err
	}
	return c.moves(e, targets, ch, versionText == "")
}

// sameState compares everything except the hold, which a move keeps.
func sameState(a, b toolkeep.Lifecycle) bool {
	a.Held, b.Held = nil, nil
	return a == b
}

// conflict makes E3963.
func conflict(what string) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.StateConflict, "the lifecycle of %s changed at the same time, so nothing was changed; read it again (toolkeep describe) and repeat your change if you still want it", what)
}

func (ch *StateChange) check() error {
	switch ch.State {
	case toolkeep.Active, toolkeep.Deprecated, toolkeep.Blocked, toolkeep.Removed, toolkeep.Sunset:
	default:
		return badState("%q is not a state; use active, deprecated, sunset, blocked or removed", toolkeep.ClipBytes(string(ch.State), 200))
	}
	if len(ch.Reason) > maxReasonLength {
		return badState("the reason has %d bytes; at most %d are kept", len(ch.Reason), maxReasonLength)
	}
	if ch.Folder != "" {
		if ch.State != toolkeep.Blocked || ch.Cause != "" {
			return badState("folder goes with the state blocked alone")
		}
		ch.Cause = toolkeep.CausePruned
	}
	if ch.State == toolkeep.Blocked && ch.Cause == "" {
		ch.Cause = toolkeep.CauseAdministrator
	}
	if (ch.State == toolkeep.Blocked) != (ch.Cause != "") || ch.Cause != "" && !slices.Contains(blockCauses, ch.Cause) {
		return badState("%q is not a cause of the state %s", toolkeep.ClipBytes(string(ch.Cause), 200), ch.State)
	}
	switch ch.State {
	case toolkeep.Sunset:
		if ch.Date.IsZero() {
			return badState("sunset needs the date on which the version stops running")
		}
	case toolkeep.Deprecated:
	default:
		if !ch.Date.IsZero() {
			return badState("a date goes with deprecated and sunset only, not with %s", ch.State)
		}
	}
	if ch.State == toolkeep.Active && ch.Successor != "" {
		return badState("an active version has no successor")
	}
	return nil
}

func badState(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.InvalidParameters, format, args...)
}

// targets returns the versions to move, ascending; never empty without an error.
func (e *entry) targets(text string, state toolkeep.VersionState) ([]*version, error) {
	if text != "" {
		v := e.find(text)
		if v == nil {
			return nil, toolkeep.NewError(toolkeep.ToolVersionNotFound, "%s has no version %s; name a full version such as 1.2.3", e.key.id, toolkeep.ClipBytes(text, 200)).
				With("tool_id", e.key.id).With("version", toolkeep.ClipBytes(text, 200))
		}
		if v.state() == toolkeep.Removed {
			return nil, gone(everything, e, v)
		}
		return []*version{v}, nil
	}
	var all []*version
	for _, v := range e.versions {
		if rank(v.state()) == rank(toolkeep.Removed) {
			continue
		}
		if (state == toolkeep.Deprecated || state == toolkeep.Sunset) && rank(v.state()) > rank(state) {
			continue
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		last := e.versions[len(e.versions)-1]
		if last.state() == toolkeep.Removed {
			return nil, gone(everything, e, last)
		}
		return nil, badState("no version of %s can become %s", e.key.id, state)
	}
	return all, nil
}

// rank orders states on the way out.
func rank(s toolkeep.VersionState) int {
	return slices.Index([]toolkeep.VersionState{toolkeep.Active, toolkeep.Deprecated, toolkeep.Sunset, toolkeep.Blocked, toolkeep.Removed}, s)
}

func checkSuccessor(s *Snapshot, e *entry, tenant string, targets []*version, successor string) error {
	if successor == "" {
		return nil
	}
	if _, err := semver.StrictNewVersion(successor); err == nil {
		v := e.find(successor)
		if v == nil || v.state() == toolkeep.Removed || v.state() == toolkeep.Blocked {
			return badState("the successor %s is not a version of %s that runs", toolkeep.ClipBytes(successor, 200), e.key.id)
		}
		if slices.Contains(targets, v) {
			return badState("a version cannot be its own successor; leave %s out of what is moved", successor)
		}
		return nil
	}
	id, _, _ := strings.Cut(successor, "@")
	if id == e.key.id || s.find(tenant, id, nil) == nil {
		return badState("the successor %q is neither a version of %s nor another tool that exists", toolkeep.ClipBytes(successor, 200), e.key.id)
	}
	return nil
}

type move struct{ from, to *version }

// moves computes the new lifecycle of every target.
func (c *Catalog) moves(e *entry, targets []*version, ch StateChange, all bool) ([]move, error) {
	now := c.today()
	moves := make([]move, 0, len(targets))
	for _, v := range targets {
		life, err := c.moved(v, ch, now)
		if err != nil {
			return nil, err
		}
		to := *v
		to.Life = life
		moves = append(moves, move{v, &to})
	}
	if ch.State == toolkeep.Active {
		if err := c.limitActive(e, moves, now, all); err != nil {
			return nil, err
		}
	}
	return moves, nil
}

// limitActive keeps at most maxActive versions active.
func (c *Catalog) limitActive(e *entry, moves []move, now time.Time, all bool) error {
	if !all {
		active := 0
		for _, v := range e.versions {
			if v.state() == toolkeep.Active && v != moves[0].from {
				active++
			}
		}
		if active >= c.maxActive {
			return badState("%s has %d active versions already, which is the limit; deprecate one first", e.key.id, active)
		}
		return nil
	}
	for i := range moves[:max(0, len(moves)-c.maxActive)] {
		m := moves[i]
		if m.from.state() == toolkeep.Deprecated {
			m.to.Life = m.from.Life
			continue
		}
		life := &m.to.Life
		life.State = toolkeep.Deprecated
		life.Reason = fmt.Sprintf("more than %d active versions", c.maxActive)
		life.DeprecatedAt, life.RemoveAfter = now, now.Add(c.removeAfter)
		life.Successor = moves[len(moves)-1].to.Tool.Version
	}
	return nil
}

// moved returns the lifecycle of v after ch, if the move is allowed.
func (c *Catalog) moved(v *version, ch StateChange, now time.Time) (toolkeep.Lifecycle, error) {
	life := v.Life
	if v.state() == toolkeep.Blocked && (ch.State == toolkeep.Deprecated || ch.State == toolkeep.Sunset) {
		return life, badState("%s is blocked; unblock it (active) before it becomes %s", v.Tool.Ref(), ch.State)
	}
	if ch.State == toolkeep.Active && v.state() == toolkeep.Active {
		return life, nil
	}
	if ch.State == toolkeep.Blocked && v.state() == toolkeep.Blocked && ch.Cause != toolkeep.CauseAdministrator {
		return life, nil
	}
	life.State, life.Cause, life.Reason = ch.State, ch.Cause, ch.Reason
	if ch.Successor != "" {
		life.Successor = ch.Successor
	}
	deprecatedAt := life.DeprecatedAt
	if deprecatedAt.IsZero() {
		deprecatedAt = now
	}
	earliest := deprecatedAt.Add(c.removeAfter)
	switch ch.State {
	case toolkeep.Active:
		life.Successor = ""
		life.DeprecatedAt, life.SunsetAt, life.RemoveAfter = time.Time{}, time.Time{}, time.Time{}
	case toolkeep.Deprecated:
		life.DeprecatedAt, life.SunsetAt, life.RemoveAfter = deprecatedAt, time.Time{}, earliest
		if !ch.Date.IsZero() {
			if ch.Date.Before(earliest) && !ch.Now {
				return life, tooEarly(v, "be removed", earliest)
			}
			life.RemoveAfter = ch.Date.UTC()
		}
	case toolkeep.Sunset:
		if ch.Date.Before(earliest) && !ch.Now {
			return life, tooEarly(v, "stop running", earliest)
		}
		life.DeprecatedAt, life.SunsetAt = deprecatedAt, ch.Date.UTC()
		life.RemoveAfter = later(life.RemoveAfter, ch.Date.UTC())
	case toolkeep.Removed:
		if ch.Now {
			break
		}
		if life.DeprecatedAt.IsZero() {
			return life, badState("%s was never deprecated; deprecate it and wait %d days, or remove it now", v.Tool.Ref(), int(c.removeAfter.Hours()/24)).
				With("earliest", stamp(earliest))
		}
		if !life.RemoveAfter.IsZero() {
			earliest = life.RemoveAfter
		}
		if now.Before(earliest) {
			return life, tooEarly(v, "be removed", earliest)
		}
	}
	return life, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func tooEarly(v *version, what string, earliest time.Time) error {
	return badState("%s may %s on %s at the earliest, unless an administrator says now", v.Tool.Ref(), what, stamp(earliest)).
		With("tool_id", v.Tool.ID).With("version", v.Tool.Version).With("earliest", stamp(earliest))
}
