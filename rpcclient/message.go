package rpcclient

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

var priorities = map[toolkeep.Priority]l03v1.ToolInvocationRequest_Priority{
	"":           l03v1.ToolInvocationRequest_PRIORITY_UNSPECIFIED,
	toolkeep.Low: l03v1.ToolInvocationRequest_LOW, toolkeep.Normal: l03v1.ToolInvocationRequest_NORMAL, toolkeep.High: l03v1.ToolInvocationRequest_HIGH,
}

func requestOf(c *toolkeep.Call) (*l03v1.ToolInvocationRequest, error) {
	priority, ok := priorities[c.Priority]
	if !ok {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "priority is %q; use low, normal or high", string(c.Priority))
	}
	inputs, err := inputsOf(c.Arguments)
	if err != nil {
		return nil, err
	}
	msg := &l03v1.ToolInvocationRequest{
		Version: 1, RequestId: c.Key, ToolId: c.Tool, ToolVersion: c.Range, InvocationId: c.ID, AgentId: c.Subject, Inputs: inputs,
		TimeoutSeconds: wholeSeconds(c.Timeout), AsyncMode: c.Async, SkipCache: c.SkipCache, CacheOverrideTtl: wholeSeconds(c.CacheTTL),
		Priority: priority, RequireApproval: c.RequireApproval, ParentInvocationId: c.Parent,
	}
	if c.Tenant != "" || c.User != "" || c.Session != "" {
		msg.AgentContext = &l03v1.AgentContext{TenantId: c.Tenant, UserDid: c.User, SessionId: c.Session}
	}
	if c.Plan != "" || c.Task != "" {
		msg.Context = &l03v1.ToolInvocationRequest_ExecutionContext{PlanId: c.Plan, TaskId: c.Task}
	}
	return msg, nil
}

func wholeSeconds(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min((d-1)/time.Second+1, math.MaxUint32))
}

// inputsOf splits a JSON object; each value keeps its text.
func inputsOf(arguments []byte) (map[string]string, error) {
	if len(bytes.TrimSpace(arguments)) == 0 {
		return nil, nil
	}
	// The server refuses duplicate names at deeper levels; here a map would hide them.
	d := jsontext.NewDecoder(bytes.NewBuffer(arguments), jsontext.AllowDuplicateNames(true))
	bad := func(err error) error {
		return toolkeep.NewError(toolkeep.MalformedRequest, "the arguments are not one JSON object with each name once").Because(err)
	}
	if d.PeekKind() != '{' {
		_, err := d.ReadToken()
		return nil, bad(err)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, bad(err)
	}
	inputs := map[string]string{}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, bad(err)
		}
		key := name.String()
		if _, ok := inputs[key]; ok {
			return nil, toolkeep.NewError(toolkeep.InvalidEncoding, "the arguments have a name twice")
		}
		v, err := d.ReadValue()
		if err != nil {
			return nil, bad(err)
		}
		inputs[key] = string(v)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, bad(err)
	}
	if rest := arguments[d.InputOffset():]; len(bytes.TrimSpace(rest)) > 0 {
		return nil, bad(nil)
	}
	return inputs, nil
}

// states maps a status to a state; the error's code adds the rest.
var states = map[l03v1.ToolInvocationResult_Status]toolkeep.CallState{
	l03v1.ToolInvocationResult_SUCCESS: toolkeep.CallSucceeded, l03v1.ToolInvocationResult_CANCELLED: toolkeep.CallCancelled,
	l03v1.ToolInvocationResult_PENDING: toolkeep.CallQueued, l03v1.ToolInvocationResult_RUNNING: toolkeep.CallRunning,
	l03v1.ToolInvocationResult_PENDING_APPROVAL: toolkeep.CallPendingApproval, l03v1.ToolInvocationResult_INPUT_REQUIRED: toolkeep.CallInputRequired,
}

