package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Authorise decides whether the principal may make the call. It runs every check but that
// of the policy (see Decision.Consult), even after one has failed. A refusal is E3201; a call
// that needs approval is not refused, see NeedsApproval.
//
// The decision depends only on the principal's tenant, roles, scope, permissions and
// narrowing and on the tool version, and is remembered until the roles change.
//
// A capability token of the call, which comes after that memory, only narrows: E3203 to E3205,
// E3207 to E3211, E3215. A nil call asks whether the principal may call the tool at all.
func (a *Access) Authorise(p *toolkeep.Principal, t *toolkeep.Tool, c *toolkeep.Call) Decision {
	g := a.generation()
	return a.narrow(remember(g, &g.decided, p, t, (*generation).authorise), p, t, c)
}

// Callable reports whether the principal may call the tool, as far as that can be said without a
// call: every check of Authorise passes, the capability token of its request shows the tool, and the
// policy neither hides it nor is certain to refuse it (see Policy). Searches, contexts and exports
// show what is callable.
func (a *Access) Callable(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	g := a.generation()
	if remember(g, &g.shown, p, t, (*generation).shows)&invoke == 0 {
		return false
	}
	policy := a.config.Policy
	if policy == nil {
		return true
	}
	p = g.whole(p)
	return policy.Sees(p, t) && !policy.Refuses(p, t)
}

// Visible reports whether the tool exists for the principal: it is callable, or an allow rule of a
// role has the action see for it. Tenant, scope, token, denials and the policy's rule visible hide it
// from both. The registry's lists show what is visible.
func (a *Access) Visible(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	g := a.generation()
	to, policy := remember(g, &g.shown, p, t, (*generation).shows), a.config.Policy
	if to == 0 || policy == nil {
		return to != 0
	}
	p = g.whole(p)
	return policy.Sees(p, t) && (to&see != 0 || !policy.Refuses(p, t))
}

// generation returns the current generation, or a new one with the same roles if the
// current one has no room for more principals.
func (a *Access) generation() *generation {
	g := a.current.Load()
	if g.known.Load() < maxIdentities {
		return g
	}
	if fresh := newGeneration(g.rules); a.current.CompareAndSwap(g, fresh) {
		return fresh
	}
	return a.current.Load()
}

// shows returns what all but the policy lets the principal do with the tool.
func (g *generation) shows(p *toolkeep.Principal, t *toolkeep.Tool) (to action) {
	if !sameTenant(p, t) || !inScope(p, t) || p.Narrowed != nil && !p.Narrowed.Shows(t) {
		return 0
	}
	if ok, _, _ := g.rules.evaluate(p.Roles, t, see); ok {
		to |= see
	}
	if ok, _, _ := g.rules.evaluate(p.Roles, t, invoke); ok && requiredCheck(p, t).Allowed && levelsCheck(g.whole(p), t).Allowed {
		to |= invoke
	}
	return to
}

// whole returns the principal with the permissions of its roles, which its calls have: a capability
// token takes them from its other requests.
func (g *generation) whole(p *toolkeep.Principal) *toolkeep.Principal {
	if p.Narrowed == nil {
		return p
	}
	own := *p
	own.Permissions = g.rules.permissions(p.Roles)
	return &own
}

func sameTenant(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	return p.Tenant != "" && (t.Tenant == "" || t.Tenant == p.Tenant)
}

func inScope(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	return len(p.Scope) == 0 || toolkeep.MatchesAny(p.Scope, t.ID)
}

// authorise runs every check.
func (g *generation) authorise(p *toolkeep.Principal, t *toolkeep.Tool) Decision {
	roles, by, why := g.rules.evaluate(p.Roles, t, invoke)
	return decide([]Check{
		tenantCheck(p, t),
		scopeCheck(p, t),
		{Name: CheckRoles, Allowed: roles, Reason: why, Rule: by},
		requiredCheck(p, t),
		levelsCheck(p, t),
		riskCheck(t),
	})
}

func tenantCheck(p *toolkeep.Principal, t *toolkeep.Tool) Check {
	c := Check{Name: CheckTenant, Allowed: sameTenant(p, t)}
	switch {
	case !c.Allowed:
		c.Reason = t.ID + " belongs to another tenant"
	case t.Tenant == "":
		c.Reason = t.ID + " belongs to all tenants"
	default:
		c.Reason = t.ID + " belongs to the caller's tenant"
	}
	return c
}

func scopeCheck(p *toolkeep.Principal, t *toolkeep.Tool) Check {
	c := Check{Name: CheckScope, Allowed: inScope(p, t)}
	switch {
	case len(p.Scope) == 0:
		c.Reason = "the key's scope is not narrowed"
	case c.Allowed:
		c.Reason = fmt.Sprintf("the key's scope [%s] includes %s", strings.Join(p.Scope, ", "), t.ID)
	default:
		c.Reason = fmt.Sprintf("the key's scope [%s] does not include %s; use a key whose scope does", strings.Join(p.Scope, ", "), t.ID)
	}
	return c
}

