package toolkeeptest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// offerKeys is an MCP server that writes the X-Key header it received into the
// description of its tool says and the schema of its tool structure.
func offerKeys(t *testing.T) *byHTTP {
	t.Helper()
	echo := func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: r.Params.Name}}}, nil
	}
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		key := r.Header.Get("X-Key")
		schema, err := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{"q": map[string]any{"default": key}}})
		if err != nil {
			t.Error(err)
		}
		s := sdk.NewServer(&sdk.Implementation{Name: "keys", Version: "1"}, nil)
		s.AddTool(&sdk.Tool{Name: "says", Description: "Tells the weather to the owner of " + key, InputSchema: json.RawMessage(`{"type":"object"}`)}, echo)
		s.AddTool(&sdk.Tool{Name: "structure", InputSchema: json.RawMessage(schema)}, echo)
		return s
	}, &sdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
	})
	return &byHTTP{url: h.URL}
}

// TestDefinitionsShowNobodysSecret: a person's secret that a server writes into its
// definitions is never published, the tool can still be called by all, and a person
// cannot cause a hold by choosing a word of its description as a secret.
func TestDefinitionsShowNobodysSecret(t *testing.T) {
	t.Parallel()
	k := withServers(t, nil)
	boss := admin(t, k)
	s := offerKeys(t)
	boss.secret("mine", "the-boss-of-all")
	a := boss.do("PUT", "/api/v1/servers/keys", s.spec(`"session":"principal"`, `"headers":{"X-Key":"secret://mine"}`)).want(t, 200)
	if strings.Contains(a.body, "the-boss-of-all") || !strings.Contains(a.body, "writes a secret that it was given") {
		t.Errorf("the import answers %s", a.body)
	}
	if got := a.plan(t).states(); got != "keys.says@1.0.0 new published" {
		t.Errorf("imported are %q", got)
	}
	ann, bob := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent"))
	ann.secret("mine", "the weather")
	bob.secret("mine", "bobs-own-value")
	for range 2 {
		for _, who := range []*client{ann, bob, boss} {
			if got := who.call("keys.says", `{}`).output(t); got != "says" {
				t.Errorf("the tool tells %q", got)
			}
			tool := who.do("GET", "/api/v1/tools/keys.says", "").want(t, 200).body
			if !strings.Contains(tool, "Tells the weather to the owner of [REDACTED]") {
				t.Errorf("the tool is shown as %s", tool)
			}
		}
		plan := boss.diff(t, "keys").want(t, 200)
		if got := plan.plan(t).states(); got != "keys.says@1.0.0 unchanged published" || strings.Contains(plan.body, "the-boss-of-all") {
			t.Errorf("then %q: %s", got, plan.body)
		}
	}
	if log := k.Log(); strings.Contains(log, "the-boss-of-all") || strings.Contains(log, "bobs-own-value") {
		t.Error("the log holds a secret")
	}
}
