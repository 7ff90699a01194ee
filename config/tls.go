package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep/reload"
)

// Certificates are the TLS files of the listeners, read again when they change.
type Certificates struct {
	Config  *tls.Config // nil without TLS
	pair    *reload.Files[*tls.Certificate]
	clients *reload.Files[*tls.Config] // nil without tls.client_ca
}

// Health is why changed files cannot be taken, nil while there are none.
func (c *Certificates) Health(ctx context.Context) error {
	if c == nil {
		return nil
	}
	return errors.Join(c.pair.Health(ctx), c.clients.Health(ctx))
}

// Server loads the configured files; Config of its answer is nil without TLS. With tls.client_ca a handshake
// requires a client certificate for client authentication, signed by one of those CAs, unless
// tls.clients is optional: then it may be left out. log is told of changed files that cannot be
// taken; nil is told nothing.
func (t TLS) Server(log *slog.Logger) (*Certificates, error) { return t.server(log, time.Now) }

func (t TLS) server(log *slog.Logger, now func() time.Time) (*Certificates, error) {
	all := &Certificates{}
	if !t.Enabled() {
		return all, nil
	}
	var err error
	if all.pair, err = reload.Open(t.pair(log, now)); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return all.pair.Get(), nil }}
	if t.Min == "1.2" {
		c.MinVersion = tls.VersionTLS12
	}
	if all.Config = c; t.ClientCA == "" {
		return all, nil
	}
	if c.ClientAuth = tls.RequireAndVerifyClientCert; t.Clients == "optional" {
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	each := c.Clone()
	all.clients, err = reload.Open(reload.Config[*tls.Config]{What: "the file of client authorities (tls.client_ca)", Paths: []string{t.ClientCA}, Log: log, Now: now,
		Read: func() (*tls.Config, error) {
			pool, err := authorities(t.ClientCA, now())
			if err != nil {
				return nil, fmt.Errorf("tls.client_ca: %w", err)
			}
			own := each.Clone()
			own.ClientCAs, own.VerifyConnection = pool, again(pool)
			return own, nil
		}})
	if err != nil {
		return nil, err
	}
	c.ClientCAs = all.clients.Get().ClientCAs
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return all.clients.Get(), nil }
	return all, nil
}

// again verifies the certificate of a resumed session, which was verified when the session began: the
// authority may have been removed since.
func again(pool *x509.CertPool) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if !s.DidResume || len(s.PeerCertificates) == 0 {
			return nil
		}
		between := x509.NewCertPool()
		for _, c := range s.PeerCertificates[1:] {
			between.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err
	}
}

// pair is how the certificate and its key are read. What no client accepts is not taken.
func (t TLS) pair(log *slog.Logger, now func() time.Time) reload.Config[*tls.Certificate] {
	return reload.Config[*tls.Certificate]{What: "the TLS certificate", Paths: []string{t.Cert, t.Key}, Log: log, Now: now,
		About: func(p *tls.Certificate) []any { return []any{"valid_until", p.Leaf.NotAfter.UTC()} },
		Read: func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
			if err != nil {
				return nil, fmt.Errorf("tls.cert, tls.key: the TLS certificate cannot be loaded: %w", err)
			}
			if err := valid(pair.Leaf, now()); err != nil {
				return nil, fmt.Errorf("tls.cert: %s: %w", t.Cert, err)
			}
			return &pair, nil
		}}
}

// Speaks returns what the listener of the metrics speaks, of what Server gave.
func (m Metrics) Speaks(all *tls.Config) *tls.Config {
	switch {
	case all == nil || m.TLS == "off":
		return nil
	case m.TLS == "server":
		own := all.Clone()
		own.ClientAuth, own.ClientCAs, own.GetConfigForClient = tls.NoClientCert, nil, nil
		return own
	}
	return all
}

// valid is an error where no client accepts the certificate at this time.
func valid(cert *x509.Certificate, now time.Time) error {
	switch {
	case now.After(cert.NotAfter):
		return fmt.Errorf("the certificate expired on %s; put a new one there", cert.NotAfter.UTC().Format(time.DateTime))
	case now.Before(cert.NotBefore):
		return fmt.Errorf("the certificate is valid from %s on only; check the clock", cert.NotBefore.UTC().Format(time.DateTime))
	}
	return nil
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
