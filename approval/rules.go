package approval

import (
	_ "embed"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon/yaml"
	"github.com/toolkeep/toolkeep/schema"
)

// Level is who may decide from a time on.
type Level struct {
	// A caller with one of the roles may decide; without roles one with the permission approvals:decide.
	Roles []string      `json:"roles,omitempty"`
	After time.Duration `json:"after,omitempty"` // since the request
}

// Need is the approval that a call owes.
type Need struct {
	Why     string        // for people: what asks for it
	Risk    string        // of the tool
	Effects string        // its side_effects
	Rule    string        // which rule says who decides, "" for the default
	Levels  []Level       // at least one, by time
	Count   int           // how many persons must approve
	Expires time.Duration // since the request
	Confirm bool          // the caller's own person may confirm in its client
}

// Defaults are the settings for calls for which no rule says it otherwise.
type Defaults struct {
	Escalate []time.Duration // when those who decide are asked again; default 1 h and 4 h
	Expires  time.Duration   // default 24 h
}

// Rules are the operator's, in their order.
type Rules struct {
	list     []rule
	defaults Defaults
}

type rule struct {
	toolkeep.Selector
	name     string
	subjects []string // patterns on the caller
	roles    []string // of the caller, any of
	required bool
	waives   bool // what a high risk alone asks for
	need     Need // without Why
}

//go:embed rules.schema.json
var rulesSchema []byte

// Limits of a document of rules.
const (
	maxYAML  = 1 << 20 // bytes, and values
	maxDepth = 32
)

// ruleText is a rule as it is written.
type ruleText struct {
	Name        string   `json:"name"`
	Tools       []string `json:"tools"`
	Tags        []string `json:"tags"`
	Categories  []string `json:"categories"`
	SideEffects []string `json:"side_effects"`
	MinRisk     string   `json:"min_risk"`
	Subjects    []string `json:"subjects"`
	Roles       []string `json:"roles"`
	Required    bool     `json:"required"`
	WaiveRisk   bool     `json:"waive_risk"`
	Approvals   int      `json:"approvals"`
	Confirm     string   `json:"confirm"`
	Approvers   []struct {
		Roles []string `json:"roles"`
		After string   `json:"after"`
	} `json:"approvers"`
	ExpiresAfter string `json:"expires_after"`
}

// ReadRules reads a file of rules in YAML; "" is none. The error is E3008 with every fault.
func ReadRules(file string, d Defaults) (*Rules, error) {
	if file == "" {
		return ParseRules(nil, d)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the file of approval rules cannot be read: %w", err)
	}
	return ParseRules(raw, d)
}

// ParseRules reads rules; nil is none:
//
//	rules:
//	  - name: payments
//	    tools: ["pay.*"]       # also tags, categories, side_effects, min_risk
//	    subjects: ["agent-*"]  # who calls
//	    roles: [intern]        # whose caller has one of these
//	    required: true         # asked for whatever the risk is
//	    approvals: 2           # of different persons
//	    approvers:
//	      - roles: [payments-lead]
//	      - roles: [finance]
//	        after: 1h
//	    expires_after: 8h
//	  - subjects: [deployer]   # for these callers a high risk alone needs no approval
//	    tools: ["deploy.*"]
//	    waive_risk: true
//	  - tools: ["notes.*"]
//	    confirm: caller        # or the caller's own person, in its MCP client
func ParseRules(raw []byte, d Defaults) (*Rules, error) {
	if len(d.Escalate) == 0 {
		d.Escalate = []time.Duration{time.Hour, 4 * time.Hour}
	}
	if d.Expires <= 0 {
		d.Expires = 24 * time.Hour
	}
	rs := &Rules{defaults: d}
	if raw == nil {
		return rs, nil
	}
	texts, err := readTexts(raw)
	if err != nil {
		return nil, err
	}
	var faults []toolkeep.Fault
	for i, text := range texts {
		r, fs := rs.compile(text, fmt.Sprintf("/rules/%d", i))
		if r.name == "" {
			r.name = fmt.Sprintf("rule %d", i+1)
		}
		r.need.Rule = r.name
		faults = append(faults, fs...)
		rs.list = append(rs.list, r)
	}
	if len(faults) > 0 {
		return nil, refused(faults)
	}
	return rs, nil
}

func refused(faults []toolkeep.Fault) error {
	return toolkeep.FaultsError(toolkeep.InvalidManifest, "the approval rules cannot be used: "+faults[0].Pointer+": "+faults[0].Message, faults)
}

func readTexts(raw []byte) ([]ruleText, error) {
	var all struct {
		Rules []ruleText `json:"rules"`
	}
	faults, err := schema.DecodeYAML(rulesSchema, raw, yaml.Options{Bytes: maxYAML, Values: maxYAML, Depth: maxDepth}, &all)
	if len(faults) > 0 {
		return nil, refused(faults)
	}
	return all.Rules, err
}

