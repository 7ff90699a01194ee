package access

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Role grants permissions and tools. Deny beats allow, including the allow rules of
// other roles.
type Role struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Inherits    []string `json:"inherits,omitempty"`    // who has the role has these too, and what they inherit
	Tenants     []string `json:"tenants,omitempty"`     // in which alone the role means anything; empty is all
	Permissions []string `json:"permissions,omitempty"` // named rights such as act-as; "*" is all
	Allow       []Rule   `json:"allow,omitempty"`
	Deny        []Rule   `json:"deny,omitempty"`
}

// Rule selects tools; all its conditions must match. A rule needs at least one
// condition.
type Rule struct {
	Tools       []string `json:"tools,omitempty"`        // path.Match patterns on the tool id, any of; empty does not select
	Tags        []string `json:"tags,omitempty"`         // any of
	Categories  []string `json:"categories,omitempty"`   // any of
	SideEffects []string `json:"side_effects,omitempty"` // any of none, reads, writes
	MaxRisk     string   `json:"max_risk,omitempty"`     // low, medium, high; allow rules only
	MinRisk     string   `json:"min_risk,omitempty"`     // low, medium, high; deny rules only
	Actions     []string `json:"actions,omitempty"`      // see, invoke; empty is invoke in an allow rule, both in a deny rule
}

// Actions of rules. A tool that may be called is seen. See alone shows it in the registry's lists to
// who may not call it; denying see also denies invoke.
const (
	See    = "see"
	Invoke = "invoke"
)

// Names of the built-in roles.
const (
	Admin     = "admin"
	Publisher = "publisher"
	Operator  = "operator"
	Agent     = "agent"
	Auditor   = "auditor"
)

// BuiltIn returns the roles that always exist.
func BuiltIn() []Role {
	all := []string{"*"}
	return []Role{
		{Name: Admin, Description: "everything", Permissions: all, Allow: []Rule{{Tools: all}, {Tools: all, Actions: []string{See}}}},
		{Name: Publisher, Description: "publishes tools, sees all, tries low-risk ones that do not write",
			Permissions: []string{toolkeep.PermPublish},
			Allow: []Rule{{Tools: all, Actions: []string{See}},
				{Tools: all, SideEffects: []string{"none", "reads"}, MaxRisk: "low"}}},
		{Name: Operator, Description: "runs the server: sees all tools and calls, cancels calls, calls no tool",
			Permissions: []string{toolkeep.PermInvocations, toolkeep.PermCancel, toolkeep.PermOperate},
			Allow:       []Rule{{Tools: all, Actions: []string{See}}}},
		{Name: Agent, Description: "sees and calls tools up to medium risk",
			Allow: []Rule{{Tools: all, SideEffects: []string{"none", "reads", "writes"}, MaxRisk: "medium"}}},
		{Name: Auditor, Description: "sees all tools and calls, changes and calls nothing",
			Permissions: []string{toolkeep.PermInvocations},
			Allow:       []Rule{{Tools: all, Actions: []string{See}}}},
	}
}

// action is a bit set of actions.
type action uint8

const (
	see action = 1 << iota
	invoke
)

func (a action) String() string {
	if a == see {
		return "seeing"
	}
	return "calling"
}

// ruleset is every compiled role by name.
type ruleset map[string]*compiled

type compiled struct {
	name        string
	inherits    []string // those that it names
	tenants     []string
	permissions []string
	allow, deny []rule
}

type rule struct {
	label string // "role weather-reader, allow rule 1"
	toolkeep.Selector
	actions action
}

var (
	roleName       = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	permissionName = regexp.MustCompile(`^(\*|[a-z0-9][a-z0-9._:-]{0,127})$`)
)

// Limits of a role configuration.
const (
	maxRoles    = 1000
	maxRules    = 1000 // per role
	maxItems    = 1000 // per list
	maxInherits = 100  // roles that one inherits, those of further ones included
)

