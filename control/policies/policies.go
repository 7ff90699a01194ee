// Package policies is what people see and try of what decides calls: which attribute policy does, who may
// call a tool, what a caller may call, and what another policy would have changed.
package policies

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/catalog"
)

// Access knows callers and decides; *access.Access does.
type Access interface {
	ListKeys(ctx context.Context, p *toolkeep.Principal) ([]toolkeep.APIKey, error)
	PrincipalOf(k *toolkeep.APIKey) *toolkeep.Principal
	Visible(p *toolkeep.Principal, t *toolkeep.Tool) bool
	Authorise(p *toolkeep.Principal, t *toolkeep.Tool, c *toolkeep.Call) access.Decision
	Policy() access.Policy
}

// Catalog finds tools; *catalog.Catalog does.
type Catalog interface {
	Describe(ctx context.Context, p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	List(p *toolkeep.Principal, f catalog.Filter, visible func(*toolkeep.Tool) bool) ([]catalog.Summary, int)
}

// Approvals says which calls wait for a person; *approval.Book does.
type Approvals interface {
	Of(p *toolkeep.Principal, t *toolkeep.Tool, why string, byRisk bool) *approval.Need
}

// Calls lists recorded calls; stores do.
type Calls interface {
	List(ctx context.Context, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error)
}

// Explainer explains a call that one principal would make to another one; *invoke.Pipeline does.
type Explainer interface {
	ExplainAs(ctx context.Context, asker, as *toolkeep.Principal, c *toolkeep.Call) (any, error)
}

// Config is what Policies asks. All but Engine, Timeout and Clock are required.
type Config struct {
	Explainer Explainer
	Store     toolkeep.Applier // gets the events of Explain
	Engine    *policy.Engine   // nil where roles decide alone
	Access    Access
	Catalog   Catalog
	Approvals Approvals
	Calls     Calls
	Timeout   time.Duration    // of one evaluation of a policy that is tried; default 100 ms
	Clock     func() time.Time // default time.Now
}

// Policies answers. It is safe for concurrent use.
type Policies struct {
	c         Config
	replaying atomic.Bool // one replay at a time
	listing   atomic.Bool // one Who or What at a time
}

// New makes one.
func New(c Config) *Policies {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Timeout <= 0 {
		c.Timeout = 100 * time.Millisecond
	}
	return &Policies{c: c}
}

// Policy is the policy of the node that is asked.
type Policy struct {
	policy.State
	Decided Decided `json:"decided"`
}

// Decided counts since the start of the node.
type Decided struct {
	Evaluated int64 `json:"evaluated" doc:"questions that the policy was asked"`
	Kept      int64 `json:"kept" doc:"questions answered from kept answers"`
	Denied    int64 `json:"denied" doc:"calls that it denied"`
	Failed    int64 `json:"failed" doc:"questions that it could not answer; their calls were denied"`
}

// List returns the policy that decides, none where roles decide alone. E3201 for all but
// operators of the home tenant, since a policy decides for all tenants.
func (s *Policies) List(p *toolkeep.Principal) ([]Policy, error) {
	if err := operates(p); err != nil {
		return nil, err
	}
	e := s.c.Engine
	if e == nil {
		return []Policy{}, nil
	}
	n := e.Stats()
	return []Policy{{e.State(), Decided{Evaluated: n.Evaluated, Kept: n.Kept, Denied: n.Denied, Failed: n.Failed}}}, nil
}

func operates(p *toolkeep.Principal) error {
	if p.Tenant != access.HomeTenant || !p.May(toolkeep.PermOperate) {
		return toolkeep.NewError(toolkeep.PermissionDenied, "a policy decides for all tenants; operators of the tenant %s (permission %s) see it", access.HomeTenant, toolkeep.PermOperate)
	}
	return nil
}

// Decisions of a Right.
const (
	Allowed       = "allowed"
	NeedsApproval = "needs_approval"
	Denied        = "denied"
	Hidden        = "hidden" // denied, and the caller does not see the tool (E3001)
	Undecided     = "undecided"
)

// Right says whether the holder of a key may call a tool.
type Right struct {
	KeyID       string        `json:"key_id"`
	Subject     string        `json:"subject" doc:"whom the key is for"`
	Roles       []string      `json:"roles"`
	ToolID      string        `json:"tool_id"`
	ToolVersion string        `json:"tool_version"`
	Decision    string        `json:"decision" enum:"allowed,needs_approval,denied,hidden,undecided" doc:"hidden: denied, and the caller does not see the tool (E3001); undecided: the policy cannot answer (E3206), so a call is denied"`
	Code        toolkeep.Code `json:"code,omitempty" doc:"with which the caller is refused"`
	Check       string        `json:"check,omitempty" doc:"the first check that refuses, as explain names it"`
	Reason      string        `json:"reason"`
	Rule        string        `json:"rule,omitempty" doc:"the rule of the policy that decided"`
}

// Rights is a page of them.
type Rights struct {
	List  []Right
	Total int // of keys, or of tools
	// Reads is what of the input a policy reads; what is not of the caller or the tool was empty.
	Reads []string
}

// MaxKeys is how many keys of one subject What decides for.
const MaxKeys = 20

// rightsTime bounds one Who or What.
const rightsTime = 10 * time.Second

// alone takes the slot and the time of one Who or What; end gives the slot back. E3802.
func (s *Policies) alone(ctx context.Context) (bounded context.Context, end func(), err error) {
	if !s.listing.CompareAndSwap(false, true) {
		return nil, nil, toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded, "this node is deciding who may call what for another request; try again when it has ended").After(time.Second)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, rightsTime, toolkeep.NewError(toolkeep.Timeout,
		"to decide about this page takes longer than %s; ask for a smaller page (page_size)", rightsTime))
	return bounded, func() { cancel(); s.listing.Store(false) }, nil
}

