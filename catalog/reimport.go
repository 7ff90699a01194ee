package catalog

import (
	"errors"
	"strings"
	"unicode"

	"github.com/Masterminds/semver/v3"
	"golang.org/x/text/unicode/norm"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Shared by the importers: a re-imported tool keeps its version if nothing changed and gets the next one otherwise.

// FirstVersion is the version of a newly imported tool.
const FirstVersion = "1.0.0"

// SameContent reports whether a published tool equals a manifest without version and source. Numbers are compared
// by value.
func SameContent(published *toolkeep.Tool, manifest map[string]any) bool {
	published, err := published.Whole()
	if err != nil {
		return false
	}
	tree, err := parseTree(published.Raw)
	if err != nil {
		return false
	}
	root, ok := tree.(map[string]any)
	if !ok {
		return false
	}
	delete(root, "version")
	delete(root, "source")
	want, err1 := canon.JCS(canon.Append(nil, manifest))
	got, err2 := canon.JCS(canon.Append(nil, root))
	return err1 == nil && err2 == nil && string(want) == string(got)
}

// NextVersion returns the version required by the change from published to changed, and the size of the change:
// major, minor or patch, by Compare. A patch of a prerelease is the version that it announced. ok is false if the
// published version is not SemVer.
func NextVersion(published, changed *toolkeep.Tool) (version, bump string, ok bool) {
	v, err := semver.StrictNewVersion(published.Version)
	if err != nil {
		return "", "", false
	}
	switch bump = Compare(published, changed).Bump; bump {
	case BumpMajor:
		return v.IncMajor().String(), bump, true
	case BumpMinor:
		return v.IncMinor().String(), bump, true
	}
	return v.IncPatch().String(), BumpPatch, true
}

// Faults returns the faults of an E3008.
func Faults(err error) []toolkeep.Fault {
	var e *toolkeep.Error
	if !errors.As(err, &e) {
		return nil
	}
	list, _ := e.Details["errors"].([]toolkeep.Fault)
	return list
}

// FaultText describes the first fault of an E3008 in one line, with its place; for another error it returns the
// message.
func FaultText(err error) string {
	if list := Faults(err); len(list) > 0 {
		return "at " + list[0].Pointer + ": " + list[0].Message
	}
	return toolkeep.AsError(err).Message
}

// Identifier turns text into [A-Za-z_][A-Za-z0-9_-]*, the form of the second half of a tool id, except for the
// length. It is "" if no letter or digit is left.
func Identifier(s string) string {
	var b strings.Builder
	gap, content := false, false
	for _, r := range PlainLetters(s) {
		switch {
		case r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			content = true
		case r == '_' || r == '-':
		default:
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte('_')
			gap = false
		}
		b.WriteRune(r)
	}
	out := b.String()
	if !content {
		return ""
	}
	if c := out[0]; c == '-' || c >= '0' && c <= '9' {
		out = "_" + out
	}
	return out
}

// PlainLetters removes accents from letters.
func PlainLetters(s string) string {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return strings.Map(func(r rune) rune {
				if unicode.Is(unicode.Mn, r) {
					return -1
				}
				return r
			}, norm.NFD.String(s))
		}
	}
	return s
}
