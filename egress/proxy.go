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

// Proxy is an outbound proxy. Use NewProxy.
//
// The guard cannot see the addresses that a proxy connects to. It checks a
// destination's addresses, as resolved by this host, before asking the proxy; the proxy
// resolves the name again, so it must itself refuse a name whose addresses change in
// between. A destination that this host cannot resolve is refused, unless TrustNames
// leaves names to the proxy.
type Proxy struct {
	url    *url.URL
	addr   string // host:port to dial
	direct func(*url.URL) (*url.URL, error)
	// trustNames allows names without checking their addresses, for hosts whose DNS
	// does not resolve external names. Addresses in URLs are still checked.
	trustNames bool
}

// ProxyConfig configures a proxy and its exceptions.
type ProxyConfig struct {
	// URL is http://, https:// or socks5://host:port, with user:password@ if the proxy
	// requires them.
	URL string
	// Bypass lists destinations to connect to directly, as in NO_PROXY: a host,
	// .example.com or example.com for a domain and its subdomains, an address, a range
	// such as 10.0.0.0/8, each optionally with :port, or * for all. Connections to
	// localhost and loopback addresses never use the proxy.
	Bypass []string
	// TrustNames leaves the checking of names to the proxy.
	TrustNames bool
}

// NewProxy parses the configuration. Its error quotes no part of the URL, which may
// contain a password.
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
	// The transport sees a TLS proxy as a plain one that is dialled with TLS: its own
	// TLS would present the tool's client certificate to the proxy.
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

// route returns the proxy for a destination, or nil to connect directly through the
// guard. Before returning the proxy it checks the destination, as far as this host can.
func (p *Proxy) route(ctx context.Context, g *Guard, u *url.URL) (*url.URL, error) {
	via, err := p.direct(u)
	if err != nil {
		return nil, err
	}
	if p.itself(u) {
		// Otherwise the connection to it would look like one to the proxy, which is
		// allowed.
		return nil, destinationForbidden("the tool's server is the proxy that calls go through")
	}
	if via == nil {
		return nil, nil
	}
	return via, p.check(ctx, g, u)
}

// itself reports whether a destination is the proxy.
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

// dial connects to the proxy. The guard does not check its address, which is the
// operator's; bytes are counted as usual.
func (p *Proxy) dial(ctx context.Context, network string, c *PoolConfig) (net.Conn, error) {
	d := net.Dialer{Timeout: c.ConnectTimeout, Resolver: c.Resolver}
	conn, err := d.DialContext(ctx, network, p.addr)
	if out := OutOfDescriptors(err); out != nil {
		return nil, out
	}
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

// check checks a destination's addresses before the proxy is used. One forbidden
// address is enough to refuse: the proxy may choose any.
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

// checkName refuses address spellings that resolvers accept but net/netip does not,
// such as 2130706433 or 0x7f.1: the last label of an Internet name is never a number.
// It also refuses the names of this host.
func (p *Proxy) checkName(host string) error {
	last := strings.ToLower(host[strings.LastIndexByte(host, '.')+1:])
	if last == "" || last[0] >= '0' && last[0] <= '9' || last == "localhost" {
		return destinationForbidden("the name of the tool's server is not one that a proxy may resolve")
	}
	return nil
}
