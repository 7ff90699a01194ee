package rpcclient

import (
	"context"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/toolkeep/toolkeep"
)

// refused converts the error of an RPC to a *toolkeep.Error. Toolkeep's own errors carry it in the details; any
// other comes from something in between.
func (c *Client) refused(ctx context.Context, err error) error {
	s := status.Convert(err)
	var e *toolkeep.Error
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == "toolkeep" {
			e = &toolkeep.Error{Code: toolkeep.Code(info.GetMetadata()["code"]), Message: messageOf(s, info), InvocationID: info.GetMetadata()["invocation_id"]}
			e.Retryable, _ = strconv.ParseBool(info.GetMetadata()["retryable"])
		}
	}
	if e == nil {
		return c.lost(ctx, s)
	}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			e.RetryAfter = d.GetRetryDelay().AsDuration()
		case *errdetails.BadRequest:
			var faults []toolkeep.Fault
			for _, v := range d.GetFieldViolations() {
				faults = append(faults, toolkeep.Fault{Pointer: v.GetField(), Rule: v.GetReason(), Message: v.GetDescription()})
			}
			e.With("errors", faults)
		case *structpb.Struct:
			for k, v := range d.AsMap() {
				e.With(k, v)
			}
		}
	}
	return e
}

// messageOf returns the error's own message, which stands in the status's after "CODE name: " and before what is
// written for readers who see nothing else.
func messageOf(s *status.Status, info *errdetails.ErrorInfo) string {
	text := strings.TrimPrefix(s.Message(), info.GetMetadata()["code"]+" "+info.GetReason()+": ")
	if n, err := strconv.Atoi(info.GetMetadata()["message_bytes"]); err == nil && n >= 0 && n < len(text) {
		text = text[:n]
	}
	return text
}

// Lost is the cause of an error that did not come from a Toolkeep, but from the library, a proxy, or another kind
// of server.
type Lost struct{ Status *status.Status }

func (l *Lost) Error() string { return l.Status.Err().Error() }

// lost converts a status that did not come from Toolkeep; see Lost.
func (c *Client) lost(ctx context.Context, s *status.Status) error {
	made := func(code toolkeep.Code, format string, args ...any) *toolkeep.Error {
		e := toolkeep.NewError(code, format, args...).Because(&Lost{s})
		// It is unknown what was sent, so retrying is the caller's decision.
		e.Retryable = false
		return e
	}
	switch s.Code() {
	case codes.Canceled:
		if ctx.Err() != nil {
			return made(toolkeep.Cancelled, "the call was cancelled before the answer came; a call that writes may have taken effect")
		}
	case codes.DeadlineExceeded:
		return made(toolkeep.Timeout, "the deadline passed before the answer of %s came; a call that writes may have taken effect", c.addr)
	case codes.Unauthenticated:
		return made(toolkeep.Unauthenticated, "%s does not know the caller", c.addr)
	case codes.PermissionDenied:
		return made(toolkeep.PermissionDenied, "a proxy before Toolkeep at %s refuses the caller", c.addr)
	case codes.ResourceExhausted:
		return made(toolkeep.RequestTooLarge, "a message is larger than %s or this client accepts", c.addr)
	case codes.Unimplemented:
		return made(toolkeep.APIVersionUnsupported, "the server at %s has no such service; it may be another version, or no Toolkeep", c.addr)
	}
	return made(toolkeep.NetworkError, "the server at %s cannot be reached, or was lost before it answered", c.addr)
}
