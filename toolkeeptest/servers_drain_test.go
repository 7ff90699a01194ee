package toolkeeptest_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestStopWaitsForNoPerson: a call in which an MCP server asks the caller a question
// does not delay the shutdown, however long the person takes.
func TestStopWaitsForNoPerson(t *testing.T) {
	t.Parallel()
	k := withServers(t, nil)
	boss := admin(t, k)
	s := &byHTTP{server: sdk.NewServer(&sdk.Implementation{Name: "asks", Version: "1"}, nil)}
	told := make(chan error, 1)
	s.server.AddTool(&sdk.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		_, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: "Which city?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
		told <- err
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "nobody said it"}}}, nil
	})
	s.serve(t)
	if p := boss.put(t, "asks", s, `"capabilities":["elicitation"]`); p.Published != 1 {
		t.Fatal(p.states())
	}
	thinking, enough := make(chan struct{}, 1), make(chan struct{})
	defer close(enough)
	c := agentWith(t, k, k.AdminKey, "/all", &sdk.ClientOptions{
		ElicitationHandler: func(ctx context.Context, _ *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			thinking <- struct{}{}
			select {
			case <-enough:
			case <-ctx.Done():
			}
			return &sdk.ElicitResult{Action: "cancel"}, nil
		},
	})
	called := make(chan struct{})
	go func() {
		defer close(called)
		_, _ = c.CallTool(t.Context(), &sdk.CallToolParams{Name: "asks__ask"}) // the server may be gone first
	}()
	select {
	case <-thinking:
	case <-called:
		t.Fatal("the call ended without a question")
	case <-time.After(30 * time.Second):
		t.Fatal("nobody is asked")
	}
	stopped := make(chan error, 1)
	go func() { stopped <- k.Stop(context.Background()) }() // without a deadline
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		t.Fatal("the server waits for the person")
	}
	if err := <-told; err == nil || !strings.Contains(err.Error(), "could not answer") && !strings.Contains(err.Error(), "no answer") && !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("the MCP server is told %v", err)
	}
}
