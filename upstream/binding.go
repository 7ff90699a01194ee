package upstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/redact"
)

// Binding attaches a downstream session to a server. It receives list changes, updates
// of subscribed resources and log messages, and restores subscriptions and the log
// level when the upstream session is replaced. All of these go to its Peer. It is safe
// for concurrent use.
type Binding struct {
	srv     *server
	req     Request // Peer is wrapped by guarded
	out     *notifier
	cleaner *redact.Cleaner // redacts what the caller sees

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	turn   chan struct{} // held while sl, subscriptions or levels change

	mu    sync.Mutex
	sl    *slot
	level string
	subs  map[string]bool
}

// watch is one resource subscription of a session.
type watch struct {
	users  []*Binding
	cancel context.CancelFunc // stream of a modern server; nil for a legacy one
}

// bind returns a Binding with a working session.
func (s *server) bind(ctx context.Context, r *Request) (*Binding, error) {
	b := &Binding{srv: s, req: *r, cleaner: s.config.Redact.For(r.Principal).From(s.spec.upstream()), turn: make(chan struct{}, 1), subs: make(map[string]bool)}
	b.req.Principal = s.keeps(r.Principal)
	b.req.Peer = guarded(r.Peer, b.cleaner)
	b.out = newNotifier(b.req.Peer, &s.state(r.Principal.Tenant).dropped)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	if _, err := b.session(ctx); err != nil {
		b.cancel()
		return nil, cleanedError(b.cleaner, err)
	}
	return b, nil
}

// lock acquires the turn.
func (b *Binding) lock(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		if b.ctx.Err() == nil {
			return nil
		}
		<-b.turn
		return down(b.srv.spec.Name, "the session that it was bound to has ended", true)
	case <-b.ctx.Done():
		return down(b.srv.spec.Name, "the session that it was bound to has ended", true)
	case <-ctx.Done():
		return b.srv.explain(ctx, &failure{cause: ctx.Err(), unsent: true})
	}
}

// session returns the binding's session, and opens a new one if it has ended.
func (b *Binding) session(ctx context.Context) (*session, error) {
	b.mu.Lock()
	sl := b.sl
	b.mu.Unlock()
	if sl != nil && sl.sess.link.ended() == nil && !sl.outdated.Load() {
		return sl.sess, nil
	}
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer func() { <-b.turn }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(b.ctx, func() { cancel(errClosed) })()
	b.mu.Lock()
	old := b.sl
	b.mu.Unlock()
	if old != nil && old != sl && old.sess.link.ended() == nil && !old.outdated.Load() {
		return old.sess, nil // another goroutine has replaced it
	}
	b.detach()
	sl, e := b.srv.acquire(ctx, selectSession(b.srv.spec, &b.req), b.req.Principal)
	if e != nil {
		return nil, e
	}
	sess := sl.sess
	sess.mu.Lock()
	sess.bindings = append(sess.bindings, b)
	sess.mu.Unlock()
	b.mu.Lock()
	b.sl = sl
	uris := make([]string, 0, len(b.subs))
	for uri := range b.subs {
		uris = append(uris, uri)
	}
	b.mu.Unlock()
	// Restore the previous session's settings. If the server now refuses one, its log
	// says so; the binding lives on.
	if old != nil {
		for _, uri := range uris {
			if err := sess.watch(ctx, b, uri); err != nil {
				sess.state.log.note("a subscription could not be renewed")
			}
		}
		_ = sess.setLevel(ctx)
	}
	return sess, nil
}

// detach releases the session. The caller holds the turn.
func (b *Binding) detach() {
	b.mu.Lock()
	sl := b.sl
	b.sl = nil
	b.mu.Unlock()
	if sl == nil {
		return
	}
	sess := sl.sess
	sess.mu.Lock()
	sess.bindings = slices.DeleteFunc(sess.bindings, func(x *Binding) bool { return x == b })
	sess.mu.Unlock()
	b.srv.release(sl)
}

