package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

const (
	// maxQuestions bounds the server requests of one session that wait for an answer.
	maxQuestions = 16
	// settle is how long list changes of one kind are collected before they are
	// announced: servers send several in a row when they start.
	settle = 200 * time.Millisecond
	// pingTimeout bounds one ping, less if pings are more frequent; pingLimit is how
	// many in a row may fail.
	pingTimeout = 10 * time.Second
	pingLimit   = 2
)

// Info is what a server says about itself.
type Info struct {
	Version      string // protocol revision in use
	Server       []byte // raw serverInfo object, or nil
	Capabilities []byte // raw object
	Instructions string
}

// session is one MCP session with a server.
type session struct {
	srv     *server
	state   *tenantState
	slot    *slot // nil until it is ready
	key     key
	bound   bool   // server requests reach a caller
	caps    []byte // client capabilities it declared
	link    *link
	proc    *process // nil except for stdio
	release func()   // releases its secrets in the redactor
	own     *own     // its secrets, for the definitions that it reads
	errs    chan struct{}

	// Set by the handshake, before the session is shared.
	info   Info
	modern bool
	meta   []byte // members of _meta in every modern request

	// first is closed once the tools were read in this session, or once it is clear
	// that the first call must read them; nil if they are not compared.
	first    chan struct{}
	unread   atomic.Bool   // the first call must read them
	began    time.Time     // when the handshake was done
	newer    chan struct{} // filled by a list change
	settling sync.Once

	ending  sync.Once
	stopped chan struct{} // closed when nothing is left

	mu        sync.Mutex
	bindings  []*Binding
	questions map[string]context.CancelFunc // by raw id
	changes   map[string]bool               // list changes being collected
	level     string                        // latest level sent to a legacy server
	watched   map[string]*watch             // resources, by URI
	turns     map[string]*turn              // subscriptions that are being changed, by URI
	// shown are the digests of the definitions that a person's session showed when it was
	// read last, by the tools' names; listed is when they came, in every session.
	shown  map[string][sha256.Size]byte
	listed time.Time
	tried  time.Time // when Recheck began to read it last
}

// outdated reports whether renew took the session from new calls.
func (s *session) outdated() bool { return s.slot != nil && s.slot.outdated.Load() }

// shut ends the session and returns when nothing of it is left.
func (s *session) shut() {
	s.ending.Do(func() {
		s.link.close()
		if s.proc != nil {
			s.proc.stop(false)
			select {
			case <-s.errs:
			case <-time.After(time.Second): // an unkillable process holds it open
			}
			_ = s.proc.stderr.Close()
			<-s.errs
		}
		s.release()
		close(s.stopped)
	})
	<-s.stopped
}

// outgoing is one request of a caller.
type outgoing struct {
	method   string
	params   []byte
	peer     Peer
	out      *notifier
	level    string // log level requested of a modern server, "" for none
	maxBytes int64
}

// Answer is a server's result.
type Answer struct {
	Result    []byte // raw JSON
	BytesSent int64  // of params
	BytesRecv int64  // of the result
}

// Bounds on how often a modern server may answer with requests, and how often with an
// empty list of them, which means that it is busy.
const (
	maxRounds = 10
	maxBusy   = 3
)

// request runs one request, including the server requests it causes. The error is a
// *failure, the server's *mcp.Error or a *toolkeep.Error.
func (s *session) request(ctx context.Context, r *outgoing) (*Answer, error) {
	a := &Answer{}
	params := r.params
	for round, idle := 1, 0; ; round++ {
		m, f := s.send(ctx, r, params, a)
		if f != nil {
			return nil, f
		}
		if m.Err != nil {
			return nil, m.Err
		}
		a.Result = m.Result
		if !s.modern || mcp.Text(m.Result, "resultType") != "input_required" {
			break
		}
		if round >= maxRounds {
			return nil, broken(s.srv.spec.Name, fmt.Sprintf("it answered %d times with questions", round))
		}
		replies, none, err := s.askAll(ctx, r, mcp.Get(m.Result, "inputRequests"))
		if err != nil {
			return nil, err
		}
		if none {
			if idle++; idle >= maxBusy {
				return nil, down(s.srv.spec.Name, "it says that it is busy", false).After(time.Second)
			}
			if !toolkeep.Sleep(ctx, time.Second) {
				return nil, &failure{cause: context.Cause(ctx)}
			}
		}
		params = mcp.Set(r.params, replies, "inputResponses")
		if state := mcp.Get(m.Result, "requestState"); state != nil {
			params = mcp.Set(params, state, "requestState")
		}
	}
	r.out.flush(ctx)
	limit := s.srv.spec.MaxResultBytes
	if r.maxBytes > 0 {
		limit = min(limit, r.maxBytes)
	}
	if int64(len(a.Result)) > limit {
		return nil, tooLarge(s.srv.spec.Name, limit)
	}
	return a, nil
}

