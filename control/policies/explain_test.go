package policies

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// eventStore keeps the events that it is given, or fails.
type eventStore struct {
	events []toolkeep.Event
	fails  error
}

func (s *eventStore) Apply(_ context.Context, changes ...toolkeep.Change) error {
	for _, c := range changes {
		s.events = append(s.events, c.(toolkeep.AppendEvent).Event)
	}
	return s.fails
}

// fakeExplainer answers with what it was asked.
type fakeExplainer struct{ asked []string }

func (f *fakeExplainer) ExplainAs(_ context.Context, asker, as *toolkeep.Principal, c *toolkeep.Call) (any, error) {
	f.asked = append(f.asked, asker.Subject+" as "+as.Subject+"/"+as.KeyID+" "+strings.Join(as.Roles, ",")+" "+c.Tool+"@"+c.Range+" "+string(c.Arguments))
	return len(f.asked), nil
}

// TestExplain: a subject's call is explained with each of its valid keys to who has keys:admin and sees the tool, and an
// event says so; without the event there is no answer.
func TestExplain(t *testing.T) {
	s := newSystem(t, "")
	store, explainer := &eventStore{}, &fakeExplainer{}
	s.c.Store, s.c.Explainer = store, explainer
	call := toolkeep.Call{Tool: "mail.send", Range: "1.0.0", Arguments: []byte(`{"a":1}`)}
	list, err := s.Explain(t.Context(), admin, "mallory", "", call)
	if err != nil || len(list) != 2 || list[0].KeyID != "mallory1" || list[1].KeyID != "mallory2" || list[1].Explanation != 2 || list[0].Roles[0] != "agent" {
		t.Fatalf("%+v %v", list, err)
	}
	want(t, explainer.asked, `admin as mallory/mallory1 agent mail.send@1.0.0 {"a":1}`, `admin as mallory/mallory2 admin mail.send@1.0.0 {"a":1}`)
	if list, err = s.Explain(t.Context(), admin, "cat", "cat", call); err != nil || len(list) != 1 || list[0].Scope[0] != "mail.*" {
		t.Errorf("%+v %v", list, err)
	}
	if len(store.events) != 2 || store.events[0].Type != "ai.agent.auth.explained" || store.events[0].Tenant != "default" ||
		string(store.events[0].Data) != `{"by":"admin","ip_address":"","subject":"mallory","tool_id":"mail.send","tool_version":"1.0.0"}` {
		t.Errorf("events %+v", store.events)
	}
	agent := &toolkeep.Principal{Subject: "ann", Tenant: "default", Roles: []string{"agent"}}
	warden := &toolkeep.Principal{Subject: "warden", Tenant: "default", Roles: []string{"agent"}, Permissions: []string{toolkeep.PermKeys}} // does not see shop.order
	stranger := &toolkeep.Principal{Subject: "stranger", Tenant: "acme", Roles: []string{"admin"}, Permissions: []string{"*"}}
	order := toolkeep.Call{Tool: "shop.order"}
	for _, x := range []struct {
		p            *toolkeep.Principal
		subject, key string
		call         toolkeep.Call
		code         toolkeep.Code
	}{
		{agent, "ann", "", call, toolkeep.PermissionDenied},
		{warden, "mallory", "", order, toolkeep.ToolNotFound},
		{warden, "mallory", "", toolkeep.Call{Tool: "no.such"}, toolkeep.ToolNotFound},
		{stranger, "ann", "", call, toolkeep.ResourceNotFound}, // keys of another tenant
		{admin, "dan", "", call, toolkeep.ResourceNotFound},    // revoked
		{admin, "ann", "bob", call, toolkeep.ResourceNotFound},
	} {
		if _, err := s.Explain(t.Context(), x.p, x.subject, x.key, x.call); !toolkeep.IsCode(err, x.code) {
			t.Errorf("%s for %s %s: %v, want %s", x.p.Subject, x.subject, x.call.Tool, err, x.code)
		}
	}
	if len(store.events) != 2 || len(explainer.asked) != 3 {
		t.Errorf("a refused look has %d events and %d questions", len(store.events)-2, len(explainer.asked)-3)
	}
	store.fails = errors.New("full")
	if _, err := s.Explain(t.Context(), admin, "ann", "", call); !toolkeep.IsCode(err, toolkeep.RecordUnavailable) || len(explainer.asked) != 3 {
		t.Errorf("without an event: %v", err)
	}
}