// wake replaces a lost session without a request, because the caller waits for
// notifications.
func (b *Binding) wake() {
	b.srv.spawn(func() {
		for wait := time.Duration(0); b.ctx.Err() == nil; {
			if !toolkeep.Sleep(b.ctx, wait) {
				return
			}
			ctx, cancel := context.WithTimeout(b.ctx, b.srv.spec.StartTimeout)
			stop := context.AfterFunc(b.srv.config.ctx, cancel)
			_, err := b.session(ctx)
			stop()
			cancel()
			if err == nil || b.srv.config.ctx.Err() != nil {
				return
			}
			b.srv.mu.Lock()
			closed := b.srv.closed
			b.srv.mu.Unlock()
			if closed {
				return
			}
			wait = max(toolkeep.AsError(err).RetryAfter, time.Second)
		}
	})
}

// Info returns what the server says about itself.
func (b *Binding) Info(ctx context.Context) (Info, error) {
	sess, err := b.session(ctx)
	if err != nil {
		return Info{}, err
	}
	return sess.info.cleaned(b.cleaner), nil
}

// Do runs one request of the downstream session, like Servers.Do. resources/subscribe,
// resources/unsubscribe and logging/setLevel affect this binding only, whatever the
// server's revision and whatever other bindings share the session.
func (b *Binding) Do(ctx context.Context, method string, params []byte) (*Answer, error) {
	if err := passable(method); err != nil {
		return nil, err
	}
	a, err := b.do(ctx, method, params)
	return cleaned(b.cleaner, method, a, err)
}

func (b *Binding) do(ctx context.Context, method string, params []byte) (*Answer, error) {
	for try := 0; ; try++ {
		sess, err := b.session(ctx)
		if err != nil {
			return nil, err
		}
		b.srv.use(sess.slot) // the binding may move on to a new session meanwhile
		a, err := b.attempt(ctx, sess, method, params)
		b.srv.release(sess.slot)
		var f *failure
		if !errors.As(err, &f) {
			return a, err
		}
		if f.dead {
			b.mu.Lock()
			sl := b.sl
			b.mu.Unlock()
			if sl != nil && sl.sess == sess {
				b.srv.lost(sl, f.cause)
			}
		}
		if !f.dead && !sess.outdated() || !f.unsent || try > 0 || ctx.Err() != nil {
			return nil, b.srv.explain(ctx, f)
		}
	}
}

var emptyAnswer = Answer{Result: []byte("{}")}

func (b *Binding) attempt(ctx context.Context, sess *session, method string, params []byte) (*Answer, error) {
	switch {
	case method == mcp.MethodSubscribe:
		return b.subscribe(ctx, sess, params)
	case method == mcp.MethodUnsubscribe:
		return b.unsubscribe(ctx, sess, params)
	case method == mcp.MethodSetLevel:
		return b.setLevel(ctx, sess, params)
	case method == mcp.MethodPing && sess.modern:
		a := emptyAnswer
		return &a, nil
	}
	b.mu.Lock()
	level := b.level
	b.mu.Unlock()
	return b.srv.attempt(ctx, sess, &outgoing{method: method, params: params, peer: b.req.Peer, out: b.out, level: level})
}

// Notify sends the server a notification of the downstream session. Only
// notifications/roots/list_changed and unknown methods are forwarded; to cancel a
// request, cancel the context of Do.
func (b *Binding) Notify(ctx context.Context, method string, params []byte) error {
	switch method {
	case mcp.NotificationInitialized, mcp.NotificationCancelled, mcp.NotificationProgress:
		return nil
	}
	sess, err := b.session(ctx)
	if err != nil {
		return err
	}
	if sess.modern || method == mcp.NotificationRootsChanged && (!sess.bound || !sess.declares(CapRoots)) {
		return nil
	}
	if err := sess.link.deliver(ctx, &mcp.Message{Method: method, Params: params}); err != nil {
		return b.srv.explain(ctx, unwritten(err))
	}
	return nil
}

