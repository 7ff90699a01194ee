package discover

import (
	"crypto/sha256"
	"math"
	"strings"

	"github.com/viterin/vek/vek32"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/pack"
)

// The shares of a tool's texts in its vector, and what is read of long texts. RATIONALE.md has the measures.
const (
	parameterShare    = 0.35 // against 1 of the purpose, in their mean
	aboutShare        = 0.5  // added to that mean
	maxParameterBytes = 1000
)

// recipe goes into the digest of what is made of several texts: other shares make another vector.
const recipe = "purpose 1, parameters 0.35; about 0.5\x00"

// sense is what a tool's vector is made of.
type sense struct {
	purpose    string
	parameters string // "": there are none
	about      string // what the server or API says of itself, or ""
}

// senseOf returns what a tool's vector is made of. The purpose is (Discovery 3.2) its name in words, the start
// of its description, its guidance, tags, use cases and the scenarios of its examples. Errors and
// explanations are found by their words: here they would blur what the tool is for, as would the parameters
// in the same text.
func senseOf(t *toolkeep.Tool, about string) sense {
	var b strings.Builder
	add := func(s string) {
		if s = strings.TrimSpace(s); s == "" {
			return
		}
		if b.Len() > 0 {
			b.WriteString(". ")
		}
		b.WriteString(strings.TrimRight(s, "."))
	}
	m, its := t.Manifest, pack.WordsOf(t)
	_, name, _ := strings.Cut(t.ID, ".")
	if m.ToolName != "" {
		name = m.ToolName
	}
	add(spoken(name))
	add(lead(m.Description))
	add(m.Explanation)
	add(strings.Join(m.Tags, " "))
	add(m.InputGuidance)
	for _, u := range m.UseCases {
		add(u)
	}
	for _, e := range its.Examples {
		add(e.Scenario)
	}
	return sense{b.String(), toolkeep.CutBytes(its.Parameters, maxParameterBytes), about}
}

// spoken returns a name in words.
func spoken(name string) string {
	var list []string
	words(name, func(w string) { list = append(list, w) })
	return strings.Join(list, " ")
}

// digest identifies the vector.
func (s sense) digest() Digest {
	if s.parameters == "" && s.about == "" {
		return sha256.Sum256([]byte(s.purpose))
	}
	return sha256.Sum256([]byte(recipe + s.purpose + "\x00" + s.parameters + "\x00" + s.about))
}

// texts are those to embed.
func (s sense) texts() []string {
	out := []string{s.purpose}
	for _, more := range []string{s.parameters, s.about} {
		if more != "" {
			out = append(out, more)
		}
	}
	return out
}

// vector makes the tool's vector of those of its texts. What is said of the server or API is added to what the tool itself
// says, and not mixed with it: otherwise each tool of an API would be less like a question that does not speak of the API than
// tools of which nothing more is said.
func (s sense) vector(of func(text string) []float32) []float32 {
	v := of(s.purpose)
	if s.parameters != "" {
		v = unit(vek32.Add(v, vek32.MulNumber(of(s.parameters), parameterShare)))
	}
	if s.about != "" {
		v = vek32.Add(v, vek32.MulNumber(of(s.about), aboutShare))
	}
	return v
}

// unit scales a vector to length 1.
func unit(v []float32) []float32 {
	if length := float32(math.Sqrt(float64(vek32.Dot(v, v)))); length > 0 {
		vek32.DivNumber_Inplace(v, length)
	}
	return v
}

// lead returns the first sentences of a description, about 200 bytes of a long one. A vector is the
// mean of its text: in a page about options and errors the tool's purpose gets lost, and on real
// APIs fewer queries found their tool.
func lead(s string) string {
	const about = 200
	if len(s) <= about {
		return s
	}
	if i := strings.Index(s[about/2:min(len(s), 2*about)], ". "); i >= 0 {
		return s[:about/2+i]
	}
	if i := strings.LastIndexByte(s[:about], ' '); i > 0 {
		return s[:i]
	}
	return toolkeep.CutBytes(s, about)
}
