package rest

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

const fullEnvelope = `{
  "tool_id": "demo.hash", "tool_version": "^1.2", "invocation_id": "inv_1",
  "agent_context": {"agent_did": "did:agent:1", "tenant_id": "t", "user_did": "u", "session_id": "s"},
  "parameters": {"n": 9007199254740993, "a": {"b": [1, 2]}},
  "resource_limits": {"cpu_millicore_limit": null, "timeout_seconds": 1.5},
  "document_context": {"document_refs": [ ], "version_pinning": false, "query": null},
  "checkpoint_config": {"enable_checkpointing": true, "checkpoint_interval_seconds": 30, "resume_from_checkpoint_id": null},
  "execution_options": {"async_mode": true, "priority": "high", "idempotency_key": "k1", "require_approval": true},
  "dry_run": true, "agent_id": "did:agent:1", "request_id": "k1", "skip_cache": true, "cache_override_ttl": 60,
  "timeout_seconds": 1.5, "plan_id": "p", "task_id": "ta", "context": {"plan_id": "p", "task_id": "ta", "env": { }},
  "parent_invocation_id": "par", "capability_token": null
}`

func TestDecodeCallWhole(t *testing.T) {
	h := http.Header{"Idempotency-Key": {"k1"}, "X-Session-Id": {"s"}, "X-User-Id": {"u"},
		"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	c, dry := decodeCall([]byte(fullEnvelope), h)
	if c.Fault != nil {
		t.Fatal(c.Fault)
	}
	want := &toolkeep.Call{
		ID: "inv_1", Tool: "demo.hash", Range: "^1.2", Arguments: []byte(`{"n": 9007199254740993, "a": {"b": [1, 2]}}`),
		Key: "k1", Timeout: 1500 * time.Millisecond, Async: true, Priority: toolkeep.High, RequireApproval: true, SkipCache: true,
		CacheTTL: time.Minute, Session: "s", Plan: "p", Task: "ta", Subject: "did:agent:1", Tenant: "t", User: "u", Parent: "par",
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Face: "rest",
	}
	if !reflect.DeepEqual(c, want) || !dry {
		t.Errorf("got  %+v\nwant %+v\ndry %t", c, want, dry)
	}
	if err := theContract().validate("/components/schemas/InvokeRequest", []byte(fullEnvelope)); err != nil {
		t.Error(err)
	}
}

func TestDecodeCallNullIsAbsent(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"tool_id":"a.b"`)
	for _, f := range envelopeFields[1:] {
		b.WriteString(`,"` + f.name + `":null`)
	}
	b.WriteString("}")
	c, dry := decodeCall([]byte(b.String()), nil)
	if want := (&toolkeep.Call{Tool: "a.b", Face: "rest"}); !reflect.DeepEqual(c, want) || dry {
		t.Errorf("%+v", c)
	}
	if err := theContract().validate("/components/schemas/InvokeRequest", []byte(b.String())); err != nil {
		t.Error(err)
	}
}

func TestDecodeCallFaults(t *testing.T) {
	token := http.Header{"X-Capability-Token": {"x"}}
	for _, x := range []struct {
		name, body string
		header     http.Header
		code       toolkeep.Code
		message    string // a part of it
	}{
		{"empty", ``, nil, toolkeep.MalformedRequest, "not JSON"},
		{"not json", `{tool_id: 1}`, nil, toolkeep.MalformedRequest, "not JSON"},
		{"cut off", `{"tool_id":"a.b","parameters":{`, nil, toolkeep.MalformedRequest, "not JSON at byte"},
		{"array", `[1]`, nil, toolkeep.MalformedRequest, "must be a JSON object"},
		{"two values", `{"tool_id":"a.b"} {}`, nil, toolkeep.MalformedRequest, "after the JSON object"},
		{"no tool", `{"parameters":{}}`, nil, toolkeep.MalformedRequest, "tool_id is missing"},
		{"tool is a number", `{"tool_id":1}`, nil, toolkeep.MalformedRequest, "tool_id must be a string"},
		{"bad UTF-8", "{\"tool_id\":\"a.\xff\"}", nil, toolkeep.InvalidEncoding, "UTF-8"},
		{"bad escape", `{"tool_id":"\ud800"}`, nil, toolkeep.InvalidEncoding, "escape"},
		{"twice", `{"tool_id":"a.b","tool_id":"a.c"}`, nil, toolkeep.InvalidEncoding, "tool_id stands twice"},
		{"twice, escaped", `{"tool_id":"a.b","tool\u005fid":"a.c"}`, nil, toolkeep.InvalidEncoding, "tool_id stands twice"},
		{"twice inside", `{"tool_id":"a.b","agent_context":{"agent_did":"x","agent_did":"x"}}`, nil, toolkeep.InvalidEncoding, "agent_context.agent_did stands twice"},
		{"unknown", `{"tool_id":"a.b","paramters":{}}`, nil, toolkeep.MalformedRequest, "paramters is not known; the nearest known one is parameters"},
		{"unknown inside", `{"tool_id":"a.b","execution_options":{"asyncMode":true}}`, nil, toolkeep.MalformedRequest, "nearest known one is execution_options.async_mode"},
		{"parameters is a list", `{"tool_id":"a.b","parameters":[]}`, nil, toolkeep.MalformedRequest, "parameters must be an object"},
		{"options is a string", `{"tool_id":"a.b","execution_options":"x"}`, nil, toolkeep.MalformedRequest, "execution_options must be an object"},
		{"priority", `{"tool_id":"a.b","execution_options":{"priority":"urgent"}}`, nil, toolkeep.MalformedRequest, "low, normal or high"},
		{"boolean", `{"tool_id":"a.b","skip_cache":"yes"}`, nil, toolkeep.MalformedRequest, "true or false"},
		{"timeout zero", `{"tool_id":"a.b","timeout_seconds":0}`, nil, toolkeep.MalformedRequest, "number of seconds"},
		{"timeout text", `{"tool_id":"a.b","timeout_seconds":"5"}`, nil, toolkeep.MalformedRequest, "number of seconds"},
		{"timeout huge", `{"tool_id":"a.b","timeout_seconds":1e300}`, nil, toolkeep.MalformedRequest, "number of seconds"},
		{"lifetime below", `{"tool_id":"a.b","cache_override_ttl":-1}`, nil, toolkeep.MalformedRequest, "from 0, which is the tool's own lifetime, to 86400"},
		{"lifetime above", `{"tool_id":"a.b","cache_override_ttl":86401}`, nil, toolkeep.MalformedRequest, "to 86400"},
		{"lifetime text", `{"tool_id":"a.b","cache_override_ttl":"60"}`, nil, toolkeep.MalformedRequest, "number of seconds"},
		{"two timeouts", `{"tool_id":"a.b","timeout_seconds":1,"resource_limits":{"timeout_seconds":2}}`, nil, toolkeep.MalformedRequest, "timeout_seconds and resource_limits.timeout_seconds"},
		{"two agents", `{"tool_id":"a.b","agent_id":"x","agent_context":{"agent_did":"y"}}`, nil, toolkeep.MalformedRequest, "agent_id and agent_context.agent_did"},
		{"two plans", `{"tool_id":"a.b","plan_id":"x","context":{"plan_id":"y"}}`, nil, toolkeep.MalformedRequest, "plan_id and context.plan_id"},
		{"two keys", `{"tool_id":"a.b","request_id":"x","execution_options":{"idempotency_key":"y"}}`, nil, toolkeep.InvalidParameters, "request_id and execution_options.idempotency_key mean the same"},
		{"key and header", `{"tool_id":"a.b","request_id":"x"}`, http.Header{"Idempotency-Key": {"y"}}, toolkeep.InvalidParameters, "the header Idempotency-Key and request_id"},
		{"session and header", `{"tool_id":"a.b","agent_context":{"session_id":"x"}}`, http.Header{"X-Session-Id": {"y"}}, toolkeep.MalformedRequest, "session_id"},
		{"cpu limit", `{"tool_id":"a.b","resource_limits":{"cpu_millicore_limit":100}}`, nil, toolkeep.MalformedRequest, "not in this build"},
		{"documents", `{"tool_id":"a.b","document_context":{"document_refs":["doc://x"]}}`, nil, toolkeep.MalformedRequest, "not in this build"},
		{"pinning", `{"tool_id":"a.b","document_context":{"version_pinning":true}}`, nil, toolkeep.MalformedRequest, "not in this build"},
		{"resume", `{"tool_id":"a.b","checkpoint_config":{"resume_from_checkpoint_id":"c"}}`, nil, toolkeep.MalformedRequest, "not in this build"},
		{"interval", `{"tool_id":"a.b","checkpoint_config":{"checkpoint_interval_seconds":60}}`, nil, toolkeep.MalformedRequest, "not in this build"},
		{"env", `{"tool_id":"a.b","context":{"env":{"A":"b"}}}`, nil, toolkeep.MalformedRequest, "not in this build"},
		{"an empty token header", `{"tool_id":"a.b"}`, http.Header{"X-Capability-Token": {""}}, toolkeep.TokenInvalid, "the header X-Capability-Token is empty"},
		{"token and header", `{"tool_id":"a.b","capability_token":"x.y.z"}`, token, toolkeep.InvalidParameters, "two capability tokens that differ, one of them in capability_token"},
		{"signature", `{"tool_id":"a.b"}`, http.Header{"X-Request-Signature": {"x"}}, toolkeep.SignatureInvalid, "not configured"},
	} {
		t.Run(x.name, func(t *testing.T) {
			c, _ := decodeCall([]byte(x.body), x.header)
			if c.Fault == nil || c.Fault.Code != x.code || !strings.Contains(c.Fault.Message, x.message) {
				t.Errorf("fault %v, want %s with %q", c.Fault, x.code, x.message)
			}
		})
	}
}

// What was asked for is known even where a field is wrong.
func TestDecodeCallReadsOnAfterAFault(t *testing.T) {
	c, _ := decodeCall([]byte(`{"nonsense":{"deep":[1]},"tool_id":"a.b","agent_id":"me","execution_options":{"idempotency_key":"k"}}`), nil)
	if c.Fault == nil || c.Tool != "a.b" || c.Subject != "me" || c.Key != "k" {
		t.Errorf("%+v", c)
	}
	if c.Fault.Details["field"] != "nonsense" || c.Fault.Details["nearest"] == "" {
		t.Errorf("%v", c.Fault.Details)
	}
}

// A body stays as it came: the decoder must not write into it, and what it
// remembers must not reach the next call.
func TestDecodeCallLeavesTheBodyAlone(t *testing.T) {
	body := []byte(fullEnvelope)
	first, _ := decodeCall(body, nil)
	args := string(first.Arguments)
	second, _ := decodeCall([]byte(`{"tool_id":"x.y","parameters":{"z":1}}`), nil)
	if string(body) != fullEnvelope || string(first.Arguments) != args || string(second.Arguments) != `{"z":1}` {
		t.Errorf("body or arguments changed: %s %s", first.Arguments, second.Arguments)
	}
}

func FuzzDecodeCall(f *testing.F) {
	f.Add([]byte(fullEnvelope))
	f.Add([]byte(`{"tool_id":"a.b","parameters":{"a":"\ud800"}}`))
	f.Add([]byte(`{"tool_id":"a.b","context":{"env":{"a":[}}}`))
	f.Add([]byte(`{"\u0074ool_id":"a.b"}`))
	f.Add([]byte("nul"))
	f.Fuzz(func(t *testing.T, body []byte) {
		was := string(body)
		c, _ := decodeCall(body, nil)
		if string(body) != was {
			t.Fatal("the body was changed")
		}
		if c.Fault != nil {
			if i := c.Fault.Code.Info(); i.Kind != toolkeep.KindRefusal || c.Fault.Message == "" || !utf8.ValidString(c.Fault.Message) {
				t.Fatalf("%v", c.Fault)
			}
			return
		}
		if c.Tool == "" || len(c.Arguments) > 0 && (c.Arguments[0] != '{' || c.Arguments[len(c.Arguments)-1] != '}') {
			t.Fatalf("%+v", c)
		}
		// What the reader accepts is what the document allows, except for the checks
		// of parameters' inside, which are the pipeline's.
		if err := theContract().validate("/components/schemas/InvokeRequest", body); err != nil && !strings.Contains(err.Error(), "duplicate") {
			t.Fatalf("accepted against the document: %v\n%s", err, body)
		}
	})
}
