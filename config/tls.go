package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Server loads the configured files; it returns nil without TLS. With tls.client_ca a
// handshake requires a client certificate for client authentication, signed by one of
// those CAs.
func (t TLS) Server() (*tls.Config, error) {
	if !t.Enabled() {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("tls.cert, tls.key: the TLS certificate cannot be loaded: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if t.ClientCA == "" {
		return c, nil
	}
	if c.ClientCAs, err = authorities(t.ClientCA, time.Now()); err != nil {
		return nil, fmt.Errorf("tls.client_ca: %w", err)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}

// maxCA bounds a CA file, well above the size for a large organisation.
const maxCA = 4 << 20

// authorities reads a PEM file of CA certificates. Any entry that could not admit a
// client is refused as a mistake; expired ones are accepted as long as one is valid.
func authorities(path string, now time.Time) (*x509.CertPool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxCA {
		return nil, fmt.Errorf("%s is over %d MiB", path, maxCA>>20)
	}
	rest, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool, ended := x509.NewCertPool(), []string(nil)
	n := 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		n++
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("%s: block %d is a %s; the file must hold certificates of authorities alone", path, n, strings.ToLower(block.Type))
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: certificate %d cannot be read: %w", path, n, err)
		case !cert.BasicConstraintsValid || !cert.IsCA:
			return nil, fmt.Errorf("%s: certificate %d (%s) is not an authority's; name the one that signs the clients' certificates", path, n, cert.Subject)
		case now.After(cert.NotAfter):
			ended = append(ended, fmt.Sprintf("%s on %s", cert.Subject, cert.NotAfter.Format(time.DateOnly)))
		}
		pool.AddCert(cert)
	}
	switch {
	case n == 0:
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	case len(ended) == n:
		return nil, errors.New(path + ": every certificate in it has expired: " + strings.Join(ended, ", "))
	}
	return pool, nil
}
