package rest

import (
	"context"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/breakers"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// fakeBreakers answers with what it was asked.
type fakeBreakers []breakers.Breaker

func (f fakeBreakers) List(*toolkeep.Principal) ([]breakers.Breaker, error) { return f, nil }

func (f fakeBreakers) Show(_ *toolkeep.Principal, id string, shared bool) (breakers.Breaker, error) {
	if id == "tool:lost" {
		return breakers.Breaker{}, toolkeep.NewError(toolkeep.ResourceNotFound, "none")
	}
	return breakers.Breaker{ID: id, Shared: shared, State: breaker.Open}, nil
}

func (f fakeBreakers) Do(_ context.Context, p *toolkeep.Principal, id string, shared bool, action, reason string) (breakers.Breaker, error) {
	return breakers.Breaker{ID: id, Shared: shared, State: breaker.ForcedOpen, By: p.Subject, Reason: action + " " + reason}, nil
}

func TestBreakers(t *testing.T) {
	s := newSystem()
	s.Breakers = fakeBreakers{{ID: "tool:a", State: breaker.Open}, {ID: "tool:b", State: breaker.Closed}}
	w := s.do(t, "GET", "/api/v1/breakers?page=2&page_size=1", "")
	wantStatus(t, w, 200)
	if m := decode(t, w); m["total_count"] != number("2") || len(m["breakers"].([]any)) != 1 || m["breakers"].([]any)[0].(map[string]any)["breaker"] != "tool:b" {
		t.Errorf("%v", m)
	}
	w = s.do(t, "GET", "/api/v1/breakers/host:x%2Fy", "")
	wantStatus(t, w, 200)
	if m := decode(t, w); m["breaker"] != "host:x/y" || m["state"] != "open" || m["shared"] != nil {
		t.Errorf("%v", m)
	}
	for _, method := range []string{"GET", "POST"} {
		body := map[string]string{"POST": `{"action":"open"}`}[method]
		if m := decode(t, s.do(t, method, "/api/v1/breakers/tool:a?shared=true", body)); m["shared"] != true {
			t.Errorf("%s: %v", method, m)
		}
	}
	problem(t, s.do(t, "GET", "/api/v1/breakers/tool:lost", ""), toolkeep.ResourceNotFound)
	w = s.do(t, "POST", "/api/v1/breakers/tool:a", `{"action":"open","reason":"a migration"}`)
	wantStatus(t, w, 200)
	if m := decode(t, w); m["reason"] != "open a migration" || m["state"] != "forced_open" {
		t.Errorf("%v", m)
	}
	problem(t, s.do(t, "POST", "/api/v1/breakers/tool:a", `{"action":"explode"}`), toolkeep.InvalidParameters)
}
