package httptool

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// stream are the options for event streams.
type stream struct {
	sentinel   string // data that ends the stream, "" for none
	maxEvents  int
	maxBytes   int64
	maxSeconds int64  // 0: the attempt's time
	progress   string // pointer to a percentage in an event's data
}

const (
	defaultEvents     = 1000
	maxEvents         = 100_000
	defaultEventBytes = 10 << 20
)

var defaultStream = stream{maxEvents: defaultEvents, maxBytes: defaultEventBytes}

// readStream reads binding.stream.
func readStream(top *bindings.Object) *stream {
	o, ok := top.Sub("stream")
	if !ok {
		return &defaultStream
	}
	s := defaultStream
	s.sentinel, s.progress = o.Text("sentinel", false), pointerText(o, "progress")
	if n, ok := o.Whole("max_events", 1, maxEvents); ok {
		s.maxEvents = int(n)
	}
	if n, ok := o.Whole("max_bytes", 1, defaultMaxBytes); ok {
		s.maxBytes = n
	}
	if n, ok := o.Whole("max_seconds", 1, 24*3600); ok {
		s.maxSeconds = n
	}
	o.Done()
	return &s
}

// stream reads an event stream and reports each event as progress: only their number,
// never their content, because a result must be inspected before any of it is shown.
// The result is the list of all events.
//
// It ends with the stream, at the sentinel, or at a limit, which a warning reports.
func (a *attempt) stream(resp *http.Response, next func(*lines) (*event, error)) (*toolkeep.Output, *toolkeep.Error) {
	s := a.binding.stream
	limit := a.limit()
	u, err := unpack(resp, limit)
	if err != nil {
		return nil, a.unreadable(resp.StatusCode, err)
	}
	defer u.close()
	var cut atomic.Bool
	if d, ok := a.streamTime(); ok {
		timer := time.AfterFunc(d, func() { cut.Store(true); a.stop() })
		defer timer.Stop()
	}
	l := &lines{r: bufio.NewReader(u), limit: min(s.maxBytes, limit)}
	list := []any{}
	for {
		ev, err := next(l)
		switch {
		case err == io.EOF, ev != nil && s.sentinel != "" && ev.text == s.sentinel:
			return a.streamed(list, u.wire.n, ""), nil
		case len(list) == s.maxEvents && (err == nil || cut.Load()):
			return a.streamed(list, u.wire.n, fmt.Sprintf("it reached its limit of %d events", s.maxEvents)), nil
		case err != nil && cut.Load() && len(list) == 0:
			return nil, toolkeep.NewError(toolkeep.UpstreamTimeout, "the upstream's stream sent no event within its time limit").With("status", resp.StatusCode)
		case err != nil && cut.Load():
			return a.streamed(list, u.wire.n, "its time limit passed"), nil
		case (err == errCap || err == errTooLarge) && len(list) == 0:
			return nil, tooLarge(min(s.maxBytes, limit), resp.StatusCode)
		case err == errCap || err == errTooLarge:
			return a.streamed(list, u.wire.n, fmt.Sprintf("it reached its limit of %d bytes", min(s.maxBytes, limit))), nil
		case err != nil:
			return nil, a.brokenStream(resp.StatusCode, len(list), err)
		}
		list = append(list, ev.value)
		a.repaired(ev.repairs)
		a.tell(len(list), u.wire.n, ev)
		if len(list) == s.maxEvents {
			// Whether it was cut depends on whether there is more; a silent feed counts
			// as having more.
			timer := time.AfterFunc(graceAtEnd, func() { cut.Store(true); a.stop() })
			defer timer.Stop()
		}
	}
}

// graceAtEnd is how long a stream may take to end after the last accepted event.
const graceAtEnd = 250 * time.Millisecond

func (a *attempt) streamed(list []any, wire int64, cut string) *toolkeep.Output {
	out := &toolkeep.Output{Value: list, HasValue: true, ContentType: "application/json", BytesSent: a.sent, BytesRecv: wire}
	if cut != "" {
		out.Warnings = []toolkeep.Warning{{Code: toolkeep.ResultTooLarge,
			Message: fmt.Sprintf("the stream was cut off after %d events: %s", len(list), cut),
			Details: map[string]any{"events": len(list)}}}
	}
	out.Warnings = append(out.Warnings, a.repairs.Warnings()...)
	return out
}

// repaired notes what was repaired in a part of the answer.
func (a *attempt) repaired(r canon.Repairs) {
	a.repairs = a.repairs.And(r)
}

// streamTime bounds a stream's duration: the binding's limit, and slightly less than
// the attempt's time, so that the collected events are not lost.
func (a *attempt) streamTime() (time.Duration, bool) {
	d := time.Duration(a.binding.stream.maxSeconds) * time.Second
	deadline, ok := toolkeep.Deadline(a.parent)
	if !ok {
		return d, d > 0
	}
	left := time.Until(deadline)
	left -= min(time.Second, left/10)
	if d == 0 || left < d {
		d = left
	}
	return d, true
}

func (a *attempt) brokenStream(status, events int, err error) *toolkeep.Error {
	var e *toolkeep.Error
	if broken, ok := err.(brokenEvent); ok && a.parent.Err() == nil {
		e = toolkeep.NewError(toolkeep.InvalidResponse, "%s", a.x.Cleaned(broken.why)).With("status", status)
	} else {
		e = a.unreadable(status, err)
	}
	return e.With("events", events)
}

// tell reports the stream's progress.
func (a *attempt) tell(events int, wire int64, ev *event) {
	if a.x.Caller == nil {
		return
	}
	p := toolkeep.Progress{Phase: "streaming", Message: strconv.Itoa(events) + " events, " + strconv.FormatInt(wire, 10) + " bytes"}
	if at := a.binding.stream.progress; at != "" {
		if v, ok := canon.Lookup(ev.data, at); ok {
			if n, ok := v.(json.Number); ok {
				if f, err := n.Float64(); err == nil && f >= 0 && f <= 100 {
					a.percent = int(f)
				}
			}
		}
	}
	p.Percent = a.percent
	a.x.Caller.Progress(p)
}

// unreadable returns why a body could not be read.
func (a *attempt) unreadable(status int, err error) *toolkeep.Error {
	if e, ok := err.(encodingError); ok && a.parent.Err() == nil {
		return toolkeep.NewError(toolkeep.InvalidResponse, "%s", e.why).With("status", status)
	}
	return failure(a.parent, a.x, err, false).With("status", status)
}
