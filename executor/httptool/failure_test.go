package httptool

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHeaderLimit: a server answers with more headers than permitted.
func TestHeaderLimit(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 100 {
				w.Header().Add("X-Long", strings.Repeat("x", 200))
			}
		}))
		s.EnableHTTP2 = http2
		s.StartTLS()
		defer s.Close()
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		e := New(Config{Egress: egress.PoolConfig{RootCAs: roots, MaxHeaderBytes: 8 << 10}})
		defer e.Close()
		_, err := execute(t, e, manifest(t, s.URL, `{"method":"GET","server":"SERVER","path":"/"}`), `{}`)
		if err == nil || err.Code != toolkeep.InvalidResponse || !strings.Contains(err.Message, "headers") || !strings.Contains(err.Message, "egress.max_header") {
			t.Fatalf("HTTP/2 %t: %v (because of %v)", http2, err, err.Cause)
		}
		if !http2 && !strings.Contains(err.Message, "8192 bytes") {
			t.Error(err.Message)
		}
	}
}
