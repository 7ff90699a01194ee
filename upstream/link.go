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
	// outbox is how many messages that nobody waits for may queue: refusals, pongs,
	// cancellations. A server that asks faster than it reads loses the rest.
	outbox = 256
	// postTimeout bounds the delivery of one of them.
	postTimeout = 10 * time.Second
)

// link is one connection with its requests in flight. Ids and progress tokens on
// the wire are its own; the reader never waits for anybody.
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

// owner is told what comes beside answers. Neither may wait.
type owner interface {
	// asked is for a request of the server. about is the pending request that it belongs to,
	// nil if unknown.
	asked(m *mcp.Message, about *pendingRequest)
	// told is for a notification.
	told(m *mcp.Message, about *pendingRequest)
}

// pendingRequest is one request of ours. Its fields are set before begin, but for those
// that are said to change.
type pendingRequest struct {
	method string
	token  []byte          // the caller's progress token, raw; nil without
	out    *notifier       // where its notifications go; nil without a peer
	peer   Peer            // who may be asked; nil for nobody
	held   bool            // no caller waits for it: a subscription, a ping
	ctx    context.Context // of whoever waits for the answer

	acked   chan struct{} // of a subscription: closed when the server took it
	ackOnce sync.Once

	id     int64
	answer chan *mcp.Message // gets one
	signs  atomic.Int64      // of life: progress that came, questions that ended
	asks   atomic.Int32      // questions that wait for the caller
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

// close ends the link and its connection and waits for both. Pending requests end with
// errClosed.
func (l *link) close() {
	l.cancel()
	_ = l.conn.Close()
	l.work.Wait()
}

// errClosed is why a link ended that we ended.
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

// answered takes a message, called by the reader, and for answers also by whoever
// waits for them.
func (l *link) answered(m *mcp.Message) {
	l.heard.Store(time.Now().UnixNano())
	l.take(m)
}

// ended is why the reader ended, nil while it has not.
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
			l.stray.Add(1) // late, twice, or never asked for
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
		l.owner.told(m, l.related(m))
	}
}

// related is the pending request on whose stream the message came.
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

// progress goes to the pending request whose token it names, under the caller's token.
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

// wireID reads an id or a token that can only be ours if it is written as we write.
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
	f.answer = make(chan *mcp.Message, 1)
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

// drop forgets the request; false: it was answered already.
func (l *link) drop(f *pendingRequest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending[f.id] != f {
		return false
	}
	delete(l.pending, f.id)
	return true
}

// sole is the one pending request that can have notifications, nil if there are
// none or several.
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

// latest is the newest pending request that has a caller to ask.
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

// failure is why a request has no answer.
type failure struct {
	cause error
	// unsent: nothing of it left, or it is certain that the server did not act on it.
	unsent bool
	// dead: the session is of no more use.
	dead bool
	// lost: it was sent, and the answer broke off.
	lost bool
}

func (f *failure) Error() string { return f.cause.Error() }
func (f *failure) Unwrap() error { return f.cause }

// errQuiet is the cause of a request that the server gave no sign of life for.
var errQuiet = errors.New("the server did not answer within the call's limit")

// call sends a request that has begun and waits for its answer. quiet bounds the
// time without a sign of life, 0 does not; a question that waits for the caller
// stops the clock. tell: a request that is given up is cancelled by a notification,
// beside the end of its context.
func (l *link) call(ctx context.Context, f *pendingRequest, params []byte, quiet time.Duration, tell bool) (*mcp.Message, *failure) {
	// The context of Write is that of the whole exchange.
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
		return <-f.answer, nil // it came at the last moment
	}
	var fail *failure
	if err != nil {
		fail = unwritten(err)
		// A pipe that cannot be written to stays so; over HTTP the next request may
		// find another connection.
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

// watch gives the request up after quiet without a sign of life.
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

// unwritten reads what Write said.
func unwritten(err error) *failure {
	fail := &failure{cause: err}
	var s *transport.SendError
	if !errors.As(err, &s) {
		return fail
	}
	fail.unsent = s.NothingSent
	switch {
	case errors.Is(s.Err, transport.ErrSession):
		// By the specification the server has not looked at a message of a session
		// that it does not know.
		fail.unsent, fail.dead = s.NotExecuted(), true
	case errors.Is(s.Err, transport.ErrClosed):
		fail.dead = true
	}
	return fail
}

// cancelled tells the server that nobody waits any more.
func (l *link) cancelled(f *pendingRequest, why error) {
	reason := "the caller gave up"
	if errors.Is(why, errQuiet) || errors.Is(why, context.DeadlineExceeded) {
		reason = "the time limit passed"
	}
	params := strconv.AppendInt([]byte(`{"requestId":`), f.id, 10)
	params = append(append(append(params, `,"reason":`...), mcp.Quote(reason)...), '}')
	l.post(&mcp.Message{Method: mcp.NotificationCancelled, Params: params})
}

// post queues a message that nobody waits for; false: it was dropped.
func (l *link) post(m *mcp.Message) bool {
	select {
	case l.out <- m:
		return true
	default:
		l.stray.Add(1)
		return false
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

// deliver writes a message that is no request, within its time.
func (l *link) deliver(ctx context.Context, m *mcp.Message) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	return l.conn.Write(ctx, m)
}
