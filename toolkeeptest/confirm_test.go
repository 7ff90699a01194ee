package toolkeeptest_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestCallerConfirmsOverMCP: where a rule lets the caller's own person confirm, an MCP client that offers forms is asked in
// one, with a session and without, and its answer decides.
func TestCallerConfirmsOverMCP(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte("rules:\n  - tools: [\"c.*\"]\n    confirm: caller\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"approvals.rules_file": rules}})
	k.Publish(toolkeeptest.Manifest("c.echo", "1.0.0", "echo", reads, `"requires_approval":true`))
	key := k.Key("default", "agent", "agent")
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for answer, want := range map[string]string{
			"accept":  `"text":"hello"`,
			"refuse":  string(toolkeep.ApprovalDenied),
			"decline": string(toolkeep.ApprovalDenied),
		} {
			t.Run(version+" "+answer, func(t *testing.T) {
				var asked []string
				c := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, &sdk.ClientOptions{
					ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
						asked = append(asked, r.Params.Message)
						if answer == "decline" {
							return &sdk.ElicitResult{Action: "decline"}, nil
						}
						return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"approve": answer == "accept"}}, nil
					},
				})
				tr := &http.Transport{}
				defer tr.CloseIdleConnections()
				s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: k.URL() + "/mcp/all", HTTPClient: &http.Client{Transport: bearing{key, tr}}, MaxRetries: -1},
					&sdk.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "c__echo", Arguments: map[string]any{"text": "hello"}})
				if err != nil {
					t.Fatal(err)
				}
				if got := said(res); !strings.Contains(got, want) || res.IsError != (answer != "accept") {
					t.Errorf("the call gave %s, want %s", got, want)
				}
				if len(asked) != 1 || !strings.Contains(asked[0], "c.echo@1.0.0") || !strings.Contains(asked[0], "hello") {
					t.Errorf("the person was asked %q", asked)
				}
			})
		}
	}
}
