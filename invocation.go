package toolkeep

import (
	"encoding/json"
	"time"
)

// Invocation is the record of a call; for a waiting call it is the only source of
// truth.
type Invocation struct {
	ID         string
	Tenant     string
	Subject    string
	OnBehalf   string
	Chain      []string // of the principal, see Principal.Chain
	Session    string
	Plan, Task string
	Face       string
	KeyID      string // API key that admitted the call
	Addr       string // from where the call came, without port; "" over stdio and in rows of older programs
	UserAgent  string // the program that sent it, as it names itself; see Principal.UserAgent
	// Certificate is "sha256:" and the hex SHA-256 of the client certificate of its connection, "" without one.
	Certificate string

	ToolID    string
	Version   string // resolved version, "" if refused before resolve
	Range     string // as requested
	Digest    string // of the resolved version
	Category  string
	Kind      string // executor kind
	Writes    bool
	State     CallState
	Code      Code            // of the error, "" without one
	Message   string          // redacted
	Details   json.RawMessage // of the error, redacted; nil without any
	Retryable bool
	RetryS    int // retry_after_s

	Key      string   // idempotency key, "" without one
	AskHash  [32]byte // SHA-256 of reference as requested and arguments before coercion
	ArgsHash [32]byte // SHA-256 of the arguments after coercion
	CallID   string
	ArgsSize int

	Async    bool
	Priority Priority
	Parent   string
	Ordinal  int

	CreatedAt time.Time
	StartedAt time.Time
	EndedAt   time.Time
	Deadline  time.Time // a waiting call that has not ended by then fails with E3901
	ExpiresAt time.Time // a result not fetched by then is erased (E3704)
	FetchedAt time.Time

	Attempts  int
	Sent      bool // a writing call may have reached its upstream
	Cached    bool
	Truncated bool
	ToolUS    int64 // microseconds in the executor
	TotalUS   int64 // microseconds in total
	BytesSent int64
	BytesRecv int64
	CostUSD   float64

	Output      []byte // JSON, stored only for calls with a key and waiting calls
	OutputSize  int
	Warnings    []Warning
	Attachments []Attachment
	Secrets     []SecretUse // credentials used by the call

	// ResultSummary is the beginning of the redacted result of a call that succeeded, in plain words: at
	// most 200 characters. PriorTools are the ids of the tools that its session called before it on its
	// node, at most 10, oldest first.
	ResultSummary string
	PriorTools    []string
	// Input is the arguments without secrets and personal data, as JSON, where they are recorded; else nil.
	Input []byte
	// Sealed has what the record tells of the person (see Person), sealed with that person's key. The
	// fields that it holds are empty then. It is set between a store and what seals for it alone.
	Sealed []byte
	// Withheld is why what the record told of the person is not in it; "" if it is.
	Withheld Withheld

	// Fallback is the tool that was asked because this one failed, nil for none.
	Fallback *Fallback

	// Replayed means that the caller got a stored result; never stored.
	Replayed bool
	// Missed means that the result cache was asked, had no result, and the call was then sent to the tool; never stored.
	Missed bool

	// AllowedRole and AllowedPolicy are the rules that permitted the call: the allow rule of a role, and the rule of the
	// policy that allowed it or asked for its approval. Each is "" if there is none. See AllowedBy.
	AllowedRole, AllowedPolicy string

	// Actor is who sent the call as Subject, "" if that is the same.
	Actor string

	// Steps is how long the call's steps took in the run that ended it, or until it began to wait.
	Steps CallSteps
	// Tries are the attempts of that run, where there was more than one: at most MaxTries, the first ones and the last.
	Tries []Try
	// TraceID is that of the caller's trace, 32 hex digits; "" without one and in rows of older programs.
	TraceID string

	// Only for waiting calls:
	SealedArgs []byte // sealed with the data directory's key, erased when the call ends
	// SealedCaller has the session and the claims of the principal, sealed as the arguments, and ends as they do; nil without any.
	SealedCaller []byte
	Roles        []string
	Scope        []string
	Workspace    string // of the principal
	Method       string // of the principal, "" in rows of older programs
	Timeout      time.Duration
	SkipCache    bool
	CacheTTL     time.Duration
	Traceparent  string
	LeaseOwner   string // node that runs it, "" if none does
	LeaseUntil   time.Time
	Requeued     int // times its lease lapsed
	CancelBy     string
	CancelWhy    string
	Progress     Progress
	// Grant is what the capability token that admitted the call allows, nil without one. It
	// narrows the call whenever it goes on.
	Grant *Grant
	// Approved is the digest of the version and the arguments that were approved, "" for none:
	// nothing else runs under the approval.
	Approved string
}

