package toolkeeptest_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// TestEveryRequestIsCounted: an agent that has used up its requests is refused every operation of REST, gRPC and MCP, but for
// those that are listed here and those that need a permission. What counts says in its headers what is left, in its refusal too.
func TestEveryRequestIsCounted(t *testing.T) {
	t.Parallel()
	k, _, _ := limited(t, map[string]string{"limits.agent_per_minute": "1"})
	key := k.Key("default", "ann", "agent")
	ann := as(t, k, key)
	ann.call("std.echo", "{}").success(t)
	many, _, _ := limited(t, map[string]string{"limits.agent_per_minute": "3"})
	const none, policy = `"agent";r=0;t=60`, `"agent";q=1;w=60`

	t.Run("REST", func(t *testing.T) {
		free := map[string]string{
			"getInvocation": "it follows a call that was counted", "watchInvocation": "it follows a call that was counted", "cancelInvocation": "it ends a call that was counted",
			"watchInvocations": "it tells of calls that were counted, to few at once",
			"approveCall":      "it decides about a call that was counted", "denyCall": "it decides about a call that was counted",
			"invokeForModel": "each call of the message is counted, and a message without calls",
			"endSession":     "it ends what was counted", "redeemLoginLink": "it has no caller, and wrong links count as guesses",
			"getBlob":      "it follows a call that was counted",
			"openapi-json": "it has no caller", "openapi-yaml": "it has no caller", "showDecisionLink": "it has no caller", "decideByLink": "it has no caller",
			"health": "it has no caller", "ready": "it has no caller", "health-startup": "it has no caller", "health-live": "it has no caller", "health-ready": "it has no caller",
		}
		var doc struct {
			Paths map[string]map[string]struct{ OperationID string }
		}
		if err := json.Unmarshal([]byte(ann.do("GET", "/openapi.json", "").want(t, 200).body), &doc); err != nil {
			t.Fatal(err)
		}
		type request struct{ method, path, body string }
		var once []request // each is counted once
		counted := 0
		for path, methods := range doc.Paths {
			path = regexp.MustCompile(`\{[a-zA-Z_]+\}`).ReplaceAllString(path, "some.thing")
			for method, op := range methods {
				body := ""
				if op.OperationID == "invokeTool" { // what names no tool is no call
					body = `{"tool_id":"std.echo"}`
				}
				if op.OperationID == "watchInvocations" { // a GET has no end
					method = "head"
				}
				a := ann.do(strings.ToUpper(method), path, body)
				limited := strings.Contains(a.body, `"E3801"`)
				if left := a.header.Get("RateLimit"); (left == none && a.header.Get("RateLimit-Policy") == policy) != limited || !limited && left != "" {
					t.Errorf("%s %s: %d with %q", method, path, a.status, a.header)
				}
				if limited && (fmt.Sprint(a.at(t, "details", "remaining")) != "0" || fmt.Sprint(a.at(t, "details", "reset_s")) != "60") {
					t.Errorf("%s %s: %s", method, path, a.body)
				}
				switch {
				case limited:
					counted++
					once = append(once, request{strings.ToUpper(method), path, body})
				case free[op.OperationID] == "" && !strings.Contains(a.body, `"E3201"`):
					t.Errorf("%s %s (%s) is not counted: %d %s", method, path, op.OperationID, a.status, a.body)
				}
				if limited && free[op.OperationID] != "" {
					t.Errorf("%s is counted, although %s", op.OperationID, free[op.OperationID])
				}
				delete(free, op.OperationID)
			}
		}
		if counted < 20 || len(free) > 0 {
			t.Errorf("%d operations are counted, and there is none of %v", counted, free)
		}
		for i, r := range append(once, request{"POST", "/api/v1/tools/invoke", `{"tool_id":"std.echo","dry_run":true}`}) {
			fresh := as(t, many, many.Key("default", fmt.Sprint("agent", i), "agent"))
			a := fresh.do(r.method, r.path, r.body)
			if strings.Contains(a.body, `"E3801"`) {
				t.Errorf("%s %s is counted more than once: %s", r.method, r.path, a.body)
			}
			if left := a.header.Get("RateLimit"); left != `"agent";r=2;t=20` || a.header.Get("RateLimit-Policy") != `"agent";q=3;w=60` {
				t.Errorf("%s %s: %d with %q", r.method, r.path, a.status, left)
			}
			left := fresh.call("std.echo", "{}").success(t).header.Get("RateLimit")
			if !strings.Contains(left, "r=1;") {
				t.Errorf("after %s %s %s and a call the header is %q", r.method, r.path, r.body, left)
			}
		}
	})

	t.Run("operators", func(t *testing.T) {
		op := admin(t, k)
		op.call("std.echo", "{}").success(t)
		for _, r := range [][3]string{
			{"PUT", "/secrets/some", `{"value":"x","scope":"organisation"}`}, {"DELETE", "/secrets/some", ""}, {"POST", "/secrets/test", `{"reference":"secret://some"}`}, {"GET", "/secrets", ""},
			{"POST", "/approvals/some/approve", `{}`}, {"POST", "/approvals/some/deny", `{}`}, {"GET", "/approvals", ""}, {"GET", "/approvals/some", ""}, {"POST", "/approvals/some/links", ""},
			{"GET", "/approvals/grants", ""}, {"DELETE", "/approvals/grants/some", ""}, {"GET", "/invocations?agent_id=ann", ""}, {"POST", "/tokens", `{}`},
		} {
			if a := op.do(r[0], "/api/v1"+r[1], r[2]); a.status == 429 { // a list of calls may quote E3801
				t.Errorf("%s %s: an operator who has used up its requests gets %s", r[0], r[1], a.body)
			}
		}
		op.do("GET", "/api/v1/tools", "").overLimit(t, toolkeep.RateLimitExceeded, "agent")
	})

	t.Run("gRPC", func(t *testing.T) {
		free := map[string]bool{"GetInvocation": true, "CancelInvocation": true} // they follow a call
		conn, err := grpc.NewClient(k.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
		call, err := proto.Marshal(&l03v1.ToolInvocationRequest{ToolId: "std.echo"})
		if err != nil {
			t.Fatal(err)
		}
		room, err := grpc.NewClient(many.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
		if err != nil {
			t.Fatal(err)
		}
		defer room.Close()
		for _, name := range []string{"InvokeTool", "InvokeToolStream"} { // the one message of a stream comes as an answer does
			var header metadata.MD
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+many.Key("default", name, "agent"))
			err := room.Invoke(ctx, "/"+l03v1.ToolExecution_ServiceDesc.ServiceName+"/"+name, call, new(any), grpc.Header(&header))
			if got := header.Get("ratelimit"); err != nil || !slices.Equal(got, []string{`"agent";r=2;t=20`}) {
				t.Errorf("%s: %q %v", name, got, err)
			}
		}
		for _, s := range []grpc.ServiceDesc{l03v1.ToolExecution_ServiceDesc, l03v1.ToolRegistry_ServiceDesc, l03v1.ToolRetrieval_ServiceDesc} {
			var names []string
			for _, m := range s.Methods {
				names = append(names, m.MethodName)
			}
			for _, m := range s.Streams {
				names = append(names, m.StreamName)
			}
			for _, name := range names {
				body := []byte{}
				if strings.HasPrefix(name, "InvokeTool") {
					body = call
				}
				// A stream that ends without a message is an RPC like the others.
				var header metadata.MD
				err := conn.Invoke(ctx, "/"+s.ServiceName+"/"+name, body, new(any), grpc.Header(&header))
				if got := status.Code(err); (got == codes.ResourceExhausted) == free[name] {
					t.Errorf("%s: %v", name, err)
				}
				want := []string{none, policy}
				if free[name] {
					want = nil
				}
				if got := append(header.Get("ratelimit"), header.Get("ratelimit-policy")...); !slices.Equal(got, want) {
					t.Errorf("%s: %q", name, got)
				}
			}
		}
	})

	t.Run("MCP", func(t *testing.T) {
		post := func(version, method, params string, more ...string) string {
			t.Helper()
			message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
			a := ann.do("POST", "/mcp", message, append(more, "Accept", mcpAccept, "Mcp-Protocol-Version", version)...)
			left, limit := a.header.Get("RateLimit"), a.header.Get("RateLimit-Policy")
			if refused := strings.Contains(a.body, "E3801"); refused && (left != none || limit != policy) || !refused && left != "" {
				t.Errorf("%s: %q, %q of %s", method, left, limit, a.body)
			}
			return a.body
		}
		modern := func(method, params string, more ...string) string {
			meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
			if params != "" {
				meta += ","
			}
			return post("2026-07-28", method, "{"+meta+params+"}", append(more, "Mcp-Method", method)...)
		}
		for i, method := range []string{"tools/list", "tools/call"} {
			fresh := as(t, many, many.Key("default", fmt.Sprint("mcp", i), "agent"))
			message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"name":"std__echo"}}`, method)
			if left := fresh.do("POST", "/mcp", message, "Accept", mcpAccept, "Mcp-Protocol-Version", "2025-11-25").want(t, 200).header.Get("RateLimit"); left != `"agent";r=2;t=20` {
				t.Errorf("%s: RateLimit %q", method, left)
			}
		}
		const limited = "E3801"
		// Those of its own revisions, and those that the other ones know.
		legacy := map[string]bool{"initialize": true, "ping": true, "logging/setLevel": true, "resources/subscribe": true, "resources/unsubscribe": true}
		sent := map[string]bool{"tools/call": true, "roots/list": true, "sampling/createMessage": true, "elicitation/create": true} // below, or sent to clients
		n := 0
		for _, method := range mcpMethods(t) {
			if sent[method] {
				continue
			}
			n++
			var body string
			if legacy[method] {
				body = post("2025-11-25", method, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`)
			} else {
				body = modern(method, `"name":"x","uri":"x:y"`, "Mcp-Name", map[bool]string{true: "x:y", false: "x"}[strings.HasPrefix(method, "resources/")])
			}
			if strings.Contains(body, limited) == (method == "ping") {
				t.Errorf("%s: %s", method, body)
			}
		}
		if n < 15 {
			t.Errorf("only %d methods are known", n)
		}
		for _, name := range []string{"std__echo", "find_tools", "describe_tool", "call_tool", "get_invocation"} {
			body := modern("tools/call", fmt.Sprintf(`"name":%q,"arguments":{"tool_id":"std.echo","arguments":{}}`, name), "Mcp-Name", name)
			if strings.Contains(body, limited) == (name == "get_invocation") {
				t.Errorf("tools/call of %s: %s", name, body)
			}
		}
	})
}

// mcpMethods are the constants of package mcp that name methods.
func mcpMethods(t *testing.T) (all []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../mcp/names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Method") && len(v.Values) == 1 {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok {
				name, _ := strconv.Unquote(lit.Value)
				all = append(all, name)
			}
		}
		return true
	})
	return all
}
