package catalog

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/suggest"
)

// Latest is the range equivalent to none.
const Latest = "latest"

// Resolve returns the version that a reference selects, among those of the principal's tenant and of all tenants
// that visible admits (nil admits all). Hidden versions are treated as absent.
//
//   - "" and "latest" select the highest active stable version.
//   - A range selects the highest active version that fits by SemVer's rules;
//     else the highest deprecated one; else the same among prereleases.
//   - An exact version may also be deprecated or, until its date, sunset.
//
// A deprecated or sunset version comes with the warning E3006. A hold does not change the selection.
//
// Instead of a tool, capability:NAME selects the one tool whose listed version declares the capability.
//
// Errors: E3001 no such tool, E3002 no tool with the capability, E3103 several, E3004 no such exact version, E3005 no version fits, E3009 removed or past its sunset
// date, E3010 blocked, E3012 held, E3301 invalid range; E3003 if it is unknown and the store cannot be asked whether
// another node has published it, or if its stored manifest is damaged. An exact, empty or "latest" reference to an active version
// allocates nothing.
func (c *Catalog) Resolve(ctx context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	before := c.current.Load()
	v, warnings, err := c.resolve(p, tool, rng, visible)
	if again, late := c.newer(ctx, before, err); late != nil {
		return toolkeep.Version{}, nil, late
	} else if again {
		return c.resolve(p, tool, rng, visible)
	}
	return v, warnings, err
}

func (c *Catalog) resolve(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	if name, ok := strings.CutPrefix(tool, CapabilityPrefix); ok {
		var err error
		if tool, err = c.offering(p, name, visible); err != nil {
			return toolkeep.Version{}, nil, err
		}
	}
	v, warnings, err := c.describe(p, tool, rng, visible)
	if err == nil && v.Life.Held != nil {
		return toolkeep.Version{}, nil, heldBack(v)
	}
	return v, warnings, err
}

// Describe is Resolve without a call: it also returns a held version, with the hold in Life.Held.
func (c *Catalog) Describe(ctx context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	before := c.current.Load()
	v, warnings, err := c.describe(p, tool, rng, visible)
	if again, late := c.newer(ctx, before, err); late != nil {
		return toolkeep.Version{}, nil, late
	} else if again {
		return c.describe(p, tool, rng, visible)
	}
	return v, warnings, err
}

func (c *Catalog) describe(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	v, warnings, err := c.Find(p, tool, rng, visible)
	if err != nil {
		return v, warnings, c.meant(err, p, tool, visible)
	}
	v.Tool, err = v.Tool.Whole()
	return v, warnings, err
}

// meant adds the nearest id that visible admits to E3001.
func (c *Catalog) meant(err error, p *toolkeep.Principal, tool string, visible func(*toolkeep.Tool) bool) error {
	if !toolkeep.IsCode(err, toolkeep.ToolNotFound) {
		return err
	}
	meant := c.current.Load().near(tenantOf(p), tool, visible)
	if meant == "" {
		return err
	}
	e := toolkeep.AsError(err)
	e.Message += "; did you mean " + meant + "?"
	return e.With("nearest", meant)
}

// unknownWait is how long an unknown reference waits for what other nodes have published.
const unknownWait = time.Second

// newer reports whether a reference that was unknown in a snapshot, by err, should be looked up again: another node
// has changed the catalogue meanwhile. E3003 if the store cannot tell within a second.
func (c *Catalog) newer(ctx context.Context, before *Snapshot, err error) (again bool, late error) {
	if err == nil {
		return false, nil
	}
	var e *toolkeep.Error // on the heap: an answered reference allocates nothing
	if !errors.As(err, &e) || !c.running() {
		return false, nil
	}
	switch e.Code {
	case toolkeep.ToolNotFound, toolkeep.CapabilityNotFound, toolkeep.ToolVersionNotFound, toolkeep.VersionConflict:
	default:
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, unknownWait)
	defer cancel()
	if behind := c.catchUp(ctx); behind != nil {
		return false, toolkeep.NewError(toolkeep.RegistryUnavailable,
			"this node does not know the tool or its version, and cannot ask the store now whether another node does; try again").
			After(time.Second).Because(behind)
	}
	return c.current.Load() != before, nil
}

// Find is Describe for those who look many ids up: it returns an outline, does not ask the store about an unknown one, and its E3001 does
// not name the nearest id, which is looked for among all tools.
func (c *Catalog) Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	s := c.current.Load()
	e := s.find(tenantOf(p), tool, visible)
	if e == nil {
		return toolkeep.Version{}, nil, notFound(tool)
	}
	if rng == "" || rng == Latest {
		if v := e.latest; v != nil && (visible == nil || visible(v.Tool)) {
			return v.Version, nil, nil
		}
	} else if v := e.find(rng); v != nil && v.state() == toolkeep.Active && (visible == nil || visible(v.Tool)) {
		return v.Version, nil, nil
	}
	return c.resolveSlowly(&viewer{s, p, visible}, e, tool, rng)
}

