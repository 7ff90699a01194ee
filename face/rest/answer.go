package rest

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/invoke"
)

// The answers that carry results are appended to a buffer, so that the output
// goes out as the bytes that inspect made. The types below say the same for the
// document; the tests hold every answer against them.

// InvokeResponse is BC-2's ToolInvokeResponse.
type InvokeResponse struct {
	InvocationID      string            `json:"invocation_id"`
	Status            string            `json:"status" enum:"pending,running,success,error,timeout,cancelled,permission_denied,pending_approval"`
	Result            any               `json:"result,omitempty" doc:"what the tool brought back, if it succeeded"`
	Error             *InvokeError      `json:"error,omitempty"`
	ExecutionMetadata ExecutionMetadata `json:"execution_metadata"`
	PollingInfo       *PollingInfo      `json:"polling_info,omitempty" doc:"where to ask while the call has not ended"`
	CallID            string            `json:"call_id,omitempty" doc:"deterministic id of tool, version, arguments and ordinal"`
}

// InvokeError is BC-2's ToolError with the members of the error catalogue.
type InvokeError struct {
	Code        string         `json:"code" doc:"BC-2 ToolErrorCode"`
	Message     string         `json:"message"`
	Details     map[string]any `json:"details,omitempty"`
	Retryable   bool           `json:"retryable"`
	ErrorCode   string         `json:"error_code" doc:"code of the error catalogue" example:"E3520"`
	Name        string         `json:"name"`
	Class       string         `json:"class"`
	RetryAfterS int            `json:"retry_after_s,omitempty"`
}

// ExecutionMetadata is BC-2's, with what else the receipt says.
type ExecutionMetadata struct {
	DurationMS          int64              `json:"duration_ms" doc:"from start to end, all of it"`
	StartedAt           *time.Time         `json:"started_at,omitempty" doc:"absent while the call waits"`
	CompletedAt         *time.Time         `json:"completed_at,omitempty" doc:"absent until the call has ended"`
	CPUUsed             int64              `json:"cpu_used_millicore_seconds"`
	MemoryPeakMB        int64              `json:"memory_peak_mb"`
	NetworkSent         int64              `json:"network_bytes_sent"`
	NetworkReceived     int64              `json:"network_bytes_received"`
	DocumentsAccessed   []object           `json:"documents_accessed"`
	CheckpointsCreated  []object           `json:"checkpoints_created"`
	ToolVersion         string             `json:"tool_version,omitempty" doc:"the version that the reference resolved to"`
	OverheadUS          int64              `json:"overhead_us" doc:"microseconds outside of the tool"`
	Source              string             `json:"source" enum:"executed,cache,replay" doc:"where the result came from: the tool, the cache of results, or an earlier call with the same idempotency key"`
	CacheHit            bool               `json:"cache_hit"`
	CacheAgeS           *float64           `json:"cache_age_s,omitempty" doc:"seconds since the cached result was made; on the answer of the call alone"`
	IdempotencyReplayed bool               `json:"idempotency_replayed" doc:"the answer of an earlier call with the same key"`
	RetryCount          int                `json:"retry_count"`
	Truncated           bool               `json:"truncated"`
	CostUSD             float64            `json:"cost_usd"`
	Attachments         []attachment       `json:"attachments"`
	Warnings            []toolkeep.Warning `json:"warnings"`

	Secrets []toolkeep.SecretUse `json:"secrets,omitempty" doc:"what the call authenticated with: hash of the reference, and whose secret answered"`

	Fallback *toolkeep.Fallback `json:"fallback,omitempty" doc:"the tool that was asked because this one failed"`

	CallWay

	Signature *resultSignature `json:"signature,omitempty" doc:"of the result, if the server signs results (results.signing_key); toolkeep verify checks it"`
}

