package rpc

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// Bounds of what a caller may request, in seconds: a timeout of a week, and a lifetime of
// a cached result.
const (
	maxSeconds  = 7 * 24 * 3600
	maxCacheTTL = uint32(toolkeep.MaxCacheTTL / time.Second)
)

// reader fills a Call from a message and its metadata. The first fault becomes the call's Fault and
// reading continues, so that the record of the refused call is complete.
type reader struct {
	s    *Server
	req  *request
	msg  *l03v1.ToolInvocationRequest
	call *toolkeep.Call
}

// readCall never fails: errors become the call's Fault.
func (s *Server) readCall(req *request, msg *l03v1.ToolInvocationRequest) *toolkeep.Call {
	r := &reader{s: s, req: req, msg: msg, call: &toolkeep.Call{Face: "grpc"}}
	if r.fault(undecoded(msg)); r.call.Fault != nil {
		return r.call
	}
	if n := proto.Size(msg); int64(n) > s.limits.BodyBytes {
		r.fault(toolkeep.NewError(toolkeep.RequestTooLarge, "the message has %d bytes; at most %d are allowed", n, s.limits.BodyBytes).
			With("limit_bytes", s.limits.BodyBytes))
		return r.call
	}
	s.gate.Call(req.headers, r.call)
	r.fields()
	r.unsupported()
	if r.call.Fault == nil {
		r.arguments()
	}
	return r.call
}

func (r *reader) fault(err *toolkeep.Error) {
	if err != nil && r.call.Fault == nil {
		r.call.Fault = err
	}
}

func (r *reader) malformed(format string, args ...any) {
	r.fault(toolkeep.NewError(toolkeep.MalformedRequest, format, args...))
}

func (r *reader) fields() {
	c, m := r.call, r.msg
	if v := m.GetVersion(); v > 1 {
		r.fault(toolkeep.NewError(toolkeep.APIVersionUnsupported, "message version %d is not known; this server speaks version 1", v))
	}
	r.text(&c.Tool, m.GetToolId(), "tool_id")
	if c.Tool == "" {
		r.malformed("tool_id is missing: send namespace.name")
	}
	r.text(&c.Range, m.GetToolVersion(), "tool_version")
	r.text(&c.ID, m.GetInvocationId(), "invocation_id")
	r.text(&c.Parent, m.GetParentInvocationId(), "parent_invocation_id")
	if key := m.GetRequestId(); key != "" && c.Key != "" && key != c.Key {
		r.fault(toolkeep.NewError(toolkeep.InvalidParameters, "request_id and the metadata idempotency-key mean the same and have different values; send one of them"))
	} else {
		r.text(&c.Key, key, "request_id")
	}
	r.text(&c.Subject, m.GetAgentId(), "agent_id")
	a := m.GetAgentContext()
	r.text(&c.Subject, a.GetAgentDid(), "agent_context.agent_did")
	r.text(&c.Tenant, a.GetTenantId(), "agent_context.tenant_id")
	r.text(&c.User, a.GetUserDid(), "agent_context.user_did")
	r.text(&c.Session, a.GetSessionId(), "agent_context.session_id")
	r.text(&c.Plan, m.GetContext().GetPlanId(), "context.plan_id")
	r.text(&c.Task, m.GetContext().GetTaskId(), "context.task_id")
	r.seconds(&c.Timeout, m.GetTimeoutSeconds(), maxSeconds, "timeout_seconds")
	r.seconds(&c.Timeout, m.GetResourceLimits().GetTimeoutSeconds(), maxSeconds, "resource_limits.timeout_seconds")
	r.seconds(&c.CacheTTL, m.GetCacheOverrideTtl(), maxCacheTTL, "cache_override_ttl")
	c.Async, c.SkipCache, c.RequireApproval = m.GetAsyncMode(), m.GetSkipCache(), m.GetRequireApproval()
	switch m.GetPriority() {
	case l03v1.ToolInvocationRequest_PRIORITY_UNSPECIFIED:
	case l03v1.ToolInvocationRequest_LOW:
		c.Priority = toolkeep.Low
	case l03v1.ToolInvocationRequest_NORMAL:
		c.Priority = toolkeep.Normal
	case l03v1.ToolInvocationRequest_HIGH:
		c.Priority = toolkeep.High
	default:
		r.malformed("priority %d is not known; use LOW, NORMAL or HIGH", m.GetPriority())
	}
}

