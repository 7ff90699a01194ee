package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/mcp"
)

// SSEConn is a connection over the HTTP with server-sent events of revision 2024-11-05:
// one GET stream that carries all messages from the server, and POSTs to the address in
// its first event. It is an mcp.Conn. The stream cannot be resumed: its end is the end
// of the connection.
type SSEConn struct {
	*peer
	start    sync.Once
	ready    chan struct{} // closed when endpoint is set
	endpoint *url.URL
}

var _ mcp.Conn = (*SSEConn)(nil)

// SSE returns a connection. The first Write or Read opens the stream. It ignores
// HTTPConfig's Params, noStream and the settings for resuming.
func SSE(c HTTPConfig) *SSEConn { return &SSEConn{peer: newPeer(c), ready: make(chan struct{})} }

// Read implements mcp.Conn.
func (c *SSEConn) Read(ctx context.Context) (*mcp.Message, error) {
	c.open()
	return c.peer.Read(ctx)
}

// Write posts the message; the first one waits until the stream is open. The response
// arrives on the stream, and is delivered unless ctx has ended. If the stream cannot be
// opened, its error is returned here with NothingSent.
func (c *SSEConn) Write(ctx context.Context, m *mcp.Message) error {
	if err := c.usable(); err != nil {
		return unsent(err)
	}
	c.open()
	select {
	case <-c.ready:
	case <-c.failed:
		return unsent(c.usable())
	case <-ctx.Done():
		return unsent(ctx.Err())
	case <-c.ctx.Done():
		return unsent(ErrClosed)
	}
	x := c.exchange(ctx, m)
	if x.id != nil {
		if err := c.expect(x); err != nil {
			x.end()
			return unsent(err)
		}
	}
	if err := c.post(x, m); err != nil {
		if c.undelivered(ctx, x) {
			return nil
		}
		if errors.Is(err.Err, ErrSession) {
			c.fail(ErrSession)
		}
		return err
	}
	if x.id == nil {
		x.end()
	}
	return nil
}

// unsent keeps the details of a SendError, such as the status of the stream's GET.
func unsent(err error) *SendError {
	var s *SendError
	if errors.As(err, &s) {
		e := *s
		e.NothingSent = true
		return &e
	}
	return &SendError{NothingSent: true, Err: err}
}

func (c *SSEConn) post(x *exchange, m *mcp.Message) *SendError {
	resp, err := c.do(x.ctx, call{
		method: http.MethodPost, url: c.endpoint, body: m.Bytes(), hooked: true,
		set: func(h http.Header) { h.Set("Content-Type", "application/json") },
	})
	if err != nil {
		return err
	}
	defer discard(resp)
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil
	}
	rpc := c.rpcError(resp)
	if sessionGone(resp.StatusCode, rpc) {
		return &SendError{Refused: true, Status: resp.StatusCode, Err: ErrSession}
	}
	return refusal(resp, rpc)
}

// open starts the stream, once.
func (c *SSEConn) open() {
	c.start.Do(func() {
		if c.badURL == nil {
			c.spawn(func() { c.fail(c.stream()) })
		}
	})
}

// stream reads the stream to its end and returns why it ended.
func (c *SSEConn) stream() error {
	resp, fail := c.do(c.ctx, call{
		method: http.MethodGet, url: c.target, hooked: true,
		set: func(h http.Header) { h.Set("Accept", "text/event-stream") },
	})
	if fail == nil {
		resp, fail = streamOf(resp)
	}
	if fail != nil {
		return fail
	}
	defer resp.Body.Close()
	r := mcp.NewEventReader(resp.Body, c.config.Limits.Bytes+eventSlack)
	for {
		e, err := r.Next()
		switch {
		case errors.Is(err, mcp.ErrTooLarge):
			c.oversized.Add(1)
			continue
		case err == io.EOF:
			return io.EOF
		case err != nil:
			return cause(c.ctx, err)
		case e.Name == "endpoint" && c.endpoint == nil:
			if err := c.meet(resp.Request.URL, string(e.Data)); err != nil {
				return err
			}
		case c.endpoint != nil && len(e.Data) > 0 && (e.Name == "" || e.Name == "message"):
			_ = c.receive(c.ctx, e.Data, nil, nil) // counted there
		}
	}
}

// meet takes the address for messages. Another origin is refused, because it would
// receive the credentials.
func (c *SSEConn) meet(base *url.URL, ref string) error {
	u, err := base.Parse(ref)
	if err != nil || ref == "" {
		return errors.New("the server's endpoint event holds no URL")
	}
	if !egress.SameOrigin(u, c.target) || u.User != nil {
		return errors.New("the server's endpoint event names another origin; it must be the stream's own")
	}
	u.User = c.target.User
	c.endpoint = u
	close(c.ready)
	return nil
}

// Close ends the stream. Requests under way fail with ErrClosed. Read returns io.EOF
// from then on.
func (c *SSEConn) Close() error {
	c.shut(nil)
	return nil
}