// send is one round trip.
func (s *session) send(ctx context.Context, r *outgoing, params []byte, a *Answer) (*mcp.Message, *failure) {
	f := &pendingRequest{method: r.method, ctx: ctx, out: r.out}
	if s.bound {
		f.peer = r.peer
	}
	if r.out != nil {
		f.token = mcp.Get(params, "_meta", mcp.MetaProgressToken)
	}
	if err := s.link.begin(f); err != nil {
		return nil, &failure{cause: err, unsent: true, dead: true}
	}
	params = s.dress(params, f, r.level)
	a.BytesSent += int64(len(params))
	m, fail := s.link.call(ctx, f, params, s.srv.spec.CallTimeout, s.tells())
	if fail != nil {
		return nil, fail
	}
	a.BytesRecv += int64(len(m.Result))
	if m.Lost != nil {
		return nil, &failure{cause: m.Lost, dead: errors.Is(m.Lost, transport.ErrSession), lost: true}
	}
	return m, nil
}

// tells reports whether an abandoned request is cancelled with a notification. Over
// HTTP a modern server sees the stream close instead.
func (s *session) tells() bool { return !s.modern || s.proc != nil }

// dress writes _meta for this server: the link's progress token, and only members that
// the server's era knows.
func (s *session) dress(params []byte, f *pendingRequest, level string) []byte {
	old := mcp.Get(params, "_meta")
	if old == nil && !s.modern {
		return params
	}
	meta := append(make([]byte, 0, len(old)+len(s.meta)+128), '{')
	for name, value := range mcp.Members(old) {
		switch name {
		case mcp.MetaProgressToken, mcp.MetaProtocolVersion, mcp.MetaClientInfo, mcp.MetaClientCapabilities:
			continue
		case mcp.MetaLogLevel:
			if s.modern && level == "" {
				level, _ = mcp.Unquote(value)
			}
			continue
		}
		meta = member(meta, name, value)
	}
	if f.token != nil {
		meta = member(meta, mcp.MetaProgressToken, number(f.id))
	}
	if s.modern {
		if level != "" {
			meta = member(meta, mcp.MetaLogLevel, mcp.Quote(level))
		}
		if len(meta) > 1 {
			meta = append(meta, ',')
		}
		meta = append(meta, s.meta...)
	}
	if len(meta) == 1 {
		return mcp.Delete(params, "_meta")
	}
	return mcp.Set(params, append(meta, '}'), "_meta")
}

// member appends a member to an open object.
func member(obj []byte, name string, value []byte) []byte {
	if len(obj) > 1 {
		obj = append(obj, ',')
	}
	obj = append(obj, mcp.Quote(name)...)
	return append(append(obj, ':'), value...)
}

// asked implements owner. A request that no caller can answer is refused as by a client
// without the method.
func (s *session) asked(m *mcp.Message, about *pendingRequest) {
	need := capabilityOf(m.Method)
	if need == CapRoots && s.declares(CapRoots) && len(s.srv.spec.Roots) > 0 {
		s.link.post(mcp.Reply(m.ID, rootsResult(s.srv.spec)))
		return
	}
	peer, f := s.answerer(about)
	if need == "" || peer == nil || !s.declares(need) {
		s.state.refused.Add(1)
		s.state.log.note("refused what the server asked: " + m.Method)
		s.link.post(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeMethodNotFound, "this client does not offer "+toolkeep.ClipBytes(m.Method, 100))))
		return
	}
	ctx := s.link.ctx
	if f != nil {
		ctx = f.ctx
		f.asks.Add(1)
	}
	ctx, cancel := context.WithCancel(ctx)
	id := string(m.ID)
	s.mu.Lock()
	if _, twice := s.questions[id]; twice || len(s.questions) >= maxQuestions {
		s.mu.Unlock()
		cancel()
		if f != nil {
			f.asks.Add(-1)
		}
		s.state.refused.Add(1)
		s.link.post(mcp.Refuse(m.ID, mcp.NewError(mcp.CodeInternal, "too many questions wait for an answer")))
		return
	}
	s.questions[id] = cancel
	s.mu.Unlock()
	s.link.work.Go(func() {
		stop := context.AfterFunc(s.link.ctx, cancel)
		result, err := peer.Ask(ctx, m.Method, m.Params)
		stop()
		cancel()
		if f != nil && f.ctx.Err() != nil {
			// The refusal lets the server answer the call; that answer must not outrun
			// the end which caused it.
			select {
			case <-f.left:
			case <-s.link.ctx.Done():
			}
		}
		if f != nil {
			f.signs.Add(1)
			f.asks.Add(-1)
		}
		s.mu.Lock()
		delete(s.questions, id)
		s.mu.Unlock()
		reply := mcp.Reply(m.ID, result)
		if err != nil {
			reply = mcp.Refuse(m.ID, askError(err))
		}
		_ = s.link.deliver(s.link.ctx, reply)
	})
}

