package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/mcp"
)

const listCall = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

// names returns a view's tools, all pages.
func (s *system) names(path string, headers ...string) []string {
	s.t.Helper()
	var out []string
	cursor := ""
	for range 100 {
		a := s.post(path, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+cursor+`}}`, headers...)
		for tool := range mcp.Elements([]byte(a.result(s.t, "tools"))) {
			out = append(out, mcp.Text(tool, "name"))
		}
		next := a.result(s.t, "nextCursor")
		if next == "" {
			return out
		}
		cursor = `"cursor":` + next
	}
	s.t.Fatal("the list does not end")
	return nil
}

func own(path, tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestViewAll(t *testing.T) {
	s := newSystem(t)
	s.Limits.pageSize = 2
	long := "demo." + strings.Repeat("x", 60)
	s.publish(manifest("demo.echo"), manifest("a-b.c"), manifest("a.b"), manifest(long), mcpManifest("files", "read", ""))
	s.publishFor("t", manifest("mine.tool"))
	s.publishFor("u", manifest("theirs.tool"))
	s.start()
	want(t, s.names("/mcp/all"), "a-b__c", "a__b", "demo__echo", mcp.ToolName(long), "files__read", "mine__tool")
	want(t, s.names("/mcp/all", "Authorization: Bearer eve"), "a-b__c", "a__b", "demo__echo", mcp.ToolName(long), "files__read", "theirs__tool")
	want(t, s.names("/mcp/all", "Authorization: Bearer narrow"), "demo__echo")
	if len(mcp.ToolName(long)) != 64 {
		t.Error(mcp.ToolName(long))
	}
	// Names resolve to the tools, for callers that may see them.
	var called string
	s.server.c.Invoker = fakeInvoker(func(ctx context.Context, p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		called = c.Tool
		return echo(ctx, p, c)
	})
	s.post("/mcp/all", own("", mcp.ToolName(long), "{}"))
	if called != long {
		t.Errorf("called %q", called)
	}
	s.post("/mcp/all", own("", "theirs__tool", "{}")).failure(t, 200, mcp.CodeInvalidParams)
	s.post("/mcp/all", own("", "a__b", "{}"), "Authorization: Bearer narrow").failure(t, 200, mcp.CodeInvalidParams)
}

func TestDefinitions(t *testing.T) {
	s := newSystem(t)
	s.publish(
		manifest("demo.writes", `,"tool_name":"Writes","icons":[{"src":"https://x.example/i.png"}],"result_schema":{"type":"object","properties":{"a":{}}}`),
		manifest("demo.list", `,"result_schema":{"type":"array"}`),
		mcpManifest("files", "read", `,"tool_name":"Read","result_schema":{"type":"object","properties":{"structuredContent":{"type":"object","properties":{"n":{"type":"integer"}}}},"required":["structuredContent"]},
			"source":{"type":"mcp","metadata":{"server":"files","tool":"read","absent":["description"]}},
			"annotations":{"mcp":{"annotations":{"readOnlyHint":true,"title":"T"},"_meta":{"a/b":1},"execution":{"taskSupport":"optional"},"future":[1]}}`),
		strings.Replace(manifest("demo.deletes", `,"risk":"high"`), `"reads"`, `"writes"`, 1), strings.Replace(manifest("demo.adds"), `"reads"`, `"writes"`, 1),
	)
	s.start()
	byName := map[string][]byte{}
	for tool := range mcp.Elements([]byte(s.post("/mcp/all", listCall).result(t, "tools"))) {
		byName[mcp.Text(tool, "name")] = tool
	}
	for name, wants := range map[string]map[string]string{
		"demo__writes":  {"title": `"Writes"`, "icons": `[{"src":"https://x.example/i.png"}]`, "outputSchema": `{"properties":{"a":{}},"type":"object"}`, "annotations": `{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":true}`},
		"demo__adds":    {"annotations": `{"readOnlyHint":false,"idempotentHint":false,"openWorldHint":true}`},
		"demo__list":    {"outputSchema": ``, "title": ``},
		"demo__deletes": {"annotations": `{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true}`},
		"files__read": {"title": `"Read"`, "description": "", "annotations": `{"readOnlyHint":true,"title":"T"}`, "_meta": `{"a/b":1}`, "execution": "", "future": "[1]",
			"outputSchema": `{"type":"object","properties":{"n":{}}}`,
			"inputSchema":  `{"$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"}},"type":"object"}`},
	} {
		for member, w := range wants {
			if got := string(mcp.Get(byName[name], member)); got != w {
				t.Errorf("%s.%s is %s, want %s", name, member, got, w)
			}
		}
	}
	if strings.Count(s.names("/mcp/all")[0], "") == 0 {
		t.Error("no names")
	}
}

func TestStatesOfVersions(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.held"), manifest("demo.old"), manifest("demo.blocked"), manifest("demo.two"),
		strings.Replace(manifest("demo.two", `,"tool_name":"newer"`), `"1.0.0"`, `"2.0.0-rc.1"`, 1))
	s.start()
	admin := &toolkeep.Principal{Subject: "admin", Tenant: "t", Permissions: []string{"*"}}
	for id, state := range map[string]toolkeep.VersionState{"demo.old": toolkeep.Deprecated, "demo.blocked": toolkeep.Blocked} {
		if _, err := s.catalog.SetState(t.Context(), admin, id, "1.0.0", catalog.StateChange{State: state, Reason: "a test"}); err != nil {
			t.Fatal(err)
		}
	}
	life := toolkeep.Lifecycle{State: toolkeep.Active, Held: &toolkeep.Hold{Why: "it changed"}}
	if err := s.store.Apply(t.Context(), toolkeep.SetLifecycle{ToolID: "demo.held", Version: "1.0.0", Life: life}); err != nil {
		t.Fatal(err)
	}
	until(t, "the states", func() bool { return slices.Equal(s.names("/mcp/all"), []string{"demo__held", "demo__two"}) })
	// A prerelease does not represent its tool while a stable version is active.
	if a := s.post("/mcp/all", listCall); strings.Contains(a.body, "newer") {
		t.Errorf("%s", a.body)
	}
	// Unlisted tools can be called by name; the pipeline decides.
	if a := s.post("/mcp/all", own("", "demo__old", `{"text":"a"}`)); a.result(t, "isError") != "" {
		t.Errorf("%s", a.body)
	}
	if a := s.post("/mcp/search", own("", "describe_tool", `{"tool_id":"demo.held"}`)); !strings.Contains(a.body, "input_schema") {
		t.Errorf("%s", a.body)
	}
}

