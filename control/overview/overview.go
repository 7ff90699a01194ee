package overview

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
)

// Config is what an Overview shows. All parts are required but Clock.
type Config struct {
	Node   string // its name
	Recent *Recent
	Calls  interface { // toolkeep.Invocations
		List(ctx context.Context, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error)
	}
	Approvals *approval.Book
	Rates     limit.Config // as they were set
	Bulkheads func() []bulkhead.Stat
	Clock     func() time.Time // default time.Now
}

// Overview answers what a node did lately.
type Overview struct {
	c    Config
	mu   sync.Mutex
	live map[string]inCalls // by tenant
}

// inCalls are the calls under way, of a moment.
type inCalls struct {
	at              time.Time
	running, queued int
}

// New makes an Overview.
func New(c Config) *Overview {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	return &Overview{c: c, live: map[string]inCalls{}}
}

// CallCounts are of calls that ended in a time.
type CallCounts struct {
	Calls     int     `json:"calls" doc:"that ended, cancelled ones too"`
	Succeeded int     `json:"succeeded"`
	Failed    int     `json:"failed" doc:"in their tool, or with an unknown outcome"`
	Refused   int     `json:"refused"`
	CacheHits int     `json:"cache_hits"`
	CostUSD   float64 `json:"cost_usd"`
	P50       float64 `json:"p50_ms" doc:"how long calls took that were not refused, estimated within 15 bounds from 1 ms to 60 s; 0 without calls"`
	P95       float64 `json:"p95_ms"`
	P99       float64 `json:"p99_ms"`
}

// OverviewPoint is a minute.
type OverviewPoint struct {
	At time.Time `json:"at" doc:"when the minute began"`
	CallCounts
}

// CodeCount is how many calls ended with an error.
type CodeCount struct {
	ErrorCode toolkeep.Code `json:"error_code"`
	Name      string        `json:"name"`
	Count     int           `json:"count"`
}

// OverviewReport is what the node did.
type OverviewReport struct {
	Node    string          `json:"node" doc:"the node that answers; each counts its own calls"`
	Since   time.Time       `json:"since" doc:"when it began to count"`
	WindowS int             `json:"window_s"`
	StepS   int             `json:"step_s"`
	Points  []OverviewPoint `json:"points" doc:"one for each step of the window since then, the last one not over yet"`
	Totals  CallCounts      `json:"totals"`
	Codes   []CodeCount     `json:"codes" doc:"the most frequent first"`
	Running int             `json:"running" doc:"calls of all nodes that run and have a record already; those that were created in the last day, up to 5 s old"`
	Queued  int             `json:"queued" doc:"of all nodes, as running"`
	Pending int             `json:"pending_approvals" doc:"calls that wait for a person"`
}

const (
	// MinWindow and MaxWindow bound the window of a report.
	MinWindow, MaxWindow = 5 * time.Minute, minutes * time.Minute
	underWay             = 5 * time.Second // how long the number of calls under way is kept
	underWayBack         = 24 * time.Hour
)

// Show reports what the node did for the principal's tenant. E3201 without the permission invocations:read, E3301 for a window that is
// too short or too long.
func (o *Overview) Show(ctx context.Context, pr *toolkeep.Principal, window time.Duration) (*OverviewReport, error) {
	if !pr.May(toolkeep.PermInvocations) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "the overview is of all calls of the tenant; that needs the permission %s", toolkeep.PermInvocations)
	}
	if window < MinWindow || window > MaxWindow {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the window is %s; it is from %s to %s", window, MinWindow, MaxWindow)
	}
	now := o.c.Clock()
	r := &OverviewReport{Node: o.c.Node, Since: o.c.Recent.since.UTC(), WindowS: int(window / time.Second), StepS: 60, Codes: []CodeCount{}}
	to := now.Unix() / 60
	from := max(to-int64(window/time.Minute)+1, o.c.Recent.since.Unix()/60)
	var all counts
	r.Points = o.c.Recent.points(pr.Tenant, from, to, &all)
	r.Totals = all.shown()
	for code, n := range all.codes {
		r.Codes = append(r.Codes, CodeCount{ErrorCode: code, Name: code.Info().Name, Count: n})
	}
	slices.SortFunc(r.Codes, func(a, b CodeCount) int { return cmp.Or(b.Count-a.Count, cmp.Compare(a.ErrorCode, b.ErrorCode)) })
	var err error
	if r.Running, r.Queued, err = o.underWay(ctx, pr.Tenant, now); err != nil {
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the record of calls cannot be read now").Because(err)
	}
	r.Pending = len(o.c.Approvals.List(pr.Tenant, approval.Pending))
	return r, nil
}

// points are those of the minutes from one to another, and all is what they have together.
func (r *Recent) points(name string, from, to int64, all *counts) []OverviewPoint {
	r.mu.Lock()
	t := r.tenants[name]
	r.mu.Unlock()
	list := []OverviewPoint{}
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	for m := from; m <= to; m++ {
		p := OverviewPoint{At: time.Unix(m*60, 0).UTC()}
		if t != nil {
			if c := &t.cells[m%minutes]; c.minute == m {
				p.CallCounts = c.shown()
				all.add(&c.counts)
			}
		}
		list = append(list, p)
	}
	return list
}

func (c *counts) shown() CallCounts {
	return CallCounts{Calls: c.calls, Succeeded: c.succeeded, Failed: c.failed, Refused: c.refused, CacheHits: c.hits, CostUSD: c.cost,
		P50: c.quantile(0.5), P95: c.quantile(0.95), P99: c.quantile(0.99)}
}

