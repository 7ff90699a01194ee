package assembly

import (
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep/discover"
)

// marshal encodes v with valid strings and escaped hidden characters.
func marshal(v any) []byte {
	raw, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err) // all values are built from checked parts
	}
	return escapeHidden(raw)
}

// escapeHidden escapes invisible characters, and those that some programs treat as line ends. In
// JSON they occur only inside strings.
func escapeHidden(raw []byte) []byte {
	ascii := true
	for _, c := range raw {
		if c >= utf8.RuneSelf || c == 0x7f {
			ascii = false
			break
		}
	}
	if ascii {
		return raw
	}
	out := make([]byte, 0, len(raw)+16)
	for i := 0; i < len(raw); {
		r, n := utf8.DecodeRune(raw[i:])
		switch {
		case !hidden(r) && r != '\u2028' && r != '\u2029' && (r < 0x7f || r > 0x9f):
			out = append(out, raw[i:i+n]...)
		case r > 0xffff:
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	return out
}

// value returns raw if it is valid JSON, else nil.
func value(raw []byte) stdjson.RawMessage {
	if len(raw) == 0 || !jsontext.Value(raw).IsValid() {
		return nil
	}
	v := jsontext.Value(raw).Clone()
	if v.Compact() != nil {
		return nil
	}
	return stdjson.RawMessage(escapeHidden(v))
}

// Format returns the format in which the tokens were counted.
func (c *Context) Format() Format { return c.format }

// Text returns the context in its format.
func (c *Context) Text() string {
	if c.format == Markdown {
		return c.Markdown()
	}
	return string(c.JSON())
}

// JSON returns the context as one JSON object.
func (c *Context) JSON() []byte { return marshal(c) }

// Markdown returns the context in the form of Discovery 4.4. Text from tools is on one line each,
// in quotes or as JSON, so that it cannot start a heading, a list or a block of its own.
func (c *Context) Markdown() string {
	b := &strings.Builder{}
	if len(c.LightweightIndex) > 0 || c.IndexRest != nil || c.Metadata.Phase == InitialPlanning {
		if p := c.Metadata.Phase; p == InitialPlanning || p == ToolSelection {
			fmt.Fprintf(b, "# Available Tools (Lightweight Index)\nTotal Tools: %d", c.Metadata.TotalToolsAvailable)
			if n := len(c.DetailedTools); n > 0 {
				fmt.Fprintf(b, ", %d of them whole below", n)
			}
			b.WriteByte('\n')
		} else {
			b.WriteString("# Tools That Do Not Fit Whole\n")
		}
		if len(c.LightweightIndex) > 0 {
			b.WriteByte('\n')
		}
		for i, e := range c.LightweightIndex {
			if e.isBrief && (i == 0 || !c.LightweightIndex[i-1].isBrief) {
				if i > 0 {
					b.WriteByte('\n')
				}
				b.WriteString("Less near, without parameters:\n")
			}
			e.markdown(b)
		}
		if c.IndexRest != nil {
			c.IndexRest.markdown(b)
		}
		b.WriteString("\n---\n")
	}
	c.recoveryMarkdown(b)
	if len(c.DetailedTools) > 0 {
		why := "Retrieved for this query"
		if c.Metadata.Phase == ExecutionPreparation || c.Metadata.Phase == ErrorRecovery {
			why = "Retrieved for this step"
		}
		fmt.Fprintf(b, "\n# Detailed Tool Manifests (%s)\nRetrieved %s:\n", why, count(len(c.DetailedTools), "relevant tool"))
		for _, d := range c.DetailedTools {
			d.markdown(b)
			c.examplesMarkdown(b, d.ToolID)
			c.patternsMarkdown(b, d.ToolID)
		}
		b.WriteString("\n---\n")
	}
	c.loosePatterns(b)
	c.footMarkdown(b)
	return strings.TrimLeft(b.String(), "\n")
}

func (e *Entry) markdown(b *strings.Builder) {
	if e.isBrief {
		fmt.Fprintf(b, "- %s: %s\n", name(e.ToolID), quote(e.ShortDescription))
		return
	}
	fmt.Fprintf(b, "- **%s**", name(e.ToolID))
	if e.Verb != "" {
		fmt.Fprintf(b, " (%s)", name(e.Verb))
	}
	fmt.Fprintf(b, ": %s", quote(e.ShortDescription))
	sep := "\n  "
	part := func(title, value string) {
		fmt.Fprintf(b, "%s%s: %s", sep, title, value)
		sep = " | "
	}
	// A category that equals the id's prefix is omitted.
	if namespace, _, _ := strings.Cut(e.ToolID, "."); e.Category != "" && e.Category != namespace {
		part("Categories", name(e.Category))
	}
	// So are tags that repeat it.
	if tags := slices.DeleteFunc(slices.Clone(e.Tags), func(tag string) bool { return saysTheSame(tag, e.Category) }); len(tags) > 0 {
		part("Tags", names(tags))
	}
	if len(e.RequiredParams) > 0 {
		part("Required", names(e.RequiredParams))
	}
	if len(e.OptionalParams) > 0 {
		part("Optional", names(e.OptionalParams))
	}
	b.WriteByte('\n')
}

func (r *Rest) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\nNot listed: %s", count(r.Tools, "more tool"))
	sep := " ("
	shown := 0
	for _, c := range r.Categories {
		fmt.Fprintf(b, "%s%s %d", sep, name(c.Category), c.Tools)
		sep = ", "
		shown += c.Tools
	}
	if shown > 0 {
		if shown < r.Tools {
			fmt.Fprintf(b, ", others %d", r.Tools-shown)
		}
		b.WriteByte(')')
	}
	fmt.Fprintf(b, ". %s\n", r.Hint)
}

func (d *Detail) markdown(b *strings.Builder) {
	// A manifest is one line of JSON, so it cannot end the block.
	fmt.Fprintf(b, "\n## %s\n```json\n%s\n```\n", name(d.ToolID), d.Manifest)
	if len(d.Omitted) > 0 {
		fmt.Fprintf(b, "Left out of it: %s.\n", strings.Join(d.Omitted, ", "))
	}
}

func (c *Context) examplesMarkdown(b *strings.Builder, tool string) {
	head := "\n### Usage Examples\n"
	for _, e := range c.Examples {
		if e.ToolID != tool {
			continue
		}
		b.WriteString(head)
		head = ""
		e.markdown(b)
	}
}

func (e *Example) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "- %s\n", quote(e.Scenario))
	if len(e.Input) > 0 {
		fmt.Fprintf(b, "  ```json\n  %s\n  ```\n", e.Input)
	}
	if len(e.Output) > 0 {
		fmt.Fprintf(b, "  Output:\n  ```json\n  %s\n  ```\n", e.Output)
	}
	if e.Explanation != "" {
		fmt.Fprintf(b, "  %s\n", quote(e.Explanation))
	}
}

