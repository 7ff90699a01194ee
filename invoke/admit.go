package invoke

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/resultcache"
)

// admit checks what came in and looks at what its key already got.
func (p *Pipeline) admit(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	c := f.call
	f.describe()
	if f.worker {
		return nil, p.reopen(f)
	}
	if p.draining.Load() && !f.isChild() { // a call under way goes on, with all that it calls
		return nil, toolkeep.NewError(toolkeep.Draining, "this node is shutting down; send the call again").After(1e9)
	}
	if c.Fault != nil {
		f.shorten(p.KeyBytes)
		return nil, c.Fault
	}
	if err := p.admitIDs(ctx, f); err != nil {
		f.shorten(p.KeyBytes)
		return nil, err
	}
	acting, err := p.Access.ActingAs(f.principal, c)
	if err != nil {
		return nil, err
	}
	f.principal = acting
	f.row.Subject, f.row.OnBehalf = acting.Subject, acting.OnBehalf
	if err := f.gate.takeRequest(f); err != nil {
		return nil, err
	}
	if f.asked, err = canon.ParseObject(c.Arguments, p.Arguments); err != nil {
		return nil, err
	}
	if c.Key == "" {
		return nil, nil
	}
	f.row.AskHash = askHash(acting, c, f.asked)
	f.kept, err = p.Invocations.ByKey(ctx, acting.Tenant, acting.Subject, c.Key)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the idempotency key cannot be looked up now; nothing was executed").Because(err)
	}
	return nil, nil
}

// describe fills the row with what is known before anything was decided.
func (f *flight) describe() {
	c, pr := f.call, f.principal
	if f.worker {
		return
	}
	f.row = toolkeep.Invocation{
		ID: newID(), Tenant: pr.Tenant, Subject: pr.Subject, OnBehalf: pr.OnBehalf, KeyID: pr.KeyID,
		Session: c.Session, Plan: c.Plan, Task: c.Task, Face: c.Face,
		ToolID: c.Tool, Range: c.Range, Key: c.Key, ArgsSize: len(c.Arguments),
		Async: c.Async, Priority: c.Priority, Parent: c.Parent, Ordinal: c.Ordinal,
		Traceparent: c.Traceparent, SkipCache: c.SkipCache, CacheTTL: c.CacheTTL, Timeout: c.Timeout,
		CreatedAt: f.began, StartedAt: f.began,
	}
	if f.row.Priority == "" {
		f.row.Priority = toolkeep.Normal
	}
}

// shorten cuts what a refused call asked for to what a record may hold.
func (f *flight) shorten(limit int) {
	row := &f.row
	for _, s := range [...]*string{&row.ToolID, &row.Range, &row.Session, &row.Plan, &row.Task, &row.Parent, (*string)(&row.Priority)} {
		if len(*s) > limit {
			*s = (*s)[:limit]
		}
		*s = strings.ReplaceAll(strings.ToValidUTF8(*s, "\uFFFD"), "\x00", "\uFFFD")
	}
}

func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // the system's random source is gone
	}
	return id.String()
}

func (p *Pipeline) admitIDs(ctx context.Context, f *flight) error {
	c := f.call
	for _, s := range [...]struct{ name, value string }{
		{"tool_id", c.Tool}, {"tool_version", c.Range}, {"idempotency_key", c.Key}, {"session_id", c.Session},
		{"plan_id", c.Plan}, {"task_id", c.Task}, {"parent_invocation_id", c.Parent}, {"invocation_id", c.ID},
		{"agent_id", c.Subject}, {"tenant_id", c.Tenant}, {"user_did", c.User},
	} {
		if len(s.value) > p.KeyBytes {
			return toolkeep.NewError(toolkeep.RequestTooLarge, "%s has %d bytes; at most %d are allowed", s.name, len(s.value), p.KeyBytes)
		}
		if !utf8.ValidString(s.value) || strings.ContainsRune(s.value, 0) {
			return toolkeep.NewError(toolkeep.InvalidEncoding, "%s is not UTF-8 text without NUL", s.name)
		}
	}
	if c.Tool == "" {
		return toolkeep.NewError(toolkeep.MissingParameter, "tool_id is missing: name the tool as namespace.name")
	}
	switch c.Priority {
	case "", toolkeep.Low, toolkeep.Normal, toolkeep.High:
	default:
		return toolkeep.NewError(toolkeep.InvalidParameters, "priority is %q; use low, normal or high", string(c.Priority))
	}
	if strings.HasPrefix(c.Key, childKey) && c.Face != faceChild {
		return toolkeep.NewError(toolkeep.InvalidParameters, "the idempotency key begins with a control character")
	}
	if c.ID == "" {
		return nil
	}
	// The parser also takes forms that would not do in a URL; those are longer or shorter.
	if _, err := uuid.Parse(c.ID); err != nil || len(c.ID) != len(uuid.Nil.String()) {
		return toolkeep.NewError(toolkeep.InvalidParameters, "invocation_id is not a UUID; leave it out to have one made")
	}
	if f.looks() {
		return nil
	}
	_, err := p.Invocations.Get(ctx, toolkeep.CallRef{Tenant: f.row.Tenant, ID: c.ID})
	switch {
	case errors.Is(err, toolkeep.ErrNotFound):
		f.row.ID = c.ID
	case err != nil:
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the record of calls cannot be read now; nothing was executed").Because(err)
	}
	return nil // a wish that is taken is not fulfilled
}

