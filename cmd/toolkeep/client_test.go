package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
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

// TestEveryToolIsListed: lists are read to their end, and an error on the way is one.
func TestEveryToolIsListed(t *testing.T) {
	const tools = 2450
	broken := false
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, _ := strconv.Atoi(r.FormValue("page"))
		size, _ := strconv.Atoi(r.FormValue("page_size"))
		if broken && page == 3 || r.FormValue("namespace") != "shop" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		var list []map[string]any
		for i := (page - 1) * size; i < min(page*size, tools); i++ {
			list = append(list, map[string]any{"tool_id": fmt.Sprintf("shop.t%d", i)})
		}
		json.NewEncoder(w).Encode(map[string]any{"tools": list, "total_count": tools})
	}))
	defer s.Close()
	c := &client{base: s.URL, tls: &clientTLS{}, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	count := func() (n int, err error) {
		err = c.eachTool(t.Context(), "shop", func(toolSummary) bool { n++; return true })
		return n, err
	}
	if n, err := count(); n != tools || err != nil {
		t.Errorf("%d tools, %v", n, err)
	}
	if ids := c.toolsWith(t.Context(), "shop.t1"); len(ids) != maxCompletions {
		t.Errorf("%d completions", len(ids))
	}
	broken = true
	if n, err := count(); n != 400 || err == nil {
		t.Errorf("%d tools, %v", n, err)
	}
}