// compile checks what the schema cannot say.
func (rs *Rules) compile(from ruleText, at string) (rule, []toolkeep.Fault) {
	var faults []toolkeep.Fault
	fault := func(field, keyword, message string) {
		faults = append(faults, toolkeep.Fault{Pointer: at + field, Rule: keyword, Message: message})
	}
	for _, list := range []struct {
		field    string
		patterns []string
	}{{"/tools", from.Tools}, {"/subjects", from.Subjects}} {
		for i, p := range list.patterns {
			if _, err := path.Match(p, ""); err != nil {
				fault(fmt.Sprintf("%s/%d", list.field, i), "pattern", fmt.Sprintf("%q is not a pattern; use * ? and [a-z] as in pay.*", p))
			}
		}
	}
	r := rule{name: from.Name, subjects: from.Subjects, roles: from.Roles, required: from.Required, waives: from.WaiveRisk,
		Selector: toolkeep.Selector{Tools: from.Tools, Tags: from.Tags, Categories: from.Categories, SideEffects: from.SideEffects, MaxRisk: toolkeep.RiskHigh}}
	r.MinRisk, _ = toolkeep.RiskOf(from.MinRisk)
	if len(from.Tools)+len(from.Tags)+len(from.Categories)+len(from.SideEffects)+len(from.Subjects)+len(from.Roles) == 0 && from.MinRisk == "" {
		fault("", "minProperties", `the rule selects nothing; write tools: ["*"] to mean every tool`)
	}
	if from.WaiveRisk && (from.Required || len(from.Approvers) > 0 || from.Approvals > 1 || from.Confirm != "" || from.ExpiresAfter != "") {
		fault("/waive_risk", "contradiction", "a rule that waives what a high risk asks for says nothing else of approvals; write another rule for that")
	}
	if from.WaiveRisk && len(from.Subjects)+len(from.Roles) == 0 {
		fault("/waive_risk", "required", "name the callers whose calls may go on, by subjects or roles; for all callers lower the tool's risk instead")
	}
	r.need = Need{Count: max(from.Approvals, 1), Confirm: from.Confirm != "", Expires: rs.defaults.Expires, Levels: rs.defaults.levels()}
	if from.Confirm != "" && from.Approvals > 1 {
		fault("/confirm", "approvals", "the caller's own person is one; leave confirm out, or ask for one approval")
	}
	if from.ExpiresAfter != "" {
		r.need.Expires = duration(from.ExpiresAfter)
	}
	if r.need.Expires <= 0 || r.need.Expires > MaxExpires {
		fault("/expires_after", "range", "is more than 0 and at most "+MaxExpires.String())
	}
	if len(from.Approvers) == 0 {
		return r, faults
	}
	r.need.Levels = nil
	for i, a := range from.Approvers {
		l := Level{Roles: a.Roles, After: duration(a.After)}
		if i == 0 && l.After != 0 {
			fault("/approvers/0/after", "range", "the first approvers are asked at once; leave after out")
		}
		if i > 0 && l.After <= r.need.Levels[i-1].After {
			fault(fmt.Sprintf("/approvers/%d/after", i), "range", "must be later than that of the approvers before")
		}
		if l.After >= r.need.Expires {
			fault(fmt.Sprintf("/approvers/%d/after", i), "range", "must be before expires_after, "+r.need.Expires.String())
		}
		r.need.Levels = append(r.need.Levels, l)
	}
	return r, faults
}

// MaxExpires is the longest that a request waits.
const MaxExpires = 30 * 24 * time.Hour

// duration reads what the schema has checked.
func duration(s string) time.Duration {
	d, _ := time.ParseDuration(s)
	return d
}

// levels are those who decide by their permission, asked again as time passes.
func (d *Defaults) levels() []Level {
	all := []Level{{}}
	for _, after := range d.Escalate {
		if after > all[len(all)-1].After && after < d.Expires {
			all = append(all, Level{After: after})
		}
	}
	return all
}

func (r *rule) fits(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	return (len(r.subjects) == 0 || toolkeep.MatchesAny(r.subjects, p.Subject)) &&
		(len(r.roles) == 0 || slices.ContainsFunc(p.Roles, func(role string) bool { return slices.Contains(r.roles, role) })) &&
		r.Fits(t)
}

// Of returns the approval that the principal's call of the tool owes, nil if none. why says what
// asks for it besides the rules, "" for nothing; byRisk that this is a high risk alone, which a
// rule may waive. What another rule requires is owed all the same.
func (rs *Rules) Of(p *toolkeep.Principal, t *toolkeep.Tool, why string, byRisk bool) *Need {
	if why == "" && len(rs.list) == 0 {
		return nil
	}
	need, found := Need{Levels: rs.defaults.levels(), Count: 1, Expires: rs.defaults.Expires}, false
	waived, requires := false, ""
	for i := range rs.list {
		r := &rs.list[i]
		if !r.fits(p, t) {
			continue
		}
		if !found && !r.waives {
			need, found = r.need, true
		}
		waived = waived || r.waives
		if r.required && requires == "" {
			requires = "the approval rule " + r.name + " requires it"
		}
	}
	if why == "" || byRisk && waived {
		why = requires
	}
	if why == "" {
		return nil
	}
	need.Why, need.Risk, need.Effects = why, t.Manifest.Risk, t.Manifest.SideEffects
	return &need
}

// Reason says for whom a call would wait.
func (n *Need) Reason() string {
	who := "those who have the permission " + toolkeep.PermApprove
	if len(n.Levels) > 0 && len(n.Levels[0].Roles) > 0 {
		who = "the roles [" + strings.Join(n.Levels[0].Roles, ", ") + "]"
	}
	what := "the approval of one of"
	if n.Count > 1 {
		what = fmt.Sprintf("approvals of %d persons of", n.Count)
	}
	text := fmt.Sprintf("%s; the call would wait for %s %s, at most %s", n.Why, what, who, n.Expires)
	if n.Confirm {
		text += ", or for the caller's own person in its MCP client"
	}
	return text
}
