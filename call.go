package toolkeep

import (
	"context"
	"time"
)

// Priority orders waiting calls.
type Priority string

const (
	Low    Priority = "low"
	Normal Priority = "normal"
	High   Priority = "high"
)

// Call is a tool call as requested. A face decodes it and passes it to an Invoker; it
// does not change afterwards.
type Call struct {
	ID        string // requested invocation id (UUID); with "" the pipeline generates a UUIDv7
	Tool      string // namespace.name
	Range     string // "", "latest", exact version or range such as ^1.2
	Arguments []byte // JSON object, parsed once by admit; nil is {}
	// Meant is the id of the tool that a face took Tool for and that does not exist for the caller: where
	// it is refused with E3001, the call counts as an attempt to call it. "" if there is none.
	Meant string
	// Fault is an error in the envelope found by the face; admit refuses the call with
	// it, so that it is recorded like any other.
	Fault *Error

	Key      string        // idempotency key; "" is none
	Timeout  time.Duration // 0 means the tool's own
	Async    bool
	Priority Priority // "" is normal
	// ApprovalWait is how long the caller waits for a person's decision, at most; 0 means as long as
	// the server lets it. Then it gets a Result in state pending_approval.
	ApprovalWait    time.Duration
	RequireApproval bool
	SkipCache       bool
	CacheTTL        time.Duration // 0 means the tool's own; at most MaxCacheTTL

	Session     string
	Plan, Task  string // the caller's plan and task ids, only recorded
	Subject     string // agent_id or agent_context.agent_did as sent; must be the principal's own or allowed by act-as
	Tenant      string // agent_context.tenant_id as sent
	User        string // user_did or X-User-ID as sent
	Parent      string // parent invocation id
	Ordinal     int    // position among the parent's children, from 1
	Traceparent string
	Tracestate  string // goes with Traceparent; passed on, not recorded
	Face        string // rest, cli, grpc, mcp
	// Token is the capability token as sent, "" without one. Authorise verifies it; then the
	// pipeline goes on with a call that has Grant in its place.
	Token CapabilityToken
	// Signature is that of the call alone, nil without one; admit verifies it.
	Signature *CallSignature
	// Grant is what a token that was verified allows, nil without one. Faces leave it nil.
	Grant *Grant
	// Connected says that the caller waits as long as the tool may take, as MCP clients do: their
	// calls have no limit of the server's own (calls.sync_limit).
	Connected bool
	Caller    Caller // nil without a connected client
	// Told is told once, in the goroutine of the call and before its progress, which limit has the fewest requests left, or
	// which one refuses; nil: nothing is.
	Told func(RateLeft) `json:"-"`
}

// CallSignature is a signature over tool, agent and arguments of a call, as sent.
type CallSignature struct{ Value, Timestamp, RequestID string }

// MaxCacheTTL bounds every lifetime of a cached answer: of calls, manifests and settings.
const MaxCacheTTL = 24 * time.Hour

// Caller reaches the connected client while the call runs. Progress never blocks; the
// latest value wins. Optional abilities are the interfaces below.
type Caller interface {
	Progress(Progress)
}

// Asker is a Caller that can be asked a question while the call runs. method, params
// and result are MCP's: elicitation/create, sampling/createMessage or roots/list. The
// error is the reason why there is no answer; a declined elicitation is an answer.
// While it waits, Ask pauses the call's time limits (PauseTimeout) and applies its own. An
// answer to a call that has ended by the time it may go on is an error too.
type Asker interface {
	Ask(ctx context.Context, method string, params []byte) (result []byte, err error)
}

// BatchAsker is an Asker that takes several questions at once: the raw objects
// inputRequests and inputResponses of MCP 2026-07-28, with unchanged names.
type BatchAsker interface {
	AskAll(ctx context.Context, inputRequests []byte) (inputResponses []byte, err error)
}

// CapabilityReporter is an Asker that reports what it can be asked, as an MCP client's
// raw capabilities object.
type CapabilityReporter interface {
	Capabilities() []byte
}

// LegacyReporter is a Caller that reports whether its client uses an MCP revision up to
// 2025-11-25, in which questions are requests from the server.
type LegacyReporter interface {
	Legacy() bool
}

// Notifier is a Caller that accepts other notifications of an MCP server during the
// call, such as log messages.
type Notifier interface {
	Notify(method string, params []byte)
}

// ProgressCounter is a Caller that accepts progress in the upstream's own numbers, as
// raw JSON; total may be nil.
type ProgressCounter interface {
	Count(done, total []byte, message string)
}

// Progress is the progress of a running call.
type Progress struct {
	Percent int    `json:"progress_percent"` // 0 to 100
	Phase   string `json:"current_phase,omitempty"`
	Message string `json:"message,omitempty"`
}

