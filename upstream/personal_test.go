package upstream

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// TestPersonalSecrets: for an agent that acts for several people or workspaces, each
// call uses the matching secret.
func TestPersonalSecrets(t *testing.T) {
	var mu sync.Mutex
	var last string
	b := newWeb(t, func(_ http.ResponseWriter, r *http.Request, m *mcp.Message) bool {
		if m != nil && m.Method == mcp.MethodCallTool {
			mu.Lock()
			last = r.Header.Get("X-Key")
			mu.Unlock()
		}
		return false
	})
	c := httpConfig(t)
	c.Secrets = resolver(func(_ context.Context, p *toolkeep.Principal, _ string) (Value, error) {
		return Value{Text: "key-of-" + p.Tenant + "-" + p.Workspace + "-" + p.Subject + "-" + p.OnBehalf}, nil
	})
	spec := httpSpec(b.URL)
	spec.Session = SessionPrincipal
	spec.Headers = map[string]string{"X-Key": "secret://k"}
	s := start(t, c, spec)
	for range 2 {
		for want, p := range map[string]*toolkeep.Principal{
			"key-of-acme--alice-":        alice(),
			"key-of-acme--alice-carol":   {Tenant: "acme", Subject: "alice", OnBehalf: "carol"},
			"key-of-acme--alice-dave":    {Tenant: "acme", Subject: "alice", OnBehalf: "dave"},
			"key-of-acme-w-alice-":       {Tenant: "acme", Subject: "alice", Workspace: "w"},
			"key-of-globex--carol-alice": {Tenant: "globex", Subject: "carol", OnBehalf: "alice"},
		} {
			call(t, s, toolCall(p, "x", ""))
			mu.Lock()
			if last != want {
				t.Errorf("%s was sent for %+v", last, p)
			}
			mu.Unlock()
		}
	}
}

// TestSharedSessionHasTheTenantsSecrets: a shared session uses no personal secret.
func TestSharedSessionHasTheTenantsSecrets(t *testing.T) {
	b := newWeb(t, nil)
	c := httpConfig(t)
	c.Secrets = resolver(func(_ context.Context, p *toolkeep.Principal, _ string) (Value, error) {
		if p.Subject != "" || p.OnBehalf != "" || p.Workspace != "" {
			t.Errorf("a shared session asked as %+v", p)
		}
		return Value{Text: "key"}, nil
	})
	spec := httpSpec(b.URL)
	spec.Headers = map[string]string{"X-Key": "secret://k"}
	s := start(t, c, spec)
	call(t, s, toolCall(&toolkeep.Principal{Tenant: "acme", Subject: "alice", OnBehalf: "carol", Workspace: "w"}, "x", ""))
}
