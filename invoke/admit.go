package invoke

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// admit checks the request and looks up its idempotency key.
func (p *Pipeline) admit(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	if a.mode == modeWorker { // the row already holds the call
		return nil, p.reopen(ctx, a)
	}
	c := a.call
	a.row = newRow(&a.asked)
	if p.draining.Load() && a.mode != modeChild && !a.instead { // calls under way go on, including their child calls
		return nil, toolkeep.NewError(toolkeep.Draining, "this node is shutting down; send the call again").After(time.Second)
	}
	if err := p.loaded(a); err != nil {
		return nil, err
	}
	if err := p.admitSignature(ctx, a); err != nil { // it takes no id of the caller's
		shorten(&a.row, p.KeyBytes)
		return nil, err
	}
	if c.Fault != nil {
		shorten(&a.row, p.KeyBytes)
		switch c.Fault.Code {
		case toolkeep.TokenInvalid:
			p.noteDenied(a)
		case toolkeep.ToolNotFound:
			if acting, err := p.Access.ActingAs(a.principal, c); err == nil {
				a.principal = acting
			}
			p.unseen(ctx, a, cmp.Or(c.Meant, c.Tool), c.Range, c.Fault)
		}
		return nil, c.Fault
	}
	if err := p.admitIDs(ctx, a); err != nil {
		shorten(&a.row, p.KeyBytes)
		return nil, err
	}
	if c.Signature == nil { // else admitSignature did
		if err := p.know(ctx, a); err != nil {
			return nil, err
		}
	}
	acting, err := p.Access.ActingAs(a.principal, c)
	if err != nil {
		p.noteDenied(a)
		return nil, err
	}
	if acting.Subject != a.principal.Subject {
		a.from.actor = a.principal.Subject
		a.row.Actor = a.from.actor
	}
	a.principal = acting
	p.nameByID(a)
	c = a.call
	a.row.Subject, a.row.OnBehalf, a.row.Chain = acting.Subject, acting.OnBehalf, acting.Chain
	if c.Key == "" && c.Async {
		if err := p.shed(a); err != nil {
			return nil, err
		}
	}
	if err := p.takeRequest(ctx, a); err != nil {
		return nil, err
	}
	if c.Key != "" {
		a.kept, err = p.Invocations.ByKey(ctx, acting.Tenant, acting.Subject, c.Key)
		if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
			return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the idempotency key cannot be looked up now; nothing was executed").Because(err)
		}
		if err := p.shed(a); err != nil {
			return nil, err
		}
	}
	if a.arguments, err = canon.ParseObject(c.Arguments, p.Arguments); err != nil {
		a.kept = nil // whether they ask for the same is not known
		return nil, err
	}
	if c.Key != "" {
		a.row.AskHash = askHash(acting, c, a.arguments)
	}
	return nil, nil
}

// nameByID replaces the exported name of a tool that exists for the caller by its id, which records and keys of
// idempotency have.
func (p *Pipeline) nameByID(a *activeCall) {
	if strings.Contains(a.call.Tool, ".") || !strings.Contains(a.call.Tool, "__") { // an id, or no name
		return
	}
	seen := p.Access.Sees(a.principal, a.call)
	v, _, err := p.Catalog.Find(a.principal, a.call.Tool, a.call.Range, func(t *toolkeep.Tool) bool { return p.Access.Visible(seen, t) })
	id := ""
	if err == nil {
		id = v.Tool.ID
	} else if e := toolkeep.AsError(err); e.Code != toolkeep.ToolNotFound { // no version of it fits or runs: resolve tells
		id, _ = e.Details["tool_id"].(string)
	}
	if id == "" {
		return
	}
	own := *a.call
	own.Tool = id
	a.call, a.row.ToolID = &own, own.Tool
}

// admitSignature verifies the signature of the call alone, if it has one: before anything counts for
// its caller, of whom it may not be. What is wrong with the message is told before a signature that
// does not match, which counts all the same. What the block of failed signatures refuses has no record.
func (p *Pipeline) admitSignature(ctx context.Context, a *activeCall) error {
	c := a.call
	if c.Signature == nil {
		return nil
	}
	if err := p.know(ctx, a); err != nil {
		return err
	}
	arguments, unread := canon.ParseObject(c.Arguments, p.Arguments)
	err := p.Access.SignedCall(ctx, a.principal, c, arguments)
	a.verified = err == nil
	switch {
	case toolkeep.IsCode(err, toolkeep.AuthFailuresLimited):
		a.unrecorded = true
	case err == nil || !toolkeep.IsCode(err, toolkeep.SignatureInvalid):
	case c.Fault != nil && c.Fault.Code != toolkeep.ToolNotFound: // which tools there are, only its caller is told
		return c.Fault
	case unread != nil:
		return unread
	}
	return err
}

// unverified reports whether the call has a signature of the call alone that is not known to be right:
// then it may not be its caller's, who alone may be told of it.
func (a *activeCall) unverified() bool { return a.call.Signature != nil && !a.verified }

