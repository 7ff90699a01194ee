package upstream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

// server is one spec with its sessions. A changed spec creates a new server.
//
// Lock order: Servers.mu, server.mu, then one of session.mu, definitions.mu, health.mu
// and link.mu; no two of the last four are held together.
type server struct {
	config *settings
	spec   *Spec
	work   *sync.WaitGroup // of Servers: everything that Stop waits for

	mu      sync.Mutex
	slots   map[key]*slot
	states  map[string]*tenantState // by tenant
	counter int64                   // of exclusive keys
	closed  bool
}

// tenantState is a server's state for one tenant.
type tenantState struct {
	tenant   string
	log      *ring
	health   health
	defs     *definitions
	older    atomic.Bool // the server does not know server/discover
	mute     atomic.Bool // over HTTP it keeps no sessions in older revisions
	messages bucket      // limits forwarded log messages

	stray, refused, dropped atomic.Int64
}

// slot holds one session, including while it starts.
type slot struct {
	key   key
	since time.Time
	ready chan struct{} // closed when sess or err is set
	sess  *session
	err   *toolkeep.Error

	// Guarded by server.mu.
	uses    int
	last    time.Time // when uses became 0
	retired bool      // no longer in slots
	once    bool
	reads   bool // created to read the lists
	// background: opened for no caller, and none has used it since.
	background bool
	user       user // who used it last

	outdated atomic.Bool // renew took it from new calls
}

// user is who a session in use is charged to.
type user struct{ tenant, subject string }

func userOf(p *toolkeep.Principal) user {
	if p == nil {
		return user{}
	}
	return user{p.Tenant, p.Subject}
}

// clean redacts what the tenant is told about the server: all secrets of the tenant's
// people, because the readers are not the people it happened to.
func (st *tenantState) clean(text string) string { return st.log.clean.Clean(text) }

// state finds or creates the state of a tenant.
func (s *server) state(tenant string) *tenantState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.states[tenant]
	if st == nil {
		st = &tenantState{
			tenant: tenant, log: newRing(s.config.logBytes, s.config.Redact.TenantLog(tenant, s.spec.upstream()), s.config.Clock),
			messages: bucket{rate: noteRate, burst: 4 * noteRate},
		}
		st.defs = &definitions{}
		s.states[tenant] = st
	}
	return st
}

// acquire returns a working session, and opens one if needed. The caller must call
// release.
func (s *server) acquire(ctx context.Context, p sessionSelector, who *toolkeep.Principal) (*slot, *toolkeep.Error) {
	st := s.state(p.key.tenant)
	for {
		sl, starts, err := s.reserve(p, st, who)
		if err != nil {
			return nil, err
		}
		if !starts {
			select {
			case <-sl.ready:
			case <-ctx.Done():
				s.release(sl)
				e := s.classify(ctx, &failure{cause: ctx.Err()})
				e.NothingSent = true
				return nil, e
			}
		}
		switch {
		case sl.err != nil:
			s.release(sl)
			return nil, unsentError(sl.err)
		case sl.outdated.Load():
			s.release(sl)
			continue
		case sl.sess.link.ended() == nil:
			return sl, nil
		}
		s.lost(sl, sl.sess.link.ended())
		s.release(sl)
	}
}

// reserve finds or creates the slot that p selects and counts the use. ready reports
// whether its session is already open.
func (s *server) reserve(p sessionSelector, st *tenantState, who *toolkeep.Principal) (sl *slot, ready bool, err *toolkeep.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, down(s.spec.Name, "it is being stopped or changed", true).After(time.Second)
	}
	if sl = s.find(p); sl != nil {
		sl.uses++
		sl.user = userOf(who)
		sl.background = sl.background && p.background
		select {
		case <-sl.ready:
			return sl, true, nil
		default:
			return sl, false, nil
		}
	}
	if e := st.health.gate(s.spec.Name, s.config.Clock()); e != nil {
		return nil, false, e
	}
	if u := userOf(who); u.subject != "" && s.used(u) >= share(s.spec.MaxSessions) {
		return nil, false, greedy(s.spec.Name, share(s.spec.MaxSessions))
	}
	if len(s.slots) >= s.spec.MaxSessions && (p.background || !s.evict()) {
		return nil, false, busy(s.spec.Name, s.spec.MaxSessions)
	}
	k := p.key
	if p.lease {
		s.counter++
		k.exclusive = s.counter
	}
	sl = &slot{key: k, since: s.config.Clock(), ready: make(chan struct{}), uses: 1, once: p.once, reads: p.reads, background: p.background, user: userOf(who)}
	s.slots[k] = sl
	s.work.Go(func() { s.start(sl, p, st, who) })
	return sl, false, nil
}

