package rpc

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

// domain is ErrorInfo's.
const domain = "toolkeep"

// A status travels base64-encoded in trailing metadata, which many clients limit to 8 KiB; its
// message is in there a second time, percent-encoded. The record of the refused call has everything.
const (
	maxStatus      = 4600 // bytes of the whole, before base64
	maxMessage     = 2048 // bytes; less where the whole would be too large
	maxEncoded     = 1536 // bytes of the message, percent-encoded
	maxDetails     = 768  // bytes of details other than faults
	maxViolations  = 2560 // bytes of all faults
	maxPointer     = 128  // bytes
	maxDescription = 240  // bytes
)

// grpcCodes are the names that the error catalogue uses.
var grpcCodes = map[string]codes.Code{
	"OK": codes.OK, "CANCELLED": codes.Canceled, "UNKNOWN": codes.Unknown, "INVALID_ARGUMENT": codes.InvalidArgument,
	"DEADLINE_EXCEEDED": codes.DeadlineExceeded, "NOT_FOUND": codes.NotFound, "ALREADY_EXISTS": codes.AlreadyExists,
	"PERMISSION_DENIED": codes.PermissionDenied, "RESOURCE_EXHAUSTED": codes.ResourceExhausted,
	"FAILED_PRECONDITION": codes.FailedPrecondition, "ABORTED": codes.Aborted, "OUT_OF_RANGE": codes.OutOfRange,
	"UNIMPLEMENTED": codes.Unimplemented, "INTERNAL": codes.Internal, "UNAVAILABLE": codes.Unavailable,
	"DATA_LOSS": codes.DataLoss, "UNAUTHENTICATED": codes.Unauthenticated,
}

// refusal converts an error into a status with ErrorInfo, plus RetryInfo, BadRequest and a Struct
// of the other details if there are any.
func refusal(e *toolkeep.Error) *status.Status {
	info := e.Code.Info()
	code, ok := grpcCodes[info.GRPC]
	if !ok || code == codes.OK {
		code = codes.Internal
	}
	s := &spb.Status{Code: int32(code)}
	meta := map[string]string{
		"code": string(info.Code), "class": e.Class(), "retryable": strconv.FormatBool(e.Retryable),
		"message_bytes": strconv.Itoa(len(valid(e.Message))), // the status's message holds more
	}
	if e.InvocationID != "" {
		meta["invocation_id"] = e.InvocationID
	}
	violations, details, cut := splitDetails(e)
	if cut {
		meta["details_cut"] = "true"
	}
	attach(s, &errdetails.ErrorInfo{Reason: info.Name, Domain: domain, Metadata: meta})
	if e.RetryAfter > 0 {
		attach(s, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(e.RetryAfterSeconds()) * time.Second)})
	}
	if violations != nil {
		attach(s, violations)
	}
	if details != nil {
		attach(s, details)
	}
	s.Message = clipEncoded(gate.Text(e), min(maxMessage, maxStatus-proto.Size(s)-8), maxEncoded)
	return status.FromProto(s)
}

// clipEncoded cuts text to n bytes of valid UTF-8 and to most bytes in percent-encoding, where every
// byte but printable ASCII takes three.
func clipEncoded(s string, n, most int) string {
	s = clip(s, n)
	for i := range len(s) {
		if most--; s[i] < ' ' || s[i] > '~' || s[i] == '%' {
			most -= 2
		}
		if most < 0 {
			return clip(s, i-len("…"))
		}
	}
	return s
}

func attach(s *spb.Status, m proto.Message) {
	// Packing fails only for invalid UTF-8, which valid and clip removed.
	if a, err := anypb.New(m); err == nil {
		s.Details = append(s.Details, a)
	}
}

// splitDetails returns faults as field violations, with the JSON Pointer as field, and the rest as
// a Struct; cut is true if something did not fit.
func splitDetails(e *toolkeep.Error) (bad *errdetails.BadRequest, rest *structpb.Struct, cut bool) {
	details := e.Details
	if len(details) == 0 {
		return nil, nil, false
	}
	others := details
	if faults := e.Faults(); len(faults) > 0 {
		bad = &errdetails.BadRequest{}
		for _, f := range faults {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: clip(f.Pointer, maxPointer), Description: clip(f.Message, maxDescription), Reason: clip(f.Rule, maxPointer)})
			if proto.Size(bad) > maxViolations {
				bad.FieldViolations, cut = bad.FieldViolations[:len(bad.FieldViolations)-1], true
				break
			}
		}
		others = make(map[string]any, len(details))
		for k, v := range details {
			if k != "errors" {
				others[k] = v
			}
		}
	}
	rest, ok := structOf(others)
	if rest != nil && proto.Size(rest) > maxDetails {
		rest, ok = nil, false
	}
	return bad, rest, cut || !ok
}

// structOf converts details to a Struct; ok is false if they are not JSON.
// Numbers beyond a double's exactness lose digits, as in any Struct.
func structOf(m map[string]any) (s *structpb.Struct, ok bool) {
	if len(m) == 0 {
		return nil, true
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, false
	}
	s = new(structpb.Struct)
	if err := protojson.Unmarshal(raw, s); err != nil {
		return nil, false
	}
	return s, true
}

// clip cuts text to n bytes of valid UTF-8, which protobuf requires.
func clip(s string, n int) string {
	return valid(toolkeep.ClipBytes(s, n))
}

func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
