package catalog

import (
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
)

// viewer is a principal who is shown a version. The successor in a lifecycle may be a tool or a version that does
// not exist for them.
type viewer struct {
	of      *Snapshot
	p       *toolkeep.Principal
	visible func(*toolkeep.Tool) bool // nil admits all
}

// everything is a viewer without restrictions.
var everything = &viewer{}

// version returns v as the viewer may see it.
func (by *viewer) version(v *version) toolkeep.Version {
	out := v.Version
	if !by.sees(v) {
		out.Life.Successor = ""
	}
	return out
}

// sees reports whether the successor of v, if any, may be named. As in Shown, principals with catalog:admin also
// see a missing one.
func (by *viewer) sees(v *version) bool {
	to := v.Life.Successor
	if to == "" || by.visible == nil {
		return true
	}
	tenant, id := tenantOf(by.p), v.Tool.ID
	exact, err := semver.StrictNewVersion(to)
	if err != nil {
		id, _, _ = strings.Cut(to, "@")
	}
	e := by.of.find(tenant, id, by.visible)
	if e == nil {
		return by.p != nil && by.p.May(toolkeep.PermLifecycle)
	}
	if exact != nil {
		next := e.find(to)
		return next != nil && by.visible(next.Tool)
	}
	return slices.ContainsFunc(e.versions, func(o *version) bool { return by.visible(o.Tool) })
}

// moveTo returns the version that callers of v should use: the named successor, or the newest active one, if it
// exists for the viewer; "" is none.
func (by *viewer) moveTo(e *entry, v *version) string {
	if v.Life.Successor != "" && by.sees(v) {
		return v.Life.Successor
	}
	fits := func(o *version) bool {
		return o != nil && o != v && (by.visible == nil || by.visible(o.Tool))
	}
	if fits(e.latest) {
		return e.latest.Tool.Version
	}
	for _, o := range slices.Backward(e.versions) {
		if o.state() == toolkeep.Active && fits(o) {
			return o.Tool.Version
		}
	}
	return ""
}

// guide returns the migration guide for callers of v: that of the version to move to, which knows what changed, else
// v's own; "" is none.
func (by *viewer) guide(e *entry, v *version, to string) string {
	id, rng, _ := strings.Cut(to, "@")
	var next *version
	if _, err := semver.StrictNewVersion(to); err == nil {
		next = e.find(to)
	} else if by.of != nil && to != "" {
		if other := by.of.find(tenantOf(by.p), id, by.visible); other != nil {
			if next = other.find(rng); next == nil {
				next = other.latest
			}
		}
	}
	if next != nil && next.Tool.Manifest.MigrationGuide != "" && (by.visible == nil || by.visible(next.Tool)) {
		return next.Tool.Manifest.MigrationGuide
	}
	return v.Tool.Manifest.MigrationGuide
}
