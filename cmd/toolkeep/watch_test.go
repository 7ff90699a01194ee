package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// callList is a server with calls, oldest first, whose list can be asked for those in a state.
type callList struct {
	t     *testing.T
	calls []map[string]any
	asked int
	fail  []int // statuses of the next answers
}

func (l *callList) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	l.asked++
	if len(l.fail) > 0 {
		rw.WriteHeader(l.fail[0])
		code := map[int]toolkeep.Code{503: toolkeep.RegistryUnavailable, 429: toolkeep.ConcurrencyLimitExceeded, 401: toolkeep.PermissionDenied}[l.fail[0]]
		fmt.Fprintf(rw, `{"code":%q,"name":"NO","detail":"answer %d"}`, code, l.fail[0])
		l.fail = l.fail[1:]
		return
	}
	page, _ := strconv.Atoi(r.FormValue("page"))
	size, _ := strconv.Atoi(r.FormValue("page_size"))
	newest := slices.DeleteFunc(slices.Clone(l.calls), func(c map[string]any) bool {
		return r.FormValue("state") != "" && c["state"] != r.FormValue("state")
	})
	slices.Reverse(newest)
	from := min((page-1)*size, len(newest))
	_ = json.NewEncoder(rw).Encode(map[string]any{"invocations": newest[from:min(from+size, len(newest))]})
}

func (l *callList) add(n int, state string) {
	for range n {
		at := time.Unix(int64(len(l.calls)), 0)
		l.calls = append(l.calls, map[string]any{"invocation_id": fmt.Sprint("c", len(l.calls)), "state": state, "created_at": at})
	}
}

// watch makes a watch of the list.
func (l *callList) watch(to, told io.Writer, q url.Values) *callWatch {
	s := httptest.NewServer(l)
	l.t.Cleanup(s.Close)
	return &callWatch{a: &app{stdout: to, stderr: told}, cl: &client{base: s.URL, http: s.Client(), tls: &clientTLS{}}, q: q, size: watchPage, every: time.Millisecond, known: map[string]invocationLine{}}
}

// ids looks once and gives the ids that are told.
func (w *callWatch) ids(t *testing.T) (ids []string) {
	t.Helper()
	got, err := w.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range got {
		ids = append(ids, v.InvocationID)
	}
	return ids
}

