package mcpserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// owner identifies whose session it is.
type owner struct{ tenant, subject string }

func ownerOf(p *toolkeep.Principal) owner { return owner{p.Tenant, p.Subject} }

// session is one client of a revision up to 2025-11-25, from initialize to DELETE, idle timeout, or
// server stop.
type session struct {
	s       *Server
	id      string // the node's tag and 256 random bits
	public  string // stands for the session where its id must not appear: records, upstreams
	owner   owner
	view    *view
	version string
	caps    []byte // of the client, raw

	ended chan struct{} // closed with the session

	mu     sync.Mutex
	p      *toolkeep.Principal // from the newest request, as lasting leaves it
	active int                 // open requests and readers
	last   time.Time           // when active last reached 0
	timer  *time.Timer
	gone   bool

	calls   map[string]context.CancelCauseFunc // running requests by raw id
	asks    map[string]chan *mcp.Message       // open questions by raw id
	nextAsk int

	own        *stream            // the GET stream
	streams    map[string]*stream // resumable streams, running or kept
	kept       []keptStream       // ended, oldest first
	keptBytes  int
	nextStream int

	found  []string // tool ids added to view auto, oldest first
	shown  uint64   // fingerprint of the tool list that the client has seen
	listed bool
	// narrowed is what the capability token of that list shows: calls, which come between, do not say it in p.
	narrowed toolkeep.Narrowing

	relay *attachment // of a relay view
}

type keptStream struct {
	st     *stream
	weight int
	until  time.Time
}

// lasting is the principal of a request without what ends with the request or with the connection that brought it: its
// tokens and the client certificate. What a certificate opened asks for that certificate itself.
func lasting(p *toolkeep.Principal) *toolkeep.Principal {
	p = p.WithoutToken()
	if p.Certificate == nil {
		return p
	}
	own := *p
	if own.Until.Equal(own.Certificate.NotAfter) {
		own.Until = time.Time{}
	}
	own.Certificate = nil
	return &own
}

// passing is the principal that a stream asks for besides the session's, nil if no token narrowed it and it came with no certificate.
func passing(p *toolkeep.Principal) *toolkeep.Principal {
	switch {
	case p.Narrowed != nil:
		return p
	case p.Certificate == nil:
		return nil
	}
	own := *p
	own.Until = time.Time{} // the certificate's is looked at with it; of a bearer there may be a newer one
	return &own
}

// newSession creates and registers a session; E3802 if there is no room.
func (s *Server) newSession(p *toolkeep.Principal, v *view, version string, caps []byte) (*session, error) {
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	ses := &session{
		s: s, id: tagOf(s.node) + "." + base64.RawURLEncoding.EncodeToString(secret[:]), public: publicID(secret[:]), owner: ownerOf(p), view: v, version: version, caps: caps,
		ended: make(chan struct{}), p: lasting(p), active: 1,
		calls: map[string]context.CancelCauseFunc{}, asks: map[string]chan *mcp.Message{}, streams: map[string]*stream{},
	}
	ses.own = s.newStream("0")
	ses.streams["0"] = ses.own
	ses.mu.Lock() // until the timer exists, since idle may run at once
	ses.timer = time.AfterFunc(s.limits.SessionIdle, ses.idle)
	ses.mu.Unlock()
	if err := s.admit(ses); err != nil {
		ses.timer.Stop()
		return nil, err
	}
	return ses, nil
}

// admit adds a session to the tables.
func (s *Server) admit(ses *session) error {
	s.mu.Lock()
	if s.closed || s.draining {
		s.mu.Unlock()
		return draining()
	}
	var idle *session
	mine := s.owners[ses.owner]
	full := len(s.sessions) >= s.limits.Sessions
	if full || len(mine) >= s.principalSessions() {
		// The principal's own longest-idle session makes room, never another principal's.
		idle = oldestIdle(mine)
		if idle == nil {
			s.mu.Unlock()
			return toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded,
				"there are too many MCP sessions; end one with DELETE, or wait until an idle one ends").After(10 * time.Second)
		}
		s.forget(idle)
	}
	s.sessions[ses.id] = ses
	if s.owners[ses.owner] == nil {
		s.owners[ses.owner] = map[*session]struct{}{}
	}
	s.owners[ses.owner][ses] = struct{}{}
	s.mu.Unlock()
	if idle != nil {
		idle.close("another session took its place")
	}
	return nil
}

