package toolkeep

import (
	"context"
	"errors"
	"time"
)

// NodeGone is how long a node may be silent before the others count it as gone.
const NodeGone = 15 * time.Second

// MaxNodeData bounds NodeState.Data in bytes.
const MaxNodeData = 64 << 10

// NodeState is what a node tells the others about itself.
type NodeState struct {
	Name      string // survives a restart; unique among the nodes of one store
	Run       string // unique for each start of the process
	Version   string
	URL       string    // where peers reach it, "" if they cannot
	StartedAt time.Time // by the node's clock
	SeenAt    time.Time // by the store's clock; set by the store
	Leads     []string  // works that it leads, ordered; set by the store
	// Data is a JSON object of at most MaxNodeData: what nodes compare or show. No secrets.
	Data []byte
}

// Check refuses a state that no store takes.
func (n *NodeState) Check() error {
	switch {
	case n.Name == "" || n.Run == "":
		return errors.New("a node needs a name and a run")
	case len(n.Data) > MaxNodeData:
		return errors.New("a node says more of itself than 64 KiB")
	}
	return nil
}

// Members is what the nodes of one store know of each other. The store's clock decides
// who lives and who leads. Nothing of it is in the feed.
type Members interface {
	// Join takes the node's name for its Run, also from another Run, and returns what that
	// one last said of itself, nil if there was none.
	Join(ctx context.Context, n NodeState) (before *NodeState, err error)
	// Beat stores the node's state and returns the nodes seen within NodeGone by name, itself
	// included, and the store's time. ErrStale if another Run has joined under the name since.
	Beat(ctx context.Context, n NodeState) (nodes []NodeState, now time.Time, err error)
	// Leave removes the node, unless another Run has its name, and releases what the Run
	// leads. A node that is not there is no error.
	Leave(ctx context.Context, name, run string) error
	// Lead takes or renews the lead of a work for the period, which begins when the store
	// gets the request. It is false while another Run has the lead, and for a Run that has
	// not joined or whose name another has.
	Lead(ctx context.Context, work, name, run string, period time.Duration) (bool, error)
}