// CallWay is what a record has of the way of its call.
type CallWay struct {
	Steps    []invoke.StepTime `json:"steps,omitempty" doc:"of the call's record alone (GET): how its twelve steps went, in the run that ended it"`
	Tries    []CallTry         `json:"attempts,omitempty" doc:"of the call's record alone: the attempts of that run, where there was more than one; the first ones and the last, at most 8"`
	TraceID  string            `json:"trace_id,omitempty" doc:"of the caller's traceparent; of the call's record alone"`
	TraceURL string            `json:"trace_url,omitempty" doc:"where the trace is shown, as the setting calls.trace_url says"`
}

// CallTry is one attempt of a call.
type CallTry struct {
	AtMS      float64 `json:"at_ms" doc:"milliseconds after the call began its steps"`
	TookMS    float64 `json:"took_ms"`
	ErrorCode string  `json:"error_code,omitempty" doc:"none of the one that answered"`
	ToolID    string  `json:"tool_id,omitempty" doc:"the fallback that was asked; none where the call's own tool was"`
}

// wayOf is the way of a recorded call.
func (a *API) wayOf(v *toolkeep.Invocation) *CallWay {
	w := &CallWay{Steps: invoke.StepsOf(v), TraceID: v.TraceID}
	if v.TraceID != "" && a.c.TraceURL != "" {
		w.TraceURL = strings.ReplaceAll(a.c.TraceURL, "{trace_id}", v.TraceID)
	}
	before := int64(0)
	for _, us := range v.Steps.US[:invoke.StepExecute] {
		before += int64(us)
	}
	for _, t := range v.Tries {
		w.Tries = append(w.Tries, CallTry{AtMS: float64(before+t.AtUS) / 1000, TookMS: float64(t.TookUS) / 1000, ErrorCode: string(t.Code), ToolID: t.Tool})
	}
	return w
}

// members are its members as JSON, each with a comma before it.
func (w *CallWay) members() string {
	raw, err := gate.Marshal(w)
	if err != nil || len(raw) <= len("{}") {
		return ""
	}
	return "," + string(raw[1:len(raw)-1])
}

type resultSignature struct {
	Algorithm string `json:"algorithm" enum:"HMAC-SHA256"`
	KeyID     string `json:"key_id" doc:"names the key that signed"`
	TenantID  string `json:"tenant_id"`
	ToolID    string `json:"tool_id"`
	Value     string `json:"value" doc:"in lower-case hex"`
}

// PollingInfo is BC-2's.
type PollingInfo struct {
	StatusURL string `json:"status_url"`
}

type attachment struct {
	Kind        string `json:"kind"`
	URL         string `json:"url"`
	ContentType string `json:"content_type,omitempty"`
	Bytes       int64  `json:"bytes,omitempty"`
	SHA256      string `json:"sha256,omitempty" doc:"of its bytes, in lower-case hex"`
}

// InvocationAnswer is BC-2's ToolStatusResponse with the record's main fields,
// and once the call has ended with all of InvokeResponse.
type InvocationAnswer struct {
	InvocationID       string             `json:"invocation_id"`
	Status             string             `json:"status" enum:"pending,running,success,error,timeout,cancelled,permission_denied,pending_approval"`
	State              string             `json:"state" enum:"accepted,pending_approval,queued,running,input_required,succeeded,failed,refused,cancelled,expired,unknown"`
	ProgressPercent    *int               `json:"progress_percent,omitempty" minimum:"0" maximum:"100"`
	CurrentPhase       string             `json:"current_phase,omitempty"`
	ProgressMessage    string             `json:"progress_message,omitempty"`
	ToolID             string             `json:"tool_id"`
	ToolVersion        string             `json:"tool_version,omitempty"`
	AgentID            string             `json:"agent_id"`
	UserID             string             `json:"user_id,omitempty" doc:"the person that the agent acts for"`
	ActorID            string             `json:"actor_id,omitempty" doc:"who sent the call in the agent's name, where that is another"`
	AllowedBy          []string           `json:"allowed_by,omitempty" doc:"what permitted the call: the allow rule of a role and, where a policy is asked, its rule that allowed it"`
	SessionID          string             `json:"session_id,omitempty"`
	ParentInvocationID string             `json:"parent_invocation_id,omitempty"`
	CreatedAt          *time.Time         `json:"created_at,omitempty"`
	CancelRequested    bool               `json:"cancel_requested,omitempty"`
	Result             any                `json:"result,omitempty"`
	Error              *InvokeError       `json:"error,omitempty"`
	ExecutionMetadata  *ExecutionMetadata `json:"execution_metadata,omitempty"`
	PollingInfo        *PollingInfo       `json:"polling_info,omitempty"`
	CallID             string             `json:"call_id,omitempty"`
}

