package mcp

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolkeep/toolkeep/toolkeeptest"
)

const toolkeepProgram = "github.com/toolkeep/toolkeep/cmd/toolkeep"

// bridgeEnv leads `toolkeep mcp` to the test's server.
func bridgeEnv(t *testing.T, k *toolkeeptest.Toolkeep, key string) []string {
	return []string{"TOOLKEEP_URL=" + k.URL(), "TOOLKEEP_KEY=" + key, "HOME=" + t.TempDir()}
}

// TestStdioClients runs `toolkeep mcp` as clients that start a program do.
func TestStdioClients(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	toolkeep := built(t, toolkeepProgram)
	k := behind(t, dir)
	for _, c := range []struct {
		name, revision string
		argv           []string
		sdk            int
	}{
		{"typescript1", "2025-11-25", []string{nodeJS(dir), filepath.Join("testdata", "client.mjs")}, 1},
		{"typescript2", "2026-07-28", []string{nodeJS(dir), filepath.Join("testdata", "client.mjs")}, 2},
		{"python", "2026-07-28", []string{filepath.Join(dir, "venv-mcp", "bin", "python"), filepath.Join("testdata", "client.py")}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			late := "stdio_" + c.name
			a := question(k, dir, "", c.revision, late).with("sdk", c.sdk).with("command", []string{toolkeep, "mcp", "--view", "all"})
			var s story
			tell(t, program{args: append(c.argv, a.json(t)), env: bridgeEnv(t, k, a["key"].(string))}, &s)
			s.check(t, k, c.revision, late)
		})
	}
}

// TestStdioGoClient runs `toolkeep mcp` under the SDK's Go client, through the
// views that join several servers and through one of one server.
func TestStdioGoClient(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	toolkeep := built(t, toolkeepProgram)
	k := behind(t, dir)
	key := k.Key("default", "agent", "agent")
	for _, revision := range revisions {
		for _, view := range []struct{ name, prefix string }{{"all", "everything__"}, {"servers/everything", ""}} {
			t.Run(revision+"/"+view.name, func(t *testing.T) {
				asked := 0
				o := &sdk.ClientOptions{Capabilities: &sdk.ClientCapabilities{},
					ElicitationHandler: func(_ context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
						asked++
						return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "check": true}}, nil
					}}
				cmd := exec.Command(toolkeep, "mcp", "--view", view.name)
				cmd.Env = append(os.Environ(), bridgeEnv(t, k, key)...)
				var said strings.Builder
				cmd.Stderr = &said
				s, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, o).Connect(t.Context(),
					&sdk.CommandTransport{Command: cmd}, &sdk.ClientSessionOptions{ProtocolVersion: revision})
				if err != nil {
					t.Fatal(err)
				}
				if got := s.InitializeResult().ProtocolVersion; got != revision {
					t.Errorf("revision %s was agreed on", got)
				}
				if got := text(called(t, s, view.prefix+"echo", map[string]any{"message": "hello"})); got != "Echo: hello" {
					t.Error(got)
				}
				contains(t, "elicited", text(called(t, s, view.prefix+"trigger-elicitation-request", nil)), "Name: Ada")
				if asked != 1 {
					t.Errorf("asked %d times", asked)
				}
				list, err := s.ListPrompts(t.Context(), nil)
				if err != nil || len(list.Prompts) != 4 || !strings.HasPrefix(list.Prompts[0].Name, view.prefix) {
					t.Errorf("%+v %v", list, err)
				}
				// The end of its input ends the program.
				if err := s.Close(); err != nil || !cmd.ProcessState.Success() {
					t.Errorf("%v %v", err, cmd.ProcessState)
				}
				if said.Len() > 0 {
					t.Errorf("it said: %s", said.String())
				}
			})
		}
	}
}
