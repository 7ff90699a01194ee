// Package breakers is what people see of circuit breakers, and force them to.
package breakers

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// maxReason bounds the words of an operator in bytes.
const maxReason = 1000

// Source has the breakers; *breaker.Breakers does.
type Source interface {
	List(tenant string) []breaker.Info
	Get(tenant, id string) (breaker.Info, bool)
	Force(ctx context.Context, tenant, id string, state breaker.State, by, reason string) error
	Reset(ctx context.Context, tenant, id, by, reason string) error
}

// Catalog finds tools; *catalog.Catalog does.
type Catalog interface {
	Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
}

// Breakers does what people ask. Both are required.
type Breakers struct {
	Source  Source
	Catalog Catalog
}

// Breaker is what is shown of one.
type Breaker struct {
	ID     string        `json:"breaker" doc:"tool: and the tool's id; host: and the host and port of a service; mcp: and the name of a server; file: and a database's file or socket"`
	Shared bool          `json:"shared,omitempty" doc:"it is of shared tools, for all tenants"`
	State  breaker.State `json:"state" enum:"closed,open,half_open,forced_open,forced_closed"`
	Reason string        `json:"reason,omitempty" doc:"why it opened: failure_rate, slow_call_rate, error_count, consecutive_failures or test_failed; if it is forced, the operator's words"`
	Since  time.Time     `json:"since,omitzero" doc:"when the state began; absent while it is closed"`
	Until  time.Time     `json:"until,omitzero" doc:"when the first test call may come"`
	Node   string        `json:"node,omitempty" doc:"which opened it, or makes the test calls"`
	By     string        `json:"by,omitempty" doc:"the operator who forced it"`
	// Failed and the next two are what opened it.
	Failed  int   `json:"failed_calls,omitempty" doc:"failures when it opened"`
	Slow    int   `json:"slow_calls,omitempty" doc:"slow calls when it opened"`
	Of      int   `json:"of_calls,omitempty" doc:"calls in the window when it opened"`
	Passed  int   `json:"tests_passed,omitempty" doc:"test calls that succeeded"`
	Needed  int   `json:"tests_needed" doc:"test calls that must succeed"`
	Window  int   `json:"window_calls" doc:"calls in the window now, of the node that answers"`
	Failing int   `json:"window_failures" doc:"failures among them"`
	Lagging int   `json:"window_slow" doc:"slow ones among them"`
	InARow  int   `json:"failures_in_a_row" doc:"the last calls of this node that failed"`
	Refused int64 `json:"refused" doc:"attempts that the node refused since its start"`
}

func need(p *toolkeep.Principal) error {
	if p.May(toolkeep.PermOperate) {
		return nil
	}
	return toolkeep.NewError(toolkeep.PermissionDenied, "circuit breakers need the permission %s, which none of your roles grants", toolkeep.PermOperate).
		With("reason", "RBAC_DENIED").With("permission", toolkeep.PermOperate)
}

// tenants are those whose breakers a principal sees: its own, and for operators of the home tenant those of shared tools.
func tenants(p *toolkeep.Principal) []string {
	if p.Tenant == access.HomeTenant {
		return []string{p.Tenant, ""}
	}
	return []string{p.Tenant}
}

// List returns the breakers that the node knows: those that are not closed, and those of tools that it called lately.
// Those that are not closed come first. It needs system:operate. E3201.
func (s *Breakers) List(p *toolkeep.Principal) ([]Breaker, error) {
	if err := need(p); err != nil {
		return nil, err
	}
	list := []Breaker{}
	for _, tenant := range tenants(p) {
		for _, info := range s.Source.List(tenant) {
			list = append(list, shown(info))
		}
	}
	slices.SortStableFunc(list, func(a, b Breaker) int {
		switch {
		case (a.State == breaker.Closed) == (b.State == breaker.Closed):
			return strings.Compare(a.ID, b.ID)
		case a.State == breaker.Closed:
			return 1
		}
		return -1
	})
	return list, nil
}