// underWay counts a tenant's calls that run and that wait for a worker.
func (o *Overview) underWay(ctx context.Context, tenant string, now time.Time) (running, queued int, err error) {
	o.mu.Lock()
	kept, ok := o.live[tenant]
	o.mu.Unlock()
	if ok && now.Sub(kept.at) < underWay {
		return kept.running, kept.queued, nil
	}
	f := toolkeep.InvocationFilter{Tenant: tenant, State: toolkeep.CallRunning, Since: now.Add(-underWayBack), Limit: 1}
	if _, running, err = o.c.Calls.List(ctx, f); err != nil {
		return 0, 0, err
	}
	f.State = toolkeep.CallQueued
	if _, queued, err = o.c.Calls.List(ctx, f); err != nil {
		return 0, 0, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.live) >= maxTenants {
		clear(o.live)
	}
	o.live[tenant] = inCalls{now, running, queued}
	return running, queued, nil
}

// LimitInForce is a limit that is in force.
type LimitInForce struct {
	LimitType string `json:"limit_type" enum:"agent,agent_tool,tenant,upstream,global,concurrency"`
	Scope     string `json:"scope" doc:"what is counted together"`
	PerMinute int    `json:"per_minute,omitempty" doc:"on all nodes together; absent of concurrency"`
	Burst     int    `json:"burst,omitempty" doc:"calls at once, where that is bounded"`
	AtOnce    int    `json:"at_once,omitempty" doc:"of concurrency alone"`
}

// BulkheadUse is what a bulkhead of the node does.
type BulkheadUse struct {
	Bulkhead string `json:"bulkhead"`
	Running  int    `json:"running"`
	Waiting  int    `json:"waiting"`
	Most     int    `json:"most"`
	Refused  int64  `json:"refused" doc:"attempts, since the node started"`
}

// RefusedByLimit is who was refused by which limit.
type RefusedByLimit struct {
	LimitType string    `json:"limit_type"`
	Subject   string    `json:"subject,omitempty" doc:"for who has invocations:read"`
	ToolID    string    `json:"tool_id,omitempty" doc:"as subject; absent of requests that are no calls"`
	Count     int       `json:"count"`
	LastAt    time.Time `json:"last_at"`
}

// LimitReport is the limits of a node, and whom they refused.
type LimitReport struct {
	Node      string           `json:"node" doc:"the node that answers; each tells whom it refused"`
	Since     time.Time        `json:"since"`
	Limits    []LimitInForce   `json:"limits"`
	Bulkheads []BulkheadUse    `json:"bulkheads,omitempty" doc:"for operators of the tenant default, since they hold calls of all tenants"`
	Refused   []RefusedByLimit `json:"refused" doc:"of your tenant: the last 32 of limit, subject and tool, newest first"`
}

// Limits reports the limits in force. E3201 without the permission system:operate.
func (o *Overview) Limits(pr *toolkeep.Principal) (*LimitReport, error) {
	if !pr.May(toolkeep.PermOperate) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "the limits are shown to operators (permission %s)", toolkeep.PermOperate)
	}
	c := o.c.Rates
	r := &LimitReport{Node: o.c.Node, Since: o.c.Recent.since.UTC(), Limits: []LimitInForce{}, Refused: o.c.Recent.refusedOf(pr)}
	for _, l := range []LimitInForce{
		{LimitType: limit.TypeAgent, Scope: "requests of an agent", PerMinute: c.PerAgentRPM, Burst: c.Burst},
		{LimitType: limit.TypeAgentTool, Scope: "calls of an agent to one tool", PerMinute: c.PerToolRPM, Burst: c.Burst},
		{LimitType: limit.TypeTenant, Scope: "requests of all agents of a tenant", PerMinute: c.PerTenantRPM},
		{LimitType: limit.TypeUpstream, Scope: "calls of a tenant to one upstream", PerMinute: c.PerUpstreamRPM, Burst: c.Burst},
		{LimitType: limit.TypeGlobal, Scope: "requests to all nodes", PerMinute: c.GlobalRPM},
		{LimitType: "concurrency", Scope: "calls of an agent at once", AtOnce: c.Concurrent},
	} {
		if l.PerMinute > 0 || l.AtOnce > 0 {
			r.Limits = append(r.Limits, l)
		}
	}
	if pr.Tenant == access.HomeTenant {
		for _, b := range o.c.Bulkheads() {
			r.Bulkheads = append(r.Bulkheads, BulkheadUse{Bulkhead: b.Name, Running: b.InUse, Waiting: b.Waiting, Most: b.Limit, Refused: b.Refused})
		}
	}
	return r, nil
}

func (r *Recent) refusedOf(pr *toolkeep.Principal) []RefusedByLimit {
	list := []RefusedByLimit{}
	r.mu.Lock()
	t := r.tenants[pr.Tenant]
	r.mu.Unlock()
	if t == nil {
		return list
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for k, by := range t.refused {
		one := RefusedByLimit{LimitType: k.limit, Subject: k.subject, ToolID: k.tool, Count: by.count, LastAt: by.last.UTC()}
		if !pr.May(toolkeep.PermInvocations) {
			one.Subject, one.ToolID = "", ""
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b RefusedByLimit) int { return b.LastAt.Compare(a.LastAt) })
	return list
}
