package toolkeeptest_test

import (
	"fmt"
	"strings"
	"testing"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestWhatIsDisclosed: contexts, related tools and manifests over REST and MCP show
// manifests and the tenant's own usage, never a tool that the caller cannot see, never
// another tenant's usage, and never more than the budget.
func TestWhatIsDisclosed(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"search.model": "none", "search.budgets.error_recovery": "900", "search.budgets.execution_preparation": "700",
		"limits.agent_per_minute": "-1", "limits.agent_tool_per_minute": "-1"}})
	order := strings.TrimSuffix(described("shop.order", "Orders a book."), "}") + `,"fallback":"shop.veiled","relationships":{"dependencies":["shop.login","shop.veiled"],` +
		`"pairings":[{"tool_id":"shop.veiled","sequence":"before"}],"alternatives":["shop.veiled","shop.reserve"]},"common_errors":[{"error":"out of stock","resolution":"wait a day"}]}`
	k.Publish(order, described("shop.login", "Opens a session."), described("shop.track", "Tells where a parcel is."),
		described("shop.reserve", "Orders a book for later."), described("shop.veiled", "Orders a book unseen."))
	boss := k.Key("default", "boss", "agent")
	narrow := k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "ann", Roles: []string{"agent"}, Scope: []string{"shop.order", "shop.login", "shop.track", "shop.reserve"}})
	stranger := k.Key("other", "eve", "agent")

	// The boss uses three tools together, one of which ann cannot see.
	for i := range 6 {
		u := user{t, k, boss, fmt.Sprint("s-", i), ""}
		for _, tool := range []string{"shop.veiled", "shop.order", "shop.track"} {
			u.call(tool)
		}
		user{t, k, boss, fmt.Sprint("alone-", i), ""}.call("shop.login")
	}
	related := func(key, query string) (ids []string, body string) {
		t.Helper()
		status, body := user{t, k, key, "", ""}.do("GET", "/api/v1/tools/retrieval/related/shop.order?maxResults=10&relationshipType="+query, "")
		var a struct {
			Data struct {
				RelatedTools []struct{ ToolID, Source string } `json:"relatedTools"`
			} `json:"data"`
		}
		if status != 200 || json.Unmarshal([]byte(body), &a, json.MatchCaseInsensitiveNames(true)) != nil {
			t.Fatalf("%d %s", status, body)
		}
		for _, r := range a.Data.RelatedTools {
			ids = append(ids, r.ToolID+" "+r.Source)
		}
		return ids, body
	}
	waitUntil(t, "all calls are learned, and what is called together", func() bool {
		last, _ := k.Usage().Analytics("default", "shop.login")
		ids, _ := related(boss, "pairings")
		return last.TotalExecutions == 6 && strings.Contains(fmt.Sprint(ids), "shop.track usage")
	})
	if ids, _ := related(boss, "pairings"); fmt.Sprint(ids) != "[shop.veiled manifest shop.track usage]" {
		t.Errorf("%q", ids)
	}
	for kind, want := range map[string]string{"pairings": "[shop.track usage]", "dependencies": "[shop.login manifest]", "alternatives": "[shop.reserve manifest]"} {
		if ids, body := related(narrow, kind); fmt.Sprint(ids) != want || strings.Contains(body, "veiled") {
			t.Errorf("%s: %q %s", kind, ids, body)
		}
	}
	if ids, _ := related(stranger, "pairings"); fmt.Sprint(ids) != "[shop.veiled manifest]" {
		t.Errorf("another tenant is told what was learned: %q", ids)
	}

	ann := user{t, k, narrow, "s-ann", ""}
	for path, want := range map[string]string{
		"manifest/shop.order?includeAnalytics=true": `"analytics":{"totalExecutions":6,"successRate":1,`,
		"search?q=order+a+book":                     `"commonPairings":[{"toolId":"shop.track"`,
	} {
		if status, body := ann.do("GET", "/api/v1/tools/retrieval/"+path, ""); status != 200 || !strings.Contains(body, want) || strings.Contains(body, "veiled") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, body := (user{t, k, stranger, "", ""}).do("GET", "/api/v1/tools/retrieval/manifest/shop.order?includeAnalytics=true", ""); status != 200 || strings.Contains(body, `"analytics"`) || strings.Contains(body, "shop.track") {
		t.Errorf("another tenant: %s", body)
	}

	for _, format := range []string{"json", "markdown"} {
		for body, want := range map[string]string{
			`"phase":"initial_planning","q":"order a book"`:                    "shop.reserve",
			`"phase":"tool_selection","q":"order a book"`:                      "Orders a book.",
			`"phase":"execution_preparation","toolIds":["shop.order"]`:         "shop.track",
			`"error":{"toolId":"shop.order","message":"it is out of stock"}`:   "wait a day",
			`"error":{"toolId":"shop.veiled","errorCode":"E3310"}`:             "There is no tool of the id that was called",
			`"messages":[{"role":"assistant","content":"I take shop.veiled"}]`: "tool_selection",
		} {
			status, answer := ann.do("POST", "/api/v1/tools/retrieval/context", `{"format":"`+format+`",`+body+`}`)
			var a struct {
				Data struct {
					Markdown string            `json:"markdown"`
					Metadata assembly.Metadata `json:"metadata"`
				} `json:"data"`
			}
			if status != 200 || json.Unmarshal([]byte(answer), &a) != nil {
				t.Fatalf("%s: %d %s", body, status, answer)
			}
			m := a.Data.Metadata
			budget := map[assembly.Phase]int{assembly.InitialPlanning: 3000, assembly.ToolSelection: 5000, assembly.ExecutionPreparation: 700, assembly.ErrorRecovery: 900}[m.Phase]
			if !strings.Contains(answer, want) || strings.Contains(answer, "veiled") || m.TotalToolsAvailable != 4 || m.TokenBudget != budget || m.TokensUsed > budget ||
				format == "markdown" && assembly.Tokens(a.Data.Markdown) > budget {
				t.Errorf("%s %s: %s", format, body, answer)
			}
		}
	}
	for arguments, want := range map[string]string{
		`{"query":"order a book","phase":"tool_selection"}`:                            "## shop.order",
		`{"messages":[{"role":"assistant","tool_calls":[{"tool_id":"shop__order"}]}]}`: "shop.track",
		`{"query":"order a book"}`:                                                     `"tool_id":"shop.order"`,
	} {
		c := as(t, k, narrow)
		a := c.says("/search", "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find_tools","arguments":`+arguments+`}}`)
		if a.status != 200 || !strings.Contains(a.body, want) && !strings.Contains(a.body, strings.ReplaceAll(want, `"`, `\"`)) || strings.Contains(a.body, "veiled") {
			t.Errorf("%s: %d %s", arguments, a.status, a.body)
		}
	}
}

