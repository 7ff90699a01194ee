package toolkeeptest_test

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/redact"
	servers "github.com/toolkeep/toolkeep/upstream"
)

// TestValuesOfServersAreSealed: no environment or header value is in the store, its
// feed or its files in plain text, whatever it looks like, and none is shown again. The
// program gets them, and also ordinary words among them are taken out of results.
func TestValuesOfServersAreSealed(t *testing.T) {
	t.Parallel()
	k := withServers(t, nil)
	boss := admin(t, k)
	s := offerByStdio(t, definition("remember", "Keeps a text."))
	values := []string{"ordinary-word", "correct horse", "hunter2hunter2", "Bearer abcdefghijkl"}
	for i, v := range values {
		s.env["VALUE_"+string(rune('A'+i))] = v
	}
	boss.put(t, "notes", s)
	values = append(values, s.offer)
	items, _, err := k.Store().Documents(t.Context(), servers.DocumentKind)
	if err != nil || len(items) == 0 {
		t.Fatalf("%v %v", items, err)
	}
	seen := boss.do("GET", "/api/v1/servers", "").body + boss.do("GET", "/api/v1/servers/notes", "").body
	for _, it := range items {
		seen += string(it.Body)
	}
	nowhere := func(text string, values []string) {
		t.Helper()
		for _, v := range values {
			if strings.Contains(text, v) {
				t.Errorf("%q can be read", v)
			}
		}
	}
	nowhere(seen, values)
	if got := boss.call("notes.remember", `{"text":"an `+values[0]+`"}`).output(t); got != "an "+redact.Marker {
		t.Errorf("the result is %q", got)
	}
	k.Close()
	seen = ""
	for name, content := range files(t, k.Dir) {
		if strings.HasPrefix(name, "toolkeep.db") {
			seen += string(content)
		}
	}
	if !strings.Contains(seen, "VALUE_A") {
		t.Error("the files hold no definition")
	}
	nowhere(seen, values[1:]) // the first was in a call
}