// degraded is a search that reports degraded results.
type degraded struct {
	Search
	partial bool
	why     string
}

func (d degraded) Find(ctx context.Context, q discover.Query, visible func(*toolkeep.Tool) bool) ([]discover.Match, discover.Report) {
	found, r := d.Search.Find(ctx, q, visible)
	r.WordsAlone, r.Partial, r.Degraded = false, d.partial, d.why
	return found, r
}

// TestListSaysWhatIsMissing: models are told that tools are still being indexed and that the
// embedder fails, but not that no embedding model is installed, which they cannot change.
func TestListSaysWhatIsMissing(t *testing.T) {
	for _, why := range []string{"", "1 of 2 tools wait", "the embedding model does not answer"} {
		s := newSystem(t)
		s.publish(manifest("demo.echo", ""))
		want := ""
		if why != "" {
			s.Search, want = degraded{s.Search, strings.Contains(why, "wait"), why}, `"`+why+`"`
		}
		s.start()
		if a := s.post("/mcp/search", own("", "find_tools", `{"query":"echo"}`)); a.result(t, "structuredContent", "degraded") != want || a.result(t, "isError") != "" {
			t.Errorf("%q: %s", why, a.body)
		}
		if a := s.post("/mcp/search", own("", "find_tools", `{"query":"zzzz"}`)); a.result(t, "isError") != "true" || !strings.Contains(a.result(t, "content"), why) {
			t.Errorf("%q: %s", why, a.body)
		}
	}
}

// TestLongQuestionsAreCut: of a question 16,000 characters are read, and a longer one is told of.
func TestLongQuestionsAreCut(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo", ""))
	s.start()
	filler := strings.Repeat("a ", discover.MaxQuestion/2-10)
	for query, want := range map[string]string{filler + "echo": "", filler + "echo, " + filler: `"` + discover.CutNotice + `"`} {
		if a := s.post("/mcp/search", own("", "find_tools", `{"query":"`+query+`"}`)); a.result(t, "structuredContent", "query_cut") != want || a.result(t, "isError") != "" {
			t.Errorf("%d characters: %.300s", len(query), a.body)
		}
	}
}

