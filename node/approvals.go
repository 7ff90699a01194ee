package node

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/control/approvals"
	"github.com/toolkeep/toolkeep/egress"
)

// buildApprovals makes the book of calls that wait for a person.
func (n *Node) buildApprovals(context.Context) error {
	c := n.config.Approvals
	rules, err := c.Rules()
	if err != nil {
		return err
	}
	n.approvals, err = approval.New(approval.Config{Store: n.store, Rules: rules, MaxPending: c.MaxPending, MaxPendingAgent: c.MaxPendingAgent,
		URL: n.publicURL, Clock: n.options.Clock, Log: n.logger("approvals")})
	return err
}

// buildDecisions makes what people decide about those calls.
func (n *Node) buildDecisions(context.Context) error {
	s := n.config.Approvals.Supervisor()
	if s != nil { // the operator names the service, so it may stand on an inner address
		s.Client, s.Key = n.client("", egress.Destination(s.URL)), n.credential(n.config.Approvals.EndpointKey)
	}
	n.approving = approvals.New(approvals.Config{Book: n.approvals, Calls: n.pipeline, Store: n.store, Callers: n.access, Supervisor: s, Clock: n.options.Clock, Log: n.logger("approvals"),
		Clean: func(p *toolkeep.Principal, text string) string { return n.redact.For(p).Clean(text) }})
	return nil
}
