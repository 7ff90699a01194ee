package access

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestWorkspaceOfAKey: a key's workspace is its principal's, also after Refresh, and
// only an administrator can create keys of another workspace.
func TestWorkspaceOfAKey(t *testing.T) {
	a := open(t, Config{Roles: []Role{{Name: "clerk", Permissions: []string{toolkeep.PermKeys}}}})
	root := &toolkeep.Principal{Tenant: "acme", Subject: "root", Roles: []string{Admin}, Permissions: []string{"*"}, Workspace: "own"}
	clerk := &toolkeep.Principal{Tenant: "acme", Subject: "clerk", Roles: []string{"clerk", Agent}, Permissions: []string{toolkeep.PermKeys}, Workspace: "billing"}
	spec := func(workspace string) toolkeep.APIKey {
		return toolkeep.APIKey{Subject: "bot", Roles: []string{Agent}, Workspace: workspace}
	}
	for _, tt := range []struct {
		by        *toolkeep.Principal
		workspace string
		code      toolkeep.Code
	}{
		{root, "billing", ""}, {root, "", ""},
		{clerk, "billing", ""}, {clerk, "", toolkeep.PermissionDenied}, {clerk, "sales", toolkeep.PermissionDenied},
		{root, " x", toolkeep.InputValidationFailed}, {root, "a\x00", toolkeep.InputValidationFailed}, {root, strings.Repeat("x", maxSubject+1), toolkeep.InputValidationFailed},
	} {
		_, text, err := a.CreateKey(t.Context(), tt.by, spec(tt.workspace))
		if tt.code != "" {
			is(t, err, tt.code)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "192.0.2.1"))
		if p.Workspace != tt.workspace {
			t.Errorf("the key's workspace is %q, want %q", p.Workspace, tt.workspace)
		}
		kept := *p
		kept.Workspace = "what a row says"
		if p := must[*toolkeep.Principal](t)(a.Refresh(t.Context(), &kept)); p.Workspace != tt.workspace {
			t.Errorf("refreshed it is %q, want %q", p.Workspace, tt.workspace)
		}
	}
}

// TestWorkspaceOfAToken: the claim counts only if it is configured.
func TestWorkspaceOfAToken(t *testing.T) {
	s := listen(t)
	for claim, want := range map[string]string{"": "", "team": "billing"} {
		c := s.config()
		c.WorkspaceClaim = claim
		a := open(t, Config{OAuth: c, Clock: (&clock{}).Now})
		p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), s.token(t, map[string]any{"team": "billing"}), addr))
		if p.Workspace != want {
			t.Errorf("claim %q gives %q", claim, p.Workspace)
		}
		if p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), s.token(t, nil), addr)); p.Workspace != "" {
			t.Errorf("without the claim it is %q", p.Workspace)
		}
		_, err := a.Authenticate(t.Context(), s.token(t, map[string]any{"team": 7}), addr)
		if (err == nil) != (claim == "") {
			t.Errorf("a claim that is not text: %v", err)
		}
	}
}
