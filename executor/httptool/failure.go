package httptool

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// failure turns a transport error into the caller's. The transport's text may contain
// addresses and parts of the response, so it goes only into the cause, redacted.
func failure(ctx context.Context, x *toolkeep.Execution, err error, nothingSent bool) *toolkeep.Error {
	var own *toolkeep.Error
	if errors.As(err, &own) {
		e := *own
		e.NothingSent = nothingSent
		return &e
	}
	e := classify(ctx, err)
	e.NothingSent = nothingSent
	return e.Because(errors.New(x.Cleaned(err.Error())))
}

func classify(ctx context.Context, err error) *toolkeep.Error {
	switch ctx.Err() {
	case nil:
	case context.DeadlineExceeded:
		return toolkeep.NewError(toolkeep.UpstreamTimeout, "the upstream did not answer within the attempt's time limit")
	default:
		return toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled; its connection to the upstream was closed")
	}
	var (
		dns     *net.DNSError
		op      *net.OpError
		timeout net.Error
		text    = err.Error()
	)
	switch {
	case egress.IsTLS(err):
		return toolkeep.NewError(toolkeep.TLSError, "no secure connection to the tool's server could be made: its certificate or the TLS handshake was refused")
	case errors.As(err, &dns):
		return toolkeep.NewError(toolkeep.NetworkError, "the name of the tool's server could not be found in DNS").With("reason", "dns")
	case errors.As(err, &op) && op.Op == "dial":
		return toolkeep.NewError(toolkeep.NetworkError, "the tool's server does not accept connections").With("reason", "connect")
	case errors.As(err, &timeout) && timeout.Timeout():
		return toolkeep.NewError(toolkeep.NetworkError, "connecting to the tool's server took too long").With("reason", "connect")
	case errors.As(err, &op), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return toolkeep.NewError(toolkeep.NetworkError, "the connection to the tool's server broke before the whole answer arrived").With("reason", "reset")
	case strings.Contains(text, "server response headers exceeded"), strings.Contains(text, "response header list larger"):
		limit := "their limit"
		if _, rest, ok := strings.Cut(text, "headers exceeded "); ok { // HTTP/2 does not report it
			bytes, _, _ := strings.Cut(rest, " ")
			limit += " of " + bytes + " bytes"
		}
		return toolkeep.NewError(toolkeep.InvalidResponse, "the headers of the server's answer are over %s; the operator can raise egress.max_header", limit)
	case slices.ContainsFunc(notHTTP, func(words string) bool { return strings.Contains(text, words) }):
		return toolkeep.NewError(toolkeep.InvalidResponse, "the tool's server did not answer with valid HTTP")
	}
	return toolkeep.NewError(toolkeep.NetworkError, "the connection to the tool's server failed").With("reason", "connection")
}

// notHTTP are texts of net/http's untyped errors for responses that are not valid HTTP.
var notHTTP = []string{"malformed", "bad header", "chunk length", "chunked encoding",
	"Content-Length", "transfer encoding", "unexpected EOF reading trailer", "trailer header"}
