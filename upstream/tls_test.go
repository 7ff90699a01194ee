package upstream

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestTLSErrors: a failed TLS handshake is reported as such, not as a server that is
// down.
func TestTLSErrors(t *testing.T) {
	plain := newWeb(t, nil)
	signed := httptest.NewUnstartedServer(plain)
	signed.Config.ErrorLog = log.New(io.Discard, "", 0)
	signed.StartTLS()
	t.Cleanup(signed.Close)
	for name, url := range map[string]string{
		"a certificate that nobody signed": signed.URL,
		"a server without TLS":             strings.Replace(plain.URL, "http:", "https:", 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, httpConfig(t), httpSpec(url))
			fails(t, s, toolCall(alice(), "x", ""), toolkeep.TLSError)
		})
	}
}
