package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/toolkeep/toolkeep"
)

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

func withStatus(status int, e *toolkeep.Error) error { return &statusError{err: e, status: status} }

// newProblem describes err. Codes that no caller may see (warnings, internal
// ones) answer as E3999.
func newProblem(err error, requestID string) *Problem {
	e := toolkeep.AsError(err)
	info := e.Code.Info()
	if info.Code != e.Code || info.Kind == toolkeep.KindWarning || info.Kind == toolkeep.KindInternal {
		e = toolkeep.AsError(errors.New(e.Error()))
		info = e.Code.Info()
	}
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
		p.Instance = statusURL(e.InvocationID)
	}
	return p
}

func title(name string) string {
	s := strings.ReplaceAll(name, "_", " ")
	return strings.ToUpper(s[:1]) + s[1:]
}

// GetStatus is for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is for huma.
func (p *Problem) ContentType(string) string { return problemType }

// problemFor is newProblem for the request of w, logged where it is ours.
func (a *API) problemFor(w http.ResponseWriter, r *http.Request, err error) *Problem {
	id := w.Header().Get("X-Request-Id")
	p := newProblem(err, id)
	if p.Status >= 500 {
		a.log.ErrorContext(r.Context(), "a request failed", "request_id", id, "method", r.Method, "path", r.URL.Path,
			"code", p.Code, "invocation_id", p.InvocationID, "error", err, "cause", errors.Unwrap(toolkeep.AsError(err)))
	}
	h := w.Header()
	if p.Retryable && p.RetryAfterS > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfterS))
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", a.challenge(r, err))
	}
	return p
}

func (a *API) challenge(r *http.Request, err error) string {
	if a.c.Challenge == nil {
		return `Bearer realm="toolkeep"`
	}
	return a.c.Challenge(r.URL.Path, err, r.Header["Authorization"] != nil)
}

// refuse answers with a problem document.
func (a *API) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := a.problemFor(w, r, err)
	body, mErr := marshal(p)
	if mErr != nil {
		// A detail that is no JSON is a bug of whoever made the error; the rest stands.
		a.log.ErrorContext(r.Context(), "the details of an error are no JSON", "code", p.Code, "error", mErr)
		p.Details, p.Error.Details = nil, nil
		body, _ = marshal(p)
	}
	a.send(w, r, p.Status, problemType, body)
}

// marshal is encoding/json without HTML escapes; it keeps the text of
// json.Number and knows omitzero.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// fromHuma turns what huma's validator found into our error; values that were
// sent are not echoed, they may be secrets.
func fromHuma(m *huma.ErrorModel) error {
	if m.Status >= 500 {
		return toolkeep.AsError(m)
	}
	code, faults := toolkeep.InvalidParameters, make([]toolkeep.Fault, 0, len(m.Errors))
	for _, d := range m.Errors {
		f := toolkeep.Fault{Pointer: pointer(d.Location), Rule: "schema", Message: d.Message}
		switch {
		case strings.HasPrefix(d.Message, "unexpected property"), strings.HasPrefix(d.Message, "unknown query parameter"):
			f.Rule, code = "unknown", toolkeep.MalformedRequest
		case strings.HasPrefix(d.Message, "expected required property"), strings.Contains(d.Message, "parameter is missing"):
			f.Rule = "required"
			if code == toolkeep.InvalidParameters {
				code = toolkeep.MissingParameter
			}
		case d.Message == validation.MsgExpectedMatchExactlyOneSchema:
			// contextText alone has a choice of schemas.
			f.Rule, f.Message = "type", wantsText
		case strings.HasPrefix(d.Message, "json:"):
			// The body was parsed before, so a number is all that can go wrong.
			f.Rule, f.Message = "range", "a number is out of the range of a double"
		}
		faults = append(faults, f)
	}
	if len(faults) == 0 {
		return toolkeep.NewError(toolkeep.MalformedRequest, "%s", m.Detail)
	}
	msg := faults[0].Message
	if at := m.Errors[0].Location; at != "" {
		msg = at + ": " + msg
	}
	if n := len(faults) - 1; n > 0 {
		msg += " (and " + strconv.Itoa(n) + " more)"
	}
	return toolkeep.FaultsError(code, msg, faults)
}

// pointer turns huma's body.a[0].b into /a/0/b; query.page stays a name.
func pointer(location string) string {
	rest, ok := strings.CutPrefix(location, "body")
	if !ok {
		return location
	}
	return strings.NewReplacer("~", "~0", "/", "~1", ".", "/", "[", "/", "]", "").Replace(rest)
}