// TestCallWatchOfAState: where calls leave the state that is asked for, older ones move onto the page and are not new; one
// that comes into the state is told, also if it began before the watch.
func TestCallWatchOfAState(t *testing.T) {
	t.Parallel()
	l := &callList{t: t}
	l.add(300, "running")
	w := l.watch(nil, nil, url.Values{"state": {"running"}})
	told := func(want ...string) {
		t.Helper()
		if got := w.ids(t); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	if got := w.ids(t); len(got) != 100 || got[0] != "c200" {
		t.Fatal(got)
	}
	for _, c := range l.calls[220:290] {
		c["state"] = "succeeded"
	}
	told()
	l.add(1, "running")
	told("c300")
	l.calls[250]["state"] = "running"
	told("c250")
	l.calls[250]["state"] = "failed"
	told()
	for _, c := range l.calls {
		c["state"] = "failed"
	}
	told()
	l.calls[299]["state"] = "running"
	told("c299")
	for range 30 { // more than are remembered, and each is told once
		from := len(l.calls)
		l.add(100, "running")
		if got := w.ids(t); len(got) != 100 || got[0] != fmt.Sprint("c", from) {
			t.Fatalf("%d calls, from %s", len(got), got[0])
		}
	}
	if len(w.known) > watchKnown {
		t.Errorf("%d calls are remembered", len(w.known))
	}
	for _, c := range l.calls[400:] {
		c["state"] = "succeeded"
	}
	told()
}

// TestCallWatchGoesOn: a watch outlives a server that restarts, says so once, and ends with what a repetition cannot mend.
func TestCallWatchGoesOn(t *testing.T) {
	t.Parallel()
	l := &callList{t: t}
	l.add(1, "succeeded")
	var out, told strings.Builder
	w := l.watch(&out, &told, url.Values{})
	w.a.json, w.a.out.form = true, "json"
	if got := w.ids(t); len(got) != 1 {
		t.Fatal(got)
	}
	l.add(1, "failed")
	l.fail = []int{503, 502, 429}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.a.stdout = writerFunc(func(p []byte) (int, error) {
		if n, err := out.Write(p); err != nil || strings.Contains(out.String(), "c1") {
			cancel()
			return n, err
		}
		return len(p), nil
	})
	if err := w.run(ctx, 20); err != nil {
		t.Fatal(err)
	}
	if text := told.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "answer 503; the watch goes on when it answers") || !strings.Contains(text, "the server answers again") {
		t.Error(text)
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Error(out.String())
	}
	l.fail = []int{401}
	if err := w.run(t.Context(), 20); err == nil || !strings.Contains(err.Error(), "answer 401") {
		t.Error(err)
	}
	for range 30 {
		if pause, err := w.pause(&failure{code: exitUnavailable, err: errors.New("gone")}); err != nil || pause > watchRetry {
			t.Errorf("%s, %v", pause, err)
		}
	}
	if w.wait != watchRetry {
		t.Errorf("looks are %s apart", w.wait)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestCallWatchAsksForAPage: the first look is as large as is asked for, an expression that fails on a call leaves what
// was made of those before it, and an error is no document among the calls.
func TestCallWatchAsksForAPage(t *testing.T) {
	l := &callList{t: t}
	l.add(150, "succeeded")
	s := httptest.NewServer(l)
	t.Cleanup(s.Close)
	withoutSettings(t)
	t.Setenv("TOOLKEEP_URL", s.URL)
	t.Setenv("TOOLKEEP_KEY", "tk_x")
	code, out, stderr := toolkeepRun("invocations", "--watch", "--page-size", "150", "--jq", `if .invocation_id == "c149" then error("no") else .invocation_id end`)
	if code != exitToolFailed || strings.Count(out, "\n") != 149 || !strings.HasPrefix(out, "c0\n") || !strings.Contains(stderr, "failed on the answer") {
		t.Errorf("exit %d, %q, %s", code, out, stderr)
	}
	l.fail = []int{503}
	if code, out, stderr := toolkeepRun("invocations", "--watch", "-o", "json"); code != exitUnavailable || out != "" || !strings.Contains(stderr, "answer 503") {
		t.Errorf("exit %d, %q, %s", code, out, stderr)
	}
}

// TestCallWatch: each call is told once when it comes, oldest first, also where more than a page comes at once, and again when
// its state changes.
func TestCallWatch(t *testing.T) {
	t.Parallel()
	l := &callList{t: t}
	var told strings.Builder
	w := l.watch(nil, &told, url.Values{})
	look := func(pages int, first, last string, n int) {
		t.Helper()
		l.asked = 0
		got, err := w.look(t.Context())
		if err != nil || len(got) != n || l.asked != pages || n > 0 && (got[0].InvocationID != first || got[n-1].InvocationID != last) {
			t.Errorf("%d calls on %d pages, want %d on %d: %v, %.300v", len(got), l.asked, n, pages, err, got)
		}
	}
	look(1, "", "", 0)
	l.add(300, "succeeded")
	look(4, "c0", "c299", 300) // the first call was the beginning: all that come after it are new
	look(1, "", "", 0)
	l.add(1, "running")
	look(1, "c300", "c300", 1)
	l.calls[300]["state"] = "failed"
	l.add(150, "succeeded")
	look(2, "c300", "c450", 151)
	l.add(100, "succeeded")
	look(2, "c451", "c550", 100)
	if told.Len() > 0 {
		t.Error(told.String())
	}
	l.add(watchPage*watchPages+1, "succeeded")
	look(watchPages, "c552", "c1551", watchPage*watchPages)
	if !strings.Contains(told.String(), "more than 1000 calls came within a moment") {
		t.Error(told.String())
	}
}
