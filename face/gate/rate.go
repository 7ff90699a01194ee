package gate

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Requests are the limits of requests; *limit.Limits implements it.
type Requests interface {
	// TakeRequest takes one request of the limits of the agent, of its tenant and of the server, and returns the one with the
	// fewest left. E3801.
	TakeRequest(ctx context.Context, p *toolkeep.Principal) (toolkeep.RateLeft, error)
}

// Count takes a request that is no call from its caller's limits, or, for a browser's session, from those of the console; those of calls the pipeline takes. Faces ask it of what an agent
// may do without a permission, before anything is read or recorded for it, and tell in the answer what is left, or what refuses.
// What an operator does, and what follows a call that was counted, is not: it must be possible while agents have used up the
// limits. E3801.
func (g *Gate) Count(ctx context.Context, p *toolkeep.Principal) (toolkeep.RateLeft, error) {
	if g.requests == nil {
		return toolkeep.RateLeft{}, nil
	}
	take := g.requests.TakeRequest
	if by, ok := g.requests.(interface {
		TakeConsole(context.Context, *toolkeep.Principal) (toolkeep.RateLeft, error)
	}); ok && p.Console != nil {
		take = by.TakeConsole
	}
	left, err := take(ctx, p)
	if e := toolkeep.AsError(err); e != nil {
		left = e.Rate
		if g.limited != nil {
			g.limited(p, e)
		}
	}
	return left, err
}

// RateHeaders tells in RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers) what a limit has left: its name, r
// requests, all of them again in t seconds; q requests in w seconds. Nothing without a limit.
func RateHeaders(h http.Header, left toolkeep.RateLeft) {
	if left.Kind != "" {
		state, policy := rate(left)
		h["Ratelimit"], h["Ratelimit-Policy"] = []string{state}, []string{policy}
	}
}

// RateMetadata is RateHeaders for gRPC; nil without a limit.
func RateMetadata(left toolkeep.RateLeft) map[string][]string {
	if left.Kind == "" {
		return nil
	}
	state, policy := rate(left)
	return map[string][]string{"ratelimit": {state}, "ratelimit-policy": {policy}}
}

func rate(left toolkeep.RateLeft) (state, policy string) {
	var b [64]byte
	v := append(append(append(b[:0], '"'), left.Kind...), `";r=`...)
	v = append(strconv.AppendInt(v, int64(max(left.Left, 0)), 10), ";t="...)
	state = string(strconv.AppendInt(v, int64((max(left.Reset, 0)+time.Second-1)/time.Second), 10))
	v = append(append(append(b[:0], '"'), left.Kind...), `";q=`...)
	return state, string(append(strconv.AppendInt(v, int64(left.PerMinute), 10), ";w=60"...))
}
