package inspect

import (
	"fmt"
	"html"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
)

const (
	maxSanitized = 8 << 20 // bytes of text, all rules together; the manifest's schema bounds the rules to 16
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
			if re, err := regexp.Compile(rule.Pattern); err != nil || re.MatchString("") {
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

// sanitizer is one rule, ready to use.
type sanitizer struct {
	name, action string
	re           *regexp.Regexp
}

// sanitize applies the manifest's rules to each text of the result, names of members included. E3722 if one with the
// action reject matches, if one cannot be used, or if there is more than 8 MiB of text to look at. The others warn.
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
		if s.re, err = i.pattern(pattern); err != nil {
			return toolkeep.NewError(toolkeep.ResultRejected, "the rule %q of the tool's result.sanitize cannot be used; its publisher must correct it", rule.Name).Because(err)
		}
		rules = append(rules, s)
	}
	var refused error
	matched, left := map[string]bool{}, maxSanitized
	v, changed := rewrite(r.value, func(v any) (any, bool) {
		text, ok := v.(string)
		if !ok || refused != nil {
			return v, false
		}
		before := text
		for _, rule := range rules {
			if left -= len(text); left < 0 {
				refused = toolkeep.NewError(toolkeep.ResultRejected, "the result has more text than the rules of result.sanitize look at (%d bytes, all rules together); ask the tool for less", maxSanitized)
				return v, false
			}
			if !rule.re.MatchString(text) {
				continue
			}
			matched[rule.name] = true
			switch rule.action {
			case "redact":
				text = rule.re.ReplaceAllLiteralString(text, marker)
			case "escape":
				text = rule.re.ReplaceAllStringFunc(text, escape)
			default:
				refused = toolkeep.NewError(toolkeep.ResultRejected, "the result matches the rule %q, which the tool's manifest says to reject (result.sanitize)", rule.name).With("rule", rule.name)
				return v, false
			}
		}
		return text, text != before
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
func (i *Inspector) pattern(text string) (*regexp.Regexp, error) {
	if re, ok := i.patterns.GetIfPresent(text); ok {
		return re, nil
	}
	re, err := regexp.Compile(text)
	if err == nil {
		i.patterns.Set(text, re)
	}
	return re, err
}
