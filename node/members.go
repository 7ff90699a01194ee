package node

import (
	"cmp"
	"context"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/membership"
)

// Works that one node does for all of its store.
const (
	workSweep     = "calls.sweep"     // lapsed leases, passed deadlines, results that nobody fetched
	workRetention = "store.retention" // rows past their time
	workVectors   = "vectors.sweep"   // vectors that nobody uses
)

// workBlobs is the removal of old blobs, in the folder that this node has.
func (n *Node) workBlobs() string { return "blobs.sweep" }

// buildMembers gives the node its name and makes it one among the others.
func (n *Node) buildMembers(context.Context) (err error) {
	if n.name = n.config.Node.Name; n.name == "" {
		if n.name, err = datadir.NodeName(n.config.Data); err != nil {
			return err
		}
	}
	n.members = membership.New(membership.Config{
		Self:  toolkeep.NodeState{Name: n.name, Run: uuid.NewString(), Version: cmp.Or(n.config.Service.Version, n.options.Version), StartedAt: n.now()},
		Place: datadir.Identity(n.config.Data), URL: n.peerURL, Clock: n.options.Clock, Log: n.logger("nodes"),
	})
	return nil
}

// peerURL is where the other nodes reach this one, "" until it listens.
func (n *Node) peerURL() string {
	if at := n.URL(); at != "" {
		return n.config.HTTP.Peer(at)
	}
	return ""
}

// leads tells whether this node does a work.
func (n *Node) leads(work string) func() bool {
	return func() bool { return n.members.Leads(work) }
}

// startLeading asks for all works. River elects a leader for the queue's own upkeep itself.
func (n *Node) startLeading(context.Context) error {
	for _, work := range []string{workSweep, workRetention, workVectors, n.workBlobs()} {
		n.members.Lead(work, nil)
	}
	return nil
}

// Members is this node among those of its store.
func (n *Node) Members() *membership.Members { return n.members }
