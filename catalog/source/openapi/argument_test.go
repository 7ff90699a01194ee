package openapi

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var takenByProviders = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// checkArguments fails for arguments that model providers refuse.
func checkArguments(t *testing.T, tool PlannedTool) {
	t.Helper()
	var m struct {
		Schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"parameters_schema"`
	}
	if err := json.Unmarshal(tool.Manifest, &m); err != nil {
		t.Fatal(err)
	}
	for name := range m.Schema.Properties {
		if !takenByProviders.MatchString(name) {
			t.Errorf("%s %s: the argument %q is refused by model providers", tool.Method, tool.Path, name)
		}
	}
}

// TestArgumentNames: whatever parameters are called, their arguments' names are unique and taken by
// model providers, and names that are taken stay as they are.
func TestArgumentNames(t *testing.T) {
	odd := []string{"a", "a_2", "a[]", "a[ ]", "[a]", "$a", "a<", "a<=", "a_lte", "é", "e", "", ".", "..", "-", "_", "名", "姓", "\U0001f600", " ",
		strings.Repeat("n", 64), strings.Repeat("n", 65), strings.Repeat("n", 66), strings.Repeat("[", 70), strings.Repeat("n", 62) + "_2", "\xff", "a\tb"}
	var params []*param
	for _, name := range odd {
		for _, in := range []string{"query", "header"} {
			params = append(params, &param{name: name, in: in})
		}
		params = append(params, &param{name: name + "!", in: "query"})
	}
	for i := range 300 {
		params = append(params, &param{name: fmt.Sprintf("%s%d]", strings.Repeat("x", 64), i), in: "query"})
	}
	nameArguments(params)
	seen := map[string]string{}
	for _, p := range params {
		if !takenByProviders.MatchString(p.arg) {
			t.Errorf("%q is called %q", p.name, p.arg)
		}
		if other, twice := seen[p.arg]; twice {
			t.Errorf("%q and %q are both called %q", p.name, other, p.arg)
		}
		seen[p.arg] = p.name
	}
	alone := []*param{{name: "kept", in: "query"}, {name: "[kept]", in: "query"}, {name: "kept.too-1", in: "query"}}
	nameArguments(alone)
	if alone[0].arg != "kept" || alone[1].arg != "kept_2" || alone[2].arg != "kept.too-1" {
		t.Errorf("the names are %q, %q and %q", alone[0].arg, alone[1].arg, alone[2].arg)
	}
}
