package catalog

import (
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
)

const (
	maxRangeLength  = 256
	maxCachedRanges = 4096
)

// wanted is a parsed version reference.
type wanted struct {
	exact string              // full version, "" for a range
	fits  *semver.Constraints // by SemVer's rules: no prereleases unless one is named
	loose *semver.Constraints // with prereleases
}

// ranges caches parsed references. When full it is cleared: references in use return at once, and invented ones go.
type ranges struct {
	mu    sync.RWMutex
	known map[string]*wanted
}

// parse parses an exact version or a range. E3301.
func (r *ranges) parse(text string) (*wanted, error) {
	r.mu.RLock()
	w := r.known[text]
	r.mu.RUnlock()
	if w != nil {
		return w, nil
	}
	w, err := parseWanted(text)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= maxCachedRanges {
		r.known = make(map[string]*wanted)
	}
	r.known[strings.Clone(text)] = w
	return w, nil
}

func parseWanted(text string) (*wanted, error) {
	if len(text) > maxRangeLength {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters,
			"the version range has %d characters; at most %d are read", len(text), maxRangeLength)
	}
	trimmed := strings.TrimSpace(text)
	if v, err := semver.StrictNewVersion(strings.TrimPrefix(strings.TrimPrefix(trimmed, "="), "v")); err == nil {
		return &wanted{exact: v.Original()}, nil
	}
	c, err := semver.NewConstraint(trimmed)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters,
			"%q is not a version or a range; write 1.2.3, ^1.2, ~1, 1.x, >=1 <3, 1 || 2 or latest", text).With("range", text).Because(err)
	}
	loose := *c
	loose.IncludePrerelease = true
	return &wanted{fits: c, loose: &loose}, nil
}
