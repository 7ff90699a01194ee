package assembly

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/pack"
)

// relationships is the manifest's object of that name.
type relationships struct {
	Dependencies []string `json:"dependencies"`
	Pairings     []struct {
		ToolID   string `json:"tool_id"`
		Sequence string `json:"sequence"`
	} `json:"pairings"`
	Alternatives []string `json:"alternatives"`
}

// read unmarshals a part of a manifest; an unparsable part counts as absent, since it cannot have
// been published.
func read[T any](raw json.RawMessage) (v T) {
	if len(raw) > 0 && strict.Unmarshal(raw, &v) != nil {
		var none T
		return none
	}
	return v
}

// seen returns the visible tool for a reference in another tool's manifest, which may end in a
// version range; nil if there is none.
func (b *builder) seen(ref string, of *toolkeep.Tool) *toolkeep.Tool {
	if t := b.all.byID[refID(ref)]; t != nil && t.ID != of.ID {
		return t
	}
	return nil
}

// prepare shows the chosen tools and their related tools.
func (b *builder) prepare(most int) {
	subjects := b.chosen
	if len(subjects) == 0 {
		subjects = b.ranked[:min(1, len(b.ranked))]
	}
	b.named = subjects
	whole := slices.Clone(subjects)
	add := func(t *toolkeep.Tool) {
		if !slices.Contains(whole, t) {
			whole = append(whole, t)
		}
	}
	var paired []*toolkeep.Tool
	patterns := 0
	pattern := func(of, t *toolkeep.Tool, kind, sequence string, learned bool) {
		p := Pattern{ToolID: oneLine(t.ID), With: oneLine(of.ID), Relationship: kind, Sequence: sequence, ShortDescription: short(t.Manifest), Learned: learned}
		switch {
		case slices.ContainsFunc(b.c.Patterns, func(have Pattern) bool {
			// The manifest already says it.
			return have == p || learned && have.ToolID == p.ToolID && have.With == p.With
		}):
		case len(b.c.Patterns) < maxPatterns:
			b.c.Patterns = append(b.c.Patterns, p)
		default:
			patterns++
		}
	}
	for _, of := range subjects {
		r := read[relationships](of.Manifest.Relationships)
		for _, id := range r.Dependencies {
			if t := b.seen(id, of); t != nil {
				pattern(of, t, "dependency", "before", false)
				add(t)
			}
		}
		// In calling order.
		for _, sequence := range []string{"before", "parallel", "after", ""} {
			for _, p := range r.Pairings {
				if t := b.seen(p.ToolID, of); t != nil && p.Sequence == sequence {
					pattern(of, t, "pairing", sequence, false)
					paired = append(paired, t)
				}
			}
		}
	}
	// Learned patterns come after all those from manifests.
	for _, of := range subjects {
		if b.r.Pairings == nil {
			break
		}
		for _, p := range b.r.Pairings(of.ID, MaxRelated) {
			if t := b.seen(p.ToolID, of); t != nil {
				pattern(of, t, "pairing", sequenceOf(p.Sequence), true)
				paired = append(paired, t)
			}
		}
	}
	if patterns > 0 {
		b.left = append(b.left, LeftOut{What: "patterns", Count: patterns, Why: "at most " + strconv.Itoa(maxPatterns) + " are shown"})
	}
	for _, t := range paired {
		add(t)
	}
	if len(whole) > most {
		for _, t := range whole[most:] {
			b.left = append(b.left, LeftOut{What: "manifest", ToolID: oneLine(t.ID), Why: "at most " + strconv.Itoa(most) + " tools are shown whole in this phase"})
			b.line(t)
		}
		whole = whole[:most]
	}
	b.details(whole, b.budget-b.used())
}

// sequenceOf ignores any other word.
func sequenceOf(s string) string {
	switch s {
	case "before", "after", "parallel":
		return s
	}
	return ""
}

// Failure is a failed call, in the form of Toolkeep's own answers.
type Failure struct {
	ToolID      string
	Code        toolkeep.Code // of the error catalogue; "" if unknown
	Class       string        // of the taxonomy; "": the code's
	Message     string
	Retryable   *bool // nil: the code's
	RetryAfterS int
}

// recover shows what helps after a failure.
func (b *builder) recover(most int) {
	f := b.failure()
	f.ToolID = b.idOf(f.ToolID)
	of := b.all.byID[f.ToolID]
	whole := []*toolkeep.Tool{}
	if of != nil {
		whole = append(whole, of)
		b.knownErrors(of, f)
		b.alternatives(of)
	} else if f.ToolID != "" {
		b.fitting()
	}
	b.c.Recovery = recovery(f, of, len(b.c.Alternatives) > 0)
	for _, t := range b.chosen {
		if len(whole) < most && !slices.Contains(whole, t) {
			whole = append(whole, t)
		}
	}
	b.named = slices.Clone(whole)
	// The best alternatives are shown in full as well, so that the next call can be made, unless
	// the same tool is to be called again.
	for _, a := range b.c.Alternatives {
		if of != nil && b.c.Recovery.again() {
			break
		}
		if t := b.all.byID[a.ToolID]; t != nil && len(whole) < most && !slices.Contains(whole, t) {
			whole = append(whole, t)
		}
	}
	b.details(whole, b.budget-b.used())
}

