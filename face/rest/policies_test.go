package rest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/control/policies"
)

// fakePolicies answers with what it was asked.
type fakePolicies []policies.Policy

func (f fakePolicies) List(*toolkeep.Principal) ([]policies.Policy, error) { return f, nil }

func (fakePolicies) Who(_ context.Context, p *toolkeep.Principal, tool, version string, offset, limit int) (*policies.Rights, error) {
	return &policies.Rights{List: []policies.Right{{Roles: []string{"r"}, Decision: policies.Denied, ToolID: tool, ToolVersion: version, Reason: fmt.Sprint(p.Subject, offset, limit)}}, Total: 7}, nil
}

func (fakePolicies) What(_ context.Context, p *toolkeep.Principal, subject, keyID string, offset, limit int) (*policies.Rights, error) {
	if subject == "nobody" {
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "no key")
	}
	return &policies.Rights{List: []policies.Right{{Roles: []string{}, Decision: policies.Allowed, Subject: subject, KeyID: keyID, Reason: fmt.Sprint(p.Subject, offset, limit)}}, Total: 8, Reads: []string{"arguments"}}, nil
}

func (fakePolicies) Explain(_ context.Context, p *toolkeep.Principal, subject, keyID string, c toolkeep.Call) ([]policies.Explained, error) {
	return []policies.Explained{{KeyID: keyID, Subject: subject, Roles: []string{"agent"}, Scope: []string{}, Explanation: map[string]any{"tool": c.Tool + "@" + c.Range, "parameters": string(c.Arguments)}}}, nil
}

func (fakePolicies) Replay(_ context.Context, _ *toolkeep.Principal, files map[string]string, last int) (*policies.Replay, error) {
	return &policies.Replay{Digest: files["a/p.rego"], Calls: last, Changed: []policies.Changed{}, Unknown: []policies.NotReplayed{}}, nil
}

func TestExplainAs(t *testing.T) {
	s := newSystem()
	w := s.do(t, "POST", "/api/v1/policies/explain", `{"subject":"bot","key_id":"k1","tool_id":"a.b","tool_version":"^1","parameters":{"n":9007199254740993}}`)
	wantStatus(t, w, 200)
	if want := `{"explanations":[{"key_id":"k1","subject":"bot","roles":["agent"],"scope":[],"explanation":{"parameters":"{\"n\":9007199254740993}","tool":"a.b@^1"}}]}`; w.Body.String() != want {
		t.Errorf("%s, want %s", w.Body, want)
	}
	problem(t, s.do(t, "POST", "/api/v1/policies/explain", `{"subject":"bot"}`), toolkeep.MissingParameter)
	problem(t, s.do(t, "POST", "/api/v1/policies/explain", `{"subject":"bot","tool_id":"a.b"}`, "Authorization: Bearer agent"), toolkeep.PermissionDenied)
}

func TestPolicies(t *testing.T) {
	s := newSystem()
	s.Policies = fakePolicies{{State: policy.State{Digest: "sha256:aa", Refused: "p.rego:2: rego_parse_error"}, Decided: policies.Decided{Evaluated: 1, Kept: 2, Denied: 3, Failed: 4}}}
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "", "", `"digest":"sha256:aa"`},
		{"GET", "", "", `"refused":"p.rego:2: rego_parse_error"`},
		{"GET", "", "", `"decided":{"evaluated":1,"kept":2,"denied":3,"failed":4}`},
		{"GET", "/who?tool_id=a.b&tool_version=%5E1&page=3&page_size=2", "", `"tool_id":"a.b","tool_version":"^1","decision":"denied","reason":"admin4 2"}],"total_count":7,"page":3,"page_size":2`},
		{"GET", "/what?subject=bot%2F1&key_id=k", "", `"key_id":"k","subject":"bot/1"`},
		{"GET", "/what?subject=bot", "", `"reads":["arguments"],"total_count":8`},
		{"POST", "/replay", `{"files":{"a/p.rego":"package toolkeep"},"last":5}`, `"digest":"package toolkeep","calls":5`},
		{"POST", "/replay", `{"files":{}}`, `"calls":100,"same":0,"not_asked":0,"changed":[],"not_replayed":[]`},
	} {
		w := s.do(t, c.method, "/api/v1/policies"+c.path, c.body)
		wantStatus(t, w, 200)
		if !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: no %s in %s", c.path, c.want, w.Body)
		}
	}
	problem(t, s.do(t, "GET", "/api/v1/policies/who", ""), toolkeep.MissingParameter)
	problem(t, s.do(t, "GET", "/api/v1/policies/what?subject=nobody", ""), toolkeep.ResourceNotFound)
	problem(t, s.do(t, "POST", "/api/v1/policies/replay", `{"files":{},"last":1001}`), toolkeep.InvalidParameters)
}