func statusURL(id string) string { return gate.InvocationPath + id }

func codeOf(e *toolkeep.Error) toolkeep.Code {
	if e == nil {
		return ""
	}
	return e.Code
}

// appendResponse appends an InvokeResponse.
func appendResponse(b []byte, r *toolkeep.Result) []byte {
	b = append(b, `{"invocation_id":`...)
	b = appendString(b, r.InvocationID)
	b = append(b, `,"status":"`...)
	b = append(b, r.State.BC2(codeOf(r.Error))...)
	b = append(b, '"')
	b = appendOutcome(b, r, "")
	return append(b, '}')
}

// appendOutcome appends the members that response and status share. more is what the status has in execution_metadata beside, each
// with a comma before it.
func appendOutcome(b []byte, r *toolkeep.Result, more string) []byte {
	if len(r.Output) > 0 {
		b = append(b, `,"result":`...)
		b = append(b, r.Output...)
	}
	if r.Error != nil {
		b = append(b, `,"error":`...)
		b = appendError(b, r.Error)
	}
	b = append(b, `,"execution_metadata":`...)
	b = appendMetadata(b, r)
	b = append(append(b[:len(b)-1], more...), '}')
	if r.CallID != "" {
		b = append(b, `,"call_id":`...)
		b = appendString(b, r.CallID)
	}
	if !r.State.Ended() {
		b = append(b, `,"polling_info":{"status_url":`...)
		b = appendString(b, statusURL(r.InvocationID))
		b = append(b, '}')
	}
	return b
}

func appendError(b []byte, e *toolkeep.Error) []byte {
	info := e.Code.Info()
	b = append(b, `{"code":`...)
	b = appendString(b, info.BC2)
	b = append(b, `,"message":`...)
	b = appendString(b, e.Message)
	if len(e.Details) > 0 {
		if d, err := gate.Marshal(e.Details); err == nil {
			b = append(b, `,"details":`...)
			b = append(b, d...)
		}
	}
	b = appendBool(b, `,"retryable":`, e.Retryable)
	b = append(b, `,"error_code":`...)
	b = appendString(b, string(info.Code))
	b = append(b, `,"name":`...)
	b = appendString(b, info.Name)
	b = append(b, `,"class":`...)
	b = appendString(b, e.Class())
	if s := e.RetryAfterSeconds(); s > 0 {
		b = appendInt(b, `,"retry_after_s":`, int64(s))
	}
	return append(b, '}')
}

