package mcpserver

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// reply is the answer to one POST with requests. It is JSON if only answers are sent, else an event
// stream; see the package comment.
type reply struct {
	s       *Server
	w       http.ResponseWriter
	ctx     context.Context // of the HTTP request
	p       *toolkeep.Principal
	over    func()   // ends the requests when the principal may not come in any more
	ses     *session // nil without a session; then nothing can be resumed
	version string
	batch   bool
	json    bool // the client accepts JSON
	stream  bool // the client accepts event streams
	listens bool // a subscription, which asks by itself and ends with an answer

	mu     sync.Mutex
	state  replyState
	first  []byte // answers before the form is decided
	more   [][]byte
	st     *stream
	pumped chan struct{} // closed when the pump has stopped; nil before it starts
	timer  *time.Timer
	status int // of a JSON answer; 0 means 200
}

type replyState int

const (
	undecided replyState = iota
	plain
	streaming
)

// accept reads the Accept header; false if the client accepts neither form.
func (r *reply) accept(header http.Header) (ok bool) {
	r.json, r.stream = accepts(header["Accept"])
	return r.json || r.stream
}

// accepts parses an Accept header; without one the client accepts everything.
func accepts(values []string) (json, stream bool) {
	if len(values) == 0 {
		return true, true
	}
	if len(values) == 1 && values[0] == "application/json, text/event-stream" {
		return true, true
	}
	for _, line := range values {
		for item := range strings.SplitSeq(line, ",") {
			kind, _, _ := strings.Cut(item, ";")
			switch strings.ToLower(strings.TrimSpace(kind)) {
			case "application/json", "application/*":
				json = true
			case "text/event-stream", "text/*":
				stream = true
			case "*/*":
				json, stream = true, true
			}
		}
	}
	return json, stream
}

// begin starts the timer after which the answer becomes a stream.
func (r *reply) begin() {
	if r.stream {
		r.timer = time.AfterFunc(r.s.limits.streamAfter, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.state == undecided {
				r.open()
			}
		})
	}
}

// open starts the event stream. r.mu is held.
func (r *reply) open() {
	r.state = streaming
	if r.ses != nil {
		r.st = r.ses.openStream(r.s)
	}
	if r.st == nil { // no session, or it has just ended
		r.st = r.s.newStream("")
	}
	if r.st.id != "" && r.version >= mcp.V20251125 {
		// The priming event gives the client an id to resume from.
		r.st.add(nil, true, "")
	}
	if r.first != nil {
		r.st.add(r.first, true, "")
	}
	for _, m := range r.more {
		r.st.add(m, true, "")
	}
	rd, _ := r.st.attach(true)
	r.pumped = make(chan struct{})
	go func(st *stream, done chan struct{}) {
		defer close(done)
		e := newEventWriter(r.w, r.s.limits.WriteTimeout)
		if !e.open() {
			st.detach(rd)
			return
		}
		r.s.pump(r.ctx, e, st, rd, 0, func() bool {
			if r.listens || r.s.gate.Still(r.p) {
				return true
			}
			r.over()
			return false
		})
	}(r.st, r.pumped)
}

// leaves tells in the headers what the limits have left, unless the answer has begun.
func (r *reply) leaves(left toolkeep.RateLeft) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == undecided {
		gate.RateHeaders(r.w.Header(), left)
	}
}

// asStream makes a relay's answer an event stream, as servers of the official SDKs do: in a session
// a stream can be resumed. Lists use it; answers to calls, which are frequent, become streams only
// when needed.
func (x *exchange) asStream() {
	if x.v.kind == viewRelay && x.reply != nil {
		x.reply.asStream()
	}
}

func (r *reply) asStream() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == undecided && r.stream {
		r.open()
	}
}

// send adds a notification or a question to the answer. It returns false if that is impossible: the
// client accepts only JSON, or the answer has been sent.
func (r *reply) send(data []byte, keep bool, key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state == plain, r.state == undecided && !r.stream:
		return false
	case r.state == undecided:
		r.open()
	}
	return r.st.add(data, keep, key)
}

// resumable reports whether the client could come back for the answer.
func (r *reply) resumable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state == streaming && r.st.id != "" && r.st.held()
}

// respond adds the answer to one request. It retains data.
func (r *reply) respond(data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.state == streaming:
		r.st.add(data, true, "")
	case r.first == nil:
		r.first = data
	default:
		r.more = append(r.more, data)
	}
}

// end sends the rest and returns when the writer is free.
func (r *reply) end() {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Lock()
	if r.state == undecided && !r.json {
		r.open()
	}
	if r.state == streaming {
		st, pumped := r.st, r.pumped
		r.mu.Unlock()
		st.end()
		if r.ses != nil && st.id != "" {
			r.ses.keep(r.s, st)
		}
		<-pumped
		return
	}
	r.state = plain
	r.mu.Unlock()
	r.sendJSON()
}

func (r *reply) sendJSON() {
	status := http.StatusOK
	if r.status != 0 && !r.batch {
		status = r.status
	}
	if !r.batch {
		r.s.sendBody(r.w, status, r.first)
		return
	}
	n := len(r.first) + 2
	for _, m := range r.more {
		n += len(m) + 1
	}
	body := append(append(make([]byte, 0, n), '['), r.first...)
	for _, m := range r.more {
		body = append(append(body, ','), m...)
	}
	r.s.sendBody(r.w, status, append(body, ']'))
}

var typeJSON = []string{"application/json"}

// sendBody writes a whole JSON answer.
func (s *Server) sendBody(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h["Content-Type"] = typeJSON
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	h["Cache-Control"] = noStore
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(s.limits.WriteTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client is gone; no one to report to
}

var noStore = []string{"no-store"}
