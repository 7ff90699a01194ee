package access

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Policy decides calls by their attributes, after the roles. It narrows: a call that the roles
// refuse stays refused. Package access/policy implements it.
type Policy interface {
	// Decide answers whether a call may be made. An error means that the policy cannot
	// answer now; the call is then refused with E3206.
	Decide(ctx context.Context, q *Question) (Verdict, error)
	// ReadsArguments reports whether an answer may depend on the call's arguments.
	ReadsArguments() bool
	// Sees reports whether the principal may see a tool that its roles show. A policy that
	// cannot answer hides the tool.
	Sees(p *toolkeep.Principal, t *toolkeep.Tool) bool
	// Refuses reports whether the policy is certain to refuse every call of the tool by the
	// principal, whatever its arguments, its time and its other members. A policy that cannot
	// answer is not certain.
	Refuses(p *toolkeep.Principal, t *toolkeep.Tool) bool
	// Audience names what Sees and Refuses depend on besides the tool, "" if the policy shows
	// everything; ok is false if that changes by itself.
	Audience(p *toolkeep.Principal) (name string, ok bool)
}

// Question is what a policy decides.
type Question struct {
	Principal *toolkeep.Principal
	Tool      *toolkeep.Tool
	Call      *toolkeep.Call
	Arguments map[string]any // as canon parses them
}

// Verdict is a policy's answer.
type Verdict struct {
	Allow       bool
	Reason      string // why, as the policy says it
	Rule        string // the rule that made the decision, such as data.toolkeep.deny
	Obligations []Obligation
}

// Undecided is why a policy has no answer. Cause is a constant word, by which the log tells kinds
// of such errors apart: timeout, service, evaluation or obligation.
type Undecided struct {
	Cause string
	Err   error
}

func (u *Undecided) Error() string { return u.Err.Error() }
func (u *Undecided) Unwrap() error { return u.Err }

// CauseOf returns the cause of an error of a policy, "policy" if it says none.
func CauseOf(err error) string {
	if u := (*Undecided)(nil); errors.As(err, &u) {
		return u.Cause
	}
	return "policy"
}

// ObligeApproval is the obligation that a person approves the call.
const ObligeApproval = "require_approval"

// Obligation is what an allowed call owes before it is carried out.
type Obligation struct {
	Kind   string `json:"kind"` // require_approval
	Reason string `json:"reason"`
	Rule   string `json:"rule"`
}

// maxRule is the most bytes of a policy's rules that a decision names, besides a "…".
const maxRule = 200

// ApprovalNeed says why a policy demands a person's approval.
type ApprovalNeed struct{ Reason, Rule string }

// Policy returns the policy, nil without one.
func (a *Access) Policy() Policy { return a.config.Policy }

// Consult asks the policy and returns the decision with its check. A refusal is E3202, or
// E3206 if the policy cannot answer or demands what is not known here. clean takes secrets out
// of the policy's own words, also the names of its rules, which may quote arguments.
func (d Decision) Consult(ctx context.Context, p Policy, q *Question, clean func(string) string) Decision {
	v, err := p.Decide(ctx, q)
	if err == nil && v.Allow {
		for _, o := range v.Obligations {
			if o.Kind != ObligeApproval {
				err = &Undecided{"obligation", toolkeep.NewError(toolkeep.PolicyEngineUnavailable, "the policy demands %q, which this server cannot do", o.Kind)}
			}
		}
	}
	ruleOf := func(name string) string { return toolkeep.ClipBytes(clean(name), maxRule) }
	c, code := Check{Name: CheckPolicy, Allowed: v.Allow, Reason: v.Reason, Rule: ruleOf(v.Rule)}, toolkeep.PolicyDenied
	switch {
	case err != nil:
		if text := err.Error(); clean(text) != text {
			err = &Undecided{CauseOf(err), errors.New(clean(text))}
		}
		c, code = Check{Name: CheckPolicy, Reason: "the policy cannot decide now, so the call is denied"}, toolkeep.PolicyEngineUnavailable
	case !v.Allow:
		c.Reason = clean(v.Reason)
		if c.Reason == "" {
			c.Reason = "the policy denies the call"
		}
	case len(v.Obligations) > 0:
		var why, rules []string
		for _, o := range v.Obligations {
			why, rules = append(why, o.Reason), append(rules, o.Rule)
		}
		slices.Sort(rules)
		need := ApprovalNeed{Reason: clean(strings.Join(why, "; ")), Rule: ruleOf(strings.Join(slices.Compact(rules), ", "))}
		if need.Reason == "" {
			need.Reason = "the policy demands it"
		}
		c.Reason, c.Rule, d.Approval = "allowed only with a person's approval: "+need.Reason, need.Rule, &need
	case c.Reason == "":
		c.Reason = "the policy allows the call"
	}
	d.Checks = append(slices.Clone(d.Checks), c)
	if d.Allowed && !c.Allowed {
		d.Allowed, d.Code, d.Reason, d.Cause = false, code, c.Reason, err
	}
	return d
}