// resolve finds the one version that the call is about.
func (p *Pipeline) resolve(_ context.Context, f *flight) (*toolkeep.Result, error) {
	v, warnings, err := p.Catalog.Resolve(f.principal, f.call.Tool, f.call.Range, func(t *toolkeep.Tool) bool {
		return p.Access.Visible(f.principal, t)
	})
	if err != nil {
		return nil, err
	}
	f.version, f.warnings = v, warnings
	m := v.Tool.Manifest
	f.row.Version, f.row.Digest, f.row.Category = v.Tool.Version, v.Tool.Digest, m.Category
	f.row.Kind, f.row.Writes = m.Execution.Kind, v.Tool.Writes()
	if _, ok := p.Executors[m.Execution.Kind]; !ok {
		return nil, toolkeep.NewError(toolkeep.SandboxUnavailable, "this build cannot execute tools of kind %s", m.Execution.Kind)
	}
	if err := f.checkChain(); err != nil {
		return nil, err
	}
	return nil, nil
}

// authorise decides, then gives what the key already got: an answer is given
// again only to those who may still call.
func (p *Pipeline) authorise(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	d := p.Access.Authorise(f.principal, f.tool(), f.call)
	f.decision = d
	if !d.Allowed {
		if !f.looks() {
			p.Access.NoteDenied(f.principal)
		}
		return nil, denied(d)
	}
	switch {
	case f.kept == nil || f.worker:
		return nil, nil
	case f.kept.AskHash != f.row.AskHash:
		return nil, keyConflict(f.kept)
	case f.looks():
		return nil, nil
	}
	return p.answerKept(ctx, f)
}

func denied(d access.Decision) *toolkeep.Error {
	e := toolkeep.NewError(d.Code, "%s", d.Reason)
	if d.Code == toolkeep.PermissionDenied {
		e.With("reason", "RBAC_DENIED")
	}
	checks := make([]any, 0, len(d.Checks))
	for _, c := range d.Checks {
		if !c.Allowed {
			checks = append(checks, map[string]any{"check": c.Name, "reason": c.Reason})
		}
	}
	return e.With("checks", checks)
}

// validate coerces, fills defaults and checks; every fault is told at once.
func (p *Pipeline) validate(_ context.Context, f *flight) (*toolkeep.Result, error) {
	t := f.tool()
	if f.asked == nil { // only while looking, after admit refused
		asked, err := canon.ParseObject(f.call.Arguments, p.Arguments)
		if err != nil {
			return nil, err
		}
		f.asked = asked
	}
	s, err := p.Schemas.Get(t.Digest, t.Manifest.ParametersSchema)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the parameters schema of %s cannot be compiled", t.Ref()).Because(err)
	}
	args, faults := s.Prepare(f.asked)
	if len(faults) > 0 {
		f.faults = faults
		// What does not fit is quoted, and may be a password.
		return nil, p.cleaned(argumentError(t, faults), p.hiding(t, f.asked, f.view()))
	}
	f.args = args
	f.row.ArgsHash = canon.Hash(args)
	if f.row.CallID == "" {
		f.row.CallID = canon.CallID(t.ID, t.Version, f.row.ArgsHash, p.sequence.next(f, t))
	}
	return nil, nil
}

// argumentError picks the narrowest code for the faults.
func argumentError(t *toolkeep.Tool, faults []toolkeep.Fault) *toolkeep.Error {
	code, summary := toolkeep.InputValidationFailed, "the arguments do not fit "+t.Ref()
	if len(faults) == 1 {
		switch faults[0].Rule {
		case "required":
			code = toolkeep.MissingParameter
		case "type":
			code = toolkeep.InvalidParameters
		}
		summary += ": " + faults[0].Message
		if faults[0].Pointer != "" {
			summary += " (at " + faults[0].Pointer + ")"
		}
	} else {
		summary += "; details.errors lists every fault"
	}
	return toolkeep.FaultsError(code, summary, faults)
}

// limit reads what the agent adds to the tool, and takes the tool's bucket and a slot. A waiting call takes them when a
// worker carries it.
func (p *Pipeline) limit(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	if err := p.readContext(ctx, f); err != nil {
		return nil, err
	}
	if f.waits() {
		return nil, nil
	}
	return nil, f.gate.take(f)
}

// recall looks for a result that may be given again.
func (p *Pipeline) recall(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	t := f.tool()
	spec := t.Manifest.Cache
	owes, _ := access.NeedsApproval(t, f.call)
	f.cacheable = spec != nil && spec.Policy != "" && spec.Policy != "none" && !t.Writes() && !owes && !f.call.SkipCache
	if !f.cacheable {
		return nil, nil
	}
	hash := f.keyHash()
	if len(t.Manifest.Auth) > 0 {
		if hash, f.cacheable = p.withSecrets(ctx, f, hash); !f.cacheable {
			return nil, nil
		}
	}
	f.cacheKey = resultcache.KeyOf(f.principal, t, hash)
	return f.gate.recall(f), nil
}

// approve stops a call that owes an approval: this build has no approval queue,
// so nobody could decide it.
func (p *Pipeline) approve(_ context.Context, f *flight) (*toolkeep.Result, error) {
	owes, why := access.NeedsApproval(f.tool(), f.call)
	if !owes {
		return nil, nil
	}
	return nil, toolkeep.NewError(toolkeep.ApprovalUnavailable, "%s needs a person's approval (%s) and no approval service is configured", f.tool().Ref(), why).
		With("reason", "ESCALATION_ERROR")
}
