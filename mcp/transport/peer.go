package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/mcp"
)

// HTTPConfig configures HTTP and SSE. Only URL is required. Its functions are called
// concurrently.
type HTTPConfig struct {
	URL string
	// Client makes the requests; nil uses a separate client with Go's defaults. Its
	// Timeout and CheckRedirect are ignored: streams are long-lived, and redirects are
	// followed only within the origin and only if they keep the method.
	Client *http.Client
	// Header returns headers to add to a request, such as credentials. It is called for
	// each request; an error stops the request.
	Header func(ctx context.Context) (http.Header, error)
	// Limits bound each message and each server-sent event; Bytes 0 is 100 MB.
	Limits canon.Limits
	// Unauthorized is called on HTTP 401, and on 403 if the server asks for more
	// scopes. If it returns nil, the request is sent once more with Header's new
	// headers; its error becomes the SendError's cause. It must not read the body.
	Unauthorized func(ctx context.Context, r *http.Response) error
	// Params returns the arguments of a tool that revision 2026-07-28 sends as headers;
	// see mcp.HeaderParams. nil: none.
	Params func(tool string) []mcp.HeaderParam
	// noStream keeps HTTP from opening the server's own stream with GET.
	noStream bool
	// retryMin and RetryMax bound the pause before a broken stream is reopened, which
	// doubles with each consecutive failure unless the server names one; 0 is 1 s and
	// 30 s.
	retryMin, RetryMax time.Duration
	// closeTimeout bounds the DELETE that Close sends; 0 is 5 s.
	closeTimeout time.Duration
	// OnJunk receives the first 200 bytes of an event that is not a message.
	OnJunk func(head []byte)
}

func (c HTTPConfig) filled() HTTPConfig {
	if c.retryMin <= 0 {
		c.retryMin = time.Second
	}
	if c.RetryMax <= 0 {
		c.RetryMax = 30 * time.Second
	}
	c.RetryMax = max(c.RetryMax, c.retryMin)
	if c.closeTimeout <= 0 {
		c.closeTimeout = 5 * time.Second
	}
	if c.Limits.Bytes <= 0 {
		c.Limits.Bytes = mcp.DefaultMaxBytes
	}
	return c
}

const (
	maxRedirects  = 5
	maxRetries    = 5        // resumptions of a response stream in a row without a new event
	maxErrorBody  = 64 << 10 // of a refusal, read for its JSON-RPC error
	maxHead       = 200
	maxEventID    = 4 << 10
	maxSession    = 1 << 10
	maxServerWait = 10 * time.Minute // upper bound of a retry field
	minServerWait = 50 * time.Millisecond
	drainTime     = time.Second // for the rest of a stream after its response
	inbox         = 32
)

// Stats counts what a connection received but did not deliver.
type Stats struct {
	Strays     int64 // unsolicited or duplicate responses
	Junk       int64 // events without a message
	Oversized  int64 // events over the limit
	Reconnects int64 // reopened streams
}

// peer is the common part of HTTP and SSE: requests with their hooks, pending ids, and
// the queue for Read.
type peer struct {
	config HTTPConfig
	client *http.Client
	target *url.URL
	badURL error
	lean   *lean       // nil: net/http does everything
	moved  atomic.Bool // the server redirects, which net/http handles

	ctx    context.Context
	cancel context.CancelFunc
	in     chan *mcp.Message
	failed chan struct{}

	answers func(*mcp.Message) // see HTTPConn.OnAnswer; nil: responses go to Read

	mu      sync.Mutex
	failure error
	closed  bool
	pending map[string]*exchange // by raw id
	work    sync.WaitGroup

	closing sync.Once

	strays, junk, oversized, reconnects atomic.Int64
}

// exchange is one outgoing message and, for a request, the wait for its response.
type exchange struct {
	id      []byte // nil unless the message is a request
	method  string
	version string // of its HTTP header
	modern  bool
	// ctx ends with the context of Write and with the connection.
	ctx    context.Context
	cancel context.CancelCauseFunc
	user   func() bool // both detach ctx from its parents
	conn   func() bool
	drain  atomic.Pointer[time.Timer]
	// whole: the response body has been read to its end. It belongs to the goroutine
	// that posted the message.
	whole bool
}

