package gate

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

type fakeRequests func() (toolkeep.RateLeft, error)

func (f fakeRequests) TakeRequest(context.Context, *toolkeep.Principal) (toolkeep.RateLeft, error) {
	return f()
}

// TestCount: what is left, or refuses, is in the headers; refusals alone are told.
func TestCount(t *testing.T) {
	refusal := toolkeep.NewError(toolkeep.RateLimitExceeded, "later").Over(toolkeep.RateLeft{Kind: "tenant", PerMinute: 60, Reset: 1500 * time.Millisecond})
	if refusal.Details["limit_type"] != "tenant" || refusal.Details["remaining"] != 0 || refusal.Details["reset_s"] != 2 {
		t.Errorf("%v", refusal.Details)
	}
	for name, tc := range map[string]struct {
		left          toolkeep.RateLeft
		err           error
		state, policy string
	}{
		"admitted": {left: toolkeep.RateLeft{Kind: "agent", PerMinute: 100, Left: 42, Reset: time.Minute}, state: `"agent";r=42;t=60`, policy: `"agent";q=100;w=60`},
		"refused":  {err: refusal, state: `"tenant";r=0;t=2`, policy: `"tenant";q=60;w=60`},
		"no limit": {},
	} {
		var told []*toolkeep.Error
		g := New(Config{Auth: fakeAuth(nil), Requests: fakeRequests(func() (toolkeep.RateLeft, error) { return tc.left, tc.err }),
			Limited: func(_ *toolkeep.Principal, e *toolkeep.Error) { told = append(told, e) }})
		left, err := g.Count(t.Context(), &toolkeep.Principal{})
		h := http.Header{}
		RateHeaders(h, left)
		if h.Get("RateLimit") != tc.state || h.Get("RateLimit-Policy") != tc.policy || (err != nil) != (len(told) == 1) || (err != nil) != (tc.err != nil) {
			t.Errorf("%s: %v, %v, told of %v", name, h, err, told)
		}
		if md := RateMetadata(left); (md == nil) != (tc.state == "") || md != nil && (md["ratelimit"][0] != tc.state || md["ratelimit-policy"][0] != tc.policy) {
			t.Errorf("%s: %v", name, md)
		}
	}
}
