package breakers_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/breakers"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/store/sqlite"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// tools are those of a catalogue, by id, with their tenants.
type tools map[string]string

func (c tools) Find(p *toolkeep.Principal, tool, _ string, _ func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	tenant, ok := c[tool]
	if p.Tenant == "" && tool == "shop.both" {
		tenant = ""
	}
	if !ok {
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "none")
	}
	return toolkeep.Version{Tool: &toolkeep.Tool{ID: tool, Tenant: tenant}}, nil, nil
}

func TestBreakers(t *testing.T) {
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	source := breaker.New(breaker.Config{Store: store, Node: "n", Home: "default"})
	s := &breakers.Breakers{Source: source, Catalog: tools{"shop.find": "acme", "std.hash": "", "shop.both": "default"}}
	may := func(tenant string) *toolkeep.Principal {
		return &toolkeep.Principal{Tenant: tenant, Subject: "eve", Permissions: []string{toolkeep.PermOperate}}
	}
	ctx := t.Context()
	is := func(what string, err error, code toolkeep.Code) {
		t.Helper()
		if !toolkeep.IsCode(err, code) {
			t.Errorf("%s: %v, want %s", what, err, code)
		}
	}
	agent := &toolkeep.Principal{Tenant: "acme", Subject: "a"}
	_, err = s.List(agent)
	is("an agent lists", err, toolkeep.PermissionDenied)
	_, err = s.Show(agent, "tool:shop.find", false)
	is("an agent looks", err, toolkeep.PermissionDenied)
	_, err = s.Do(ctx, agent, "tool:shop.find", false, breakers.Open, "")
	is("an agent opens", err, toolkeep.PermissionDenied)
	_, err = s.Do(ctx, may("acme"), "tool:shop.lost", false, breakers.Open, "")
	is("a tool that is none", err, toolkeep.ResourceNotFound)
	_, err = s.Do(ctx, may("acme"), "host:x", false, breakers.Open, "")
	is("a host that is not known", err, toolkeep.ResourceNotFound)
	_, err = s.Do(ctx, may("other"), "tool:shop.find", false, breakers.Open, "")
	is("another tenant's tool", err, toolkeep.ResourceNotFound)
	_, err = s.Do(ctx, may("acme"), "tool:std.hash", false, breakers.Open, "")
	is("a shared tool", err, toolkeep.ResourceNotFound)
	_, err = s.Do(ctx, may("acme"), "tool:shop.find", false, "explode", "")
	is("another action", err, toolkeep.InvalidParameters)
	_, err = s.Do(ctx, may("acme"), "tool:shop.find", false, breakers.Open, strings.Repeat("x", 1001))
	is("a long reason", err, toolkeep.InvalidParameters)

	for _, c := range []struct {
		p      *toolkeep.Principal
		id     string
		action string
		want   breaker.State
	}{
		{may("acme"), "tool:shop.find", breakers.Open, breaker.ForcedOpen}, {may("acme"), "tool:shop.find", breakers.Close, breaker.ForcedClosed},
		{may("acme"), "tool:shop.find", breakers.Reset, breaker.Closed}, {may("default"), "tool:std.hash", breakers.Open, breaker.ForcedOpen},
	} {
		b, err := s.Do(ctx, c.p, c.id, false, c.action, "because")
		if err != nil || b.State != c.want || b.ID != c.id {
			t.Errorf("%s of %s: %+v, %v", c.action, c.id, b, err)
		}
		if again, err := s.Show(c.p, c.id, false); err != nil || again != b {
			t.Errorf("shown as %+v, %v", again, err)
		}
	}
	// A tool of the tenant default and a shared one have the same id.
	both := []struct {
		shared bool
		action string
		want   breaker.State
	}{{true, breakers.Open, breaker.ForcedOpen}, {false, breakers.Close, breaker.ForcedClosed}}
	for _, c := range both {
		if b, err := s.Do(ctx, may("default"), "tool:shop.both", c.shared, c.action, ""); err != nil || b.Shared != c.shared || b.State != c.want {
			t.Errorf("%s: %+v, %v", c.action, b, err)
		}
	}
	for _, c := range both {
		if b, err := s.Show(may("default"), "tool:shop.both", c.shared); err != nil || b.Shared != c.shared || b.State != c.want {
			t.Errorf("shown as %+v, %v", b, err)
		}
	}
	_, err = s.Show(may("acme"), "tool:std.hash", true)
	is("a shared breaker for another tenant", err, toolkeep.ResourceNotFound)
	for _, shared := range []bool{true, false} {
		if _, err := s.Do(ctx, may("default"), "tool:shop.both", shared, breakers.Reset, ""); err != nil {
			t.Error(err)
		}
	}
	if g := source.Of(&toolkeep.Tool{ID: "std.hash", Manifest: &toolkeep.Manifest{}}, ""); g.Look() == nil {
		t.Error("a shared tool that is forced open is called")
	}
	if list, err := s.List(may("acme")); err != nil || len(list) != 1 || list[0].State != breaker.Closed {
		t.Errorf("its tenant sees %+v, %v", list, err)
	}
	if list, err := s.List(may("default")); err != nil || len(list) != 3 || !list[0].Shared || list[0].By != "eve" || list[0].Reason != "because" {
		t.Errorf("the operator sees %+v, %v", list, err)
	}
	var kinds []string
	for _, e := range storetest.Entries(ctx, t, store) {
		if e.Event != nil {
			kinds = append(kinds, e.Event.Tenant+" "+strings.TrimPrefix(e.Event.Type, "ai.agent.circuit."))
			if !strings.Contains(string(e.Event.Data), `"agent_did":"eve"`) {
				t.Errorf("an event with %s", e.Event.Data)
			}
		}
	}
	if got := strings.Join(kinds, ", "); got != "acme opened, acme closed, acme closed, default opened, default opened, default closed, default closed, default closed" {
		t.Errorf("the events are %s", got)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Do(ctx, may("acme"), "tool:shop.find", false, breakers.Open, "")
	is("a store that is closed", err, toolkeep.RecordUnavailable)
}
