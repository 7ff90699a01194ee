package httptool

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/encoding/htmlindex"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

const (
	maxErrorBody  = 16 << 10 // bytes read of an error response
	maxErrorShown = 2 << 10  // bytes of it in details.body
)

// readResponse reads binding.response: the content type of responses, for servers that
// declare a wrong one.
func readResponse(top *bindings.Object) (contentType string) {
	o, ok := top.Sub("response")
	if !ok {
		return ""
	}
	contentType = o.Text("content_type", false)
	if contentType != "" && (!validHeaderValue(contentType) || !strings.Contains(egress.MediaType(contentType), "/")) {
		o.Fault("content_type", "type", "content_type must be a content type such as application/json")
	}
	o.Done()
	return contentType
}

// answer turns the final response into an output or an error.
func (a *attempt) answer(r *request, resp *http.Response) (*toolkeep.Output, *toolkeep.Error) {
	status := resp.StatusCode
	out := &toolkeep.Output{ContentType: a.contentType(resp), BytesSent: a.sent}
	if status == http.StatusNotModified && r.conditional() {
		out.HasValue = true // null: the caller's copy is current
		return out, nil
	}
	if status < 200 || status > 299 {
		return nil, a.refused(resp)
	}
	if status == http.StatusCreated || status == http.StatusAccepted {
		out.Location = location(resp)
	}
	if r.method == "HEAD" {
		out.Value, out.HasValue, out.ContentType = headers(resp), true, "application/json"
		return out, nil
	}
	if status == http.StatusNoContent || status == http.StatusResetContent || resp.ContentLength == 0 {
		out.HasValue = true // null: there is no body
		return out, nil
	}
	if next, ok := streamed(out.ContentType); ok {
		return a.stream(resp, next)
	}
	limit := a.limit()
	if resp.ContentLength > limit {
		return nil, tooLarge(limit, status)
	}
	out.Undescribed = a.binding.undescribed(out.ContentType)
	var keep func(io.Reader) (bool, error)
	if a.x.Keep != nil {
		keep = func(r io.Reader) (bool, error) { return a.x.Keep(out, r) }
	}
	body, wire, err := readAnswer(resp, limit, a.x.Grow, keep)
	if out.BytesRecv = wire; body != nil {
		out.Body = body
	}
	switch {
	case err == errTooLarge || int64(len(out.Body)) > limit:
		return nil, tooLarge(limit, status)
	case err != nil:
		return nil, a.unreadable(status, err)
	case len(out.Body) == 0 && out.Kept == nil:
		out.HasValue, out.Undescribed = true, false
	}
	return out, nil
}

const maxLocation = 2 << 10 // bytes of Location in a result

// location is the header Location if it is a URL reference, without a user or password.
func location(resp *http.Response) string {
	u, err := url.Parse(resp.Header.Get("Location"))
	if err != nil {
		return ""
	}
	u.User = nil
	if s := u.String(); len(s) <= maxLocation {
		return s
	}
	return ""
}

// undescribed reports whether the binding declares the content type beside JSON, which the result
// schema describes.
func (b *binding) undescribed(contentType string) bool {
	media := egress.MediaType(contentType)
	if !b.json || media == "" || egress.IsJSON(media) {
		return false
	}
	return slices.ContainsFunc(b.types, func(t string) bool {
		t = egress.MediaType(t)
		before, isRange := strings.CutSuffix(t, "*")
		return t == media || isRange && t != "*/*" && strings.HasPrefix(media, before)
	})
}

// contentType is the type to parse the response as: the binding's, else the response's,
// else the document's.
func (a *attempt) contentType(resp *http.Response) string {
	if a.binding.readAs != "" {
		return a.binding.readAs
	}
	if s := resp.Header.Get("Content-Type"); s != "" {
		return s
	}
	return a.binding.promised
}

// limit bounds a response in bytes.
func (a *attempt) limit() int64 {
	if a.x.MaxBytes > 0 {
		return a.x.MaxBytes
	}
	return defaultMaxBytes
}

// conditional reports whether the request is conditional (If-None-Match and the like).
func (r *request) conditional() bool {
	return r.header.Get("If-None-Match") != "" || r.header.Get("If-Modified-Since") != ""
}

