package rest

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/invoke"
)

// LiveCall is the data of the events of many calls.
type LiveCall struct {
	InvocationSummary
	Progress *LiveProgress `json:"progress,omitempty" doc:"of an asynchronous call, where its tool tells it"`
}

// LiveProgress is how far a call is.
type LiveProgress struct {
	Fraction float64 `json:"fraction" minimum:"0" maximum:"1"`
	Phase    string  `json:"phase,omitempty"`
	Message  string  `json:"message,omitempty"`
}

// LiveGap is the data of the event gap.
type LiveGap struct {
	Missed int `json:"missed" doc:"events that were left out; read the list for what became of the calls"`
}

// liveRoutes follow the calls of all.
func (a *API) liveRoutes() {
	in := a.inputOf(reflect.TypeFor[callFilter](), "watchInvocations")
	r := op("GET", "/api/v1/invocations/events", "watchInvocations", tagCalls, "Follow your calls, or with invocations:read all, as server-sent events")
	r.description = "First `open`: what happens from then on is told, so read the list after it. Then `started`, `state`, `progress` and `ended` of this node's calls " +
		"with a LiveCall, those of other nodes that wait or have ended a few seconds later, and `gap` with a LiveGap. At most 50 a second are told."
	r.responses = tree{"200": tree{"description": "the events", "content": tree{eventsType: tree{
		"x-events": tree{"started": a.components.ref(LiveCall{}), "state": a.components.ref(LiveCall{}), "progress": a.components.ref(LiveCall{}),
			"ended": a.components.ref(LiveCall{}), "gap": a.components.ref(LiveGap{})}}}}}
	a.raw(in.document(r), a.gate.Streaming(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.liveEvents(w, r, in) })))
}

// liveEvents is GET /api/v1/invocations/events.
func (a *API) liveEvents(w http.ResponseWriter, r *http.Request, in *input) {
	p, err := a.caller(r)
	var asked callFilter
	var f toolkeep.InvocationFilter
	if err == nil {
		err = in.readParams(r, reflect.ValueOf(&asked).Elem())
	}
	if err == nil {
		f, err = a.selects(p, &asked)
	}
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	events, done := make(chan liveItem), make(chan struct{})
	go a.followAll(ctx, p, f, events, done)
	defer func() { cancel(); <-done }()
	s := &stream{a: a, p: p, w: w, rc: http.NewResponseController(w)}
	keep := time.NewTicker(a.limits.KeepAlive)
	defer keep.Stop()
	check := time.NewTicker(gate.StillEvery)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.closing:
			s.shuttingDown(r)
			return
		case <-keep.C:
			if s.begun && !s.write([]byte(": keep-alive\n\n")) {
				return
			}
		case <-check.C:
			if !a.gate.Still(p) {
				s.end(r, gate.Gone())
				return
			}
		case e, ok := <-events:
			switch {
			case !ok:
				return
			case e.err != nil:
				s.end(r, e.err)
				return
			case !a.gate.Still(p):
				s.end(r, gate.Gone())
				return
			case !s.tell(e.LiveEvent) || r.Method == http.MethodHead:
				return
			}
		}
	}
}

// tell writes an event; false ends the stream.
func (s *stream) tell(e invoke.LiveEvent) bool {
	s.begin()
	var data any = tree{}
	switch {
	case e.Call != nil:
		c := LiveCall{InvocationSummary: summarise(e.Call)}
		if g := e.Call.Progress; g != (toolkeep.Progress{}) {
			c.Progress = &LiveProgress{Fraction: float64(g.Percent) / 100, Phase: g.Phase, Message: g.Message}
		}
		data = c
	case e.Kind == invoke.LiveGap:
		data = LiveGap{Missed: e.Missed}
	}
	body, err := gate.Marshal(data)
	return err == nil && s.event(e.Kind, "", body)
}

// liveItem is an event, or what ended them.
type liveItem struct {
	invoke.LiveEvent
	err error
}

// followAll reads the events in a goroutine of its own, so that a slow client does not hold up their source.
func (a *API) followAll(ctx context.Context, p *toolkeep.Principal, f toolkeep.InvocationFilter, events chan<- liveItem, done chan<- struct{}) {
	defer close(done)
	defer close(events)
	send := func(e liveItem) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	defer func() {
		if v := recover(); v != nil {
			a.log.ErrorContext(ctx, "following calls panicked", "panic", v)
			send(liveItem{err: toolkeep.NewError(toolkeep.InternalError, "an internal error occurred; the server's log has the cause")})
		}
	}()
	for e, err := range a.c.Calls.Follow(ctx, p, f) {
		if !send(liveItem{e, err}) || err != nil {
			return
		}
	}
}
