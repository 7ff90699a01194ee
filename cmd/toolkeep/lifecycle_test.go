package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestChangeAll: each change names the state that was shown, a tool that went meanwhile is left out, and a server that is gone
// is asked once.
func TestChangeAll(t *testing.T) {
	posted, down := []string{}, false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			var body struct{ State, Expected string }
			if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
				t.Error(err)
			}
			posted = append(posted, strings.TrimPrefix(r.URL.Path, "/api/v1/tools/")+" "+body.State+" "+body.Expected)
			if down {
				panic(http.ErrAbortHandler)
			}
			answerJSON(w, map[string]any{})
		case r.URL.Path == "/api/v1/tools":
			answerJSON(w, map[string]any{"tools": []any{map[string]any{"tool_id": "big.a"}, map[string]any{"tool_id": "big.gone"}, map[string]any{"tool_id": "big.z"}}, "total": 3})
		case strings.Contains(r.URL.Path, "big.gone"):
			w.WriteHeader(http.StatusNotFound)
			answerJSON(w, map[string]any{"code": "E3001", "name": "tool_not_found", "detail": "none"})
		default:
			answerJSON(w, map[string]any{"versions": []any{map[string]any{"version": "1.0.0", "lifecycle": map[string]any{"state": "deprecated"}}, map[string]any{"version": "1.1.0", "lifecycle": map[string]any{"state": "active"}}}})
		}
	}))
	defer s.Close()
	withoutSettings(t)
	t.Setenv("TOOLKEEP_DATA", t.TempDir())
	t.Setenv("TOOLKEEP_URL", s.URL)
	t.Setenv("TOOLKEEP_KEY", "tk_test")
	for _, c := range []struct {
		down bool
		exit int
		want string
	}{
		{false, exitOK, "big.a/versions/1.0.0/state blocked deprecated,big.a/versions/1.1.0/state blocked active,big.z/versions/1.0.0/state blocked deprecated,big.z/versions/1.1.0/state blocked active"},
		{true, exitUnavailable, "big.a/versions/1.0.0/state blocked deprecated"},
	} {
		var stdout, stderr bytes.Buffer
		posted, down = nil, c.down
		exit := run(t.Context(), nil, []string{"lifecycle", "big.*", "blocked", "--reason", "x", "--yes"}, strings.NewReader(""), &stdout, &stderr)
		if got := strings.Join(posted, ","); exit != c.exit || got != c.want {
			t.Errorf("ended with %d, sent %s:\n%s%s", exit, got, &stdout, &stderr)
		}
	}
}