// rules is what decides, without counting these questions as those of calls; nil where roles decide alone.
func (s *Policies) rules() access.Policy {
	rules := s.c.Access.Policy()
	if e, ok := rules.(*policy.Engine); ok {
		return e.Aside()
	}
	return rules
}

// Who says of a page of the tenant's valid API keys, the oldest first, whether their holders may call a
// tool. Callers by other means, such as access tokens, are not known to the server. It needs keys:admin.
// A node runs one Who or What at a time, for 10 s at most. E3201; E3802 while another runs; E3901; and those of
// Catalog.Describe.
func (s *Policies) Who(ctx context.Context, p *toolkeep.Principal, tool, version string, offset, limit int) (*Rights, error) {
	keys, err := s.keys(ctx, p)
	if err != nil {
		return nil, err
	}
	v, _, err := s.c.Catalog.Describe(ctx, p, tool, version, func(t *toolkeep.Tool) bool { return s.c.Access.Visible(p, t) })
	if err != nil {
		return nil, err
	}
	ctx, end, err := s.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	out, rules := s.rights(len(keys)), s.rules()
	for i := min(offset, len(keys)); i < min(offset+limit, len(keys)); i++ {
		out.List = append(out.List, s.right(ctx, rules, &keys[i], v.Tool))
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	return out, nil
}

// What says of a page of the tools that p sees, by id, whether a subject's valid API keys may call them.
// With keyID it decides for that key alone. It needs keys:admin. E3201; E3013 if there is no such key;
// E3301 for more keys than MaxKeys; E3802 and E3901 as Who.
func (s *Policies) What(ctx context.Context, p *toolkeep.Principal, subject, keyID string, offset, limit int) (*Rights, error) {
	keys, err := s.keysOf(ctx, p, subject, keyID)
	if err != nil {
		return nil, err
	}
	ctx, end, err := s.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	list, total := s.c.Catalog.List(p, catalog.Filter{Offset: offset, Limit: limit}, func(t *toolkeep.Tool) bool { return s.c.Access.Visible(p, t) })
	out, rules := s.rights(total), s.rules()
	for _, one := range list {
		v, _, err := s.c.Catalog.Find(p, one.ToolID, one.LatestVersion, nil)
		if err != nil { // removed or held meanwhile
			continue
		}
		for i := range keys {
			out.List = append(out.List, s.right(ctx, rules, &keys[i], v.Tool))
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
	}
	return out, nil
}

// keysOf returns the valid keys of a subject, or one of them. E3201, E3013, E3301.
func (s *Policies) keysOf(ctx context.Context, p *toolkeep.Principal, subject, keyID string) ([]toolkeep.APIKey, error) {
	keys, err := s.keys(ctx, p)
	if err != nil {
		return nil, err
	}
	keys = slices.DeleteFunc(keys, func(k toolkeep.APIKey) bool { return k.Subject != subject || keyID != "" && k.ID != keyID })
	switch {
	case len(keys) == 0:
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no valid API key of %q; callers by access token are not known to the server", toolkeep.ClipBytes(subject, 200))
	case len(keys) > MaxKeys:
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "%q has %d valid keys; name one of them (key_id)", toolkeep.ClipBytes(subject, 200), len(keys))
	}
	return keys, nil
}

func (s *Policies) rights(total int) *Rights {
	out := &Rights{List: []Right{}, Total: total}
	if s.c.Engine != nil {
		out.Reads = s.c.Engine.State().Reads
	}
	return out
}

// keys returns the keys that are valid now. E3201.
func (s *Policies) keys(ctx context.Context, p *toolkeep.Principal) ([]toolkeep.APIKey, error) {
	keys, err := s.c.Access.ListKeys(ctx, p)
	if err != nil {
		return nil, err
	}
	now := s.c.Clock()
	return slices.DeleteFunc(keys, func(k toolkeep.APIKey) bool {
		return !k.RevokedAt.IsZero() || !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt)
	}), nil
}

