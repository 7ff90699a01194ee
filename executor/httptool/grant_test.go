package httptool

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/executortest"
)

// TestCapabilityToken: a token's hosts and ports hold for the first request and for each that
// the upstream leads to, before anything is sent there.
func TestCapabilityToken(t *testing.T) {
	reached := false
	other := serve(t, func(http.ResponseWriter, *http.Request) { reached = true })
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		io.WriteString(w, "end")
	})
	port := func(raw string) int {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := strconv.Atoi(u.Port())
		return n
	}
	e := newExecutor(t)
	m := manifest(t, base, `{"method":"GET","server":"SERVER","path":"/start","parameters":[{"name":"to","in":"query"}]}`)
	m.Permissions.Network = []toolkeep.HostPort{{Host: "127.0.0.1"}}
	tool := executortest.Tool(m)
	if r, err := e.Reach(tool); err != nil || len(r.Hosts) != 1 || r.Hosts[0] != (toolkeep.HostPort{Host: "127.0.0.1", Port: port(base)}) {
		t.Fatalf("%+v %v", r, err)
	}
	grant := func(ports ...int) *toolkeep.Grant {
		return &toolkeep.Grant{Network: &toolkeep.NetworkGrant{Hosts: []string{"127.0.0.1"}, Ports: ports}}
	}
	for name, c := range map[string]struct {
		to    string
		grant *toolkeep.Grant
		code  toolkeep.Code
		sent  bool
	}{
		"its host":          {"/end", grant(port(base)), "", true},
		"another port":      {"/end", grant(1), toolkeep.NetworkDenied, false},
		"no port":           {"/end", grant([]int{}...), toolkeep.NetworkDenied, false},
		"led to another":    {other + "/in", grant(port(base)), toolkeep.NetworkDenied, true},
		"led to an allowed": {other + "/in", grant(port(base), port(other)), "", true},
	} {
		reached = false
		if name == "no port" {
			c.grant.Network.Ports = []int{}
		}
		_, err := e.Execute(t.Context(), &toolkeep.Execution{Tool: tool, Args: map[string]any{"to": c.to}, Grant: c.grant})
		got := toolkeep.AsError(err)
		if (got == nil) != (c.code == "") || got != nil && (got.Code != c.code || got.NothingSent == c.sent) {
			t.Errorf("%s: %v", name, got)
		}
		if want := name == "led to an allowed"; reached != want {
			t.Errorf("%s: the other server was reached: %v", name, reached)
		}
	}
}
