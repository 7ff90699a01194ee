package node

import (
	"context"

	"github.com/toolkeep/toolkeep/audit/outbox"
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
		Hook: func(sink string) {
			if n.options.Hook != nil {
				n.options.Hook("deliver", sink)
			}
		}})
	return err
}

// leadSinks delivers on the node that leads it.
func (n *Node) leadSinks() {
	if n.sinks.Any() {
		n.members.Lead(outbox.Work, n.sinks.Run)
	}
}
