package rest

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
)

// Audit finds and verifies what was recorded.
type Audit interface {
	Find(ctx context.Context, f audit.Filter) (list []*audit.Entry, next string, err error)
	Verify(ctx context.Context, q audit.Query) (*audit.Report, error)
	Keys(ctx context.Context) ([]audit.SigningKey, error)
	Segments(ctx context.Context, tenant, cursor string, limit int) (list []audit.Segment, next string, err error)
}

func (a *API) auditRoutes() {
	a.erasureRoutes()
	if a.c.Audit == nil {
		return
	}
	list := op("GET", "/api/v1/audit/events", "listAuditEvents", tagCalls, "Read what was recorded: calls that ended and events, newest first")
	list.description = "One request looks at 5,000 entries at most: a page may have fewer entries than its size, or none, and go on at `next`."
	register(a, list, toolkeep.PermInvocations, a.listAudit)
	verify := op("GET", "/api/v1/audit/verify", "verifyAudit", tagCalls, "Compare what was recorded with its hashes and the signed checkpoints")
	verify.description = "It answers within about 20 s with what it came to; `next` is the cursor to go on with."
	register(a, verify, toolkeep.PermInvocations, a.verifyAudit)
	segments := op("GET", "/api/v1/audit/archive", "listAuditSegments", tagCalls, "List the segments of the archive, oldest first, and read each")
	segments.description = "It answers within about 10 s with what it came to; `next` is the cursor to go on with."
	register(a, segments, toolkeep.PermInvocations, a.listAuditSegments)
	register(a, op("GET", "/api/v1/audit/keys", "listAuditKeys", tagCalls, "List the public keys that sign checkpoints"), toolkeep.PermInvocations, a.listAuditKeys)
}

type listAuditInput struct {
	Since    string `query:"since" format:"date-time" doc:"at or after"`
	Until    string `query:"until" format:"date-time" doc:"before"`
	AgentID  string `query:"agent_id" maxLength:"4096" doc:"only of this agent"`
	ToolID   string `query:"tool_id" maxLength:"4096" doc:"only of this tool"`
	Type     string `query:"type" maxLength:"128" doc:"only events of this type, such as ai.agent.tool.failed, or its end, such as failed or auth.failed"`
	Decision string `query:"decision" enum:"allowed,refused,failed" doc:"only what was decided so; failed was allowed"`
	ID       string `query:"id" maxLength:"4096" doc:"only the entry with this id, which a call has from its invocation"`
	Archive  bool   `query:"archive" doc:"search the archive, and not what the store has; by day and segment, newest first"`
	Cursor   string `query:"cursor" maxLength:"4096" doc:"next of the page before"`
	PageSize int    `query:"page_size" minimum:"1" maximum:"200" default:"50" doc:"entries a page"`
}

// AuditEntry names the schema in the document.
type AuditEntry struct {
	*audit.Entry
	Data object `json:"data" doc:"what happened, redacted as it was recorded"`
}

type listAuditOutput struct {
	Body struct {
		Events  []AuditEntry     `json:"events" doc:"CloudEvents 1.0"`
		Next    string           `json:"next,omitempty" doc:"cursor of the next page"`
		LeftOut []LeftOutSegment `json:"left_out,omitempty" doc:"segments of the archive whose entries are not in the list, as they have a fault; 100 at most"`
	} `nameHint:"AuditEventList"`
}

// maxLeftOut is the most segments that a page says are left out.
const maxLeftOut = 100

// LeftOutSegment is a segment of the archive that has a fault.
type LeftOutSegment struct {
	Segment string `json:"segment" doc:"its path"`
	Fault   string `json:"fault"`
}

func (a *API) listAudit(ctx context.Context, p *toolkeep.Principal, in *listAuditInput) (*listAuditOutput, error) {
	f := audit.Filter{Tenant: p.Tenant, Agent: in.AgentID, Tool: a.toolID(p, in.ToolID), Type: in.Type, Decision: in.Decision, ID: in.ID, Before: in.Cursor, Archive: in.Archive, Limit: in.PageSize}
	// The schema has checked both formats.
	f.Since, _ = time.Parse(time.RFC3339, in.Since)
	f.Until, _ = time.Parse(time.RFC3339, in.Until)
	out := &listAuditOutput{}
	f.LeftOut = func(segment string, err error) {
		if len(out.Body.LeftOut) < maxLeftOut {
			out.Body.LeftOut = append(out.Body.LeftOut, LeftOutSegment{segment, err.Error()})
		}
	}
	list, next, err := a.c.Audit.Find(ctx, f)
	if err != nil {
		return nil, err
	}
	out.Body.Events, out.Body.Next = make([]AuditEntry, len(list)), next
	for i, e := range list {
		out.Body.Events[i] = AuditEntry{e, object(e.Data)}
	}
	return out, nil
}

type verifyAuditInput struct {
	Since   string `query:"since" format:"date-time" doc:"begin at the first checkpoint from then on; without it, where retention keeps all"`
	Archive bool   `query:"archive" doc:"verify the archive, and not what the store has"`
	Cursor  string `query:"cursor" maxLength:"32" doc:"next of the report before"`
}

type verifyAuditOutput struct{ Body audit.Report }

func (a *API) verifyAudit(ctx context.Context, p *toolkeep.Principal, in *verifyAuditInput) (*verifyAuditOutput, error) {
	q := audit.Query{Tenant: p.Tenant, Cursor: in.Cursor, Archive: in.Archive}
	q.Since, _ = time.Parse(time.RFC3339, in.Since)
	r, err := a.c.Audit.Verify(ctx, q)
	if err != nil {
		return nil, err
	}
	return &verifyAuditOutput{*r}, nil
}

type listAuditSegmentsInput struct {
	Cursor   string `query:"cursor" maxLength:"256" doc:"next of the page before"`
	PageSize int    `query:"page_size" minimum:"1" maximum:"100" default:"50" doc:"segments a page"`
}

type listAuditSegmentsOutput struct {
	Body struct {
		Segments []audit.Segment `json:"segments"`
		Next     string          `json:"next,omitempty" doc:"cursor of the next page"`
	} `nameHint:"AuditSegmentList"`
}

func (a *API) listAuditSegments(ctx context.Context, p *toolkeep.Principal, in *listAuditSegmentsInput) (*listAuditSegmentsOutput, error) {
	list, next, err := a.c.Audit.Segments(ctx, p.Tenant, in.Cursor, in.PageSize)
	if err != nil {
		return nil, err
	}
	out := &listAuditSegmentsOutput{}
	out.Body.Segments, out.Body.Next = append([]audit.Segment{}, list...), next
	return out, nil
}

type listAuditKeysOutput struct {
	Body struct {
		Keys []audit.SigningKey `json:"keys"`
	} `nameHint:"AuditKeyList"`
}

func (a *API) listAuditKeys(ctx context.Context, _ *toolkeep.Principal, _ *struct{}) (*listAuditKeysOutput, error) {
	keys, err := a.c.Audit.Keys(ctx)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the store cannot be read now").Because(err)
	}
	out := &listAuditKeysOutput{}
	out.Body.Keys = keys
	return out, nil
}
