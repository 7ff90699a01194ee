package audit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
)

func TestOCSF(t *testing.T) {
	line, err := audit.OCSF([]byte(`{"specversion":"1.0","id":"i","type":"ai.agent.tool.authorization_denied","time":"2026-03-01T12:00:00.5Z","tenantid":"t","chainnumber":7,
		"data":{"agent_did":"a","tool_id":"ns.tool","tool_version":"1.0.0","decision":"refused","error_code":"E3201","message":"no","face":"rest","ip_address":"192.0.2.7","user_agent":"robot/1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"class_uid": 6003.0, "category_uid": 6.0, "type_uid": 600399.0, "time": 1772366400500.0, "status_id": 2.0, "status_code": "E3201", "severity_id": 1.0} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	actor := got["actor"].(map[string]any)["user"].(map[string]any)
	if actor["uid"] != "a" || got["api"].(map[string]any)["operation"] != "ns.tool" || got["metadata"].(map[string]any)["tenant_uid"] != "t" {
		t.Errorf("got %s", line)
	}
	from, request := got["src_endpoint"].(map[string]any), got["http_request"].(map[string]any)
	if from["ip"] != "192.0.2.7" || from["name"] != "rest" || request["user_agent"] != "robot/1" {
		t.Errorf("got %s", line)
	}
	// What is no address has no place in it.
	line, err = audit.OCSF([]byte(`{"id":"i","type":"ai.agent.tool.failed","data":{"agent_did":"a","ip_address":"@"}}`))
	if err != nil || strings.Contains(string(line), `"ip"`) || strings.Contains(string(line), "http_request") {
		t.Errorf("got %s, %v", line, err)
	}
	// An event's own words are no outcome, but those of a decision are.
	for decision, want := range map[string]string{"approved": `"status":"Success"`, "denied": `"status":"Failure"`, "expired": `"status":"Failure"`} {
		line, err = audit.OCSF([]byte(`{"id":"i","type":"ai.agent.tool.approval.decided","data":{"agent_did":"a","actor_did":"b","decision":"` + decision + `"}}`))
		if err != nil || !strings.Contains(string(line), want) || !strings.Contains(string(line), `"app_uid":"b"`) {
			t.Errorf("%s: got %s, %v", decision, line, err)
		}
	}
	if _, err := audit.OCSF([]byte(`[`)); err == nil {
		t.Error("what is no entry was accepted")
	}
}

// TestEntryOfACall: the entry of a call has what permitted it and the client certificate that it came with.
func TestEntryOfACall(t *testing.T) {
	for want, v := range map[string]toolkeep.Invocation{
		`"decision":"allowed","allowed_by":["role agent, allow rule 1","policy data.toolkeep.allow"]`: {State: toolkeep.CallSucceeded, AllowedRole: "role agent, allow rule 1", AllowedPolicy: "data.toolkeep.allow"},
		`"tls_cert_fingerprint":"sha256:00"`: {State: toolkeep.CallSucceeded, Certificate: "sha256:00"},
		`"decision":"refused","face"`:        {State: toolkeep.CallRefused, Face: "rest"},
	} {
		e, err := audit.NewEntry(&toolkeep.Link{Ref: "i", Tenant: "t"}, &toolkeep.Entry{Call: &v})
		if err != nil || !strings.Contains(string(e.Data), want) {
			t.Errorf("%v: want %s in %s", err, want, e.Data)
		}
	}
}