// failure returns the failure given in the request, or else in the conversation.
func (b *builder) failure() Failure {
	f := Failure{}
	if b.r.Failure != nil {
		f = *b.r.Failure
	} else if m, ok := lastFailure(b.r.Messages); ok {
		f = *m
	}
	if f.ToolID == "" && len(b.chosen) > 0 {
		f.ToolID = b.chosen[0].ID
	}
	return f
}

// recovery applies the error catalogue to a failure of t, which is nil if the tool does not exist;
// others reports whether other tools are shown.
func recovery(f Failure, t *toolkeep.Tool, others bool) *Recovery {
	r := &Recovery{Message: toolkeep.ClipBytes(oneLine(f.Message), 500), RetryAfterS: max(f.RetryAfterS, 0)}
	if t != nil {
		r.ToolID = oneLine(t.ID)
	}
	if info := f.Code.Info(); info.Code == f.Code {
		r.ErrorCode, r.Name, r.Class, r.Retryable = string(info.Code), info.Name, info.Class, info.Retryable
	}
	if classHints[f.Class] != "" { // unknown classes are ignored
		r.Class = f.Class
	}
	if f.Retryable != nil {
		r.Retryable = *f.Retryable
	}
	r.Hints = hints(r, t, f.ToolID != "", others)
	return r
}

// again reports whether to call the same tool again, unchanged or corrected, instead of another.
func (r *Recovery) again() bool {
	return r.Retryable || slices.Contains([]string{"VALIDATION_ERROR", "AUTH_REQUIRED", "RATE_LIMIT"}, r.Class)
}

// classHints give advice by error class.
var classHints = map[string]string{
	"VALIDATION_ERROR": "The call itself is wrong: compare tool id, version and arguments with the manifest and correct what the message names.",
	"AUTH_REQUIRED":    "Credentials are missing or no longer good: ask the user to log in or to store the secret, and call again afterwards. Other arguments do not help.",
	"POLICY_DENIED":    "The call is not allowed: do not repeat it. Use an alternative, or ask the user for permission or approval.",
	"RATE_LIMIT":       "Too many calls in a short time: wait, then repeat the same call once.",
	"TIMEOUT":          "The tool took too long: ask for less at once, or give the call more time or make it asynchronous. A call that writes may have taken effect: look before you send it again.",
	"NETWORK_ERROR":    "The tool's service could not be reached: the arguments are not the reason.",
	"PROVIDER_ERROR":   "The tool's service failed: the arguments are probably not the reason. Use an alternative if it goes on.",
	"SANDBOX_ERROR":    "The tool's own process broke a limit or failed: ask for less at once.",
	"UNKNOWN":          "The reason is not known: look at the message, and do not repeat the call more than once.",
}

// hints are fixed texts of ours, without any text from a tool.
func hints(r *Recovery, t *toolkeep.Tool, named, others bool) []string {
	var out []string
	if h := classHints[r.Class]; h != "" {
		out = append(out, h)
	}
	switch {
	case r.Retryable && r.RetryAfterS > 0:
		out = append(out, "The same call may be made again after "+strconv.Itoa(r.RetryAfterS)+" s.")
	case r.Retryable:
		out = append(out, "The same call may be made again.")
	default:
		out = append(out, "Do not make the same call again unchanged.")
	}
	if t != nil && !r.Retryable && t.Writes() && !t.Manifest.Idempotent && slices.Contains([]string{"TIMEOUT", "NETWORK_ERROR", "PROVIDER_ERROR", "UNKNOWN"}, r.Class) {
		out = append(out, "The tool changes things and may have done so: find out before calling it again.")
	}
	if t != nil && r.Class == "VALIDATION_ERROR" {
		if required := pack.WordsOf(t).Required; len(required) > 0 {
			out = append(out, "Required arguments: "+names(few(required, entryParams))+".")
		}
	}
	switch {
	case t == nil && named && others:
		out = append(out, "There is no tool of the id that was called: use one of those below if it does the task, or search for another.")
	case t == nil && named:
		out = append(out, "There is no tool of the id that was called: search for one that does the task.")
	case t == nil:
		out = append(out, "Name the tool in error.toolId to be shown its manifest, known errors and alternatives.")
	}
	return out
}

type knownError struct {
	Error      string `json:"error"`
	Resolution string `json:"resolution"`
}