// TestArgumentsSayWhatIsWrong: the fault names the rule that was broken.
func TestArgumentsSayWhatIsWrong(t *testing.T) {
	s := newSystem(t)
	s.start()
	for arguments, want := range map[string]string{
		`{"query":""}`: "/query minLength", `{"query":" "}`: "/query minLength", `{"query":5}`: "/query type", `{"query":"` + strings.Repeat("a", maxSent+1) + `"}`: "/query maxLength",
		`{"query":"a","category":["a"]}`: "/category type", `{"query":"a","limit":0}`: "/limit minimum", `{"query":"a","limit":"21"}`: "/limit maximum",
		`{"query":"a","tool_ids":"x"}`: "/tool_ids type", `{"messages":[5]}`: "/messages type", `{"messages":[{"role":"judge","content":"a"}]}`: "/messages enum",
		`{"messages":[` + strings.Repeat(`{"role":"user","content":"a"},`, 500) + `{"role":"user"}]}`: "/messages maxItems",
		`{"query":"a","limit":"NaN"}`: "/limit type", `{"query":"a","limit":1e999}`: "/limit maximum", `{"query":"a","limit":true}`: "/limit type",
		`{"query":"a","budget_tokens":"x"}`: "/budget_tokens type", `{"query":"a","budget_tokens":499}`: "/budget_tokens minimum", `{"query":"a","budget_tokens":200000}`: "/budget_tokens maximum",
	} {
		a := s.post("/mcp/search", own("", "find_tools", arguments))
		got := ""
		for f := range mcp.Elements([]byte(a.result(t, "structuredContent", "details", "errors"))) {
			got += mcp.Text(f, "pointer") + " " + mcp.Text(f, "rule")
		}
		if got != want || a.result(t, "isError") != "true" {
			t.Errorf("%.60s: %q, want %q: %s", arguments, got, want, a.body)
		}
	}
}

func TestViewSearch(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("weather.current", `,"tool_name":"Current weather","short_description":"The weather of a city now.","category":"weather","examples":[{"scenario":"Paris","input":{"text":"Paris"}}]`),
		manifest("mail.send", `,"short_description":"Sends a letter."`))
	s.start()
	want(t, s.names("/mcp/search"), "call_tool", "describe_tool", "find_tools", "get_invocation")
	for name, meant := range map[string]string{"weather__curent": "weather__current", "find_tool": "find_tools", "mail__snd": "mail__send", "other": ""} {
		a := s.post("/mcp/all", own("", name, `{}`))
		if said := strings.Contains(a.body, "did you mean "+meant+"?"); said != (meant != "") || !strings.Contains(a.body, "there is no tool") || strings.Contains(a.body, `"nearest":"`+meant+`"`) != said {
			t.Errorf("%s: %s", name, a.body)
		}
	}
	if a := s.post("/mcp/all", own("", "weather__curent", `{}`), "Authorization: Bearer narrow"); strings.Contains(a.body, "did you mean") || strings.Contains(a.body, "nearest") {
		t.Errorf("a hidden tool is named: %s", a.body)
	}
	a := s.post("/mcp/search", own("", "find_tools", `{"query":"weather of a city","limit":"3"}`))
	if got := a.result(t, "structuredContent", "tools"); !strings.Contains(got, `"tool_id":"weather.current","name":"weather__current","title":"Current weather","description":"The weather of a city now.","parameters":"text: string, n?: integer","side_effects":"reads"`) || strings.Contains(got, "mail") {
		t.Errorf("%s", a.body)
	}
	if a = s.post("/mcp/search", own("", "find_tools", `{"query":"weather","category":"mail"}`)); !strings.Contains(a.body, "E3101") || !strings.Contains(a.body, "leave the category out") || a.result(t, "isError") != "true" {
		t.Errorf("%s", a.body)
	}
	if a = s.post("/mcp/search", own("", "find_tools", `{"query":"weather"}`), "Authorization: Bearer narrow"); !strings.Contains(a.body, "E3101") || a.result(t, "isError") != "true" {
		t.Errorf("%s", a.body)
	}
	a = s.post("/mcp/search", own("", "describe_tool", `{"tool_id":"weather__current"}`))
	if a.result(t, "structuredContent", "tool_id") != `"weather.current"` || a.result(t, "structuredContent", "input_schema", "required") != `["text"]` || !strings.Contains(a.result(t, "structuredContent", "examples"), "Paris") {
		t.Errorf("%s", a.body)
	}
	a = s.post("/mcp/search", own("", "call_tool", `{"tool_id":"weather.current","arguments":{"text":"Paris"}}`))
	if a.result(t, "structuredContent") != `{"text":"Paris"}` {
		t.Errorf("%s", a.body)
	}
	for body, code := range map[string]string{
		own("", "find_tools", `{}`):                              "E3302",
		own("", "find_tools", `{"query":5}`):                     "E3301",
		own("", "find_tools", `{"query":"a\u001bb"}`):            "E3311",
		own("", "find_tools", `{"query":"a\u0000b"}`):            "E3311",
		own("", "find_tools", `{"query":"a","limit":99}`):        "E3301",
		own("", "find_tools", `{"query":"a","what":1}`):          "E3310",
		own("", "find_tools", `[]`):                              "E3312",
		own("", "describe_tool", `{"tool_id":"no.thing"}`):       "E3001",
		own("", "call_tool", `{"arguments":{}}`):                 "E3312",
		own("", "call_tool", `{"tool_id":"a.b","wait":"yes"}`):   "E3312",
		own("", "call_tool", `{"tool_id":"a.b","arguments":5}`):  "E3312",
		own("", "call_tool", `{"tool_id":5}`):                    "E3312",
		own("", "get_invocation", `{"invocation_id":"nothing"}`): "E3013",
		own("", "get_invocation", `{"invocation_id":"x\u0000"}`): "E3301",
	} {
		a := s.post("/mcp/search", body)
		if code == "E3311" && !strings.Contains(a.body, "the query contains the control character U+00") {
			t.Errorf("%s: %s", body, a.body)
		}
		if a.result(t, "isError") != "true" || a.result(t, "structuredContent", "code") != `"`+code+`"` || a.result(t, "_meta", "toolkeep/code") != `"`+code+`"` {
			t.Errorf("%s: %s", body, a.body)
		}
	}
}

