package inspect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

const (
	maxSanitized     = 8 << 20         // bytes of text, all rules together; the manifest's schema bounds the rules to 16
	maxSanitizing    = 2 * time.Second // all rules together; 8 MiB take half a second
	maxPatternSize   = 1000            // see sizeOf
	maxAtOnce        = 64 << 20        // bytes times size that are matched without a look at the clock: about a second at worst
	maxPatternWeight = 64 << 20        // bytes of compiled patterns that are kept, about
)

// namedRules are the rules of Platform 3.3.6. None applies unless a manifest names it: that of SQL matches each apostrophe.
var namedRules = map[string]struct{ pattern, action string }{
	"sql_injection":     {`('|(\-\-)|(;)|(\|\|)|(\*))`, "reject"},
	"xss":               {`(?i)(<script|javascript:|onerror=)`, "escape"},
	"command_injection": {"(;|\\||`|\\$\\()", "reject"},
}

// Check returns the faults of a manifest's rules of sanitising, before it is published; nil if there are none.
func Check(m *toolkeep.Manifest) (faults []toolkeep.Fault) {
	if m.Result == nil {
		return nil
	}
	for n, rule := range m.Result.Sanitize {
		at := "/result/sanitize/" + strconv.Itoa(n)
		_, named := namedRules[rule.Name]
		switch {
		case named && rule.Pattern != "":
			faults = append(faults, toolkeep.Fault{Pointer: at + "/pattern", Rule: "not", Message: rule.Name + " has its own pattern; leave pattern out, or give the rule another name"})
		case !named && (rule.Pattern == "" || rule.Action == ""):
			faults = append(faults, toolkeep.Fault{Pointer: at, Rule: "required", Message: fmt.Sprintf("a rule has pattern and action, unless its name is one of %s", strings.Join(ruleNames(), ", "))})
		case !named:
			p, err := compilePattern(rule.Pattern)
			switch {
			case errors.Is(err, errPatternSize):
				faults = append(faults, toolkeep.Fault{Pointer: at + "/pattern", Rule: "pattern", Message: err.Error() + "; repeat less in it, or make several rules of it"})
			case err != nil || p.first.MatchString(""):
				faults = append(faults, toolkeep.Fault{Pointer: at + "/pattern", Rule: "pattern", Message: "it is no regular expression of RE2, or it matches an empty text"})
			}
		}
	}
	return faults
}

