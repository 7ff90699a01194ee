package httptool

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

const (
	maxErrorBody  = 16 << 10 // read of the body of a failure
	maxErrorShown = 2 << 10  // of it in details.body
	maxRetryAfter = time.Hour
)

// answer turns the final response into an output or an error.
func (a *attempt) answer(ctx context.Context, r *request, resp *http.Response) (*toolkeep.Output, *toolkeep.Error) {
	status := resp.StatusCode
	if status < 200 || status > 299 {
		return nil, a.refused(resp)
	}
	out := &toolkeep.Output{ContentType: resp.Header.Get("Content-Type"), BytesSent: a.sent}
	if out.ContentType == "" {
		out.ContentType = a.binding.promised
	}
	if r.method == "HEAD" || status == 204 || status == 205 || resp.ContentLength == 0 {
		out.HasValue = true // null: there is nothing to read
		return out, nil
	}
	limit := a.x.MaxBytes
	if limit <= 0 {
		limit = defaultMaxBytes
	}
	if resp.ContentLength > limit {
		return nil, tooLarge(limit, status)
	}
	body, wire, err := readAnswer(resp, limit)
	out.BytesRecv = wire
	switch {
	case err == errTooLarge || int64(len(body)) > limit:
		return nil, tooLarge(limit, status)
	case err != nil:
		return nil, a.unreadable(ctx, status, err)
	case len(body) == 0:
		out.HasValue = true
	default:
		out.Body = body
	}
	return out, nil
}

func tooLarge(limit int64, status int) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ResultTooLarge, "the upstream's answer is over the limit of %d bytes; ask for less, for example by a page or filter parameter", limit).
		With("limit_bytes", limit).With("status", status)
}

var errTooLarge = errors.New("over the limit while still packed")

// encodingError says that the body is packed in a way that was not asked for or
// is broken.
type encodingError struct{ why string }

func (e encodingError) Error() string { return e.why }

func (a *attempt) unreadable(ctx context.Context, status int, err error) *toolkeep.Error {
	if e, ok := err.(encodingError); ok && ctx.Err() == nil {
		return toolkeep.NewError(toolkeep.InvalidResponse, "%s", e.why).With("status", status)
	}
	return failure(ctx, a.x, err, false).With("status", status)
}

// counter counts what came over the wire.
type counter struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != io.EOF {
		c.err = err
	}
	return n, err
}

// readAnswer reads at most limit+1 bytes of the body as it is once unpacked, and
// no more than that over the wire.
func readAnswer(resp *http.Response, limit int64) (body []byte, wire int64, err error) {
	in := &counter{r: io.LimitReader(resp.Body, limit+1)}
	var r io.Reader = in
	size := resp.ContentLength
	switch enc := strings.ToLower(resp.Header.Get("Content-Encoding")); enc {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, in.n, broken(in)
		}
		r, size = io.LimitReader(z, limit+1), -1
	default:
		return nil, 0, encodingError{"the upstream sent an encoding of its answer that was not asked for; only gzip is read"}
	}
	var buf bytes.Buffer
	// The announced length is believed up to 1 MiB: more is set aside as it comes.
	if size > 0 {
		buf.Grow(int(min(size, 1<<20)) + bytes.MinRead)
	}
	if _, err := buf.ReadFrom(r); err != nil {
		if r != io.Reader(in) {
			if in.n > limit { // cut off by our own limit
				return nil, in.n, errTooLarge
			}
			return nil, in.n, broken(in)
		}
		return nil, in.n, err
	}
	return buf.Bytes(), in.n, nil
}

// broken tells a broken connection from broken gzip.
func broken(in *counter) error {
	if in.err != nil {
		return in.err
	}
	return encodingError{"the upstream's answer says that it is gzip and cannot be unpacked"}
}

// refused maps a status outside of 2xx.
func (a *attempt) refused(resp *http.Response) *toolkeep.Error {
	status := resp.StatusCode
	var e *toolkeep.Error
	switch {
	case status == 401 || status == 403:
		why := "the upstream answered HTTP %d: it refused the credential"
		if len(a.x.Credentials) == 0 {
			why = "the upstream answered HTTP %d: it wants a credential, and the tool has none under auth"
		}
		e = toolkeep.NewError(toolkeep.SecretAccessDenied, why, status)
	case status == 408:
		e = toolkeep.NewError(toolkeep.UpstreamTimeout, "the upstream answered HTTP 408: it gave up waiting for the request")
	case status == 429:
		e = toolkeep.NewError(toolkeep.RateLimitExceeded, "the upstream answered HTTP 429: too many requests")
	case status >= 400 && status < 500:
		e = toolkeep.NewError(toolkeep.UpstreamClientError, "the upstream answered HTTP %d%s; details.body has its words", status, statusName(status))
		if status == 400 || status == 404 || status == 409 || status == 422 {
			e.With("class", "VALIDATION_ERROR")
		}
	case status >= 500 && status < 600:
		e = toolkeep.NewError(toolkeep.UpstreamServerError, "the upstream answered HTTP %d%s", status, statusName(status))
	default:
		e = toolkeep.NewError(toolkeep.InvalidResponse, "the upstream answered HTTP %d, which is no answer to this request", status)
	}
	e.With("status", status).After(retryAfter(resp.Header.Get("Retry-After"), a.executor.clock()))
	if body := a.errorBody(resp); body != "" {
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

// errorBody is the beginning of the failure's body, without secrets. It is
// cleaned before it is cut, so that half a secret cannot stay.
func (a *attempt) errorBody(resp *http.Response) string {
	if resp.Request != nil && resp.Request.Method == "HEAD" {
		return ""
	}
	body, _, err := readAnswer(resp, maxErrorBody)
	if err != nil || len(body) == 0 {
		return ""
	}
	whole := len(body) <= maxErrorBody
	text := clean(a.x, strings.ToValidUTF8(string(body), "\uFFFD"))
	if !whole && len(text) <= maxErrorShown {
		return "" // all but secrets: the cut may have left a part of one
	}
	if len(text) > maxErrorShown {
		end := maxErrorShown
		for end > 0 && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	return text
}

// retryAfter reads seconds or a date, up to one hour; 0 where there is none.
func retryAfter(s string, now time.Time) time.Duration {
	if s == "" {
		return 0
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64); err == nil {
		if n <= 0 {
			return 0
		}
		return time.Duration(min(n, int64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	return max(0, min(at.Sub(now), maxRetryAfter))
}
