package transport

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/toolkeep/toolkeep/mcp"
)

// HTTPConn is a connection over streamable HTTP. It is an mcp.Conn.
//
// A request whose _meta names revision 2026-07-28 is sent with that revision's headers,
// and the end of its context closes its stream, which cancels it at the server. For
// older revisions the caller must send notifications/cancelled.
type HTTPConn struct {
	*peer

	// Guarded by peer.mu.
	session   string
	version   string
	opened    bool // the GET stream was started
	listening bool // and the server may support it
}

var _ mcp.Conn = (*HTTPConn)(nil)

// HTTP returns a connection. Nothing is sent before the first Write, which also reports
// an unusable URL.
func HTTP(c HTTPConfig) *HTTPConn { return &HTTPConn{peer: newPeer(c)} }

// OnAnswer makes Write call fn with a response that is the only message of its POST's
// reply, before Write returns; Read does not return it then. This saves two goroutine
// switches per request. Set it before the first Write; fn must not block.
func (c *HTTPConn) OnAnswer(fn func(*mcp.Message)) { c.answers = fn }

// Session returns the server's session id, or "".
func (c *HTTPConn) Session() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Version returns the revision in use: from the response to initialize, from the _meta
// of the latest modern request that succeeded, or from SetVersion.
func (c *HTTPConn) Version() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// SetVersion sets the revision for messages that do not name one.
func (c *HTTPConn) SetVersion(v string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = v
}

// Write posts the message. It returns once the server has begun to respond: with the
// status for a notification or a response, with the whole body of a JSON response, with
// the head of an event stream. See mcp.Conn about ctx.
//
// A JSON-RPC error that comes with an HTTP error status is a response like any other,
// unless the status is 401, 403, 429, 503, or 404 within a session: those are a
// *SendError.
func (c *HTTPConn) Write(ctx context.Context, m *mcp.Message) error {
	if err := c.usable(); err != nil {
		return &SendError{NothingSent: true, Err: err}
	}
	x := c.exchange(ctx, m)
	session := c.address(m, x) // before expect: from then on a stream may bring the response
	if x.id != nil {
		if err := c.expect(x); err != nil {
			x.end()
			return &SendError{NothingSent: true, Err: err}
		}
	}
	err := c.post(m, x, session)
	if err == nil || c.undelivered(ctx, x) { // a nil *SendError is a non-nil error
		return nil
	}
	if errors.Is(err.Err, ErrSession) {
		c.fail(ErrSession)
	}
	return err
}

// address sets the revision that the message is sent in, and returns the session that it is sent to.
func (c *HTTPConn) address(m *mcp.Message, x *exchange) (session string) {
	version := m.Version()
	c.mu.Lock()
	session = c.session
	if version == "" {
		version = c.version
	}
	c.mu.Unlock()
	if m.Method == mcp.MethodInitialize {
		session, version = "", ""
	}
	if x.version, x.modern = version, mcp.Modern(version); x.modern {
		session = ""
	}
	return session
}

// post sends the message. If it returns nil, the holder of the exchange ends it.
func (c *HTTPConn) post(m *mcp.Message, x *exchange, session string) *SendError {
	resp, err := c.do(x.ctx, call{
		method: http.MethodPost, url: c.target, body: m.Bytes(), hooked: true,
		set: func(h http.Header) {
			h["Content-Type"], h["Accept"] = typeJSON, acceptBoth
			protocol(h, session, x.version)
			if x.modern {
				mcp.SetHeaders(h, m, c.params(m))
			}
		},
	})
	if err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.refused(resp, x, session)
	}
	if err := c.accepted(resp, m, x); err != nil {
		discard(resp)
		return err
	}
	if x.id == nil {
		discard(resp)
		x.end()
		return nil
	}
	return c.answer(resp, x)
}

// params returns the arguments of a tool call that are sent as headers.
func (c *HTTPConn) params(m *mcp.Message) []mcp.HeaderParam {
	if c.config.Params == nil || m.Method != mcp.MethodCallTool {
		return nil
	}
	tool, _ := m.Name()
	return c.config.Params(tool)
}

// Header values shared by all requests; read-only.
var (
	typeJSON   = []string{"application/json"}
	acceptBoth = []string{"application/json, text/event-stream"}
)

// protocol sets headers, with names in net/http's spelling.
func protocol(h http.Header, session, version string) {
	if session != "" {
		h[mcp.HeaderSession] = []string{session}
	} else {
		delete(h, mcp.HeaderSession)
	}
	if version != "" {
		h[mcp.HeaderVersion] = []string{version}
	} else {
		delete(h, mcp.HeaderVersion)
	}
}