// exchange begins an exchange. The end of ctx also ends the wait for a response.
func (p *peer) exchange(ctx context.Context, m *mcp.Message) *exchange {
	x := &exchange{method: m.Method}
	if m.IsRequest() {
		x.id = bytes.Clone(m.ID)
	}
	x.ctx, x.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	x.conn = context.AfterFunc(p.ctx, func() { x.cancel(ErrClosed) })
	x.user = context.AfterFunc(ctx, func() {
		x.cancel(ctx.Err())
		x.conn()
		p.take(x)
	})
	return x
}

// end releases the exchange and closes its stream. It may be called more than once.
func (x *exchange) end() {
	if t := x.drain.Swap(nil); t != nil {
		t.Stop()
	}
	x.user()
	x.conn()
	x.cancel(context.Canceled)
}

// detach is called once the response is there: Write's context no longer matters, and
// the rest of the stream gets a moment to end by itself.
func (x *exchange) detach() {
	x.user()
	x.drain.Store(time.AfterFunc(drainTime, x.end))
}

func newPeer(c HTTPConfig) *peer {
	p := &peer{
		config: c.filled(), in: make(chan *mcp.Message, inbox), failed: make(chan struct{}),
		pending: make(map[string]*exchange),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.target, p.badURL = parseURL(c.URL)
	client := http.Client{}
	if c.Client != nil {
		client = *c.Client
	}
	client.Timeout = 0
	client.CheckRedirect = p.redirect
	p.client = &client
	p.lean = newLean(p.client, p.target)
	return p
}

func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the server's URL must be an http or https URL with a host")
	}
	return u, nil
}

// redirect follows redirects that stay within the origin and keep the request.
func (p *peer) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects || req.Method != via[0].Method || !egress.SameOrigin(req.URL, via[0].URL) {
		return http.ErrUseLastResponse
	}
	return nil
}

// Stats returns the connection's counters.
func (p *peer) Stats() Stats {
	return Stats{p.strays.Load(), p.junk.Load(), p.oversized.Load(), p.reconnects.Load()}
}

// Read implements mcp.Conn. Messages received before a failure are returned before it.
func (p *peer) Read(ctx context.Context) (*mcp.Message, error) {
	if p.badURL != nil {
		return nil, p.badURL
	}
	select {
	case m := <-p.in:
		return m, nil
	default:
	}
	select {
	case m := <-p.in:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ctx.Done():
		return nil, io.EOF
	case <-p.failed:
		select {
		case m := <-p.in:
			return m, nil
		default:
			p.mu.Lock()
			defer p.mu.Unlock()
			return nil, p.failure
		}
	}
}

// fail ends the connection for its users; the first reason is kept.
func (p *peer) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		p.failure = err
		close(p.failed)
	}
}

// undelivered ends an exchange whose message could not be written. It reports whether
// the request was answered anyway, on another stream.
func (p *peer) undelivered(ctx context.Context, x *exchange) (answered bool) {
	answered = x.id != nil && !p.take(x) && ctx.Err() == nil && p.usable() == nil
	x.end()
	return answered
}

// usable returns nil, or why the connection is unusable.
func (p *peer) usable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.failure != nil:
		return p.failure
	}
	return p.badURL
}

// spawn starts work that Close waits for; it returns false after Close.
func (p *peer) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.work.Go(f)
	return true
}

// expect registers a request.
func (p *peer) expect(x *exchange) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.pending[string(x.id)]; ok {
		return errors.New("a request with this id waits for its answer already")
	}
	p.pending[string(x.id)] = x
	return nil
}

// take ends the wait for a response. If it returns true, the caller delivers the
// response.
func (p *peer) take(x *exchange) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x.id == nil || p.pending[string(x.id)] != x {
		return false
	}
	delete(p.pending, string(x.id))
	return true
}

// asked returns the pending request with the id, or nil.
func (p *peer) asked(id []byte) *exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending[string(id)]
}

