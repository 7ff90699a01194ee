package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"github.com/toolkeep/toolkeep"
)

// Proxy is a proxy that connections go through. NewProxy makes one.
//
// The guard cannot see the addresses that a proxy connects to. It looks at a
// destination's addresses, as this host's DNS has them, before the proxy is asked;
// the proxy resolves the name again, so a name whose answers change in between is
// the proxy's to refuse. A destination that this host cannot resolve is refused,
// unless TrustNames leaves names to the proxy.
type Proxy struct {
	url    *url.URL
	addr   string // host:port to dial
	direct func(*url.URL) (*url.URL, error)
	// trustNames lets names through without looking at their addresses, for hosts
	// whose DNS does not know the outside. Addresses in URLs are checked all the same.
	trustNames bool
}

// ProxyConfig says which proxy is used, and for what.
type ProxyConfig struct {
	// URL is http://, https:// or socks5://host:port, with user:password@ where the
	// proxy wants them.
	URL string
	// Bypass are destinations that are connected to directly, as in NO_PROXY: a host,
	// .example.com or example.com for a domain and all below, an address, a range
	// such as 10.0.0.0/8, each with :port if it is meant for one, or * for all.
	// localhost and loopback addresses never go to the proxy.
	Bypass []string
	// TrustNames leaves the check of names to the proxy.
	TrustNames bool
}

// NewProxy reads the configuration. The error quotes nothing of the URL, which may
// hold a password.
func NewProxy(c ProxyConfig) (*Proxy, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("the proxy is not a URL such as http://proxy.example:3128")
	}
	port := u.Port()
	switch u.Scheme {
	case "http":
		port = or(port, "80")
	case "https":
		port = or(port, "443")
	case "socks5", "socks5h":
		port = or(port, "1080")
	default:
		return nil, errors.New("the proxy must be an http, https or socks5 URL")
	}
	if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the proxy's URL must end after host and port")
	}
	u.Path = ""
	u.Host = net.JoinHostPort(u.Hostname(), port)
	rules := httpproxy.Config{HTTPProxy: u.String(), HTTPSProxy: u.String(), NoProxy: strings.Join(c.Bypass, ",")}
	return &Proxy{url: u, addr: u.Host, direct: rules.ProxyFunc(), trustNames: c.TrustNames}, nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// use sends the transport's connections through the proxy.
func (p *Proxy) use(t *http.Transport, g *Guard, c *PoolConfig) {
	// Towards the transport a proxy over TLS is a plain one that is dialled with TLS:
	// the transport's own TLS would show the tool's client certificate to the proxy.
	seen := *p.url
	if seen.Scheme == "https" {
		seen.Scheme = "http"
	}
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		via, err := p.route(r.Context(), g, r.URL)
		if via == nil || err != nil {
			return nil, err
		}
		return &seen, nil
	}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != p.addr {
			return g.DialContext(ctx, network, addr)
		}
		return p.dial(ctx, network, c)
	}
	t.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
		return connected(resp)
	}
}

// route is where a destination is reached: nil is directly, through the guard.
// Otherwise the guard has nothing against it as far as can be told from here.
func (p *Proxy) route(ctx context.Context, g *Guard, u *url.URL) (*url.URL, error) {
	via, err := p.direct(u)
	if err != nil {
		return nil, err
	}
	if p.itself(u) {
		// Else the connection to it would look like one to the proxy, which is let through.
		return nil, destinationForbidden("the tool's server is the proxy that calls go through")
	}
	if via == nil {
		return nil, nil
	}
	return via, p.check(ctx, g, u)
}

// itself tells whether a destination is the proxy.
func (p *Proxy) itself(u *url.URL) bool {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return port == p.url.Port() && sameHost(u.Hostname(), p.url.Hostname())
}

// dial connects to the proxy. Its address is the operator's, so the guard has no
// say; bytes are counted as everywhere.
func (p *Proxy) dial(ctx context.Context, network string, c *PoolConfig) (net.Conn, error) {
	d := net.Dialer{Timeout: c.ConnectTimeout, Resolver: c.Resolver}
	conn, err := d.DialContext(ctx, network, p.addr)
	if err != nil {
		e := toolkeep.NewError(toolkeep.NetworkError, "the proxy that calls go through cannot be reached").With("reason", "proxy").Because(err)
		e.NothingSent = true
		return nil, e
	}
	counted := &Conn{Conn: conn}
	if p.url.Scheme != "https" {
		return counted, nil
	}
	secure := tls.Client(counted, &tls.Config{MinVersion: c.MinTLS, RootCAs: c.RootCAs, ServerName: p.url.Hostname()})
	ctx, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		e := toolkeep.NewError(toolkeep.TLSError, "no secure connection to the proxy that calls go through could be made").Because(err)
		e.NothingSent = true
		return nil, e
	}
	return secure, nil
}

// check looks at the addresses of a destination before the proxy is asked for it.
// One forbidden address is enough to refuse: the proxy may choose any.
func (p *Proxy) check(ctx context.Context, g *Guard, u *url.URL) error {
	host := strings.TrimSuffix(u.Hostname(), ".")
	port := uint16(80)
	if u.Scheme == "https" {
		port = 443
	}
	if s := u.Port(); s != "" {
		if _, err := fmt.Sscanf(s, "%d", &port); err != nil {
			return destinationForbidden("the port of the tool's server cannot be read")
		}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return g.Check(host, netip.AddrPortFrom(ip, port))
	}
	if p.trustNames {
		return p.checkName(host)
	}
	resolver := g.Resolver
	if resolver == nil {
		resolver = net.DefaultResolver
	}
	ctx, cancel := context.WithTimeout(ctx, g.connectTimeout())
	defer cancel()
	addrs, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return err
	}
	for _, ip := range addrs {
		if err := g.Check(host, netip.AddrPortFrom(ip, port)); err != nil {
			return err
		}
	}
	return nil
}

// checkName refuses the spellings of addresses that net/netip does not read and
// resolvers do, such as 2130706433 or 0x7f.1: the last label of a name on the
// Internet is no number. It refuses the names of this host as well.
func (p *Proxy) checkName(host string) error {
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if last == "" || last[0] >= '0' && last[0] <= '9' || last == "localhost" {
		return destinationForbidden("the tool's server is not named by a name that a proxy may be asked for")
	}
	return nil
}
