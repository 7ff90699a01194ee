package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon/yaml"
	"github.com/toolkeep/toolkeep/suggest"
)

// Limits of a roles document.
const (
	maxYAML  = 1 << 20 // bytes, and values
	maxDepth = 64
)

// ParseRoles reads custom roles from YAML, a mapping with the single key roles:
//
//	roles:
//	  weather-reader:
//	    description: reads the weather
//	    inherits: [agent]          # has their rules and permissions, and counts as one that has them
//	    tenants: [acme]            # means nothing elsewhere; all tenants if left out
//	    permissions: [act-as]
//	    allow:
//	      - tools: ["weather.*"]   # path.Match patterns on the tool id
//	        tags: [public]         # any of
//	        categories: [weather]  # any of
//	        side_effects: [none, reads]
//	        max_risk: low
//	        actions: [see, invoke] # both if left out
//	    deny:
//	      - tools: ["weather.delete*"]
//	      - min_risk: high
//
// An omitted condition does not restrict the rule; an empty list, or a rule without any
// condition, is refused. The error is E3008 with every fault and its line; for an
// unknown key it suggests the nearest known one. YAML aliases are refused.
func ParseRoles(data []byte) ([]Role, error) {
	r := &reader{lines: make(map[string]int)}
	roles := r.document(data)
	_, faults := compile(roles)
	for _, f := range faults {
		if !r.reported(f.Pointer) {
			r.faults = append(r.faults, toolkeep.Fault{Pointer: f.Pointer, Rule: f.Rule, Message: r.atLine(f.Pointer) + f.Message})
		}
	}
	if len(r.faults) > 0 {
		return nil, toolkeep.FaultsError(toolkeep.InvalidManifest, "the roles cannot be used: "+r.faults[0].Message, r.faults)
	}
	return roles, nil
}

// reader walks a YAML tree and collects faults and the line of every pointer.
type reader struct {
	faults []toolkeep.Fault
	lines  map[string]int
}

func (r *reader) fault(line int, pointer, rule, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	if line > 0 {
		message = fmt.Sprintf("line %d: %s", line, message)
	}
	r.faults = append(r.faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: message})
}

// reported reports whether a fault already exists at, above or below the pointer, which
// another would only repeat.
func (r *reader) reported(pointer string) bool {
	return slices.ContainsFunc(r.faults, func(f toolkeep.Fault) bool {
		return strings.HasPrefix(f.Pointer+"/", pointer+"/") || strings.HasPrefix(pointer+"/", f.Pointer+"/")
	})
}

// atLine returns "line N: " for the pointer or its nearest ancestor.
func (r *reader) atLine(pointer string) string {
	for p := pointer; ; p = p[:strings.LastIndexByte(p, '/')] {
		if n := r.lines[p]; n > 0 {
			return fmt.Sprintf("line %d: ", n)
		}
		if !strings.Contains(p, "/") {
			return ""
		}
	}
}

func (r *reader) document(data []byte) (roles []Role) {
	r.whole(data, []string{"roles"}, func(_ string, n *yaml.Node, at string) {
		r.mapping(n, at, nil, func(name string, n *yaml.Node, at string) {
			roles = append(roles, r.role(name, n, at))
		})
	})
	return roles
}

// whole calls do for every key of a document.
func (r *reader) whole(data []byte, known []string, do func(key string, n *yaml.Node, at string)) {
	if len(data) > maxYAML {
		r.fault(0, "", "maxLength", "the document is over %d bytes", maxYAML)
		return
	}
	doc, err := yaml.One(data, yaml.Options{Bytes: maxYAML, Values: maxYAML, Depth: maxDepth})
	if err == nil && doc == nil {
		err = errors.New("it is empty")
	}
	if err != nil {
		r.fault(0, "", "yaml", "not readable as YAML: %s", err)
		return
	}
	r.mapping(doc, "", known, do)
}

