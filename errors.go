package toolkeep

import (
	"errors"
	"fmt"
	"time"
)

// Code identifies an entry of the error catalogue, contracts/errors.csv. The constants
// and the table behind Info are generated from that file.
type Code string

// Kind says when an error can occur.
type Kind string

const (
	// KindRefusal occurs before execution: the call was not executed.
	KindRefusal Kind = "refusal"
	// KindResult occurs during or after execution: the call has a result, with an
	// error.
	KindResult Kind = "result"
	// KindWarning never fails a call.
	KindWarning Kind = "warning"
	// KindInternal is logged and counted; callers never see it.
	KindInternal Kind = "internal"
)

// CodeInfo is one row of the error catalogue.
type CodeInfo struct {
	Code      Code
	Name      string // stable snake_case name, the gRPC ErrorInfo reason
	BC2       string // ToolErrorCode of BC-2
	BC6       string // Status of BC-6
	Class     string // class in the agent document's taxonomy, such as RATE_LIMIT
	Kind      Kind
	Retryable bool // "depends" counts as false until the executor says otherwise
	HTTP      int
	GRPC      string
	When      string // one sentence: when it occurs
}

// Info returns the catalogue row of c. For an unknown code it returns that of
// InternalError, so that faces never show unknown codes.
func (c Code) Info() CodeInfo {
	if i, ok := codeIndex[c]; ok {
		return codeTable[i]
	}
	return codeTable[codeIndex[InternalError]]
}

// Codes returns the whole catalogue in file order.
func Codes() []CodeInfo { return append([]CodeInfo(nil), codeTable[:]...) }

// Error is the only error type that crosses package boundaries.
//
// Message is for the caller and never contains a secret, a stack or an upstream's
// address, except the address in E3505, as the manifest or the caller wrote it; Cause is for the operator's log.
type Error struct {
	Code    Code
	Message string
	Details map[string]any
	// RetryAfter is how long the caller should wait; 0 if unknown.
	RetryAfter time.Duration
	// Cause is for the operator; it is logged and never shown to callers.
	Cause error
	// NothingSent means that no byte of the call reached the upstream. The zero value
	// assumes that something did.
	NothingSent bool
	// Retryable is shown to the caller. Faces use it rather than the catalogue: the
	// pipeline sets it to the catalogue's column AND (the tool declares itself
	// idempotent, or nothing was sent).
	Retryable bool
	// FaultSaid means that Message gives the only one of the faults and its place, which a text
	// for a person or a model then does not repeat.
	FaultSaid bool
	// InvocationID is the record of the refused or failed call, if there is one.
	InvocationID string
	// Rate is the limit of calls a minute that refuses (E3801), for the headers of the answer.
	Rate RateLeft
}

// NewError returns an error whose Retryable follows the catalogue's column.
func NewError(code Code, format string, args ...any) *Error {
	msg := format
	if len(args) > 0 {
		msg = fmt.Sprintf(format, args...)
	}
	return &Error{Code: code, Message: msg, Retryable: code.Info().Retryable}
}

// Error returns the code, its name and the caller's message, without the cause, so that
// an error printed by accident reveals nothing internal.
func (e *Error) Error() string {
	return string(e.Code) + " " + e.Code.Info().Name + ": " + e.Message
}

// Unwrap returns the operator's cause.
func (e *Error) Unwrap() error { return e.Cause }

// Because sets the operator's cause and returns e.
func (e *Error) Because(cause error) *Error { e.Cause = cause; return e }

// With sets one detail and returns e.
func (e *Error) With(key string, value any) *Error {
	if e.Details == nil {
		e.Details = make(map[string]any, 2)
	}
	e.Details[key] = value
	return e
}

// After sets how long the caller should wait and returns e.
func (e *Error) After(d time.Duration) *Error { e.RetryAfter = d; return e }

// RetryAfterSeconds is RetryAfter in whole seconds, rounded up.
func (e *Error) RetryAfterSeconds() int {
	if e.RetryAfter <= 0 {
		return 0
	}
	return int((e.RetryAfter + time.Second - 1) / time.Second)
}

// Class returns the taxonomy class: the catalogue's for the code, or details.class if
// the upstream's status decides it (E3510, E3530).
func (e *Error) Class() string {
	if e.Code == UpstreamClientError || e.Code == GRPCError {
		if class, ok := e.Details["class"].(string); ok && class == "VALIDATION_ERROR" {
			return class
		}
	}
	return e.Code.Info().Class
}

// TimeLimit says which time limit ended a call: details.time_limit of a Timeout
// (E3901).
type TimeLimit string

const (
	LimitCaller      TimeLimit = "caller"      // the deadline of the connection, or of the calling tool
	LimitCall        TimeLimit = "call"        // the timeout requested by the call
	LimitTool        TimeLimit = "tool"        // the tool's execution.timeout_ms
	LimitOverlay     TimeLimit = "overlay"     // the agent's context for the tool
	LimitSynchronous TimeLimit = "synchronous" // the server's limit for synchronous calls
	LimitWaiting     TimeLimit = "waiting"     // the deadline set when a waiting call was queued
)

// AsError converts any error to an *Error. Other types become InternalError (E3999)
// with the original as the cause. nil stays nil.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return NewError(InternalError, "an internal error occurred; the server's log has the cause").Because(err)
}

// IsCode reports whether err is an *Error with the code; an error of another type is InternalError.
func IsCode(err error, code Code) bool { return err != nil && AsError(err).Code == code }

// Away reports whether a refusal is not the caller's fault: a dependency of the
// decision, the secret or the record did not respond.
func (c Code) Away() bool {
	switch c {
	case PolicyEngineUnavailable, SecretRetrievalFailed, RecordUnavailable:
		return true
	}
	return false
}
