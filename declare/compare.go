package declare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
)

// Action is what a step does.
type Action string

const (
	Add    Action = "add"
	Change Action = "change"
	Remove Action = "remove"
)

// Kinds of steps. A role and a secret are in Plan.ByHand alone.
const (
	KindTool   = "tool"
	KindServer = "server"
	KindKey    = "key"
	KindRole   = "role"
	KindSecret = "secret"
)

// Step is one difference between the folder and the server.
type Step struct {
	Action Action `json:"action,omitempty"`
	Kind   string `json:"kind"`
	ID     string `json:"id"`
	How    string `json:"how"`

	KeyID string   `json:"key_id,omitempty"` // of a key
	Scope []string `json:"scope,omitempty"`
	At    Place    `json:"-"` // of a key, in the folder
}

// Plan is all that differs.
type Plan struct {
	Folder string   `json:"folder"`
	Steps  []Step   `json:"steps"`   // in the order in which they are carried out
	ByHand []Step   `json:"by_hand"` // what has to be there first, with what makes it; nothing is carried out meanwhile
	Other  []Step   `json:"other"`   // what apply does not change
	Same   int      `json:"same"`    // tools, servers, keys and roles that are as the folder says
	Notes  []string `json:"notes"`
	Faults []Fault  `json:"errors"` // with any, the rest is not whole
}

// Differs reports whether the server is not as the folder says.
func (p *Plan) Differs() bool { return len(p.Steps)+len(p.ByHand)+len(p.Other) > 0 }

// Now is what the server has of what a folder names.
type Now struct {
	Tools   []catalog.Published // outcomes of a dry run of all manifests, those of imports too
	Servers map[string]string   // how the definitions of the folder compare with the stored ones: new, changed or same
	Roles   []access.Role
	// RolesFile is the server's file of roles, "" if the setting access.roles_file is not set.
	RolesFile string
	Missing   []Missing
	Keys      []Held
	// Left is what an earlier apply of the folder made and the folder does not have: servers by name, tools as ID@VERSION.
	LeftServers, LeftTools []string
	// Above are versions, as ID@VERSION, that are called before the folder's own and were not applied from it.
	Above []string
	// Unaccepted are MCP servers as in the folder whose tools all wait to be accepted.
	Unaccepted []string
}

// Missing is a reference that is not there.
type Missing struct {
	Secret
	Reason string
}

// Held is a valid API key of the server.
type Held struct {
	ID, Subject, Name string
	Scope             []string
	Successor         string // another key takes its place
}

// Compare makes the plan. Keys come first, so that no key reaches a new tool that its scope is to exclude, and removals last.
// Without prune, what is left is told and stays.
func Compare(f *Folder, now Now, prune bool) *Plan {
	p := &Plan{Folder: f.Name, Steps: []Step{}, ByHand: []Step{}, Other: []Step{}, Notes: []string{}, Faults: append([]Fault{}, f.Faults...)}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line, strings.Compare(a.Message, b.Message))
	})
	for _, m := range now.Missing {
		p.ByHand = append(p.ByHand, Step{Kind: KindSecret, ID: m.Reference, How: m.command() + " (" + m.Reason + ")"})
	}
	p.roles(f, now)
	p.keys(f, now)
	for _, t := range now.Tools {
		step := Step{Action: Add, Kind: KindTool, ID: t.ToolID + "@" + t.Version, How: t.Bump}
		switch {
		case t.Restored:
			step.How = string(t.State) + " again: it was pruned"
		case !t.Created:
			p.Same++
			if t.State != toolkeep.Active {
				p.Notes = append(p.Notes, fmt.Sprintf("%s is %s, which apply does not change; toolkeep lifecycle does", step.ID, t.State))
			}
			continue
		case t.Bump != "new":
			step.Action = Change
		}
		for _, v := range t.Deprecated {
			step.How += ", " + v + " becomes deprecated: too many versions are active"
		}
		for _, w := range t.Warnings {
			p.Notes = append(p.Notes, t.ToolID+": "+w.Message)
		}
		p.Steps = append(p.Steps, step)
	}
	for _, id := range now.Above {
		p.Other = append(p.Other, Step{Kind: KindTool, ID: id, How: "is called before the version of the folder, and was not applied from it: put it into the folder, or use toolkeep lifecycle"})
	}
	for _, name := range now.Unaccepted {
		p.Other = append(p.Other, Step{Kind: KindServer, ID: name, How: "none of its tools is published: toolkeep servers accept " + name})
	}
	for _, s := range f.Servers {
		switch now.Servers[s.Name] {
		case "same":
			p.Same++
		case "new":
			p.Steps = append(p.Steps, Step{Action: Add, Kind: KindServer, ID: s.Name, How: "its tools are published and pinned"})
		default:
			p.Steps = append(p.Steps, Step{Action: Change, Kind: KindServer, ID: s.Name, How: "its definition; tools that change are held"})
		}
	}
	for _, left := range []struct {
		kind, how string
		ids       []string
	}{{KindServer, "its tools are blocked", now.LeftServers}, {KindTool, "blocked; it comes back when the folder has it again", now.LeftTools}} {
		for _, id := range left.ids {
			if prune {
				p.Steps = append(p.Steps, Step{Action: Remove, Kind: left.kind, ID: id, How: left.how})
			}
		}
		if n := len(left.ids); n > 0 && !prune {
			what := "1 " + left.kind + " that the folder has no more stays, "
			if n > 1 {
				what = fmt.Sprintf("%d %ss that the folder has no more stay, such as ", n, left.kind)
			}
			p.Notes = append(p.Notes, what+left.ids[0]+"; --prune removes what is left")
		}
	}
	return p
}

