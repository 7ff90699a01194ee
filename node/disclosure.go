package node

import (
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/face/rest"
)

// guide makes contexts and finds related tools, for every face, from the search that
// they have.
func (n *Node) guide(search assembly.Search) *assembly.Guide {
	b, s := n.config.Search.Budgets, n.config.Search.Context
	bound := func(share float64) float64 {
		if share == 0 {
			return -1 // none, where 0 is the default there
		}
		return share
	}
	return &assembly.Guide{Search: search, Usage: disclosed{n.usage}, Shares: assembly.Shares{Near: bound(s.Near), Listed: bound(s.Listed)}, Budgets: assembly.Budgets{InitialPlanning: b.InitialPlanning,
		ToolSelection: b.ToolSelection, ExecutionPreparation: b.ExecutionPreparation, ErrorRecovery: b.ErrorRecovery}}
}

// disclosed fits what was learned to what is disclosed of it.
type disclosed struct{ *usage.Usage }

func (d disclosed) Pairings(tenant, tool string, n int) []assembly.Pairing {
	list := d.Usage.Pairings(tenant, tool, n)
	out := make([]assembly.Pairing, len(list))
	for i, p := range list {
		out[i] = assembly.Pairing{ToolID: p.ToolID, Score: p.CooccurrenceScore, Sequence: p.TypicalSequence}
	}
	return out
}

func (d disclosed) Failures(tenant, tool string) []assembly.SeenError {
	a, _ := d.Analytics(tenant, tool)
	out := make([]assembly.SeenError, len(a.ErrorPatterns))
	for i, e := range a.ErrorPatterns {
		out[i] = assembly.SeenError{Code: toolkeep.Code(e.ErrorType), Count: e.Frequency, Resolution: e.CommonResolution}
	}
	return out
}

// toolAnalytics is how a tool did for a tenant, as REST shows it.
func (n *Node) toolAnalytics(tenant, tool string) (rest.ToolAnalytics, bool) {
	a, ok := n.usage.Analytics(tenant, tool)
	if !ok {
		return rest.ToolAnalytics{}, false
	}
	out := rest.ToolAnalytics{TotalExecutions: a.TotalExecutions, SuccessRate: a.SuccessRate, AvgExecutionTimeMs: a.AvgExecutionTimeMs, ErrorPatterns: []rest.ToolErrorPattern{}}
	if !a.LastUsed.IsZero() {
		at := a.LastUsed.UTC().Truncate(time.Millisecond)
		out.LastUsed = &at
	}
	for _, e := range a.ErrorPatterns {
		out.ErrorPatterns = append(out.ErrorPatterns, rest.ToolErrorPattern{ErrorType: string(e.ErrorType), Frequency: e.Frequency, CommonResolution: e.CommonResolution})
	}
	return out, true
}