// compile checks custom roles and merges them with the built-in ones. Pointers start at
// /roles/NAME.
func compile(own []Role) (ruleset, []toolkeep.Fault) {
	rules := make(ruleset, len(own)+5)
	for _, r := range BuiltIn() {
		c, _ := compileRole(r)
		rules[r.Name] = c
	}
	var faults []toolkeep.Fault
	if len(own) > maxRoles {
		return nil, []toolkeep.Fault{{Pointer: "/roles", Rule: "maxItems", Message: fmt.Sprintf("at most %d roles", maxRoles)}}
	}
	for _, r := range own {
		at := "/roles/" + escape(r.Name)
		if c, ok := rules[r.Name]; ok {
			message := "the role is defined twice"
			if slices.ContainsFunc(BuiltIn(), func(b Role) bool { return b.Name == c.name }) {
				message = "the built-in role " + r.Name + " cannot be redefined; choose another name"
			}
			faults = append(faults, toolkeep.Fault{Pointer: at, Rule: "unique", Message: message})
			continue
		}
		c, fs := compileRole(r)
		faults = append(faults, fs...)
		rules[r.Name] = c
	}
	for _, r := range own {
		faults = append(faults, rules.checkInherited(r)...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return rules, nil
}

func compileRole(r Role) (*compiled, []toolkeep.Fault) {
	var faults []toolkeep.Fault
	at := "/roles/" + escape(r.Name)
	if !roleName.MatchString(r.Name) {
		faults = append(faults, toolkeep.Fault{Pointer: at, Rule: "pattern",
			Message: "a role's name has 1 to 64 lower-case letters, digits, dots, dashes and underscores"})
	}
	for i, p := range r.Permissions {
		if !permissionName.MatchString(p) {
			faults = append(faults, toolkeep.Fault{Pointer: fmt.Sprintf("%s/permissions/%d", at, i), Rule: "pattern",
				Message: "a permission has lower-case letters, digits, dots, colons, dashes and underscores, or is *"})
		}
	}
	for i, t := range r.Tenants {
		if t == "" || len(t) > maxSubject || !plain(t) {
			faults = append(faults, toolkeep.Fault{Pointer: fmt.Sprintf("%s/tenants/%d", at, i), Rule: "format",
				Message: fmt.Sprintf("a tenant has 1 to %d bytes without control characters", maxSubject)})
		}
	}
	c := &compiled{name: r.Name, permissions: slices.Clone(r.Permissions), inherits: slices.Clone(r.Inherits), tenants: slices.Clone(r.Tenants)}
	for _, side := range []struct {
		name string
		from []Rule
		to   *[]rule
	}{{"allow", r.Allow, &c.allow}, {"deny", r.Deny, &c.deny}} {
		if len(side.from) > maxRules {
			faults = append(faults, toolkeep.Fault{Pointer: at + "/" + side.name, Rule: "maxItems", Message: fmt.Sprintf("at most %d rules", maxRules)})
			continue
		}
		for i, from := range side.from {
			to, fs := compileRule(from, fmt.Sprintf("%s/%s/%d", at, side.name, i), side.name == "deny")
			to.label = fmt.Sprintf("role %s, %s rule %d", r.Name, side.name, i+1)
			faults = append(faults, fs...)
			*side.to = append(*side.to, to)
		}
	}
	return c, faults
}

func compileRule(r Rule, at string, deny bool) (rule, []toolkeep.Fault) {
	var faults []toolkeep.Fault
	fault := func(field, keyword, message string) {
		faults = append(faults, toolkeep.Fault{Pointer: at + field, Rule: keyword, Message: message})
	}
	out := rule{Selector: toolkeep.Selector{Tools: slices.Clone(r.Tools), Tags: slices.Clone(r.Tags), Categories: slices.Clone(r.Categories),
		SideEffects: slices.Clone(r.SideEffects), MaxRisk: toolkeep.RiskHigh}, actions: invoke}
	if len(r.Tools)+len(r.Tags)+len(r.Categories)+len(r.SideEffects) == 0 && r.MaxRisk == "" && r.MinRisk == "" {
		fault("", "minProperties", `the rule selects nothing; write tools: ["*"] to mean every tool`)
	}
	for i, p := range r.Tools {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			fault(fmt.Sprintf("/tools/%d", i), "pattern", fmt.Sprintf("%q is not a pattern; use * ? and [a-z] as in weather.*", p))
		}
	}
	for i, e := range r.SideEffects {
		if !slices.Contains([]string{"none", "reads", "writes"}, e) {
			fault(fmt.Sprintf("/side_effects/%d", i), "enum", "must be none, reads or writes")
		}
	}
	risk := func(field, value string, wrongSide bool, advice string, to *toolkeep.Risk) {
		if value == "" {
			return
		}
		n, ok := toolkeep.RiskOf(value)
		switch {
		case wrongSide:
			fault(field, "side", advice)
		case !ok:
			fault(field, "enum", "must be low, medium or high")
		}
		*to = n
	}
	risk("/max_risk", r.MaxRisk, deny, "max_risk is for allow rules; a deny rule has min_risk", &out.MaxRisk)
	risk("/min_risk", r.MinRisk, !deny, "min_risk is for deny rules; an allow rule has max_risk", &out.MinRisk)
	if len(r.Actions) > 0 {
		out.actions = 0
	}
	for i, a := range r.Actions {
		switch a {
		case See:
			out.actions |= see
		case Invoke:
			out.actions |= invoke
		default:
			fault(fmt.Sprintf("/actions/%d", i), "enum", "must be see or invoke")
		}
	}
	if deny && (out.actions&see != 0 || len(r.Actions) == 0) {
		out.actions = see | invoke // a hidden tool cannot be called
	}
	return out, faults
}

// fits reports whether the rule selects the tool for the action.
func (r *rule) fits(t *toolkeep.Tool, do action) bool { return r.actions&do != 0 && r.Fits(t) }

// checkInherited checks what a role inherits, with what those inherit.
func (rs ruleset) checkInherited(r Role) (faults []toolkeep.Fault) {
	for i, name := range r.Inherits {
		if rs[name] == nil {
			faults = append(faults, toolkeep.Fault{Pointer: fmt.Sprintf("/roles/%s/inherits/%d", escape(r.Name), i), Rule: "enum", Message: noRole(name, rs.names())})
		}
	}
	all := slices.Clone(r.Inherits)
	for i := 0; i < len(all); i++ { // what is appended is looked at too
		name := all[i]
		if name == r.Name {
			return append(faults, toolkeep.Fault{Pointer: "/roles/" + escape(r.Name) + "/inherits", Rule: "cycle", Message: "the role inherits itself"})
		}
		if len(all) > maxInherits {
			return append(faults, toolkeep.Fault{Pointer: "/roles/" + escape(r.Name) + "/inherits", Rule: "maxItems", Message: fmt.Sprintf("the role inherits more than %d roles", maxInherits)})
		}
		if c := rs[name]; c != nil {
			for _, further := range c.inherits {
				if !slices.Contains(all, further) {
					all = append(all, further)
				}
			}
		}
	}
	return faults
}

// of returns the roles that count for a caller of the tenant to whom some were given: without those of
// other tenants and what only those inherit, and with what the others inherit.
func (rs ruleset) of(tenant string, given []string) []string {
	all := given
	for i := 0; i < len(all); i++ {
		c := rs[all[i]]
		switch {
		case c == nil:
		case !rs.known(tenant, all[i]):
			all = slices.Delete(slices.Clone(all), i, i+1)
			i--
		default:
			for _, name := range c.inherits {
				if !slices.Contains(all, name) {
					all = append(slices.Clip(all), name)
				}
			}
		}
	}
	return all
}

// permissions merges the permissions of roles, sorted and without duplicates.
func (rs ruleset) permissions(roles []string) []string {
	var out []string
	for _, name := range roles {
		if c := rs[name]; c != nil {
			out = append(out, c.permissions...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// evaluate applies every rule of the roles, deny rules first. by is the rule that decides, "" if none does.
func (rs ruleset) evaluate(roles []string, t *toolkeep.Tool, do action) (allowed bool, by, why string) {
	for _, name := range roles {
		if c := rs[name]; c != nil {
			for i := range c.deny {
				if c.deny[i].fits(t, do) {
					return false, c.deny[i].label, fmt.Sprintf("%s: denies %s %s", c.deny[i].label, do, t.ID)
				}
			}
		}
	}
	var unknown []string
	for _, name := range roles {
		c := rs[name]
		if c == nil {
			unknown = append(unknown, name)
			continue
		}
		for i := range c.allow {
			if c.allow[i].fits(t, do) {
				return true, c.allow[i].label, fmt.Sprintf("%s: allows %s %s", c.allow[i].label, do, t.ID)
			}
		}
	}
	risk := t.Manifest.Risk
	if risk == "" {
		risk = "low"
	}
	reason := fmt.Sprintf("no role of [%s] allows %s %s (side effects %s, risk %s, category %s, tags [%s]); it needs a role with an allow rule for it",
		strings.Join(roles, ", "), do, t.ID, t.Manifest.Effects(), risk, t.Manifest.Category, strings.Join(t.Manifest.Tags, ", "))
	if len(unknown) > 0 {
		reason += fmt.Sprintf("; not defined here: [%s]", strings.Join(unknown, ", "))
	}
	return false, "", reason
}

// escape encodes a name as a JSON Pointer token.
func escape(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}