func TestViewAuto(t *testing.T) {
	s := newSystem(t)
	s.AutoTools = 3
	for i := range 3 {
		s.publish(manifest(fmt.Sprintf("demo.tool%d", i), fmt.Sprintf(`,"short_description":"Paints picture number %d."`, i)))
	}
	s.start()
	h := s.session("/mcp/auto", "2025-11-25", "{}")
	want(t, s.names("/mcp/auto", h...), "demo__tool0", "demo__tool1", "demo__tool2")
	s.publish(manifest("demo.tool3", `,"short_description":"Boils an egg."`))
	four := []string{"call_tool", "describe_tool", "find_tools", "get_invocation"}
	want(t, s.names("/mcp/auto", h...), four...)
	find := own("", "find_tools", `{"query":"boils an egg"}`)
	a := s.post("/mcp/auto", find, h...)
	if !strings.Contains(a.body, `"method":"notifications/tools/list_changed"`) || !strings.Contains(a.body, "demo.tool3") {
		t.Errorf("%s", a.body)
	}
	want(t, s.names("/mcp/auto", h...), append(four, "demo__tool3")...)
	if a = s.post("/mcp/auto", find, h...); strings.Contains(a.body, "list_changed") {
		t.Errorf("announced twice: %s", a.body)
	}
	// Another session has found nothing; without a session auto is like search.
	want(t, s.names("/mcp/auto", s.session("/mcp/auto", "2025-11-25", "{}")...), four...)
	want(t, s.names("/mcp/auto"), four...)
	if a = s.post("/mcp/auto", find); strings.Contains(a.body, "list_changed") {
		t.Errorf("%s", a.body)
	}
	want(t, s.names("/mcp/auto", "Authorization: Bearer narrow"))
}

