package invoke

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/toolkeep/toolkeep"
)

// childKey begins the idempotency keys of children; no caller may send it.
const childKey = "\x1fchild:"

const faceChild = "child"

// child is the Invoker that a tool gets to call other tools: same principal,
// deadline and budget. Its calls are keyed by parent and ordinal, so that a
// parent that is resumed, or tried again, gets the recorded results.
type child struct {
	p      *Pipeline
	parent *flight
	calls  atomic.Int32
}

// Invoke carries out a call below the parent's.
func (c *child) Invoke(ctx context.Context, _ *toolkeep.Principal, call *toolkeep.Call) (*toolkeep.Result, error) {
	own := *call
	own.Parent = c.parent.row.ID
	own.Ordinal = int(c.calls.Add(1))
	own.Key = childKey + own.Parent + ":" + strconv.Itoa(own.Ordinal)
	own.ID, own.Async, own.Face = "", false, faceChild
	own.Session, own.Traceparent = c.parent.call.Session, c.parent.call.Traceparent
	own.Subject, own.Tenant, own.User = "", "", ""
	f := &flight{
		p: c.p, gate: taking{c.p}, principal: c.parent.principal, call: &own, began: c.p.Clock(),
		root: c.parent.root, clean: c.parent.clean.Below(), chain: append(slices.Clone(c.parent.chain), c.parent.tool().ID),
	}
	return c.p.carry(ctx, f)
}

func (f *flight) isChild() bool { return f.call.Face == faceChild }
