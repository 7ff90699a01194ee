package node

import (
	"context"

	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/control/policies"
	"github.com/toolkeep/toolkeep/egress"
)

// buildPolicy makes what decides calls after the roles, if the settings name one. A policy that
// cannot be used refuses the start.
func (n *Node) buildPolicy(ctx context.Context) (err error) {
	if !n.config.Access.Attributes() {
		return nil
	}
	s := n.config.Policy
	c := s.Engine()
	record := policies.Recorder{Store: n.store, Node: n.name, Clock: n.options.Clock, Log: n.logger("permission_manager")}
	c.OnChange, c.Clock, c.Log = record.Changed, n.options.Clock, record.Log
	if r := c.Remote; r != nil {
		// The operator names the service, so it may stand on an inner address; nothing else
		// is reached with this client.
		r.Client = n.client("", egress.Destination(r.Address()))
		if s.Token != "" {
			r.Bearer = n.credential(s.Token)
		}
	}
	n.policy, err = policy.New(ctx, c)
	return err
}

func (n *Node) followPolicy(ctx context.Context) error {
	if n.policy == nil {
		return nil
	}
	return n.policy.Start(ctx)
}

func (n *Node) stopPolicy() {
	if n.policy != nil {
		n.policy.Stop()
	}
}