func TestSets(t *testing.T) {
	s := newSystem(t)
	sets := map[string]*Set{
		"list": {Tools: []string{"demo.a", "mail.*"}, Instructions: "Only these."}, "space": {Namespaces: []string{"demo"}},
		"kind": {Categories: []string{"post"}}, "tag": {Tags: []string{"x"}}, "empty": {},
	}
	s.Set = func(p *toolkeep.Principal, name string) (*Set, bool) {
		set, ok := sets[name]
		return set, ok && p.Tenant == "t"
	}
	s.publish(manifest("demo.a"), manifest("demo.b", `,"tags":["x","y"]`), manifest("mail.send", `,"category":"post"`))
	s.start()
	want(t, s.names("/mcp/sets/list"), "demo__a", "mail__send")
	want(t, s.names("/mcp/sets/space"), "demo__a", "demo__b")
	want(t, s.names("/mcp/sets/kind"), "mail__send")
	want(t, s.names("/mcp/sets/tag"), "demo__b")
	want(t, s.names("/mcp/sets/empty"))
	s.post("/mcp/sets/list", listCall, "Authorization: Bearer eve").problem(t, 404, toolkeep.ResourceNotFound)
	s.post("/mcp/sets/tag", own("", "demo__a", "{}")).failure(t, 200, mcp.CodeInvalidParams)
	if a := s.post("/mcp/sets/tag", own("", "call_tool", `{"tool_id":"demo.a"}`)); a.result(t, "structuredContent", "code") != `"E3001"` {
		t.Errorf("%s", a.body)
	}
	a := s.post("/mcp/sets/list", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	if a.result(t, "instructions") != `"Only these."` {
		t.Errorf("%s", a.body)
	}
}

// Contexts over MCP: as text and as data, within the budget, with only what the caller sees.
func TestFindToolsAnswersWithAContext(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("mail.send", `,"short_description":"Sends a letter.","common_errors":[{"error":"the mailbox is full","resolution":"try later"}],`+
		`"relationships":{"pairings":[{"tool_id":"mail.track","sequence":"after"},{"tool_id":"mail.veiled","sequence":"before"}],"alternatives":["mail.veiled","post.letter"]}`),
		manifest("mail.track", `,"short_description":"Tells whether a letter was read."`), manifest("post.letter", `,"short_description":"Prints a letter."`),
		manifest("mail.veiled", `,"short_description":"Sends a letter unseen."`))
	visible := s.Visible
	s.Visible = func(p *toolkeep.Principal, t *toolkeep.Tool) bool { return t.ID != "mail.veiled" && visible(p, t) }
	s.start()
	for arguments, want := range map[string]struct{ phase, text, data string }{
		`{"query":"send a letter","phase":"initial_planning"}`:                 {"initial_planning", "- **mail.send**", `"lightweightIndex":[{"toolId":"mail.send"`},
		`{"query":"send a letter","budget_tokens":900}`:                        {"initial_planning", "- **mail.send**", `"tokenBudget":900`},
		`{"query":"send a letter","phase":"tool_selection","category":"none"}`: {"tool_selection", "Phase: tool_selection", `"totalToolsAvailable":0`},
		`{"messages":[{"role":"user","content":"send a letter"}]}`:             {"initial_planning", "- **mail.send**", `"mail.send"`},
		`{"messages":[{"role":"user","content":[{"type":"image","source":{}},{"type":"text","text":"send a letter"}]},{"role":"assistant","content":null}]}`: {
			"tool_selection", "## mail.send", `"detailedTools":[{"toolId":"mail.send"`},
		`{"query":"send a letter","tool_ids":["mail__send"]}`:                         {"tool_selection", "## mail.send", `"detailedTools":[{"toolId":"mail.send"`},
		`{"messages":[{"role":"assistant","tool_calls":[{"tool_id":"mail__send"}]}]}`: {"execution_preparation", "- **mail.track** (call it after)", `"patterns":[{"toolId":"mail.track"`},
		`{"messages":[{"role":"assistant","tool_calls":[{"tool_id":"mail.send"}]},{"role":"tool","error":{"code":"E3520","message":"the mailbox is full","retry_after_s":7}}],"query":"x"}`: {
			"error_recovery", "resolution: \"try later\"", `"alternatives":[{"toolId":"post.letter"`},
	} {
		a := s.post("/mcp/search", own("", "find_tools", arguments))
		data := a.result(t, "structuredContent")
		var list []struct{ Text string }
		if err := json.Unmarshal([]byte(a.result(t, "content")), &list); err != nil || len(list) != 1 {
			t.Fatalf("%s: %v %s", arguments, err, a.body)
		}
		text := list[0].Text
		if !strings.Contains(data, `"phase":"`+want.phase+`"`) || !strings.Contains(text, want.text) || !strings.Contains(data, want.data) || strings.Contains(a.body, "veiled") {
			t.Errorf("%s: %s\n%s", arguments, text, data)
		}
		var c assembly.Context
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			t.Fatal(err)
		}
		if n, m := assembly.Tokens(text), assembly.Tokens(data); n > c.Metadata.TokenBudget || m > c.Metadata.TokenBudget {
			t.Errorf("%s: %d and %d tokens of %d", arguments, n, m, c.Metadata.TokenBudget)
		}
	}
	for arguments, code := range map[string]string{
		`{"phase":"initial_planning"}`:                                                  "E3302",
		`{"query":"a","phase":"lunch"}`:                                                 "E3301",
		`{"query":"a","phase":5}`:                                                       "E3301",
		`{"query":"a","budget_tokens":499}`:                                             "E3301",
		`{"query":"a","messages":{}}`:                                                   "E3301",
		`{"query":"a","messages":[{"role":"user","content":["hello"]}]}`:                "E3301",
		`{"query":"a","messages":[{"role":"user","content":[{"type":"text"}]}]}`:        "E3301",
		`{"query":"a","messages":[{"role":"narrator"}]}`:                                "E3301",
		`{"query":"a","tool_ids":"mail.send"}`:                                          "E3301",
		`{"query":"a","tool_ids":["a` + strings.Repeat(`","a`, 20) + `"]}`:              "E3301",
		`{"messages":[` + strings.Repeat(`{"role":"user"},`, 500) + `{"role":"user"}]}`: "E3301",
	} {
		if a := s.post("/mcp/search", own("", "find_tools", arguments)); a.result(t, "structuredContent", "code") != `"`+code+`"` {
			t.Errorf("%s: %s", toolkeep.ClipBytes(arguments, 100), a.body)
		}
	}
	// The definitions that every model reads must stay small.
	n := 0
	for _, d := range searchTools() {
		n += assembly.Tokens(string(d))
	}
	if n > 900 {
		t.Errorf("the four definitions have %d tokens", n)
	}
	t.Logf("the four definitions have %d tokens", n)
}

