package toolkeeptest_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// Results of tools that answered and of one that failed are signed over each face, as who verifies reads them.
func TestSignedResults(t *testing.T) {
	const secret = "0123456789abcdef0123456789abcdef"
	t.Setenv("TOOLKEEP_SECRET_RESULTS", secret)
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"results.signing_key": "env://TOOLKEEP_SECRET_RESULTS"}})
	verify := func(name, answer, status string) *signing.SignedResult {
		t.Helper()
		s, err := signing.ReadResult([]byte(answer))
		if err == nil {
			err = s.Verify([]byte(secret))
		}
		if err != nil || s.Result.Status != status || s.Result.Tenant != "default" {
			t.Fatalf("%s: %v\n%s", name, err, answer)
		}
		return s
	}
	asked := map[string]struct{ arguments, status string }{
		"std.echo": {`{"b":1.50,"a":"ä","n":9007199254740993}`, "success"},
		"std.uuid": {`{}`, "success"},
		"std.fail": {`{"code":"E3710"}`, "error"},
		"cut.echo": {`{"text":"` + strings.Repeat("long ", 30) + `"}`, "success"},
	}
	k.Publish(toolkeeptest.Manifest("cut.echo", "1.0.0", "echo", reads, `"result":{"max_output_bytes":64}`))
	c, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{Key: k.AdminKey})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	call := func(name, arguments string) string {
		_, answer := k.Do("POST", "/mcp/search", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments), "Accept", "application/json")
		return answer
	}
	for tool, x := range asked {
		_, answer := k.Do("POST", "/api/v1/tools/invoke", fmt.Sprintf(`{"tool_id":%q,"parameters":%s,"execution_options":{"idempotency_key":%q}}`, tool, x.arguments, tool))
		s := verify("REST "+tool, answer, x.status)
		code, later := k.Do("GET", "/api/v1/invocations/"+s.Result.Invocation, "")
		if again := verify("REST later "+tool, later, x.status); code != http.StatusOK || again.Signature != s.Signature || s.Result.Tool != tool {
			t.Errorf("%s: %d, another signature later\n%s\n%s", tool, code, answer, later)
		}
		m := verify("MCP "+tool, call("call_tool", fmt.Sprintf(`{"tool_id":%q,"arguments":%s,"idempotency_key":%q}`, tool, x.arguments, "mcp "+tool)), x.status)
		look := call("get_invocation", fmt.Sprintf(`{"invocation_id":%q}`, m.Result.Invocation))
		if later := verify("MCP later "+tool, look, x.status); later.Result.Invocation != m.Result.Invocation || m.Result.Tool != tool || tool == "cut.echo" && !strings.Contains(look, `"sha256":"`) {
			t.Errorf("%s: %v\n%s", tool, later, look)
		}
		res, err := c.Invoke(t.Context(), nil, &toolkeep.Call{Tool: tool, Arguments: []byte(x.arguments)})
		if err != nil || res.Signature == nil {
			t.Fatalf("gRPC %s: %v %v", tool, err, res)
		}
		content, err := signing.Outcome(res, res.Error)
		if err != nil {
			t.Fatal(err)
		}
		want, err := (&signing.Result{Tenant: "default", Invocation: res.InvocationID, Tool: tool, Version: res.ToolVersion, Status: x.status, Completed: res.EndedAt, Content: content}).Sign([]byte(secret))
		if err != nil || want.Value != res.Signature.Value || want.KeyID != res.Signature.KeyID {
			t.Errorf("gRPC %s: %v, %v, want %v", tool, err, res.Signature, want)
		}
	}
	// The record of a call without a key has no result: a look at it says neither of a result nor that there was none.
	_, unkept := k.Do("POST", "/api/v1/tools/invoke", `{"tool_id":"std.echo","parameters":{"a":1}}`)
	id := verify("without a key", unkept, "success").Result.Invocation
	for over, look := range map[string]string{"REST": func() string { _, answer := k.Do("GET", "/api/v1/invocations/"+id, ""); return answer }(),
		"MCP": call("get_invocation", fmt.Sprintf(`{"invocation_id":%q}`, id))} {
		if _, err := signing.ReadResult([]byte(look)); !errors.Is(err, signing.ErrUnsigned) || !strings.Contains(look, id) || !strings.Contains(look, "success") {
			t.Errorf("%s signs a record without its result: %v\n%s", over, err, look)
		}
	}
	_, refused := k.Do("POST", "/api/v1/tools/invoke", `{"tool_id":"std.hash","parameters":{}}`)
	if _, err := signing.ReadResult([]byte(refused)); err == nil {
		t.Errorf("a refusal is signed: %s", refused)
	}
}

// A result that cannot be signed is given, and says so.
func TestResultWithoutItsKey(t *testing.T) {
	t.Setenv("TOOLKEEP_SECRET_RESULTS", "little")
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"results.signing_key": "env://TOOLKEEP_SECRET_RESULTS"}})
	res, err := k.Call("std.echo", `{}`)
	if err != nil || res.Signature != nil {
		t.Fatalf("%v %v", err, res)
	}
	code, answer := k.Do("POST", "/api/v1/tools/invoke", `{"tool_id":"std.echo","parameters":{}}`)
	if code != http.StatusOK || !strings.Contains(answer, `"code":"E3725"`) || !strings.Contains(answer, `"result":{}`) || strings.Contains(answer, `"signature"`) {
		t.Errorf("%d %s", code, answer)
	}
	k.Close()
	if log := k.Log(); !strings.Contains(log, "without a signature") || !strings.Contains(log, "shorter than 32 bytes") {
		t.Errorf("the log does not say why: %s", log)
	}
}