// headers is the result of HEAD: the status, and the headers with lower-case names,
// without those of the connection or a session.
func headers(resp *http.Response) map[string]any {
	all := make(map[string]any, len(resp.Header))
	for name, values := range resp.Header {
		name = strings.ToLower(name)
		if !hiddenHeaders[name] {
			all[name] = readable(strings.Join(values, ", "))
		}
	}
	if resp.ContentLength >= 0 && all["content-length"] == nil {
		all["content-length"] = strconv.FormatInt(resp.ContentLength, 10)
	}
	return map[string]any{"status": json.Number(strconv.Itoa(resp.StatusCode)), "headers": all}
}

var hiddenHeaders = map[string]bool{
	"set-cookie": true, "set-cookie2": true, "www-authenticate": true, "proxy-authenticate": true, "authentication-info": true,
	"connection": true, "keep-alive": true, "transfer-encoding": true, "trailer": true, "upgrade": true, "proxy-connection": true,
}

func tooLarge(limit int64, status int) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ResultTooLarge, "the upstream's answer is over the limit of %d bytes; ask for less, for example by a page or filter parameter", limit).
		With("limit_bytes", limit).With("status", status)
}

// refused maps a status other than 2xx.
func (a *attempt) refused(resp *http.Response) *toolkeep.Error {
	status := resp.StatusCode
	var e *toolkeep.Error
	switch {
	case status == 401 || status == 403:
		why := "the upstream answered HTTP %d: it refused the credential"
		if len(a.x.Credentials) == 0 {
			why = "the upstream answered HTTP %d: it requires a credential, and the tool has none under auth"
		}
		e = toolkeep.NewError(toolkeep.SecretAccessDenied, why, status)
	case status == 408:
		e = toolkeep.NewError(toolkeep.UpstreamTimeout, "the upstream answered HTTP 408: it gave up waiting for the request")
	case status == 429:
		e = toolkeep.NewError(toolkeep.RateLimitExceeded, "the upstream answered HTTP 429: too many requests")
	case status >= 400 && status < 500:
		e = toolkeep.NewError(toolkeep.UpstreamClientError, "the upstream answered HTTP %d%s", status, statusName(status))
		if status == 400 || status == 404 || status == 409 || status == 422 {
			e.With("class", "VALIDATION_ERROR")
		}
	case status >= 500 && status < 600:
		e = toolkeep.NewError(toolkeep.UpstreamServerError, "the upstream answered HTTP %d%s", status, statusName(status))
	default:
		e = toolkeep.NewError(toolkeep.InvalidResponse, "the upstream answered HTTP %d, which is no answer to this request", status)
	}
	e.With("status", status).After(egress.RetryAfter(resp.Header.Get("Retry-After"), a.executor.clock()))
	if body := a.errorBody(resp); body != nil {
		e.With("body", body)
	}
	return e
}

func statusName(status int) string {
	if s := http.StatusText(status); s != "" {
		return " (" + s + ")"
	}
	return ""
}

// errorBody returns an error response's body, redacted: parsed if it is short JSON,
// such as an RFC 9457 problem; else the beginning of its text; nil if empty. It is
// redacted before it is cut, so that no part of a secret remains.
func (a *attempt) errorBody(resp *http.Response) any {
	if resp.Request != nil && resp.Request.Method == "HEAD" {
		return nil
	}
	body, _, err := readAnswer(resp, maxErrorBody, nil, nil)
	if err != nil || len(body) == 0 {
		return nil
	}
	whole := len(body) <= maxErrorBody
	contentType := resp.Header.Get("Content-Type")
	text := a.x.Cleaned(toUTF8(body, contentType))
	if whole && len(text) <= maxErrorShown && (egress.IsJSON(egress.MediaType(contentType)) || contentType == "") {
		if v, _, err := canon.ParseLoose([]byte(text), canon.Limits{}); err == nil {
			return a.x.CleanedTree(v)
		}
	}
	if !whole && len(text) <= maxErrorShown {
		return nil // only secrets: the cut may have left part of one
	}
	return toolkeep.CutBytes(text, maxErrorShown)
}

// toUTF8 converts an error's text to UTF-8 by its content type's charset.
func toUTF8(body []byte, contentType string) string {
	_, params, _ := mime.ParseMediaType(contentType)
	if name := params["charset"]; name != "" && !strings.EqualFold(name, "utf-8") {
		if e, err := htmlindex.Get(name); err == nil {
			if text, err := e.NewDecoder().Bytes(body); err == nil {
				body = text
			}
		}
	}
	return readable(string(body))
}
