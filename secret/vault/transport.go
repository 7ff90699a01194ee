package vault

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep/egress"
)

const (
	maxAnswer   = 1 << 20 // bytes of a response
	retries     = 2       // after the first attempt
	baseDelay   = 100 * time.Millisecond
	maxDelay    = 32 * time.Second // Execution's cap, also for Retry-After
	unixAddress = "http://localhost"
)

var errTooLarge = errors.New("the answer is larger than 1 MiB")

// unixPath returns the path of an agent's socket.
func unixPath(address string) (string, bool) {
	return strings.CutPrefix(address, "unix://")
}

// transport makes one attempt with its own timeout, and reads the whole response, up to a limit, before returning
// it.
type transport struct {
	base    *http.Transport
	timeout time.Duration
}

func newTransport(c Config) (*transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.TLS.ServerName}
	if c.TLS.CAFile != "" {
		pem, err := os.ReadFile(c.TLS.CAFile)
		if err != nil {
			return nil, wrong("the file of Vault's authorities (vault.ca_file) cannot be read: %s", reason(err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, wrong("the file of Vault's authorities (vault.ca_file) holds no certificate in PEM form")
		}
	}
	if c.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.TLS.CertFile, c.TLS.KeyFile)
		if err != nil {
			return nil, wrong("the client certificate for Vault cannot be read: %s", reason(err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: c.Timeout}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    c.Timeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    16,
		MaxConnsPerHost:        64,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // so that the limit applies to the bytes sent
	}
	if socket, ok := unixPath(c.Address); ok {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: c.Timeout}).DialContext(ctx, "unix", socket)
		}
	}
	return &transport{base: t, timeout: c.Timeout}, nil
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), t.timeout)
	defer cancel()
	resp, err := t.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		clear(b)
		return nil, err
	}
	if len(b) > maxAnswer {
		clear(b)
		return nil, errTooLarge
	}
	resp.Body = &answer{Reader: bytes.NewReader(b), bytes: b}
	return resp, nil
}

// answer is a body that was read. The caller of take may wipe its bytes.
type answer struct {
	*bytes.Reader
	bytes []byte
}

func (*answer) Close() error { return nil }

// take returns the bytes of a response.
func take(resp *http.Response) ([]byte, error) {
	if a, ok := resp.Body.(*answer); ok {
		return a.bytes, nil
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // an error response, in memory
}

// retry reports whether to make another attempt.
func retry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var unknown x509.UnknownAuthorityError
		var name x509.HostnameError
		var invalid x509.CertificateInvalidError
		final := errors.Is(err, errTooLarge) || errors.As(err, &unknown) || errors.As(err, &name) || errors.As(err, &invalid)
		return !final, nil
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusPreconditionFailed:
		return resp.Request.URL.Path != "/v1/sys/health", nil
	case http.StatusNotImplemented:
		return false, nil
	}
	return resp.StatusCode >= 500 && resp.Request.URL.Path != "/v1/sys/health", nil
}

// backoff returns the pause before the next attempt: Retry-After, else full jitter over a growing one.
func backoff(_, _ time.Duration, attempt int, resp *http.Response) time.Duration {
	if resp != nil {
		if d := egress.RetryAfter(resp.Header.Get("Retry-After"), time.Now()); d > 0 {
			return min(d, maxDelay)
		}
	}
	return rand.N(baseDelay<<attempt) + baseDelay/10
}
