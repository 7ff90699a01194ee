package rpc_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/facetest"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func TestTranscripts(t *testing.T) {
	facetest.Run(t, func(t *testing.T) facetest.Harness {
		k, tools, keys := toolkeeptest.ForFaces(t)
		conn := connect(t, k.GRPCAddr())
		f := &rpcFace{client: l03v1.NewToolExecutionClient(conn), retrieval: l03v1.NewToolRetrievalClient(conn), keys: keys}
		return facetest.Harness{Face: f, Tools: tools, Follow: f.follow, Drain: k.Pipeline().Drain}
	})
}

func TestStreamTranscripts(t *testing.T) {
	facetest.Run(t, func(t *testing.T) facetest.Harness {
		k, tools, keys := toolkeeptest.ForFaces(t)
		conn := connect(t, k.GRPCAddr())
		f := &rpcFace{client: l03v1.NewToolExecutionClient(conn), retrieval: l03v1.NewToolRetrievalClient(conn), keys: keys, streams: true}
		return facetest.Harness{Face: f, Tools: tools, Follow: f.follow, Drain: k.Pipeline().Drain}
	})
}

// connect opens a connection without TLS that is closed with the test.
func connect(t testing.TB, addr string, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// rpcFace is a client of the generated stubs as facetest sees it.
type rpcFace struct {
	retrieval l03v1.ToolRetrievalClient
	client    l03v1.ToolExecutionClient
	keys      map[string]string
	streams   bool // calls that do not wait go by InvokeToolStream
}

func (f *rpcFace) as(t *testing.T, role string, more ...string) context.Context {
	if role != "" {
		more = append(more, "authorization", "Bearer "+f.keys[role])
	}
	return metadata.AppendToOutgoingContext(t.Context(), more...)
}

// words are BC-2's for the statuses of BC-6.
var words = map[l03v1.ToolInvocationResult_Status]string{
	l03v1.ToolInvocationResult_SUCCESS: "success", l03v1.ToolInvocationResult_FAILURE: "error", l03v1.ToolInvocationResult_TIMEOUT: "timeout",
	l03v1.ToolInvocationResult_NOT_FOUND: "error", l03v1.ToolInvocationResult_UNAUTHORIZED: "permission_denied",
	l03v1.ToolInvocationResult_VALIDATION_ERROR: "error", l03v1.ToolInvocationResult_PENDING: "pending",
	l03v1.ToolInvocationResult_RUNNING: "running", l03v1.ToolInvocationResult_CANCELLED: "cancelled",
	l03v1.ToolInvocationResult_PENDING_APPROVAL: "pending_approval", l03v1.ToolInvocationResult_INPUT_REQUIRED: "pending_approval",
}

func answerOf(t *testing.T, m *l03v1.ToolInvocationResult, trailer metadata.MD) facetest.Answer {
	t.Helper()
	d := m.GetMetadata()
	a := facetest.Answer{State: words[m.GetStatus()], Version: d.GetToolVersion(), Cached: d.GetCacheHit(), ID: m.GetInvocationId(),
		Replayed: len(trailer["x-idempotency-replayed"]) > 0}
	for _, w := range d.GetWarnings() {
		a.Warnings = append(a.Warnings, toolkeep.Code(w[:5]))
	}
	if e := m.GetError(); e != nil {
		if e.GetCode() != m.GetErrorCode() || !strings.HasPrefix(m.GetErrorMessage(), e.GetCode()+" "+e.GetName()+": "+e.GetMessage()) {
			t.Errorf("two errors in one result: %v", m)
		}
		a.Code, a.Name, a.Class = toolkeep.Code(e.GetCode()), e.GetName(), e.GetClass()
		a.Retryable, a.Wait = e.GetRetryable(), e.GetRetryAfterS() > 0
	}
	outputs := m.GetOutputs()
	switch form := trailer["x-output-form"]; {
	case len(form) > 0 && form[0] == "bare":
		a.Output = outputs["result"]
	case m.GetStatus() == l03v1.ToolInvocationResult_SUCCESS && len(form) == 0:
		object := map[string]json.RawMessage{}
		for k, v := range outputs {
			object[k] = json.RawMessage(v)
		}
		raw, err := json.Marshal(object)
		if err != nil {
			t.Fatalf("an output is not JSON: %v", outputs)
		}
		a.Output = string(raw)
	}
	return a
}

func refusalOf(t *testing.T, err error) facetest.Answer {
	t.Helper()
	s := status.Convert(err)
	a := facetest.Answer{Refused: true}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			m := d.GetMetadata()
			a.Code, a.Name, a.Class, a.ID = toolkeep.Code(m["code"]), d.GetReason(), m["class"], m["invocation_id"]
			a.Retryable, _ = strconv.ParseBool(m["retryable"])
			if d.GetDomain() != "toolkeep" || s.Message() == "" {
				t.Errorf("%v", s)
			}
		case *errdetails.RetryInfo:
			a.Wait = d.GetRetryDelay().AsDuration() > 0
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				a.Faults = append(a.Faults, facetest.Fault{Pointer: v.GetField(), Rule: v.GetReason()})
			}
		}
	}
	if a.Code == "" {
		t.Fatalf("not a refusal of ours: %v", err)
	}
	return a
}

