package rpcclient_test

import (
	"errors"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/facetest"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// The client returns what the pipeline gave to the face.
func TestTranscripts(t *testing.T) {
	facetest.Run(t, func(t *testing.T) facetest.Harness {
		k, tools, keys := toolkeeptest.ForFaces(t)
		f := &clientFace{addr: k.GRPCAddr(), keys: keys}
		return facetest.Harness{Face: f, Tools: tools, Follow: f.follow, Drain: k.Pipeline().Drain, Unsigned: true}
	})
}

type clientFace struct {
	addr string
	keys map[string]string
}

func (f *clientFace) as(t *testing.T, role string) *rpcclient.Client {
	t.Helper()
	c, err := rpcclient.Dial(f.addr, rpcclient.Options{Key: f.keys[role]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func answerOf(t *testing.T, r *toolkeep.Result, err error) facetest.Answer {
	t.Helper()
	var a facetest.Answer
	set := func(e *toolkeep.Error) {
		i := e.Code.Info()
		a.Code, a.Name, a.Class, a.Retryable, a.Wait = e.Code, i.Name, i.Class, e.Retryable, e.RetryAfter > 0
	}
	if err != nil {
		var e *toolkeep.Error
		if !errors.As(err, &e) {
			t.Fatalf("not an *Error: %v", err)
		}
		set(e)
		a.Refused, a.ID = true, e.InvocationID
		faults, _ := e.Details["errors"].([]toolkeep.Fault)
		for _, f := range faults {
			a.Faults = append(a.Faults, facetest.Fault{Pointer: f.Pointer, Rule: f.Rule})
		}
		return a
	}
	if r.Error != nil {
		set(r.Error)
	}
	for _, w := range r.Warnings {
		a.Warnings = append(a.Warnings, w.Code)
	}
	a.State, a.Output, a.Version, a.Cached, a.Replayed, a.ID = r.State.BC2(a.Code), string(r.Output), r.ToolVersion, r.Cached, r.Replayed, r.InvocationID
	return a
}

func (f *clientFace) Call(t *testing.T, a facetest.Ask) facetest.Answer {
	t.Helper()
	call := &toolkeep.Call{Tool: a.Tool, Range: a.Version, Arguments: []byte(a.Arguments), Key: a.Key, Subject: a.Agent, Timeout: a.Timeout,
		Async: a.Async, RequireApproval: a.Approval}
	if a.Broken {
		call.Arguments = []byte(`{"text":nope}`)
	}
	r, err := f.as(t, a.As).Invoke(t.Context(), nil, call)
	return answerOf(t, r, err)
}

func (f *clientFace) Get(t *testing.T, as, id string) facetest.Answer {
	t.Helper()
	r, err := f.as(t, as).Get(t.Context(), id)
	return answerOf(t, r, err)
}

func (f *clientFace) Cancel(t *testing.T, as, id string) (bool, facetest.Answer) {
	t.Helper()
	cancelled, _, err := f.as(t, as).Cancel(t.Context(), id, "a test")
	if err != nil {
		return false, answerOf(t, nil, err)
	}
	return cancelled, facetest.Answer{}
}

func (f *clientFace) follow(t *testing.T, as, id string) facetest.Answer {
	t.Helper()
	for {
		a := f.Get(t, as, id)
		if a.Refused || a.State != "pending" && a.State != "running" {
			return a
		}
		if t.Context().Err() != nil {
			t.Fatal("the call did not end")
		}
	}
}
