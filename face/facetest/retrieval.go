package facetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Retriever asks for contexts and says what it thinks of them.
type Retriever interface {
	// Context asks for the context of a conversation.
	Context(t *testing.T, a AskContext) GotContext
}

// Judge is a Retriever that can give feedback.
type Judge interface {
	Feedback(t *testing.T, as string, f Feedback) (recorded bool, refused Answer)
}

// AskContext is what a context is asked for with.
type AskContext struct {
	As, Query, Phase string
	Said             [][2]string // role and content
	Failed           string      // code of the error that face.echo gave
	Budget           int
}

// GotContext is a context, or why there is none.
type GotContext struct {
	Refused Answer
	Phase   string
	Tools   []string // that are shown whole
	ID      string   // by which feedback names it
}

// Feedback is what is said of a search.
type Feedback struct {
	ID, Query, Tool string
	Relevance       float64 // negative: none
}

func (h Harness) retrieval(t *testing.T) {
	r, ok := h.Face.(Retriever)
	if !ok {
		t.Skip("the face's client asks for no contexts")
	}
	user := func(text string) [][2]string { return [][2]string{{"user", text}} }
	for _, x := range []struct {
		name  string
		ask   AskContext
		code  toolkeep.Code
		phase string
	}{
		{"planning", AskContext{As: "agent", Query: "echo a text"}, "", "initial_planning"},
		{"a phase", AskContext{As: "agent", Query: "echo a text", Phase: "tool_selection"}, "", "tool_selection"},
		{"a conversation", AskContext{As: "agent", Said: append(user("echo a text"), [2]string{"assistant", "I shall"})}, "", "tool_selection"},
		{"after an error", AskContext{As: "agent", Said: append(user("echo a text"), [2]string{"tool", ""}), Failed: "E3502"}, "", "error_recovery"},
		{"no key", AskContext{Query: "echo"}, toolkeep.Unauthenticated, ""},
		{"a phase that is none", AskContext{As: "agent", Query: "echo", Phase: "lunch"}, toolkeep.InvalidParameters, ""},
		{"a role that is none", AskContext{As: "agent", Query: "echo", Said: [][2]string{{"narrator", "x"}}}, toolkeep.InvalidParameters, ""},
		{"too small a budget", AskContext{As: "agent", Query: "echo", Budget: 10}, toolkeep.InvalidParameters, ""},
		{"a control character", AskContext{As: "agent", Query: "echo\x1bit", Phase: "tool_selection"}, toolkeep.InvalidEncoding, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			got := r.Context(t, x.ask)
			if x.code != "" {
				if !got.Refused.Refused || got.Refused.Code != x.code {
					t.Errorf("got %+v, want %s", got, x.code)
				}
				return
			}
			if got.Refused.Refused || got.Phase != x.phase || got.ID == "" {
				t.Errorf("got %+v, want phase %s", got, x.phase)
			}
			if x.phase == "tool_selection" && !slices.Contains(got.Tools, "face.echo") {
				t.Errorf("face.echo is not shown: %v", got.Tools)
			}
			if slices.ContainsFunc(got.Tools, func(id string) bool { return strings.HasPrefix(id, "face.risky") }) {
				t.Errorf("a tool is shown that the caller may not see: %v", got.Tools)
			}
		})
	}
	j, ok := h.Face.(Judge)
	if !ok {
		return
	}
	id := r.Context(t, AskContext{As: "agent", Query: "echo a text for feedback", Phase: "tool_selection"}).ID
	for _, x := range []struct {
		name     string
		as       string
		say      Feedback
		code     toolkeep.Code
		recorded bool
	}{
		{"feedback", "agent", Feedback{ID: id, Tool: "face.echo", Relevance: 1}, "", true},
		{"the same again", "agent", Feedback{ID: id, Tool: "face.echo", Relevance: 1}, "", false},
		{"by its question", "agent", Feedback{Query: "echo a text for feedback", Relevance: 0.5}, "", true},
		{"another's search", "admin", Feedback{ID: id, Relevance: 1}, toolkeep.ResourceNotFound, false},
		{"no search", "agent", Feedback{Relevance: 1}, toolkeep.MalformedRequest, false},
		{"nothing is said", "agent", Feedback{ID: id, Relevance: -1}, toolkeep.MalformedRequest, false},
		{"a relevance over 1", "agent", Feedback{ID: id, Relevance: 2}, toolkeep.InvalidParameters, false},
		{"a tool that may not be seen", "agent", Feedback{ID: id, Tool: "face.risky", Relevance: 1}, toolkeep.ToolNotFound, false},
		{"no key for feedback", "", Feedback{ID: id, Relevance: 1}, toolkeep.Unauthenticated, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			recorded, no := j.Feedback(t, x.as, x.say)
			// The node knows what was said before as soon as its feed has brought it.
			for limit := time.Now().Add(time.Minute); recorded && !x.recorded && time.Now().Before(limit); {
				recorded, no = j.Feedback(t, x.as, x.say)
			}
			if no.Code != x.code || no.Refused != (x.code != "") || recorded != x.recorded {
				t.Errorf("recorded %t, refused %+v", recorded, no)
			}
		})
	}
}