// TestLargeTools keeps large definitions out of lists, and describes a large tool by what a call
// needs.
func TestLargeTools(t *testing.T) {
	s := newSystem(t)
	s.AutoTools = 1
	large := func(id string, parameters, text int) string {
		var b strings.Builder
		for i := range parameters {
			fmt.Fprintf(&b, `"p%d":{"type":"string","description":"%s"},`, i, strings.Repeat("y", text))
		}
		m := manifest(id, `,"result_schema":{"type":"object","properties":{"r":{"type":"string","description":"`+strings.Repeat("z", 40<<10)+`"}}},"examples":[{"scenario":"a","input":{"text":"a"}}]`)
		return strings.Replace(m, `"properties":{`, `"properties":{`+b.String(), 1)
	}
	s.publish(manifest("demo.small"), large("demo.large", 20, 1000), large("demo.huge", 400, 190))
	s.start()
	h := s.session("/mcp/auto", "2025-11-25", "{}")
	if a := s.post("/mcp/auto", own("", "find_tools", `{"query":"demo small large huge"}`), h...); !strings.Contains(a.body, "demo.large") || !strings.Contains(a.body, "demo.huge") {
		t.Errorf("%s", a.body)
	}
	want(t, s.names("/mcp/auto", h...), "call_tool", "describe_tool", "find_tools", "get_invocation", "demo__small")
	describe := func(id string) []byte {
		return []byte(s.post("/mcp/auto", own("", "describe_tool", `{"tool_id":"`+id+`"}`), h...).result(t, "structuredContent"))
	}
	got := describe("demo.small")
	if mcp.Get(got, "omitted") != nil {
		t.Errorf("%s", got)
	}
	got = describe("demo.large")
	if len(got) > maxDescribed || mcp.Get(got, "output_schema") != nil || mcp.Get(got, "examples") == nil || string(mcp.Get(got, "omitted")) != `["output_schema","long descriptions within input_schema"]` ||
		!strings.Contains(string(got), `"p19":{"type":"string"}`) {
		t.Errorf("%d bytes: %.300s", len(got), got)
	}
	got = describe("demo.huge")
	if len(got) > maxDescribed || !strings.Contains(string(mcp.Get(got, "omitted")), "examples") || !strings.Contains(string(got), `"p399":{"type":"string"}`) {
		t.Errorf("%d bytes: %.300s", len(got), got)
	}
}