// right decides as the pipeline does, for a call without arguments.
func (s *Policies) right(ctx context.Context, rules access.Policy, k *toolkeep.APIKey, t *toolkeep.Tool) Right {
	p := s.c.Access.PrincipalOf(k)
	r := Right{KeyID: k.ID, Subject: k.Subject, Roles: append([]string{}, k.Roles...), ToolID: t.ID, ToolVersion: t.Version}
	d := s.c.Access.Authorise(p, t, nil)
	if rules != nil && d.Allowed {
		q := &access.Question{Principal: p, Tool: t, Call: &toolkeep.Call{Tool: t.ID}, Arguments: map[string]any{}}
		d = d.Consult(ctx, rules, q, func(text string) string { return text })
	}
	r.Decision, r.Code, r.Reason = Allowed, d.Code, d.Reason
	if i := slices.IndexFunc(d.Checks, func(c access.Check) bool { return !c.Allowed }); i >= 0 {
		r.Decision, r.Check = Denied, d.Checks[i].Name
	}
	if d.Code == toolkeep.PolicyEngineUnavailable {
		r.Decision = Undecided
	}
	if n := len(d.Checks); n > 0 {
		r.Rule = d.Checks[n-1].Rule
	}
	if d.Allowed {
		if need := s.need(p, t, d.Approval); need != nil {
			r.Decision, r.Reason = NeedsApproval, need.Reason()
		}
	}
	if !s.c.Access.Visible(p, t) {
		r.Decision, r.Code = Hidden, toolkeep.ToolNotFound
		if d.Allowed {
			r.Check, r.Reason, r.Rule = access.CheckPolicy, "the policy's rule visible hides the tool", ""
		}
	}
	return r
}

// need is the approval that a call owes; asked is what the policy demands, nil for nothing.
func (s *Policies) need(p *toolkeep.Principal, t *toolkeep.Tool, asked *access.ApprovalNeed) *approval.Need {
	why, byRisk := access.NeedsApproval(t, nil, asked)
	return s.c.Approvals.Of(p, t, why, byRisk)
}