// knownErrors shows the errors of a tool's manifest that resemble this one, best first.
func (b *builder) knownErrors(t *toolkeep.Tool, f Failure) {
	type match struct {
		e     knownError
		score float64
	}
	var fit []match
	known := read[[]knownError](t.Manifest.CommonErrors)
	for _, e := range known {
		if s := likeness(e.Error, f); s > 0 {
			fit = append(fit, match{e, s})
		}
	}
	slices.SortStableFunc(fit, func(a, b match) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return 0
	})
	for i, m := range fit {
		if i == maxErrors {
			b.left = append(b.left, LeftOut{What: "error_patterns", Count: len(fit) - maxErrors, Why: "at most " + strconv.Itoa(maxErrors) + " are shown"})
			break
		}
		b.c.ErrorPatterns = append(b.c.ErrorPatterns, ErrorPattern{ToolID: oneLine(t.ID), Error: toolkeep.ClipBytes(oneLine(m.e.Error), 300), Resolution: toolkeep.ClipBytes(oneLine(m.e.Resolution), 600)})
	}
	if n := len(known) - len(fit); n > 0 {
		b.left = append(b.left, LeftOut{What: "error_patterns", ToolID: oneLine(t.ID), Count: n, Why: whyNoMatch})
	}
	b.seenErrors(t, f)
}

// maxSeen is how many of a tool's earlier errors are shown if the failure's own code is not among
// them.
const maxSeen = 3

// seenErrors shows the tool's earlier errors: the failure's own code, or if that is unknown, the
// most frequent ones.
func (b *builder) seenErrors(t *toolkeep.Tool, f Failure) {
	if b.r.Failures == nil {
		return
	}
	n := 0
	for _, e := range b.r.Failures(t.ID) {
		info := e.Code.Info()
		if info.Code != e.Code || f.Code != "" && e.Code != f.Code || n == maxSeen || len(b.c.ErrorPatterns) == maxErrors {
			continue
		}
		n++
		b.c.ErrorPatterns = append(b.c.ErrorPatterns, ErrorPattern{ToolID: oneLine(t.ID), Error: string(info.Code) + " " + info.Name,
			Resolution: toolkeep.ClipBytes(oneLine(e.Resolution), 600), Seen: e.Count})
	}
}

// likeness is how well a known error matches a failure: 2 if it names the code or its name, else
// the share of its words in the message, 0 below half.
func likeness(known string, f Failure) float64 {
	words := wordsOf(known)
	if len(words) == 0 {
		return 0
	}
	info := f.Code.Info()
	if info.Code == f.Code {
		if slices.Contains(words, strings.ToLower(string(f.Code))) || strings.Contains(strings.ToLower(known), info.Name) {
			return 2
		}
	}
	said := wordsOf(f.Message)
	if info.Code == f.Code {
		said = append(said, wordsOf(strings.ReplaceAll(info.Name, "_", " "))...)
	}
	hits := 0
	for _, w := range words {
		if slices.Contains(said, w) {
			hits++
		}
	}
	if share := float64(hits) / float64(len(words)); share >= 0.5 {
		return share
	}
	return 0
}

// Words without meaning in an error.
var idle = map[string]bool{"the": true, "and": true, "for": true, "not": true, "was": true, "has": true, "with": true, "error": true, "failed": true,
	"is": true, "a": true, "an": true, "of": true, "to": true, "in": true, "on": true, "or": true, "be": true, "are": true, "this": true, "that": true}

// wordsOf returns the distinct words of a text in order, at most 200.
func wordsOf(s string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(toolkeep.ClipBytes(s, 8000)), func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r >= 0x80)
	}) {
		if len(out) == 200 {
			break
		}
		if len(w) > 1 && !idle[w] && !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out
}

// fitting shows the near tools found for the query if the named tool does not exist.
func (b *builder) fitting() {
	for _, t := range b.ranked {
		if len(b.c.Alternatives) == maxAlternatives || !b.atLeast(t, b.r.Shares.near()) {
			break
		}
		b.c.Alternatives = append(b.c.Alternatives, Alternative{entry(t), "fits the question"})
	}
}

// alternatives shows those the tool names, or if none of them is visible, tools of its category.
func (b *builder) alternatives(t *toolkeep.Tool) {
	add := func(a *toolkeep.Tool, why string) {
		if len(b.c.Alternatives) == maxAlternatives || a == nil {
			return
		}
		for _, have := range b.c.Alternatives {
			if have.ToolID == oneLine(a.ID) {
				return
			}
		}
		b.c.Alternatives = append(b.c.Alternatives, Alternative{entry(a), why})
	}
	for _, id := range read[relationships](t.Manifest.Relationships).Alternatives {
		add(b.seen(id, t), "named by the tool")
	}
	if len(b.c.Alternatives) > 0 {
		return
	}
	if b.r.Alike != nil {
		for _, a := range b.r.Alike(t, maxAlternatives+1) {
			if a != nil {
				add(b.seen(a.ID, t), "does the like")
			}
		}
		return
	}
	for _, a := range b.ranked {
		if a.Manifest.Category == t.Manifest.Category {
			add(b.seen(a.ID, t), "same category")
		}
	}
}
