package node

import (
	"github.com/toolkeep/toolkeep/discover/assembly"
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
	return &assembly.Guide{Search: search, Usage: n.usage, Shares: assembly.Shares{Near: bound(s.Near), Listed: bound(s.Listed)}, Budgets: assembly.Budgets{InitialPlanning: b.InitialPlanning,
		ToolSelection: b.ToolSelection, ExecutionPreparation: b.ExecutionPreparation, ErrorRecovery: b.ErrorRecovery}}
}
