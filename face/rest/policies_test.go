package rest

import (
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/policy"
)

type fakePolicy struct{}

func (fakePolicy) State() policy.State {
	return policy.State{Source: "/etc/policy", Digest: "sha256:aa", LoadedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Rules: []string{"deny"}, Tests: 2,
		Refused: "p.rego:2: rego_parse_error"}
}
func (fakePolicy) Stats() policy.Stats {
	return policy.Stats{Evaluated: 1, Kept: 2, Denied: 3, Failed: 4}
}

func TestListPolicies(t *testing.T) {
	s := newSystem()
	w := s.do(t, "GET", "/api/v1/policies", "", "Authorization: Bearer operator")
	wantStatus(t, w, 200)
	if got := strings.TrimSpace(w.Body.String()); got != `{"policies":[]}` {
		t.Errorf("without a policy %s", got)
	}
	s.Policy = fakePolicy{}
	w = s.do(t, "GET", "/api/v1/policies", "", "Authorization: Bearer operator")
	wantStatus(t, w, 200)
	for _, want := range []string{`"digest":"sha256:aa"`, `"refused":"p.rego:2: rego_parse_error"`, `"rules":["deny"]`, `"decided":{"evaluated":1,"kept":2,"denied":3,"failed":4}`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("no %s in %s", want, w.Body)
		}
	}
	problem(t, s.do(t, "GET", "/api/v1/policies", ""), toolkeep.PermissionDenied)
}
