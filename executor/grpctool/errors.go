package grpctool

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/toolkeep/toolkeep"
)

const (
	maxMessage    = 2 << 10 // of a status's text
	maxDetails    = 16
	maxDetailSize = 8 << 10 // of all details as JSON, approximately
	maxRetryAfter = time.Hour
)

// sent sets NothingSent from the progress of the call.
func (a *attempt) sent(e *toolkeep.Error) *toolkeep.Error {
	e.NothingSent = !a.progress.sent.Load()
	return e
}

// failure turns the library's error into the caller's. The library's text may contain
// addresses and parts of the response, so it goes only into the cause, redacted; a
// status from the server is shown, also redacted.
func (a *attempt) failure(err error) *toolkeep.Error {
	st := status.Convert(err)
	e := a.classify(st)
	if e.Cause == nil {
		e.Because(errors.New(toolkeep.ClipBytes(a.x.Cleaned(err.Error()), 300)))
	}
	return a.sent(e)
}

func (a *attempt) classify(st *status.Status) *toolkeep.Error {
	switch a.parent.Err() {
	case nil:
	case context.DeadlineExceeded:
		// A server that never responded may be gone.
		a.broken = !a.progress.heard.Load()
		return toolkeep.NewError(toolkeep.UpstreamTimeout, "the upstream did not answer within the attempt's time limit")
	default:
		return toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled; the upstream was notified")
	}
	switch {
	// The library itself raises these two, even if the server accepted the call.
	case st.Code() == codes.ResourceExhausted && strings.HasPrefix(st.Message(), "grpc: received message"):
		return a.tooLarge()
	case st.Code() == codes.Internal && (strings.HasPrefix(st.Message(), "cardinality violation") || strings.HasPrefix(st.Message(), "grpc: failed to decompress")):
		return toolkeep.NewError(toolkeep.InvalidResponse, "the tool's server reported success without a readable answer")
	case a.progress.answered.Load():
		return a.said(st)
	case !a.progress.sent.Load() && st.Code() == codes.Unavailable:
		a.broken = true
		return a.unconnected()
	case st.Code() == codes.DeadlineExceeded:
		a.broken = !a.progress.heard.Load()
		return toolkeep.NewError(toolkeep.UpstreamTimeout, "the upstream did not answer within the time limit")
	}
	return a.broke(st)
}

// unconnected is the error of a call without a connection.
func (a *attempt) unconnected() *toolkeep.Error {
	err := a.link.lastError()
	var (
		own       *toolkeep.Error
		dns       *net.DNSError
		handshake *handshakeError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &own):
		copied := *own
		return &copied
	case errors.As(err, &record):
		return toolkeep.NewError(toolkeep.TLSError, "the tool's server does not speak TLS; set plaintext in the binding if that is intended").Because(err)
	case errors.As(err, &handshake):
		return toolkeep.NewError(toolkeep.TLSError, "no secure connection to the tool's server could be made: its certificate or the TLS handshake was refused").Because(err)
	case errors.As(err, &dns):
		return toolkeep.NewError(toolkeep.NetworkError, "the name of the tool's server could not be found in DNS").With("reason", "dns").Because(err)
	case err != nil:
		return toolkeep.NewError(toolkeep.NetworkError, "the tool's server does not accept connections").With("reason", "connect").Because(err)
	}
	// The server closed the connection before the first call: it speaks another
	// protocol or is shutting down.
	return toolkeep.NewError(toolkeep.NetworkError, "the tool's server closed the connection before it took a call").With("reason", "connect")
}

var httpStatus = regexp.MustCompile(`^unexpected HTTP status code received from server: ([0-9]{3}) `)

// broke is the error of a call that ended without a status from the server.
func (a *attempt) broke(st *status.Status) *toolkeep.Error {
	if m := httpStatus.FindStringSubmatch(st.Message()); m != nil {
		return proxied(m[1])
	}
	if !a.progress.sent.Load() {
		return toolkeep.NewError(toolkeep.InvalidResponse, "the call could not be handed to the server's connection; its metadata may be longer than the server accepts")
	}
	switch st.Code() {
	case codes.Unavailable:
		a.broken = true
		return toolkeep.NewError(toolkeep.NetworkError, "the connection to the tool's server broke before the whole answer arrived").With("reason", "reset")
	case codes.Canceled, codes.ResourceExhausted:
		// The server reset the stream for its own reason.
		return a.said(status.New(st.Code(), "the server reset the call"))
	}
	return toolkeep.NewError(toolkeep.InvalidResponse, "the tool's server did not answer with valid gRPC")
}

