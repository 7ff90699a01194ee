package config

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/reload"
)

// writeCertificate writes a self-signed certificate and its key.
func writeCertificate(t *testing.T, files TLS, name string, from, to time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(files.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(files.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func tlsFiles(t *testing.T) TLS {
	dir := t.TempDir()
	return TLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
}

// TestOldestTLS: 1.3 unless tls.min says 1.2.
func TestOldestTLS(t *testing.T) {
	for _, x := range []struct {
		min     string
		highest uint16
		ok      bool
	}{
		{"", tls.VersionTLS13, true}, {"", tls.VersionTLS12, false}, {"1.3", tls.VersionTLS12, false},
		{"1.2", tls.VersionTLS12, true}, {"1.2", tls.VersionTLS11, false},
	} {
		files := tlsFiles(t)
		files.Min = x.min
		writeCertificate(t, files, "one", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		c, err := files.Server(nil)
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		defer here.Close()
		defer there.Close()
		served := make(chan error, 1)
		go func() { served <- tls.Server(there, c.Config).Handshake() }()
		client := tls.Client(here, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: x.highest})
		err = client.Handshake()
		here.Close()
		<-served
		if (err == nil) != x.ok {
			t.Errorf("tls.min %q, a client up to %s: %v", x.min, tls.VersionName(x.highest), err)
		}
	}
}

// TestCertificateReloads: a renewed certificate is used without a restart; one that no
// client accepts, or that is half written, is not.
func TestCertificateReloads(t *testing.T) {
	files, now := tlsFiles(t), time.Now()
	writeCertificate(t, files, "one", now.Add(-time.Hour), now.Add(time.Hour))
	var log bytes.Buffer
	r, err := reload.Open(files.pair(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		t.Helper()
		return r.Get().Leaf.Subject.CommonName
	}
	writeCertificate(t, files, "number two", now.Add(-time.Hour), now.Add(2*time.Hour))
	if got := shown(); got != "one" {
		t.Errorf("%q before it looked again", got)
	}
	now = now.Add(reload.Every)
	if got := shown(); got != "number two" {
		t.Errorf("%q after it looked again", got)
	}
	for name, spoil := range map[string]func(){
		"expired":      func() { writeCertificate(t, files, "expired one", now.Add(-2*time.Hour), now.Add(-time.Hour)) },
		"half written": func() { writeFile(t, files.Cert, "-----BEGIN CERT") },
		"of no key":    func() { writeFile(t, files.Key, "") },
		"gone":         func() { _ = os.Remove(files.Cert) },
	} {
		spoil()
		log.Reset()
		for look := range 4 {
			now = now.Add(reload.Every)
			if got := shown(); got != "number two" {
				t.Errorf("%s: %q", name, got)
			}
			if look == 0 && log.Len() > 0 {
				t.Errorf("%s: a renewal under way was told: %s", name, log.String())
			}
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "cannot be taken") {
			t.Errorf("%s: the log has %d warnings: %s", name, n, log.String())
		}
		writeCertificate(t, files, "number two", now.Add(-time.Hour), now.Add(2*time.Hour))
		now = now.Add(reload.Every)
		shown()
	}
	writeCertificate(t, files, "the third of them", now.Add(-time.Hour), now.Add(time.Hour))
	now = now.Add(reload.Every)
	if got := shown(); got != "the third of them" {
		t.Errorf("%q after it was mended", got)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestExpiredCertificateIsRefused at the start and by config check, which both ask
// Server.
func TestExpiredCertificateIsRefused(t *testing.T) {
	files := tlsFiles(t)
	writeCertificate(t, files, "one", time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	if _, err := files.Server(nil); err == nil || !strings.Contains(err.Error(), "tls.cert") || !strings.Contains(err.Error(), "expired on") {
		t.Errorf("%v", err)
	}
	writeCertificate(t, files, "one", time.Now().Add(time.Hour), time.Now().Add(2*time.Hour))
	if _, err := files.Server(nil); err == nil || !strings.Contains(err.Error(), "check the clock") {
		t.Errorf("%v", err)
	}
}

// client is a certificate with its key, of an authority of the same name.
func client(t *testing.T, name string) (authority []byte, shown tls.Certificate) {
	t.Helper()
	keys := [2]*ecdsa.PrivateKey{}
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	own := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, keys[0].Public(), keys[0])
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, own, ca, keys[1].Public(), keys[0])
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: keys[1]}
}

// TestClientAuthoritiesReload: another file of authorities holds for new connections without a restart,
// also for those that resume a session; a broken one leaves the last and shows in health.
func TestClientAuthoritiesReload(t *testing.T) {
	for _, least := range []string{"1.2", "1.3"} {
		files, now := tlsFiles(t), time.Now()
		files.ClientCA, files.Min = filepath.Join(t.TempDir(), "ca.pem"), least
		writeCertificate(t, files, "server", now.Add(-time.Hour), now.Add(time.Hour))
		first, one := client(t, "one")
		second, two := client(t, "two!")
		writeFile(t, files.ClientCA, string(first))
		c, err := files.server(nil, func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		listener, err := tls.Listen("tcp", "127.0.0.1:0", c.Config.Clone()) // as listeners do
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		// comes reports whether a client is let in, and whether it resumed a session.
		comes := func(cert tls.Certificate, cache tls.ClientSessionCache) (in, resumed bool) {
			t.Helper()
			served := make(chan error, 1)
			go func() {
				conn, err := listener.Accept()
				if err == nil {
					if err = conn.(*tls.Conn).Handshake(); err == nil {
						_, err = conn.Write([]byte("hello")) // the session's ticket comes before it
					}
					conn.Close()
				}
				served <- err
			}()
			highest := uint16(tls.VersionTLS13)
			if least == "1.2" {
				highest = tls.VersionTLS12
			}
			conn, err := tls.Dial("tcp", listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, MaxVersion: highest, ClientSessionCache: cache,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }})
			if err == nil {
				resumed = conn.ConnectionState().DidResume
				_, _ = conn.Read(make([]byte, 5))
				conn.Close()
			}
			return <-served == nil, resumed
		}
		cache := tls.NewLRUClientSessionCache(1)
		if in, _ := comes(one, cache); !in {
			t.Fatalf("TLS %s: a client of the first authority stayed out", least)
		}
		if in, resumed := comes(one, cache); !in || !resumed {
			t.Fatalf("TLS %s: in %v, resumed %v", least, in, resumed)
		}
		writeFile(t, files.ClientCA, "nothing")
		for range 3 {
			now = now.Add(reload.Every)
			if in, _ := comes(one, nil); !in {
				t.Errorf("TLS %s: a broken file replaced the last one", least)
			}
		}
		if err := c.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "tls.client_ca") {
			t.Errorf("TLS %s: health %v", least, err)
		}
		writeFile(t, files.ClientCA, string(second))
		now = now.Add(reload.Every)
		for name, x := range map[string]struct {
			cert  tls.Certificate
			cache tls.ClientSessionCache
			in    bool
		}{"of the new authority": {two, nil, true}, "of the former one": {one, nil, false}, "of the former one, with a session": {one, cache, false}} {
			if in, _ := comes(x.cert, x.cache); in != x.in {
				t.Errorf("TLS %s: a client %s: %v", least, name, in)
			}
		}
		if err := c.Health(t.Context()); err != nil {
			t.Errorf("TLS %s: health %v", least, err)
		}
	}
}