// principalSessions is how many sessions a principal may have on this node.
func (s *Server) principalSessions() int {
	most := s.limits.PrincipalSessions
	if s.c.Share != nil {
		most, _ = s.c.Share(most)
	}
	return most
}

// publicID reveals nothing about the id.
func publicID(secret []byte) string {
	sum := sha256.Sum256(secret)
	return "mcp-" + hex.EncodeToString(sum[:12])
}

func oldestIdle(mine map[*session]struct{}) *session {
	var oldest *session
	var since time.Time
	for ses := range mine {
		ses.mu.Lock()
		active, last := ses.active, ses.last
		ses.mu.Unlock()
		if active == 0 && (oldest == nil || last.Before(since)) {
			oldest, since = ses, last
		}
	}
	return oldest
}

// forget removes the session from the tables. s.mu is held.
func (s *Server) forget(ses *session) {
	delete(s.sessions, ses.id)
	mine := s.owners[ses.owner]
	delete(mine, ses)
	if len(mine) == 0 {
		delete(s.owners, ses.owner)
	}
}

// enter finds a session for a request of its owner at its view, and keeps it from ending until
// leave.
func (s *Server) enter(id string, p *toolkeep.Principal, v *view) *session {
	s.mu.Lock()
	ses := s.sessions[id]
	s.mu.Unlock()
	if ses == nil || ses.owner != ownerOf(p) || ses.view.key != v.key {
		return nil
	}
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.gone {
		return nil
	}
	ses.p = lasting(p)
	ses.active++
	return ses
}

func (ses *session) leave() {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.active--; ses.active == 0 {
		ses.last = time.Now()
	}
}

func (ses *session) principal() *toolkeep.Principal {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	return ses.p
}

// idle ends the session if it has been unused for long enough, else checks again later.
func (ses *session) idle() {
	limit := ses.s.limits.SessionIdle
	ses.mu.Lock()
	wait := limit
	if ses.active == 0 {
		wait = time.Until(ses.last.Add(limit))
	}
	if wait > 0 && !ses.gone {
		ses.timer.Reset(wait)
		ses.mu.Unlock()
		return
	}
	ses.mu.Unlock()
	ses.s.drop(ses, "it was idle")
}

// drop removes a session and ends it.
func (s *Server) drop(ses *session, why string) {
	s.mu.Lock()
	s.forget(ses)
	s.mu.Unlock()
	ses.close(why)
}

// close ends all of the session's open work. The tables no longer hold it.
func (ses *session) close(why string) {
	ses.mu.Lock()
	if ses.gone {
		ses.mu.Unlock()
		return
	}
	ses.gone = true
	ses.timer.Stop()
	calls := ses.calls
	ses.calls = map[string]context.CancelCauseFunc{}
	relay := ses.relay
	ses.relay = nil
	freed := ses.keptBytes
	ses.kept, ses.keptBytes = nil, 0
	own := ses.own
	ses.mu.Unlock()

	close(ses.ended)
	for _, cancel := range calls {
		cancel(errSessionEnded)
	}
	own.end()
	ses.s.eventBytes.Add(-int64(freed))
	if relay != nil {
		relay.close()
	}
	if up, ok := ses.s.c.Upstreams.(SessionEnder); ok {
		up.EndSession(ses.owner.tenant, ses.public)
	}
	ses.s.log.Debug("an MCP session ended", "view", ses.view.key, "tenant", ses.owner.tenant, "subject", ses.owner.subject, "why", why)
}

var errSessionEnded = toolkeep.NewError(toolkeep.Cancelled, "the MCP session ended")