// proxied is the error for a plain HTTP response, from something in front of the
// server.
func proxied(text string) *toolkeep.Error {
	code, _ := strconv.Atoi(text)
	var e *toolkeep.Error
	switch {
	case code == 401 || code == 403:
		e = toolkeep.NewError(toolkeep.SecretAccessDenied, "the upstream answered HTTP %d: it refused the credential", code)
	case code == 429:
		e = toolkeep.NewError(toolkeep.RateLimitExceeded, "the upstream answered HTTP 429: too many requests")
	case code >= 500:
		e = toolkeep.NewError(toolkeep.UpstreamServerError, "the upstream answered HTTP %d in place of gRPC", code)
	default:
		e = toolkeep.NewError(toolkeep.InvalidResponse, "the upstream answered HTTP %d in place of gRPC; the target may be no gRPC server", code)
	}
	return e.With("status", code)
}

// said maps the server's status.
func (a *attempt) said(st *status.Status) *toolkeep.Error {
	name := codeName(st.Code())
	var e *toolkeep.Error
	switch st.Code() {
	case codes.Unauthenticated, codes.PermissionDenied:
		code := 401
		if st.Code() == codes.PermissionDenied {
			code = 403
		}
		why := "the upstream answered %s: it refused the credential"
		if len(a.x.Credentials) == 0 {
			why = "the upstream answered %s: it requires a credential, and the tool has none under auth"
		}
		e = toolkeep.NewError(toolkeep.SecretAccessDenied, why, name).With("status", code)
	case codes.DeadlineExceeded:
		e = toolkeep.NewError(toolkeep.UpstreamTimeout, "the upstream answered DEADLINE_EXCEEDED: it ran out of time")
	case codes.ResourceExhausted:
		e = toolkeep.NewError(toolkeep.RateLimitExceeded, "the upstream answered RESOURCE_EXHAUSTED: too many requests, or a quota is used up")
	default:
		e = toolkeep.NewError(toolkeep.GRPCError, "the upstream answered %s", name)
		switch st.Code() {
		case codes.Unavailable:
			e.Retryable = true
		case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.OutOfRange, codes.FailedPrecondition:
			e.With("class", "VALIDATION_ERROR")
		}
	}
	e.With("grpc_code", name)
	if text := a.x.Cleaned(strings.ToValidUTF8(st.Message(), "\uFFFD")); text != "" {
		e.With("grpc_message", toolkeep.CutBytes(text, maxMessage))
	}
	a.details(e, st.Proto().GetDetails())
	return e
}

// codeName returns the code as gRPC's documents write it.
func codeName(c codes.Code) string {
	if c < codes.Code(len(codeNames)) {
		return codeNames[c]
	}
	return "CODE_" + strconv.FormatUint(uint64(c), 10)
}

var codeNames = [...]string{"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
	"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL",
	"UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"}

// details returns the status details, and takes the delay from RetryInfo. A DebugInfo,
// which holds a stack trace, goes only into the log.
func (a *attempt) details(e *toolkeep.Error, list []*anypb.Any) {
	show := &shower{types: a.binding.types, left: maxDetailSize}
	shown, left := []any{}, 0
	for _, d := range list {
		name := d.GetTypeUrl()[strings.LastIndexByte(d.GetTypeUrl(), '/')+1:]
		if name == "google.rpc.DebugInfo" {
			continue
		}
		v, err := readAny(show, d.ProtoReflect(), maxDepth)
		if err != nil || len(shown) == maxDetails {
			left++
			continue
		}
		tree := a.x.CleanedTree(v)
		if m, ok := tree.(map[string]any); ok && name == "google.rpc.RetryInfo" {
			if text, ok := m["retryDelay"].(string); ok {
				if wait, err := time.ParseDuration(text); err == nil && wait >= 0 {
					e.After(min(wait, maxRetryAfter))
					e.Retryable = e.Retryable || e.Code == toolkeep.GRPCError
				}
			}
		}
		shown = append(shown, tree)
	}
	if len(shown) > 0 {
		e.With("grpc_details", shown)
	}
	if left > 0 {
		e.With("grpc_details_left_out", left)
	}
}
