package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync/atomic"

	"github.com/spf13/cobra"
)

// clientTLS holds the TLS settings of the client commands.
type clientTLS struct {
	ca, cert, key string
	asked         atomic.Bool // a server requested a certificate
	shown         bool        // one is configured
}

// Environment variables for the flags.
const (
	envCA         = "TOOLKEEP_CA_FILE"
	envClientCert = "TOOLKEEP_CLIENT_CERT"
	envClientKey  = "TOOLKEEP_CLIENT_KEY"
)

func (t *clientTLS) addFlags(c *cobra.Command) {
	f := c.PersistentFlags()
	f.StringVar(&t.ca, "ca-file", "", "PEM `FILE` of the authorities that sign the server's certificate ("+envCA+"); the system's without it")
	f.StringVar(&t.cert, "client-cert", "", "PEM `FILE` of the certificate shown to a server that asks for one ("+envClientCert+")")
	f.StringVar(&t.key, "client-key", "", "PEM `FILE` of its private key ("+envClientKey+")")
}

// config returns the TLS settings for an address of the scheme, nil for http.
func (t *clientTLS) config(scheme string) (*tls.Config, error) {
	if scheme != "https" {
		if t.ca != "" || t.cert != "" || t.key != "" {
			return nil, usagef("--ca-file, --client-cert and --client-key are for TLS, and the server's address begins with http://")
		}
		return nil, nil
	}
	return t.settings()
}

func (t *clientTLS) settings() (*tls.Config, error) {
	ca, cert, key := or(t.ca, os.Getenv(envCA)), or(t.cert, os.Getenv(envClientCert)), or(t.key, os.Getenv(envClientKey))
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		raw, err := readFile(ca)
		if err != nil {
			return nil, usagef("--ca-file (%s) cannot be read: %v", envCA, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(raw) {
			return nil, usagef("--ca-file (%s): %s holds no PEM certificate", envCA, ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, usagef("--client-cert (%s) and --client-key (%s) go together", envClientCert, envClientKey)
	}
	var pair tls.Certificate // none to show
	if cert != "" {
		var err error
		if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
			return nil, usagef("the client's certificate cannot be loaded: %v", err)
		}
		t.shown = true
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		t.asked.Store(true)
		return &pair, nil
	}
	return c, nil
}

// advice explains what a failed connection may have lacked. A server refuses a certificate after the client's side
// of the handshake, so the client may see only a broken connection.
func (t *clientTLS) advice() string {
	switch {
	case !t.asked.Load():
		return ""
	case t.shown:
		return "\n  it asks for a client certificate and may not trust the authority that signed yours (--client-cert)"
	}
	return "\n  it asks for a client certificate: give --client-cert and --client-key"
}