func tenantOf(p *toolkeep.Principal) string {
	if p == nil {
		return ""
	}
	return p.Tenant
}

func (c *Catalog) resolveSlowly(by *viewer, e *entry, tool, rng string) (toolkeep.Version, []toolkeep.Warning, error) {
	seen := e.visible(by.visible)
	if len(seen) == 0 {
		return toolkeep.Version{}, nil, notFound(tool)
	}
	tool = e.key.id // it may have been named as exports do
	if rng == "" || rng == Latest {
		rng = "*"
	}
	w, err := c.ranges.parse(rng)
	if err != nil {
		return toolkeep.Version{}, nil, err
	}
	var v *version
	if w.exact != "" {
		v = findExact(seen, w.exact)
		if v == nil {
			return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolVersionNotFound,
				"%s has no version %s; it has %s", tool, w.exact, listed(seen)).
				With("tool_id", tool).With("version", w.exact).With("available", usable(seen))
		}
	} else if v = pick(seen, w); v == nil {
		return toolkeep.Version{}, nil, c.nothingFits(by, e, seen, tool, rng, w)
	}
	return c.give(by, e, v)
}

// visible returns the versions that exist for the caller, highest first.
func (e *entry) visible(visible func(*toolkeep.Tool) bool) []*version {
	seen := make([]*version, 0, len(e.versions))
	for _, v := range slices.Backward(e.versions) {
		if visible == nil || visible(v.Tool) {
			seen = append(seen, v)
		}
	}
	return seen
}

func findExact(seen []*version, text string) *version {
	for _, v := range seen {
		if v.Tool.Version == text {
			return v
		}
	}
	return nil
}

// pick selects from a list, highest first.
func pick(seen []*version, w *wanted) *version {
	for _, fits := range []*semver.Constraints{w.fits, w.loose} {
		for _, state := range []toolkeep.VersionState{toolkeep.Active, toolkeep.Deprecated} {
			for _, v := range seen {
				if v.state() == state && fits.Check(v.sem) {
					return v
				}
			}
		}
	}
	return nil
}

// give returns a version if its state lets it run.
func (c *Catalog) give(by *viewer, e *entry, v *version) (toolkeep.Version, []toolkeep.Warning, error) {
	switch v.state() {
	case toolkeep.Active:
		return v.Version, nil, nil
	case toolkeep.Deprecated:
		return by.version(v), []toolkeep.Warning{warning(by, e, v)}, nil
	case toolkeep.Sunset:
		if c.now().Before(v.Life.SunsetAt) {
			return by.version(v), []toolkeep.Warning{warning(by, e, v)}, nil
		}
		return toolkeep.Version{}, nil, gone(by, e, v)
	case toolkeep.Removed:
		return toolkeep.Version{}, nil, gone(by, e, v)
	}
	// Blocked, or a state that only newer nodes know.
	return toolkeep.Version{}, nil, blocked(v)
}

// nothingFits explains why a range found no usable version.
func (c *Catalog) nothingFits(by *viewer, e *entry, seen []*version, tool, rng string, w *wanted) error {
	var sunset string
	var first *version // the highest fitting version in an unusable state
	for _, v := range seen {
		if !w.loose.Check(v.sem) {
			continue
		}
		if v.state() == toolkeep.Sunset && c.now().Before(v.Life.SunsetAt) {
			sunset = v.Tool.Version
			break
		}
		if first == nil {
			first = v
		}
	}
	if sunset == "" && first != nil {
		_, _, err := c.give(by, e, first)
		return err
	}
	if rng == "*" {
		rng = Latest
	}
	err := toolkeep.NewError(toolkeep.VersionConflict, "no version of %s satisfies %q; it has %s", tool, rng, listed(seen)).
		With("tool_id", tool).With("range", rng).With("available", usable(seen))
	if sunset != "" {
		err.Message += "; " + sunset + " is in sunset and runs only when requested by its exact version"
	}
	return err
}

// maxNear is how many near ids an unknown one is looked for among those that the caller may see.
const maxNear = 5

