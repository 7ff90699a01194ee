package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCallWatch: each call is told once when it comes, oldest first, also where more than a page comes at once, and again when
// its state changes.
func TestCallWatch(t *testing.T) {
	t.Parallel()
	var calls []map[string]any // oldest first
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		page, _ := strconv.Atoi(r.FormValue("page"))
		size, _ := strconv.Atoi(r.FormValue("page_size"))
		newest := slices.Clone(calls)
		slices.Reverse(newest)
		from := min((page-1)*size, len(newest))
		_ = json.NewEncoder(w).Encode(map[string]any{"invocations": newest[from:min(from+size, len(newest))]})
	}))
	t.Cleanup(s.Close)
	add := func(n int, state string) {
		for range n {
			calls = append(calls, map[string]any{"invocation_id": fmt.Sprint("c", len(calls)), "state": state})
		}
	}
	var told strings.Builder
	w := &callWatch{a: &app{stderr: &told}, cl: &client{base: s.URL, http: s.Client(), tls: &clientTLS{}}, q: url.Values{}, known: map[string]string{}}
	look := func(pages int, first, last string, n int) {
		t.Helper()
		asked = 0
		got, err := w.look(t.Context())
		if err != nil || len(got) != n || asked != pages || n > 0 && (got[0].InvocationID != first || got[n-1].InvocationID != last) {
			t.Errorf("%d calls on %d pages, want %d on %d: %v, %.300v", len(got), asked, n, pages, err, got)
		}
	}
	look(1, "", "", 0)
	add(300, "succeeded")
	look(4, "c0", "c299", 300) // the first call was the beginning: all that come after it are new
	look(1, "", "", 0)
	add(1, "running")
	look(1, "c300", "c300", 1)
	calls[300]["state"] = "failed"
	add(150, "succeeded")
	look(2, "c300", "c450", 151)
	add(100, "succeeded")
	look(2, "c451", "c550", 100)
	if told.Len() > 0 {
		t.Error(told.String())
	}
	add(watchPage*watchPages+1, "succeeded")
	look(watchPages, "c552", "c1551", watchPage*watchPages)
	if !strings.Contains(told.String(), "more than 1000 calls came within a moment") {
		t.Error(told.String())
	}
}
