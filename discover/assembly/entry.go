package assembly

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/pack"
	"github.com/toolkeep/toolkeep/schema"
)

// Limits of an index entry, so that one tool cannot take the room of ten.
const (
	entryText   = 100 // bytes of the description, like short_description
	entryTags   = 6
	entryParams = 12
	entryName   = 64 // bytes of a tag or a parameter
)

// entry returns a tool's index line.
func entry(t *toolkeep.Tool) Entry {
	m := t.Manifest
	e := Entry{ToolID: oneLine(t.ID), Verb: toolkeep.ClipBytes(oneLine(m.Verb), entryName), ShortDescription: short(m), Category: toolkeep.ClipBytes(oneLine(m.Category), entryName), Tags: few(m.Tags, entryTags)}
	said := pack.WordsOf(t)
	e.RequiredParams, e.OptionalParams = few(said.Required, entryParams), few(said.Optional, entryParams)
	return e
}

// brief returns the entry of a tool far from the query: only its name and purpose.
func (e Entry) brief() Entry {
	return Entry{ToolID: e.ToolID, ShortDescription: e.ShortDescription, Category: e.Category, isBrief: true}
}

// short returns a tool's short description, or the start of its long one.
func short(m *toolkeep.Manifest) string {
	s := oneLine(m.ShortDescription)
	if s == "" {
		// Some descriptions are long, so only the start is read.
		s = oneLine(toolkeep.ClipBytes(m.Description, 8*entryText))
	}
	return clipWord(s, entryText)
}

// clipWord cuts at a space if there is one in the last third.
func clipWord(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = toolkeep.CutBytes(s, n)
	if i := strings.LastIndexByte(s, ' '); i > 2*n/3 {
		s = s[:i]
	}
	return s + "…"
}

func few(list []string, most int) []string {
	var out []string
	for i, s := range list {
		if i == most {
			return append(out, "…")
		}
		out = append(out, toolkeep.ClipBytes(oneLine(s), entryName))
	}
	return out
}

// oneLine collapses all white space to single spaces and removes invisible characters, which could
// make a text look different from what it says.
func oneLine(s string) string {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] > ' ' && s[i] < 0x7f || s[i] == ' ' && i > 0 && i+1 < len(s) && s[i+1] != ' '
	}
	if plain {
		return s
	}
	var b strings.Builder
	space := false
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case unicode.IsSpace(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Cc, r):
			space = b.Len() > 0
			continue
		case hidden(r):
			continue
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteRune(r)
	}
	return b.String()
}

// hidden reports format characters: bidirectional marks, tags, zero widths.
func hidden(r rune) bool { return unicode.Is(unicode.Cf, r) }

func schemaTree(raw []byte) (map[string]any, bool) {
	if len(raw) == 0 {
		return nil, false
	}
	v, err := canon.Parse(raw, canon.Limits{Depth: 200, Properties: 50_000, Elements: 200_000})
	if err != nil {
		return nil, false // unreadable schemas are never published
	}
	m, ok := v.(map[string]any)
	return m, ok
}

// Levels of a tool shown in full: each leaves out one more part.
const (
	levelWhole = iota
	levelNoExamples
	levelNoLongTexts
	levelNoResult
	levelNoTexts
	levels
)

var levelParts = [levels]string{"", "examples", "long descriptions", "result_schema", "descriptions of parameters"}

// Lengths above which texts count as long.
const (
	longText      = 400 // bytes of the tool's description
	longParameter = 160 // bytes of a description within a schema
)

// toolEntry is the part of a manifest a caller needs, in reading order.
type toolEntry struct {
	ToolID           string          `json:"tool_id"`
	Version          string          `json:"version"`
	ToolName         string          `json:"tool_name,omitempty"`
	Description      string          `json:"description"`
	Explanation      string          `json:"explanation,omitempty"`
	InputGuidance    string          `json:"input_guidance,omitempty"`
	Category         string          `json:"category,omitempty"`
	SideEffects      string          `json:"side_effects,omitempty"`
	Idempotent       bool            `json:"idempotent,omitempty,omitzero"`
	Risk             string          `json:"risk,omitempty"`
	RequiresApproval bool            `json:"requires_approval,omitempty,omitzero"`
	ParametersSchema json.RawMessage `json:"parameters_schema"`
	ResultSchema     json.RawMessage `json:"result_schema,omitempty"`
}

