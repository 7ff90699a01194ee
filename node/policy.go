package node

import (
	"context"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/egress"
)

// buildPolicy makes what decides calls after the roles, if the settings name one. A policy that
// cannot be used refuses the start.
func (n *Node) buildPolicy(ctx context.Context) (err error) {
	if !n.config.Access.Attributes() {
		return nil
	}
	s := n.config.Policy
	c := policyConfig(s)
	c.OnChange, c.Clock, c.Log = n.policyChanged, n.options.Clock, n.logger("permission_manager")
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

func policyConfig(s config.Policy) policy.Config {
	c := policy.Config{Path: s.Path, Timeout: s.Timeout, KeepFor: s.CacheTTL, Poll: s.Poll}
	if s.CacheTTL == 0 {
		c.KeepFor = -1
	}
	if s.Path == "" {
		c.Remote, c.Timeout = &policy.Remote{OPA: s.OPAURL, ABAC: s.ABACURL}, s.RemoteTimeout
	}
	return c
}

// checkPolicy tells what buildPolicy would refuse.
func checkPolicy(ctx context.Context, c *config.Config) error {
	if !c.Access.Attributes() || c.Policy.Path == "" {
		return nil
	}
	_, err := policy.New(ctx, policyConfig(c.Policy))
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

// eventPolicy is the record of a policy that was taken, or refused at a change.
const eventPolicy = "ai.agent.policy.changed"

// policyChanged records which policy decides from now on.
func (n *Node) policyChanged(s policy.State) {
	data := map[string]any{"source": s.Source, "digest": s.Digest, "node": n.name, "taken": s.Refused == ""}
	if s.Refused != "" {
		data["reason"] = s.Refused
	}
	id, err := uuid.NewV7()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), answerGrace)
		defer cancel()
		err = n.store.Apply(ctx, toolkeep.AppendEvent{Event: toolkeep.Event{ID: id.String(), Type: eventPolicy, Tenant: access.HomeTenant,
			Time: n.options.Clock(), Data: canon.Append(nil, data)}})
	}
	if err != nil {
		n.logger("permission_manager").Error("the record of a changed policy could not be written", "digest", s.Digest, "error", err)
	}
}
