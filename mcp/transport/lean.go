package transport

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/toolkeep/toolkeep/egress"
)

const (
	leanBytes = 64 << 10         // of a body: a socket takes it at once, without a concurrent read
	leanIdle  = 32               // connections kept idle
	leanOpen  = 256              // connections in all
	leanLife  = 60 * time.Second // of an idle connection
	leanHead  = 10 << 20         // bytes of a response head if the transport sets no limit
	leanEarly = 5                // 1xx responses before the final one
)

// lean is an HTTP/1.1 client for the most common call: a short POST to a plain http
// address. It works entirely in the caller's goroutine. net/http passes each request to
// two goroutines; waking them costs a busy machine as much as everything else, and an
// idle one a third of the latency. Anything less simple is left to net/http.
//
// Connections come from the transport's own DialContext and carry one request at a
// time. Before reuse, a connection is checked: if the server sent something or closed
// it, it is dropped.
type lean struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	addr string
	head int64

	mu     sync.Mutex
	idle   []*leanConn // most recent last
	open   int
	closed bool
	sweep  *time.Timer // closes connections idle for too long; nil if none are idle
}

// newLean returns nil if net/http has to do it.
func newLean(client *http.Client, u *url.URL) *lean {
	if !canPeek || u == nil || u.Scheme != "http" || u.User != nil || client.Jar != nil || !ascii(u.Host) {
		return nil
	}
	t, ok := client.Transport.(*http.Transport)
	if !ok || t.Proxy != nil || t.Protocols != nil || t.DisableKeepAlives || t.ResponseHeaderTimeout > 0 {
		return nil
	}
	dial := t.DialContext
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	l := &lean{dial: dial, addr: net.JoinHostPort(u.Hostname(), egress.Port(u)), head: t.MaxResponseHeaderBytes}
	if l.head <= 0 {
		l.head = leanHead
	}
	return l
}

func ascii(s string) bool {
	return !slices.ContainsFunc([]byte(s), func(c byte) bool { return c >= 0x80 })
}

// leanConn is one connection.
type leanConn struct {
	net.Conn
	peek  *peeker
	r     *bufio.Reader
	w     *bufio.Writer
	left  int64 // that may still be read of the head
	wrote int64 // of the current request
	used  bool  // by an earlier request
	since time.Time
}

// Read enforces the head's limit.
func (c *leanConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errors.New("the head of the server's answer is too long")
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.Conn.Read(p)
	c.left -= int64(n)
	return n, err
}

func (c *leanConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wrote += int64(n)
	return n, err
}

// errFull: the limit of connections is reached.
var errFull = errors.New("too many connections")

// take returns a connection, reused or new.
func (l *lean) take(ctx context.Context) (*leanConn, error) {
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, ErrClosed
		}
		n := len(l.idle)
		if n == 0 {
			if l.open >= leanOpen {
				l.mu.Unlock()
				return nil, errFull
			}
			l.open++
			l.mu.Unlock()
			return l.make(ctx)
		}
		c := l.idle[n-1]
		l.idle[n-1] = nil
		l.idle = l.idle[:n-1]
		l.mu.Unlock()
		if time.Since(c.since) < leanLife && c.peek.quiet() {
			return c, nil
		}
		l.drop(c)
	}
}

func (l *lean) make(ctx context.Context) (*leanConn, error) {
	conn, err := l.dial(ctx, "tcp", l.addr)
	if err != nil {
		l.mu.Lock()
		l.open--
		l.mu.Unlock()
		return nil, err
	}
	c := &leanConn{Conn: conn, peek: newPeeker(conn)}
	c.r, c.w = bufio.NewReader(c), bufio.NewWriter(c)
	return c, nil
}

func (l *lean) drop(c *leanConn) {
	_ = c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
}