func ruleNames() []string {
	names := make([]string, 0, len(namedRules))
	for name := range namedRules {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

var order = map[string]int{"redact": 1, "escape": 1} // the others reject

// sanitizer is one rule, ready to use.
type sanitizer struct {
	name, action string
	*pattern
}

// sanitize applies the manifest's rules to each text and number of the result, names of members included. E3722 if one with the
// action reject matches, if one cannot be used, if there is more than 8 MiB of text to look at, or if that takes over
// two seconds. The others warn.
func (i *Inspector) sanitize(r *result) error {
	if r.tool.Result == nil || len(r.tool.Result.Sanitize) == 0 {
		return nil
	}
	rules := make([]sanitizer, 0, len(r.tool.Result.Sanitize))
	for _, rule := range r.tool.Result.Sanitize {
		s := sanitizer{name: rule.Name, action: rule.Action}
		pattern := rule.Pattern
		if named, ok := namedRules[rule.Name]; ok {
			pattern = named.pattern
			if s.action == "" {
				s.action = named.action
			}
		}
		var err error
		if s.pattern, err = i.pattern(pattern); err != nil {
			return toolkeep.NewError(toolkeep.ResultRejected, "the rule %q of the tool's result.sanitize cannot be used; its publisher must correct it", rule.Name).Because(err)
		}
		rules = append(rules, s)
	}
	slices.SortStableFunc(rules, func(a, b sanitizer) int { // rejected is what the tool wrote, not an entity of escape
		return cmp.Compare(order[a.action], order[b.action])
	})
	var refused error
	own := r.ownBase64()
	matched, left, until := map[string]bool{}, maxSanitized, time.Now().Add(i.sanitizing)
	v, changed := rewrite(r.value, func(v any) (any, bool) {
		text, ok := v.(string)
		if n, isNumber := v.(json.Number); isNumber && (r.form != formBinary || r.reshaped) { // that of a binary is its length
			text, ok = string(n), true
		}
		if !ok || refused != nil || own != "" && text == own {
			return v, false
		}
		before := text
		for _, rule := range rules {
			if left -= len(text); left < 0 {
				refused = toolkeep.NewError(toolkeep.ResultRejected, "the result has more text than the rules of result.sanitize look at (%d bytes, all rules together); ask the tool for less", maxSanitized)
				return v, false
			}
			start, end, found, inTime := rule.find(text, 0, until)
			if found && inTime {
				matched[rule.name] = true
				switch rule.action {
				case "redact":
					text, inTime = rule.replace(text, start, end, until, func(string) string { return marker })
				case "escape":
					text, inTime = rule.replace(text, start, end, until, escape)
				default:
					refused = toolkeep.NewError(toolkeep.ResultRejected, "the result matches the rule %q, which the tool's manifest says to reject (result.sanitize)", rule.name).With("rule", rule.name)
					return v, false
				}
			}
			if !inTime {
				refused = toolkeep.NewError(toolkeep.ResultRejected, "the rules of result.sanitize did not finish with the result in %s, at the rule %q; ask the tool for less, or its publisher for a simpler pattern", i.sanitizing, rule.name).With("rule", rule.name)
				return v, false
			}
		}
		if text == before {
			return v, false
		}
		return text, true
	})
	if refused != nil {
		return refused
	}
	if changed {
		r.value, r.reshaped = v, true
	}
	for _, rule := range rules {
		if matched[rule.name] {
			r.warn(toolkeep.ResultRejected, "the result matched the rule %q of the tool's result.sanitize: %s", rule.name, map[string]string{"redact": "what matched was taken out", "escape": "what matched was escaped"}[rule.action])
			delete(matched, rule.name)
		}
	}
	return nil
}

// escape writes a match so that markup does not take it for its own, and a colon or equals sign as an entity too.
func escape(s string) string {
	return strings.NewReplacer(":", "&#58;", "=", "&#61;").Replace(html.EscapeString(s))
}

// pattern returns a compiled pattern.
func (i *Inspector) pattern(text string) (*pattern, error) {
	if p, ok := i.patterns.GetIfPresent(text); ok {
		return p, nil
	}
	p, err := compilePattern(text)
	if err == nil {
		i.patterns.Set(text, p)
	}
	return p, err
}

// pattern is a regular expression whose matching stops in time. A match of package regexp cannot be stopped, but its
// reader can say that the text ends; without one it is faster.
type pattern struct {
	first *regexp.Regexp // matches from the beginning of a text
	next  *regexp.Regexp // nil if first does; its first group matches after one character, which ^ or \b looks at
	size  int
	head  string // of each match
}

var errPatternSize = fmt.Errorf("the pattern has over %d parts, each repetition counted", maxPatternSize)

func compilePattern(text string) (*pattern, error) {
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	p := pattern{size: sizeOf(tree)}
	if p.size > maxPatternSize {
		return nil, errPatternSize
	}
	if p.first, err = regexp.Compile(text); err != nil {
		return nil, err
	}
	p.head, _ = p.first.LiteralPrefix()
	if looksBack(tree) {
		p.next, err = regexp.Compile(`\A(?s:.)(?s:.*?)(` + tree.String() + `)`) // as a tree, because \Q may be open at the text's end
	}
	return &p, err
}

// looksBack reports whether what is before a match decides.
func looksBack(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return true
	}
	return slices.ContainsFunc(re.Sub, looksBack)
}

// sizeOf is about the number of instructions that an expression compiles to, to which the time a byte takes is bound.
// The parser bounds repetitions within repetitions to 1,000 in all, so the number is small enough for an int.
func sizeOf(re *syntax.Regexp) int {
	n := 1
	if re.Op == syntax.OpLiteral {
		n = len(re.Rune)
	}
	for _, sub := range re.Sub {
		n += sizeOf(sub) * max(1, re.Min, re.Max) // both are 0 where nothing repeats
	}
	return n
}

// find returns where the first match in text[at:] is; inTime is false if that is not known by until.
func (p *pattern) find(text string, at int, until time.Time) (start, end int, found, inTime bool) {
	if !time.Now().Before(until) {
		return 0, 0, false, false
	}
	re, group := p.first, 0
	if at > 0 && p.next != nil {
		_, n := utf8.DecodeLastRuneInString(text[:at])
		at, re, group = at-n, p.next, 2
	}
	if p.head != "" && group == 0 {
		n := strings.Index(text[at:], p.head)
		if n < 0 {
			return 0, 0, false, true
		}
		at += n
	}
	var m []int
	if (len(text)-at)*p.size <= maxAtOnce {
		m = re.FindStringSubmatchIndex(text[at:])
	} else {
		r := timed{text: text[at:], until: until}
		if m = re.FindReaderSubmatchIndex(&r); r.late {
			return 0, 0, false, false
		}
	}
	if m == nil {
		return 0, 0, false, true
	}
	return at + m[group], at + m[group+1], true, true
}

// replace replaces each match that is not empty, from that which find returned.
func (p *pattern) replace(text string, start, end int, until time.Time, by func(string) string) (out string, inTime bool) {
	var b strings.Builder
	at, found := 0, true
	for found {
		b.WriteString(text[at:start])
		if start == end {
			_, n := utf8.DecodeRuneInString(text[start:])
			end += n
			b.WriteString(text[start:end])
		} else {
			b.WriteString(by(text[start:end]))
		}
		if at = end; at == len(text) {
			break
		}
		if start, end, found, inTime = p.find(text, at, until); !inTime {
			return "", false
		}
	}
	b.WriteString(text[at:])
	return b.String(), true
}

// timed reads a text, which ends early when time is up; late says that it did.
type timed struct {
	text  string
	at    int
	reads int
	until time.Time
	late  bool
}

func (t *timed) ReadRune() (rune, int, error) {
	if t.reads++; t.reads%512 == 0 && !time.Now().Before(t.until) {
		t.late = true
	}
	if t.late || t.at >= len(t.text) {
		return 0, 0, io.EOF
	}
	c, n := utf8.DecodeRuneInString(t.text[t.at:])
	t.at += n
	return c, n, nil
}
