package upstream

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

const (
	// outbox is the queue length for messages without a waiting caller: refusals,
	// pongs, cancellations. A server that sends requests faster than it reads loses the
	// rest.
	outbox = 256
	// postTimeout bounds the delivery of one queued message.
	postTimeout = 10 * time.Second
)

// link is one connection with its pending requests. It assigns the ids and progress
// tokens on the wire; its reader never blocks.
type link struct {
	conn  mcp.Conn
	pipe  bool // over stdin and stdout
	owner owner

	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	out    chan *mcp.Message
	work   sync.WaitGroup
	done   chan struct{} // closed when the reader has ended

	heard atomic.Int64 // when the latest message came, Unix nanoseconds
	stray *atomic.Int64

	mu      sync.Mutex
	next    int64
	pending map[int64]*pendingRequest
	err     error // why the reader ended
}

// owner receives everything but responses. Its methods must not block.
type owner interface {
	// asked receives a server request. about is the pending request it belongs to, nil
	// if unknown.
	asked(m *mcp.Message, about *pendingRequest)
	// notified receives a notification.
	notified(m *mcp.Message, about *pendingRequest)
}

// pendingRequest is one outgoing request. Its fields are set before begin, unless
// marked as changing.
type pendingRequest struct {
	method string
	token  []byte          // the caller's progress token, raw; or nil
	out    *notifier       // receives its notifications; nil without a peer
	peer   Peer            // answers server requests; nil for none
	held   bool            // without a waiting caller: a subscription, a ping
	ctx    context.Context // of the waiting caller

	acked   chan struct{} // of a subscription: closed once the server accepted it
	ackOnce sync.Once

	id     int64
	answer chan *mcp.Message // receives one message
	left   chan struct{}     // closed when call returns: its outcome is known
	signs  atomic.Int64      // signs of life: progress received, server requests answered
	asks   atomic.Int32      // server requests that wait for the caller
}

func newLink(conn mcp.Conn, o owner, stray *atomic.Int64) *link {
	_, pipe := conn.(*transport.LinesConn)
	l := &link{
		conn: conn, pipe: pipe, owner: o, out: make(chan *mcp.Message, outbox), done: make(chan struct{}),
		stray: stray, pending: make(map[int64]*pendingRequest),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.heard.Store(time.Now().UnixNano())
	if c, ok := conn.(*transport.HTTPConn); ok {
		c.OnAnswer(l.answered)
	}
	l.work.Go(l.read)
	l.work.Go(l.write)
	return l
}

// close ends the link and its connection and waits for both. Pending requests fail with
// errClosed.
func (l *link) close() {
	l.cancel()
	_ = l.conn.Close()
	l.work.Wait()
}

// errClosed is the cause when Toolkeep closed the link.
var errClosed = errors.New("the session was closed")

func (l *link) read() {
	defer close(l.done)
	for {
		m, err := l.conn.Read(l.ctx)
		if err != nil {
			l.mu.Lock()
			if l.err = err; l.ctx.Err() != nil {
				l.err = errClosed
			}
			l.mu.Unlock()
			l.cancel()
			return
		}
		l.answered(m)
	}
}

// answered takes a message. The reader calls it; for responses a waiting caller may
// too.
func (l *link) answered(m *mcp.Message) {
	l.heard.Store(time.Now().UnixNano())
	l.take(m)
}

// ended returns why the reader ended, nil while it runs.
func (l *link) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *link) take(m *mcp.Message) {
	switch {
	case m.IsResponse():
		id, ok := wireID(m.ID)
		l.mu.Lock()
		f := l.pending[id]
		if ok && f != nil {
			delete(l.pending, id)
		}
		l.mu.Unlock()
		if !ok || f == nil {
			l.stray.Add(1) // late, duplicate or unsolicited
			return
		}
		f.answer <- m
	case m.IsRequest() && m.Method == mcp.MethodPing:
		l.post(mcp.Reply(m.ID, nil))
	case m.IsRequest():
		l.owner.asked(m, l.related(m))
	case m.Method == mcp.NotificationProgress:
		l.progress(m)
	default:
		l.owner.notified(m, l.related(m))
	}
}