// TestBatchesOnARealCatalogue: refusals are reported per manifest; the other manifests
// are stored and can be found at once.
func TestBatchesOnARealCatalogue(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"search.model": "none"}})
	c := admin(t, k)
	k.Publish(toolkeeptest.Manifest("zoo.fish", "1.0.0", "echo"))
	breaks := strings.Replace(toolkeeptest.Manifest("zoo.fish", "1.1.0", "echo"), `{"type":"object"}`, `{"type":"object","required":["x"]}`, 1)
	other := strings.Replace(toolkeeptest.Manifest("zoo.fish", "1.0.0", "echo"), "A tool of a test.", "Another text.", 1)
	body := func(more string) string {
		list := []string{described("zoo.newt", "Counts newts."), `{"tool_id":"zoo.bad"}`, breaks, described("zoo.toad", "Counts toads."), toolkeeptest.Manifest("zoo.kind", "1.0.0", "echo", `"relationships":{"dependencies":["zoo.newt","zoo.none"]}`)}
		for i, m := range list {
			list[i] = `{"manifest":` + m + `}`
		}
		return `{` + more + `"tools":[` + strings.Join(list, ",") + `]}`
	}
	c.do("POST", "/api/v1/tools/batch-register", body("")).refused(t, toolkeep.InvalidManifest)
	if strings.Contains(c.do("GET", "/api/v1/tools?namespace=zoo", "").body, "newt") {
		t.Fatal("a batch that was refused left something behind")
	}
	a := c.do("POST", "/api/v1/tools/batch-register", body(`"partial":true,`), "Accept", "application/x-ndjson").want(t, 200)
	lines := strings.Split(strings.TrimSpace(a.body), "\n")
	last := lines[len(lines)-1]
	for _, want := range []string{`{"event":"result","data":{`, `{"index":0,"tool_id":"zoo.newt","version":"1.0.0","status":"created"}`, `{"index":1,"tool_id":"zoo.bad","status":"refused"`,
		`{"index":2,"tool_id":"zoo.fish","status":"refused"`, `"created":3`, `"refused":2`, `"indexing":{"searchable":true,"embedding":"none"}`, `relationships.dependencies names zoo.none`} {
		if !strings.Contains(last, want) {
			t.Errorf("%s is not in %s", want, last)
		}
	}
	if len(lines) < 2 || !strings.HasPrefix(lines[0], `{"event":"progress","data":{"stage":"publishing"`) || strings.Contains(last, "names zoo.newt") {
		t.Errorf("%s", a.body)
	}
	if !strings.Contains(c.do("GET", "/api/v1/tools/retrieval/search?q=newts", "").body, "zoo.newt") {
		t.Error("what was published is not found at once")
	}
	// The same version with different content is refused for that tool only.
	a = c.do("POST", "/api/v1/tools/batch-register", `{"partial":true,"tools":[{"manifest":`+other+`},{"manifest":`+described("zoo.newt", "Counts newts.")+`}]}`).want(t, 200)
	if !strings.Contains(a.body, `"error_code":"E3007"`) || !strings.Contains(a.body, `"unchanged":1`) {
		t.Errorf("%s", a.body)
	}
}
