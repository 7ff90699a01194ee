package node

import (
	"context"

	"github.com/toolkeep/toolkeep/control/sinks"
)

// buildSinks makes what the journal is delivered to.
func (n *Node) buildSinks(context.Context) error {
	connections, err := n.config.Egress.Pool()
	if err != nil {
		return err
	}
	n.sinks, err = sinks.New(sinks.Config{File: n.config.Outbox.SinksFile, Dir: n.config.DeadLetters(), Store: n.store, Members: n.members,
		Client: n.client, Egress: connections, Credential: n.credential, Clock: n.options.Clock, Log: n.logger("outbox"),
		Hook: n.hooked("deliver")})
	return err
}