// start registers a request; it fails if the id is in use or there are too many.
func (ses *session) start(id []byte, cancel context.CancelCauseFunc) *mcp.Error {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.gone {
		return mcp.NewError(mcp.CodeInvalidRequest, "the session has ended")
	}
	if _, taken := ses.calls[string(id)]; taken {
		return mcp.NewError(mcp.CodeInvalidRequest, "a request with this id is under way in the session; ids must be unique")
	}
	if len(ses.calls) >= sessionRequests {
		return mcp.NewError(mcp.CodeInternal, "the session has "+strconv.Itoa(len(ses.calls))+" requests under way, which is its limit; wait for one to end")
	}
	ses.calls[string(id)] = cancel
	return nil
}

func (ses *session) finish(id []byte) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	delete(ses.calls, string(id))
}

// cancel stops a request the client no longer wants.
func (ses *session) cancel(id []byte) {
	ses.mu.Lock()
	cancel := ses.calls[string(id)]
	ses.mu.Unlock()
	if cancel != nil {
		cancel(context.Canceled)
	}
}

// openStream creates the stream of one answer; nil if the session has ended.
func (ses *session) openStream(s *Server) *stream {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.gone {
		return nil
	}
	ses.nextStream++
	st := s.newStream(strconv.Itoa(ses.nextStream))
	ses.streams[st.id] = st
	return st
}

// keep retains an ended stream for a while, so a client that lost its end can resume. Older ones
// make room.
func (ses *session) keep(s *Server, st *stream) {
	now := time.Now()
	weight := st.weight()
	ses.mu.Lock()
	defer ses.mu.Unlock()
	for len(ses.kept) > 0 && (ses.kept[0].until.Before(now) || ses.keptBytes+weight > s.limits.sessionBytes) {
		ses.release(s)
	}
	if ses.gone || weight > s.limits.sessionBytes || s.eventBytes.Load()+int64(weight) > maxEventBytes {
		delete(ses.streams, st.id)
		return
	}
	ses.kept = append(ses.kept, keptStream{st, weight, now.Add(eventLifetime)})
	ses.keptBytes += weight
	s.eventBytes.Add(int64(weight))
}

// release drops the oldest ended stream. ses.mu is held.
func (ses *session) release(s *Server) {
	k := ses.kept[0]
	ses.kept = ses.kept[1:]
	ses.keptBytes -= k.weight
	s.eventBytes.Add(-int64(k.weight))
	delete(ses.streams, k.st.id)
}

// find returns a stream to resume.
func (ses *session) find(id string) *stream {
	now := time.Now()
	ses.mu.Lock()
	defer ses.mu.Unlock()
	for len(ses.kept) > 0 && ses.kept[0].until.Before(now) {
		ses.release(ses.s)
	}
	return ses.streams[id]
}

// notify puts a notification on the session's own stream.
func (ses *session) notify(method string, params []byte, key string) {
	m := mcp.Message{Method: method, Params: params}
	ses.own.add(m.Bytes(), false, key)
}

// ask registers a question.
func (ses *session) ask() (id []byte, answer chan *mcp.Message, ok bool) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.gone || len(ses.asks) >= sessionRequests {
		return nil, nil, false
	}
	ses.nextAsk++
	id = []byte(`"tk-` + strconv.Itoa(ses.nextAsk) + `"`)
	answer = make(chan *mcp.Message, 1)
	ses.asks[string(id)] = answer
	return id, answer, true
}

func (ses *session) unask(id []byte) {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	delete(ses.asks, string(id))
}

// answer delivers the answer to a question; if no call waits for it, it is dropped.
func (ses *session) answer(m *mcp.Message) {
	ses.mu.Lock()
	to := ses.asks[string(m.ID)]
	delete(ses.asks, string(m.ID))
	ses.mu.Unlock()
	if to != nil {
		to <- m
	}
}

// add puts found tools into the session's list and reports whether any is new. The oldest make
// room.
func (ses *session) add(ids []string) bool {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	fresh := false
	for _, id := range ids {
		if !contains(ses.found, id) {
			ses.found, fresh = append(ses.found, id), true
		}
	}
	if over := len(ses.found) - sessionFound; over > 0 {
		ses.found = append([]string(nil), ses.found[over:]...)
	}
	return fresh
}

func contains(list []string, s string) bool {
	for _, t := range list {
		if t == s {
			return true
		}
	}
	return false
}
