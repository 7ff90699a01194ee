package declare

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
)

func role(name string, tools ...string) access.Role {
	return access.Role{Name: name, Allow: []access.Rule{{Tools: tools}}}
}

// TestCompare: keys come first and removals last, and what is the same is in no step.
func TestCompare(t *testing.T) {
	t.Parallel()
	f := &Folder{Name: "shop", Servers: []Server{{Name: "new"}, {Name: "same"}, {Name: "other"}},
		Roles: []access.Role{role("same", "a.*"), role("differs", "a.*"), role("missing", "a.*")},
		Keys: []Key{{Subject: "same", Scope: []string{"a.*", "b.*"}}, {Subject: "bot", Name: "ci", Scope: []string{}}, {Subject: "nobot", Name: "it's", Scope: []string{"a.*"}},
			{Place: Place{File: Main, Line: 7}, Subject: "two", Scope: []string{}}, {Subject: "rotated", Scope: []string{"x.*"}}}}
	now := Now{
		Tools: []catalog.Published{{ToolID: "a.same", Version: "1.0.0", State: toolkeep.Active, Warnings: []toolkeep.Warning{{Message: "told before"}}}, {ToolID: "a.new", Version: "1.0.0", Bump: "new", Created: true},
			{ToolID: "a.more", Version: "1.1.0", Bump: "minor", Created: true, Warnings: []toolkeep.Warning{{Message: "not honoured"}}, Deprecated: []string{"0.1.0"}},
			{ToolID: "a.back", Version: "1.0.0", Restored: true, State: toolkeep.Active}, {ToolID: "a.off", Version: "1.0.0", State: toolkeep.Blocked}},
		Servers: map[string]string{"new": "new", "same": "same", "other": "changed"},
		Roles:   []access.Role{role("same", "a.*"), {Name: "differs", Description: "d", Allow: []access.Rule{{Tools: []string{"b.*"}}}}, role("unasked", "x.*")},
		Missing: []Missing{{Secret{Reference: "secret://x"}, "it is missing"}, {Secret{Reference: "env://X"}, "it is missing"}, {Secret{Reference: "secret://w", Scope: "workspace", Workspace: "b c"}, "it is expired"}},
		Keys: []Held{{ID: "k1", Subject: "same", Scope: []string{"b.*", "a.*"}}, {ID: "k2", Subject: "bot", Name: "ci", Scope: []string{"a.*"}}, {ID: "k3", Subject: "bot", Scope: []string{"z.*"}},
			{ID: "k4", Subject: "two"}, {ID: "k5", Subject: "two"}, {ID: "k6", Subject: "rotated", Successor: "k7"}, {ID: "k7", Subject: "rotated"}},
		LeftServers: []string{"gone"}, LeftTools: []string{"a.gone@1.0.0", "a.gone@2.0.0"}, Above: []string{"a.same@1.1.0"}, Unaccepted: []string{"same"},
	}
	short := func(steps []Step) (out []string) {
		for _, s := range steps {
			out = append(out, string(s.Action)+" "+s.Kind+" "+s.ID+s.KeyID+": "+s.How)
		}
		return out
	}
	p := Compare(f, now, true)
	want := []string{
		"change key bot (ci)k2: scope a.* to all tools", "change key rotatedk6: scope all tools to x.*", "change key rotatedk7: scope all tools to x.*",
		"add tool a.new@1.0.0: new", "change tool a.more@1.1.0: minor, 0.1.0 becomes deprecated: too many versions are active", "add tool a.back@1.0.0: active again: it was pruned",
		"add server new: its tools are published and pinned", "change server other: its definition; tools that change are held",
		"remove server gone: its tools are blocked", "remove tool a.gone@1.0.0: blocked; it comes back when the folder has it again", "remove tool a.gone@2.0.0: blocked; it comes back when the folder has it again",
	}
	if got := short(p.Steps); !slices.Equal(got, want) {
		t.Errorf("steps %q", got)
	}
	byHand := []string{
		" secret secret://x: toolkeep secrets set x --scope organisation < FILE (it is missing)", " secret env://X: set the variable X in the server's environment (it is missing)",
		" secret secret://w: toolkeep secrets set w --workspace 'b c' < FILE (it is expired)",
		" role differs: differs in allow, description: change it on the server, in the file of access.roles_file or in the setting access.roles, wherever it is",
		" role missing: it is not there: add it to the server's roles, in the setting access.roles or the file of access.roles_file",
		` key nobot (it's): there is no such key: toolkeep keys create 'nobot' --name 'it'\''s' --scope 'a.*', with its roles as --role`,
	}
	if got := short(p.ByHand); !slices.Equal(got, byHand) {
		t.Errorf("by hand %q", got)
	}
	if other := short(p.Other); len(other) != 2 || !strings.HasPrefix(other[0], " tool a.same@1.1.0: is called before the version of the folder") || other[1] != " server same: none of its tools is published: toolkeep servers accept same" {
		t.Errorf("other %q", other)
	}
	if len(p.Faults) != 1 || p.Faults[0].String() != "toolkeep.yaml:7: 2 valid keys are of two: give keys of one subject different names, or revoke all but one" {
		t.Errorf("%v", p.Faults)
	}
	if notes := []string{"a.more: not honoured", "a.off@1.0.0 is blocked, which apply does not change; toolkeep lifecycle does"}; !slices.Equal(p.Notes, notes) || p.Same != 5 || !p.Differs() {
		t.Errorf("%q, %d the same", p.Notes, p.Same)
	}

	now.RolesFile = "/etc/roles.yaml"
	p = Compare(f, now, false)
	if got := short(p.Steps); !slices.Equal(got, want[:len(want)-3]) || p.ByHand[3].How != "differs in allow, description: change it on the server, in /etc/roles.yaml or in the setting access.roles, wherever it is" || p.ByHand[4].How != "it is not there: add it to /etc/roles.yaml on the server, its file of roles" {
		t.Errorf("%q %q", got, short(p.ByHand))
	}
	if n := len(p.Notes); n != 4 || p.Notes[2] != "1 server that the folder has no more stays, gone; --prune removes what is left" || p.Notes[3] != "2 tools that the folder has no more stay, such as a.gone@1.0.0; --prune removes what is left" {
		t.Errorf("%q", p.Notes)
	}
	if !Compare(&Folder{}, Now{Above: []string{"a.b@1.0.0"}}, true).Differs() {
		t.Error("what is called before the folder's own is no difference")
	}
	if p := Compare(&Folder{}, Now{}, true); p.Differs() {
		t.Errorf("%+v", p)
	}
}
