package toolkeeptest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// offerEcho is an MCP server that returns the headers X-Key and X-Fixed-Token it
// received, in the result of the tool echo, in a resource and in a prompt.
func offerEcho(t *testing.T) *byHTTP {
	t.Helper()
	s := &byHTTP{server: sdk.NewServer(&sdk.Implementation{Name: "echo", Version: "1"}, nil)}
	text := func(e *sdk.RequestExtra) string {
		return "the weather: " + e.Header.Get("X-Key") + ", " + e.Header.Get("X-Fixed-Token")
	}
	s.server.AddTool(&sdk.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text(r.Extra)}}}, nil
	})
	s.server.AddResource(&sdk.Resource{Name: "r", URI: "test://r"}, func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "test://r", Text: text(r.Extra)}}}, nil
	})
	s.server.AddPrompt(&sdk.Prompt{Name: "p"}, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
		return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user", Content: &sdk.TextContent{Text: text(r.Extra)}}}}, nil
	})
	s.serve(t)
	return s
}

// TestSecretsOfServersAreTakenOutForWhomTheyConcern: a person's own secret in an MCP
// server's headers is redacted from every response to that person, and a common word
// that someone chose as a secret is not removed from other people's results. Values in
// the definition are known to the server's owners.
func TestSecretsOfServersAreTakenOutForWhomTheyConcern(t *testing.T) {
	t.Parallel()
	k := withServers(t, nil)
	boss := admin(t, k)
	k.Publish(toolkeeptest.Manifest("plain.echo", "1.0.0", "echo"))
	s := offerEcho(t)
	put := func(name, query, fixed string) {
		t.Helper()
		boss.do("PUT", "/api/v1/servers/"+name+query, s.spec(`"session":"principal"`, `"headers":{"X-Key":"secret://mine","X-Fixed-Token":"`+fixed+`"}`)).want(t, 200)
	}
	boss.secret("mine", "the-boss-of-all")
	put("common", "?shared=true", "Bearer operators-literal")
	put("ours", "", "tenants-literal")
	ann, bob := as(t, k, k.Key("default", "ann", "agent")), as(t, k, k.Key("default", "bob", "agent"))
	foreign := as(t, k, k.Key(otherTenant, "ann", "agent"))
	ann.secret("mine", "the weather")
	bob.secret("mine", "bobs-own-value")
	foreign.secret("mine", "value-of-the-other")
	people := map[*client]string{
		ann:     "[REDACTED]: [REDACTED], ",
		bob:     "the weather: [REDACTED], ",
		foreign: "the weather: [REDACTED], ",
	}
	all := ""
	for round := range 2 { // all sessions are open in the second
		for who, want := range people {
			for _, server := range []string{"common", "ours"} {
				if server == "ours" && who == foreign {
					continue
				}
				a := who.call(server+".echo", `{}`)
				all += a.body
				if got := a.output(t); got != want+"[REDACTED]" {
					t.Errorf("round %d: %s tells %q, want %q", round, server, got, want+"[REDACTED]")
				}
				client := agent(t, k, who.key, "/servers/"+server)
				read, err := client.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "test://r"})
				if err != nil {
					t.Fatal(err)
				}
				prompt, err := client.GetPrompt(t.Context(), &sdk.GetPromptParams{Name: "p"})
				if err != nil {
					t.Fatal(err)
				}
				for what, got := range map[string]string{"resource": read.Contents[0].Text, "prompt": prompt.Messages[0].Content.(*sdk.TextContent).Text} {
					if got != want+"[REDACTED]" {
						t.Errorf("round %d: the %s of %s is %q, want %q", round, what, server, got, want+"[REDACTED]")
					}
				}
			}
		}
	}
	// A tool that only gives back its arguments does not show which of them is a secret.
	const text = "the weather, bobs-own-value, value-of-the-other, operators-literal, tenants-literal"
	for _, who := range []*client{ann, bob, foreign, as(t, k, k.Key("default", "carol", "agent")), as(t, k, k.Key(otherTenant, "carol", "agent"))} {
		if got := who.call("plain.echo", `{"text":"`+text+`"}`).success(t).text(t, "result", "text"); got != text {
			t.Errorf("told %q, want %q", got, text)
		}
	}
	all += k.Log()
	for _, v := range []string{"bobs-own-value", "value-of-the-other", "operators-literal", "tenants-literal"} {
		if strings.Contains(all, v) {
			t.Errorf("%s is in the answers or in the log", v)
		}
	}
}
