package rpc

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// read returns the Call that the face makes of a message and its metadata.
func read(t *testing.T, m *l03v1.ToolInvocationRequest, md ...string) *toolkeep.Call {
	t.Helper()
	s := newSystem().face()
	t.Cleanup(func() { _ = s.Stop(context.Background()) })
	return s.readCall(&request{headers: gate.Metadata(metadata.Pairs(md...)), principal: &toolkeep.Principal{Subject: "agent", Tenant: "t"}}, m)
}

func TestEveryField(t *testing.T) {
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	got := read(t, &l03v1.ToolInvocationRequest{
		RequestId: "key", ToolId: "demo.text", AgentId: "agent", Inputs: map[string]string{"text": "hello there"}, Version: 1,
		Context:        &l03v1.ToolInvocationRequest_ExecutionContext{PlanId: "plan", TaskId: "task"},
		TimeoutSeconds: 5, AsyncMode: true, CacheOverrideTtl: 6, SkipCache: true, ToolVersion: "^1",
		AgentContext:   &l03v1.AgentContext{AgentDid: "agent", TenantId: "t", UserDid: "user", SessionId: "session"},
		ResourceLimits: &l03v1.ResourceLimits{TimeoutSeconds: 5}, Priority: l03v1.ToolInvocationRequest_HIGH, RequireApproval: true,
		ParentInvocationId: "parent", InvocationId: someID, DocumentContext: &l03v1.DocumentContext{},
		CheckpointConfig: &l03v1.CheckpointConfig{EnableCheckpointing: proto.Bool(true), CheckpointIntervalSeconds: 30},
		SandboxContext:   &l03v1.SandboxContext{},
	}, "x-session-id", "session", "idempotency-key", "key", "traceparent", trace, "x-user-id", "user")
	want := &toolkeep.Call{ID: someID, Tool: "demo.text", Range: "^1", Arguments: []byte(`{"text":"hello there"}`), Key: "key",
		Timeout: 5 * time.Second, Async: true, Priority: toolkeep.High, RequireApproval: true, SkipCache: true, CacheTTL: 6 * time.Second,
		Session: "session", Plan: "plan", Task: "task", Subject: "agent", Tenant: "t", User: "user", Parent: "parent", Traceparent: trace, Face: "grpc"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v (fault %v)", got, want, got.Fault)
	}
}