// Show returns one; shared asks for that of shared tools, also where the principal's tenant has one of the same id. It needs
// system:operate. E3201, E3013.
func (s *Breakers) Show(p *toolkeep.Principal, id string, shared bool) (Breaker, error) {
	if err := need(p); err != nil {
		return Breaker{}, err
	}
	info, err := s.find(p, id, shared)
	return shown(info), err
}

// Actions of Do.
const (
	Open  = "open"  // refuse all calls
	Close = "close" // let all calls through
	Reset = "reset" // closed, and decided by calls again
)

// Do has an operator open a breaker, close it, or reset it, on all nodes; shared is that of Show. It needs system:operate. E3201; E3301 another action or
// too long a reason; E3013; E3965.
func (s *Breakers) Do(ctx context.Context, p *toolkeep.Principal, id string, shared bool, action, reason string) (Breaker, error) {
	if err := need(p); err != nil {
		return Breaker{}, err
	}
	if len(reason) > maxReason {
		return Breaker{}, toolkeep.NewError(toolkeep.InvalidParameters, "the reason has %d bytes; %d are the most", len(reason), maxReason)
	}
	info, err := s.find(p, id, shared)
	if err != nil {
		return Breaker{}, err
	}
	switch action {
	case Open:
		err = s.Source.Force(ctx, info.Tenant, info.ID, breaker.ForcedOpen, p.Subject, reason)
	case Close:
		err = s.Source.Force(ctx, info.Tenant, info.ID, breaker.ForcedClosed, p.Subject, reason)
	case Reset:
		err = s.Source.Reset(ctx, info.Tenant, info.ID, p.Subject, reason)
	default:
		return Breaker{}, toolkeep.NewError(toolkeep.InvalidParameters, "a breaker takes %s, %s or %s, not %.60q", Open, Close, Reset, action)
	}
	if err != nil {
		return Breaker{}, toolkeep.NewError(toolkeep.RecordUnavailable, "the breaker's state cannot be written now").Because(err)
	}
	info, err = s.find(p, id, shared)
	return shown(info), err
}

// find finds a breaker that the node knows, or that of a tool which was not called here.
func (s *Breakers) find(p *toolkeep.Principal, id string, shared bool) (breaker.Info, error) {
	of, by := tenants(p), p
	if shared {
		of, by = of[1:], &toolkeep.Principal{} // who has no tools but those
	}
	if tool, ok := strings.CutPrefix(id, "tool:"); ok { // of the tool that is called by that name
		v, _, err := s.Catalog.Find(by, tool, "", nil)
		if err == nil && slices.Contains(of, v.Tool.Tenant) {
			id = "tool:" + v.Tool.ID // it may have been named as exports do
			if info, ok := s.Source.Get(v.Tool.Tenant, id); ok {
				return info, nil
			}
			return breaker.Info{ID: id, Tenant: v.Tool.Tenant, Tool: true, State: breaker.Closed}, nil
		}
	}
	for _, tenant := range of {
		if info, ok := s.Source.Get(tenant, id); ok {
			return info, nil
		}
	}
	return breaker.Info{}, toolkeep.NewError(toolkeep.ResourceNotFound, "this node knows no breaker %.200q; write tool: before a tool's id, and host: before the host and port, or mcp: before the server, of tools that were called here (toolkeep breakers list)", id)
}

func shown(i breaker.Info) Breaker {
	r := i.Record
	return Breaker{ID: i.ID, Shared: i.Tenant == "", State: i.State, Reason: r.Reason, Since: r.Since, Until: r.Until, Node: r.Node, By: r.By, Failed: int(r.Failures), Slow: int(r.Slow), Of: int(r.Calls),
		Passed: r.Passed, Needed: max(1, i.Needs), Window: i.Calls, Failing: i.Failures, Lagging: i.Slow, InARow: i.InARow, Refused: i.Refused}
}