// share is how many of a server's sessions one principal may use at once: half, so that
// an agent waiting for human answers leaves room for others.
func share(most int) int { return (most + 1) / 2 }

// used is called with mu held.
func (s *server) used(u user) (n int) {
	for _, sl := range s.slots {
		if sl.uses > 0 && sl.user == u {
			n++
		}
	}
	return n
}

// find is called with mu held.
func (s *server) find(p sessionSelector) *slot {
	switch {
	case p.once:
		return nil
	case !p.lease:
		return s.slots[p.key]
	}
	for k, sl := range s.slots {
		if k.exclusive = 0; k == p.key && sl.key.exclusive != 0 && sl.uses == 0 && !sl.once {
			return sl
		}
	}
	return nil
}

// evict retires one that was opened for no caller, else the session that has been idle
// longest, and reports whether there was one. It is called with mu held.
func (s *server) evict() bool {
	var oldest *slot
	for _, sl := range s.slots {
		if sl.uses == 0 && (oldest == nil || sl.background && !oldest.background ||
			sl.background == oldest.background && sl.last.Before(oldest.last)) {
			oldest = sl
		}
	}
	if oldest == nil {
		return false
	}
	s.retire(oldest)
	return true
}

// retire removes a slot and ends its session, even one in use. It is called with mu
// held.
func (s *server) retire(sl *slot) {
	if sl.retired {
		return
	}
	sl.retired = true
	delete(s.slots, sl.key)
	s.work.Go(func() {
		<-sl.ready
		if sl.sess != nil {
			sl.sess.shut()
		}
	})
}

// use counts one more use of a slot that is in use; the caller must call release.
func (s *server) use(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.uses++
}

func (s *server) release(sl *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl.uses--
	sl.last = time.Now()
	if sl.uses == 0 && (sl.once || s.closed) {
		s.retire(sl)
	}
}

// retireIdle ends a session that has been idle long enough, or returns how long it has
// left.
func (s *server) retireIdle(sl *slot, idle time.Duration) (left time.Duration, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl.retired {
		return 0, true
	}
	if sl.uses > 0 {
		return idle, false
	}
	if left = idle - time.Since(sl.last); left > 0 {
		return left, false
	}
	sl.sess.state.log.note("session ended: idle")
	s.retire(sl)
	return 0, true
}

// lost removes a session that ended by itself, once.
func (s *server) lost(sl *slot, cause error) {
	s.mu.Lock()
	if sl.retired {
		s.mu.Unlock()
		return
	}
	s.retire(sl)
	background := sl.background
	s.mu.Unlock()
	st := sl.sess.state
	st.health.ended()
	st.defs.doubt()
	if errors.Is(cause, transport.ErrSession) {
		st.log.note("session lost: the server no longer has it")
	} else {
		why, last := s.obituary(sl.sess, cause)
		st.log.note("session lost: " + last)
		s.config.Log.Warn("MCP server lost", "server", s.spec.Name, "tenant", st.tenant, "reason", last)
		if !background {
			st.health.fail(&s.config.Config, s.config.Clock(), why, last)
		}
	}
	sl.sess.mu.Lock()
	bindings := slices.Clone(sl.sess.bindings)
	sl.sess.mu.Unlock()
	for _, b := range bindings {
		b.wake()
	}
}

// obituary explains why a session ended: for callers, and for the operator with the
// last line of stderr.
func (s *server) obituary(sess *session, cause error) (why, last string) {
	why = "its connection broke"
	switch {
	case errors.Is(cause, errDeaf):
		why = "it does not answer to ping"
	case errors.Is(cause, transport.ErrJunk):
		why = "it writes too much that is not MCP to its stdout"
	case sess.proc != nil:
		sess.proc.within(time.Second) // the pipe closes before the process has ended
		why = "its process ended: " + sess.proc.why()
		if w := sess.proc.why(); w == "it still runs" {
			why = "it closed its stdout"
		}
	}
	last = why
	if words := sess.state.log.lastError(); sess.proc != nil && words != "" {
		last += "; stderr: " + words
	} else if sess.proc == nil {
		last += ": " + sess.state.clean(cause.Error())
	}
	return why, last
}