func (c *Context) patternsMarkdown(b *strings.Builder, tool string) {
	head := "\n### Common Patterns\n"
	for _, p := range c.Patterns {
		if p.With != tool {
			continue
		}
		b.WriteString(head)
		head = ""
		p.markdown(b)
	}
}

// loosePatterns writes the patterns of tools not shown in full.
func (c *Context) loosePatterns(b *strings.Builder) {
	shown := map[string]bool{}
	for _, d := range c.DetailedTools {
		shown[d.ToolID] = true
	}
	head := "\n# Common Patterns\n"
	for _, p := range c.Patterns {
		if shown[p.With] {
			continue
		}
		b.WriteString(head)
		head = ""
		fmt.Fprintf(b, "- With **%s**:\n  ", name(p.With))
		p.markdown(b)
	}
	if head == "" {
		b.WriteString("\n---\n")
	}
}

func (p *Pattern) markdown(b *strings.Builder) {
	what := map[string]string{"before": "call it before", "after": "call it after", "parallel": "call it at the same time"}[p.Sequence]
	if p.Relationship == "dependency" {
		what = "needed: " + what
	}
	if what == "" {
		what = "often used with it"
	}
	if p.Learned {
		what += ", as earlier calls did"
	}
	fmt.Fprintf(b, "- **%s** (%s): %s\n", name(p.ToolID), what, quote(p.ShortDescription))
}