// Invoker executes calls. The pipeline, the child invoker for tools and remote clients
// implement it.
type Invoker interface {
	// Invoke executes the call, or admits it as a waiting call.
	//
	// The error is nil or an *Error of kind refusal: the call was not executed. A tool
	// that failed is a Result whose Error is set. A waiting call returns at once with a
	// Result in state accepted, queued or pending_approval.
	Invoke(ctx context.Context, p *Principal, c *Call) (*Result, error)
}

// CallState is the state of an invocation.
type CallState string

const (
	CallAccepted        CallState = "accepted"
	CallPendingApproval CallState = "pending_approval"
	CallQueued          CallState = "queued"
	CallRunning         CallState = "running"
	CallInputRequired   CallState = "input_required"
	CallSucceeded       CallState = "succeeded"
	CallFailed          CallState = "failed"
	CallRefused         CallState = "refused"
	CallCancelled       CallState = "cancelled"
	CallExpired         CallState = "expired"
	CallUnknown         CallState = "unknown"
)

// Ended reports whether the state is final.
func (s CallState) Ended() bool {
	switch s {
	case CallSucceeded, CallFailed, CallRefused, CallCancelled, CallExpired, CallUnknown:
		return true
	}
	return false
}

// BC2 returns the BC-2 status of the state; code is the error's code, "" without one.
func (s CallState) BC2(code Code) string {
	switch s {
	case CallAccepted, CallQueued:
		return "pending"
	case CallPendingApproval, CallInputRequired:
		return "pending_approval"
	case CallRunning:
		return "running"
	case CallSucceeded:
		return "success"
	case CallFailed:
		if code != "" && code.Info().BC6 == "TIMEOUT" {
			return "timeout"
		}
	case CallRefused:
		if code != "" && code.Info().BC6 == "UNAUTHORIZED" {
			return "permission_denied"
		}
	case CallCancelled:
		return "cancelled"
	}
	return "error"
}

// Result is the result of a call: the output or the tool's error, and the receipt.
type Result struct {
	InvocationID string
	CallID       string // deterministic id, see canon.CallID
	ToolID       string
	ToolVersion  string
	State        CallState
	Output       []byte // JSON; nil if there is none
	Error        *Error // set if the tool failed
	Warnings     []Warning
	Cached       bool
	Age          time.Duration // of a cached result, since it was stored; else 0
	// Replayed means that this is the result of an earlier call with the same
	// idempotency key; nothing was executed now.
	Replayed    bool
	Truncated   bool
	Attachments []Attachment
	Secrets     []SecretUse // credentials used by the call
	Attempts    int
	StartedAt   time.Time
	EndedAt     time.Time     // zero until the call has ended
	ToolTime    time.Duration // in the executor: all attempts and the waits between them, but for those for a place in a bulkhead
	Overhead    time.Duration // the rest of the time
	BytesSent   int64
	BytesRecv   int64
	CostUSD     float64
	Progress    Progress
	Fallback    *Fallback // set if another tool was asked because this one failed
	// Tries are the attempts from the first that failed on, at most MaxTries; nil if the first answered.
	Tries []Try
	// NoOutcome says that output, attachments or error are not in it, since its record does not have them (any more). Such a
	// result is not signed: it would say that the tool brought back nothing.
	NoOutcome bool
	// Signature is made by the face that gives the result, nil if results are not signed.
	Signature *ResultSignature
}

// ResultSignature is a signature of what a caller reads of a call that ended.
type ResultSignature struct {
	KeyID  string // of the key that signed
	Tenant string // of the caller
	Value  string // HMAC-SHA256 in lower-case hex
}

// Fallback says which tool was asked in place of the call's own, and why.
type Fallback struct {
	Tool         string `json:"tool_id"`
	Version      string `json:"tool_version"`
	InvocationID string `json:"invocation_id" doc:"of its own call"`
	Reason       Code   `json:"reason" doc:"the error with which the tool itself ended"`
}

// Source says where the result came from: executed, cache or replay (of an earlier call with the same key).
func (r *Result) Source() string {
	switch {
	case r.Replayed:
		return "replay"
	case r.Cached:
		return "cache"
	}
	return "executed"
}

// Warning accompanies a result and never fails it.
type Warning struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// SecretUse identifies a secret that a call used, never its value.
type SecretUse struct {
	Hash    string `json:"secret_hash"`       // SHA-256 of the reference, in hex
	Scope   string `json:"scope,omitempty"`   // user, workspace, organisation, server
	Store   string `json:"store,omitempty"`   // secret, vault, env, file
	Version string `json:"version,omitempty"` // the store's own, "" if it has none
	Code    Code   `json:"code,omitempty"`    // why it could not be fetched, "" on success
}

// Attachment is a part of a result that is stored elsewhere.
type Attachment struct {
	Kind        string `json:"kind"` // blob, image, table
	URL         string `json:"url"`  // /api/v1/blobs/{id}
	ContentType string `json:"content_type,omitempty"`
	Bytes       int64  `json:"bytes,omitempty"`
	SHA256      string `json:"sha256,omitempty"` // of the bytes, in lower-case hex; "" in rows of older programs
}
