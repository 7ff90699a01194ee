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
		go func() { served <- tls.Server(there, c).Handshake() }()
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
	r := &reloaded{cert: files.Cert, key: files.Key, now: func() time.Time { return now }, log: slog.New(slog.NewTextHandler(&log, nil))}
	if _, err := r.load(); err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		t.Helper()
		pair, err := r.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Subject.CommonName
	}
	writeCertificate(t, files, "number two", now.Add(-time.Hour), now.Add(2*time.Hour))
	if got := shown(); got != "one" {
		t.Errorf("%q before it looked again", got)
	}
	now = now.Add(reloadEvery)
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
			now = now.Add(reloadEvery)
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
		now = now.Add(reloadEvery)
		shown()
	}
	writeCertificate(t, files, "the third of them", now.Add(-time.Hour), now.Add(time.Hour))
	now = now.Add(reloadEvery)
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
