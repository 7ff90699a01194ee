package assembly

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// learned is a Usage with the test's data for the test's tenant.
type learned struct {
	tenant   string
	pairings map[string][]Pairing
	failures map[string][]SeenError
}

func (l *learned) Pairings(tenant, tool string, n int) []Pairing {
	if tenant != l.tenant {
		return nil
	}
	list := l.pairings[tool]
	return list[:min(n, len(list))]
}

func (l *learned) Failures(tenant, tool string) []SeenError {
	if tenant != l.tenant {
		return nil
	}
	return l.failures[tool]
}

// library has mail.send with every kind of related tool, and hidden tools in each of those roles.
func library(t *testing.T) []*toolkeep.Tool {
	tool := func(id, says string, more map[string]any) *toolkeep.Tool {
		m := map[string]any{"tool_id": id, "description": says}
		for k, v := range more {
			m[k] = v
		}
		return made(t, m)
	}
	return []*toolkeep.Tool{
		tool("mail.send", "Send an e-mail message to a recipient", map[string]any{"relationships": map[string]any{
			"dependencies": []string{"secrets.veiled", "contacts.find@^1"},
			"pairings":     []any{map[string]any{"tool_id": "mail.track", "sequence": "after"}, map[string]any{"tool_id": "log.veiled", "sequence": "before"}},
			"alternatives": []string{"fax.veiled", "chat.post"}},
			"common_errors": []any{map[string]any{"error": "mailbox is full", "resolution": "try later"}}}),
		tool("contacts.find", "Look up the address of a person in the address book", nil),
		tool("mail.track", "Tell whether a message was read", nil),
		tool("chat.post", "Post a text into a channel", nil),
		tool("post.letter", "Send an e-mail message to a recipient as a printed letter", nil),
		tool("mail.veiled", "Send an e-mail message to a recipient", nil),
		tool("secrets.veiled", "Send an e-mail message to a recipient secretly", nil),
		tool("log.veiled", "Write a log line", nil),
		tool("fax.veiled", "Send a fax", nil),
		tool("stone.carve", "Carve letters into granite", nil),
	}
}

func unveiled(t *toolkeep.Tool) bool { return !strings.Contains(t.ID, "veiled") }

// by returns an asker of a tenant who sees everything except veiled tools.
func by(tenant string) Asker {
	return Asker{Session: discover.Session{Tenant: tenant}, Visible: unveiled}
}

func show(list []Related) (out []string) {
	for _, r := range list {
		s := r.Tool.ID + " " + r.Source
		if r.Sequence != "" {
			s += " " + r.Sequence
		}
		if r.Score <= 0 || r.Score > 1 || (r.Source == FromManifest) != (r.Score == 1) {
			s += fmt.Sprint(" odd score ", r.Score)
		}
		out = append(out, s)
	}
	return out
}