// unsupported refuses options this build does not support; values that request nothing pass.
func (r *reader) unsupported() {
	m := r.msg
	l, k := m.GetResourceLimits(), m.GetCheckpointConfig()
	switch {
	case l.GetCpuMillicoreLimit() != 0, l.GetMemoryMbLimit() != 0, l.GetNetworkBandwidthMbps() != 0, l.GetDiskMbLimit() != 0:
		r.missing("resource_limits", "limits of a sandbox (all but timeout_seconds)")
	case len(m.GetDocumentContext().GetDocumentRefs()) > 0, m.GetDocumentContext().GetVersionPinning(), m.GetDocumentContext().GetQuery() != "":
		r.missing("document_context", "document context")
	case k.GetCheckpointIntervalSeconds() != 0 && k.GetCheckpointIntervalSeconds() != 30, k.GetResumeFromCheckpointId() != "":
		r.missing("checkpoint_config", "checkpoints")
	case m.GetSandboxContext() != nil && proto.Size(m.GetSandboxContext()) > 0:
		r.missing("sandbox_context", "a parent sandbox")
	case len(m.GetContext().GetEnv()) > 0:
		r.missing("context.env", "an environment for the tool")
	}
}

func (r *reader) missing(field, what string) {
	r.fault(toolkeep.NewError(toolkeep.MalformedRequest, "%s is not in this build: leave %s out", what, field).With("field", field))
}

// arguments fills Call.Arguments from inputs or from parameters.
func (r *reader) arguments() {
	m := r.msg
	var err *toolkeep.Error
	switch {
	case m.GetParameters() != nil && len(m.GetInputs()) > 0:
		r.malformed("inputs and parameters mean the same: send one of them")
	case m.GetParameters() != nil:
		r.call.Arguments, err = joinParameters(m.GetParameters())
	case len(m.GetInputs()) > 0:
		r.call.Arguments, err = joinInputs(m.GetInputs(), r.isText())
	}
	r.fault(err)
}

// isText consults the tool's schema, but only once a value is not JSON. For a tool the caller
// cannot have every value is a string: the pipeline refuses the call because of the tool.
func (r *reader) isText() func(string) bool {
	var ask func(string) bool
	return func(name string) bool {
		if ask == nil {
			p := r.req.principal
			v, _, err := r.s.c.Catalog.Find(p, r.call.Tool, r.call.Range, r.s.visible(p))
			if err == nil {
				v.Tool, err = v.Tool.Whole()
			}
			if err != nil {
				ask = func(string) bool { return true }
			} else {
				ask = textual(v.Tool.Manifest.ParametersSchema)
			}
		}
		return ask(name)
	}
}

// text sets a value that another field or the metadata may already have set. The pipeline checks
// its length and characters.
func (r *reader) text(to *string, v, name string) {
	switch {
	case v == "":
	case *to != "" && *to != v:
		r.malformed("%s and another field or the metadata for the same have different values", name)
	default:
		*to = v
	}
}

// seconds sets a duration that another field may already have set; 0 is the tool's own.
func (r *reader) seconds(to *time.Duration, v, most uint32, name string) {
	d := time.Duration(v) * time.Second
	switch {
	case v == 0:
	case v > most:
		r.malformed("%s must be at most %d seconds", name, most)
	case *to != 0 && *to != d:
		r.malformed("%s and another field for the same have different values", name)
	default:
		*to = d
	}
}
