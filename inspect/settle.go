package inspect

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/promptscan"
	"github.com/toolkeep/toolkeep/schema"
)

const (
	defaultFieldBytes = 10_000_000 // of a text in an object or array (Execution 8.9)
	maxMarks          = 20
	maxNormalised     = 1 << 20 // bytes of text that is not ASCII whose form and characters are looked at
)

// Rules of marks, beside those of promptscan.
const (
	rulePrototype = "prototype-key" // a name that changes all objects of a program in JavaScript; it is taken out
	ruleForm      = "not-nfc"       // text that is not in the Unicode form NFC, so that equal texts differ
	ruleNotJudged = "not-judged"    // there was more text than is looked at
)

// mark says that a place of a result needs care.
type mark struct {
	Pointer string `json:"pointer"`
	Rule    string `json:"rule"`
	Message string `json:"message"`
}

// settle looks at each text of the result, in one walk that changes nothing of a plain one: control characters become
// U+FFFD, names that reach a prototype are taken out, and what addresses the model, hides characters or is not in NFC is
// marked with one warning, E3724. E3710 if a text within the result is over the limit of a field.
func (i *Inspector) settle(r *result, schema *schema.Schema) error {
	s := settling{field: i.field, head: int(min(r.tool.MaxOutputBytes(), int64(maxInt)))}
	s.own = r.ownBase64()
	s.constructor = schema != nil && schema.Defines("constructor")
	s.walk(r.value)
	if s.long > 0 {
		return toolkeep.NewError(toolkeep.ResultTooLarge,
			"a text of the result has %d bytes, at most %d are accepted in one field; ask the tool for less", s.long, i.field).
			With("bytes", s.long).With("limit", i.field).With("pointer", cutText(s.longAt, 200))
	}
	if s.prototype {
		r.value, r.reshaped = s.withoutPrototypes(r.value), true
	}
	if s.control {
		r.value, _ = rewrite(r.value, func(v any) (any, bool) {
			if t, ok := v.(string); ok {
				return r.goodText(t)
			}
			return v, false
		})
	}
	if s.aimed.More || s.foreign > maxNormalised {
		s.mark(ruleNotJudged, "the result has more text than is looked at for orders to the model and hidden characters")
	}
	if s.found == 0 {
		return nil
	}
	details := map[string]any{"marks": s.marks}
	if more := s.found - len(s.marks); more > 0 {
		details["more"] = more
	}
	message := "the result needs care: at \"" + s.marks[0].Pointer + "\": " + s.marks[0].Message
	if s.found > 1 {
		message += " (and " + strconv.Itoa(s.found-1) + " more, see details.marks)"
	}
	r.out.Warnings = append(r.out.Warnings, toolkeep.Warning{Code: toolkeep.ResultSuspicious, Message: message, Details: details})
	return nil
}

// settling is one walk of settle.
type settling struct {
	field       int64
	head        int    // bytes of a result that is a text
	own         string // not looked at
	constructor bool   // is a name of the result schema
	named       bool   // the text is the name of the last step
	aimed       promptscan.Aimed
	foreign     int
	path        [maxDepth]step
	depth       int

	marks              []mark
	found              int
	control, prototype bool
	long               int64
	longAt             string
}

// step is a member's name or, where n is not 0, one more than an element's index.
type step struct {
	name string
	n    int
}

func (s *settling) walk(v any) {
	switch t := v.(type) {
	case string:
		if s.own != "" && t == s.own {
			return
		}
		if s.depth > 0 && int64(len(t)) > s.field && s.long == 0 {
			s.long, s.longAt = int64(len(t)), s.pointer()
		}
		if s.depth == 0 { // of a long text what the caller gets
			s.control = hasControl(t)
			t = t[:min(len(t), s.head)]
		}
		s.text(t)
	case map[string]any:
		s.depth++
		for k, e := range t {
			s.at(step{name: k})
			if s.name(k) {
				s.at(step{name: "*"})
			}
			if s.reachesPrototype(k, e) {
				s.prototype = true
				s.mark(rulePrototype, "a member that reaches the prototype of objects was taken out")
				continue
			}
			s.walk(e)
		}
		s.depth--
	case []any:
		s.depth++
		for n, e := range t {
			s.at(step{n: n + 1})
			s.walk(e)
		}
		s.depth--
	}
}