func TestRelated(t *testing.T) {
	tools := library(t)
	g := &Guide{Search: indexed(tools), Usage: &learned{tenant: "acme", pairings: map[string][]Pairing{"mail.send": {
		{"log.veiled", 0.9, "before"}, {"mail.track", 0.8, "after"}, {"stone.carve", 1, "parallel"}, {"gone.away", 0.4, "after"}}}}}
	for _, c := range []struct {
		kind   Relationship
		tenant string
		limit  int
		want   []string
	}{
		{Dependencies, "acme", 0, []string{"contacts.find manifest"}},
		{Pairings, "acme", 0, []string{"mail.track manifest after", "stone.carve usage parallel"}},
		{Pairings, "other", 0, []string{"mail.track manifest after"}},
		{Pairings, "acme", 1, []string{"mail.track manifest after"}},
		{Alternatives, "acme", 0, []string{"chat.post manifest", "post.letter search"}},
		{Alternatives, "acme", 1, []string{"chat.post manifest"}},
		{"else", "acme", 0, nil},
	} {
		got := show(g.Related(t.Context(), tools[0], c.kind, c.limit, by(c.tenant)))
		if !slices.Equal(got, c.want) {
			t.Errorf("%s for %s: %q, want %q", c.kind, c.tenant, got, c.want)
		}
	}
	// If the manifest declares nothing, similar tools are found.
	if got := show(g.Related(t.Context(), tools[4], Alternatives, 3, by("acme"))); !slices.Equal(got, []string{"mail.send search"}) {
		t.Errorf("%q", got)
	}
	// Without usage, and with a nil filter.
	plain := &Guide{Search: g.Search}
	if got := show(plain.Related(t.Context(), tools[0], Alternatives, 10, Asker{Visible: func(*toolkeep.Tool) bool { return true }})); !slices.Contains(got, "fax.veiled manifest") || !slices.Contains(got, "mail.veiled search") {
		t.Errorf("%q", got)
	}
	if got := plain.Related(t.Context(), tools[9], Pairings, 10, by("acme")); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestRelatedHasAMost(t *testing.T) {
	pairs := make([]Pairing, 30)
	var tools []*toolkeep.Tool
	for i := range pairs {
		id := fmt.Sprintf("a.t%d", i)
		tools = append(tools, made(t, map[string]any{"tool_id": id}))
		pairs[i] = Pairing{ToolID: id, Score: 0.5}
	}
	g := &Guide{Search: indexed(tools), Usage: &learned{tenant: "acme", pairings: map[string][]Pairing{"a.t0": pairs}}}
	if got := g.Related(t.Context(), tools[0], Pairings, 99, by("acme")); len(got) != MaxRelated-1 { // the tool itself is excluded
		t.Errorf("%d", len(got))
	}
}

// recorder records the session of each search.
type recorder struct {
	*discover.Index
	asked []discover.Query
}

func (r *recorder) Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report) {
	r.asked = append(r.asked, q)
	return r.Index.Find(ctx, q, visible)
}