// start opens a slot's session. It has its own time limit: the first caller may give up
// while others wait.
func (s *server) start(sl *slot, p sessionSelector, st *tenantState, who *toolkeep.Principal) {
	who = s.keeps(who)
	ctx, cancel := context.WithTimeout(s.config.ctx, s.spec.StartTimeout)
	var e *toolkeep.Error
	if !p.background { // callers do not wait for that one; the pause was asked for by reserve
		e = st.health.begin(ctx, &s.config.Config, s.spec.Name)
	}
	cancel()
	var sess *session
	if e == nil {
		if !p.background {
			defer st.health.over()
		}
		ctx, cancel = context.WithTimeout(s.config.ctx, s.spec.StartTimeout)
		defer cancel()
		var err error
		if sess, err = s.open(ctx, p, st, who); err != nil {
			e = s.startError(ctx, err, st, sl)
			st.older.Store(false) // the stored result may be wrong
		}
	}
	if e != nil {
		sl.err = e
		s.mu.Lock()
		if !sl.retired {
			sl.retired = true
			delete(s.slots, sl.key)
		}
		s.mu.Unlock()
		close(sl.ready)
		return
	}
	st.health.started()
	sl.sess, sess.slot = sess, sl
	s.begin(sess, sl)
	close(sl.ready)
	s.work.Go(func() { sess.attend(sl) })
	if sess.modern {
		sess.listenLists()
	}
}

// startError turns a start failure into the callers' error, and counts it if it is the
// server's fault and a caller waits.
func (s *server) startError(ctx context.Context, err error, st *tenantState, sl *slot) *toolkeep.Error {
	now := s.config.Clock()
	if s.config.ctx.Err() != nil {
		return draining()
	}
	var own *toolkeep.Error
	var f *failure
	scarce := egress.OutOfDescriptors(err)
	switch {
	case errors.As(err, &own):
	case ctx.Err() == context.DeadlineExceeded:
		own = down(s.spec.Name, "it was not ready within "+s.spec.StartTimeout.String(), true)
	case scarce != nil:
		own = scarce
	case errors.Is(err, errNoStart):
		own = down(s.spec.Name, "its command cannot be started", true).Because(err)
	case errors.As(err, &f):
		own = s.explain(ctx, f)
	default:
		own = down(s.spec.Name, "it cannot be started", true).Because(err)
	}
	last := own.Message
	if own.Cause != nil {
		last += ": " + st.clean(own.Cause.Error())
	}
	if words := st.log.lastError(); words != "" {
		last += "; stderr: " + words
	}
	if own.Code == toolkeep.LoginRequired {
		last = "a principal has to log in" // the login URL is for that principal alone
	}
	st.log.note("start failed: " + last)
	s.config.Log.Warn("MCP server not started", "server", s.spec.Name, "tenant", st.tenant, "code", own.Code, "reason", last)
	s.mu.Lock()
	background := sl.background
	s.mu.Unlock()
	if background {
		return own
	}
	switch own.Code {
	case toolkeep.LoginRequired, toolkeep.SecretNotFound, toolkeep.SecretAccessDenied, toolkeep.SecretRetrievalFailed,
		toolkeep.DestinationForbidden, toolkeep.RateLimitExceeded, toolkeep.Backpressure:
		st.health.note(now, own, last)
	default:
		st.health.fail(&s.config.Config, now, reasonOf(own, s.spec.Name), last)
	}
	return own
}

// reasonOf strips gate's words from an error's message.
func reasonOf(e *toolkeep.Error, name string) string {
	const head = "the MCP server "
	for _, between := range []string{" is not available: ", " "} {
		full := head + name + between
		if len(e.Message) > len(full) && e.Message[:len(full)] == full {
			return e.Message[len(full):]
		}
	}
	return e.Message
}

// endSession ends what was started for a downstream session, at once or when the call
// that still uses it ends: one with a key outlives its connection.
func (s *server) endSession(tenant, session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		if sl.key.tenant != tenant || sl.key.session != session {
			continue
		}
		if sl.once = true; sl.uses == 0 {
			s.retire(sl)
		}
	}
}

// close ends the server: no new use, idle sessions end, busy ones have until ctx ends.
// It returns when no session is in use.
func (s *server) close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	for _, sl := range s.slots {
		if sl.uses == 0 {
			s.retire(sl)
		}
	}
	s.mu.Unlock()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		s.mu.Lock()
		n := len(s.slots)
		if ctx.Err() != nil {
			for _, sl := range s.slots {
				s.retire(sl)
			}
		}
		s.mu.Unlock()
		if n == 0 || ctx.Err() != nil {
			return
		}
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

// restart ends every session of the tenant and clears its failures.
func (s *server) restart(tenant string) {
	st := s.state(tenant)
	st.health.forgive()
	st.older.Store(false)
	st.defs.doubt()
	st.log.note("the sessions are ended, and new ones are started when they are needed")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		if sl.key.tenant == tenant {
			s.retire(sl)
		}
	}
}

