package approval

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Grant is a standing approval: calls that it covers are not asked about until it ends.
type Grant struct {
	ID       string    `json:"id"` // of the call whose decision made it
	Tenant   string    `json:"tenant"`
	Subject  string    `json:"subject"`
	OnBehalf string    `json:"on_behalf,omitempty"`
	Chain    []string  `json:"chain,omitempty"` // of the call
	ToolID   string    `json:"tool_id"`
	Version  string    `json:"version"`
	Tool     string    `json:"tool_digest"`
	Args     string    `json:"arguments_sha256,omitempty"` // of the arguments after coercion; or
	Session  string    `json:"session,omitempty"`          // any arguments in this session
	Rule     string    `json:"rule,omitempty"`
	Until    time.Time `json:"until"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
}

// Scope says what a standing approval is for besides the agent, the person and the version.
type Scope string

const (
	ForArguments Scope = "arguments"
	ForSession   Scope = "session"
)

// MaxGrant is the longest life of a standing approval.
const MaxGrant = 24 * time.Hour

// Remember makes a grant of an approved request. args is the hash of the arguments that were
// approved. E3301 for a request that several decide, a session that is not named, and a time that
// is past or too late.
func (q *Request) Remember(scope Scope, until, now time.Time, args [32]byte) (*Grant, error) {
	switch {
	case q.Needed > 1:
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "a request that %d persons decide is decided each time; leave remember out", q.Needed)
	case !until.After(now) || until.After(now.Add(MaxGrant)):
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "remember.until is a time within the next %s", MaxGrant)
	case scope == ForSession && q.Session == "":
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the call named no session; remember it for its arguments")
	}
	last := q.Decisions[len(q.Decisions)-1]
	g := &Grant{ID: q.ID, Tenant: q.Tenant, Subject: q.Subject, OnBehalf: q.OnBehalf, Chain: q.Chain, ToolID: q.ToolID, Version: q.Version, Tool: q.Tool,
		Rule: q.Rule, Until: until, By: last.By, At: now}
	switch scope {
	case ForArguments:
		g.Args = hex.EncodeToString(args[:])
	case ForSession:
		g.Session = q.Session
	default:
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "remember.for is arguments or session")
	}
	return g, nil
}

// covers reports whether the grant is for a call that owes an approval under a rule.
func (g *Grant) covers(v *toolkeep.Invocation, n *Need, now time.Time) bool {
	return g.Tenant == v.Tenant && g.Subject == v.Subject && g.OnBehalf == v.OnBehalf && slices.Equal(g.Chain, v.Chain) &&
		g.ToolID == v.ToolID && g.Version == v.Version && g.Tool == v.Digest && g.Rule == n.Rule && n.Count == 1 && now.Before(g.Until) &&
		(g.Args != "" && g.Args == hex.EncodeToString(v.ArgsHash[:]) || g.Session != "" && g.Session == v.Session)
}

// whose is the key by which grants are found.
type whose struct{ tenant, subject, tool string }

// Standing returns the standing approval that covers a call, nil if there is none.
func (b *Book) Standing(v *toolkeep.Invocation, n *Need) *Grant {
	now := b.c.Clock()
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, g := range b.grants[whose{v.Tenant, v.Subject, v.ToolID}] {
		if g.covers(v, n, now) {
			return g
		}
	}
	return nil
}

// Grants returns the standing approvals of a tenant that have not ended, the newest first.
func (b *Book) Grants(tenant string) []*Grant {
	now := b.c.Clock()
	b.mu.RLock()
	defer b.mu.RUnlock()
	var all []*Grant
	for k, list := range b.grants {
		if k.tenant != tenant {
			continue
		}
		for _, g := range list {
			if now.Before(g.Until) {
				all = append(all, g)
			}
		}
	}
	slices.SortFunc(all, func(x, y *Grant) int { return y.At.Compare(x.At) })
	return all
}
