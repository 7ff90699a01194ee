package rpc_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestGrpcurl drives the server with grpcurl, which knows the contract only through reflection. It
// is pinned in the module tools/grpcurl; building it takes a minute, so it runs with
// TOOLKEEP_TEST_ALL=1 (make test), or if grpcurl is installed.
func TestGrpcurl(t *testing.T) {
	program, err := exec.LookPath("grpcurl")
	if err != nil {
		if os.Getenv("TOOLKEEP_TEST_ALL") != "1" {
			t.Log("left out: grpcurl is not installed and TOOLKEEP_TEST_ALL is not 1; TestReflection covers the protocol")
			return
		}
		program = filepath.Join(t.TempDir(), "grpcurl")
		build := exec.Command("go", "build", "-o", program, "github.com/fullstorydev/grpcurl/cmd/grpcurl")
		build.Dir = "../../tools/grpcurl"
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	k, _, keys := toolkeeptest.ForFaces(t)
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, program, append([]string{"-plaintext"}, args...)...).CombinedOutput()
		return string(out), err
	}
	auth := []string{"-H", "authorization: Bearer " + keys["agent"]}
	for name, c := range map[string]struct {
		args []string
		want []string
		fail bool
	}{
		"list":     {[]string{k.GRPCAddr(), "list"}, []string{"agentic.l03.v1.ToolExecution", "agentic.l03.v1.ToolRegistry", "grpc.health.v1.Health"}, false},
		"describe": {[]string{k.GRPCAddr(), "describe", "agentic.l03.v1.ToolInvocationRequest"}, []string{"map<string, string> inputs = 4;", "string tool_id = 2;"}, false},
		"health":   {[]string{k.GRPCAddr(), "grpc.health.v1.Health/Check"}, []string{"SERVING"}, false},
		"call": {append(auth, "-d", `{"tool_id":"face.echo","inputs":{"text":"hello there","n":"9007199254740993"}}`, k.GRPCAddr(), "agentic.l03.v1.ToolExecution/InvokeTool"),
			[]string{`"text": "\"hello there\""`, `"n": "9007199254740993"`, `"invocationId"`}, false},
		"stream": {append(auth, "-d", `{"tool_id":"face.echo","parameters":{"text":"a"}}`, k.GRPCAddr(), "agentic.l03.v1.ToolExecution/InvokeToolStream"),
			[]string{`"result": {`, `"text": "\"a\""`}, false},
		"refused": {append(auth, "-d", `{"tool_id":"face.none"}`, k.GRPCAddr(), "agentic.l03.v1.ToolExecution/InvokeTool"),
			[]string{"Code: NotFound", `"reason": "tool_not_found"`, `"code": "E3001"`}, true},
		"nobody": {[]string{"-d", `{"query":"hash"}`, k.GRPCAddr(), "agentic.l03.v1.ToolRegistry/QueryByCapability"}, []string{"Code: Unauthenticated", "E3214"}, true},
		"search": {append(auth, "-d", `{"query":"hash"}`, k.GRPCAddr(), "agentic.l03.v1.ToolRegistry/QueryByCapability"), []string{`"toolId": "std.hash"`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(c.args...)
			if (err != nil) != c.fail {
				t.Errorf("%v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}
