package catalog

import (
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
)

// viewer is a principal who is shown a version. The successor that a lifecycle names may
// be a tool, or a version, that does not exist for them.
type viewer struct {
	of      *Snapshot
	p       *toolkeep.Principal
	visible func(*toolkeep.Tool) bool // nil lets all through
}

// everything sees all there is.
var everything = &viewer{}

// version is v as the viewer is told of it.
func (by *viewer) version(v *version) toolkeep.Version {
	out := v.Version
	if !by.sees(v) {
		out.Life.Successor = ""
	}
	return out
}

// sees tells whether the successor of v, if it has one, may be named. As with the names
// in a manifest, see Shown, principals with catalog:admin are also told one that is gone.
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
	e := by.of.find(tenant, id)
	if e == nil {
		return by.p != nil && by.p.May(toolkeep.PermLifecycle)
	}
	if exact != nil {
		next := e.find(to)
		return next != nil && by.visible(next.Tool)
	}
	return slices.ContainsFunc(e.versions, func(o *version) bool { return by.visible(o.Tool) })
}

// moveTo is the version that a caller of v should use: the named successor, or the
// newest active one, of those that exist for the viewer; "" is none.
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
