package egress

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestIsTLS(t *testing.T) {
	serve := func(c *tls.Config) *httptest.Server {
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.TLS = c
		if c != nil {
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s
	}
	// greet is a server that sends the words and hangs up.
	greet := func(words string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		t.Cleanup(func() { l.Close(); <-done })
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 1024))
				_, _ = io.WriteString(c, words)
				c.Close()
			}
		}()
		return l.Addr().String()
	}
	trusted := serve(&tls.Config{})
	plain := serve(nil)
	gone := httptest.NewServer(nil)
	gone.Close()
	address := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	_, port, _ := net.SplitHostPort(address(trusted))

	for name, c := range map[string]struct {
		address string
		insist  bool // require a client certificate
		want    bool
	}{
		"a certificate that nobody signed": {address(serve(&tls.Config{})), false, true},
		"a certificate for another host":   {"localhost:" + port, false, true},
		"a client without a certificate":   {address(serve(&tls.Config{ClientAuth: tls.RequireAnyClientCert})), true, true},
		"an old server":                    {address(serve(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})), true, true},
		"a server of HTTP":                 {address(plain), true, true},
		"a server of something else":       {greet("220 ready for mail\r\n"), true, true},
		"nobody":                           {address(gone), true, false},
		"a connection that ends":           {greet(""), true, false},
	} {
		config := trusted.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
		if !strings.HasPrefix(c.address, "localhost") {
			config.RootCAs = nil
		}
		config.InsecureSkipVerify = c.insist
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		resp, err := client.Get("https://" + c.address)
		if err == nil {
			resp.Body.Close()
			t.Errorf("%s: it answered", name)
			continue
		}
		for _, err := range []error{err, errors.Join(io.EOF, err)} {
			if got := IsTLS(err); got != c.want {
				t.Errorf("%s: %v, want %v (%v)", name, got, c.want, err)
			}
		}
	}
	if IsTLS(nil) {
		t.Error("no error is one of TLS")
	}
}