func stateOf(s l03v1.ToolInvocationResult_Status, code toolkeep.Code) toolkeep.CallState {
	if st, ok := states[s]; ok {
		return st
	}
	switch {
	case code == toolkeep.HandleExpired:
		return toolkeep.CallExpired
	case code == toolkeep.OutcomeUnknown:
		return toolkeep.CallUnknown
	case code != "" && code.Info().Kind != toolkeep.KindResult:
		return toolkeep.CallRefused
	}
	return toolkeep.CallFailed
}

func resultOf(m *l03v1.ToolInvocationResult, trailer metadata.MD) *toolkeep.Result {
	d := m.GetMetadata()
	r := &toolkeep.Result{
		InvocationID: m.GetInvocationId(), CallID: m.GetCallId(), ToolVersion: d.GetToolVersion(),
		Cached: d.GetCacheHit(), Truncated: d.GetTruncated(), Attempts: int(d.GetRetryCount()) + 1, CostUSD: d.GetCostUsd(),
		StartedAt: moment(d.GetStartedAt()), EndedAt: moment(d.GetCompletedAt()), Overhead: time.Duration(d.GetOverheadUs()) * time.Microsecond,
		BytesSent: int64(d.GetNetworkBytesSent()), BytesRecv: int64(d.GetNetworkBytesReceived()),
		Progress: toolkeep.Progress{Percent: int(m.GetProgressPercent()), Phase: m.GetCurrentPhase()},
		Replayed: slices.Contains(trailer["x-idempotency-replayed"], "true"),
	}
	if tool := d.GetFallbackToolId(); tool != "" {
		r.Fallback = &toolkeep.Fallback{Tool: tool}
	}
	if m.GetSignature() != "" {
		r.Signature = &toolkeep.ResultSignature{KeyID: m.GetSignatureKeyId(), Value: m.GetSignature()}
	}
	if e := m.GetError(); e != nil {
		r.Error = &toolkeep.Error{Code: toolkeep.Code(e.GetCode()), Message: e.GetMessage(), Details: e.GetDetails().AsMap(),
			Retryable: e.GetRetryable(), RetryAfter: time.Duration(e.GetRetryAfterS()) * time.Second, InvocationID: m.GetInvocationId()}
	}
	r.State = stateOf(m.GetStatus(), toolkeep.Code(m.GetErrorCode()))
	r.Output = outputOf(m, trailer)
	if took := r.EndedAt.Sub(r.StartedAt); !r.EndedAt.IsZero() && took > r.Overhead {
		r.ToolTime = took - r.Overhead
	}
	for _, w := range d.GetWarnings() {
		code, text, ok := strings.Cut(w, ": ")
		if !ok {
			code, text = "", w
		}
		r.Warnings = append(r.Warnings, toolkeep.Warning{Code: toolkeep.Code(code), Message: text})
	}
	for _, a := range d.GetAttachments() {
		r.Attachments = append(r.Attachments, toolkeep.Attachment{Kind: a.GetKind(), URL: a.GetUrl(), ContentType: a.GetContentType(), Bytes: int64(a.GetBytes()), SHA256: a.GetSha256()})
	}
	return r
}

func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// outputOf reassembles the output, names sorted.
func outputOf(m *l03v1.ToolInvocationResult, trailer metadata.MD) []byte {
	outputs := m.GetOutputs()
	switch form := trailer["x-output-form"]; {
	case slices.Contains(form, "none"):
		return nil
	case slices.Contains(form, "bare"):
		return []byte(outputs["result"])
	case len(outputs) == 0 && m.GetStatus() != l03v1.ToolInvocationResult_SUCCESS:
		return nil
	}
	names := make([]string, 0, len(outputs))
	n := 2
	for name, v := range outputs {
		names = append(names, name)
		n += len(name) + len(v) + 4
	}
	slices.Sort(names)
	b := append(make([]byte, 0, n), '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, name)
		b = append(b, ':')
		b = append(b, outputs[name]...)
	}
	return append(b, '}')
}