func (p *peer) waits(x *exchange) bool { return p.asked(x.id) == x }

// settle delivers the response to a request that is still pending.
func (p *peer) settle(x *exchange, m *mcp.Message) bool {
	if !p.take(x) {
		return false
	}
	x.detach()
	p.emit(p.ctx, m)
	return true
}

// settleWhole is settle for a response that is the only message of a body: there is no
// stream to end and nothing to read first.
func (p *peer) settleWhole(x *exchange, m *mcp.Message) bool {
	if !p.take(x) {
		return false
	}
	if p.answers != nil {
		p.answers(m)
	} else {
		p.emit(p.ctx, m)
	}
	return true
}

// lose answers a request whose response will not come.
func (p *peer) lose(x *exchange, why error) {
	p.settle(x, &mcp.Message{ID: x.id, Lost: why, Err: mcp.NewError(mcp.CodeLost, "the answer was lost: "+why.Error())})
}

// emit queues a message for Read.
func (p *peer) emit(ctx context.Context, m *mcp.Message) {
	select {
	case p.in <- m:
	case <-ctx.Done():
	case <-p.ctx.Done():
	}
}

// receive delivers the messages of one body or event. about is the request whose stream
// carried it, nil on the server's own stream.
func (p *peer) receive(ctx context.Context, data []byte, about *exchange, answered func(*exchange, *mcp.Message)) error {
	canon.MendSurrogates(data)
	list, _, err := mcp.ParseBatch(data, p.config.Limits)
	if err != nil {
		p.junk.Add(1)
		if p.config.OnJunk != nil {
			p.config.OnJunk(data[:min(len(data), maxHead)])
		}
		return err
	}
	for _, m := range list {
		if !m.IsResponse() {
			if about != nil {
				m.Related = about.id
			}
			p.emit(ctx, m)
			continue
		}
		if m.ID == nil && about != nil {
			m.ID = about.id // from a server that could not read the id
		}
		x := p.asked(m.ID)
		if x == nil {
			p.strays.Add(1)
			continue
		}
		if answered != nil {
			answered(x, m)
		}
		settle := p.settle
		if x == about && x.whole && len(list) == 1 {
			settle = p.settleWhole
		}
		if !settle(x, m) {
			p.strays.Add(1)
		}
	}
	return nil
}

// call is one HTTP request.
type call struct {
	method string
	url    *url.URL
	body   []byte            // of a POST
	set    func(http.Header) // sets protocol headers
	hooked bool              // Unauthorized may be called
}

// do sends the request, and again if the server requires credentials that the hook has
// found. The error is a *SendError.
func (p *peer) do(ctx context.Context, c call) (*http.Response, *SendError) {
	for retried := false; ; retried = true {
		req := &http.Request{
			Method: c.method, URL: c.url, Host: c.url.Host, Header: make(http.Header, 8),
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		}
		if c.body != nil {
			req.ContentLength = int64(len(c.body))
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(c.body)), nil }
			req.Body, _ = req.GetBody()
		}
		if p.config.Header != nil {
			h, err := p.config.Header(ctx)
			if err != nil {
				return nil, &SendError{NothingSent: true, Err: err}
			}
			for k, v := range h {
				req.Header[http.CanonicalHeaderKey(k)] = v
			}
		}
		c.set(req.Header)
		resp, unsent, err := p.send(ctx, req)
		if err != nil {
			return nil, &SendError{NothingSent: unsent, Err: cause(ctx, err)}
		}
		if retried || !c.hooked || p.config.Unauthorized == nil || !wantsCredentials(resp) {
			return resp, nil
		}
		err = p.config.Unauthorized(ctx, resp)
		discard(resp)
		if err != nil {
			return nil, &SendError{Refused: true, Status: resp.StatusCode, Err: err}
		}
	}
}