// Learned tools and tools named by a manifest are shown only if visible, in every phase and both
// formats, within the budget.
func TestWhatIsLearnedShowsNoHiddenTool(t *testing.T) {
	tools := library(t)
	x := &recorder{Index: indexed(tools)}
	use := &learned{tenant: "acme",
		pairings: map[string][]Pairing{"mail.send": {{"mail.veiled", 0.9, "before"}, {"stone.carve", 0.8, "before"}, {"mail.track", 0.7, "after"}}},
		failures: map[string][]SeenError{"mail.send": {{toolkeep.UpstreamTimeout, 7, "ask for less"}, {toolkeep.RateLimitExceeded, 3, ""}}}}
	g := &Guide{Search: x, Usage: use, Budgets: Budgets{ExecutionPreparation: 900, ErrorRecovery: 1100}}
	s := discover.Session{Tenant: "acme", Subject: "ann", ID: "s-1"}
	for _, phase := range Phases() {
		for _, format := range []Format{JSON, Markdown} {
			r := Request{Query: "send an e-mail message", Phase: phase, Format: format, Chosen: []string{"mail.send"}, Failure: &Failure{ToolID: "mail.send", Code: toolkeep.UpstreamTimeout, Message: "mailbox is full"}}
			c, err := g.Context(t.Context(), r, Asker{Session: s, Visible: unveiled})
			if err != nil {
				t.Fatal(err)
			}
			text := c.Text()
			if strings.Contains(text, "veiled") || strings.Contains(text, "gone.away") {
				t.Errorf("%s %s: %s", phase, format, text)
			}
			if n := Tokens(text); n > g.Budgets.Of(phase) || c.Metadata.TokenBudget != g.Budgets.Of(phase) {
				t.Errorf("%s %s: %d tokens of %d, said %d", phase, format, n, g.Budgets.Of(phase), c.Metadata.TokenBudget)
			}
			if format == Markdown {
				checkMarkdown(t, c)
			}
			other, err := g.Context(t.Context(), r, by("other"))
			if err != nil {
				t.Fatal(err)
			}
			if text := other.Text(); strings.Contains(text, "learned") || strings.Contains(text, "earlier calls") || strings.Contains(text, "seen 7") || strings.Contains(text, `"seen"`) {
				t.Errorf("another tenant is told: %s", text)
			}
			switch phase {
			case ExecutionPreparation:
				want := []Pattern{{ToolID: "contacts.find", Relationship: "dependency", Sequence: "before"}, {ToolID: "mail.track", Relationship: "pairing", Sequence: "after"},
					{ToolID: "stone.carve", Relationship: "pairing", Sequence: "before", Learned: true}}
				for i := range c.Patterns {
					c.Patterns[i].With, c.Patterns[i].ShortDescription = "", ""
				}
				if !slices.Equal(c.Patterns, want) {
					t.Errorf("%+v", c.Patterns)
				}
			case ErrorRecovery:
				want := []ErrorPattern{{"mail.send", "mailbox is full", "try later", 0}, {"mail.send", "E3502 upstream_timeout", "ask for less", 7}}
				for i := range c.ErrorPatterns {
					c.ErrorPatterns[i].Error = strings.ToLower(c.ErrorPatterns[i].Error)
				}
				want[1].Error = strings.ToLower(string(toolkeep.UpstreamTimeout) + " " + toolkeep.UpstreamTimeout.Info().Name)
				if !slices.Equal(c.ErrorPatterns, want) {
					t.Errorf("%+v", c.ErrorPatterns)
				}
			}
		}
	}
	for _, q := range x.asked {
		// The query belongs to the conversation, the search for similar tools does not.
		if q.Text == "send an e-mail message" && q.Session.Tenant == "" || q.Text != "send an e-mail message" && q.Session.Subject+q.Session.ID != "" {
			t.Errorf("%+v", q)
		}
	}
	// A failure without a code shows the most frequent errors.
	c, err := g.Context(t.Context(), Request{Phase: ErrorRecovery, Failure: &Failure{ToolID: "mail.send"}}, by("acme"))
	if err != nil || len(c.ErrorPatterns) != 2 || c.ErrorPatterns[0].Seen != 7 || c.ErrorPatterns[1].Seen != 3 {
		t.Errorf("%v %+v", err, c)
	}
}

func TestTheAssistantsWordsChoose(t *testing.T) {
	tools := library(t)
	g := &Guide{Search: indexed(tools)}
	for text, want := range map[string]string{
		"I will take stone.carve for it.":                          "stone.carve",
		"stone__carve fits best":                                   "stone.carve",
		"Neither secrets.veiled nor no.such, so stone.carve it is": "stone.carve",
		"There is e.g. nothing":                                    "contacts.find", // found by the words
	} {
		c, err := g.Context(t.Context(), Request{Messages: []Message{{Role: User, Content: "look up the address of a person in the address book"}, {Role: Assistant, Content: text}}}, by(""))
		if err != nil || c.Metadata.Phase != ToolSelection || len(c.DetailedTools) == 0 || c.DetailedTools[0].ToolID != want {
			t.Errorf("%q: %v %s", text, err, c.JSON())
		}
		if strings.Contains(c.Text(), "veiled") {
			t.Errorf("%q: %s", text, c.Text())
		}
	}
	// Provider-style names are understood in calls and choices too.
	c := built(t, Request{All: tools, Messages: []Message{{Role: Assistant, ToolCalls: []ToolCall{{"mail__send"}}}}})
	if c.Metadata.Phase != ExecutionPreparation || c.DetailedTools[0].ToolID != "mail.send" {
		t.Errorf("%s", c.JSON())
	}
	c = built(t, Request{All: tools, Failure: &Failure{ToolID: "mail__send"}})
	if c.Recovery.ToolID != "mail.send" {
		t.Errorf("%s", c.JSON())
	}
}
