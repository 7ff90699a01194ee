package rest

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep/face/gate"
)

// Forms of an answer that tells how far it is.
const (
	ndjsonType = "application/x-ndjson"
	eventsType = "text/event-stream"
)

// progress is the stream on which an operation tells how far it is. A nil one tells
// nothing. Refusals before the first event are ordinary problem documents.
type progress struct {
	a     *API
	w     http.ResponseWriter
	rc    *http.ResponseController
	form  string // ndjsonType or eventsType
	begun bool
	gone  bool // the client has left
	next  time.Time
	buf   []byte
}

// newProgress is the stream that the request accepts, nil for none. What comes first in
// Accept is taken; a form without weight above 0 is not accepted.
func (a *API) newProgress(w http.ResponseWriter, r *http.Request) *progress {
	for _, line := range r.Header["Accept"] {
		for item := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(item, ";")
			switch name = strings.ToLower(strings.TrimSpace(name)); {
			case name != ndjsonType && name != eventsType:
			case refusedWeight(params):
			default:
				return &progress{a: a, w: w, rc: http.NewResponseController(w), form: name}
			}
		}
	}
	return nil
}

func refusedWeight(params string) bool {
	v, ok := strings.CutPrefix(strings.TrimSpace(params), "q=")
	if !ok {
		return false
	}
	q, err := strconv.ParseFloat(v, 64)
	return err != nil || q <= 0
}

// tell sends an event at once.
func (p *progress) tell(name string, v any) {
	if p == nil || p.gone {
		return
	}
	data, err := gate.Marshal(v)
	if err != nil {
		return // of our own shapes, so that it cannot be; the result comes all the same
	}
	p.send(name, data)
}

// nowAndThen sends an event at most four times a second, so that a long list is no flood.
func (p *progress) nowAndThen(name string, v any) {
	if p == nil || time.Now().Before(p.next) {
		return
	}
	p.next = time.Now().Add(250 * time.Millisecond)
	p.tell(name, v)
}

func (p *progress) send(name string, data []byte) {
	if !p.begun {
		p.begun = true
		h := p.w.Header()
		h.Set("Content-Type", p.form)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Accel-Buffering", "no")
		p.w.WriteHeader(http.StatusOK)
	}
	data = oneLine(data)
	b := p.buf[:0]
	if p.form == eventsType {
		b = append(append(append(b, "event: "...), name...), "\ndata: "...)
		b = append(append(b, data...), "\n\n"...)
	} else {
		b = append(append(append(b, `{"event":"`...), name...), `","data":`...)
		b = append(append(b, data...), "}\n"...)
	}
	p.buf = b
	_ = p.rc.SetWriteDeadline(time.Now().Add(p.a.limits.WriteTimeout))
	if _, err := p.w.Write(b); err != nil || p.rc.Flush() != nil {
		p.gone = true
	}
}

// end sends the answer as the last event: result, or error with the problem document.
func (p *progress) end(w http.ResponseWriter, r *http.Request, body []byte, err error) {
	name := "result"
	if err != nil {
		name = "error"
		body, _ = gate.Marshal(p.a.gate.Problem(w, r, err))
	}
	if !p.gone {
		p.send(name, body)
	}
}

// progressInput is embedded in the input of a handler that tells how far it is.
type progressInput struct{ progress *progress }

func (in *progressInput) tells(to *progress) { in.progress = to }
