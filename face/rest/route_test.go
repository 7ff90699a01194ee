package rest

import (
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// What is wrong with an input is told in fields: where, and which keyword of JSON
// Schema it breaks.
func TestFaultsOfInputs(t *testing.T) {
	s := newSystem()
	const keys = "/api/v1/keys"
	for _, x := range []struct {
		method, path, body string
		code               toolkeep.Code
		faults             []string // pointer and rule
	}{
		{"GET", keys + "?page=0", "", toolkeep.InvalidParameters, []string{"query.page minimum"}},
		{"GET", keys + "?page=x&page_size=1000", "", toolkeep.InvalidParameters, []string{"query.page type", "query.page_size maximum"}},
		{"GET", keys + "?size=1", "", toolkeep.MalformedRequest, []string{"query.size additionalProperties"}},
		{"GET", "/api/v1/tools/a.b/diff?from=1.0.0", "", toolkeep.MissingParameter, []string{"query required"}},
		{"GET", "/api/v1/invocations?since=yesterday", "", toolkeep.InvalidParameters, []string{"query.since format"}},
		{"GET", "/api/v1/invocations?state=lost", "", toolkeep.InvalidParameters, []string{"query.state.0 enum"}},
		{"POST", keys, `{}`, toolkeep.MissingParameter, []string{" required", " required"}},
		{"POST", keys, `{"subject":"","roles":[]}`, toolkeep.InvalidParameters, []string{"/roles minItems", "/subject minLength"}},
		{"POST", keys, `{"subject":5,"roles":[1],"Name":"x"}`, toolkeep.MalformedRequest, []string{"/Name additionalProperties", "/roles/0 type", "/subject type"}},
		{"POST", keys, `{"subject":"a","roles":["agent"],"expires_at":"tomorrow"}`, toolkeep.InvalidParameters, []string{"/expires_at format"}},
		{"POST", keys, `[]`, toolkeep.InvalidParameters, []string{" type"}},
		{"POST", "/api/v1/tools/retrieval/context", `{"budget":600.0}`, toolkeep.InvalidParameters, []string{"/budget range"}},
	} {
		p := problem(t, s.do(t, x.method, x.path, x.body), x.code)
		var got []string
		for _, f := range p.Details["errors"].([]any) {
			f := f.(map[string]any)
			got = append(got, f["pointer"].(string)+" "+f["rule"].(string))
		}
		if slices.Sort(got); !slices.Equal(got, x.faults) {
			t.Errorf("%s %s: %q, want %q", x.path, x.body, got, x.faults)
		}
	}
}

// Two types of one name would stand in the document as one.
func TestNamesOfTheDocumentAreUnique(t *testing.T) {
	type Problem struct{}
	defer func() {
		if recover() == nil {
			t.Error("a second schema Problem was taken")
		}
	}()
	newSystem().api().components.ref(Problem{})
}
