package catalog

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/contracts"
)

// honoured are the fields of a manifest that have their effect, or that are words for readers, by pointer. A field
// below an entry is covered by it.
var honoured = strings.Fields(`
	/schema_version /tool_id /version /tool_name /verb /description /short_description /explanation /input_guidance
	/category /tags /capabilities /complexity /icons /parameters_schema /result_schema /result /side_effects /idempotent
	/risk /requires_approval /required_roles /permission_levels /permissions /auth /retry /breaker /rate_limit /fallback
	/execution/kind /execution/binding /execution/timeout_ms /execution/attempt_timeout_ms /cache/policy /cache/ttl_s /cache/stale_if_error_s /cache/warm
	/examples /use_cases /common_errors /relationships /release_notes /migration_guide /redact /source /annotations`)

// TestEveryFieldIsHonouredOrListed: a field of the manifest schema has its effect, or publishing warns of it.
func TestEveryFieldIsHonouredOrListed(t *testing.T) {
	var root map[string]any
	if err := json.Unmarshal(contracts.ManifestSchema(), &root); err != nil {
		t.Fatal(err)
	}
	fields := 0
	known := map[string]bool{}
	var walk func(node map[string]any, at string)
	walk = func(node map[string]any, at string) {
		properties, _ := node["properties"].(map[string]any)
		for name, p := range properties {
			here := at + "/" + name
			known[here] = true
			listed := slices.ContainsFunc(unhonoured, func(f unhonouredField) bool { return f.pointer == here })
			switch works := slices.Contains(honoured, here); {
			case works && listed:
				t.Errorf("%s is honoured and listed as not honoured", here)
			case works || listed:
				fields++
			default:
				deeper, _ := p.(map[string]any)
				if deeper["properties"] == nil {
					t.Errorf("%s is neither honoured nor listed in unhonoured: publishing must warn of it", here)
				}
				walk(deeper, here)
			}
		}
	}
	walk(root, "")
	if want := len(honoured) + len(unhonoured); fields != want {
		t.Errorf("%d fields of the schema are known to the two lists, which have %d", fields, want)
	}
}

// TestPublishingWarnsOfWhatIsIgnored: each field that is not honoured is named when it asks for something, and only then;
// what cannot be met refuses the call.
func TestPublishingWarnsOfWhatIsIgnored(t *testing.T) {
	asking := map[string][]string{ // values that ask for something
		"/checkpoint":          {`{}`},
		"/compatibility_range": {`"^1"`}, "/cost": {`{"estimated_usd":0.1}`}, "/document_dependencies": {`[{"document_pattern":"a*"}]`},
		"/execution/bandwidth_mbps": {`1`}, "/execution/cpu_millicores": {`500`}, "/execution/disk_mb": {`100`}, "/execution/memory_mb": {`64`},
		"/execution/sandbox": {`"starlark"`, `"wasm"`, `"process"`, `"gvisor"`, `"microvm"`, `"kubernetes"`},
		"/health":            {`{"interval_s":5}`},
	}
	content := map[string]string{"/document_dependencies": `[]`, "/health": `{"endpoint":"/up"}`,
		"/execution/bandwidth_mbps": `0`, "/execution/disk_mb": `0`, "/execution/sandbox": `"none"`} // ask for nothing
	for _, f := range unhonoured {
		if len(asking[f.pointer]) == 0 {
			t.Errorf("%s has no case here", f.pointer)
		}
		for _, value := range asking[f.pointer] {
			code := f.refused
			if code == "" {
				code = toolkeep.FieldIgnored
			}
			warnings, unmet := publishField(t, f.pointer, value)
			if len(warnings) != 1 || warnings[0].Code != code || !strings.Contains(warnings[0].Message, f.pointer[strings.LastIndex(f.pointer, "/")+1:]) ||
				!slices.Equal(warnings[0].Details["fields"].([]string), []string{f.pointer}) {
				t.Errorf("%s %s: %+v", f.pointer, value, warnings)
			}
			if (unmet != nil) != (f.refused != "") || unmet != nil && unmet.Code != f.refused {
				t.Errorf("%s %s: calls end with %v", f.pointer, value, unmet)
			}
		}
		if value := content[f.pointer]; value != "" {
			if warnings, unmet := publishField(t, f.pointer, value); len(warnings) > 0 || unmet != nil {
				t.Errorf("%s %s asks for nothing: %+v, %v", f.pointer, value, warnings, unmet)
			}
		}
	}
}

// publishField publishes a manifest with one field twice: the warnings must be the same. It returns them, and how calls
// end.
func publishField(t *testing.T, pointer, value string) ([]toolkeep.Warning, *toolkeep.Error) {
	t.Helper()
	c, _, _ := open(t)
	name := strings.Split(pointer[1:], "/")
	more := `{"` + name[0] + `":` + value + `}`
	switch {
	case len(name) == 2 && name[0] == "execution":
		more = `{"execution":{"kind":"http","` + name[1] + `":` + value + `}}`
	case len(name) == 2:
		more = `{"` + name[0] + `":{"` + name[1] + `":` + value + `}}`
	}
	first, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.0.0", more)}, PublishOptions{})
	if err != nil {
		t.Fatalf("%s: %v", more, err)
	}
	again, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.0.0", more)}, PublishOptions{DryRun: true})
	if err != nil || len(again[0].Warnings) != len(first[0].Warnings) {
		t.Errorf("%s once more: %+v, %v", more, again, err)
	}
	v, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	return first[0].Warnings, Unmet(v.Tool.Manifest)
}

// TestStrictWithoutSchema: only strict: true that the manifest itself has demands a schema.
func TestStrictWithoutSchema(t *testing.T) {
	for more, code := range map[string]toolkeep.Code{
		`{}`: "", `{"result":{}}`: "", `{"result":{"strict":false}}`: "", `{"result":{"strict":true},"result_schema":{"type":"object"}}`: "",
		`{"result":{"strict":true}}`: toolkeep.ResultSchemaMissing,
	} {
		c, _, _ := open(t)
		got, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.0.0", more)}, PublishOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		unmet := Unmet(v.Tool.Manifest)
		if code == "" && (unmet != nil || len(got[0].Warnings) > 0) || code != "" && (unmet == nil || unmet.Code != code || len(got[0].Warnings) != 1 || got[0].Warnings[0].Code != code) {
			t.Errorf("%s: %v, %+v; want %q", more, unmet, got[0].Warnings, code)
		}
	}
}
