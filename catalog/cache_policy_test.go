package catalog

import "testing"

// TestCachePolicyOfATime: who says for how long results are kept means to keep them.
func TestCachePolicyOfATime(t *testing.T) {
	const manifest = `{"schema_version":1,"tool_id":"x.y","version":"1.0.0","description":"A tool.","parameters_schema":{"type":"object"},"execution":{"kind":"builtin"},"side_effects":"reads","cache":`
	for cache, want := range map[string]string{`{"ttl_s":60}`: "ttl", `{}`: "none", `{"policy":"none","ttl_s":60}`: "none", `{"policy":"ttl"}`: "ttl", `{"warm":true}`: "none"} {
		tool, err := ParseManifest([]byte(manifest + cache + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := tool.Manifest.Cache.Policy; got != want {
			t.Errorf("%s is kept by the policy %q, want %q", cache, got, want)
		}
	}
}
