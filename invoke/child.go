package invoke

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

// childKey is the prefix of children's idempotency keys; no caller may send it.
const childKey = "\x1fchild:"

// child is the Invoker that a tool gets to call other tools, with the same principal,
// deadline and budget. Its calls are keyed by parent and ordinal, so that a resumed or
// retried parent gets the recorded results.
type child struct {
	p      *Pipeline
	parent *prepared
	ctx    context.Context // of the parent's call
	calls  atomic.Int32
	hold   bulkhead.Hold // the places of the parent's attempt
}

// Invoke runs a call below the parent's. A parent whose child ended while both waited for
// their slots gets its own before it goes on.
func (c *child) Invoke(ctx context.Context, _ *toolkeep.Principal, call *toolkeep.Call) (*toolkeep.Result, error) {
	up := c.parent
	own := *call
	own.Parent = up.id
	own.Ordinal = int(c.calls.Add(1))
	own.Key = childKey + own.Parent + ":" + strconv.Itoa(own.Ordinal)
	own.ID, own.Async, own.Face = "", false, "child"
	own.Session, own.Traceparent, own.Tracestate = up.call.Session, up.call.Traceparent, up.call.Tracestate
	own.Subject, own.Tenant, own.User = "", "", ""
	own.Token, own.Grant = "", up.call.Grant // what narrows the parent narrows what it calls
	defer func() {
		up.slots.Await(c.ctx)
		c.hold.Retake()
	}()
	return c.p.carry(ctx, &activeCall{asked: asked{mode: modeChild, principal: up.principal, call: &own, from: up.from, began: c.p.Clock(),
		composition: up.composition, above: up.slots, within: &c.hold, ancestors: append(slices.Clone(up.ancestors), up.tool.ID), cleaner: up.cleaner.Below()}})
}