func TestFaultsOfTheMessage(t *testing.T) {
	type message = l03v1.ToolInvocationRequest
	for name, c := range map[string]struct {
		change func(*message)
		md     []string
		code   toolkeep.Code
	}{
		"no tool":               {func(m *message) { m.ToolId = "" }, nil, toolkeep.MalformedRequest},
		"a later version":       {func(m *message) { m.Version = 2 }, nil, toolkeep.APIVersionUnsupported},
		"both forms":            {func(m *message) { m.Inputs = map[string]string{"n": "1"}; m.Parameters = &structpb.Struct{} }, nil, toolkeep.MalformedRequest},
		"two agents":            {func(m *message) { m.AgentId = "a"; m.AgentContext = &l03v1.AgentContext{AgentDid: "b"} }, nil, toolkeep.MalformedRequest},
		"two sessions":          {func(m *message) { m.AgentContext = &l03v1.AgentContext{SessionId: "b"} }, []string{"x-session-id", "a"}, toolkeep.MalformedRequest},
		"two users":             {func(m *message) { m.AgentContext = &l03v1.AgentContext{UserDid: "b"} }, []string{"x-user-id", "a"}, toolkeep.MalformedRequest},
		"two keys":              {func(m *message) { m.RequestId = "a" }, []string{"idempotency-key", "b"}, toolkeep.InvalidParameters},
		"two timeouts":          {func(m *message) { m.TimeoutSeconds = 1; m.ResourceLimits = &l03v1.ResourceLimits{TimeoutSeconds: 2} }, nil, toolkeep.MalformedRequest},
		"a timeout of a month":  {func(m *message) { m.TimeoutSeconds = 2_600_000 }, nil, toolkeep.MalformedRequest},
		"a priority of its own": {func(m *message) { m.Priority = 9 }, nil, toolkeep.MalformedRequest},
		"a limit of memory":     {func(m *message) { m.ResourceLimits = &l03v1.ResourceLimits{MemoryMbLimit: 1} }, nil, toolkeep.MalformedRequest},
		"documents":             {func(m *message) { m.DocumentContext = &l03v1.DocumentContext{Query: "x"} }, nil, toolkeep.MalformedRequest},
		"checkpoints":           {func(m *message) { m.CheckpointConfig = &l03v1.CheckpointConfig{CheckpointIntervalSeconds: 5} }, nil, toolkeep.MalformedRequest},
		"resuming":              {func(m *message) { m.CheckpointConfig = &l03v1.CheckpointConfig{ResumeFromCheckpointId: "x"} }, nil, toolkeep.MalformedRequest},
		"a parent sandbox":      {func(m *message) { m.SandboxContext = &l03v1.SandboxContext{ParentSandboxId: "x"} }, nil, toolkeep.MalformedRequest},
		"an environment": {func(m *message) {
			m.Context = &l03v1.ToolInvocationRequest_ExecutionContext{Env: map[string]string{"A": "b"}}
		}, nil, toolkeep.MalformedRequest},
		"a message of 1 MB": {func(m *message) { m.Inputs = map[string]string{"text": strings.Repeat("x", 1<<20)} }, nil, toolkeep.RequestTooLarge},
		"a token":           {nil, []string{"x-capability-token", ""}, toolkeep.TokenInvalid},
		"a signature":       {nil, []string{"x-request-signature", "ab"}, toolkeep.SignatureInvalid},
		"a timestamp":       {nil, []string{"x-request-timestamp", "1"}, toolkeep.SignatureInvalid},
		"inputs no JSON":    {func(m *message) { m.Inputs = map[string]string{"n": "three"} }, nil, toolkeep.MalformedRequest},
	} {
		t.Run(name, func(t *testing.T) {
			c1 := read(t, ask(c.change), c.md...)
			if c1.Fault == nil || c1.Fault.Code != c.code {
				t.Fatalf("fault %v, want %s", c1.Fault, c.code)
			}
			if c.code != toolkeep.RequestTooLarge && name != "no tool" && c1.Tool != "demo.text" {
				t.Errorf("the record would not say which tool: %+v", c1)
			}
		})
	}
	// Values for a tool that the caller cannot have are not checked: the pipeline answers that
	// there is no such tool.
	for _, tool := range []string{"demo.other", "demo.none"} {
		c := read(t, ask(func(m *message) { m.ToolId = tool; m.Inputs = map[string]string{"n": "three"} }))
		if c.Fault != nil || string(c.Arguments) != `{"n":"three"}` {
			t.Errorf("%s: %s %v", tool, c.Arguments, c.Fault)
		}
	}
	if c := read(t, ask(nil), "traceparent", "00-zz"); c.Fault != nil || c.Traceparent != "" {
		t.Errorf("%+v", c)
	}
}

// Every catalogued code becomes a distinguishable status with the details a client needs.
func TestRefusalOfEveryCode(t *testing.T) {
	for _, i := range toolkeep.Codes() {
		if _, ok := grpcCodes[i.GRPC]; !ok {
			t.Errorf("%s: the gRPC code %q is not known", i.Code, i.GRPC)
		}
		if i.BC6 != "SUCCESS" {
			if _, ok := bc6[i.BC6]; !ok {
				t.Errorf("%s: the BC-6 status %q is not known", i.Code, i.BC6)
			}
		}
		e := gate.Shown(toolkeep.NewError(i.Code, "why").After(1500 * time.Millisecond))
		s := refusal(e)
		if s.Code() == codes.OK || s.Message() == "" {
			t.Errorf("%s: %v", i.Code, s)
		}
		hidden := i.Kind == toolkeep.KindWarning || i.Kind == toolkeep.KindInternal
		want := i.Code
		if hidden {
			want = toolkeep.InternalError
		}
		info, ok := s.Details()[0].(*errdetails.ErrorInfo)
		if !ok || info.Reason != want.Info().Name || info.Domain != "toolkeep" || info.Metadata["code"] != string(want) {
			t.Errorf("%s: %v", i.Code, s.Details())
		}
		if retry, ok := s.Details()[len(s.Details())-1].(*errdetails.RetryInfo); !hidden && (!ok || retry.RetryDelay.AsDuration() != 2*time.Second) {
			t.Errorf("%s: no RetryInfo in %v", i.Code, s.Details())
		}
	}
	if e := gate.Shown(&toolkeep.Error{Code: "E9999", Message: "new"}); e.Code != toolkeep.InternalError || strings.Contains(e.Message, "new") {
		t.Errorf("an unknown code shows %v", e)
	}
	if e := gate.Shown(fmt.Errorf("sql: secret")); strings.Contains(refusal(e).Message(), "secret") {
		t.Error("a foreign error is shown")
	}
}

