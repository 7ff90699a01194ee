// Package facetest is one set of transcripts that every face runs: on every face the same call gets
// the same error, state and output.
//
// A face's test starts a system with toolkeeptest.ForFaces, wraps its client as a Face and calls
// Run.
package facetest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Ask is a call that every face can send.
type Ask struct {
	As        string // role of the key; "" sends none, "stranger" an unknown one
	Tool      string
	Version   string
	Arguments string // a JSON object
	Broken    bool   // the arguments are not valid JSON, in whatever way the face allows
	Key       string // idempotency key
	Agent     string // the agent the caller claims to be
	Token     string // capability token; "@" and a tool's id is one that allows the tool to the agent
	Signature string // request signature
	Timeout   time.Duration
	Async     bool
	Approval  bool
}

// Answer is the answer in a form common to all faces.
type Answer struct {
	Refused   bool // before execution: no result
	Code      toolkeep.Code
	Name      string
	Class     string
	Retryable bool
	Wait      bool            // the answer has a retry time
	Faults    []Fault         // faults in the arguments
	State     string          // BC-2 name; "" for a refusal
	Output    string          // JSON; "" for none
	Version   string          // resolved version
	Warnings  []toolkeep.Code // in order
	Cached    bool
	Replayed  bool
	ID        string // of the invocation, "" if not given
}

// Fault is a location and a rule; the text is the server's.
type Fault struct{ Pointer, Rule string }

// Face is a client of one face.
type Face interface {
	Call(t *testing.T, a Ask) Answer
	// Get looks up a call as the given role.
	Get(t *testing.T, as, id string) Answer
	// Cancel stops a call; refused is the zero Answer if it was not refused.
	Cancel(t *testing.T, as, id string) (cancelled bool, refused Answer)
}

// Harness is a face with the system behind it.
type Harness struct {
	Face  Face
	Tools *Tools
	// Follow returns the ended call; it waits the way the face's clients do.
	Follow func(t *testing.T, as, id string) Answer
	// Drain makes the system refuse new calls, permanently.
	Drain func()
	// Unsigned is set if the face's client cannot send tokens and signatures.
	Unsigned bool
	HTTP     bool // requests have a Host, an Origin and a content type
}

// Run runs all transcripts against one system.
func Run(t *testing.T, start func(t *testing.T) Harness) {
	h := start(t)
	t.Run("calls", h.calls)
	t.Run("the same request gets the same refusal", h.refusals)
	t.Run("the key's answer is given again", h.replay)
	t.Run("a cached result", h.cached)
	t.Run("a waiting call", h.waiting)
	t.Run("a call that waits for a person", h.approving)
	t.Run("cancelling", h.cancelling)
	t.Run("who may look and cancel", h.strangers)
	t.Run("contexts and feedback", h.retrieval)
	t.Run("draining", h.draining)
}

type transcript struct {
	name string
	ask  Ask
	want Answer
}

func refused(code toolkeep.Code, change ...func(*Answer)) Answer {
	i := code.Info()
	a := Answer{Refused: true, Code: code, Name: i.Name, Class: i.Class, Retryable: i.Retryable}
	for _, c := range change {
		c(&a)
	}
	return a
}

func failed(code toolkeep.Code, state string, change ...func(*Answer)) Answer {
	a := refused(code, change...)
	a.Refused, a.State, a.Version = false, state, "1.0.0"
	return a
}

func success(output string) Answer { return Answer{State: "success", Output: output, Version: "1.0.0"} }

func faults(list ...Fault) func(*Answer) { return func(a *Answer) { a.Faults = list } }

func wait(a *Answer) { a.Wait = true }

func (h Harness) calls(t *testing.T) {
	for _, c := range transcripts() {
		if h.Unsigned && (c.ask.Token != "" || c.ask.Signature != "") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if tool, mint := strings.CutPrefix(c.ask.Token, "@"); mint {
				c.ask.Token = h.Tools.Mint(t, tool)
			}
			got := h.Face.Call(t, c.ask)
			if c.ask.Broken {
				got.Faults = nil // a face may add locations
			}
			check(t, got, c.want)
			h.recorded(t, got, c.ask.As, reasons[c.name])
		})
	}
}

// recorded compares the record of a call with its answer. With a reason, that is the record's code for who may read all
// calls, and the caller reads its answer.
func (h Harness) recorded(t *testing.T, got Answer, as string, reason toolkeep.Code) {
	t.Helper()
	if got.ID == "" {
		return
	}
	reader := "admin"
	if reason != "" {
		if whole := h.Face.Get(t, reader, got.ID); whole.Code != reason {
			t.Errorf("the record says %s, want %s", whole.Code, reason)
		}
		reader = as
	}
	row := h.Face.Get(t, reader, got.ID)
	want := got.State
	if got.Refused {
		want = toolkeep.CallRefused.BC2(got.Code)
	}
	if row.State != want || row.Code != got.Code || row.Retryable != got.Retryable || row.Refused {
		t.Errorf("the record says %+v of the answer %+v", row, got)
	}
}

