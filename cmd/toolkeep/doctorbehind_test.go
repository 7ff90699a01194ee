package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/doctor"
	"github.com/toolkeep/toolkeep/datadir"
)

// TestBehindSendsAKeyToItsServer: the address in a data directory gets a key only on this machine, and only where no other
// user may have written it; TOOLKEEP_URL names a server in place of that.
func TestBehindSendsAKeyToItsServer(t *testing.T) {
	asked := answering(t, `{"status":"UP","tools":[{"tool_id":"a.b","authentication":{"state":"ready"}}],"total_count":1}`)
	address := os.Getenv("TOOLKEEP_URL")
	_, port, _ := strings.Cut(strings.TrimPrefix(address, "http://"), ":")
	data := t.TempDir()
	release, err := datadir.Lock(data)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	own, open := []doctor.Finding{{Check: "data", State: doctor.OK}}, []doctor.Finding{{Check: "data", State: doctor.Warn}}
	for _, c := range []struct {
		name, file, url string
		found           []doctor.Finding
		want            string // "" where the server is asked
	}{
		{"its own", address, "", own, ""},
		{"open to others", address, "", open, "others may write into the data directory"},
		{"another machine", "http://192.0.2.1:8080", "", own, "no key is sent to http://192.0.2.1:8080 without being told"},
		{"named", address, address, open, ""},
		{"named otherwise", address, "http://localhost:" + port, own, ""},
		{"another", "http://127.0.0.1:1", address, own, "names another server"},
		{"another host", "http://127.0.0.1:" + port, "http://192.0.2.1:" + port, own, "names another server"},
	} {
		t.Setenv("TOOLKEEP_URL", c.url)
		if err := (datadir.ServerFile{URL: c.file}).Write(data); err != nil {
			t.Fatal(err)
		}
		*asked = 0
		found := fmt.Sprint((&app{data: data}).checkBehind(t.Context(), c.found))
		if (*asked > 0) != (c.want == "") || !strings.Contains(found, c.want) || c.want == "" && strings.Contains(found, "not looked at") {
			t.Errorf("%s: asked %d times, %s", c.name, *asked, found)
		}
	}

	// The settings name the data directory, as they do for every other check.
	t.Setenv("TOOLKEEP_URL", "")
	if err := (datadir.ServerFile{URL: address}).Write(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, out, told := toolkeepRun("doctor", "--set=data="+data); !strings.Contains(out, "none is missing that 1 tools") {
		t.Errorf("%s%s", out, told)
	}
}

// TestBehindTellsARefusalOnce: what all references are refused for is one line, and one tool that cannot be read ends nothing.
func TestBehindTellsARefusalOnce(t *testing.T) {
	t.Parallel()
	tests := 0
	code := toolkeep.PermissionDenied
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/secrets/test":
			if tests++; code != "" {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, `{"code":%q,"name":"NO","detail":"no"}`, code)
				return
			}
			fmt.Fprint(w, `{"state":"missing"}`)
		case r.URL.Path == "/api/v1/tools":
			fmt.Fprint(w, `{"tools":[{"tool_id":"a.gone","authentication":{"state":"missing"}},{"tool_id":"a.there","authentication":{"state":"missing"}},{"tool_id":"b.one","authentication":{"state":"missing"}},{"tool_id":"b.two","authentication":{"state":"missing"}}],"total_count":4}`)
		case strings.Contains(r.URL.Path, "/b."):
			fmt.Fprint(w, `{"manifest":{"auth":[{"type":"bearer"}]}}`)
		case strings.HasSuffix(r.URL.Path, "a.gone"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"code":"E3001","name":"NO","detail":"gone"}`)
		default:
			fmt.Fprint(w, `{"manifest":{"auth":[{"type":"bearer","secret":"secret://it's"},{"type":"bearer","secret":"secret://b"},{"type":"bearer","secret":"secret://c"}]}}`)
		}
	}))
	t.Cleanup(s.Close)
	look := func(wants ...string) {
		t.Helper()
		b := &behind{cl: &client{base: s.URL, http: s.Client(), tls: &clientTLS{}}, refs: map[string][]string{}, all: map[string]bool{}}
		if err := b.secrets(t.Context()); err != nil {
			t.Fatal(err)
		}
		told := fmt.Sprint(b.found)
		if len(b.found) != len(wants) {
			t.Errorf("%d lines: %s", len(b.found), told)
		}
		for _, want := range wants {
			if !strings.Contains(told, want) {
				t.Errorf("%q is missing: %s", want, told)
			}
		}
	}
	const unnamed = "no secret is named for the bearer of b.one and 1 more" // one line for an API
	look("1 tools that lack a secret could not be read", unnamed, "3 references were not tested: E3201")
	if tests != 1 {
		t.Errorf("%d references were tested", tests)
	}
	code = ""
	look("could not be read", unnamed, `toolkeep secrets set 'it'\''s'`, "secret://b is missing", "secret://c is missing")
}
