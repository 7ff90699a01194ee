package node

import (
	"context"
	"fmt"

	"github.com/toolkeep/toolkeep/executor/grpctool"
	"github.com/toolkeep/toolkeep/executor/httptool"
)

// buildHTTP makes the executor of HTTP endpoints.
func (n *Node) buildHTTP(context.Context) error {
	e, err := n.egressConfig()
	if err == nil {
		n.http = httptool.New(httptool.Config{Clock: n.options.Clock, Egress: e})
	}
	return err
}

// buildGRPC makes the executor of gRPC methods.
func (n *Node) buildGRPC(context.Context) error {
	e, err := n.egressConfig()
	if err != nil {
		return fmt.Errorf("the connections to gRPC servers cannot be set up: %w", err)
	}
	n.grpc = grpctool.New(grpctool.Config{Egress: e})
	return nil
}
