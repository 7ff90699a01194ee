package assembly

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

func TestDetect(t *testing.T) {
	call := Message{Role: Assistant, ToolCalls: []ToolCall{{"a.b"}}}
	user := Message{Role: User, Content: "do it"}
	text := Message{Role: Assistant, Content: "I could use a.b"}
	good := Message{Role: Tool, ToolID: "a.b"}
	calls := Message{Role: Assistant, ToolCalls: []ToolCall{{"a.b"}, {"c.d"}}}
	bad := Message{Role: Tool, ToolError: &Failure{Code: toolkeep.UpstreamTimeout}}
	for name, c := range map[string]struct {
		messages []Message
		chosen   []string
		failure  *Failure
		want     Phase
	}{
		"nothing":                        {nil, nil, nil, InitialPlanning},
		"a first question":               {[]Message{{Role: System}, user}, nil, nil, InitialPlanning},
		"tools named":                    {nil, []string{"a.b"}, nil, ToolSelection},
		"an assistant spoke":             {[]Message{user, text}, nil, nil, ToolSelection},
		"a second question":              {[]Message{user, text, user}, nil, nil, ToolSelection},
		"a call waits":                   {[]Message{user, text, call}, nil, nil, ExecutionPreparation},
		"a call waits and tools named":   {[]Message{user, call}, []string{"c.d"}, nil, ExecutionPreparation},
		"a call was answered":            {[]Message{user, call, good}, nil, nil, ToolSelection},
		"a call was given up":            {[]Message{user, call, user}, nil, nil, ToolSelection},
		"a call failed":                  {[]Message{user, call, bad}, nil, nil, ErrorRecovery},
		"a call failed and was told":     {[]Message{user, call, bad, text}, nil, nil, ErrorRecovery},
		"a new call after one failed":    {[]Message{user, call, bad, call}, nil, nil, ExecutionPreparation},
		"a new call after one succeeded": {[]Message{user, call, bad, call, good}, nil, nil, ToolSelection},
		"two calls, one answered":        {[]Message{user, calls, good}, nil, nil, ExecutionPreparation},
		"two calls, the first failed":    {[]Message{user, calls, bad, good}, nil, nil, ErrorRecovery},
		"two calls, both answered":       {[]Message{user, calls, good, good}, nil, nil, ToolSelection},
		"told of, and the user answers":  {[]Message{user, call, bad, text, user}, nil, nil, ErrorRecovery},
		"the user has gone on":           {[]Message{user, call, bad, text, user, text, user}, nil, nil, ToolSelection},
		"tools named after a failure":    {[]Message{user, call, bad}, []string{"c.d"}, nil, ErrorRecovery},
		"a text after a good answer":     {[]Message{user, call, good, text}, nil, nil, ToolSelection},
		"only a system message":          {[]Message{{Role: System}}, nil, nil, InitialPlanning},
		"an error is given":              {[]Message{user, call, good}, nil, &Failure{}, ErrorRecovery},
	} {
		if got, why := Detect(c.messages, c.chosen, c.failure); got != c.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
}

func TestTheConversationNamesTheTool(t *testing.T) {
	tools := generated(t, 40)
	call := Message{Role: Assistant, ToolCalls: []ToolCall{{tools[4].ID}}}
	c := built(t, Request{All: tools, Messages: []Message{{Role: User, Content: "x"}, call}})
	if c.Metadata.Phase != ExecutionPreparation || len(c.DetailedTools) == 0 || c.DetailedTools[0].ToolID != tools[4].ID {
		t.Errorf("%s", c.JSON())
	}
	c = built(t, Request{All: tools, Messages: []Message{call, {Role: Tool, Content: "quota of the account exhausted", ToolError: &Failure{Code: toolkeep.RateLimitExceeded, RetryAfterS: 7}}}})
	if c.Recovery == nil || c.Recovery.ToolID != tools[4].ID || len(c.ErrorPatterns) != 1 || !slices.Contains(c.Recovery.Hints, "The same call may be made again after 7 s.") {
		t.Errorf("%s", c.JSON())
	}
	if q := Query([]Message{{Role: User, Content: "one"}, {Role: Assistant, Content: "x"}, {Role: User, Content: "two"}, {Role: Tool}}); q != "two" {
		t.Error(q)
	}
}

func TestEveryClassHasAHint(t *testing.T) {
	for _, info := range toolkeep.Codes() {
		r := recovery(Failure{Code: info.Code}, nil, false)
		if r.Class != info.Class || classHints[info.Class] == "" || !slices.Contains(r.Hints, classHints[info.Class]) || r.Retryable != info.Retryable {
			t.Errorf("%s: %+v", info.Code, r)
		}
	}
	if r := recovery(Failure{Code: "E0000"}, nil, false); r.ErrorCode != "" || len(r.Hints) == 0 {
		t.Errorf("%+v", r)
	}
}

func TestRecovery(t *testing.T) {
	writes := made(t, map[string]any{"tool_id": "a.write", "side_effects": "writes", "category": "paper",
		"parameters_schema": map[string]any{"type": "object", "required": []string{"to", "# x"}, "properties": map[string]any{"to": true}}})
	other := made(t, map[string]any{"tool_id": "a.other", "category": "paper"})
	third := made(t, map[string]any{"tool_id": "a.third", "category": "stone"})
	all := []*toolkeep.Tool{writes, other, third}
	no := false
	c := built(t, Request{All: all, Failure: &Failure{ToolID: "a.write", Code: toolkeep.UpstreamTimeout, Retryable: &no},
		Alike: func(*toolkeep.Tool, int) []*toolkeep.Tool { return []*toolkeep.Tool{writes, third, other} }})
	if len(c.Alternatives) != 2 || c.Alternatives[0].ToolID != "a.third" || c.Alternatives[1].ToolID != "a.other" || c.Alternatives[0].Why != "does the like" {
		t.Errorf("%+v", c.Alternatives)
	}
	c2 := built(t, Request{All: all, Found: []discover.Match{{Tool: third}, {Tool: other}}, Failure: &Failure{ToolID: "a.write", Code: toolkeep.UpstreamTimeout}})
	if len(c2.Alternatives) != 1 || c2.Alternatives[0].ToolID != "a.other" || c2.Alternatives[0].Why != "same category" {
		t.Errorf("%+v", c2.Alternatives)
	}
	if !slices.Contains(c.Recovery.Hints, "The tool changes things and may have done so: find out before calling it again.") {
		t.Errorf("%q", c.Recovery.Hints)
	}
	c = built(t, Request{All: all, Failure: &Failure{ToolID: "a.write", Code: toolkeep.InputValidationFailed}})
	if !slices.Contains(c.Recovery.Hints, `Required arguments: to, "\# x".`) {
		t.Errorf("%q", c.Recovery.Hints)
	}

	// Another tool is shown in full only if calling the same one again does not help.
	whole := func(c *Context) (ids []string) {
		for _, d := range c.DetailedTools {
			ids = append(ids, d.ToolID)
		}
		return ids
	}
	found := []discover.Match{{Tool: other, Score: 0.8}, {Tool: writes, Score: 0.6}, {Tool: third, Score: 0.1}}
	for code, want := range map[toolkeep.Code]string{toolkeep.InputValidationFailed: "[a.write]", toolkeep.UpstreamTimeout: "[a.write a.other]", toolkeep.RateLimitExceeded: "[a.write]"} {
		c := built(t, Request{All: all, Found: found, Failure: &Failure{ToolID: "a.write", Code: code, Retryable: &no}})
		if got := fmt.Sprint(whole(c)); got != want || len(c.Alternatives) != 1 {
			t.Errorf("%s: %s is whole, want %s; alternatives %v", code, got, want, c.Alternatives)
		}
	}
	yes := true
	if c := built(t, Request{All: all, Found: found, Failure: &Failure{ToolID: "a.write", Code: toolkeep.UpstreamTimeout, Retryable: &yes}}); fmt.Sprint(whole(c)) != "[a.write]" || len(c.Alternatives) != 1 {
		t.Errorf("%s", c.JSON())
	}
	// If the tool does not exist, near found tools are shown instead.
	c = built(t, Request{All: all, Found: found, Failure: &Failure{ToolID: "a.wirte", Code: toolkeep.NoToolMatches}})
	if fmt.Sprint(whole(c)) != "[a.other a.write]" || len(c.Alternatives) != 2 || c.Alternatives[0].ToolID != "a.other" || c.Alternatives[0].Why != "fits the question" ||
		!slices.Contains(c.Recovery.Hints, "There is no tool of the id that was called: use one of those below if it does the task, or search for another.") {
		t.Errorf("%s", c.JSON())
	}
}

// A completed task does not choose the tools of the next one.
func TestCallsOfAnEarlierTask(t *testing.T) {
	first, next := made(t, map[string]any{"tool_id": "a.first"}), made(t, map[string]any{"tool_id": "a.next"})
	call := Message{Role: Assistant, ToolCalls: []ToolCall{{"a.first"}, {"a.first"}}}
	ask, answer, says := Message{Role: User, Content: "x"}, Message{Role: Tool}, Message{Role: Assistant, Content: "Done."}
	for name, c := range map[string]struct {
		messages []Message
		want     string
	}{
		"done":         {[]Message{ask, call, answer, answer, says, ask}, "a.next"},
		"not spoken":   {[]Message{ask, call, answer, answer, says}, "a.first"},
		"not answered": {[]Message{ask, call, answer, ask}, "a.first"},
		"mentioned":    {[]Message{ask, call, answer, answer, {Role: Assistant, Content: "Then a.first again?"}, ask}, "a.first"},
	} {
		got := built(t, Request{All: []*toolkeep.Tool{first, next}, Messages: c.messages, Found: []discover.Match{{Tool: next, Score: 1}}, Phase: ToolSelection})
		if len(got.DetailedTools) == 0 || got.DetailedTools[0].ToolID != c.want {
			t.Errorf("%s: %s", name, got.JSON())
		}
	}
}

// The smallest budget fits the minimal worst case.
func TestLeastBudget(t *testing.T) {
	properties, required := map[string]any{}, []string{}
	for i := range 40 {
		name := fmt.Sprintf("%d%s", i, strings.Repeat("Ж", 50))
		properties[name] = map[string]any{"description": strings.Repeat("Ж ", 300)}
		required = append(required, name)
	}
	var all []*toolkeep.Tool
	var chosen []string
	for i := range MaxChosen {
		id := fmt.Sprintf("n%s.t%d%s", strings.Repeat("q7", 15), i, strings.Repeat("x9", 30))
		all = append(all, made(t, map[string]any{"tool_id": id, "category": "c" + strings.Repeat("z8", 20) + fmt.Sprint(i), "parameters_schema": map[string]any{"type": "object", "properties": properties, "required": required}}))
		chosen = append(chosen, id)
	}
	for _, p := range Phases() {
		for _, f := range []Format{JSON, Markdown} {
			c := built(t, Request{All: all, Chosen: chosen, Phase: p, Format: f, Budget: MinBudget, Degraded: strings.Repeat("Ж", 300),
				Failure: &Failure{ToolID: chosen[0], Code: toolkeep.InputValidationFailed, Message: strings.Repeat("Ж", 4000)}})
			if n := Tokens(c.Text()); n > MinBudget || c.Metadata.TokensUsed > MinBudget {
				t.Errorf("%s %s: %d tokens: %s", p, f, n, c.Text())
			}
		}
	}
}
