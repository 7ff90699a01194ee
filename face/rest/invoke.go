package rest

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

// invoke is POST /api/v1/tools/invoke, the hot path: no reflection, no second
// copy of the result, one buffer.
func (a *API) invoke(w http.ResponseWriter, r *http.Request) {
	p, err := a.gate.AuthenticateHTTP(r)
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	call, dryRun := a.readCall(r)
	call.Told = func(left toolkeep.RateLeft) { gate.RateHeaders(w.Header(), left) }
	if dryRun {
		a.explain(w, r, p, call)
		return
	}
	res, err := a.c.Invoker.Invoke(r.Context(), p, call)
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	a.gate.SignResult(p, res)
	a.answer(w, r, res)
}

// readCall never fails: what is wrong with the request is the call's Fault, so
// that the pipeline refuses and records it.
func (a *API) readCall(r *http.Request) (c *toolkeep.Call, dryRun bool) {
	c = &toolkeep.Call{Face: "rest"}
	a.gate.Call(gate.HTTP(r.Header), c)
	body, err := gate.ReadBody(r, a.limits.BodyBytes, true)
	if err != nil {
		if c.Fault == nil {
			c.Fault = toolkeep.AsError(err)
		}
		return c, false
	}
	return c, a.decodeCall(body, c)
}

func (a *API) explain(w http.ResponseWriter, r *http.Request, p *toolkeep.Principal, c *toolkeep.Call) {
	v, err := a.c.Calls.Explain(r.Context(), p, c)
	var body []byte
	if err == nil {
		body, err = gate.Marshal(v)
	}
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	a.gate.Send(w, r, http.StatusOK, gate.JSONType, body)
}

// answers are buffers for responses; large ones are left to the collector.
var answers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

const keepAnswer = 64 << 10

func (a *API) answer(w http.ResponseWriter, r *http.Request, res *toolkeep.Result) {
	buf := answers.Get().(*[]byte)
	body := appendResponse((*buf)[:0], res)
	status := http.StatusOK
	if !res.State.Ended() {
		status = http.StatusAccepted
		w.Header().Set("Location", statusURL(res.InvocationID))
	}
	lifecycleHeaders(w.Header(), res.Warnings)
	a.gate.Send(w, r, status, gate.JSONType, body)
	if cap(body) <= keepAnswer {
		*buf = body
		answers.Put(buf)
	}
}

// lifecycleHeaders shows a deprecated or sunset version as RFC 9745 and RFC 8594
// have it, from the details of warning E3006: deprecated_at and sunset_at.
func lifecycleHeaders(h http.Header, warnings []toolkeep.Warning) {
	for _, w := range warnings {
		if w.Code != toolkeep.ToolDeprecated {
			continue
		}
		if at, ok := moment(w.Details["deprecated_at"]); ok {
			h.Set("Deprecation", "@"+strconv.FormatInt(at.Unix(), 10))
		}
		if at, ok := moment(w.Details["sunset_at"]); ok {
			h.Set("Sunset", at.UTC().Format(http.TimeFormat))
		}
	}
}

// moment reads a time that was kept as such or, after a round through the
// store, as text.
func moment(v any) (time.Time, bool) {
	switch t := v.(type) {
	case time.Time:
		return t, !t.IsZero()
	case string:
		at, err := time.Parse(time.RFC3339, t)
		return at, err == nil && !at.IsZero()
	}
	return time.Time{}, false
}

// pathID is an id from the path; one over the limit cannot exist.
func (a *API) pathID(r *http.Request, name string) (string, error) {
	id := r.PathValue(name)
	if id == "" || len(id) > a.limits.KeyBytes || strings.ContainsRune(id, 0) {
		return "", toolkeep.NewError(toolkeep.InvalidParameters, "the %s in the path must have 1 to %d bytes and no NUL", name, a.limits.KeyBytes)
	}
	return id, nil
}