// Send implements facetest.Sender.
func (f *rpcFace) Send(t *testing.T, look bool, headers ...string) facetest.Answer {
	t.Helper()
	if !slices.Contains(headers, "Authorization") {
		headers = append(slices.Clone(headers), "authorization", "Bearer "+f.keys["agent"])
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), headers...)
	if look {
		_, err := f.client.GetInvocation(ctx, &l03v1.GetInvocationRequest{InvocationId: "01900000-0000-7000-8000-00000000dead"})
		return refusalOf(t, err)
	}
	msg := &l03v1.ToolInvocationRequest{ToolId: "face.echo", Inputs: map[string]string{"text": `"hello"`}}
	if f.streams {
		return f.stream(t, ctx, msg)
	}
	var trailer metadata.MD
	res, err := f.client.InvokeTool(ctx, msg, grpc.Trailer(&trailer))
	if err != nil {
		return refusalOf(t, err)
	}
	return answerOf(t, res, trailer)
}

func (f *rpcFace) Call(t *testing.T, a facetest.Ask) facetest.Answer {
	t.Helper()
	msg := &l03v1.ToolInvocationRequest{ToolId: a.Tool, ToolVersion: a.Version, AgentId: a.Agent, RequestId: a.Key, AsyncMode: a.Async,
		RequireApproval: a.Approval, TimeoutSeconds: uint32(a.Timeout.Seconds())}
	switch {
	case a.Broken:
		msg.Inputs = map[string]string{"n": "nope"}
	case a.Arguments != "":
		msg.Inputs = map[string]string{}
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(a.Arguments), &m); err != nil {
			t.Fatal(err)
		}
		for k, v := range m {
			msg.Inputs[k] = string(v)
		}
	}
	var more []string
	if a.Token != "" {
		more = append(more, "x-capability-token", a.Token)
	}
	if a.Signature != "" {
		more = append(more, "x-request-signature", a.Signature)
	}
	ctx := f.as(t, a.As, more...)
	if f.streams && !a.Async {
		return f.stream(t, ctx, msg)
	}
	var trailer metadata.MD
	res, err := f.client.InvokeTool(ctx, msg, grpc.Trailer(&trailer))
	if err != nil {
		return refusalOf(t, err)
	}
	return answerOf(t, res, trailer)
}

func (f *rpcFace) stream(t *testing.T, ctx context.Context, msg *l03v1.ToolInvocationRequest) facetest.Answer {
	t.Helper()
	in, err := f.client.InvokeToolStream(ctx, msg)
	if err != nil {
		t.Fatal(err)
	}
	var last *l03v1.ToolInvocationResult
	for {
		u, err := in.Recv()
		if err != nil {
			if last != nil {
				return answerOf(t, last, in.Trailer())
			}
			return refusalOf(t, err)
		}
		last = u.GetResult()
	}
}

func (f *rpcFace) Get(t *testing.T, as, id string) facetest.Answer {
	t.Helper()
	var trailer metadata.MD
	res, err := f.client.GetInvocation(f.as(t, as), &l03v1.GetInvocationRequest{InvocationId: id}, grpc.Trailer(&trailer))
	if err != nil {
		return refusalOf(t, err)
	}
	return answerOf(t, res, trailer)
}

func (f *rpcFace) Cancel(t *testing.T, as, id string) (bool, facetest.Answer) {
	t.Helper()
	res, err := f.client.CancelInvocation(f.as(t, as), &l03v1.CancelInvocationRequest{InvocationId: id, Reason: "a test"})
	if err != nil {
		return false, refusalOf(t, err)
	}
	return res.GetCancelled(), facetest.Answer{}
}

// Context implements facetest.Retriever.
func (f *rpcFace) Context(t *testing.T, a facetest.AskContext) facetest.GotContext {
	t.Helper()
	msg := &l03v1.ToolContextRequest{Query: a.Query, Phase: a.Phase, Budget: uint32(a.Budget)}
	for _, m := range a.Said {
		one := &l03v1.ContextMessage{Role: m[0], Content: m[1]}
		if m[0] == "tool" {
			one.ToolId, one.ToolError = "face.echo", &l03v1.FailedCall{ErrorCode: a.Failed}
		}
		msg.Messages = append(msg.Messages, one)
	}
	res, err := f.retrieval.ToolContext(f.as(t, a.As), msg)
	if err != nil {
		return facetest.GotContext{Refused: refusalOf(t, err)}
	}
	var c struct {
		DetailedTools []struct{ ToolID string }
		Metadata      json.RawMessage
	}
	var meta struct{ Phase string }
	if json.Unmarshal(res.GetContextJson(), &c) != nil || json.Unmarshal(res.GetMetadataJson(), &meta) != nil || string(c.Metadata) != string(res.GetMetadataJson()) {
		t.Fatalf("%s and %s", res.GetContextJson(), res.GetMetadataJson())
	}
	out := facetest.GotContext{Phase: meta.Phase, ID: res.GetRetrievalId()}
	for _, d := range c.DetailedTools {
		out.Tools = append(out.Tools, d.ToolID)
	}
	return out
}

// Feedback implements facetest.Judge.
func (f *rpcFace) Feedback(t *testing.T, as string, s facetest.Feedback) (bool, facetest.Answer) {
	t.Helper()
	msg := &l03v1.FeedbackRequest{RetrievalId: s.ID, Query: s.Query, ToolSelected: s.Tool}
	if s.Relevance >= 0 {
		msg.Relevance = &s.Relevance
	}
	res, err := f.retrieval.Feedback(f.as(t, as), msg)
	if err != nil {
		return false, refusalOf(t, err)
	}
	return res.GetRecorded(), facetest.Answer{}
}

// follow asks until the call has ended; InvokeToolStream's own following has a
// test of its own.
func (f *rpcFace) follow(t *testing.T, as, id string) facetest.Answer {
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