// check compares the parts that do not differ between runs.
func check(t *testing.T, got, want Answer) {
	t.Helper()
	if want.ID == "" {
		got.ID = ""
	}
	if !sameJSON(got.Output, want.Output) || !slices.Equal(got.Faults, want.Faults) || !slices.Equal(got.Warnings, want.Warnings) {
		t.Errorf("got  %+v\nwant %+v", got, want)
		return
	}
	got.Output, want.Output, got.Faults, want.Faults, got.Warnings, want.Warnings = "", "", nil, nil, nil, nil
	a, b := asJSON(got), asJSON(want)
	if a != b {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}

func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// sameJSON compares JSON values, numbers by their text.
func sameJSON(a, b string) bool {
	if a == "" || b == "" {
		return a == b
	}
	var x, y any
	for text, to := range map[string]*any{a: &x, b: &y} {
		if err := unmarshal(text, to); err != nil {
			return false
		}
	}
	if a == b {
		return true
	}
	return asJSON(x) == asJSON(y)
}

// one returns the answer of a call that must succeed, or must wait.
func (h Harness) one(t *testing.T, a Ask, state string) Answer {
	t.Helper()
	got := h.Face.Call(t, a)
	if got.Refused || got.State != state || got.ID == "" {
		t.Fatalf("got %+v, want %s", got, state)
	}
	return got
}

func (h Harness) replay(t *testing.T) {
	ask := Ask{As: "agent", Tool: "face.count", Arguments: `{"name":"replay"}`, Key: "replay-1"}
	begun := h.Tools.Runs("replay")
	first := h.one(t, ask, "success")
	again := h.one(t, ask, "success")
	want := first
	want.Replayed = true
	check(t, again, want)
	if n := h.Tools.Runs("replay") - begun; n != 1 {
		t.Errorf("executed %d times", n)
	}
	other := ask
	other.Arguments = `{"name":"another"}`
	check(t, h.Face.Call(t, other), refused(toolkeep.IdempotencyConflict))
	mine := ask
	mine.As = "admin"
	if got := h.one(t, mine, "success"); got.Replayed {
		t.Errorf("another subject's key was answered: %+v", got)
	}
}

func (h Harness) cached(t *testing.T) {
	ask := Ask{As: "agent", Tool: "face.cached", Arguments: `{"name":"cached"}`}
	first, again := h.one(t, ask, "success"), h.one(t, ask, "success")
	if first.Cached || !again.Cached || again.Replayed || first.Output != again.Output || first.ID == again.ID {
		t.Errorf("first %+v\nagain %+v", first, again)
	}
}

func (h Harness) waiting(t *testing.T) {
	a := h.one(t, Ask{As: "agent", Tool: "face.gate", Arguments: `{"name":"waiting"}`, Async: true}, "pending")
	h.Tools.Await(t, "waiting")
	if got := h.Face.Get(t, "agent", a.ID); got.State != "running" || got.Refused || got.ID != a.ID {
		t.Errorf("got %+v", got)
	}
	h.Tools.Open("waiting")
	want := success(`{"name":"waiting"}`)
	want.ID = a.ID
	check(t, h.Follow(t, "agent", a.ID), want)
	check(t, h.Face.Get(t, "agent", a.ID), want)

	a = h.one(t, Ask{As: "agent", Tool: "face.fails", Arguments: `{}`, Async: true}, "pending")
	failure := failed(toolkeep.UpstreamServerError, "error")
	failure.ID = a.ID
	check(t, h.Follow(t, "agent", a.ID), failure)
}

// approving: a call that owes an approval waits; see control/approvals for what is decided then.
func (h Harness) approving(t *testing.T) {
	a := h.one(t, Ask{As: "agent", Tool: "face.echo", Arguments: `{"text":"waits"}`, Approval: true, Async: true}, "pending_approval")
	if got := h.Face.Get(t, "agent", a.ID); got.State != "pending_approval" || got.Refused || got.ID != a.ID {
		t.Errorf("got %+v", got)
	}
	if done, no := h.Face.Cancel(t, "agent", a.ID); !done || no.Refused {
		t.Errorf("%t %+v", done, no)
	}
	if got := h.Follow(t, "agent", a.ID); got.State != "cancelled" || got.Code != toolkeep.Cancelled {
		t.Errorf("got %+v", got)
	}
}

func (h Harness) cancelling(t *testing.T) {
	a := h.one(t, Ask{As: "agent", Tool: "face.gate", Arguments: `{"name":"cancelled"}`, Async: true}, "pending")
	h.Tools.Await(t, "cancelled")
	if done, no := h.Face.Cancel(t, "agent", a.ID); !done || no.Refused {
		t.Errorf("%t %+v", done, no)
	}
	got := h.Follow(t, "agent", a.ID)
	if got.State != "cancelled" || got.Code != toolkeep.Cancelled {
		t.Errorf("got %+v", got)
	}
	ended := h.one(t, Ask{As: "agent", Tool: "face.echo", Arguments: `{"text":"ended"}`}, "success")
	if done, no := h.Face.Cancel(t, "agent", ended.ID); done || no.Refused {
		t.Errorf("%t %+v", done, no)
	}
}

func (h Harness) strangers(t *testing.T) {
	a := h.one(t, Ask{As: "admin", Tool: "face.echo", Arguments: `{"text":"mine"}`}, "success")
	check(t, h.Face.Get(t, "agent", a.ID), refused(toolkeep.ResourceNotFound))
	check(t, h.Face.Get(t, "", a.ID), refused(toolkeep.Unauthenticated))
	check(t, h.Face.Get(t, "admin", "01900000-0000-7000-8000-00000000dead"), refused(toolkeep.ResourceNotFound))
	if got := h.Face.Get(t, "auditor", a.ID); got.State != "success" {
		t.Errorf("got %+v", got)
	}
	for as, code := range map[string]toolkeep.Code{"agent": toolkeep.ResourceNotFound, "auditor": toolkeep.PermissionDenied, "": toolkeep.Unauthenticated} {
		_, no := h.Face.Cancel(t, as, a.ID)
		check(t, no, refused(code))
	}
}

func (h Harness) draining(t *testing.T) {
	h.Drain()
	check(t, h.Face.Call(t, Ask{As: "agent", Tool: "face.echo", Arguments: `{"text":"late"}`}), refused(toolkeep.Draining, wait))
}