// CallSteps is how long each of a call's twelve steps took, and where it ended.
type CallSteps struct {
	// US is the microseconds of each step, 0 of one that did not run. The last one is always 0: it makes the record.
	US [12]uint32
	// Ended is the number of the step, from 1, at which the call ended or waits; 12 of one that passed all of them, 0 where it
	// is not known: before the end, and in rows of older programs.
	Ended uint8
}

// MaxTries is how many attempts a record has.
const MaxTries = 8

// Try is one attempt of a call.
type Try struct {
	AtUS   int64  // microseconds from the start of the step execute
	TookUS int64  // microseconds
	Code   Code   // of its error, "" without one
	Tool   string // which was asked, "" for the call's own
}

// TraceID returns the trace id of a W3C traceparent, "" if it is malformed.
func TraceID(parent string) string {
	if len(parent) < 55 || parent[2] != '-' || parent[35] != '-' {
		return ""
	}
	id, zero := parent[3:35], true
	for i := range len(id) {
		c := id[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
		zero = zero && c == '0'
	}
	if zero {
		return ""
	}
	return id
}

// Withheld is why a record lacks what it told of a person.
type Withheld string

const (
	Erased     Withheld = "erased"     // the key with which it was sealed was destroyed
	Unreadable Withheld = "unreadable" // this installation's sealing key does not open the person's key
)

// Person returns whose data the record has: the person that an agent acted for, else the subject.
func (v *Invocation) Person() string {
	if v.OnBehalf != "" {
		return v.OnBehalf
	}
	return v.Subject
}

// AllowedBy lists what permitted the call, as it is shown: "role agent, allow rule 1", "policy data.toolkeep.allow". It
// is nil for a call that was not permitted, or of an older program.
func (v *Invocation) AllowedBy() (by []string) {
	if v.AllowedRole != "" {
		by = append(by, v.AllowedRole)
	}
	if v.AllowedPolicy != "" {
		by = append(by, "policy "+v.AllowedPolicy)
	}
	return by
}

// Lapsed returns how a running call whose node is gone must end: a call that may have
// written is unknown (E3909) and never repeated automatically.
func (v *Invocation) Lapsed(idempotent bool) CallState {
	if v.Writes && v.Sent && !idempotent {
		return CallUnknown
	}
	return CallQueued
}

// Ref returns the call's reference.
func (v *Invocation) Ref() CallRef { return CallRef{Tenant: v.Tenant, ID: v.ID} }

// EventType returns the type of the call's newest event; see contracts/wire.md.
func (v *Invocation) EventType() string {
	switch v.State {
	case CallSucceeded:
		if v.Cached {
			return "ai.agent.tool.cache_hit"
		}
		return "ai.agent.tool.succeeded"
	case CallCancelled:
		return "ai.agent.tool.cancelled"
	case CallPendingApproval:
		return "ai.agent.tool.approval.requested"
	case CallAccepted, CallQueued, CallRunning, CallInputRequired:
		return "ai.agent.tool.invoked"
	}
	switch info := v.Code.Info(); {
	case v.Code == RateLimitExceeded || v.Code == ConcurrencyLimitExceeded:
		return "ai.agent.tool.rate_limit_exceeded"
	case info.BC6 == "UNAUTHORIZED" && v.State == CallRefused && !v.Code.Away():
		return "ai.agent.tool.authorization_denied"
	case info.BC6 == "TIMEOUT":
		return "ai.agent.tool.timeout"
	}
	return "ai.agent.tool.failed"
}
