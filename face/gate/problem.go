package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// ProblemType is the content type of a problem document.
const ProblemType = "application/problem+json"

// Problem is a refusal as RFC 9457 has it, with the members of the error
// catalogue and those that a BC-2 client reads.
type Problem struct {
	Type             string         `json:"type" doc:"urn:toolkeep:error: and the code" example:"urn:toolkeep:error:E3310"`
	Title            string         `json:"title" doc:"the code's name in words"`
	Status           int            `json:"status" doc:"HTTP status"`
	Detail           string         `json:"detail" doc:"what is wrong and what to do"`
	Instance         string         `json:"instance" doc:"the recorded invocation, or the request"`
	Code             string         `json:"code" doc:"of the error catalogue" example:"E3310"`
	Name             string         `json:"name" doc:"stable name of the code" example:"input_validation_failed"`
	Class            string         `json:"class" doc:"class of the taxonomy" example:"VALIDATION_ERROR"`
	Retryable        bool           `json:"retryable" doc:"whether the same request may succeed later"`
	RetryAfterS      int            `json:"retry_after_s,omitempty" doc:"seconds to wait, where known"`
	Details          map[string]any `json:"details,omitempty" doc:"what the code promises; errors lists faults with JSON Pointers"`
	InvocationID     string         `json:"invocation_id,omitempty" doc:"the record of the refused call"`
	InvocationStatus string         `json:"invocation_status" doc:"BC-2 status" enum:"error,permission_denied,cancelled"`
	Error            ProblemError   `json:"error" doc:"BC-2 error"`
}

// ProblemError is BC-2's ToolError.
type ProblemError struct {
	Code      string         `json:"code" doc:"BC-2 ToolErrorCode"`
	Message   string         `json:"message"`
	Details   map[string]any `json:"details,omitempty"`
	Retryable bool           `json:"retryable"`
}

// statusError is an error whose HTTP status says more than its code's does,
// such as 405 or 415.
type statusError struct {
	err    *toolkeep.Error
	status int
}

func (s *statusError) Error() string { return s.err.Error() }
func (s *statusError) Unwrap() error { return s.err }

// WithStatus gives an error another HTTP status than its code's.
func WithStatus(status int, e *toolkeep.Error) error { return &statusError{err: e, status: status} }

// Shown is the error as a caller may see it: codes that no caller may see
// (unknown ones, warnings, internal ones) become E3999.
func Shown(err error) *toolkeep.Error {
	e := toolkeep.AsError(err)
	info := e.Code.Info()
	if info.Code != e.Code || info.Kind == toolkeep.KindWarning || info.Kind == toolkeep.KindInternal {
		return toolkeep.AsError(errors.New(e.Error()))
	}
	return e
}

// NewProblem describes err.
func NewProblem(err error, requestID string) *Problem {
	e := Shown(err)
	info := e.Code.Info()
	p := &Problem{
		Type: "urn:toolkeep:error:" + string(info.Code), Title: title(info.Name), Status: info.HTTP, Detail: e.Message,
		Code: string(info.Code), Name: info.Name, Class: e.Class(),
		Retryable: e.Retryable, RetryAfterS: e.RetryAfterSeconds(), Details: e.Details, InvocationID: e.InvocationID,
		Error: ProblemError{Code: info.BC2, Message: e.Message, Details: e.Details, Retryable: e.Retryable},
	}
	var s *statusError
	if errors.As(err, &s) {
		p.Status = s.status
	}
	p.InvocationStatus = toolkeep.CallRefused.BC2(info.Code)
	if info.Code == toolkeep.Cancelled {
		p.InvocationStatus = toolkeep.CallCancelled.BC2(info.Code)
	}
	p.Instance = "urn:toolkeep:request:" + requestID
	if e.InvocationID != "" {
		p.Instance = InvocationPath + e.InvocationID
	}
	return p
}

// InvocationPath is where calls are read over HTTP; an id follows.
const InvocationPath = "/api/v1/invocations/"

func title(name string) string {
	s := strings.ReplaceAll(name, "_", " ")
	return strings.ToUpper(s[:1]) + s[1:]
}

// Problem is NewProblem for the request of w, logged where the fault is ours. It
// sets the headers that go with a refusal.
func (g *Gate) Problem(w http.ResponseWriter, r *http.Request, err error) *Problem {
	h := w.Header()
	p := NewProblem(err, h.Get(requestIDHeader))
	if p.Status >= 500 {
		g.failed.ErrorContext(r.Context(), "a request failed", append(about(w, r),
			"code", p.Code, "invocation_id", p.InvocationID, "error", err, "cause", errors.Unwrap(toolkeep.AsError(err)))...)
	}
	if p.Retryable && p.RetryAfterS > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfterS))
	}
	if p.Status == http.StatusUnauthorized {
		challenge := `Bearer realm="toolkeep"`
		if g.challenge != nil {
			challenge = g.challenge(r.URL.Path, err, r.Header["Authorization"] != nil)
		}
		if challenge != "" {
			h.Set("WWW-Authenticate", challenge)
		}
	}
	return p
}

// Refuse answers with a problem document.
func (g *Gate) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := g.Problem(w, r, err)
	body, mErr := Marshal(p)
	if mErr != nil {
		// A detail that is no JSON is a bug where the error was made; the rest stands.
		g.log.ErrorContext(r.Context(), "the details of an error are not JSON", "code", p.Code, "error", mErr)
		p.Details, p.Error.Details = nil, nil
		body, _ = Marshal(p)
	}
	g.Send(w, r, p.Status, ProblemType, body)
}

// Marshal is encoding/json without HTML escapes; it keeps the text of
// json.Number and knows omitzero.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}
