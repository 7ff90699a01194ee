package gate

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// timedBody takes the read deadline off once the body is read whole. While it
// stands, a slow body ends; were it left on, it would end the handler's context
// in the middle of a long call.
type timedBody struct {
	io.ReadCloser
	w http.ResponseWriter
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		_ = http.NewResponseController(b.w).SetReadDeadline(time.Time{})
	}
	return n, err
}

func (g *Gate) timeBody(w http.ResponseWriter, r *http.Request) {
	// A writer without deadlines (a test's recorder) has no slow peer either.
	if http.NewResponseController(w).SetReadDeadline(time.Now().Add(g.limits.BodyTimeout)) == nil {
		r.Body = &timedBody{ReadCloser: r.Body, w: w}
	}
}

// ReadBody reads a JSON body of at most limit bytes. lax takes it without a
// Content-Type, with that of a form (curl -d calls everything a form), and with
// one that ends in +json. E3312, E3330.
func ReadBody(r *http.Request, limit int64, lax bool) ([]byte, error) {
	if err := checkBodyHeaders(r.Header, lax); err != nil {
		return nil, err
	}
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if r.ContentLength >= 0 {
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			return nil, readFailed(err)
		}
		return body, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, readFailed(err)
	}
	if int64(len(body)) > limit {
		return nil, tooLarge(limit)
	}
	return body, nil
}

func checkBodyHeaders(h http.Header, lax bool) error {
	if ce := h["Content-Encoding"]; ce != nil && !(len(ce) == 1 && strings.EqualFold(ce[0], "identity")) {
		return WithStatus(http.StatusUnsupportedMediaType, toolkeep.NewError(toolkeep.MalformedRequest,
			"compressed request bodies are not read; send the body without Content-Encoding"))
	}
	ct := h["Content-Type"]
	if ct == nil && lax || len(ct) == 1 && isJSON(ct[0], lax) {
		return nil
	}
	return WithStatus(http.StatusUnsupportedMediaType, toolkeep.NewError(toolkeep.MalformedRequest,
		"the body must be JSON in UTF-8, sent with Content-Type: application/json"))
}

// isJSON reads a Content-Type. That of forms does no harm: the credential is a
// header that the form of a web page cannot send.
func isJSON(contentType string, lax bool) bool {
	if contentType == JSONType {
		return true
	}
	typ, params, err := mime.ParseMediaType(contentType)
	if charset := params["charset"]; err != nil || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	return typ == JSONType || lax && (strings.HasSuffix(typ, "+json") || typ == "application/x-www-form-urlencoded")
}

func tooLarge(limit int64) error {
	return toolkeep.NewError(toolkeep.RequestTooLarge, "the body has more than %d bytes", limit).With("limit_bytes", limit)
}

func readFailed(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return WithStatus(http.StatusRequestTimeout, toolkeep.NewError(toolkeep.MalformedRequest,
			"the body did not arrive in time").Because(err))
	}
	return toolkeep.NewError(toolkeep.MalformedRequest, "the body ended before its announced length").Because(err)
}
