package rpc

import (
	"bytes"
	"io"
	"math"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

type (
	result = l03v1.ToolInvocationResult
	// receipt is a result with its metadata.
	receipt struct {
		msg     *result
		trailer metadata.MD // nil: none
	}
)

// bc6 are the statuses the error catalogue names.
var bc6 = map[string]l03v1.ToolInvocationResult_Status{
	"FAILURE": l03v1.ToolInvocationResult_FAILURE, "TIMEOUT": l03v1.ToolInvocationResult_TIMEOUT,
	"NOT_FOUND": l03v1.ToolInvocationResult_NOT_FOUND, "UNAUTHORIZED": l03v1.ToolInvocationResult_UNAUTHORIZED,
	"VALIDATION_ERROR": l03v1.ToolInvocationResult_VALIDATION_ERROR,
}

// statusOf returns the BC-6 status for a state; code is the error's, "" without one.
func statusOf(s toolkeep.CallState, code toolkeep.Code) l03v1.ToolInvocationResult_Status {
	switch s {
	case toolkeep.CallAccepted, toolkeep.CallQueued:
		return l03v1.ToolInvocationResult_PENDING
	case toolkeep.CallPendingApproval:
		return l03v1.ToolInvocationResult_PENDING_APPROVAL
	case toolkeep.CallInputRequired:
		return l03v1.ToolInvocationResult_INPUT_REQUIRED
	case toolkeep.CallRunning:
		return l03v1.ToolInvocationResult_RUNNING
	case toolkeep.CallSucceeded:
		return l03v1.ToolInvocationResult_SUCCESS
	case toolkeep.CallCancelled:
		return l03v1.ToolInvocationResult_CANCELLED
	}
	if code != "" {
		if v, ok := bc6[code.Info().BC6]; ok {
			return v
		}
	}
	return l03v1.ToolInvocationResult_FAILURE
}

// statusURL is the REST address of the same call.
func statusURL(id string) string { return "/api/v1/invocations/" + id }

// answer writes a receipt. key and traceparent are the caller's own.
func answer(r *toolkeep.Result, key, traceparent string) receipt {
	var code toolkeep.Code
	if r.Error != nil {
		code = gate.Shown(r.Error).Code
	}
	m := &result{
		RequestId: key, Status: statusOf(r.State, code), Version: 1, InvocationId: r.InvocationID, CallId: r.CallID,
		Metadata: metadataOf(r), ProgressPercent: count(int64(r.Progress.Percent)), CurrentPhase: valid(r.Progress.Phase),
		Traceparent: traceparent,
	}
	if r.Error != nil {
		e := gate.Shown(r.Error)
		m.Error = toolError(e)
		m.ErrorCode, m.ErrorMessage = m.Error.Code, valid(gate.Text(e))
	}
	if r.Signature != nil {
		m.Signature, m.SignatureKeyId = r.Signature.Value, r.Signature.KeyID
	}
	if !r.State.Ended() {
		m.PollingInfo = &l03v1.PollingInfo{StatusUrl: statusURL(r.InvocationID)}
	}
	a := receipt{msg: m}
	form := ""
	m.Outputs, form = splitOutput(r.Output)
	if form != "" && (form != formNone || r.State == toolkeep.CallSucceeded) {
		a.note("x-output-form", form)
	}
	if r.Replayed {
		a.note("x-idempotency-replayed", "true")
	}
	return a
}

func (a *receipt) note(key, value string) {
	if a.trailer == nil {
		a.trailer = metadata.MD{}
	}
	a.trailer.Set(key, value)
}

const (
	formBare = "bare"
	formNone = "none"
)

// splitOutput returns the members of an object, each as JSON; any other value goes under "result".
func splitOutput(output []byte) (map[string]string, string) {
	if len(output) == 0 {
		return nil, formNone
	}
	if members, ok := membersOf(output); ok {
		return members, ""
	}
	return map[string]string{"result": valid(string(output))}, formBare
}

// decoders are pooled for one pass over an output each and retain nothing of it.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

func membersOf(object []byte) (map[string]string, bool) {
	d := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(d)
	d.Reset(bytes.NewBuffer(object), loose...)
	defer d.Reset(empty{})
	if d.PeekKind() != '{' {
		return nil, false
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, false
	}
	out := make(map[string]string, 4)
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, false
		}
		key := valid(name.String())
		v, err := d.ReadValue()
		if err != nil {
			return nil, false
		}
		out[key] = valid(string(v))
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, false
	}
	return out, true
}

// empty is a reader without content.
type empty struct{}

func (empty) Read([]byte) (int, error) { return 0, io.EOF }

func metadataOf(r *toolkeep.Result) *l03v1.ToolInvocationResult_ExecutionMetadata {
	m := &l03v1.ToolInvocationResult_ExecutionMetadata{
		ToolVersion: r.ToolVersion, CacheHit: r.Cached, RetryCount: int32(min(max(r.Attempts-1, 0), math.MaxInt32)),
		OverheadUs: unsigned(r.Overhead.Microseconds()), NetworkBytesSent: unsigned(r.BytesSent), NetworkBytesReceived: unsigned(r.BytesRecv),
		CostUsd: r.CostUSD, Truncated: r.Truncated, StartedAt: stamp(r.StartedAt), CompletedAt: stamp(r.EndedAt),
	}
	if r.Age > 0 {
		age := r.Age.Seconds()
		m.CacheAgeS = &age
	}
	switch {
	case !r.EndedAt.IsZero():
		m.Source = r.Source()
		m.TimestampMs = unsigned(r.EndedAt.UnixMilli())
		if !r.StartedAt.IsZero() {
			m.ExecutionTimeMs = unsigned(r.EndedAt.Sub(r.StartedAt).Milliseconds())
		}
	case !r.StartedAt.IsZero():
		m.TimestampMs = unsigned(r.StartedAt.UnixMilli())
	}
	if r.Fallback != nil {
		m.FallbackToolId = r.Fallback.Tool
	}
	for _, a := range r.Attachments {
		m.Attachments = append(m.Attachments, &l03v1.Attachment{Kind: a.Kind, Url: a.URL, ContentType: valid(a.ContentType), Bytes: unsigned(a.Bytes), Sha256: a.SHA256})
	}
	for _, w := range r.Warnings {
		m.Warnings = append(m.Warnings, string(w.Code)+": "+valid(w.Message))
	}
	return m
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func unsigned(n int64) uint64 { return uint64(max(n, 0)) }

func count(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// toolError returns the error of a result. A message has room for all of it.
func toolError(e *toolkeep.Error) *l03v1.ToolError {
	info := e.Code.Info()
	details, _ := structOf(e.Details)
	return &l03v1.ToolError{Code: string(info.Code), Name: info.Name, Class: e.Class(), Message: valid(e.Message), Details: details,
		Retryable: e.Retryable, RetryAfterS: count(int64(e.RetryAfterSeconds()))}
}
