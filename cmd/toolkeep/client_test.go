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

// TestMoreOf: the line below a list names the next page where there is one, or may be one.
func TestMoreOf(t *testing.T) {
	for _, c := range []struct {
		page, shown, total int
		least              bool
		want               string
	}{
		{1, 0, 0, false, "toolkeep: none\n"},
		{1, 10, 10, false, ""},
		{2, 10, 30, false, "toolkeep: 11 to 20 of 30; --page 3 shows the next\n"},
		{3, 10, 30, false, "toolkeep: 21 to 30 of 30\n"},
		{4, 0, 30, false, "toolkeep: page 4 is past the end of 30\n"},
		{3, 10, 20, true, "toolkeep: 21 to 30 of 20 or more; --page 4 shows the next\n"},
		{3, 5, 20, true, "toolkeep: 21 to 25 of 20 or more\n"},
	} {
		var text strings.Builder
		(&app{stderr: &text}).moreOf(c.page, 10, c.shown, c.total, c.least, "none")
		if text.String() != c.want {
			t.Errorf("%+v gave %q", c, text.String())
		}
	}
}
