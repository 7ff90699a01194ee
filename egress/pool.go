package egress

import (
	"container/list"
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

// PoolConfig sets up a Pool. The zero value works.
type PoolConfig struct {
	Max      int            // transports kept; default 256
	Resolver *net.Resolver  // nil is net.DefaultResolver
	RootCAs  *x509.CertPool // nil is the system's; see LoadRoots
	// MinTLS is the oldest version of TLS; default and least TLS 1.2.
	MinTLS uint16
	// Proxy is the HTTP or SOCKS proxy that connections go through; nil is none. The
	// environment's (HTTP_PROXY and the like) is never used.
	Proxy *Proxy

	// For each transport, which is one tenant's with one allow-list:
	ConnsPerHost   int           // connections to one host, requests beyond them wait; default 256
	IdlePerHost    int           // idle connections kept to one host; default 32
	Idle           int           // idle connections kept in all; default 128
	IdleTimeout    time.Duration // an idle connection is closed after; default 90 s
	ConnectTimeout time.Duration // to find the name and connect, and again for TLS; default 10 s
	MaxHeaderBytes int64         // of an answer's headers; default 256 KiB
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

// transport makes a transport. The configuration must be filled.
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
		// A connection of HTTP/2 that fell silent is asked whether it still lives, so
		// that later calls do not wait on a dead one.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	if c.Proxy != nil {
		c.Proxy.use(t, g, c)
	}
	return t
}

// TransportOptions are what sets one tool's connections apart from those of
// others with the same allow-list. The zero value is nothing.
type TransportOptions struct {
	// Certificate is shown to servers that ask for one (mTLS). Transports are shared
	// by those alone who show the same chain with the same key.
	Certificate *tls.Certificate
	// RootCAs are trusted in place of the pool's; nil is the pool's. Keep and reuse
	// the same CertPool: each has transports of its own.
	RootCAs *x509.CertPool
}

// identity tells certificates apart: a hash over the chain and the key that signs
// for it. The key is part of it because chains are public, and whoever knows one
// without holding its key must not get a connection that was made with it.
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
		part(fmt.Appendf(nil, "%p", o.Certificate)) // no key in memory: shared with itself alone
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Pool keeps one transport for each tenant, allow-list and options. It is bounded:
// the transport that was not asked for longest gives way, its idle connections
// are closed, and requests under way on it end undisturbed.
type Pool struct {
	config PoolConfig

	mu     sync.Mutex
	byKey  map[poolKey]*list.Element
	recent *list.List // of *poolEntry, latest first
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

// NewPool makes a Pool.
func NewPool(c PoolConfig) *Pool {
	c.fill()
	return &Pool{config: c, byKey: make(map[poolKey]*list.Element), recent: list.New()}
}

// AllowList is an allow-list ready to be asked for many times.
type AllowList struct {
	key   string
	hosts []toolkeep.HostPort
}

// NewAllowList reads the hosts once. Order and doubles make no difference.
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

// Transport is the transport of the tenant for tools with the allow-list: every
// connection goes through its Guard. It speaks HTTP/2 where the server does and
// leaves decompression to its user, who can bound it. The time to wait for an answer
// is the request's context. After Close it gives transports that keep no connection.
func (p *Pool) Transport(tenant string, allow AllowList) *http.Transport {
	return p.TransportFor(tenant, allow, TransportOptions{})
}

// TransportFor is Transport for a tool with options of its own. Nothing is shared
// between tenants, between allow-lists, or between certificates.
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

// Len is how many transports are kept.
func (p *Pool) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recent.Len()
}

// Close closes idle connections and keeps none from now on. It may be called
// more than once.
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
