package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
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

// askHash is SHA-256 over the reference as asked, the arguments before coercion, and
// for which workspace and person: a kept answer may hold what only those may see.
func askHash(p *toolkeep.Principal, c *toolkeep.Call, args map[string]any) [32]byte {
	b := make([]byte, 0, 512)
	b = append(b, c.Tool...)
	b = append(b, '@')
	b = append(b, c.Range...)
	b = append(b, '\n')
	b = canon.Append(b, args)
	if p.Workspace != "" || p.OnBehalf != "" {
		b = append(b, '\n')
		for _, s := range [...]string{p.Workspace, p.OnBehalf} {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
		}
	}
	return sha256.Sum256(b)
}
