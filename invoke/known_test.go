package invoke

import (
	"testing"

	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret"
)

// TestWhoKnowsASecret: whoever may choose a secret's value can have it taken out of the
// results of those alone whom the secret concerns.
func TestWhoKnowsASecret(t *testing.T) {
	for _, tt := range []struct {
		scope                 secret.Scope
		own, tenant, stranger bool // whose results are cleaned of it
	}{
		{secret.User, true, false, false},
		{"", true, false, false}, // it was not read to the end
		{secret.Workspace, true, true, false},
		{secret.Organisation, true, true, false},
		{secret.Server, true, true, true},
	} {
		t.Run(string(tt.scope), func(t *testing.T) {
			p := &Pipeline{Config: Config{Redact: redact.NewSecrets(nil), Logs: redact.NewSecrets(nil)}}
			call := func(tenant string) *known { return &known{all: p.Redact, tenant: p.ofTenant(tenant)} }
			own, neighbour, stranger := call("a"), call("a"), call("b")
			below := &known{all: own, tenant: p.ofTenant("a")}
			release := p.hold(own, tt.scope, []string{"importance"})
			p.hold(own, tt.scope, []string{"another one"})
			const text = "a message of importance"
			for k, want := range map[*known]bool{own: tt.own, below: tt.own, neighbour: tt.tenant, stranger: tt.stranger} {
				value, _ := k.CleanValue([]any{text}).([]any)
				if cleaned := k.Clean(text) != text; cleaned != want || (value[0] != text) != want {
					t.Errorf("cleaned: %t and %v, want %t", cleaned, value, want)
				}
			}
			log := p.Logs.Clean(p.Redact.Clean(text))
			if log == text {
				t.Error("the log holds it")
			}
			release()
			if own.Clean(text) == text {
				t.Error("the call does not know it any more")
			}
		})
	}
}
