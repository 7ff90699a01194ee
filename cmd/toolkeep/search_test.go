package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSearchSession: the session is sent to the server, for searches and for contexts.
func TestSearchSession(t *testing.T) {
	var path, session string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, session = r.URL.Path, r.Header.Get("X-Session-ID")
		_, _ = io.WriteString(w, `{"data":{"markdown":"tools"}}`)
	}))
	defer s.Close()
	t.Setenv("TOOLKEEP_URL", s.URL)
	t.Setenv("TOOLKEEP_KEY", "k")
	for _, c := range []struct {
		args, path, session string
	}{
		{"search order", "/api/v1/tools/retrieval/search", ""},
		{"search --session order-17 order", "/api/v1/tools/retrieval/search", "order-17"},
		{"search --context order", "/api/v1/tools/retrieval/context", ""},
		{"search --context --session order-17 order", "/api/v1/tools/retrieval/context", "order-17"},
	} {
		path, session = "", ""
		var said strings.Builder
		code := run(t.Context(), func() {}, strings.Fields(c.args), strings.NewReader(""), io.Discard, &said)
		if code != 0 || path != c.path || session != c.session {
			t.Errorf("%s: exit code %d, %s of session %q; %s", c.args, code, path, session, said.String())
		}
	}
}