// near returns the id of a tool that visible admits and that differs from id by a typing mistake
// in the namespace or in the name; "" for none.
func (s *Snapshot) near(tenant, id string, visible func(*toolkeep.Tool) bool) string {
	if !strings.Contains(id, ".") {
		id = strings.Replace(id, "__", ".", 1) // as exports name tools
	}
	namespace, name, _ := strings.Cut(id, ".")
	ids := func(yield func(string) bool) {
		for _, k := range s.order {
			if k.tenant != "" && k.tenant != tenant {
				continue
			}
			if ns, n, _ := strings.Cut(k.id, "."); (ns == namespace || n == name) && !yield(k.id) {
				return
			}
		}
	}
	for _, meant := range suggest.Typos(id, ids, maxNear) {
		if len(s.find(tenant, meant, visible).visible(visible)) > 0 {
			return meant
		}
	}
	return ""
}

func notFound(tool string) error {
	return toolkeep.NewError(toolkeep.ToolNotFound,
		"there is no tool %q, or you may not see it; search or list the tools to find its id", toolkeep.ClipBytes(tool, 200)).With("tool_id", toolkeep.ClipBytes(tool, 200))
}

func gone(by *viewer, e *entry, v *version) error {
	to := by.moveTo(e, v)
	guide := by.guide(e, v, to)
	err := toolkeep.NewError(toolkeep.ToolRemoved, "%s was removed%s%s%s", v.Tool.Ref(), because(v), advice(to), guided(guide)).
		With("tool_id", v.Tool.ID).With("version", v.Tool.Version).With("state", string(v.state()))
	if to != "" {
		err.With("successor", to)
	}
	if !v.Life.SunsetAt.IsZero() {
		err.With("sunset_at", stamp(v.Life.SunsetAt))
	}
	if guide != "" {
		err.With("migration_guide", toolkeep.ClipBytes(guide, maxGuide))
	}
	return err
}

func blocked(v *version) error {
	by := ""
	if v.Life.Cause == toolkeep.CauseAdministrator {
		by = " by an administrator"
	}
	err := toolkeep.NewError(toolkeep.ToolBlocked, "%s is blocked%s%s", v.Tool.Ref(), by, because(v)).
		With("tool_id", v.Tool.ID).With("version", v.Tool.Version).With("state", string(v.state())).With("cause", string(v.Life.Cause))
	if v.Life.Reason != "" {
		err.With("reason", v.Life.Reason)
	}
	return err
}

func warning(by *viewer, e *entry, v *version) toolkeep.Warning {
	to := by.moveTo(e, v)
	w := toolkeep.Warning{Code: toolkeep.ToolDeprecated, Details: map[string]any{
		"tool_id": v.Tool.ID, "version": v.Tool.Version, "state": string(v.state()),
	}}
	until := ""
	if to != "" {
		w.Details["successor"] = to
	}
	if !v.Life.DeprecatedAt.IsZero() {
		w.Details["deprecated_at"] = stamp(v.Life.DeprecatedAt)
	}
	if v.state() == toolkeep.Sunset {
		w.Details["sunset_at"] = stamp(v.Life.SunsetAt)
		until = " and runs until " + stamp(v.Life.SunsetAt)
	} else if !v.Life.RemoveAfter.IsZero() {
		w.Details["remove_after"] = stamp(v.Life.RemoveAfter)
		until = " and may be removed from " + stamp(v.Life.RemoveAfter)
	}
	state := "deprecated"
	if v.state() == toolkeep.Sunset {
		state = "in sunset"
	}
	guide := by.guide(e, v, to)
	if guide != "" {
		w.Details["migration_guide"] = toolkeep.ClipBytes(guide, maxGuide)
	}
	w.Message = v.Tool.Ref() + " is " + state + until + because(v) + advice(to) + guided(guide)
	return w
}

// maxGuide and maxGuideText bound a migration guide in bytes: in the details of E3006 and E3009, and in their message,
// which is all that some faces show.
const (
	maxGuide     = 2000
	maxGuideText = 500
)

func guided(guide string) string {
	if guide == "" {
		return ""
	}
	return "; migration guide: " + toolkeep.ClipBytes(guide, maxGuideText)
}

func because(v *version) string {
	if v.Life.Reason == "" {
		return ""
	}
	return " (" + v.Life.Reason + ")"
}

func advice(to string) string {
	if to == "" {
		return ""
	}
	return "; move to " + to
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// usable lists the versions that some reference can select, highest first.
func usable(seen []*version) []string {
	out := []string{}
	for _, v := range seen {
		switch v.state() {
		case toolkeep.Active, toolkeep.Deprecated, toolkeep.Sunset:
			out = append(out, v.Tool.Version)
		}
	}
	return out
}

func listed(seen []*version) string {
	all := usable(seen)
	switch {
	case len(all) == 0:
		return "none that runs"
	case len(all) > 10:
		return strings.Join(all[:10], ", ") + " and more"
	}
	return strings.Join(all, ", ")
}
