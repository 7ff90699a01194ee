package mcp

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/promptscan"
)

// Severity of a Finding.
type Severity = promptscan.Severity

const (
	High   = promptscan.High
	Medium = promptscan.Medium
	Low    = promptscan.Low
)

// Rules of findings, beside those of promptscan.
const (
	RuleMixed     = "mixed-script"    // a word written with letters of another script that look alike
	RuleLookAlike = "look-alike-name" // a name that looks like another tool's
	RuleOtherTool = "other-tool"      // mentions a tool of another server
	RuleEncoded   = "encoded-text"    // base64 or hex that a person cannot read
	RuleLimit     = "limit"           // there were more findings than reported
)

// Limits of one Scan.
const (
	maxFindings     = 50
	maxRuleFindings = 5       // per rule
	maxScanned      = 1 << 20 // bytes of text
)

// Finding is one item in a definition that a person should look at.
type Finding struct {
	Rule     string   `json:"rule"`
	Pointer  string   `json:"pointer"` // JSON Pointer into the definition, invisible characters escaped
	Text     string   `json:"text"`    // what was found, at most 120 characters, invisible ones escaped
	Severity Severity `json:"severity"`
	Message  string   `json:"message"`
}

// scan checks every name and text of a definition and returns the most severe findings first: at
// most 50, and 5 per rule. server is the server that offers the tool; known are the tools of all
// servers and own those of this one, each nil for none.
func scan(tree map[string]any, server string, known, own *Names) []Finding {
	s := &scanner{server: server, names: []*Names{known, own}, rules: map[string]int{}, budget: maxScanned}
	s.self, _ = tree["name"].(string)
	s.parameters(tree)
	if s.self != "" {
		s.name()
	}
	for _, k := range slices.Sorted(maps.Keys(tree)) {
		s.walk(canon.Pointer(k), k, tree[k], 0)
	}
	rank := map[Severity]int{High: 0, Medium: 1, Low: 2}
	slices.SortStableFunc(s.found, func(a, b Finding) int { return rank[a.Severity] - rank[b.Severity] })
	if len(s.found) > maxFindings {
		s.more += len(s.found) - maxFindings + 1
		s.found = s.found[:maxFindings-1]
	}
	if s.more > 0 {
		s.found = append(s.found, Finding{Rule: RuleLimit, Severity: Medium, Message: strconv.Itoa(s.more) + " more findings are left out"})
	}
	if s.budget < 0 {
		s.found = append(s.found, Finding{Rule: RuleLimit, Severity: Medium, Message: fmt.Sprintf("the definition has more than %d bytes of text; the rest was not scanned", maxScanned)})
	}
	return s.found
}

type scanner struct {
	server string
	self   string
	names  []*Names        // nil elements are none
	params map[string]bool // names of the tool's own parameters
	found  []Finding
	rules  map[string]int
	more   int // findings not kept
	budget int // bytes that may still be scanned
}

// add records a finding. A few per rule are enough, but a more severe one is never displaced.
func (s *scanner) add(rule, pointer, text string, severity Severity, format string, args ...any) {
	key := rule + " " + string(severity)
	if s.rules[key]++; s.rules[key] > maxRuleFindings {
		s.more++
		return
	}
	s.found = append(s.found, Finding{Rule: rule, Pointer: promptscan.Visible(toolkeep.Clip(pointer, 500)), Text: text, Severity: severity, Message: fmt.Sprintf(format, args...)})
}

// parameters collects the argument names, which may coincide with names of other tools.
func (s *scanner) parameters(tree map[string]any) {
	s.params = map[string]bool{}
	var walk func(v any, depth int)
	walk = func(v any, depth int) {
		switch v := v.(type) {
		case map[string]any:
			if props, ok := v["properties"].(map[string]any); ok {
				for name := range props {
					s.params[name] = true
				}
			}
			for _, e := range v {
				walk(e, depth+1)
			}
		case []any:
			for _, e := range v {
				walk(e, depth+1)
			}
		}
	}
	walk(tree["inputSchema"], 0)
	walk(tree["outputSchema"], 0)
}

// walk visits every text. key is the member that holds the value.
func (s *scanner) walk(pointer, key string, v any, depth int) {
	switch v := v.(type) {
	case string:
		s.text(pointer, key, v)
	case []any:
		for i, e := range v {
			s.walk(pointer+"/"+strconv.Itoa(i), key, e, depth+1)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			at := pointer + canon.Pointer(k)
			s.characters(at, k)
			s.words(at, k)
			s.walk(at, k, v[k], depth+1)
		}
	}
}

// characters finds invisible characters.
func (s *scanner) characters(pointer, text string) {
	for _, f := range promptscan.Characters(text) {
		s.add(f.Rule, pointer, f.Text, f.Severity, "%s", f.Message)
	}
}

// text scans one text.
func (s *scanner) text(pointer, key, text string) {
	if s.budget -= len(text); s.budget < 0 {
		return
	}
	if key == "src" && strings.HasPrefix(pointer, "/icons/") {
		return // an image
	}
	s.characters(pointer, text)
	switch key {
	case "$schema", "$id", "$ref", "$dynamicRef", "$anchor", "$dynamicAnchor", "pattern", "contentEncoding", "contentMediaType":
		return
	case "name":
		if pointer == "/name" {
			return // already scanned by name
		}
	}
	s.words(pointer, text)
	s.encoded(pointer, text)
	s.instructions(pointer, text)
	s.otherTools(pointer, text)
}