// askError is the server's error for an unanswered request.
func askError(err error) *mcp.Error {
	var rpc *mcp.Error
	if errors.As(err, &rpc) {
		return rpc
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return mcp.NewError(mcp.CodeInternal, "the call that the question belongs to has ended")
	}
	return mcp.NewError(mcp.CodeInternal, "the client could not answer")
}

func (s *session) declares(capability string) bool { return mcp.Get(s.caps, capability) != nil }

// answerer finds the peer that answers a server request: the caller of the request it
// belongs to; otherwise, in a bound session, where all callers are one, the latest of
// them.
func (s *session) answerer(about *pendingRequest) (Peer, *pendingRequest) {
	if !s.bound {
		return nil, nil
	}
	if about != nil && about.peer != nil {
		return about.peer, about
	}
	if f := s.link.latest(); f != nil {
		return f.peer, f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.bindings {
		if b.req.Peer != nil {
			return b.req.Peer, nil
		}
	}
	return nil, nil
}

// askAll sends the requests of an input_required result to the caller, one by one, and
// returns the inputResponses. none: there were no requests.
func (s *session) askAll(ctx context.Context, r *outgoing, questions []byte) (replies []byte, none bool, err error) {
	name := s.srv.spec.Name
	own, open := []byte{'{'}, []byte{'{'} // answered here, for the caller
	n, method := 0, ""
	for id, q := range mcp.Members(questions) {
		if n++; n > maxQuestions {
			return nil, false, broken(name, fmt.Sprintf("it asks more than %d questions at once", maxQuestions))
		}
		method = mcp.Text(q, "method")
		need := capabilityOf(method)
		switch {
		case need == "" || !s.declares(need):
			s.state.refused.Add(1)
			s.state.log.note("refused what the server asked: " + method)
			return nil, false, broken(name, "it asks for what was not offered to it")
		case need == CapRoots && len(s.srv.spec.Roots) > 0:
			own = member(own, id, rootsResult(s.srv.spec))
		case !s.bound || r.peer == nil:
			return nil, false, broken(name, "it asks for what was not offered to it")
		default:
			open = member(open, id, q)
		}
	}
	if len(open) > 1 {
		var answers []byte
		if all, ok := r.peer.(toolkeep.BatchAsker); ok {
			answers, err = all.AskAll(ctx, append(open, '}'))
		} else {
			answers, err = AskEach(ctx, r.peer, append(open, '}'))
		}
		if err != nil {
			return nil, false, s.unanswered(ctx, method, err)
		}
		for id, a := range mcp.Members(answers) {
			own = member(own, id, a)
		}
	}
	return append(own, '}'), n == 0, nil
}

// unanswered is the error of a call that cannot go on without an answer.
func (s *session) unanswered(ctx context.Context, method string, err error) error {
	var own *toolkeep.Error
	if errors.As(err, &own) {
		return own
	}
	if ctx.Err() != nil {
		return s.srv.explain(ctx, &failure{cause: ctx.Err()})
	}
	return toolkeep.NewError(toolkeep.MCPError, "the MCP server %s asked the caller something (%s) and got no answer", s.srv.spec.Name, method).
		With("server", s.srv.spec.Name).Because(err)
}

// notified implements owner.
func (s *session) notified(m *mcp.Message, about *pendingRequest) {
	switch m.Method {
	case mcp.NotificationCancelled:
		s.mu.Lock()
		cancel := s.questions[string(mcp.Get(m.Params, "requestId"))]
		s.mu.Unlock()
		if cancel != nil {
			cancel()
		}
	case mcp.NotificationToolsChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged:
		s.change(m.Method)
	case mcp.NotificationResourceUpdated:
		s.updated(m)
	case mcp.NotificationMessage:
		if !s.pass(m, about) {
			s.state.log.note("message: " + toolkeep.ClipBytes(string(m.Params), maxLogLine))
		}
	case mcp.NotificationSubscriptionsAck:
		if about != nil && about.acked != nil {
			about.ackOnce.Do(func() { close(about.acked) })
		}
	default:
		s.pass(m, about)
	}
}

// pass delivers a notification: to the caller of the request it names; in a session of
// one principal to the attached caller; in a shared session to the only caller with a
// pending request. It returns false if there is no certain receiver.
func (s *session) pass(m *mcp.Message, about *pendingRequest) bool {
	if about != nil && about.out != nil {
		return s.passTo(about.out, m)
	}
	if about == nil && s.key.subject != "" {
		s.mu.Lock()
		bindings := slices.Clone(s.bindings)
		s.mu.Unlock()
		any := false
		for _, b := range bindings {
			any = b.hears(m) && s.passTo(b.out, m) || any
		}
		if any {
			return true
		}
	}
	if about == nil {
		about = s.link.sole()
	}
	return about != nil && s.passTo(about.out, m)
}

// passTo delivers it, with log messages rate limited.
func (s *session) passTo(o *notifier, m *mcp.Message) bool {
	if o == nil {
		return false
	}
	if m.Method == mcp.NotificationMessage {
		if ok, _ := s.state.messages.take(time.Now(), 1); !ok {
			s.state.dropped.Add(1)
			return true
		}
	}
	o.push(m.Method, m.Params)
	return true
}

// change collects list changes and announces them once.
func (s *session) change(method string) {
	select {
	case s.newer <- struct{}{}:
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes[method] {
		return
	}
	s.changes[method] = true
	time.AfterFunc(settle, func() {
		s.mu.Lock()
		delete(s.changes, method)
		bindings := slices.Clone(s.bindings)
		s.mu.Unlock()
		if s.link.ctx.Err() != nil {
			return
		}
		for _, b := range bindings {
			b.out.push(method, nil)
		}
		s.srv.changed(s)
	})
}

// updated notifies the watchers of the resource or of a resource that contains it.
func (s *session) updated(m *mcp.Message) {
	uri := mcp.Text(m.Params, "uri")
	params := m.Params
	if mcp.Get(params, "_meta", mcp.MetaSubscriptionID) != nil {
		params = mcp.Delete(params, "_meta", mcp.MetaSubscriptionID)
		if meta := mcp.Get(params, "_meta"); bytes.Equal(meta, []byte("{}")) {
			params = mcp.Delete(params, "_meta")
		}
	}
	s.mu.Lock()
	bindings := slices.Clone(s.bindings)
	s.mu.Unlock()
	for _, b := range bindings {
		if b.watches(uri) {
			b.out.push(m.Method, params)
		}
	}
}

// attend ends an idle session and pings a quiet one. It ends with the link.
func (s *session) attend(sl *slot) {
	idle, every := s.srv.spec.IdleStop, s.srv.spec.PingEvery
	step := time.Hour
	if idle > 0 {
		step = min(step, idle)
	}
	if every > 0 && !s.modern {
		step = min(step, every)
	}
	t := time.NewTimer(step)
	defer t.Stop()
	failed := 0
	for {
		select {
		case <-s.link.done:
			s.srv.lost(sl, s.link.ended())
			return
		case <-t.C:
		}
		next := step
		if idle > 0 {
			left, ended := s.srv.retireIdle(sl, idle)
			if ended {
				return
			}
			next = min(next, left)
		}
		if every > 0 && !s.modern {
			quiet := time.Since(time.Unix(0, s.link.heard.Load()))
			switch {
			case quiet < every:
				failed = 0
				next = min(next, every-quiet)
			case s.ping():
				failed = 0
			default:
				if failed++; failed >= pingLimit {
					s.srv.lost(sl, errDeaf)
					return
				}
			}
		}
		t.Reset(max(next, 10*time.Millisecond))
	}
}

var errDeaf = errors.New("it does not answer to ping")

// ping reports whether the server answers, even with an error.
func (s *session) ping() bool {
	f := &pendingRequest{method: mcp.MethodPing, ctx: s.link.ctx, held: true}
	if s.link.begin(f) != nil {
		return false
	}
	_, fail := s.link.call(s.link.ctx, f, nil, min(pingTimeout, max(s.srv.spec.PingEvery, time.Second)), false)
	return fail == nil
}

var _ owner = (*session)(nil)