// accepted processes the head of a successful response.
func (c *HTTPConn) accepted(resp *http.Response, m *mcp.Message, x *exchange) *SendError {
	switch m.Method {
	case mcp.MethodInitialize:
		session := resp.Header.Get(mcp.HeaderSession)
		if !visible(session) {
			return &SendError{Status: resp.StatusCode, Err: errors.New("the server gave a session id that is not 1 to 1,024 visible ASCII characters")}
		}
		c.mu.Lock()
		c.session = session
		c.mu.Unlock()
	case mcp.NotificationInitialized:
		if !x.modern {
			c.listen(x.ctx)
		}
	}
	return nil
}

func visible(session string) bool {
	for i := 0; i < len(session); i++ {
		if session[i] < 0x21 || session[i] > 0x7e {
			return false
		}
	}
	return len(session) <= maxSession
}

// refused turns an error status into Write's error or into the response.
func (c *HTTPConn) refused(resp *http.Response, x *exchange, session string) *SendError {
	rpc := c.rpcError(resp)
	discard(resp)
	if session != "" && sessionGone(resp.StatusCode, rpc) {
		return &SendError{Refused: true, Status: resp.StatusCode, Err: ErrSession}
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return refusal(resp, rpc)
	}
	if rpc == nil || x.id == nil {
		return refusal(resp, rpc)
	}
	c.settle(x, &mcp.Message{ID: x.id, Err: rpc})
	x.end()
	return nil
}

// sessionGone: the specification says 404. Example servers of the TypeScript SDK answer
// an unknown session id with 400 and their own text.
func sessionGone(status int, rpc *mcp.Error) bool {
	if status == http.StatusNotFound {
		return true
	}
	return status == http.StatusBadRequest && rpc != nil &&
		(rpc.Code == mcp.CodeSessionNotFound || rpc.Code == -32000) &&
		strings.Contains(strings.ToLower(rpc.Message), "session")
}

// answer reads the response to a request, or starts to.
func (c *HTTPConn) answer(resp *http.Response, x *exchange) *SendError {
	fail := func(why string, err error) *SendError {
		_ = resp.Body.Close()
		if err == nil {
			err = errors.New(why)
		}
		return &SendError{Status: resp.StatusCode, Err: err}
	}
	if encoded(resp) {
		return fail("the server compressed its answer, which was not requested", nil)
	}
	switch kind := mediaType(resp); {
	case kind == "text/event-stream":
		if !c.spawn(func() { c.follow(x, resp) }) {
			return fail("", ErrClosed)
		}
		return nil
	case kind == "application/json":
		data, err := c.whole(resp)
		if err != nil {
			return fail("", cause(x.ctx, err))
		}
		_ = resp.Body.Close()
		if len(data) > 0 {
			return c.settleJSON(resp, data, x)
		}
		fallthrough
	case resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent:
		discard(resp)
		c.mu.Lock()
		listening := c.listening
		c.mu.Unlock()
		if !listening || x.modern {
			return fail("the server accepted the request and did not answer", nil)
		}
		return nil // the response may come on the server's own stream
	default:
		return fail("the server answered "+orNothing(kind)+" where JSON or an event stream is expected", nil)
	}
}

func orNothing(kind string) string {
	if kind == "" {
		return "without a content type"
	}
	return kind
}

func (c *HTTPConn) settleJSON(resp *http.Response, data []byte, x *exchange) *SendError {
	x.whole = true
	if err := c.receive(x.ctx, data, x, c.learn); err != nil {
		return &SendError{Status: resp.StatusCode, Err: errors.New("the server's answer is not a JSON-RPC message: " + err.Error())}
	}
	if c.waits(x) {
		return &SendError{Status: resp.StatusCode, Err: errors.New("the server's answer has another id than the request")}
	}
	x.end()
	return nil
}

// learn takes the revision from the response to initialize, or from a modern request
// that succeeded.
func (c *HTTPConn) learn(x *exchange, m *mcp.Message) {
	switch {
	case m.Err != nil:
		return
	case x.modern:
		c.SetVersion(x.version)
		return
	case x.method != mcp.MethodInitialize:
		return
	}
	if v := mcp.Text(m.Result, "protocolVersion"); v != "" && len(v) <= 64 && visible(v) {
		c.SetVersion(v)
	}
}

// Close ends the session with DELETE, if there is one, and all streams. Requests under
// way fail with ErrClosed. Read returns io.EOF from then on.
func (c *HTTPConn) Close() error {
	c.shut(func() {
		c.mu.Lock()
		session, version, failure := c.session, c.version, c.failure
		c.mu.Unlock()
		if session == "" || errors.Is(failure, ErrSession) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), c.config.closeTimeout)
		defer cancel()
		resp, err := c.do(ctx, call{method: http.MethodDelete, url: c.target, set: func(h http.Header) { protocol(h, session, version) }})
		if err == nil { // 405 means that clients may not end sessions
			discard(resp)
		}
	})
	return nil
}
