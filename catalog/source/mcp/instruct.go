package mcp

import (
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/promptscan"
)

// instructions finds text aimed at the model.
func (s *scanner) instructions(pointer, text string) {
	for _, f := range promptscan.Instructions(text) {
		s.add(f.Rule, pointer, f.Text, f.Severity, "%s", f.Message)
	}
}

var (
	base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{64,}={0,2}`)
	hexRun    = regexp.MustCompile(`^(?:[0-9a-f]+|[0-9A-F]+)$`)
)

// encoded finds text that only a machine can read.
func (s *scanner) encoded(pointer, text string) {
	if len(text) < 64 {
		return
	}
	for _, at := range base64Run.FindAllStringIndex(text, maxRuleFindings) {
		run := text[at[0]:at[1]]
		if part(text, at[0]) {
			continue
		}
		said, coded := decode(run)
		switch {
		case said != "":
			s.add(RuleEncoded, pointer, promptscan.Excerpt(text, at[0], at[1]), High, "encoded text, which says %q", toolkeep.Clip(promptscan.OneLine(said), 80))
		case coded:
			severity := Medium
			if strings.Contains(pointer, "/example") || strings.HasSuffix(pointer, "/default") {
				severity = Low // usually a key or an image
			}
			s.add(RuleEncoded, pointer, promptscan.Excerpt(text, at[0], at[1]), severity, "%d characters that look like encoded data", len(run))
		}
	}
}

// part reports whether the text at i continues an address or a path.
func part(text string, i int) bool {
	token := text[strings.LastIndexAny(text[:i], " \t\r\n\"'(<")+1 : i]
	return strings.Contains(token, "://") || strings.HasPrefix(token, "data:")
}

// decode decodes base64 or hex. said is the decoded text, if it is text; coded reports whether the
// run looks like encoded data rather than a long name.
func decode(run string) (said string, coded bool) {
	if hexRun.MatchString(run) {
		raw, err := hex.DecodeString(run)
		if err == nil && promptscan.Readable(string(raw)) {
			return string(raw), true
		}
		return "", len(run) > 128 // shorter ones are digests
	}
	body := strings.TrimRight(run, "=")
	for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		raw, err := e.DecodeString(body)
		if err == nil && promptscan.Readable(string(raw)) {
			return string(raw), true
		}
	}
	var upper, lower, digit, sep int
	for _, r := range body {
		switch {
		case unicode.IsUpper(r):
			upper++
		case unicode.IsLower(r):
			lower++
		case unicode.IsDigit(r):
			digit++
		default:
			sep++
		}
	}
	// Encoded data has capitals, small letters and digits in about the alphabet's proportion, 26 to
	// 26 to 10 to 2; names and paths do not.
	n := len(body)
	return "", len(run) >= 100 && upper*5 > n && lower*5 > n && digit*20 > n && sep*10 < n
}

var (
	nameRun = regexp.MustCompile(`[A-Za-z][A-Za-z0-9]*(?:[_.-]{1,2}[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+`)
	steers  = regexp.MustCompile(`(?i)\b(?:instead|before|after|when(?:ever)?|always|never|must|do not|don't|should|only|first|rather)\b`)
)

// maxNamesLooked bounds the name lookups per text.
const maxNamesLooked = 2000

// otherTools finds names of tools that other servers offer. A plain word, such as search, does not
// count as a name: it needs an underscore, a dot, a hyphen or an inner capital.
func (s *scanner) otherTools(pointer, text string) {
	if s.names[0] == nil {
		return
	}
	told := map[string]bool{}
	for _, at := range nameRun.FindAllStringIndex(text, maxNamesLooked) {
		word := text[at[0]:at[1]]
		server, tool, ok := s.foreign(word)
		if !ok || told[tool] {
			continue
		}
		told[tool] = true
		severity, message := Low, "it speaks of %q, a tool of the server %s"
		if steers.MatchString(sentence(text, at[0], at[1])) {
			severity, message = Medium, "it says how %q, a tool of the server %s, is to be used"
		}
		s.add(RuleOtherTool, pointer, promptscan.Excerpt(text, at[0], at[1]), severity, message, promptscan.Visible(toolkeep.Clip(tool, 80)), promptscan.Visible(toolkeep.Clip(server, 80)))
	}
}

// foreign reports whether a word names a tool of another server, alone or after the server's name,
// and no tool or parameter of this one.
func (s *scanner) foreign(word string) (server, tool string, ok bool) {
	names := []string{word}
	for _, sep := range []string{"__", "."} {
		if _, rest, found := strings.Cut(word, sep); found {
			names = append(names, rest)
			if _, last, again := strings.Cut(rest, sep); again {
				names = append(names, last)
			}
		}
	}
	for i, name := range names {
		if name == s.self || s.params[name] {
			return "", "", false
		}
		all := slices.Concat(s.names[0].of(name), s.names[1].of(name))
		if len(all) == 0 || slices.Contains(all, s.server) {
			continue
		}
		if i > 0 && !slices.ContainsFunc(all, func(server string) bool { return strings.Contains(word, server) }) {
			continue
		}
		return all[0], name, true
	}
	return "", "", false
}

// sentence returns the sentence around text[from:to], at most 200 bytes on either side.
func sentence(text string, from, to int) string {
	start, end := max(0, from-200), min(len(text), to+200)
	if i := strings.LastIndexAny(text[start:from], ".!?\n;"); i >= 0 {
		start += i + 1
	}
	if i := strings.IndexAny(text[to:end], ".!?\n;"); i >= 0 {
		end = to + i
	}
	return text[start:end]
}