func (c *Context) recoveryMarkdown(b *strings.Builder) {
	if r := c.Recovery; r != nil {
		b.WriteString("\n# Error Recovery\n")
		if r.ToolID != "" {
			fmt.Fprintf(b, "Tool: %s\n", name(r.ToolID))
		}
		if error := strings.Fields(r.ErrorCode + " " + r.Name + " " + r.Class); len(error) > 0 {
			fmt.Fprintf(b, "Error: %s\n", strings.Join(error, " ")) // all from the catalogue
		}
		if r.Message != "" {
			fmt.Fprintf(b, "Message: %s\n", quote(r.Message))
		}
		for _, h := range r.Hints {
			fmt.Fprintf(b, "- %s\n", h)
		}
	}
	if len(c.ErrorPatterns) > 0 {
		b.WriteString("\n## Known Errors\n")
		for _, e := range c.ErrorPatterns {
			fmt.Fprintf(b, "- **%s**: %s", name(e.ToolID), quote(e.Error))
			if e.Resolution != "" {
				fmt.Fprintf(b, "; resolution: %s", quote(e.Resolution))
			}
			if e.Seen > 0 {
				fmt.Fprintf(b, "; seen %s", count(e.Seen, "time"))
			}
			b.WriteByte('\n')
		}
	}
	if len(c.Alternatives) > 0 {
		b.WriteString("\n## Alternatives\n")
		for _, a := range c.Alternatives {
			fmt.Fprintf(b, "- **%s** (%s): %s", name(a.ToolID), a.Why, quote(a.ShortDescription))
			if len(a.RequiredParams) > 0 {
				fmt.Fprintf(b, " | Required: %s", names(a.RequiredParams))
			}
			b.WriteByte('\n')
		}
	}
	if c.Recovery != nil || len(c.ErrorPatterns)+len(c.Alternatives) > 0 {
		b.WriteString("\n---\n")
	}
}

// footMarkdown says what is left out.
func (c *Context) footMarkdown(b *strings.Builder) {
	m := &c.Metadata
	fmt.Fprintf(b, "\nPhase: %s (%s). Tokens: %d of %d (%s).\n", m.Phase, m.PhaseReason, m.TokensUsed, m.TokenBudget, m.Tokenizer)
	if m.QueryCut {
		fmt.Fprintf(b, "Search: %s\n", discover.CutNotice)
	}
	if m.Degraded != "" {
		fmt.Fprintf(b, "Search: %s\n", quote(m.Degraded))
	}
	for _, l := range m.LeftOut {
		if l.What == "manifest_parts" || l.What == "index_entries" || l.What == "index_parameters" {
			continue // noted at their place
		}
		fmt.Fprintf(b, "Left out: %s", strings.ReplaceAll(l.What, "_", " "))
		if l.ToolID != "" {
			fmt.Fprintf(b, " of %s", name(l.ToolID))
		}
		if len(l.Parts) > 0 {
			fmt.Fprintf(b, ": %s", strings.Join(l.Parts, ", "))
		}
		if l.Count > 0 {
			fmt.Fprintf(b, ": %d", l.Count)
		}
		if l.Tokens > 0 {
			fmt.Fprintf(b, ": about %s tokens", discover.Thousands(l.Tokens))
		}
		fmt.Fprintf(b, " (%s)\n", l.Why)
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// name writes an identifier unchanged, and anything else in quotes.
func name(s string) string {
	if s == "" {
		return `""`
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == '-'), s == "…":
		default:
			return quote(s)
		}
	}
	return s
}

func names(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = name(s)
	}
	return strings.Join(out, ", ")
}

// quote writes a tool's text on one line between quotes. Markdown characters are escaped, so that
// it cannot contain code, links, pictures, emphasis or HTML.
func quote(s string) string {
	s = oneLine(s)
	b := make([]byte, 0, len(s)+8)
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\\', '`', '*', '[', ']', '<', '>', '&', '~', '|':
			b = append(b, '\\', c)
		case '#', '=', '-':
			// A heading, or the line under one, only where something stands before it
			// that a program takes for the beginning of a line.
			if i == 0 {
				b = append(b, '\\')
			}
			b = append(b, c)
		case '_':
			if i == 0 || i+1 == len(s) || s[i-1] == ' ' || s[i+1] == ' ' || s[i-1] == '_' || s[i+1] == '_' {
				b = append(b, '\\')
			}
			b = append(b, c)
		default:
			b = append(b, c)
		}
	}
	return string(append(b, '"'))
}