// However many faults there are, the status stays small enough for every client: it arrives
// base64-encoded in 8 KiB of metadata.
func TestRefusalsStaySmall(t *testing.T) {
	var faults []toolkeep.Fault
	for i := range 1000 {
		faults = append(faults, toolkeep.Fault{Pointer: fmt.Sprintf("/%d/%s", i, strings.Repeat("ü", 200)), Rule: "type", Message: strings.Repeat("é", 500)})
	}
	e := toolkeep.FaultsError(toolkeep.InputValidationFailed, strings.Repeat("w\xff", 5000), faults).With("body", strings.Repeat("x", 100_000))
	e.InvocationID = someID
	s := refusal(e)
	if n := proto.Size(s.Proto()); n > 4600 {
		t.Errorf("%d bytes", n)
	}
	if info := s.Details()[0].(*errdetails.ErrorInfo); info.Metadata["details_cut"] != "true" || info.Metadata["invocation_id"] != someID {
		t.Errorf("%v", info)
	}
	if n := len(s.Message()); n < 200 {
		t.Errorf("the message has %d bytes", n)
	}
	few := refusal(toolkeep.FaultsError(toolkeep.InputValidationFailed, "two places", []toolkeep.Fault{{Pointer: "/a", Message: "must be a number"}, {Pointer: "/b", Message: "is missing"}}))
	if want := "E3310 input_validation_failed: two places\n- at /a: must be a number\n- at /b: is missing\nCorrect this and call again."; few.Message() != want {
		t.Errorf("%q", few.Message())
	}
	small := refusal(toolkeep.NewError(toolkeep.PermissionDenied, "no").With("reason", "RBAC_DENIED").With("at", at))
	if d, ok := small.Details()[1].(*structpb.Struct); !ok || d.AsMap()["reason"] != "RBAC_DENIED" {
		t.Errorf("%v", small.Details())
	}
}

func TestStatusOfEveryState(t *testing.T) {
	type s = l03v1.ToolInvocationResult_Status
	for _, c := range []struct {
		state toolkeep.CallState
		code  toolkeep.Code
		want  s
	}{
		{toolkeep.CallAccepted, "", l03v1.ToolInvocationResult_PENDING},
		{toolkeep.CallQueued, "", l03v1.ToolInvocationResult_PENDING},
		{toolkeep.CallPendingApproval, "", l03v1.ToolInvocationResult_PENDING_APPROVAL},
		{toolkeep.CallInputRequired, "", l03v1.ToolInvocationResult_INPUT_REQUIRED},
		{toolkeep.CallRunning, "", l03v1.ToolInvocationResult_RUNNING},
		{toolkeep.CallSucceeded, "", l03v1.ToolInvocationResult_SUCCESS},
		{toolkeep.CallFailed, toolkeep.UpstreamServerError, l03v1.ToolInvocationResult_FAILURE},
		{toolkeep.CallFailed, toolkeep.Timeout, l03v1.ToolInvocationResult_TIMEOUT},
		{toolkeep.CallFailed, "", l03v1.ToolInvocationResult_FAILURE},
		{toolkeep.CallRefused, toolkeep.PermissionDenied, l03v1.ToolInvocationResult_UNAUTHORIZED},
		{toolkeep.CallRefused, toolkeep.ToolNotFound, l03v1.ToolInvocationResult_NOT_FOUND},
		{toolkeep.CallRefused, toolkeep.InputValidationFailed, l03v1.ToolInvocationResult_VALIDATION_ERROR},
		{toolkeep.CallCancelled, toolkeep.Cancelled, l03v1.ToolInvocationResult_CANCELLED},
		{toolkeep.CallExpired, toolkeep.HandleExpired, l03v1.ToolInvocationResult_FAILURE},
		{toolkeep.CallUnknown, toolkeep.OutcomeUnknown, l03v1.ToolInvocationResult_FAILURE},
	} {
		if got := statusOf(c.state, c.code); got != c.want {
			t.Errorf("%s %s is %s, want %s", c.state, c.code, got, c.want)
		}
	}
}

