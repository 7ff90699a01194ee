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

// Call is what was asked. A face fills it from bytes and hands it to an
// Invoker; it does not change afterwards.
type Call struct {
	ID        string // wished invocation id (UUID); "" lets the pipeline make a UUIDv7
	Tool      string // namespace.name
	Range     string // "", "latest", exact version or range such as ^1.2
	Arguments []byte // JSON object, parsed once by admit; nil is {}
	// Fault is what the face found wrong with the envelope; admit refuses with it,
	// so that a refused call is recorded like any other.
	Fault *Error

	Key             string        // idempotency key; "" is none
	Timeout         time.Duration // 0 is the tool's own
	Async           bool
	Priority        Priority // "" is normal
	RequireApproval bool
	SkipCache       bool
	CacheTTL        time.Duration // 0 is the tool's own

	Session     string
	Plan, Task  string // the caller's plan and task ids, recorded only
	Subject     string // agent_id or agent_context.agent_did as sent; must be the principal's own or covered by act-as
	Tenant      string // agent_context.tenant_id as sent
	User        string // user_did or X-User-ID as sent
	Parent      string // parent invocation id
	Ordinal     int    // position among the parent's children, from 1
	Traceparent string
	Face        string // rest, cli, grpc, mcp
	Caller      Caller // nil where no client is connected
}

// Caller reaches the connected client while the call runs. Progress never blocks; the
// latest wins. Its optional abilities are the interfaces below.
type Caller interface {
	Progress(Progress)
}

// Asker is a Caller that can be asked something while the call runs. method and params
// are MCP's, elicitation/create, sampling/createMessage or roots/list, and so is the
// result. The error says why there is no answer; an elicitation that a person declined is
// an answer. While it waits, Ask pauses the call's time limits (PauseTimeout) and has one
// of its own.
type Asker interface {
	Ask(ctx context.Context, method string, params []byte) (result []byte, err error)
}

// BatchAsker is an Asker that takes several questions at once: the raw objects
// inputRequests and inputResponses of MCP 2026-07-28, whose names are kept.
type BatchAsker interface {
	AskAll(ctx context.Context, inputRequests []byte) (inputResponses []byte, err error)
}

// CapabilityReporter is an Asker that says what it can be asked, as an MCP client's raw
// capabilities object.
type CapabilityReporter interface {
	Capabilities() []byte
}

// LegacyReporter is a Caller that says whether its client speaks an MCP revision up to
// 2025-11-25, in which questions are requests of the server.
type LegacyReporter interface {
	Legacy() bool
}

// Notifier is a Caller that takes the other notifications that an MCP server sends while
// it carries the call out, such as log messages.
type Notifier interface {
	Notify(method string, params []byte)
}

// ProgressCounter is a Caller that takes progress in the upstream's own numbers, as raw
// JSON; total is nil where there is none.
type ProgressCounter interface {
	Count(done, total []byte, message string)
}

// Progress is how far a running call is.
type Progress struct {
	Percent int    `json:"progress_percent"` // 0 to 100
	Phase   string `json:"current_phase,omitempty"`
	Message string `json:"message,omitempty"`
}

// Invoker carries out calls. The pipeline, the child invoker handed to tools
// and remote clients implement it.
type Invoker interface {
	// Invoke carries out the call, or admits it as a waiting one.
	//
	// The error is nil or an *Error of kind refusal: the call was not carried out.
	// A tool that failed is a Result whose Error is set. A waiting call answers at
	// once with a Result in state accepted, queued or pending_approval.
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

// Ended tells whether the state is final.
func (s CallState) Ended() bool {
	switch s {
	case CallSucceeded, CallFailed, CallRefused, CallCancelled, CallExpired, CallUnknown:
		return true
	}
	return false
}

// BC2 is the status that BC-2 shows for the state; code is the error's code, ""
// without one.
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

// Result is what came of a call: the output or the tool's error, and the receipt.
type Result struct {
	InvocationID string
	CallID       string // deterministic id, see canon.CallID
	ToolID       string
	ToolVersion  string
	State        CallState
	Output       []byte // JSON; nil where there is none
	Error        *Error // set if the tool failed
	Warnings     []Warning
	Cached       bool
	// Replayed says that an earlier call with the same idempotency key got this
	// answer; nothing was executed now.
	Replayed    bool
	Truncated   bool
	Attachments []Attachment
	Secrets     []SecretUse // what the call authenticated with
	Attempts    int
	StartedAt   time.Time
	EndedAt     time.Time     // zero while the call is not ended
	ToolTime    time.Duration // spent in the executor, all attempts and waits between them
	Overhead    time.Duration // the rest
	BytesSent   int64
	BytesRecv   int64
	CostUSD     float64
	Progress    Progress
}

// Warning rides with a result and never fails it.
type Warning struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

// SecretUse says which secret a call used, and never its value.
type SecretUse struct {
	Hash    string `json:"secret_hash"`       // SHA-256 of the reference, in hex
	Scope   string `json:"scope,omitempty"`   // user, workspace, organisation, server
	Store   string `json:"store,omitempty"`   // secret, vault, env, file
	Version string `json:"version,omitempty"` // as the store counts, "" where it does not
	Code    Code   `json:"code,omitempty"`    // why it could not be had, "" if it was
}

// Attachment is a part of a result that lies elsewhere.
type Attachment struct {
	Kind        string `json:"kind"` // blob, image, table
	URL         string `json:"url"`  // /api/v1/blobs/{id}
	ContentType string `json:"content_type,omitempty"`
	Bytes       int64  `json:"bytes,omitempty"`
}
