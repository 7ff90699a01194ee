package toolkeeptest_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// A key that requires signatures calls tools over MCP with the signature of the call alone in _meta. It is
// none for what is no call, and nothing passes that it does not cover; which tools there are is told to
// those alone who sign.
func TestSignedCallsOverMCP(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"log.level": "DEBUG", "access.agent_failures": "-1"}})
	made := admin(t, k).do("POST", "/api/v1/keys", `{"subject":"runtime","roles":["agent"],"require_signature":true}`).want(t, 201)
	key, secret := made.text(t, "secret"), made.text(t, "signing_secret")
	n, used := 0, []string{}
	meta := func(tool, parameters string) string {
		n++
		now, id, digest := strconv.FormatInt(time.Now().Unix(), 10), fmt.Sprint("request-", n), sha256.Sum256([]byte(parameters))
		m := hmac.New(sha256.New, []byte(secret))
		fmt.Fprintf(m, "L03-HMAC-SHA256\n%s\n%s\n%s\nruntime\n%x", now, id, tool, digest)
		used = append(used, hex.EncodeToString(m.Sum(nil)))
		return fmt.Sprintf(`"_meta":{"toolkeep/signature":%q,"toolkeep/signature-timestamp":%q,"toolkeep/request-id":%q}`, used[len(used)-1], now, id)
	}
	call := func(name, arguments, more string) string {
		if more != "" {
			more = "," + more
		}
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + more + `}}`
	}
	c := as(t, k, key)
	once := call("std__echo", `{"b":2,"a":1}`, meta("std.echo", `{"a":1,"b":2}`))
	wrong := func(s string) string { return strings.Replace(s, `signature":"`, `signature":"0`, 1) }
	for _, x := range []struct {
		name, message string
		want          toolkeep.Code // "" is a result without an error
	}{
		{"a signed call", once, ""},
		{"again", once, toolkeep.ReplayDetected},
		{"unsigned", call("std__echo", `{"a":1}`, ""), toolkeep.SignatureInvalid},
		{"with other arguments", call("std__echo", `{"a":2}`, meta("std.echo", `{"a":1}`)), toolkeep.SignatureInvalid},
		{"with another tool", call("std__uuid", `{}`, meta("std.echo", `{}`)), toolkeep.SignatureInvalid},
		{"in another's name", call("std__echo", `{"a":1}`, strings.Replace(meta("std.echo", `{"a":1}`), `{"`, `{"toolkeep/agent-id":"root","`, 1)), toolkeep.SignatureInvalid},
		{"of a former time", call("std__echo", `{"a":1}`, strings.Replace(meta("std.echo", `{"a":1}`), `timestamp":"1`, `timestamp":"0`, 1)), toolkeep.TimestampInvalid},
		{"without the signature itself", call("std__echo", `{"a":1}`, `"_meta":{"toolkeep/request-id":"7"}`), toolkeep.SignatureInvalid},
		{"a signature that is no text", call("std__echo", `{"a":1}`, `"_meta":{"toolkeep/signature":7}`), toolkeep.MalformedRequest},
		{"by its id", call("call_tool", `{"tool_id":"std.echo","arguments":{"a":5}}`, meta("std.echo", `{"a":5}`)), ""},
		{"by its id, altered", call("call_tool", `{"tool_id":"std.echo","arguments":{"a":6}}`, meta("std.echo", `{"a":5}`)), toolkeep.SignatureInvalid},
		{"an unknown tool", call("no__such", `{"a":1}`, meta("no.such", `{"a":1}`)), toolkeep.ToolNotFound},
		{"an unknown tool, wrongly signed", call("std__ecko", `{"a":1}`, wrong(meta("std.ecko", `{"a":1}`))), toolkeep.SignatureInvalid},
		{"a search", call("find_tools", `{"query":"echo"}`, meta("find_tools", `{"query":"echo"}`)), toolkeep.SignatureInvalid},
		{"a list", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta("tools/list", `{}`) + `}}`, toolkeep.SignatureInvalid},
		{"a notification", `{"jsonrpc":"2.0","method":"notifications/initialized","params":{` + meta("x", `{}`) + `}}`, toolkeep.SignatureInvalid},
		{"in a batch", `[` + call("std__echo", `{"a":8}`, meta("std.echo", `{"a":8}`)) + `]`, toolkeep.SignatureInvalid},
	} {
		a := c.do("POST", "/mcp/all", x.message, "Accept", mcpAccept)
		if x.want == "" && (a.status != 200 || strings.Contains(a.body, `"isError":true`) || strings.Contains(a.body, `"error"`)) || x.want != "" && !strings.Contains(a.body, string(x.want)) {
			t.Errorf("%s: %s, want %s", x.name, a, x.want)
		}
		if x.want == toolkeep.SignatureInvalid && strings.Contains(a.body, "did you mean") {
			t.Errorf("%s tells of tools: %s", x.name, a)
		}
	}
	modern := func(more string) answer {
		message := call("std__echo", `{"a":9}`, more+strings.TrimSuffix(meta("std.echo", `{"a":9}`), "}")+
			`,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`)
		return c.do("POST", "/mcp/all", message, "Accept", mcpAccept, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "std__echo")
	}
	if a := modern(""); a.status != 200 || !strings.Contains(a.body, `"structuredContent"`) {
		t.Errorf("of revision 2026-07-28: %s", a)
	}
	for _, answers := range []string{`"requestState":"x",`, `"inputResponses":{"q1":{"action":"accept"}},`, `"inputResponses":null,`} {
		if a := modern(answers); !strings.Contains(a.body, "E3404") {
			t.Errorf("an answer to a question, which the signature does not cover: %s", a)
		}
	}
	// Where none is demanded, one that is sent is verified all the same.
	other := as(t, k, k.Key("default", "other", "agent"))
	if a := other.do("POST", "/mcp/all", call("std__echo", `{"a":1}`, meta("std.echo", `{"a":1}`)), "Accept", mcpAccept); !strings.Contains(a.body, "E3404") {
		t.Errorf("a signature that this caller cannot make: %s", a)
	}
	k.Close()
	for _, helps := range append(used, secret, key) {
		if strings.Contains(k.Log(), helps) {
			t.Error("the log helps a forger")
		}
	}
}
