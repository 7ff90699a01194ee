package node

import (
	"context"
	"net/http"

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
	record := &policies.Recorder{Store: n.store, Node: n.name, Clock: n.options.Clock, Log: n.logger("permission_manager"),
		Tell: func(ctx context.Context, digest string) error { return n.redis.Publish(ctx, policyUpdates, digest) }}
	c.OnChange, c.Clock, c.Log = record.Changed, n.options.Clock, record.Log
	// The operator names the service, so it may stand on an inner address; nothing else is
	// reached with this client.
	c.Connect(func(address string) *http.Client { return n.client("", egress.Destination(address)) }, n.credential(s.Token), n.config.Data)
	n.policy, err = policy.New(ctx, c)
	record.Engine, n.bundles = n.policy, record
	return err
}

// policyUpdates is the channel of Redis on which a node says that it has taken another policy, and an operator that there is one.
const policyUpdates = "policy:updates"

func (n *Node) followPolicy(ctx context.Context) error {
	if n.policy == nil {
		return nil
	}
	n.redis.Subscribe(policyUpdates, n.policy.Look)
	return n.following.Start(ctx, "permission_manager", "policies", n.bundles)
}
