package mcp_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/mcp"
)

func TestRevisions(t *testing.T) {
	if s := mcp.Supported(); len(s) != 5 || s[0] != mcp.Latest || s[1] != mcp.LatestLegacy || s[4] != mcp.V20241105 || !slices.IsSortedFunc(s, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Error(s)
	}
	for v, want := range map[string]bool{
		"2026-07-28": true, "2026-07-29": true, "2030-01-01": true,
		"2025-11-25": false, "2024-11-05": false, "": false, "draft": false, "DRAFT-2026": false, "zzzz-zz-zz": false, "2026-07-2": false,
	} {
		if mcp.Modern(v) != want {
			t.Errorf("Modern(%q) = %v", v, !want)
		}
	}
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", "2023-01-01": "2025-11-25", "": "2025-11-25",
	} {
		if got := mcp.Negotiate(asked); got != want {
			t.Errorf("Negotiate(%q) = %q", asked, got)
		}
	}
}

func TestToolName(t *testing.T) {
	long := "namespace-of-thirty-two-letters0." + strings.Repeat("n", 64)
	longer := long[:len(long)-1] + "m"
	for id, want := range map[string]string{
		"weather.current": "weather__current",
		"a.b__c":          "a__b__c",
		"a._b":            "a___b",
		"a-b.C-d_9":       "a-b__C-d_9",
		"a.b.c é":         "a__b_c___", // not a tool id; still a valid name
	} {
		if got := mcp.ToolName(id); got != want {
			t.Errorf("ToolName(%q) = %q, want %q", id, got, want)
		}
	}
	valid := regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	seen := map[string]bool{}
	for _, name := range []string{
		mcp.ToolName(long), mcp.ToolName(longer), mcp.NameWithHash("a.b"), mcp.NameWithHash("a.c"),
		mcp.ToolName("a." + strings.Repeat("n", 61)), // 64 characters fit
		mcp.ToolName("ab." + strings.Repeat("n", 61)),
	} {
		if !valid.MatchString(name) || seen[name] {
			t.Errorf("%q is not a name or stands twice", name)
		}
		seen[name] = true
	}
	if mcp.ToolName(long) != mcp.NameWithHash(long) {
		t.Error("a long id has two names")
	}
	if got := mcp.ToolName("a." + strings.Repeat("n", 61)); got != "a__"+strings.Repeat("n", 61) {
		t.Error(got)
	}
	if got := mcp.NameWithHash("weather.current"); got != "weather__current_7055177c13ca" {
		t.Errorf("the hash changed, and with it names that clients know: %s", got)
	}
}