// requiredCheck: the principal needs any of the manifest's required_roles.
func requiredCheck(p *toolkeep.Principal, t *toolkeep.Tool) Check {
	c := Check{Name: CheckRequiredRoles, Allowed: true, Reason: "the tool requires no role of its own"}
	want := t.Manifest.RequiredRoles
	if len(want) == 0 {
		return c
	}
	for _, r := range want {
		if slices.Contains(p.Roles, r) {
			c.Reason = "the tool requires one of [" + strings.Join(want, ", ") + "] and the caller has " + r
			return c
		}
	}
	c.Allowed = false
	c.Reason = fmt.Sprintf("the tool requires one of the roles [%s]; the caller has [%s]", strings.Join(want, ", "), strings.Join(p.Roles, ", "))
	return c
}

// levelsCheck: the principal needs all of the manifest's permission_levels.
func levelsCheck(p *toolkeep.Principal, t *toolkeep.Tool) Check {
	levels := t.Manifest.PermissionLevels
	if len(levels) == 0 {
		return Check{Name: CheckPermissionLevels, Allowed: true, Reason: "the tool asks for no permission level"}
	}
	var missing []string
	for _, l := range levels {
		if !hasLevel(p, l) {
			missing = append(missing, l)
		}
	}
	if len(missing) > 0 {
		return Check{Name: CheckPermissionLevels,
			Reason: fmt.Sprintf("the tool asks for all of [%s]; the caller lacks [%s]", strings.Join(levels, ", "), strings.Join(missing, ", "))}
	}
	return Check{Name: CheckPermissionLevels, Allowed: true, Reason: "the caller has all of [" + strings.Join(levels, ", ") + "]"}
}

func hasLevel(p *toolkeep.Principal, level string) bool {
	switch level {
	case "public":
		return true
	case "authenticated":
		return p.Subject != ""
	}
	if r, ok := strings.CutPrefix(level, "role:"); ok {
		return slices.Contains(p.Roles, r)
	}
	if q, ok := strings.CutPrefix(level, "permission:"); ok {
		return p.May(q)
	}
	return false
}

// riskCheck never refuses: a high risk needs a person's approval instead.
func riskCheck(t *toolkeep.Tool) Check {
	c := Check{Name: CheckRisk, Allowed: true}
	switch why, byRisk := NeedsApproval(t, nil, nil); {
	case byRisk:
		c.Reason = "allowed only with a person's approval, unless an approval rule waives it: " + why
		return c
	case why != "":
		c.Reason = "allowed only with a person's approval: " + why
		return c
	}
	c.Reason = "risk " + t.Manifest.Risk + " needs no approval"
	if t.Manifest.Risk == "" {
		c.Reason = "risk low needs no approval"
	}
	return c
}

// NeedsApproval says why a person must approve the call, "" if nothing asks for it: the manifest
// requires it, the caller asked for it, the policy demands it, or the tool's risk is high. c and
// policy may be nil. byRisk says that nothing but a high risk asks, which a rule may waive.
func NeedsApproval(t *toolkeep.Tool, c *toolkeep.Call, policy *ApprovalNeed) (why string, byRisk bool) {
	risk, known := toolkeep.RiskOf(t.Manifest.Risk)
	switch {
	case t.Manifest.RequiresApproval:
		return "the tool's manifest requires approval", false
	case !known:
		return "the tool's risk is not known", false
	case c != nil && c.RequireApproval:
		return "the caller asked for approval", false
	case policy != nil:
		return policy.Reason, false
	case risk >= toolkeep.RiskHigh:
		return "the tool's risk is high", true
	}
	return "", false
}

// ActingAs returns the principal that the call is made for. Subject, tenant and user of
// the call must be the principal's own or empty; with the permission act-as the call
// may name another subject and a user it is made on behalf of. The tenant never
// changes. Roles, scope and permissions stay those of p. E3201.
func (a *Access) ActingAs(p *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Principal, error) {
	if c.Tenant != "" && c.Tenant != p.Tenant {
		return nil, refused("the call names another tenant than the caller's own; leave it out").With("field", "tenant_id")
	}
	otherSubject := c.Subject != "" && c.Subject != p.Subject
	otherUser := c.User != "" && c.User != p.Subject && c.User != p.OnBehalf
	if !otherSubject && !otherUser {
		return p, nil
	}
	if !p.May(toolkeep.PermActAs) {
		field, what := "agent_id", "subject"
		if !otherSubject {
			field, what = "user_id", "user"
		}
		return nil, refused("the call names another %s than the caller's own; leave it out, or use a key whose role has the permission %s",
			what, toolkeep.PermActAs).With("field", field)
	}
	subject, user := "", ""
	if otherSubject {
		subject = c.Subject
	}
	if otherUser {
		user = c.User
	}
	return p.As(subject, user)
}

// refused is the error for a missing permission.
func refused(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.PermissionDenied, format, args...).With("reason", "RBAC_DENIED")
}
