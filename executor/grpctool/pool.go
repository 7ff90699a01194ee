package grpctool

import (
	"container/list"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/toolkeep/toolkeep/egress"
)

// pool keeps one connection per tenant, target, TLS identity and allow-list. It is
// bounded: the least recently used connection is removed, and closed when its last call
// ends.
type pool struct {
	config egress.PoolConfig

	mu     sync.Mutex
	byKey  map[poolKey]*list.Element
	recent *list.List // of *link, most recent first
	closed bool
}

type poolKey [sha256.Size]byte

// link is one connection with its calls.
type link struct {
	key  poolKey
	conn *grpc.ClientConn

	refs int  // guarded by the pool's mutex
	gone bool // removed from the pool: closed with its last call

	mu   sync.Mutex
	last error // why the last dial or handshake failed; nil after a success
}

func newPool(c egress.PoolConfig) *pool {
	if c.Max <= 0 {
		c.Max = 256
	}
	if c.IdleTimeout <= 0 {
		c.IdleTimeout = 90 * time.Second
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	if c.MaxHeaderBytes <= 0 {
		c.MaxHeaderBytes = 256 << 10
	}
	c.MinTLS = max(c.MinTLS, tls.VersionTLS12)
	return &pool{config: c, byKey: make(map[poolKey]*list.Element), recent: list.New()}
}

// keyOf separates connections that must not be shared. The client's private key is part
// of it: certificate chains are public, and a copy of one comes without its key.
func keyOf(tenant string, b *binding, cert *tls.Certificate) poolKey {
	h := sha256.New()
	part := func(s []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write(s)
	}
	for _, s := range []string{tenant, b.target, strconv.FormatBool(b.plaintext), b.serverName, b.ca} {
		part([]byte(s))
	}
	hosts := make([]string, len(b.allow))
	for i, a := range b.allow {
		hosts[i] = strconv.Itoa(a.Port) + " " + strings.ToLower(a.Host)
	}
	slices.Sort(hosts)
	part([]byte(strings.Join(hosts, "\n")))
	if cert != nil {
		for _, der := range cert.Certificate {
			part(der)
		}
		if key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey); err == nil {
			part(key)
		}
	}
	return poolKey(h.Sum(nil))
}

// take returns a connection for one call; give releases it.
func (p *pool) take(tenant string, b *binding, cert *tls.Certificate) (*link, error) {
	key := keyOf(tenant, b, cert)
	p.mu.Lock()
	defer p.mu.Unlock()
	if el, ok := p.byKey[key]; ok {
		p.recent.MoveToFront(el)
		l := el.Value.(*link)
		l.refs++
		return l, nil
	}
	l := &link{key: key, refs: 1}
	var err error
	if l.conn, err = p.dial(l, b, cert); err != nil {
		return nil, err
	}
	if p.closed {
		l.gone = true
		return l, nil
	}
	p.byKey[key] = p.recent.PushFront(l)
	if p.recent.Len() > p.config.Max {
		p.drop(p.recent.Back())
	}
	return l, nil
}

// give ends a call. broken keeps later calls off the connection.
func (p *pool) give(l *link, broken bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.refs--
	if el, ok := p.byKey[l.key]; broken && ok && el.Value.(*link) == l {
		p.drop(el)
	} else if l.gone && l.refs == 0 {
		l.conn.Close()
	}
}

func (p *pool) drop(el *list.Element) {
	l := p.recent.Remove(el).(*link)
	delete(p.byKey, l.key)
	l.gone = true
	if l.refs == 0 {
		l.conn.Close()
	}
}

// close closes idle connections, and the others when their calls end.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for p.recent.Len() > 0 {
		p.drop(p.recent.Front())
	}
}

// dial sets up a connection, which connects with its first call. It ignores the
// environment, DNS records and the server's service config.
func (p *pool) dial(l *link, b *binding, cert *tls.Certificate) (*grpc.ClientConn, error) {
	connect := p.config.Dialer(&egress.Guard{Allow: b.allow, Resolver: p.config.Resolver, ConnectTimeout: p.config.ConnectTimeout})
	var creds credentials.TransportCredentials
	if b.plaintext {
		creds = insecure.NewCredentials()
	} else {
		c := &tls.Config{MinVersion: p.config.MinTLS, RootCAs: p.config.RootCAs, ServerName: b.serverName}
		if b.roots != nil {
			c.RootCAs = b.roots
		}
		if cert != nil {
			c.Certificates = []tls.Certificate{*cert}
		}
		creds = handshaker{credentials.NewTLS(c), l}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := connect(ctx, addr)
			l.note(err)
			return conn, err
		}),
		grpc.WithNoProxy(), // ignores the environment's proxy
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithDisableHealthCheck(),
		grpc.WithUserAgent("toolkeep"),
		grpc.WithStatsHandler(watcher{}),
		grpc.WithMaxHeaderListSize(uint32(min(p.config.MaxHeaderBytes, 16<<20))),
		grpc.WithIdleTimeout(p.config.IdleTimeout),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: p.config.ConnectTimeout}),
		// Servers by default accept one ping per 5 minutes.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 20 * time.Second}),
	}
	if b.serverName != "" {
		options = append(options, grpc.WithAuthority(b.serverName))
	} else {
		options = append(options, grpc.WithAuthority(b.target))
	}
	return grpc.NewClient("passthrough:///"+b.target, options...)
}

func (l *link) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = err
}

func (l *link) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// handshakeError is a failed TLS handshake.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "tls handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// handshaker records why a handshake failed: the library only passes on the text.
type handshaker struct {
	credentials.TransportCredentials
	link *link
}

func (h handshaker) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil && !errors.Is(err, context.Canceled) {
		h.link.note(&handshakeError{err})
	}
	return c, info, err
}

func (h handshaker) Clone() credentials.TransportCredentials {
	return handshaker{h.TransportCredentials.Clone(), h.link}
}
