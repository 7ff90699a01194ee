package node

import (
	"cmp"
	"context"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/control/health"
	"github.com/toolkeep/toolkeep/control/nodes"
	"github.com/toolkeep/toolkeep/control/servers"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/membership"
)

// Works that one node does for all of its store.
const (
	workSweep     = "calls.sweep"     // lapsed leases, passed deadlines, results that were not fetched
	workApprovals = "approvals.sweep" // approvals that others are asked for, and those that were decided
	workRetention = "store.retention" // rows past their time
	workVectors   = "vectors.sweep"   // vectors that no node uses (pgvector)
	// usage.Work, audit.Work, archive.Work, outbox.Work and health.Work are others.
)

// workBlobs is the removal of old blobs, in the folder that this node has.
func (n *Node) workBlobs() string { return "blobs.sweep " + n.blobs.ID() }

// buildMembers gives the node its name and makes it one among the others.
func (n *Node) buildMembers(context.Context) (err error) {
	if n.name, err = datadir.NodeName(n.config.Data, n.config.Node.Name); err != nil {
		return err
	}
	n.members = membership.New(membership.Config{
		Self:  toolkeep.NodeState{Name: n.name, Run: uuid.NewString(), Version: cmp.Or(n.config.Service.Version, n.options.Version), StartedAt: n.options.Clock()},
		Place: datadir.Identity(n.config.Data), URL: func() string { return n.config.HTTP.Peer(n.URL()) }, Clock: n.options.Clock, Log: n.logger("nodes"),
	})
	return nil
}

// leads tells whether this node does a work.
func (n *Node) leads(work string) func() bool {
	return func() bool { return n.members.Leads(work) }
}

// leading does a work where this node leads it.
func (n *Node) leading(work string, do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if !n.members.Leads(work) {
			return nil
		}
		return do(ctx)
	}
}

// startLeading asks for these works. River elects a leader for the queue's own upkeep itself.
func (n *Node) startLeading(context.Context) error {
	works := []string{workSweep, workApprovals, workRetention, n.workBlobs()}
	if n.config.Search.Vectors == "pgvector" {
		works = append(works, workVectors)
	}
	for _, work := range works {
		n.members.Lead(work, nil)
	}
	n.members.Lead(audit.Work, membership.Every(audit.Every, n.logger("audit"), n.audit.Checkpoint))
	n.members.Lead(health.Work, n.monitor.Run)
	if n.archive != nil {
		n.members.Lead(archive.Work, n.archive.Run)
	}
	if n.sinks.Any() {
		n.members.Lead(outbox.Work, n.sinks.Run)
	}
	return nil
}

// buildReads makes what records reads of tools.
func (n *Node) buildReads(context.Context) error {
	n.reads = audit.NewReads(audit.ReadsConfig{Store: n.store, Which: n.config.Audit.Reads, Clean: n.redact.All().Clean,
		Clock: n.options.Clock, Log: n.logger("audit")})
	return nil
}

// buildAudit makes what signs and verifies the journal. Its stop comes after that of all that records.
func (n *Node) buildAudit(context.Context) (err error) {
	c := audit.Config{Store: n.store, Sealer: n.sealer, Clock: n.options.Clock, Log: n.logger("audit")}
	ac := n.config.AuditArchive()
	if ac.Dir != "" {
		ac.Store, ac.Sealer, ac.Clock, ac.Log, ac.Hook = n.store, n.sealer, c.Clock, c.Log, n.hooked("archive")
		if n.archive, err = archive.New(ac); err != nil {
			return err
		}
		c.Archive, c.ArchiveWait = n.archive, ac.Wait
	}
	n.audit = audit.New(c)
	return nil
}

// buildAgreement compares this node with the others, and divides the limits among them, now and at each beat.
func (n *Node) buildAgreement(ctx context.Context) error {
	n.agreement = nodes.NewAgreement(nodes.AgreementConfig{Members: n.members, Log: n.logger("nodes"),
		OpensStore: func(ctx context.Context) error { return n.sealer.OpensStore(ctx, n.store) }})
	n.members.Tell(ctx, func() any {
		ids := n.sealer.IDs()
		return struct {
			nodes.Facts
			servers.Told
			Sinks map[string]outbox.State `json:"sinks,omitempty"`
		}{nodes.Facts{Seals: ids[0], Opens: ids, Blobs: n.blobs.ID(), KeyTTL: n.config.Idempotency.TTL, Issuers: n.access.IssuersSum()}, n.servers.Told(), n.sinks.Told()}
	}, func() {
		n.agreement.Look()
		n.limits.SetNodes(n.members.Rank())
	})
	return nil
}
