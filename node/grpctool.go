package node

import (
	"fmt"

	"github.com/toolkeep/toolkeep/executor/grpctool"
)

// buildGRPC makes the executor of gRPC methods.
func (n *Node) buildGRPC() error {
	e, err := n.egressConfig()
	if err != nil {
		return fmt.Errorf("the connections to gRPC servers cannot be set up: %w", err)
	}
	n.grpc = grpctool.New(grpctool.Config{Egress: e})
	return nil
}