// command says what makes a secret.
func (s Secret) command() string {
	scheme, rest, _ := strings.Cut(s.Reference, "://")
	switch {
	case scheme == "env":
		return "set the variable " + rest + " in the server's environment"
	case scheme == "file":
		return "write the file " + rest + " on the server"
	case scheme == "vault":
		return "write " + rest + " in Vault"
	case s.Scope == "workspace" && s.Workspace != "":
		return "toolkeep secrets set " + rest + " --workspace " + quoted(s.Workspace) + " < FILE"
	case s.Scope == "workspace":
		return "toolkeep secrets set " + rest + " --scope workspace < FILE"
	}
	return "toolkeep secrets set " + rest + " --scope organisation < FILE"
}

// quoted is a word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (p *Plan) roles(f *Folder, now Now) {
	where := "to the server's roles, in the setting access.roles or the file of access.roles_file"
	if now.RolesFile != "" {
		where = "to " + now.RolesFile + " on the server, its file of roles"
	}
	for _, want := range f.Roles {
		i := slices.IndexFunc(now.Roles, func(r access.Role) bool { return r.Name == want.Name })
		if i < 0 {
			p.ByHand = append(p.ByHand, Step{Kind: KindRole, ID: want.Name, How: "it is not there: add it " + where})
			continue
		}
		if differ := differing(now.Roles[i], want); len(differ) > 0 {
			p.ByHand = append(p.ByHand, Step{Kind: KindRole, ID: want.Name, How: "differs in " + strings.Join(differ, ", ") + ": change it on the server, in " + cmp.Or(now.RolesFile, "the file of access.roles_file") + " or in the setting access.roles, wherever it is"})
		} else {
			p.Same++
		}
	}
}

// differing returns the members in which two roles differ, sorted.
func differing(a, b access.Role) (names []string) {
	var x, y map[string]json.RawMessage
	for v, to := range map[*access.Role]*map[string]json.RawMessage{&a: &x, &b: &y} {
		raw, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(raw, to)
		}
		if err != nil {
			return []string{err.Error()}
		}
	}
	for name := range x {
		if string(x[name]) != string(y[name]) {
			names = append(names, name)
		}
	}
	for name := range y {
		if x[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (p *Plan) keys(f *Folder, now Now) {
	for _, want := range f.Keys {
		what := want.Subject
		if want.Name != "" {
			what += " (" + want.Name + ")"
		}
		var found []Held
		lasting := 0
		for _, k := range now.Keys {
			if k.Subject == want.Subject && k.Name == want.Name {
				found = append(found, k)
				if k.Successor == "" {
					lasting++
				}
			}
		}
		if lasting > 1 {
			p.Faults = append(p.Faults, Fault{want.Place, fmt.Sprintf("%d valid keys are of %s: give keys of one subject different names, or revoke all but one", lasting, what)})
			continue
		}
		if len(found) == 0 {
			how := "there is no such key: toolkeep keys create " + quoted(want.Subject)
			if want.Name != "" {
				how += " --name " + quoted(want.Name)
			}
			for _, s := range want.Scope {
				how += " --scope " + quoted(s)
			}
			p.ByHand = append(p.ByHand, Step{Kind: KindKey, ID: what, How: how + ", with its roles as --role"})
		}
		for _, k := range found {
			if slices.Equal(slices.Sorted(slices.Values(k.Scope)), slices.Sorted(slices.Values(want.Scope))) {
				p.Same++
				continue
			}
			p.Steps = append(p.Steps, Step{Action: Change, Kind: KindKey, ID: what, How: "scope " + scopeText(k.Scope) + " to " + scopeText(want.Scope),
				KeyID: k.ID, Scope: append([]string{}, want.Scope...), At: want.Place})
		}
	}
}

func scopeText(scope []string) string {
	if len(scope) == 0 {
		return "all tools"
	}
	return strings.Join(scope, ",")
}
