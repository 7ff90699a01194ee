package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

func faultsOf(t testing.TB, err error) []toolkeep.Fault {
	t.Helper()
	e := wantCode(t, err, toolkeep.InvalidManifest)
	faults, _ := e.Details["errors"].([]toolkeep.Fault)
	if len(faults) == 0 {
		t.Fatalf("no faults in %v", err)
	}
	return faults
}

func TestParseManifestDefaults(t *testing.T) {
	tool, err := ParseManifest([]byte(`{"schema_version":1,"tool_id":"a.b","version":"1.2.3","description":"d","parameters_schema":{"type":"object"},
		"execution":{"kind":"http"},"rate_limit":{"per_minute":5},"permissions":{"filesystem":[{"path":"/x"}]},"cost":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	m := tool.Manifest
	for _, c := range []struct{ name, got, want any }{
		{"category", m.Category, "utility"},
		{"complexity", m.Complexity, "low"},
		{"side_effects", m.SideEffects, "writes"},
		{"risk", m.Risk, "low"},
		{"timeout_ms", m.Execution.TimeoutMS, int64(30_000)},
		{"cpu", m.Execution.CPUMillicores, 500},
		{"memory", m.Execution.MemoryMB, 1024},
		{"strict", *m.Result.Strict, true},
		{"max_output_bytes", m.Result.MaxOutputBytes, int64(2_000_000)},
		{"retry policy", m.Retry.Policy, "exponential"},
		{"attempts", m.Retry.MaxAttempts, 3},
		{"base delay", *m.Retry.BaseDelayMS, int64(1000)},
		{"max delay", *m.Retry.MaxDelayMS, int64(32_000)},
		{"jitter", m.Retry.Jitter, "full"},
		{"cache", m.Cache.Policy, "none"},
		{"ttl", m.Cache.TTLSeconds, 300},
		{"algorithm", m.RateLimit.Algorithm, "token_bucket"},
		{"mode", m.Permissions.Filesystem[0].Mode, "ro"},
		{"cost model", m.Cost.Model, "fixed"},
		{"id", tool.ID, "a.b"},
		{"version", tool.Version, "1.2.3"},
		{"digest", tool.Digest, canon.Digest(tool.Raw)},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.name, c.got, c.want)
		}
	}
	if bytes.Contains(tool.Raw, []byte("utility")) {
		t.Error("a default entered the canonical form")
	}
}

func TestParseManifestKeepsZeroes(t *testing.T) {
	tool, err := ParseManifest(manifest("a.b", "1.0.0", `{"retry":{"base_delay_ms":0,"policy":"none"},"result":{"strict":false}}`))
	if err != nil {
		t.Fatal(err)
	}
	if *tool.Manifest.Retry.BaseDelayMS != 0 || *tool.Manifest.Result.Strict {
		t.Errorf("%+v", tool.Manifest.Retry)
	}
}

func TestParseManifestCanonical(t *testing.T) {
	a, err := ParseManifest(manifest("a.b", "1.0.0", `{"annotations":{"n":1.0,"b":2,"a":[9007199254740991]},"source":{"metadata":{"k":1e3}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, manifest("a.b", "1.0.0", `{"source":{"metadata":{"k":1000}},"annotations":{"a":[9007199254740991],"n":1,"b":2}}`), "", "  "); err != nil {
		t.Fatal(err)
	}
	b, err := ParseManifest(indented.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if a.Digest != b.Digest || !bytes.Equal(a.Raw, b.Raw) {
		t.Errorf("the same manifest has two digests:\n%s\n%s", a.Raw, b.Raw)
	}
	if k := a.Manifest.Source.Metadata["k"]; k != json.Number("1000") {
		t.Errorf("a number in free-form metadata is %T %v", k, k)
	}
}

// TestParseManifestShares: a catalogue keeps one copy of each schema.
func TestParseManifestShares(t *testing.T) {
	tool, err := ParseManifest([]byte(`{"parameters_schema": {"type": "object", "title": "x"}, "version": "1.2.3", "tool_id": "a.b",
		"description": "result_schema", "result_schema": {"type": "string"}, "execution": {"kind": "http"}, "schema_version": 1,
		"annotations": {"result_schema": {"type": "string"}}, "checkpoint": {"micro_interval_s": 5}}`))
	if err != nil {
		t.Fatal(err)
	}
	raw := bytes.Clone(tool.Raw)
	m := tool.Manifest
	for want, got := range map[string]json.RawMessage{
		`{"title":"x","type":"object"}`:       m.ParametersSchema,
		`{"type":"string"}`:                   m.ResultSchema,
		`{"result_schema":{"type":"string"}}`: m.Annotations,
		`{"micro_interval_s":5}`:              m.Checkpoint,
	} {
		at := bytes.LastIndex(raw, []byte(want))
		switch {
		case string(got) != want:
			t.Errorf("%s was read as %s", want, got)
		case at < 0 || &got[0] != &tool.Raw[at]:
			t.Errorf("%s lies in memory of its own", want)
		}
		if _ = append(got, "overwritten"...); !bytes.Equal(raw, tool.Raw) {
			t.Fatalf("what is added to %s overwrites the manifest", want)
		}
	}
}

func TestParseManifestFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		raw  []byte
		want []string // pointer and rule
		says string
	}{
		{"not JSON", []byte(`{`), []string{" json"}, ""},
		{"duplicate key", []byte(`{"tool_id":"a.b","tool_id":"a.c"}`), []string{"/tool_id json"}, ""},
		{"bad UTF-8", []byte("{\"a\":\"\xff\"}"), nil, ""},
		{"not an object", []byte(`[]`), []string{" type"}, ""},
		{"too large", bytes.Repeat([]byte(" "), MaxManifestBytes+1), []string{" size"}, "1048577 bytes"},
		{"too deep", []byte(strings.Repeat("[", 70) + strings.Repeat("]", 70)), nil, ""},
		{"missing everything", []byte(`{}`), nil, "required"},
		{"short version", manifest("a.b", "1.2"), []string{"/version semver"}, `"1.2"`},
		{"version with v", manifest("a.b", "v1.2.3"), []string{"/version semver"}, ""},
		{"leading zero", manifest("a.b", "1.02.3"), []string{"/version semver"}, ""},
		{"endless version", manifest("a.b", "1.2.3-"+strings.Repeat("a", 200)), []string{"/version semver"}, "at most 128"},
		{"bad id", manifest("A.b", "1.0.0"), []string{"/tool_id pattern"}, ""},
		{"unknown property", manifest("a.b", "1.0.0", `{"colour":1}`), nil, "colour"},
		{"schema does not compile", manifest("a.b", "1.0.0", `{"parameters_schema":{"type":"object","properties":{"x":{"type":"strin"}}}}`), nil, "cannot be used"},
		{"reference out", manifest("a.b", "1.0.0", `{"result_schema":{"$ref":"file:///etc/passwd"}}`), nil, "cannot be used"},
		{"not an object schema", manifest("a.b", "1.0.0", `{"parameters_schema":{"type":"string"}}`), []string{"/parameters_schema type"}, "object"},
		{"not an object by reference", manifest("a.b", "1.0.0", `{"parameters_schema":{"$ref":"#/$defs/x","$defs":{"x":{"type":"array"}}}}`), []string{"/parameters_schema type"}, ""},
		{"false", manifest("a.b", "1.0.0", `{"parameters_schema":false}`), []string{"/parameters_schema type"}, ""},
		{"pointer", manifest("a.b", "1.0.0", `{"redact":["/ok","","a","/a~2"],"result":{"sensitive_fields":["x"]}}`),
			[]string{"/redact/2 json-pointer", "/redact/3 json-pointer", "/result/sensitive_fields/0 json-pointer"}, ""},
		{"jq", manifest("a.b", "1.0.0", `{"result":{"transform":".a |"}}`), []string{"/result/transform jq"}, ""},
		{"secret scheme", manifest("a.b", "1.0.0", `{"auth":[{"type":"bearer","secret":"http://x"},{"type":"none","settings":{"also":[{"type":"basic","secret":"vault://"}]}}]}`),
			[]string{"/auth/0/secret secret-reference", "/auth/1/settings/also/0/secret secret-reference"}, `"http"`},
		{"credentials", manifest("a.b", "1.0.0", `{"permissions":{"credentials":["named","ftp://x"]}}`), []string{"/permissions/credentials/1 secret-reference"}, ""},
		{"cache forever", manifest("a.b", "1.0.0", `{"side_effects":"writes","cache":{"policy":"forever"}}`), []string{"/cache/policy cache"}, ""},
		{"range", manifest("a.b", "1.0.0", `{"compatibility_range":"newest"}`), []string{"/compatibility_range range"}, ""},
		{"own fallback", manifest("a.b", "1.0.0", `{"fallback":"a.b@1"}`), []string{"/fallback reference"}, ""},
		{"fallback", manifest("a.b", "1.0.0", `{"fallback":"nothing"}`), []string{"/fallback reference"}, ""},
		{"example", manifest("a.b", "1.0.0", `{"examples":[{"scenario":"good","input":{"city":"Paris"}},{"scenario":"bad one","input":{"city":[]}},{"scenario":"worse","input":3}]}`),
			[]string{"/examples/1/input/city type", "/examples/2/input example"}, `"bad one"`},
		{"huge number", manifest("a.b", "1.0.0", `{"annotations":{"x":[9007199254740993]}}`), []string{"/annotations/x/0 json"}, ""},
		{"number for a field", manifest("a.b", "1.0.0", `{"execution":{"kind":"http","memory_mb":1e30}}`), []string{"/execution/memory_mb type"}, ""},
		{"everything at once", manifest("a.b", "1", `{"risk":"huge","redact":["x"],"fallback":"?"}`),
			[]string{"/fallback reference", "/redact/0 json-pointer", "/risk enum", "/version semver"}, "4 faults"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseManifest(c.raw)
			faults := faultsOf(t, err)
			var got []string
			for _, f := range faults {
				got = append(got, f.Pointer+" "+f.Rule)
				if f.Message == "" {
					t.Errorf("%s has no message", f.Pointer)
				}
			}
			if c.want != nil && !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if text := err.Error() + fmt.Sprint(faults); !strings.Contains(text, c.says) {
				t.Errorf("%q is not in %s", c.says, text)
			}
		})
	}
}

func TestParseManifestNeverRepeatsASecret(t *testing.T) {
	_, err := ParseManifest(manifest("a.b", "1.0.0", `{"auth":[{"type":"bearer","secret":"sk-live-4711"}]}`))
	if text := fmt.Sprint(err, faultsOf(t, err)); strings.Contains(text, "4711") {
		t.Error(text)
	}
}

func TestParseManifestAccepts(t *testing.T) {
	for _, extra := range []string{
		`{"parameters_schema":true}`,
		`{"parameters_schema":{}}`,
		`{"parameters_schema":{"type":["object","null"]}}`,
		`{"parameters_schema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}}`,
		`{"parameters_schema":{"$ref":"#/$defs/x","$defs":{"x":{"$ref":"#/$defs/x"}}}}`,
		`{"examples":[{"scenario":"coerced","input":{"n":"3"}}],"parameters_schema":{"type":"object","properties":{"n":{"type":"integer"},"m":{"type":"string","default":"x"}},"required":["n","m"]}}`,
		`{"cache":{"policy":"forever"}}`,
		`{"fallback":"capability:weather"}`,
		`{"fallback":"other.tool@^1"}`,
		`{"x-vendor":{"anything":[1]},"annotations":{"y":null}}`,
		`{"execution":{"kind":"http","timeout_ms":1.0e3}}`,
	} {
		if _, err := ParseManifest(manifest("a.b", "1.0.0", extra)); err != nil {
			t.Errorf("%s: %v %v", extra, err, faultsOf(t, err))
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add(manifest("a.b", "1.0.0"))
	f.Add(manifest("a.b", "1.0.0-x+y", `{"examples":[{"scenario":"s","input":{}}],"auth":[{"type":"none","settings":{"also":[{"secret":"env://X"}]}}]}`))
	f.Add([]byte(`{"parameters_schema":{"$ref":"#"},"version":1,"auth":{},"redact":3,"examples":[3],"cache":[],"result":[]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		tool, err := ParseManifest(raw)
		if err != nil {
			faultsOf(t, err)
			return
		}
		again, err := ParseManifest(tool.Raw)
		if err != nil {
			t.Fatalf("the canonical form is refused: %v", err)
		}
		if again.Digest != tool.Digest {
			t.Errorf("the digest changed from %s to %s", tool.Digest, again.Digest)
		}
		if c := Compare(tool, again); c.Bump != BumpNone {
			t.Errorf("differs from itself: %+v", c)
		}
	})
}