// manifestAt returns a tool's manifest at a level, and the parts omitted there.
func manifestAt(t *toolkeep.Tool, level int) (raw []byte, omitted []string) {
	m := t.Manifest
	v := toolEntry{ToolID: t.ID, Version: t.Version, ToolName: m.ToolName, Description: m.Description, Explanation: m.Explanation, InputGuidance: m.InputGuidance,
		Category: m.Category, SideEffects: m.SideEffects, Idempotent: m.Idempotent, Risk: m.Risk, RequiresApproval: m.RequiresApproval}
	if _, name, _ := strings.Cut(t.ID, "."); saysTheSame(v.ToolName, name) || strings.HasPrefix(letters(toolkeep.ClipBytes(v.Description, 2*len(v.ToolName))), letters(v.ToolName)) {
		v.ToolName = ""
	}
	omit := func(at int) {
		if part := levelParts[at]; !slices.Contains(omitted, part) {
			omitted = append(omitted, part)
		}
	}
	if level >= levelNoExamples && len(m.Examples) > 0 {
		omit(levelNoExamples)
	}
	longest := 1 << 30
	if level >= levelNoLongTexts {
		longest = longParameter
		if m.Explanation != "" || m.InputGuidance != "" || len(m.Description) > longText {
			omit(levelNoLongTexts)
		}
		v.Explanation, v.InputGuidance = "", ""
		if len(m.Description) > longText {
			v.Description = short(m)
		}
	}
	if level >= levelNoTexts {
		longest = 0
	}
	var cut bool
	v.ParametersSchema, cut = schemaAt(m.ParametersSchema, longest)
	if v.ParametersSchema == nil {
		v.ParametersSchema = json.RawMessage(`{"type":"object"}`)
	}
	if level < levelNoResult {
		var also bool
		v.ResultSchema, also = schemaAt(m.ResultSchema, longest)
		cut = cut || also
	} else if len(m.ResultSchema) > 0 {
		omit(levelNoResult)
	}
	if cut && level >= levelNoTexts {
		omit(levelNoTexts)
	} else if cut {
		omit(levelNoLongTexts)
	}
	slices.SortStableFunc(omitted, func(a, b string) int { return slices.Index(levelParts[:], a) - slices.Index(levelParts[:], b) })
	return marshal(v), omitted
}

// saysTheSame compares only letters and digits: importers often derive a tool's name from its id or
// from the start of its description.
func saysTheSame(a, b string) bool { return letters(a) == letters(b) }

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}

// Shorten removes descriptions, titles and comments of more than longest bytes from a schema, and
// reports whether there were any; other values are returned unchanged.
func Shorten(raw json.RawMessage, longest int) (json.RawMessage, bool) {
	short, cut := schemaAt(raw, longest)
	if !cut {
		return raw, false
	}
	return short, true
}

// schemaAt returns a schema without descriptions of more than longest bytes; nil if it is absent or
// not an object.
func schemaAt(raw []byte, longest int) (json.RawMessage, bool) {
	tree, ok := schemaTree(raw)
	if !ok {
		return nil, false
	}
	cut := dropTexts(tree, longest)
	return canon.Append(nil, tree), cut
}

// dropTexts deletes long texts from a schema and everything within it.
func dropTexts(v any, longest int) (cut bool) {
	m, _ := v.(map[string]any)
	for _, k := range []string{"description", "title", "$comment"} {
		if s, ok := m[k].(string); ok && len(s) > longest {
			delete(m, k)
			cut = true
		}
	}
	for _, below := range schema.Below(m) {
		cut = dropTexts(below, longest) || cut
	}
	return cut
}
