package rest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

// events is GET /api/v1/invocations/{invocation_id}/events: what happens to one
// call, as server-sent events.
//
// The id of an event is a fingerprint of what it says. A client that comes back
// with Last-Event-ID gets the call's present state unless it has that already,
// and after the result 204, which ends an EventSource's reconnecting.
func (a *API) events(w http.ResponseWriter, r *http.Request) {
	p, id, err := a.callerAndCall(r)
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	last := toolkeep.ClipBytes(r.Header.Get("Last-Event-Id"), 128)
	if last == resultID(id) {
		// Only a caller that may see the call learns that it has ended.
		if _, err := a.c.Calls.Get(r.Context(), p, id); err != nil {
			a.gate.Refuse(w, r, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	rows := a.follow(ctx, p, id)
	defer func() { cancel(); <-rows.done }()

	s := &stream{a: a, p: p, w: w, rc: http.NewResponseController(w), last: last}
	s.run(ctx, r, rows)
}

// follow reads the watch in a goroutine of its own, so that a slow client holds
// up neither the watch nor its source. It ends with ctx or the watch.
func (a *API) follow(ctx context.Context, p *toolkeep.Principal, id string) *latest {
	l := &latest{ready: make(chan struct{}, 1), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer func() {
			if v := recover(); v != nil {
				a.log.ErrorContext(ctx, "watching a call panicked", "invocation_id", id, "panic", v)
				l.put(nil, toolkeep.NewError(toolkeep.InternalError, "an internal error occurred; the server's log has the cause"))
			}
		}()
		for v, err := range a.c.Calls.Watch(ctx, p, id) {
			l.put(v, err)
			if err != nil || ctx.Err() != nil {
				return
			}
		}
		l.put(nil, io.EOF)
	}()
	return l
}

// latest holds the newest row only; those that were not taken in time are gone,
// but never the last one.
type latest struct {
	mu    sync.Mutex
	row   *toolkeep.Invocation
	err   error
	ready chan struct{}
	done  chan struct{}
}

func (l *latest) put(v *toolkeep.Invocation, err error) {
	l.mu.Lock()
	if v != nil {
		l.row = v
	}
	l.err = err
	l.mu.Unlock()
	select {
	case l.ready <- struct{}{}:
	default:
	}
}

func (l *latest) take() (v *toolkeep.Invocation, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, l.row = l.row, nil
	return v, l.err
}

// stream writes the events of one call to one client.
type stream struct {
	a     *API
	p     *toolkeep.Principal
	w     http.ResponseWriter
	rc    *http.ResponseController
	begun bool
	last  string // id of the event that the client has
	state toolkeep.CallState
	buf   []byte
}

func (s *stream) run(ctx context.Context, r *http.Request, rows *latest) {
	tick := time.NewTicker(s.a.limits.KeepAlive)
	defer tick.Stop()
	check := time.NewTicker(gate.StillEvery)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.a.closing:
			s.shuttingDown(r)
			return
		case <-tick.C:
			if s.begun && !s.write([]byte(": keep-alive\n\n")) {
				return
			}
		case <-check.C:
			if !s.a.gate.Still(s.p) {
				s.end(r, gate.Gone())
				return
			}
		case <-rows.ready:
			v, err := rows.take()
			if !s.a.gate.Still(s.p) {
				s.end(r, gate.Gone())
				return
			}
			if v != nil && r.Method == http.MethodHead {
				s.begin()
				return
			}
			if v != nil && !s.show(v) {
				return
			}
			if err != nil {
				s.end(r, err)
				return
			}
		}
	}
}

func (s *stream) shuttingDown(r *http.Request) {
	if s.begun {
		s.write([]byte(": the server is shutting down\nretry: 1000\n\n"))
	} else {
		s.a.gate.Refuse(s.w, r, toolkeep.NewError(toolkeep.Draining, "the server is shutting down").After(time.Second))
	}
}

// show writes what is new in the row; false ends the stream.
func (s *stream) show(v *toolkeep.Invocation) bool {
	s.begin()
	if v.State.Ended() {
		res := s.a.c.Calls.Result(v)
		s.a.gate.SignResult(s.p, res)
		s.event("result", resultID(v.ID), appendResponse(nil, res))
		return false
	}
	id := fingerprint(v)
	if id == s.last {
		s.state = v.State
		return true
	}
	name := "progress"
	if v.State != s.state {
		name = "state"
	}
	s.state, s.last = v.State, id
	return s.event(name, id, appendInvocation(nil, v, nil, nil))
}

// end closes a watch that failed or stopped before the call did.
func (s *stream) end(r *http.Request, err error) {
	switch {
	case errors.Is(err, io.EOF) && s.begun, r.Context().Err() != nil:
	case errors.Is(err, io.EOF):
		s.a.gate.Refuse(s.w, r, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no such invocation"))
	case !s.begun:
		s.a.gate.Refuse(s.w, r, err)
	default:
		p := s.a.gate.Problem(s.w, r, err)
		if body, err := gate.Marshal(p); err == nil {
			s.event("error", "", body)
		}
	}
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	// A client that has this state already still wants to know that it is connected.
	s.write(nil)
}

func (s *stream) event(name, id string, data []byte) bool {
	b := append(s.buf[:0], "event: "...)
	b = append(b, name...)
	if id != "" {
		b = append(b, "\nid: "...)
		b = append(b, id...)
	}
	b = append(b, "\ndata: "...)
	b = append(b, oneLine(data)...)
	b = append(b, "\n\n"...)
	s.buf = b
	return s.write(b)
}

// oneLine replaces the line breaks that an output may hold between its tokens;
// inside of JSON strings they cannot stand bare.
func oneLine(data []byte) []byte {
	for i, c := range data {
		if c == '\n' || c == '\r' {
			data[i] = ' '
		}
	}
	return data
}

func (s *stream) write(b []byte) bool {
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.a.limits.WriteTimeout))
	if _, err := s.w.Write(b); err != nil {
		return false
	}
	return s.rc.Flush() == nil
}

func resultID(invocationID string) string { return "result-" + hash(invocationID) }

func fingerprint(v *toolkeep.Invocation) string {
	return string(v.State) + "-" + hash(fmt.Sprintf("%d\x00%s\x00%s\x00%s\x00%d", v.Progress.Percent, v.Progress.Phase,
		v.Progress.Message, v.CancelBy, v.Attempts))
}

func hash(s string) string {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s)
	return fmt.Sprintf("%016x", h.Sum64())
}