// newRow creates the record with what is known before any decision.
func newRow(a *asked) toolkeep.Invocation {
	c, pr := a.call, a.principal
	row := toolkeep.Invocation{
		ID: newID(), Tenant: pr.Tenant, Subject: pr.Subject, OnBehalf: pr.OnBehalf, Chain: pr.Chain, KeyID: pr.KeyID,
		Addr: a.from.addr, UserAgent: a.from.userAgent, Actor: a.from.actor,
		Session: c.Session, Plan: c.Plan, Task: c.Task, Face: c.Face,
		ToolID: c.Tool, Range: c.Range, Key: c.Key, ArgsSize: len(c.Arguments),
		Async: c.Async, Priority: c.Priority, Parent: c.Parent, Ordinal: c.Ordinal,
		Traceparent: c.Traceparent, TraceID: toolkeep.TraceID(c.Traceparent), SkipCache: c.SkipCache, CacheTTL: c.CacheTTL, Timeout: c.Timeout,
		CreatedAt: a.began, StartedAt: a.began,
	}
	if row.Priority == "" {
		row.Priority = toolkeep.Normal
	}
	if pr.Certificate != nil {
		row.Certificate = canon.Digest(pr.Certificate.Raw)
	}
	return row
}

// shorten cuts a refused call's request to what a record may hold.
func shorten(row *toolkeep.Invocation, limit int) {
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
		panic(err) // the system's random source failed
	}
	return id.String()
}

func (p *Pipeline) admitIDs(ctx context.Context, a *activeCall) error {
	c := a.call
	if c.CacheTTL < 0 || c.CacheTTL > toolkeep.MaxCacheTTL {
		return toolkeep.NewError(toolkeep.MalformedRequest, "cache_override_ttl is %s; it is from 0, which is the tool's own, to %s", c.CacheTTL, toolkeep.MaxCacheTTL)
	}
	for _, s := range [...]struct{ name, value string }{
		{"tool_id", c.Tool}, {"tool_version", c.Range}, {"idempotency_key", c.Key}, {"session_id", c.Session},
		{"plan_id", c.Plan}, {"task_id", c.Task}, {"parent_invocation_id", c.Parent}, {"invocation_id", c.ID},
		{"agent_id", c.Subject}, {"tenant_id", c.Tenant}, {"user_did", c.User},
	} {
		if len(s.value) > p.KeyBytes {
			return toolkeep.NewError(toolkeep.RequestTooLarge, "%s has %d bytes; at most %d are allowed", s.name, len(s.value), p.KeyBytes).
				With("limit_bytes", p.KeyBytes)
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
	if strings.HasPrefix(c.Key, childKey) && a.mode != modeChild {
		return toolkeep.NewError(toolkeep.InvalidParameters, "the idempotency key begins with a control character")
	}
	if c.ID == "" {
		return nil
	}
	// The parser also accepts forms that are unfit for a URL; those differ in length.
	if _, err := uuid.Parse(c.ID); err != nil || len(c.ID) != len(uuid.Nil.String()) {
		return toolkeep.NewError(toolkeep.InvalidParameters, "invocation_id is not a UUID; leave it out to have one made")
	}
	if a.mode == modeDryRun {
		return nil
	}
	err := p.lookUpID(ctx, a)
	switch {
	case err == errAway: // as if it were taken
	case errors.Is(err, toolkeep.ErrNotFound):
		a.row.ID = c.ID
	case err != nil:
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the record of calls cannot be read now; nothing was executed").Because(err)
	}
	return nil // if the requested id is taken, the call gets another
}

// lookUpID looks for a record with the id that the caller chose. A call that needs the store
// anyway waits for it up to rowTimeout, the others up to RecordWait.
func (p *Pipeline) lookUpID(ctx context.Context, a *activeCall) error {
	c := a.call
	get := func(ctx context.Context) error {
		_, err := p.Invocations.Get(ctx, toolkeep.CallRef{Tenant: a.row.Tenant, ID: c.ID})
		return err
	}
	needs := c.Async || c.Key != ""
	if !needs { // resolve finds the tool later, and who may see it
		v, _, err := p.Catalog.Resolve(ctx, a.principal, c.Tool, c.Range, func(*toolkeep.Tool) bool { return true })
		needs = err == nil && v.Tool.Writes()
	}
	if !needs {
		return p.LookUp(ctx, get)
	}
	ctx, cancel := context.WithTimeout(ctx, rowTimeout)
	defer cancel()
	return get(ctx)
}

// takeRequest counts the call, or the dry run, against the limits of requests.
func (p *Pipeline) takeRequest(ctx context.Context, a *activeCall) error {
	if a.mode == modeChild || a.instead || a.asker != nil { // the root call took it, or the principal does not ask
		return nil
	}
	left, err := p.Limits.TakeRequest(ctx, a.principal)
	a.leaves(left, err)
	return err
}

// leaves notes what a limit has left, or that it refuses.
func (a *activeCall) leaves(left toolkeep.RateLeft, err error) {
	a.least = a.least.Least(left)
	if e := toolkeep.AsError(err); e != nil && e.Rate.Kind != "" {
		a.least = e.Rate
	}
}

// tell tells the caller once what the limits have left.
func (a *activeCall) tell() {
	if a.call.Told != nil && !a.told && a.least.Kind != "" {
		a.told = true
		a.call.Told(a.least)
	}
}

// askHash is SHA-256 over the reference as requested, the arguments before coercion,
// the workspace and the person: a stored answer may contain what only they may see.
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
