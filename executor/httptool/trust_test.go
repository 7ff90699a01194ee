package httptool

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
)

// TestAuthoritiesOfItsOwn: only a tool that brings its server's authority trusts it,
// and then the process's own authorities do not count.
func TestAuthoritiesOfItsOwn(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "in") }))
	defer s.Close()
	own := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	binding := func(ca string) string {
		return `{"method":"GET","server":"SERVER","path":"/","tls":{"ca":` + string(canon.AppendString(nil, ca)) + `}}`
	}
	e := newExecutor(t)
	for range 2 {
		if out, err := execute(t, e, manifest(t, s.URL, binding(own)), `{}`); err != nil || string(out.Body) != "in" {
			t.Fatalf("%v %v", out, err)
		}
	}
	for name, m := range map[string]*toolkeep.Manifest{
		"none of its own": manifest(t, s.URL, `{"method":"GET","server":"SERVER","path":"/"}`),
		"another's":       manifest(t, s.URL, binding(string(grpctest.NewAuthority(t).PEM))),
	} {
		if _, err := execute(t, e, m, `{}`); err == nil || err.Code != toolkeep.TLSError || !err.NothingSent {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, pointer := range map[string]string{
		strings.Replace(binding(own), "SERVER", "http://127.0.0.1:1", 1):             bindings.At + "/tls",
		strings.Replace(binding("no certificate"), "SERVER", "https://127.0.0.1", 1): bindings.At + "/tls/ca",
		`{"method":"GET","server":"https://127.0.0.1","path":"/","tls":{}}`:          bindings.At + "/tls/ca",
	} {
		_, faults := parse(manifest(t, s.URL, text))
		if len(faults) != 1 || faults[0].Pointer != pointer {
			t.Errorf("%.80s: %+v, want one at %s", text, faults, pointer)
		}
	}
}
