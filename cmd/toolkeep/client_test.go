package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestLostAnswer: a server that ends after it read a request may have acted on it.
func TestLostAnswer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		conn.Close()
	}))
	defer s.Close()
	c := &client{base: s.URL, tls: &clientTLS{}, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	for method, want := range map[string]string{"POST": "may have taken effect", "DELETE": "may have taken effect", "GET": "does not answer"} {
		_, err := c.do(t.Context(), method, "/api/v1/tools/invoke", map[string]any{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", method, err, want)
		}
	}
	s.Close()
	if _, err := c.do(t.Context(), "POST", "/", nil); err == nil || strings.Contains(err.Error(), "may have taken effect") {
		t.Errorf("nothing was sent, and the answer is %v", err)
	}
}
