package audit

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Decisions of entries.
const (
	Allowed = "allowed"
	Refused = "refused"
	Failed  = "failed" // allowed, and then it failed
)

// Entry is an entry as a CloudEvent of version 1.0.
type Entry struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject,omitempty" doc:"the call or the tool"`
	Time        time.Time       `json:"time"`
	ContentType string          `json:"datacontenttype"`
	Schema      string          `json:"dataschema"`
	Tenant      string          `json:"tenantid"`
	Writer      int64           `json:"chainwriter" doc:"who wrote the entry: one run of one process"`
	Number      int64           `json:"chainnumber" doc:"its number among the writer's entries"`
	Hash        string          `json:"chainhash,omitempty" doc:"its hash, hex; an entry from before the chain has none"`
	Data        json.RawMessage `json:"data"`

	call *toolkeep.Invocation
	who  who
}

// who is what entries are found by.
type who struct {
	Agent  string `json:"agent_did"`
	Agent2 string `json:"agent_id"`
	Agent3 string `json:"subject"`
	Tool   string `json:"tool_id"`
	Code   string `json:"error_code"`
	Result string `json:"decision"` // of a read or an approval; other events have other words there
}

// callData is the data of a call's end.
type callData struct {
	InvocationID string             `json:"invocation_id"`
	Agent        string             `json:"agent_did"`
	User         string             `json:"user_did,omitempty"`
	Actor        string             `json:"actor_did,omitempty"`
	Chain        []string           `json:"caller_chain,omitempty"`
	Tenant       string             `json:"tenant_id"`
	Session      string             `json:"session_id,omitempty"`
	Parent       string             `json:"parent_invocation_id,omitempty"`
	ToolID       string             `json:"tool_id"`
	ToolVersion  string             `json:"tool_version,omitempty"`
	Digest       string             `json:"tool_digest,omitempty"`
	State        string             `json:"state"`
	Decision     string             `json:"decision"`
	AllowedBy    []string           `json:"allowed_by,omitempty"`
	Code         string             `json:"error_code,omitempty"`
	Name         string             `json:"error_name,omitempty"`
	Message      string             `json:"message,omitempty"`
	Details      json.RawMessage    `json:"details,omitempty"`
	Face         string             `json:"face,omitempty"`
	KeyID        string             `json:"key_id,omitempty"`
	Address      string             `json:"ip_address,omitempty"`
	UserAgent    string             `json:"user_agent,omitempty"`
	Certificate  string             `json:"tls_cert_fingerprint,omitempty"`
	CallID       string             `json:"call_id,omitempty"`
	Writes       bool               `json:"writes"`
	Sent         bool               `json:"sent"`
	Cached       bool               `json:"cache_hit"`
	Attempts     int                `json:"attempts"`
	StartedAt    *time.Time         `json:"started_at,omitempty"`
	CreatedAt    time.Time          `json:"created_at"`
	DurationMS   float64            `json:"duration_ms"`
	OutputBytes  int                `json:"output_bytes"`
	Parameters   json.RawMessage    `json:"parameters,omitempty"`
	Summary      string             `json:"result_summary,omitempty"`
	PriorTools   []string           `json:"prior_tools_in_session,omitempty"`
	Fallback     *toolkeep.Fallback `json:"fallback,omitempty"`
	Erased       bool               `json:"erased,omitempty"`
	Unreadable   bool               `json:"unreadable,omitempty"`
}

// eventDecided tells of an approval, whose decision is approved, denied or expired.
const eventDecided = "ai.agent.tool.approval.decided"

// source and schema of all events: see contracts/wire.md.
const (
	source = "tool-execution-layer"
	schema = "https://toolkeep.dev/schemas/events/1"
)

// decision of a call that ended.
func decision(v *toolkeep.Invocation) string {
	switch v.State {
	case toolkeep.CallSucceeded:
		return Allowed
	case toolkeep.CallRefused:
		return Refused
	}
	return Failed
}

// NewEntry returns an entry of the journal as it is shown.
func NewEntry(l *toolkeep.Link, e *toolkeep.Entry) (*Entry, error) {
	out := &Entry{SpecVersion: "1.0", ID: l.Ref, Source: source, Time: e.At.UTC(), ContentType: "application/json", Schema: schema,
		Tenant: l.Tenant, Writer: l.Writer, Number: l.Seq, Hash: hexOf(l.Hash)}
	if e.Event != nil {
		out.Type, out.Data = e.Event.Type, e.Event.Data
		if !e.Event.Time.IsZero() {
			out.Time = e.Event.Time.UTC()
		}
		if len(out.Data) == 0 {
			out.Data = json.RawMessage("{}")
		}
		_ = json.Unmarshal(out.Data, &out.who) // what it does not have cannot be searched for
		out.Subject = out.who.Tool
		return out, nil
	}
	v := e.Call
	d := callData{InvocationID: v.ID, Agent: v.Subject, User: v.OnBehalf, Actor: v.Actor, Chain: v.Chain, Tenant: v.Tenant, Session: v.Session, Parent: v.Parent,
		ToolID: v.ToolID, ToolVersion: v.Version, Digest: v.Digest, State: string(v.State), Decision: decision(v), AllowedBy: v.AllowedBy(), Code: string(v.Code),
		Message: v.Message, Details: v.Details, Face: v.Face, KeyID: v.KeyID, Address: v.Addr, UserAgent: v.UserAgent, Certificate: v.Certificate, CallID: v.CallID, Writes: v.Writes, Sent: v.Sent, Cached: v.Cached,
		Attempts: v.Attempts, CreatedAt: v.CreatedAt.UTC(), DurationMS: float64(v.TotalUS) / 1000, OutputBytes: v.OutputSize, Parameters: v.Input, Summary: v.ResultSummary, PriorTools: v.PriorTools, Fallback: v.Fallback,
		Erased: v.Withheld == toolkeep.Erased, Unreadable: v.Withheld == toolkeep.Unreadable}
	if v.Code != "" {
		d.Name = v.Code.Info().Name
	}
	if !v.StartedAt.IsZero() {
		d.StartedAt = &v.StartedAt
	}
	raw, err := json.Marshal(d)
	out.Type, out.Data, out.Subject, out.call = v.EventType(), raw, v.ID, v
	out.who = who{Agent: v.Subject, Tool: v.ToolID, Code: string(v.Code)}
	return out, err
}

// Decision says how the entry's matter was decided.
func (e *Entry) Decision() string {
	if e.call != nil {
		return decision(e.call)
	}
	switch {
	case e.Type == EventRead:
		return e.who.Result
	case strings.HasSuffix(e.Type, "denied"), strings.HasSuffix(e.Type, ".failed"), e.Type == eventDecided && (e.who.Result == "denied" || e.who.Result == "expired"):
		return Refused
	}
	return Allowed
}

func (e *Entry) agent() string {
	for _, s := range []string{e.who.Agent, e.who.Agent2, e.who.Agent3} {
		if s != "" {
			return s
		}
	}
	return ""
}
