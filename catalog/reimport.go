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

// What the readers of sources share: a tool that is imported again keeps its
// version where nothing changed and gets the next one where something did.

// FirstVersion is the version of an imported tool that was not published before.
const FirstVersion = "1.0.0"

// SameContent tells whether a published tool and a manifest without version and
// source say the same. Numbers are compared by their value.
func SameContent(published *toolkeep.Tool, manifest map[string]any) bool {
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

// NextVersion is the version that the change from published to changed asks for,
// and that change: major, minor or patch, by Compare. A patch of a prerelease is
// the version that it announced. ok is false where the published version is no
// SemVer version.
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

// Faults are the faults of an E3008.
func Faults(err error) []toolkeep.Fault {
	var e *toolkeep.Error
	if !errors.As(err, &e) {
		return nil
	}
	list, _ := e.Details["errors"].([]toolkeep.Fault)
	return list
}

// FaultText says in one line where the first fault of an E3008 is and what is
// wrong there; of another error it is the message.
func FaultText(err error) string {
	if list := Faults(err); len(list) > 0 {
		return "at " + list[0].Pointer + ": " + list[0].Message
	}
	return toolkeep.AsError(err).Message
}

// Identifier turns text into [A-Za-z_][A-Za-z0-9_-]*, as the second half of a tool
// id is, but for its length. It is "" if no letter or digit is left.
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

// PlainLetters takes the accents off letters.
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