// renew takes the tenant's sessions, also those that are being opened, from new calls: idle
// ones end at once, the others with their last call, and count in max_sessions until then.
// What they show from now on is not stored, and the next read counts as the first one.
func (s *server) renew(tenant string) {
	st := s.state(tenant)
	st.older.Store(false)
	st.log.note("new calls start new sessions, because another definition was accepted; the sessions so far end with their last call")
	var bindings []*Binding
	s.mu.Lock()
	for _, sl := range slices.Collect(maps.Values(s.slots)) {
		if sl.key.tenant != tenant {
			continue
		}
		sl.outdated.Store(true)
		if sl.uses == 0 {
			s.retire(sl)
			continue
		}
		delete(s.slots, sl.key)
		s.counter++
		sl.key.exclusive, sl.once = s.counter, true // find does not find it
		s.slots[sl.key] = sl
		select {
		case <-sl.ready:
			if sl.sess != nil {
				sl.sess.mu.Lock()
				bindings = append(bindings, sl.sess.bindings...)
				sl.sess.mu.Unlock()
			}
		default:
		}
	}
	s.mu.Unlock()
	st.defs.forget()
	for _, b := range bindings {
		b.wake()
	}
}

// do runs one request.
func (s *server) do(ctx context.Context, r *Request) (*Answer, error) {
	p := selectSession(s.spec, r)
	o := &outgoing{method: r.Method, params: r.Params, peer: r.Peer, maxBytes: r.MaxBytes}
	st := s.state(p.key.tenant)
	o.out = newNotifier(r.Peer, &st.dropped)
	defer o.out.close()
	for try := 0; ; try++ {
		sl, e := s.acquire(ctx, p, r.Principal)
		if e != nil {
			return nil, e
		}
		a, err := s.attempt(ctx, sl.sess, o)
		var f *failure
		if errors.As(err, &f) && f.dead {
			s.lost(sl, f.cause)
		}
		s.release(sl)
		switch {
		case f == nil && err != nil:
			return nil, err
		case f == nil:
			return a, nil
		case (f.dead || sl.outdated.Load()) && f.unsent && try == 0 && ctx.Err() == nil:
			st.log.note("the session was rebuilt for a call that had not been sent")
		default:
			return nil, s.explain(ctx, f)
		}
	}
}

// attempt runs a request within one session. A modern HTTP server takes some tool
// arguments as headers, which the tool's definition names. If the known definition is
// outdated, the server refuses the call before it runs.
func (s *server) attempt(ctx context.Context, sess *session, o *outgoing) (*Answer, error) {
	if err := s.ready(ctx, sess, o); err != nil {
		return nil, err
	}
	a, err := sess.request(ctx, o)
	var rpc *mcp.Error
	if !errors.As(err, &rpc) || rpc.Code != mcp.CodeHeaderMismatch || !sess.modern || sess.proc != nil || o.method != mcp.MethodCallTool {
		return a, err
	}
	if s.refresh(ctx, sess) != nil {
		return a, err
	}
	if err := s.ready(ctx, sess, o); err != nil {
		return nil, err
	}
	return sess.request(ctx, o)
}

// errOutdated is the cause when renew took the session from a call that was not sent yet.
var errOutdated = errors.New("the session is older than the definition that was accepted")

// ready is verifyPinned in a session that may have become outdated meanwhile: what it checks
// may be what a newer session shows.
func (s *server) ready(ctx context.Context, sess *session, o *outgoing) error {
	err := s.verifyPinned(ctx, sess, o)
	if sess.outdated() {
		return &failure{cause: errOutdated, unsent: true}
	}
	return err
}

// keeps returns the principal for what outlives its call: its token stays only where the server acts for callers.
func (s *server) keeps(p *toolkeep.Principal) *toolkeep.Principal {
	if s.spec.Auth != nil {
		return p
	}
	return p.WithoutToken()
}

// principalOf returns who a session acts for: the caller, or the tenant as a whole.
func principalOf(k key, who *toolkeep.Principal) *toolkeep.Principal {
	if k.subject != "" && who != nil && who.Subject == k.subject {
		p := *who
		p.OnBehalf, p.Workspace = k.behalf, k.workspace
		if p.Token != nil && p.Token.Sum() != k.caller {
			p.Token = nil
		}
		return &p
	}
	return &toolkeep.Principal{Tenant: k.tenant, Subject: k.subject, OnBehalf: k.behalf, Workspace: k.workspace}
}