// mapping calls do for every key. With known set, any other key is a fault; nil accepts
// all.
func (r *reader) mapping(n *yaml.Node, at string, known []string, do func(key string, n *yaml.Node, at string)) {
	r.lines[at] = n.Line
	members, ok := n.Value.(yaml.Mapping)
	if !ok {
		r.fault(n.Line, at, "type", "must be a mapping%s", oneOf(known))
		return
	}
	for _, m := range members {
		below := at + "/" + escape(m.Key)
		switch {
		case m.Repeated:
			r.fault(m.Line, below, "unique", "the key %s is there twice", m.Key)
		case known != nil && !slices.Contains(known, m.Key):
			r.fault(m.Line, below, "additionalProperties", "unknown key %q; the nearest known key is %s", m.Key, suggest.Nearest(m.Key, known))
		default:
			r.lines[below] = m.Line
			do(m.Key, m.Value, below)
		}
	}
}

func oneOf(known []string) string {
	if known == nil {
		return ""
	}
	return " with " + strings.Join(known, ", ")
}

func (r *reader) role(name string, n *yaml.Node, at string) Role {
	role := Role{Name: name}
	r.mapping(n, at, []string{"description", "inherits", "tenants", "permissions", "allow", "deny"}, func(key string, n *yaml.Node, at string) {
		switch key {
		case "description":
			role.Description = r.text(n, at)
		case "inherits":
			role.Inherits = r.texts(n, at)
		case "tenants":
			role.Tenants = r.texts(n, at)
		case "permissions":
			role.Permissions = r.texts(n, at)
		case "allow":
			role.Allow = r.rules(n, at)
		case "deny":
			role.Deny = r.rules(n, at)
		}
	})
	return role
}

func (r *reader) rules(n *yaml.Node, at string) (rules []Rule) {
	r.sequence(n, at, func(n *yaml.Node, at string) {
		var rule Rule
		known := []string{"tools", "tags", "categories", "side_effects", "max_risk", "min_risk", "actions"}
		r.mapping(n, at, known, func(key string, n *yaml.Node, at string) {
			switch key {
			case "tools":
				rule.Tools = r.texts(n, at)
			case "tags":
				rule.Tags = r.texts(n, at)
			case "categories":
				rule.Categories = r.texts(n, at)
			case "side_effects":
				rule.SideEffects = r.texts(n, at)
			case "max_risk":
				rule.MaxRisk = r.text(n, at)
			case "min_risk":
				rule.MinRisk = r.text(n, at)
			case "actions":
				rule.Actions = r.texts(n, at)
			}
		})
		rules = append(rules, rule)
	})
	return rules
}

// sequence calls do for every item. An empty list is refused: it could be read as
// "none" or as "all".
func (r *reader) sequence(n *yaml.Node, at string, do func(n *yaml.Node, at string)) {
	r.lines[at] = n.Line
	list, ok := n.Value.([]*yaml.Node)
	switch {
	case !ok:
		r.fault(n.Line, at, "type", "must be a list")
	case len(list) == 0:
		r.fault(n.Line, at, "minItems", "the list is empty; leave the key out")
	case len(list) > maxItems:
		r.fault(n.Line, at, "maxItems", "at most %d items", maxItems)
	default:
		for i, item := range list {
			below := fmt.Sprintf("%s/%d", at, i)
			r.lines[below] = item.Line
			do(item, below)
		}
	}
}

func (r *reader) texts(n *yaml.Node, at string) (out []string) {
	r.sequence(n, at, func(n *yaml.Node, at string) { out = append(out, r.text(n, at)) })
	return out
}

// text reads a string. A value that YAML reads as another type, such as true or 1.0, is
// accepted only if quoted.
func (r *reader) text(n *yaml.Node, at string) string {
	r.lines[at] = n.Line
	text, _ := n.Value.(string)
	if text == "" {
		r.fault(n.Line, at, "type", "must be a text; put it in quotes")
	}
	return text
}
