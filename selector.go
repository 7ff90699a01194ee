package toolkeep

import (
	"path"
	"slices"
)

// Risk orders the risks of tools.
type Risk int

const (
	RiskLow Risk = iota
	RiskMedium
	RiskHigh
)

// RiskOf reads a risk of a manifest or a rule. "" is the default of manifests, low. An unknown
// value counts as high, and is not known.
func RiskOf(s string) (r Risk, known bool) {
	switch s {
	case "", "low":
		return RiskLow, true
	case "medium":
		return RiskMedium, true
	case "high":
		return RiskHigh, true
	}
	return RiskHigh, false
}

// Effects returns the tool's side effects: none, reads or writes, which an unknown value is too.
func (m *Manifest) Effects() string {
	if m.SideEffects == "none" || m.SideEffects == "reads" {
		return m.SideEffects
	}
	return "writes"
}

// Selector selects tools in rules of roles, approvals and the like. All conditions must match;
// an empty list is no condition.
type Selector struct {
	Tools            []string // patterns on the tool id, as MatchesAny reads them
	Tags             []string // any of
	Categories       []string // any of
	SideEffects      []string // any of none, reads, writes
	MinRisk, MaxRisk Risk
}

// Fits reports whether the tool is selected.
func (s *Selector) Fits(t *Tool) bool {
	m := t.Manifest
	if risk, _ := RiskOf(m.Risk); risk < s.MinRisk || risk > s.MaxRisk {
		return false
	}
	return (len(s.Tools) == 0 || MatchesAny(s.Tools, t.ID)) &&
		(len(s.SideEffects) == 0 || slices.Contains(s.SideEffects, m.Effects())) &&
		(len(s.Categories) == 0 || slices.Contains(s.Categories, m.Category)) &&
		(len(s.Tags) == 0 || slices.ContainsFunc(m.Tags, func(tag string) bool { return slices.Contains(s.Tags, tag) }))
}

// MatchesAny reports whether the id equals or matches one of the patterns, in the syntax of
// path.Match. A malformed pattern matches nothing.
func MatchesAny(patterns []string, id string) bool {
	for _, p := range patterns {
		if p == "*" || p == id {
			return true
		}
		if ok, err := path.Match(p, id); ok && err == nil {
			return true
		}
	}
	return false
}