func TestReceipt(t *testing.T) {
	r := succeeded()
	r.Age = 1500 * time.Millisecond
	r.Attempts, r.Cached, r.Truncated, r.CostUSD, r.BytesSent, r.BytesRecv = 3, true, true, 0.25, 10, 20
	r.Warnings = []toolkeep.Warning{{Code: toolkeep.ToolDeprecated, Message: "move on"}}
	r.Attachments = []toolkeep.Attachment{{Kind: "blob", URL: "/api/v1/blobs/1", ContentType: "text/plain", Bytes: 5}}
	m := answer(r, "key", "trace").msg
	d := m.Metadata
	if m.RequestId != "key" || m.Traceparent != "trace" || m.Version != 1 || m.InvocationId != someID || m.CallId != "call-1" ||
		!reflect.DeepEqual(m.Outputs, map[string]string{"html": `"<b>"`, "n": "9007199254740993"}) || m.PollingInfo != nil ||
		d.ExecutionTimeMs != 15 || d.TimestampMs != uint64(r.EndedAt.UnixMilli()) || d.ToolVersion != "1.2.0" || !d.CacheHit || d.RetryCount != 2 ||
		d.OverheadUs != 300 || !d.StartedAt.AsTime().Equal(at) || d.NetworkBytesSent != 10 || d.NetworkBytesReceived != 20 || d.CostUsd != 0.25 ||
		d.Source != "cache" || d.GetCacheAgeS() != 1.5 || !d.Truncated || len(d.Attachments) != 1 || d.Attachments[0].Bytes != 5 || d.Warnings[0] != "E3006: move on" {
		t.Errorf("%v", m)
	}
	a := answer(&toolkeep.Result{InvocationID: someID, State: toolkeep.CallQueued}, "", "")
	if a.msg.Status != l03v1.ToolInvocationResult_PENDING || a.msg.PollingInfo.StatusUrl != "/api/v1/invocations/"+someID || a.trailer != nil ||
		a.msg.Metadata.Source != "" || a.msg.Metadata.CacheAgeS != nil {
		t.Errorf("%v", a)
	}
	for output, form := range map[string]string{`[1]`: "bare", `"x"`: "bare", `{}`: "", "": "none", `{"a":`: "bare"} {
		r := succeeded()
		r.Output = []byte(output)
		if a := answer(r, "", ""); strings.Join(a.trailer["x-output-form"], "") != form {
			t.Errorf("%s: %v", output, a.trailer)
		}
	}
	failed := &toolkeep.Result{State: toolkeep.CallFailed, Error: toolkeep.NewError(toolkeep.UpstreamServerError, "no").With("status", 500).After(time.Second)}
	if m := answer(failed, "", "").msg; m.ErrorMessage != "E3520 upstream_server_error: no (try again after 1s)" {
		t.Errorf("%q", m.ErrorMessage)
	}
	e := answer(failed, "", "").msg.Error
	if e.Code != "E3520" || e.Name != "upstream_server_error" || e.Details.AsMap()["status"] != 500.0 || e.RetryAfterS != 1 || !e.Retryable {
		t.Errorf("%v", e)
	}
}