func appendMetadata(b []byte, r *toolkeep.Result) []byte {
	var took time.Duration
	if !r.EndedAt.IsZero() && !r.StartedAt.IsZero() {
		took = r.EndedAt.Sub(r.StartedAt)
	}
	b = appendInt(b, `{"duration_ms":`, took.Milliseconds())
	b = appendTime(b, `,"started_at":`, r.StartedAt)
	b = appendTime(b, `,"completed_at":`, r.EndedAt)
	// Nothing measures these yet; BC-2 wants them present.
	b = append(b, `,"cpu_used_millicore_seconds":0,"memory_peak_mb":0`...)
	b = appendInt(b, `,"network_bytes_sent":`, r.BytesSent)
	b = appendInt(b, `,"network_bytes_received":`, r.BytesRecv)
	b = append(b, `,"documents_accessed":[],"checkpoints_created":[]`...)
	if r.ToolVersion != "" {
		b = append(b, `,"tool_version":`...)
		b = appendString(b, r.ToolVersion)
	}
	b = appendInt(b, `,"overhead_us":`, r.Overhead.Microseconds())
	b = append(append(append(b, `,"source":"`...), r.Source()...), '"')
	b = appendBool(b, `,"cache_hit":`, r.Cached)
	if r.Age > 0 {
		b = strconv.AppendFloat(append(b, `,"cache_age_s":`...), r.Age.Seconds(), 'f', 3, 64)
	}
	b = appendBool(b, `,"idempotency_replayed":`, r.Replayed)
	b = appendInt(b, `,"retry_count":`, int64(max(r.Attempts-1, 0)))
	b = appendBool(b, `,"truncated":`, r.Truncated)
	b = append(b, `,"cost_usd":`...)
	b = strconv.AppendFloat(b, r.CostUSD, 'f', -1, 64)
	b = append(b, `,"attachments":`...)
	b = appendList(b, r.Attachments)
	b = append(b, `,"warnings":`...)
	b = appendList(b, r.Warnings)
	if len(r.Secrets) > 0 {
		b = appendList(append(b, `,"secrets":`...), r.Secrets)
	}
	if r.Fallback != nil {
		if raw, err := gate.Marshal(r.Fallback); err == nil {
			b = append(append(b, `,"fallback":`...), raw...)
		}
	}
	if s := r.Signature; s != nil {
		b = appendString(append(b, `,"signature":{"algorithm":"HMAC-SHA256","key_id":`...), s.KeyID)
		b = appendString(append(b, `,"tenant_id":`...), s.Tenant)
		b = appendString(append(b, `,"tool_id":`...), r.ToolID)
		b = append(appendString(append(b, `,"value":`...), s.Value), '}')
	}
	return append(b, '}')
}

// appendInvocation appends an InvocationAnswer; r, if there is one, adds the outcome, and way what the record has of its way.
func appendInvocation(b []byte, v *toolkeep.Invocation, r *toolkeep.Result, way *CallWay) []byte {
	b = append(b, `{"invocation_id":`...)
	b = appendString(b, v.ID)
	b = append(b, `,"status":"`...)
	b = append(b, v.State.BC2(v.Code)...)
	b = append(b, `","state":"`...)
	b = append(b, v.State...)
	b = append(b, '"')
	if v.Progress != (toolkeep.Progress{}) {
		b = appendInt(b, `,"progress_percent":`, int64(v.Progress.Percent))
		b = appendOptional(b, `,"current_phase":`, v.Progress.Phase)
		b = appendOptional(b, `,"progress_message":`, v.Progress.Message)
	}
	b = append(b, `,"tool_id":`...)
	b = appendString(b, v.ToolID)
	b = appendOptional(b, `,"tool_version":`, v.Version)
	b = append(b, `,"agent_id":`...)
	b = appendString(b, v.Subject)
	b = appendOptional(b, `,"user_id":`, v.OnBehalf)
	b = appendOptional(b, `,"actor_id":`, v.Actor)
	if by := v.AllowedBy(); by != nil {
		b = canon.Append(append(b, `,"allowed_by":`...), canon.Strings(by))
	}
	b = appendOptional(b, `,"session_id":`, v.Session)
	b = appendOptional(b, `,"parent_invocation_id":`, v.Parent)
	b = appendTime(b, `,"created_at":`, v.CreatedAt)
	if v.CancelBy != "" {
		b = append(b, `,"cancel_requested":true`...)
	}
	if r != nil {
		b = appendOutcome(b, r, way.members())
	}
	return append(b, '}')
}

// appendString quotes s; text that is no UTF-8 gets replacement characters.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s)
	return b
}

func appendOptional(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(append(b, name...), s)
}

func appendInt(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendBool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(append(b, name...), v)
}

func appendTime(b []byte, name string, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	b = append(append(b, name...), '"')
	return append(t.UTC().AppendFormat(b, time.RFC3339Nano), '"')
}

// appendList appends the rare lists by reflection, the empty ones without.
func appendList[T any](b []byte, list []T) []byte {
	if len(list) == 0 {
		return append(b, `[]`...)
	}
	j, err := json.Marshal(list)
	if err != nil {
		return append(b, `[]`...)
	}
	return append(b, j...)
}
