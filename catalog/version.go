package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
)

// version is one version in a snapshot; immutable.
type version struct {
	toolkeep.Version
	sem *semver.Version
}

func (v *version) state() toolkeep.VersionState { return v.Life.State }
func (v *version) stable() bool                 { return v.sem.Prerelease() == "" }

// entry is one tool: all versions, ascending by SemVer; immutable.
type entry struct {
	key      *toolKey
	versions []*version
	// latest is the result for "latest" if everything is visible: the highest active stable version, or nil if
	// Resolve must search further.
	latest *version
}

// toolKey identifies a tool by id and owner.
type toolKey struct{ id, tenant string }

func compareKeys(a, b *toolKey) int {
	return cmp.Or(strings.Compare(a.id, b.id), strings.Compare(a.tenant, b.tenant))
}

// newEntry takes ownership of the slice.
func newEntry(key *toolKey, versions []*version) *entry {
	slices.SortFunc(versions, compareVersions)
	e := &entry{key: key, versions: versions}
	for _, v := range slices.Backward(versions) {
		if v.state() == toolkeep.Active && v.stable() {
			e.latest = v
			break
		}
	}
	return e
}

// compareVersions orders by SemVer; versions that differ only in build metadata, which SemVer leaves unordered, by
// text.
func compareVersions(a, b *version) int {
	return cmp.Or(a.sem.Compare(b.sem), strings.Compare(a.Tool.Version, b.Tool.Version))
}

func (e *entry) find(text string) *version {
	if e == nil {
		return nil
	}
	for _, v := range e.versions {
		if v.Tool.Version == text {
			return v
		}
	}
	return nil
}

// below returns the stable version that ranges could select before v: the highest one lower than v, in any state.
// Prereleases promise nothing, so nothing is compared with them.
func (e *entry) below(sem *semver.Version) *version {
	if e == nil {
		return nil
	}
	for _, v := range slices.Backward(e.versions) {
		if v.stable() && v.sem.LessThan(sem) {
			return v
		}
	}
	return nil
}