// Close releases the session and all subscriptions. It does not wait for the server and
// may be called more than once.
func (b *Binding) Close() {
	b.cancel()
	b.out.close()
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	b.mu.Lock()
	sl, uris := b.sl, b.subs
	b.subs, b.level = make(map[string]bool), ""
	b.mu.Unlock()
	if sl != nil {
		for uri := range uris {
			sl.sess.unwatch(b, uri)
		}
	}
	b.detach()
}

func (b *Binding) watches(uri string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for sub := range b.subs {
		if rest, ok := strings.CutPrefix(uri, sub); ok && (rest == "" || strings.HasSuffix(sub, "/") || strings.IndexByte("/?#", rest[0]) >= 0) {
			return true
		}
	}
	return false
}

func (b *Binding) subscribe(ctx context.Context, sess *session, params []byte) (*Answer, error) {
	uri := mcp.Text(params, "uri")
	if uri == "" || len(uri) > maxValue {
		return nil, mcp.NewError(mcp.CodeInvalidParams, "uri must be a string that is not empty")
	}
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer func() { <-b.turn }()
	if sess.outdated() {
		return nil, &failure{cause: errOutdated, unsent: true}
	}
	b.mu.Lock()
	n, there := len(b.subs), b.subs[uri]
	b.mu.Unlock()
	if !there && n >= maxEntries {
		return nil, mcp.NewError(mcp.CodeInvalidRequest, "the session has too many subscriptions")
	}
	// Before the request: an update may arrive before the response.
	b.mu.Lock()
	b.subs[uri] = true
	b.mu.Unlock()
	if err := sess.watch(ctx, b, uri); err != nil {
		if !there {
			b.mu.Lock()
			delete(b.subs, uri)
			b.mu.Unlock()
		}
		return nil, err
	}
	a := emptyAnswer
	return &a, nil
}

func (b *Binding) unsubscribe(ctx context.Context, sess *session, params []byte) (*Answer, error) {
	uri := mcp.Text(params, "uri")
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer func() { <-b.turn }()
	b.mu.Lock()
	there := b.subs[uri]
	delete(b.subs, uri)
	b.mu.Unlock()
	if there {
		sess.unwatch(b, uri)
	}
	a := emptyAnswer
	return &a, nil
}

// setLevel: a legacy server has one log level per session, so it gets the most verbose
// level of all bindings, and each binding filters its own.
func (b *Binding) setLevel(ctx context.Context, sess *session, params []byte) (*Answer, error) {
	level := mcp.Text(params, "level")
	if rank(level) < 0 {
		return nil, mcp.NewError(mcp.CodeInvalidParams, "level must be one of "+strings.Join(levels, ", "))
	}
	if err := b.lock(ctx); err != nil {
		return nil, err
	}
	defer func() { <-b.turn }()
	b.mu.Lock()
	before := b.level
	b.level = level
	b.mu.Unlock()
	if err := sess.setLevel(ctx); err != nil {
		b.mu.Lock()
		b.level = before
		b.mu.Unlock()
		return nil, err
	}
	a := emptyAnswer
	return &a, nil
}

var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

func rank(level string) int { return slices.Index(levels, level) }

// hears reports whether a notification is for this binding.
func (b *Binding) hears(m *mcp.Message) bool {
	if m.Method != mcp.NotificationMessage {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.level == "" || rank(mcp.Text(m.Params, "level")) >= rank(b.level)
}

// setLevel sends a legacy server the level its bindings need, if it changed.
func (s *session) setLevel(ctx context.Context) error {
	if s.modern {
		return nil
	}
	s.mu.Lock()
	bindings, told := slices.Clone(s.bindings), s.level
	s.mu.Unlock()
	want := ""
	for _, b := range bindings {
		b.mu.Lock()
		if b.level != "" && (want == "" || rank(b.level) < rank(want)) {
			want = b.level
		}
		b.mu.Unlock()
	}
	if want == "" || want == told {
		return nil
	}
	if _, err := s.request(ctx, &outgoing{method: mcp.MethodSetLevel, params: mcp.Set(nil, mcp.Quote(want), "level")}); err != nil {
		return err
	}
	s.mu.Lock()
	s.level = want
	s.mu.Unlock()
	return nil
}
