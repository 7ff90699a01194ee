package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// Server loads the configured files; it returns nil without TLS. With tls.client_ca a
// handshake requires a client certificate for client authentication, signed by one of
// those CAs. log is told of changed files that cannot be taken; nil is told nothing.
func (t TLS) Server(log *slog.Logger) (*tls.Config, error) {
	if !t.Enabled() {
		return nil, nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &reloaded{cert: t.Cert, key: t.Key, now: time.Now, log: log}
	pair, err := r.load()
	if err != nil {
		return nil, fmt.Errorf("tls.cert, tls.key: the TLS certificate cannot be loaded: %w", err)
	}
	if err := valid(pair.Leaf, time.Now()); err != nil {
		return nil, fmt.Errorf("tls.cert: %s: %w", t.Cert, err)
	}
	c := &tls.Config{GetCertificate: r.get, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}}
	if t.Min == "1.2" {
		c.MinVersion = tls.VersionTLS12
	}
	if t.ClientCA == "" {
		return c, nil
	}
	if c.ClientCAs, err = authorities(t.ClientCA, time.Now()); err != nil {
		return nil, fmt.Errorf("tls.client_ca: %w", err)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}

// Speaks returns what the listener of the metrics speaks, of what Server gave.
func (m Metrics) Speaks(all *tls.Config) *tls.Config {
	switch {
	case all == nil || m.TLS == "off":
		return nil
	case m.TLS == "server":
		own := all.Clone()
		own.ClientAuth, own.ClientCAs = tls.NoClientCert, nil
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

// reloadEvery is how often handshakes look whether the files changed.
const reloadEvery = 10 * time.Second

// reloaded is the certificate of two files, read again when they change. Files that
// cannot be read, do not fit together, or hold what no client accepts leave the last
// certificate in place, because a renewal writes one file after the other.
type reloaded struct {
	cert, key string
	now       func() time.Time
	log       *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	stamp  [2]fileStamp // of the files that pair was read from
	looked time.Time
	failed int    // looks in a row at which the files could not be taken
	told   string // why, as the log was told
}

type fileStamp struct {
	changed time.Time
	size    int64
}

func stampOf(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{}
	}
	return fileStamp{info.ModTime(), info.Size()}
}

// load reads the files.
func (r *reloaded) load() (*tls.Certificate, error) {
	r.stamp, r.looked = [2]fileStamp{stampOf(r.cert), stampOf(r.key)}, r.now()
	pair, err := tls.LoadX509KeyPair(r.cert, r.key)
	if err == nil && r.pair != nil {
		err = valid(pair.Leaf, r.now())
	}
	if err == nil {
		r.pair = &pair
	}
	return &pair, err
}

func (r *reloaded) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); now.Sub(r.looked) >= reloadEvery {
		r.looked = now
		if r.stamp != [2]fileStamp{stampOf(r.cert), stampOf(r.key)} {
			_, err := r.load()
			if err != nil {
				r.stamp = [2]fileStamp{} // half written, or not valid yet; look again
			}
			r.tell(err)
		}
	}
	return r.pair, nil
}

// tell logs what became of changed files. One failure is not told: a renewal may have written
// one file of the two.
func (r *reloaded) tell(err error) {
	if err == nil {
		r.failed, r.told = 0, ""
		r.log.Info("the TLS certificate has changed", "file", r.cert, "valid_until", r.pair.Leaf.NotAfter.UTC())
		return
	}
	if r.failed++; r.failed > 1 && r.told != err.Error() {
		r.told = err.Error()
		r.log.Warn("the changed TLS certificate cannot be taken, the last one goes on", "cert", r.cert, "key", r.key,
			"valid_until", r.pair.Leaf.NotAfter.UTC(), "error", err)
	}
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