// send makes one HTTP request. unsent qualifies an error: nothing of its body was sent.
func (p *peer) send(ctx context.Context, req *http.Request) (resp *http.Response, unsent bool, err error) {
	if p.lean != nil && req.Body != nil && req.ContentLength <= leanBytes && !p.moved.Load() {
		resp, unsent, err = p.lean.do(ctx, req)
		switch {
		case err == nil && redirects(resp):
			discard(resp)
			p.moved.Store(true)
		case err == nil || !errors.Is(err, errFull):
			return resp, unsent, err
		}
		req.Body, _ = req.GetBody() // never fails
	}
	sending := egress.SentTracker{BodyOnly: true}
	resp, err = p.client.Do(req.WithContext(sending.Trace(ctx)))
	return resp, err != nil && sending.NothingSent(), err
}

func wantsCredentials(r *http.Response) bool {
	return r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden &&
		strings.Contains(strings.Join(r.Header.Values("WWW-Authenticate"), ","), "insufficient_scope")
}

// cause strips the URL, which may contain a secret, from a client error.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refusal returns the error for a response other than 2xx. rpc is the JSON-RPC error in
// its body, if any.
func refusal(r *http.Response, rpc *mcp.Error) *SendError {
	s := r.StatusCode
	e := &SendError{
		Status:     s,
		Refused:    s >= 400 && s < 500 && s != http.StatusRequestTimeout && s != http.StatusConflict,
		RetryAfter: egress.RetryAfter(r.Header.Get("Retry-After"), time.Now()),
	}
	switch {
	case rpc != nil:
		e.Err = rpc
	case s >= 300 && s < 400:
		e.Refused = true
		e.Err = errors.New("the server redirects to another origin, or in a way that loses the message; the URL must be the final one")
	default:
		text := http.StatusText(s)
		if text == "" {
			text = "an unknown status"
		}
		e.Err = errors.New("the server answered " + text + kind(r))
	}
	return e
}

// kind describes a body without quoting it.
func kind(r *http.Response) string {
	if t := mediaType(r); t != "" {
		return " (" + t + ")"
	}
	return ""
}

// mediaType returns the content type without parameters, or "" if it is missing or
// invalid.
func mediaType(r *http.Response) string {
	if v := r.Header["Content-Type"]; len(v) == 1 && v[0] == "application/json" {
		return v[0]
	}
	t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || len(t) > 100 {
		return ""
	}
	return t
}

// rpcError reads the JSON-RPC error from an error response.
func (p *peer) rpcError(r *http.Response) *mcp.Error {
	if mediaType(r) != "application/json" {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBody))
	if err != nil {
		return nil
	}
	m, err := mcp.Parse(data, p.config.Limits)
	if err != nil {
		return nil
	}
	return m.Err
}

// whole reads a JSON body.
func (p *peer) whole(r *http.Response) ([]byte, error) {
	limit := p.config.Limits.Bytes
	if r.ContentLength > limit {
		return nil, mcp.ErrTooLarge
	}
	// Preallocate by the declared length only up to 1 MiB.
	if n := r.ContentLength; n >= 0 && n <= 1<<20 {
		data := make([]byte, n)
		if _, err := io.ReadFull(r.Body, data); err != nil {
			return nil, err
		}
		return data, nil
	}
	var b bytes.Buffer
	b.Grow(int(min(max(r.ContentLength, 0), 1<<20)) + bytes.MinRead)
	_, err := b.ReadFrom(io.LimitReader(r.Body, limit+1))
	if err == nil && int64(b.Len()) > limit {
		return nil, mcp.ErrTooLarge
	}
	return b.Bytes(), err
}

// discard closes a body. A short one is read first, so that the connection can be
// reused.
func discard(r *http.Response) {
	_, _ = io.CopyN(io.Discard, r.Body, 4<<10)
	_ = r.Body.Close()
}

// encoded reports whether the body is compressed although that was not requested.
func encoded(r *http.Response) bool {
	e := r.Header.Get("Content-Encoding")
	return e != "" && !strings.EqualFold(e, "identity")
}

// shut calls last, then cancels all work and waits for it.
func (p *peer) shut(last func()) {
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		if last != nil {
			last()
		}
		p.cancel()
		if p.lean != nil {
			p.lean.close()
		}
	})
	p.work.Wait()
}