// put keeps a connection for reuse.
func (l *lean) put(c *leanConn) {
	c.used, c.since = true, time.Now()
	l.mu.Lock()
	if l.closed || len(l.idle) >= leanIdle || c.peek == nil {
		l.mu.Unlock()
		l.drop(c)
		return
	}
	l.idle = append(l.idle, c)
	if l.sweep == nil {
		l.sweep = time.AfterFunc(leanLife, l.expire)
	}
	l.mu.Unlock()
}

// expire closes connections idle for too long, and reschedules itself while any are
// left.
func (l *lean) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep = nil
	if l.closed {
		return
	}
	now := time.Now()
	n := 0
	for n < len(l.idle) && now.Sub(l.idle[n].since) >= leanLife {
		_ = l.idle[n].Close()
		l.open--
		n++
	}
	l.idle = slices.Delete(l.idle, 0, n)
	if len(l.idle) > 0 {
		l.sweep = time.AfterFunc(leanLife-now.Sub(l.idle[0].since), l.expire)
	}
}

// close ends idle connections; the others end with their requests.
func (l *lean) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.idle {
		_ = c.Close()
		l.open--
	}
	l.idle = nil
	if l.sweep != nil {
		l.sweep.Stop()
	}
}

// do sends a request and reads the response head. Until the body has been read or
// closed, the end of ctx closes the connection. unsent qualifies an error: no byte of
// the request was sent.
func (l *lean) do(ctx context.Context, req *http.Request) (resp *http.Response, unsent bool, err error) {
	for {
		c, err := l.take(ctx)
		if err != nil {
			return nil, true, err
		}
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		resp, err := c.exchange(req, l.head)
		if err == nil {
			b := &leanBody{ReadCloser: resp.Body, l: l, c: c, stop: stop, last: resp.Close || resp.StatusCode < 200}
			if resp.Body == http.NoBody {
				b.finish(true)
			} else {
				resp.Body = b
			}
			return resp, false, nil
		}
		stop()
		l.drop(c)
		if unsent = c.wrote == 0; !unsent || !c.used || ctx.Err() != nil {
			return nil, unsent, err
		}
		// The server closed a kept connection meanwhile.
		if req.Body, err = req.GetBody(); err != nil {
			return nil, true, err
		}
	}
}

func (c *leanConn) exchange(req *http.Request, head int64) (*http.Response, error) {
	c.wrote, c.left = 0, head
	if err := req.Write(c.w); err != nil {
		return nil, err
	}
	if err := c.w.Flush(); err != nil {
		return nil, err
	}
	for range leanEarly + 1 {
		resp, err := http.ReadResponse(c.r, req)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			c.left = math.MaxInt64
			return resp, nil
		}
	}
	return nil, errors.New("the server announced its answer and did not send it")
}

// leanBody releases the connection at its end.
type leanBody struct {
	io.ReadCloser
	l    *lean
	c    *leanConn
	stop func() bool
	last bool // the connection must not be reused
	over bool
}

func (b *leanBody) Read(p []byte) (int, error) {
	if b.over {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.finish(err == io.EOF)
	}
	return n, err
}

// Close closes the connection of a body that was not read to its end.
func (b *leanBody) Close() error {
	b.finish(false)
	return nil
}

func (b *leanBody) finish(whole bool) {
	if b.over {
		return
	}
	b.over = true
	if b.stop() && whole && !b.last && b.c.r.Buffered() == 0 {
		b.l.put(b.c)
		return
	}
	b.l.drop(b.c)
}

// peeker checks whether an idle connection has data or was closed.
type peeker struct {
	raw   syscall.RawConn
	look  func(fd uintptr) bool
	alive bool
}

// newPeeker returns nil for a connection that cannot be checked; it is then not reused.
func newPeeker(c net.Conn) *peeker {
	if counted, ok := c.(*egress.Conn); ok {
		c = counted.Conn
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	p := &peeker{raw: raw}
	p.look = func(fd uintptr) bool { p.alive = silent(fd); return true }
	return p
}

func (p *peeker) quiet() bool {
	p.alive = false
	return p.raw.Read(p.look) == nil && p.alive
}

// redirects reports whether a response is a redirect.
func redirects(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}
	return false
}