func (s *settling) at(p step) {
	if s.depth <= len(s.path) {
		s.path[s.depth-1] = p
	}
}

// reachesPrototype reports whether a member, merged into another object by a careless program in JavaScript, changes all
// objects of it: __proto__, and constructor where it is an object. A constructor that is a text is data, and so is one that the result schema has.
func (s *settling) reachesPrototype(name string, v any) bool {
	switch name {
	case "__proto__":
		return true
	case "constructor":
		_, object := v.(map[string]any)
		return object && !s.constructor
	}
	return false
}

func (s *settling) withoutPrototypes(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(t))
		for k, e := range t {
			if !s.reachesPrototype(k, e) {
				out[k] = s.withoutPrototypes(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(t))
		for n, e := range t {
			out[n] = s.withoutPrototypes(e)
		}
		return out
	}
	return v
}

// name looks at a member's name and reports whether it was marked: then no pointer quotes it, as no text is quoted.
func (s *settling) name(k string) bool {
	before := s.found
	s.named = true
	s.text(k)
	s.named = false
	return s.found > before
}

// text looks at a text, or at a member's name.
func (s *settling) text(t string) {
	ascii, plain := kindOfText(t)
	if !plain {
		s.unusual(t)
	}
	if f, ok := s.aimed.Text(t, ascii); ok {
		s.mark(f.Rule, f.Message)
	}
}

// kindOfText reports whether a text is of ASCII alone, and whether it has no control characters but tab and line ends
// either. It looks at eight bytes at once.
func kindOfText(t string) (ascii, plain bool) {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	plain = true
	for len(t) >= 8 {
		w := uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
			uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
		if w&tops != 0 {
			return false, false
		}
		// With no top bit set, adding 1 sets that of DEL, and taking a space away that of what is below one.
		if plain && ((w+ones)|(w-ones*' '))&tops != 0 {
			plain = !strings.ContainsFunc(t[:8], isControl)
		}
		t = t[8:]
	}
	for n := range len(t) {
		if t[n] >= utf8.RuneSelf {
			return false, false
		}
		plain = plain && !isControl(rune(t[n]))
	}
	return true, plain
}

// unusual looks at a text that is not plain.
func (s *settling) unusual(t string) {
	s.control = s.control || hasControl(t)
	if s.foreign += len(t); s.foreign > maxNormalised {
		return
	}
	if !norm.NFC.IsNormalString(t) {
		s.mark(ruleForm, "the text is not in the Unicode form NFC, so a text that looks equal may differ")
	}
	if f, ok := promptscan.Hides(t); ok {
		s.mark(f.Rule, "it has "+f.Message)
	}
}

func (s *settling) mark(rule, message string) {
	if s.found++; len(s.marks) < maxMarks {
		pointer := s.pointer()
		if s.named {
			pointer, message = pointer[:strings.LastIndexByte(pointer, '/')], "in the name of a member: "+message
		}
		s.marks = append(s.marks, mark{promptscan.Visible(cutText(pointer, 200)), rule, message})
	}
}

// pointer is the JSON Pointer of the place; beyond 50 levels, which XML may have, that of what it is in.
func (s *settling) pointer() string {
	var b strings.Builder
	for _, p := range s.path[:min(s.depth, len(s.path))] {
		b.WriteByte('/')
		if p.n > 0 {
			b.WriteString(strconv.Itoa(p.n - 1))
		} else {
			b.WriteString(canon.Escape(p.name))
		}
	}
	return b.String()
}

// hasControl reports whether a text has control characters other than tab and line ends.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, isControl)
}

func isControl(c rune) bool {
	return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c >= 0x7f && c < 0xa0
}

// isGoodText reports whether a text is UTF-8 without control characters other than tab and line ends.
func isGoodText(s string) bool { return utf8.ValidString(s) && !hasControl(s) }

// replaced is s without what JSON or its readers cannot hold: invalid UTF-8 and control characters.
func replaced(s string) string {
	return strings.Map(func(c rune) rune {
		if isControl(c) {
			return utf8.RuneError
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
}
