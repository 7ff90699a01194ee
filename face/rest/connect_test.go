package rest

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/caches"
	"github.com/toolkeep/toolkeep/resultcache"
)

// TestConnect: each client's entry has the server's address and one placeholder for the key, and its file is told as each system names it.
func TestConnect(t *testing.T) {
	s := newSystem()
	s.Config.BaseURL = func() string { return "https://tools.example/keep" }
	clients := decode(t, s.do(t, "GET", "/api/v1/connect", "", "Authorization: Bearer agent"))["clients"].([]any)
	if len(clients) < 10 {
		t.Fatalf("%v", clients)
	}
	for _, c := range clients {
		name := c.(map[string]any)["client"].(string)
		m := decode(t, s.do(t, "GET", "/api/v1/connect/"+name+"?view=servers/files", "", "Authorization: Bearer agent"))
		snippet, key := m["snippet"].(string), m["placeholder"].(string)
		if strings.Count(snippet, key) != 1 || !strings.Contains(snippet, "https://tools.example/keep") || !strings.Contains(snippet, "servers/files") || m["command"] != nil {
			t.Errorf("%s: %s", name, snippet)
		}
	}
	for path, want := range map[string]string{
		"claude-desktop":            "~/.config/Claude/claude_desktop_config.json",
		"claude-desktop?os=macos":   "~/Library/Application Support/Claude/claude_desktop_config.json",
		"claude-desktop?os=windows": `%APPDATA%\Claude\claude_desktop_config.json`,
		"codex?os=windows":          `%USERPROFILE%\.codex\config.toml`,
	} {
		if m := decode(t, s.do(t, "GET", "/api/v1/connect/"+path, "")); m["file"] != want || m["command"] == nil {
			t.Errorf("%s: %v", path, m)
		}
	}
	problem(t, s.do(t, "GET", "/api/v1/connect/none", ""), toolkeep.ResourceNotFound)
	problem(t, s.do(t, "GET", "/api/v1/connect/cursor?view=../x", ""), toolkeep.InvalidParameters)
	problem(t, s.do(t, "GET", "/api/v1/connect/cursor?os=plan9", ""), toolkeep.InvalidParameters)
}

// TestListCaches: the numbers are of all tenants, so operators of the home tenant alone see them.
func TestListCaches(t *testing.T) {
	s := newSystem()
	c := resultcache.New(resultcache.Config{})
	t.Cleanup(c.Stop)
	s.Caches = &caches.Caches{Node: "one", Results: c, MostResults: 7}
	problem(t, s.do(t, "GET", "/api/v1/admin/caches", ""), toolkeep.PermissionDenied)
	m := decode(t, s.do(t, "GET", "/api/v1/admin/caches", "", "Authorization: Bearer operator"))
	list := m["caches"].([]any)
	if one := list[0].(map[string]any); m["node"] != "one" || len(list) != 1 || one["cache"] != "results" || one["most_bytes"] != number("7") || one["entries"] != number("0") {
		t.Errorf("%v", m)
	}
}

func TestHoldTool(t *testing.T) {
	s := newSystem()
	const path = "/api/v1/tools/demo.hash/versions/1.2.0/hold"
	w := s.do(t, "PUT", path, `{"reason":"look at it"}`)
	wantStatus(t, w, 200)
	if held, ok := decode(t, w)["lifecycle"].(map[string]any)["held"].(map[string]any); !ok || held["why"] != "look at it" {
		t.Errorf("%s", w.Body)
	}
	w = s.do(t, "DELETE", path, "")
	wantStatus(t, w, 200)
	if len(s.catalog.said) != 2 || s.catalog.said[1] != "demo.hash@1.2.0" {
		t.Errorf("%v", s.catalog.said)
	}
	problem(t, s.do(t, "PUT", path, `{}`), toolkeep.MissingParameter)
	problem(t, s.do(t, "DELETE", path, "", "Authorization: Bearer agent"), toolkeep.PermissionDenied)
}
