package egress

import (
	"container/list"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Transport is an HTTP client's transport whose every connection goes through g.
// It uses no proxy, speaks HTTP/2 where the server does, wants TLS 1.2 or newer,
// and leaves decompression to its user, who can bound it. The time to wait for an
// answer is the request's context.
func Transport(g *Guard) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // a proxy would connect where the guard cannot look
		DialContext:            g.DialContext,
		ForceAttemptHTTP2:      true,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConns:           128,
		MaxIdleConnsPerHost:    32,
		MaxConnsPerHost:        256,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true,
	}
}

// PoolConfig sets up a Pool. The zero value works.
type PoolConfig struct {
	Max      int            // transports kept; default 256
	Resolver *net.Resolver  // nil is net.DefaultResolver
	RootCAs  *x509.CertPool // nil is the system's
}

// Pool keeps one transport for each tenant and allow-list. It is bounded: the
// transport that was not asked for longest gives way, its idle connections are
// closed, and requests under way on it end undisturbed.
type Pool struct {
	config PoolConfig

	mu     sync.Mutex
	byKey  map[poolKey]*list.Element
	recent *list.List // of *poolEntry, latest first
	closed bool
}

type poolKey struct{ tenant, allow string }

type poolEntry struct {
	key       poolKey
	transport *http.Transport
}

// NewPool makes a Pool.
func NewPool(c PoolConfig) *Pool {
	if c.Max <= 0 {
		c.Max = 256
	}
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

// Transport is the transport of the tenant for tools with the allow-list. After
// Close it gives transports that keep no connection.
func (p *Pool) Transport(tenant string, allow AllowList) *http.Transport {
	key := poolKey{tenant, allow.key}
	p.mu.Lock()
	defer p.mu.Unlock()
	if el, ok := p.byKey[key]; ok {
		p.recent.MoveToFront(el)
		return el.Value.(*poolEntry).transport
	}
	t := Transport(&Guard{Allow: allow.hosts, Resolver: p.config.Resolver})
	t.TLSClientConfig.RootCAs = p.config.RootCAs
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
