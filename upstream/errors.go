package upstream

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

// down returns E3541.
func down(name, why string, unsent bool) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.MCPUnavailable, "the MCP server %s is not available: %s", name, why)
	e.NothingSent = unsent
	return e.With("server", name)
}

// broken returns E3540, for a response that violates the protocol.
func broken(name, why string) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.MCPError, "the MCP server %s broke the protocol: %s", name, why).With("server", name)
}

func tooLarge(name string, limit int64) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ResultTooLarge, "the answer of the MCP server %s is over the limit of %d bytes", name, limit).With("server", name)
}

// explain turns a failed request into the caller's error.
func (s *server) explain(ctx context.Context, f *failure) *toolkeep.Error {
	e := s.classify(ctx, f)
	e.NothingSent = e.NothingSent || f.unsent // before a login nothing that counts was sent
	if e.Cause == nil {
		_ = e.Because(errors.New(s.config.Redact.Log().Clean(f.cause.Error())))
	}
	return e
}

func (s *server) classify(ctx context.Context, f *failure) *toolkeep.Error {
	name := s.spec.Name
	var own *toolkeep.Error
	var send *transport.SendError
	switch {
	case errors.As(f.cause, &own):
		e := *own
		return &e
	case errors.Is(f.cause, errQuiet):
		return toolkeep.NewError(toolkeep.UpstreamTimeout, "the MCP server %s did not answer within %s", name, s.spec.CallTimeout).With("server", name)
	case ctx.Err() == context.DeadlineExceeded:
		return toolkeep.NewError(toolkeep.UpstreamTimeout, "the MCP server %s did not answer within the attempt's time limit", name).With("server", name)
	case ctx.Err() != nil:
		return toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled; the MCP server %s was notified", name)
	case errors.Is(f.cause, mcp.ErrTooLarge):
		return tooLarge(name, s.spec.MaxResultBytes)
	case errors.Is(f.cause, transport.ErrUnreadable):
		return broken(name, words(f.cause))
	case f.dead:
		return down(name, deadWords(f.cause), f.unsent)
	case f.lost:
		return down(name, "its answer broke off", false)
	case errors.As(f.cause, &send) && send.Status >= 400:
		return refused(name, send, s.elsewhere())
	case egress.IsTLS(f.cause):
		return toolkeep.NewError(toolkeep.TLSError, "no secure connection to the MCP server %s could be made: its certificate or the handshake was refused", name).With("server", name)
	case errors.As(f.cause, &send) && send.Status != 0:
		return broken(name, words(send.Err))
	}
	return down(name, "it cannot be reached", f.unsent)
}

// elsewhere says where most servers are if the address has another path, which is not quoted: it can hold a key.
func (s *server) elsewhere() string {
	u, err := url.Parse(s.spec.URL)
	switch {
	case err != nil || u.Host == "" || s.spec.Transport == SSE:
		return ""
	case strings.HasSuffix(u.Path, "/sse"):
		return "; an address that ends with /sse speaks the older HTTP as a rule: its transport is sse (import mcp --sse)"
	case strings.Contains(u.Path, "/mcp"):
		return ""
	}
	return "; most MCP servers are at the path /mcp, and the address has another"
}

// words describes a transport error without quoting the response.
func words(err error) string {
	return strings.TrimSuffix(err.Error(), ".")
}

func deadWords(err error) string {
	switch {
	case errors.Is(err, transport.ErrSession):
		return "it no longer has the session"
	case errors.Is(err, transport.ErrJunk):
		return "it writes too much that is not MCP to its stdout"
	case errors.Is(err, errClosed):
		return "its session was ended while the call ran"
	}
	return "it ended while the call ran"
}

// refused maps an HTTP status to an error.
func refused(name string, send *transport.SendError, elsewhere string) *toolkeep.Error {
	at := func(e *toolkeep.Error) *toolkeep.Error {
		return e.With("server", name).With("status", send.Status).After(send.RetryAfter)
	}
	switch s := send.Status; {
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return at(toolkeep.NewError(toolkeep.SecretAccessDenied, "the MCP server %s refused the credentials (HTTP %d)", name, s))
	case s == http.StatusTooManyRequests:
		return at(toolkeep.NewError(toolkeep.RateLimitExceeded, "the MCP server %s answered that it gets too many requests", name))
	case s == http.StatusRequestTimeout:
		return at(toolkeep.NewError(toolkeep.UpstreamTimeout, "the MCP server %s gave up waiting for the request (HTTP 408)", name))
	case s == http.StatusBadGateway, s == http.StatusServiceUnavailable, s == http.StatusGatewayTimeout:
		return at(down(name, "it answered "+http.StatusText(s), false))
	case s >= 500:
		return at(toolkeep.NewError(toolkeep.UpstreamServerError, "the MCP server %s answered HTTP %d", name, s))
	}
	if send.Status != http.StatusNotFound && send.Status != http.StatusMethodNotAllowed {
		elsewhere = ""
	}
	return at(toolkeep.NewError(toolkeep.UpstreamClientError, "the MCP server %s answered HTTP %d%s", name, send.Status, elsewhere))
}

// busy returns E3802.
func busy(name string, most int) *toolkeep.Error {
	return unsentError(toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "the MCP server %s has all of its %d sessions in use", name, most).
		With("server", name).After(time.Second))
}

func greedy(name string, most int) *toolkeep.Error {
	return unsentError(toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "you have %d sessions of the MCP server %s in use, which is half of its max_sessions and as many as one principal may have", most, name).
		With("server", name).After(time.Second))
}

func draining() *toolkeep.Error {
	return unsentError(toolkeep.NewError(toolkeep.Draining, "this node is shutting down; send the call again").After(time.Second))
}

// unsentError marks an error as raised before anything was sent.
func unsentError(err error) *toolkeep.Error {
	e := *toolkeep.AsError(err)
	e.NothingSent = true
	return &e
}
