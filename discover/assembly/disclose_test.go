package assembly

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/pack"
)

func made(t testing.TB, manifest map[string]any) *toolkeep.Tool {
	t.Helper()
	for k, v := range map[string]any{"schema_version": 1, "version": "1.0.0", "description": "Does something.", "execution": map[string]any{"kind": "http"},
		"parameters_schema": map[string]any{"type": "object"}} {
		if _, ok := manifest[k]; !ok {
			manifest[k] = v
		}
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	tool, err := catalog.ParseManifest(raw)
	if err != nil {
		t.Fatalf("%v: %v", err, toolkeep.AsError(err).Details)
	}
	return tool
}

var (
	services = []string{"calendar", "mail", "billing", "tickets", "storage", "weather", "maps", "search", "video", "inventory", "payroll", "crm", "deploy", "metrics", "chat", "translate"}
	verbs    = []string{"create", "list", "update", "delete", "fetch", "export", "import", "cancel", "approve", "compare"}
	nouns    = []string{"event", "message", "invoice", "ticket", "file", "forecast", "route", "document", "stream", "item", "salary", "contact", "release", "series", "channel", "text"}
	phrases  = []string{"of the given account", "with all its attachments", "between two dates", "matching a filter expression", "and returns its identifier",
		"for one customer", "including archived ones", "sorted by the time of the last change", "in the region that the account belongs to", "unless it is locked"}
)

var generatedTools = map[int][]*toolkeep.Tool{} // by number

// generated returns n tools like those of large services: one to ten sentences, two to a dozen
// parameters, a result schema, sometimes examples, errors and relationships.
//
// They are made once and shared: no test changes a tool.
func generated(t testing.TB, n int) []*toolkeep.Tool {
	t.Helper()
	if tools := generatedTools[n]; tools != nil {
		return slices.Clone(tools)
	}
	r := rand.New(rand.NewPCG(1, 2))
	tools := make([]*toolkeep.Tool, n)
	id := func(i int) string {
		return fmt.Sprintf("%s.%s_%s_%d", services[i%len(services)], verbs[i/16%10], nouns[(i+i/160)%16], i)
	}
	for i := range n {
		verb, noun := verbs[i/16%10], nouns[(i+i/160)%16]
		says := func(most int) string {
			s := strings.ToUpper(verb[:1]) + verb[1:] + "s the " + noun
			for range 1 + r.IntN(most) {
				s += " " + phrases[r.IntN(len(phrases))]
			}
			return s + "."
		}
		properties, required := map[string]any{}, []string{}
		for j := range 2 + r.IntN(10) {
			name := fmt.Sprintf("%s_%s", nouns[r.IntN(16)], []string{"id", "name", "limit", "since", "filter", "format"}[r.IntN(6)])
			if _, twice := properties[name]; twice {
				continue
			}
			kind := "string"
			if j < 2 {
				required = append(required, name)
			} else {
				kind = []string{"string", "integer", "boolean"}[r.IntN(3)]
			}
			properties[name] = map[string]any{"type": kind, "description": says(4)}
		}
		m := map[string]any{"tool_id": id(i), "description": says(12), "category": services[i%len(services)], "tags": []string{verb, noun}, "verb": verb, "side_effects": []string{"reads", "writes"}[i%2],
			"parameters_schema": map[string]any{"type": "object", "properties": properties, "required": required},
			"result_schema":     map[string]any{"type": "object", "properties": map[string]any{"id": map[string]any{"type": "string", "description": says(3)}, "items": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": properties}}}}}
		if i%3 == 0 {
			input := map[string]any{}
			for _, name := range required {
				input[name] = "a-17"
			}
			m["examples"] = []any{map[string]any{"scenario": says(2), "input": input, "output": map[string]any{"id": "x"}, "explanation": says(3)}}
			m["explanation"] = says(20)
		}
		if i%4 == 0 {
			m["common_errors"] = []any{map[string]any{"error": "the quota of the account is exhausted", "resolution": "wait for the next day"}, map[string]any{"error": "E3502", "resolution": "ask for fewer " + noun + "s"}}
			m["relationships"] = map[string]any{"dependencies": []string{id((i + 1) % n)}, "alternatives": []string{id((i + 16) % n)},
				"pairings": []any{map[string]any{"tool_id": id((i + 2) % n), "sequence": "after"}, map[string]any{"tool_id": id((i + 3) % n), "sequence": "before"}, map[string]any{"tool_id": id((i + 5) % n), "sequence": "parallel"}}}
		}
		tools[i] = made(t, m)
	}
	generatedTools[n] = tools
	return slices.Clone(tools)
}

// indexed puts tools into a real index.
func indexed(tools []*toolkeep.Tool) *discover.Index {
	x := discover.New(discover.Config{})
	x.Update(func(yield func(toolkeep.Version) bool) {
		for _, t := range tools {
			if !yield(toolkeep.Version{Tool: t, Life: toolkeep.Lifecycle{State: toolkeep.Active}}) {
				return
			}
		}
	})
	return x
}

// asked returns a request over an index, as the faces build it.
func asked(x *discover.Index, query string, visible func(*toolkeep.Tool) bool) Request {
	return Request{Query: query, Found: x.Search(query, discover.MaxResults, visible), All: x.Tools(visible),
		Alike: func(tool *toolkeep.Tool, limit int) (out []*toolkeep.Tool) {
			for _, m := range x.Search(tool.Manifest.Description, limit, func(t *toolkeep.Tool) bool {
				return t.Manifest.Category == tool.Manifest.Category && (visible == nil || visible(t))
			}) {
				out = append(out, m.Tool)
			}
			return out
		}}
}

func built(t testing.TB, r Request) *Context {
	t.Helper()
	c, err := Build(r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// requests returns one request per phase.
func requests(x *discover.Index, query string, chosen []string, visible func(*toolkeep.Tool) bool) map[Phase]Request {
	out := map[Phase]Request{}
	for _, p := range Phases() {
		r := asked(x, query, visible)
		r.Phase = p
		switch p {
		case ExecutionPreparation:
			r.Chosen = chosen
		case ErrorRecovery:
			r.Failure = &Failure{ToolID: chosen[0], Code: toolkeep.UpstreamTimeout, Message: "the quota of the account is exhausted"}
		}
		out[p] = r
	}
	return out
}

const question = "create an invoice for one customer and export the series of last month between two dates"

// sizes are the sizes of catalogues that contexts are tested with.
func sizes() []int {
	if testing.Short() {
		return []int{100, 1000}
	}
	return []int{100, 1000, 10_000}
}

func TestBudgetsAreNeverExceeded(t *testing.T) {
	for _, n := range sizes() {
		tools := generated(t, n)
		x := indexed(tools)
		chosen := []string{tools[0].ID, tools[48].ID, tools[64].ID}
		for phase, r := range requests(x, question, chosen, nil) {
			for _, r.Format = range []Format{JSON, Markdown} {
				for _, r.Budget = range []int{MinBudget, 0, 1000, 20_000} {
					c := built(t, r)
					text, m := c.Text(), c.Metadata
					used := Tokens(text)
					budget := r.Budget
					if budget == 0 {
						budget = map[Phase]int{InitialPlanning: 3000, ToolSelection: 5000, ExecutionPreparation: 4000, ErrorRecovery: 5000}[phase]
					}
					at := fmt.Sprintf("%d tools, %s, %s, budget %d", n, phase, r.Format, r.Budget)
					if used > budget || m.TokenBudget != budget || m.TokensUsed < used || m.TokensUsed > used+1 || m.TokensUsed > budget {
						t.Errorf("%s: %d tokens, said %d of %d", at, used, m.TokensUsed, m.TokenBudget)
					}
					if r.Format == JSON && !json.Valid([]byte(text)) {
						t.Errorf("%s: broken JSON", at)
					}
					if m.TotalToolsAvailable != n {
						t.Errorf("%s: %d tools available", at, m.TotalToolsAvailable)
					}
					if phase == InitialPlanning || phase == ToolSelection {
						rest := 0
						if c.IndexRest != nil {
							rest = c.IndexRest.Tools
						}
						if len(c.LightweightIndex)+len(c.DetailedTools)+rest != n {
							t.Errorf("%s: %d, %d whole and %d more", at, len(c.LightweightIndex), len(c.DetailedTools), rest)
						}
						// The budget is used if there are enough near tools to show.
						ended := slices.ContainsFunc(m.LeftOut, func(l LeftOut) bool { return l.What == "index_entries" && l.Why == whyFar })
						if ended && phase == InitialPlanning || !ended && phase == ToolSelection && budget == 20_000 {
							t.Errorf("%s: the index ends because the rest is far: %v", at, ended)
						}
						if budget >= 1000 && rest > 0 && !ended && used < budget*9/10-100 {
							t.Errorf("%s: only %d tokens of %d", at, used, budget)
						}
					}
					for _, d := range c.DetailedTools {
						if !json.Valid(d.Manifest) {
							t.Errorf("%s: the manifest of %s is broken", at, d.ToolID)
						}
					}
				}
			}
		}
	}
}

func TestPhasesShowWhatDiscoverySays(t *testing.T) {
	tools := generated(t, 200)
	rs := requests(indexed(tools), question, []string{tools[0].ID}, nil)

	c := built(t, rs[InitialPlanning])
	if len(c.LightweightIndex) < 20 || len(c.DetailedTools) != 0 || c.Recovery != nil || c.LightweightIndex[0].ToolID != rs[InitialPlanning].Found[0].Tool.ID {
		t.Errorf("%s", c.JSON())
	}
	c = built(t, rs[ToolSelection])
	if len(c.LightweightIndex) == 0 || len(c.DetailedTools) != 3 || c.DetailedTools[0].ToolID != rs[ToolSelection].Found[0].Tool.ID {
		t.Errorf("%s", c.JSON())
	}
	c = built(t, rs[ExecutionPreparation])
	var got []string
	for _, p := range c.Patterns {
		got = append(got, p.Relationship+" "+p.Sequence+" "+p.ToolID+" with "+p.With)
	}
	want := []string{"dependency before " + tools[1].ID, "pairing before " + tools[3].ID, "pairing parallel " + tools[5].ID, "pairing after " + tools[2].ID}
	for i := range want {
		want[i] += " with " + tools[0].ID
	}
	if !slices.Equal(got, want) || len(c.DetailedTools) == 0 || c.DetailedTools[0].ToolID != tools[0].ID || len(c.LightweightIndex) != 0 {
		t.Errorf("got %q\nwant %q\n%s", got, want, c.JSON())
	}
	c = built(t, rs[ErrorRecovery])
	if c.Recovery == nil || c.Recovery.Class != "TIMEOUT" || len(c.Alternatives) != 1 || c.Alternatives[0].ToolID != tools[16].ID || c.Alternatives[0].Why != "named by the tool" {
		t.Errorf("%s", c.JSON())
	}
	if len(c.ErrorPatterns) != 2 || c.ErrorPatterns[0].Error != "E3502" || c.ErrorPatterns[1].Resolution != "wait for the next day" {
		t.Errorf("%+v", c.ErrorPatterns)
	}
}

// Shown manifests have no binding.
func TestManifestsAreForCallers(t *testing.T) {
	tool := made(t, map[string]any{"tool_id": "a.b", "execution": map[string]any{"kind": "http", "binding": map[string]any{"url": "https://inside.example/x"}},
		"auth": []any{map[string]any{"type": "bearer", "secret": "secret://deep/key"}}})
	c := built(t, Request{All: []*toolkeep.Tool{tool}, Chosen: []string{"a.b"}})
	if s := c.Text(); len(c.DetailedTools) != 1 || strings.Contains(s, "inside") || strings.Contains(s, "deep") {
		t.Error(s)
	}
}

func TestNothingOfInvisibleTools(t *testing.T) {
	tools := generated(t, 400)
	// Half of the tools are hidden, among them tools named by visible ones, and a whole category.
	// All their texts contain a word that no visible tool has.
	hidden := map[string]string{}
	for i, tool := range tools {
		if i%2 == 1 || i%16 == 4 {
			hidden[tool.ID] = fmt.Sprintf("%s.veiled%d", services[i%16], i)
		}
	}
	for _, tool := range tools {
		m := *tool.Manifest
		for from, to := range hidden {
			m.Relationships = json.RawMessage(strings.ReplaceAll(string(m.Relationships), `"`+from+`"`, `"`+to+`"`))
		}
		if to, ok := hidden[tool.ID]; ok {
			tool.ID, m.ToolID = to, to
			m.Description, m.ShortDescription = "veiled "+m.Description, "veiled"
		}
		tool.Manifest = &m
	}
	visible := func(t *toolkeep.Tool) bool { return !strings.Contains(t.ID, "veiled") }
	x := indexed(tools)
	shown := x.Tools(visible)
	if len(shown) != 175 {
		t.Fatalf("%d tools are visible", len(shown))
	}
	for phase, r := range requests(x, "veiled "+question, []string{tools[0].ID}, visible) {
		for _, r.Format = range []Format{JSON, Markdown} {
			c := built(t, r)
			if s := c.Text(); strings.Contains(s, "veiled") || c.Metadata.TotalToolsAvailable != 175 {
				t.Errorf("%s %s: %s", phase, r.Format, s)
			}
			// The same catalogue without the hidden tools gives the same context.
			alone := requests(indexed(shown), "veiled "+question, []string{tools[0].ID}, nil)[phase]
			alone.Format, alone.Found, alone.Alike = r.Format, r.Found, r.Alike
			if a := built(t, alone).Text(); a != c.Text() {
				t.Errorf("%s %s differs:\n%s\n%s", phase, r.Format, a, c.Text())
			}
			// Naming a hidden tool is like naming one that does not exist.
			choice := r
			choice.Chosen = []string{tools[1].ID}
			named := built(t, choice).Text()
			choice.Chosen = []string{"calendar.nowhere"}
			if never := built(t, choice).Text(); named != never {
				t.Errorf("%s %s:\n%s\n%s", phase, r.Format, named, never)
			}
		}
	}
	r := asked(x, question, visible)
	r.Failure = &Failure{ToolID: tools[1].ID}
	named := built(t, r).Text()
	r.Failure = &Failure{ToolID: "calendar.nowhere"}
	if never := built(t, r).Text(); named != never {
		t.Errorf("%s\n%s", named, never)
	}
}

func TestPartsAreLeftOutInOrder(t *testing.T) {
	long := strings.Repeat("Long words about what this does. ", 30)
	manifest := func(id string) map[string]any {
		return map[string]any{"tool_id": id, "description": long, "short_description": "Does it", "explanation": long,
			"examples": []any{map[string]any{"scenario": "one", "input": map[string]any{"a": long}}},
			"parameters_schema": map[string]any{"type": "object", "properties": map[string]any{
				"a": map[string]any{"type": "string", "description": long, "default": map[string]any{"description": long}}, "description": map[string]any{"type": "string", "description": strings.Repeat("short ", 25)}}},
			"result_schema": map[string]any{"type": "object", "properties": map[string]any{"r": map[string]any{"type": "string", "description": "what came back"}, "s": map[string]any{"type": "integer"}}}}
	}
	tools := []*toolkeep.Tool{made(t, manifest("a.one")), made(t, manifest("a.two"))}
	var seen [][]string
	left := ""
	for budget := 6000; budget >= MinBudget; budget -= 20 {
		c := built(t, Request{All: tools, Chosen: []string{"a.one", "a.two"}, Budget: budget, Phase: ExecutionPreparation})
		if len(c.DetailedTools) == 0 {
			t.Fatalf("budget %d: no manifest", budget)
		}
		at := []string{strings.Join(c.DetailedTools[0].Omitted, "+")}
		if len(c.DetailedTools) == 2 {
			at = append(at, strings.Join(c.DetailedTools[1].Omitted, "+"))
		} else if len(c.Metadata.LeftOut) == 0 {
			t.Errorf("budget %d: a manifest is missing without a word", budget)
		} else if left == "" {
			left = fmt.Sprint(c.Metadata.LeftOut[0])
		}
		var m map[string]any
		if err := json.Unmarshal(c.DetailedTools[0].Manifest, &m); err != nil {
			t.Fatal(err)
		}
		properties := m["parameters_schema"].(map[string]any)["properties"].(map[string]any)
		if properties["description"] == nil || properties["a"].(map[string]any)["default"].(map[string]any)["description"] != long {
			t.Fatalf("budget %d: a parameter or a default was taken for a text: %s", budget, c.DetailedTools[0].Manifest)
		}
		if len(seen) == 0 || !slices.Equal(seen[len(seen)-1], at) {
			seen = append(seen, at)
		}
	}
	e, l, r, d := "examples", "examples+long descriptions", "examples+long descriptions+result_schema", "examples+long descriptions+result_schema+descriptions of parameters"
	want := [][]string{{"", ""}, {"", e}, {e, e}, {e, l}, {l, l}, {l, r}, {r, r}, {r, d}, {d, d}}
	// The second tool is dropped last; the first gets its room.
	if len(seen) < len(want) || fmt.Sprint(seen[:len(want)]) != fmt.Sprint(want) || len(seen[len(seen)-1]) != 1 {
		t.Errorf("seen %q\nwant %q", seen, want)
	}
	two, _ := manifestAt(tools[1], levelWhole)
	example := examplesOf(tools[1])[0]
	if whole := Tokens(string(two)) + Tokens(string(marshal(example))) + 1; left != fmt.Sprintf("{manifest a.two [] 0 %d the token budget}", whole) {
		t.Errorf("%q, and it takes %d", left, whole)
	}
}

// TestTheChosenToolHasALine: a tool about to be called always stays in its context, however large
// its manifest is.
func TestTheChosenToolHasALine(t *testing.T) {
	properties := map[string]any{"spec": map[string]any{"type": "object"}, "dry_run": map[string]any{"type": "boolean"}}
	for i := range 400 {
		properties["spec"].(map[string]any)[fmt.Sprintf("x-%d", i)] = strings.Repeat("kept as it is ", 8)
	}
	large := func(id string) *toolkeep.Tool {
		return made(t, map[string]any{"tool_id": id, "short_description": "Create an app", "relationships": map[string]any{"dependencies": []string{"do.regions"}},
			"parameters_schema": map[string]any{"type": "object", "properties": properties, "required": []string{"spec"}}})
	}
	tools := []*toolkeep.Tool{large("do.create"), large("do.another"), made(t, map[string]any{"tool_id": "do.regions"})}
	for _, r := range []Request{
		{Phase: ExecutionPreparation, Chosen: []string{"do.create", "do.another"}},
		{Phase: ErrorRecovery, Chosen: []string{"do.another"}, Failure: &Failure{ToolID: "do.create", Message: strings.Repeat("a long story ", 200)}},
		{Phase: ToolSelection, Chosen: []string{"do.create", "do.another"}},
	} {
		r.All = tools
		for _, r.Format = range []Format{JSON, Markdown} {
			for _, r.Budget = range []int{MinBudget, 600, 0} {
				c := built(t, r)
				at := fmt.Sprintf("%s %s %d: %s", r.Phase, r.Format, r.Budget, c.Text())
				if used := Tokens(c.Text()); used > c.Metadata.TokenBudget {
					t.Errorf("%d tokens: %s", used, at)
				}
				if len(c.LightweightIndex) < 2 || c.LightweightIndex[0].ToolID != "do.create" || c.LightweightIndex[1].ToolID != "do.another" || !slices.Equal(c.LightweightIndex[0].RequiredParams, []string{"spec"}) {
					t.Error(at)
				}
				if r.Budget == 0 && !slices.Equal(c.LightweightIndex[0].OptionalParams, []string{"dry_run"}) {
					t.Error(at)
				}
				if i := slices.IndexFunc(c.Metadata.LeftOut, func(l LeftOut) bool { return l.What == "manifest" && l.ToolID == "do.create" && l.Tokens > 10_000 }); r.Budget == 0 && i < 0 {
					t.Error(at)
				}
				if r.Phase == ExecutionPreparation && r.Budget == 0 && (len(c.DetailedTools) != 1 || c.DetailedTools[0].ToolID != "do.regions") {
					t.Errorf("a tool that fits is not shown whole: %s", at)
				}
			}
		}
	}
	// There are as many lines as chosen tools, not only as many as may be shown in full.
	var many []*toolkeep.Tool
	var ids []string
	for i := range 8 {
		ids = append(ids, fmt.Sprintf("do.small%d", i))
		many = append(many, made(t, map[string]any{"tool_id": ids[i]}))
	}
	if c := built(t, Request{Phase: ExecutionPreparation, Chosen: ids, All: many}); len(c.DetailedTools) != 5 || len(c.LightweightIndex) != 3 || c.LightweightIndex[0].ToolID != "do.small5" {
		t.Errorf("%s", c.Text())
	}
	// Twenty of the longest lines do not fit into the smallest budget, and break no limit.
	many, ids = nil, nil
	wide := map[string]any{}
	for i := range 30 {
		wide[strings.Repeat("wide", 15)+fmt.Sprint(i)] = map[string]any{"type": "string"}
	}
	for i := range MaxChosen {
		ids = append(ids, fmt.Sprintf("do.wide%d", i))
		many = append(many, made(t, map[string]any{"tool_id": ids[i], "parameters_schema": map[string]any{"type": "object", "properties": wide, "required": slices.Sorted(maps.Keys(wide))}}))
	}
	for _, f := range []Format{JSON, Markdown} {
		if c := built(t, Request{Phase: ExecutionPreparation, Chosen: ids, All: many, Budget: MinBudget, Format: f}); Tokens(c.Text()) > MinBudget || len(c.LightweightIndex) == 0 {
			t.Errorf("%d: %s", Tokens(c.Text()), c.Text())
		}
	}
}

func TestTheSameRequestGivesTheSame(t *testing.T) {
	tools := generated(t, 300)
	x := indexed(tools)
	for phase, r := range requests(x, question, []string{tools[0].ID}, nil) {
		for _, r.Format = range []Format{JSON, Markdown} {
			first := built(t, r).Text()
			for range 3 {
				r.All = slices.Clone(r.All)
				rand.Shuffle(len(r.All), func(i, j int) { r.All[i], r.All[j] = r.All[j], r.All[i] })
				if again := built(t, r).Text(); again != first {
					t.Fatalf("%s:\n%s\n%s", phase, first, again)
				}
			}
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	tools := generated(t, 120)
	x := indexed(tools)
	want := map[Phase]string{}
	rs := requests(x, question, []string{tools[0].ID}, nil)
	for p, r := range rs {
		want[p] = built(t, r).Text()
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for p, r := range rs {
				c, err := Build(r)
				if err != nil || c.Text() != want[p] {
					t.Errorf("%s: %v", p, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestRequestsThatAreRefused(t *testing.T) {
	for name, r := range map[string]Request{
		"phase": {Phase: "lunch"}, "format": {Format: "html"}, "small": {Budget: MinBudget - 1}, "large": {Budget: MaxBudget + 1}, "negative": {Budget: -1},
		"many": {Chosen: make([]string, MaxChosen+1)},
	} {
		if _, err := Build(r); err == nil || !toolkeep.IsCode(err, toolkeep.InvalidParameters) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, f := range []Format{JSON, Markdown} {
		for _, p := range append(Phases(), "") {
			c := built(t, Request{Phase: p, Format: f})
			if c.Metadata.TotalToolsAvailable != 0 || Tokens(c.Text()) > MinBudget {
				t.Errorf("%s", c.Text())
			}
		}
	}
}

func TestTokens(t *testing.T) {
	// Counts by the authors of o200k_base.
	for s, n := range map[string]int{"": 0, "antidisestablishmentarianism": 6, "2 + 2 = 4": 7, "お誕生日おめでとう": 8, "hello world": 2, "tiktoken is great!": 6} {
		if got := Tokens(s); got != n {
			t.Errorf("%q: %d tokens, want %d", s, got, n)
		}
	}
	if n := Tokens("a\xffb"); n == 0 {
		t.Error("invalid text is not counted")
	}
}

// TestTokensOfAll: the estimate is of outlines as of whole tools, is near to the count, and is told where it is asked for.
func TestTokensOfAll(t *testing.T) {
	tools := generated(t, 60)
	counted := 0
	outlines := make([]*toolkeep.Tool, len(tools))
	for i, tool := range tools {
		counted += Tokens(string(tool.Raw))
		body, err := pack.New(tool)
		if err != nil {
			t.Fatal(err)
		}
		outline := *tool
		outline.Raw, outline.Packed = nil, sized{body}
		outlines[i] = &outline
	}
	got := tokensOf(tools)
	if got != tokensOf(outlines) || got < counted*7/10 || got > counted*14/10 {
		t.Errorf("whole %d, outlines %d, counted %d", got, tokensOf(outlines), counted)
	}
	r := requests(indexed(tools), question, []string{tools[0].ID}, nil)[InitialPlanning]
	if m := built(t, r).Metadata; m.TokensOfAll != 0 || m.TokensOfAllEstimated {
		t.Errorf("%+v", m)
	}
	r.CountAll = true
	if m := built(t, r).Metadata; m.TokensOfAll != got || !m.TokensOfAllEstimated {
		t.Errorf("%+v, want %d", m, got)
	}
}

// sized is the body of an outline.
type sized struct{ *pack.Manifest }

func (sized) Whole(*toolkeep.Tool) (*toolkeep.Tool, error) { return nil, nil }

func TestTheDataMeansWhatItSays(t *testing.T) {
	tools := generated(t, 60)
	c := built(t, requests(indexed(tools), question, []string{tools[0].ID}, nil)[ToolSelection])
	var back Context
	if err := strict.Unmarshal(c.JSON(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Metadata.TokensUsed != c.Metadata.TokensUsed || len(back.LightweightIndex) != len(c.LightweightIndex) || string(back.DetailedTools[0].Manifest) != string(c.DetailedTools[0].Manifest) {
		t.Errorf("%+v", back.Metadata)
	}
}

// A tool's share of the best score decides whether it is shown in full, whether its line has
// parameters, and whether it has a line during tool selection.
func TestFarToolsAreShownInPart(t *testing.T) {
	tools := generated(t, 12)
	var found []discover.Match
	// The query names the first tool, and the fourth was learned.
	for i, score := range []float64{0.6, 0.8, 0.41, 0.1, 0.39, 0.17, 0.15, 0.01} {
		found = append(found, discover.Match{Tool: tools[i], Score: score})
	}
	chosen := []string{tools[9].ID}
	for name, c := range map[string]struct {
		Request
		whole, near, brief, rest int
		why                      string
	}{
		"as it comes":     {Request{Phase: ToolSelection}, 3, 0, 3, 6, whyFar},
		"chosen":          {Request{Phase: ToolSelection, Chosen: chosen}, 3, 1, 3, 5, whyFar},
		"planning":        {Request{Phase: InitialPlanning}, 0, 3, 9, 0, ""},
		"planning, far":   {Request{Phase: InitialPlanning, Chosen: chosen}, 0, 4, 8, 0, ""},
		"nearer":          {Request{Phase: ToolSelection, Shares: Shares{Near: 0.9, Listed: 0.5}}, 2, 0, 1, 9, whyFar},
		"whatever it is":  {Request{Phase: ToolSelection, Shares: Shares{Near: -1, Listed: -1}, Budget: 20_000}, 3, 9, 0, 0, ""},
		"listed all":      {Request{Phase: ToolSelection, Shares: Shares{Listed: -1}, Budget: 20_000}, 3, 0, 9, 0, ""},
		"listed for long": {Request{Phase: ToolSelection, Shares: Shares{Listed: -1}, Budget: 700}, 3, 0, 0, 9, whyBudget},
	} {
		r := c.Request
		r.All, r.Found = tools, found
		for _, r.Format = range []Format{JSON, Markdown} {
			got := built(t, r)
			near, brief, rest := 0, 0, 0
			for _, e := range got.LightweightIndex {
				if e.OptionalParams != nil || e.RequiredParams != nil || e.Tags != nil || e.Verb != "" {
					near++
					if brief > 0 {
						t.Errorf("%s: a near tool stands behind one that is far", name)
					}
				} else {
					brief++
				}
			}
			if got.IndexRest != nil {
				rest = got.IndexRest.Tools
			}
			if len(got.DetailedTools) != c.whole && c.why != whyBudget || near != c.near || brief != c.brief && c.why != whyBudget || len(got.DetailedTools)+near+brief+rest != 12 {
				t.Errorf("%s, %s: %d whole, %d near, %d brief, %d not shown: %s", name, r.Format, len(got.DetailedTools), near, brief, rest, got.Text())
			}
			told := map[string]LeftOut{}
			for _, l := range got.Metadata.LeftOut {
				told[l.What] = l
			}
			if told["index_parameters"].Count != brief || told["index_entries"].Count != rest || told["index_entries"].Why != c.why {
				t.Errorf("%s, %s: %+v", name, r.Format, told)
			}
		}
	}
	// If nothing is found, nothing is far.
	if c := built(t, Request{All: tools, Phase: InitialPlanning}); len(c.LightweightIndex) != 12 || c.LightweightIndex[11].Tags == nil {
		t.Errorf("%s", c.Text())
	}
}
