package egress

import (
	"container/list"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// PoolConfig configures a Pool. The zero value works.
type PoolConfig struct {
	Max      int            // transports kept; default 256
	Resolver *net.Resolver  // nil is net.DefaultResolver
	RootCAs  *x509.CertPool // nil is the system's; see LoadRoots
	// MinTLS is the minimum TLS version; default and minimum TLS 1.2.
	MinTLS uint16
	// Proxy is the HTTP or SOCKS proxy for connections; nil is none. The environment's
	// (HTTP_PROXY and the like) is never used.
	Proxy *Proxy

	// Per transport, that is, per tenant and allow-list:
	ConnsPerHost   int           // connections per host, further requests wait; default 256
	IdlePerHost    int           // idle connections kept per host; default 32
	Idle           int           // idle connections kept in total; default 128
	IdleTimeout    time.Duration // idle connections are closed after this; default 90 s
	ConnectTimeout time.Duration // for resolving and connecting, and again for TLS; default 10 s
	MaxHeaderBytes int64         // of response headers; default 256 KiB
}

func (c *PoolConfig) fill() {
	def := func(v *int, to int) {
		if *v <= 0 {
			*v = to
		}
	}
	def(&c.Max, 256)
	def(&c.ConnsPerHost, 256)
	def(&c.IdlePerHost, 32)
	def(&c.Idle, 128)
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
}

// transport returns a new transport. c must have its defaults set.
func (c *PoolConfig) transport(g *Guard, o TransportOptions) *http.Transport {
	secure := &tls.Config{MinVersion: c.MinTLS, RootCAs: c.RootCAs}
	if o.RootCAs != nil {
		secure.RootCAs = o.RootCAs
	}
	if o.Certificate != nil {
		secure.Certificates = []tls.Certificate{*o.Certificate}
	}
	t := &http.Transport{
		DialContext:            g.DialContext,
		ForceAttemptHTTP2:      true,
		TLSClientConfig:        secure,
		TLSHandshakeTimeout:    c.ConnectTimeout,
		MaxIdleConns:           c.Idle,
		MaxIdleConnsPerHost:    c.IdlePerHost,
		MaxConnsPerHost:        c.ConnsPerHost,
		IdleConnTimeout:        c.IdleTimeout,
		MaxResponseHeaderBytes: c.MaxHeaderBytes,
		DisableCompression:     true,
		// A silent HTTP/2 connection is pinged, so that later calls do not wait on a
		// dead one.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	if c.Proxy != nil {
		c.Proxy.use(t, g, c)
	}
	return t
}

// TransportOptions separates a tool's connections from those of others with the same
// allow-list. The zero value separates nothing.
type TransportOptions struct {
	// Certificate is presented to servers that ask for one (mTLS). Only users of the
	// same chain and key share a transport.
	Certificate *tls.Certificate
	// RootCAs replaces the pool's CA certificates; nil uses the pool's. Keep and reuse
	// the same CertPool: each has its own transports.
	RootCAs *x509.CertPool
}

// identity identifies a certificate: a hash over the chain and its signing key. The key
// is included because chains are public: a caller that has a chain without its key must not
// get a connection made with that key.
func (o TransportOptions) identity() [sha256.Size]byte {
	if o.Certificate == nil {
		return [sha256.Size]byte{}
	}
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, der := range o.Certificate.Certificate {
		part(der)
	}
	if key, err := x509.MarshalPKCS8PrivateKey(o.Certificate.PrivateKey); err == nil {
		part(key)
	} else {
		part(fmt.Appendf(nil, "%p", o.Certificate)) // no key in memory: shared only with itself
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Pool keeps one transport per tenant, allow-list and options. It is bounded: the least
// recently used transport is evicted, its idle connections are closed, and its requests
// in progress finish undisturbed.
type Pool struct {
	config PoolConfig

	mu     sync.Mutex
	byKey  map[poolKey]*list.Element
	recent *list.List // of *poolEntry, most recent first
	closed bool
}

type poolKey struct {
	tenant, allow string
	identity      [sha256.Size]byte
	roots         *x509.CertPool
}

type poolEntry struct {
	key       poolKey
	transport *http.Transport
}

// NewPool returns a Pool.
func NewPool(c PoolConfig) *Pool {
	c.fill()
	return &Pool{config: c, byKey: make(map[poolKey]*list.Element), recent: list.New()}
}

// AllowList is a preprocessed allow-list for repeated use.
type AllowList struct {
	key   string
	hosts []toolkeep.HostPort
}

// NewAllowList preprocesses the hosts. Order and duplicates make no difference.
func NewAllowList(hosts []toolkeep.HostPort) AllowList {
	if len(hosts) == 0 {
		return AllowList{}
	}
	hosts = slices.Clone(hosts)
	texts := make([]string, len(hosts))
	for i, h := range hosts {
		texts[i] = strconv.Itoa(h.Port) + " " + strings.ToLower(strings.TrimSuffix(h.Host, "."))
	}
	slices.Sort(texts)
	return AllowList{key: strings.Join(slices.Compact(texts), "\n"), hosts: hosts}
}

// Dialer connects as the transports of p do, for protocols that manage their own connections: see PoolConfig.Dialer.
// It also connects to the addresses of allow if they are internal ones.
func (p *Pool) Dialer(allow []toolkeep.HostPort) func(ctx context.Context, addr string) (net.Conn, error) {
	return p.config.Dialer(&Guard{Allow: allow, Resolver: p.config.Resolver, ConnectTimeout: p.config.ConnectTimeout})
}

// Transport returns the tenant's transport for tools with the allow-list: every
// connection goes through its Guard. It uses HTTP/2 if the server does, and leaves
// decompression to the caller, who can bound it. The request's context bounds the wait
// for a response. After Close it returns transports that keep no connections.
func (p *Pool) Transport(tenant string, allow AllowList) *http.Transport {
	return p.TransportFor(tenant, allow, TransportOptions{})
}

// TransportFor is Transport for a tool with its own options. Tenants, allow-lists and
// certificates never share connections.
func (p *Pool) TransportFor(tenant string, allow AllowList, o TransportOptions) *http.Transport {
	key := poolKey{tenant: tenant, allow: allow.key, identity: o.identity(), roots: o.RootCAs}
	p.mu.Lock()
	defer p.mu.Unlock()
	if el, ok := p.byKey[key]; ok {
		p.recent.MoveToFront(el)
		return el.Value.(*poolEntry).transport
	}
	t := p.config.transport(&Guard{Allow: allow.hosts, Resolver: p.config.Resolver, ConnectTimeout: p.config.ConnectTimeout}, o)
	if p.closed {
		t.DisableKeepAlives = true
		return t
	}
	p.byKey[key] = p.recent.PushFront(&poolEntry{key: key, transport: t})
	if p.recent.Len() > p.config.Max {
		p.drop(p.recent.Back())
	}
	return t
}

// Len returns the number of transports.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recent.Len()
}

// Close closes idle connections and stops keeping new ones. It may be called more than
// once.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for p.recent.Len() > 0 {
		p.drop(p.recent.Front())
	}
}

func (p *Pool) drop(el *list.Element) {
	e := p.recent.Remove(el).(*poolEntry)
	delete(p.byKey, e.key)
	e.transport.CloseIdleConnections()
}

// NoRedirects is a CheckRedirect of an http.Client: a redirect is an answer like any other, and is not followed.
func NoRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
