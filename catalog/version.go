package catalog

import (
	"cmp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
)

// version is one version as a snapshot holds it, never modified.
type version struct {
	toolkeep.Version
	sem *semver.Version
}

func (v *version) state() toolkeep.VersionState { return v.Life.State }
func (v *version) stable() bool                 { return v.sem.Prerelease() == "" }

// entry is one tool: all versions, ascending by SemVer. It is never modified.
type entry struct {
	key      *toolKey
	versions []*version
	// latest is what "latest" gives where everything is visible: the highest
	// active stable version, or nil where the search has to go on.
	latest *version
}

// toolKey is who owns which tool id.
type toolKey struct{ id, tenant string }

func compareKeys(a, b *toolKey) int {
	return cmp.Or(strings.Compare(a.id, b.id), strings.Compare(a.tenant, b.tenant))
}

// newEntry takes over the slice.
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

// compareVersions orders by SemVer; versions that differ in build metadata
// alone, which SemVer leaves unordered, by their text.
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

// below is the stable version that a caller of ranges had before v came: the
// highest one lower than v, in whatever state. Prereleases promise nothing, so
// nothing is compared with them.
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
