package egress

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/proxy"

	"github.com/toolkeep/toolkeep"
)

// Dialer returns a function that connects to host:port over TCP for one tool, like the
// transports of a Pool with the same settings: through g, or through the configured
// proxy unless the destination is in its bypass list. It is for protocols that manage
// their own connections, such as gRPC, so an HTTP proxy is always used with CONNECT.
//
// Outcomes: a connection for which Written starts at 0, without the proxy handshake;
// E3505 as from Guard.DialContext; E3501 with details.reason proxy if the proxy cannot
// be reached or refuses; E3503 if TLS with the proxy fails. After an error no byte has
// reached the destination, and these errors say so.
func (c PoolConfig) Dialer(g *Guard) func(ctx context.Context, addr string) (net.Conn, error) {
	c.fill()
	p := c.Proxy
	if p == nil {
		return func(ctx context.Context, addr string) (net.Conn, error) { return g.DialContext(ctx, "tcp", addr) }
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		// Rules apply as for a TLS server: the scheme only supplies the port that a URL
		// omits.
		u := &url.URL{Scheme: "https", Host: addr}
		via, err := p.route(ctx, g, u)
		if err != nil {
			return nil, err
		}
		if via == nil {
			return g.DialContext(ctx, "tcp", addr)
		}
		return p.tunnel(ctx, &c, addr)
	}
}

// tunnel connects to addr through the proxy.
func (p *Proxy) tunnel(ctx context.Context, c *PoolConfig, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.ConnectTimeout) // on top of the proxy's own connect time
	defer cancel()
	conn, err := p.dial(ctx, "tcp", c)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	through, err := conn, error(nil)
	switch p.url.Scheme {
	case "http", "https":
		through, err = p.connect(conn, c, addr)
	default:
		err = p.socks(ctx, conn, addr)
	}
	if !stop() && err == nil {
		err = ctx.Err() // the connection may have the deadline by now
	}
	if err != nil {
		conn.Close()
		if e := (*toolkeep.Error)(nil); errors.As(err, &e) {
			return nil, e
		}
		e := toolkeep.NewError(toolkeep.NetworkError, "the proxy that calls go through did not connect to the tool's server").With("reason", "proxy").Because(err)
		e.NothingSent = true
		return nil, e
	}
	return &Conn{Conn: through}, nil
}

// connect sends CONNECT for the destination to an HTTP proxy.
func (p *Proxy) connect(conn net.Conn, c *PoolConfig, addr string) (net.Conn, error) {
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{}}
	if u := p.url.User; u != nil {
		password, _ := u.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	r := bufio.NewReader(io.LimitReader(conn, c.MaxHeaderBytes))
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, err
	}
	if err := connected(resp); err != nil {
		return nil, err
	}
	// If the server speaks first, its bytes may have arrived with the proxy's response.
	first := make([]byte, r.Buffered())
	if _, err := io.ReadFull(r, first); err != nil {
		return nil, err
	}
	if len(first) == 0 {
		return conn, nil
	}
	return &begunConn{Conn: conn, first: bytes.NewReader(first)}, nil
}

// connected returns nil or E3501 for a proxy's response to CONNECT.
func connected(resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	e := toolkeep.NewError(toolkeep.NetworkError, "the proxy did not connect to the tool's server: it answered HTTP %d", resp.StatusCode).
		With("reason", "proxy")
	e.NothingSent = true
	return e
}

// socks requests the destination from a SOCKS proxy over conn.
func (p *Proxy) socks(ctx context.Context, conn net.Conn, addr string) error {
	var auth *proxy.Auth
	if u := p.url.User; u != nil {
		auth = &proxy.Auth{User: u.Username()}
		auth.Password, _ = u.Password()
	}
	d, err := proxy.SOCKS5("tcp", p.addr, auth, onto{conn})
	if err != nil {
		return err
	}
	_, err = d.(proxy.ContextDialer).DialContext(ctx, "tcp", addr)
	return err
}

// onto is a dialer that returns an existing connection.
type onto struct{ conn net.Conn }

func (o onto) Dial(string, string) (net.Conn, error) { return o.conn, nil }
func (o onto) DialContext(context.Context, string, string) (net.Conn, error) {
	return o.conn, nil
}

// begunConn is a connection of which some bytes were already read.
type begunConn struct {
	net.Conn
	first *bytes.Reader
}

// NetConn lets Written find the counting connection below.
func (c *begunConn) NetConn() net.Conn { return c.Conn }

func (c *begunConn) Read(p []byte) (int, error) {
	if c.first.Len() > 0 {
		return c.first.Read(p)
	}
	return c.Conn.Read(p)
}
