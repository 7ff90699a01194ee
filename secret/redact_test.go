package secret

import (
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// TestRedactionScope: a secret is redacted only from the results in its scope.
func TestRedactionScope(t *testing.T) {
	for _, tt := range []struct {
		scope                 Scope
		own, tenant, stranger bool // whose results are redacted
	}{
		{User, true, false, false},
		{"", true, false, false}, // it was not fully read
		{Workspace, true, true, false},
		{Organisation, true, true, false},
		{Server, true, true, true},
	} {
		t.Run(string(tt.scope), func(t *testing.T) {
			c := redact.NewRedactor(nil)
			own := &toolkeep.Principal{Tenant: "a", Subject: "agent", OnBehalf: "ann", Workspace: "w"}
			release := c.Hold(tt.scope.RedactionScope(own), "importance")
			c.Hold(tt.scope.RedactionScope(own), "another one")
			const text = "a message of importance"
			for _, who := range []struct {
				p    toolkeep.Principal
				want bool
			}{
				{*own, tt.own},
				{toolkeep.Principal{Tenant: "a", Subject: "ann"}, tt.own},
				{toolkeep.Principal{Tenant: "a", Subject: "agent"}, tt.tenant},
				{toolkeep.Principal{Tenant: "a", Subject: "agent", OnBehalf: "bob"}, tt.tenant},
				{toolkeep.Principal{Tenant: "b", Subject: "ann"}, tt.stranger},
			} {
				v := c.For(&who.p)
				value, _ := v.CleanValue([]any{text}).([]any)
				if cleaned := v.Clean(text) != text; cleaned != who.want || (value[0] != text) != who.want {
					t.Errorf("%+v: cleaned %t and %v, want %t", who.p, cleaned, value, who.want)
				}
			}
			if c.Log().Clean(text) == text {
				t.Error("the log holds it")
			}
			release()
			if c.For(own).Clean(text) == text {
				t.Error("its end is not waited for")
			}
		})
	}
}