// related returns the pending request whose stream carried the message.
func (l *link) related(m *mcp.Message) *pendingRequest {
	raw := m.Related
	if raw == nil {
		if raw = mcp.Get(m.Params, "_meta", mcp.MetaSubscriptionID); raw == nil {
			return nil
		}
	}
	id, ok := wireID(raw)
	if !ok {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending[id]
}

// progress goes to the pending request with that token, under the caller's token.
func (l *link) progress(m *mcp.Message) {
	id, ok := wireID(mcp.Get(m.Params, "progressToken"))
	l.mu.Lock()
	f := l.pending[id]
	l.mu.Unlock()
	if !ok || f == nil || f.token == nil {
		l.stray.Add(1)
		return
	}
	f.signs.Add(1)
	f.out.push(m.Method, mcp.Set(m.Params, f.token, "progressToken"))
}

// wireID parses an id or token, and accepts only the form the link writes.
func wireID(raw []byte) (int64, bool) {
	if len(raw) == 0 || len(raw) > 19 || raw[0] < '1' || raw[0] > '9' {
		return 0, false
	}
	var n int64
	for _, c := range raw {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n > 0
}

// begin gives the request its id.
func (l *link) begin(f *pendingRequest) error {
	f.answer, f.left = make(chan *mcp.Message, 1), make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.next++
	f.id = l.next
	l.pending[f.id] = f
	return nil
}

// drop removes the request; it returns false if it was already answered.
func (l *link) drop(f *pendingRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending[f.id] != f {
		return false
	}
	delete(l.pending, f.id)
	return true
}

// sole returns the only pending request that can have notifications, or nil if there
// are none or several.
func (l *link) sole() *pendingRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	var one *pendingRequest
	for _, f := range l.pending {
		if f.held {
			continue
		}
		if one != nil {
			return nil
		}
		one = f
	}
	return one
}

// latest returns the newest pending request whose caller can answer.
func (l *link) latest() *pendingRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	var one *pendingRequest
	for _, f := range l.pending {
		if f.peer != nil && (one == nil || f.id > one.id) {
			one = f
		}
	}
	return one
}

// failure is why a request got no response.
type failure struct {
	cause error
	// unsent: nothing was sent, or the server certainly did not act on it.
	unsent bool
	// dead: the session is unusable.
	dead bool
	// lost: it was sent, and the response broke off.
	lost bool
}

func (f *failure) Error() string { return f.cause.Error() }
func (f *failure) Unwrap() error { return f.cause }

// errQuiet is the cause when the server gave no sign of life in time.
var errQuiet = errors.New("the server did not answer within the call's limit")

// call sends a begun request and waits for the response. quiet bounds the time without
// a sign of life, 0 does not; a server request that waits for the caller stops the
// clock. tell: also cancel an abandoned request with a notification.
func (l *link) call(ctx context.Context, f *pendingRequest, params []byte, quiet time.Duration, tell bool) (*mcp.Message, *failure) {
	defer close(f.left)
	// The context of Write covers the whole exchange.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if quiet > 0 {
		stop := f.watch(quiet, cancel)
		defer stop()
	}
	err := l.conn.Write(ctx, &mcp.Message{ID: strconv.AppendInt(nil, f.id, 10), Method: f.method, Params: params})
	if err == nil {
		select {
		case m := <-f.answer:
			return m, nil
		case <-ctx.Done():
		case <-l.done:
		}
	}
	if !l.drop(f) {
		return <-f.answer, nil // it arrived at the last moment
	}
	var fail *failure
	if err != nil {
		fail = unwritten(err)
		// A broken pipe stays broken; over HTTP the next request may find another
		// connection.
		fail.dead = fail.dead || l.pipe && ctx.Err() == nil
	} else {
		fail = &failure{}
	}
	switch {
	case ctx.Err() != nil && !fail.dead:
		fail.cause = context.Cause(ctx)
		if tell && !fail.unsent {
			l.cancelled(f, fail.cause)
		}
	case err == nil:
		<-l.done
		fail.cause, fail.dead = l.ended(), true
	}
	return nil, fail
}

// watch abandons the request after quiet without a sign of life.
func (f *pendingRequest) watch(quiet time.Duration, cancel context.CancelCauseFunc) (stop func()) {
	var (
		mu    sync.Mutex
		timer *time.Timer
		ended bool
		signs = f.signs.Load()
	)
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(quiet, func() {
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		if now := f.signs.Load(); now != signs || f.asks.Load() > 0 {
			signs = now
			timer.Reset(quiet)
			return
		}
		cancel(errQuiet)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		timer.Stop()
	}
}

// unwritten interprets an error of Write.
func unwritten(err error) *failure {
	fail := &failure{cause: err}
	var s *transport.SendError
	if !errors.As(err, &s) {
		return fail
	}
	fail.unsent = s.NothingSent
	switch {
	case errors.Is(s.Err, transport.ErrSession):
		// By the specification the server did not process a message for an unknown
		// session.
		fail.unsent, fail.dead = s.NotExecuted(), true
	case errors.Is(s.Err, transport.ErrClosed):
		fail.dead = true
	}
	return fail
}

// cancelled tells the server that the request was abandoned.
func (l *link) cancelled(f *pendingRequest, why error) {
	reason := "the caller gave up"
	if errors.Is(why, errQuiet) || errors.Is(why, context.DeadlineExceeded) {
		reason = "the time limit passed"
	}
	params := strconv.AppendInt([]byte(`{"requestId":`), f.id, 10)
	params = append(append(append(params, `,"reason":`...), mcp.Quote(reason)...), '}')
	l.post(&mcp.Message{Method: mcp.NotificationCancelled, Params: params})
}

// post queues a message without a waiting caller, or drops and counts it.
func (l *link) post(m *mcp.Message) {
	select {
	case l.out <- m:
	default:
		l.stray.Add(1)
	}
}

func (l *link) write() {
	for {
		select {
		case m := <-l.out:
			_ = l.deliver(l.ctx, m)
		case <-l.ctx.Done():
			return
		}
	}
}

// deliver writes a message that is not a request, within postTimeout.
func (l *link) deliver(ctx context.Context, m *mcp.Message) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	return l.conn.Write(ctx, m)
}
