package node

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/examples/bookshop"
	"github.com/toolkeep/toolkeep/executor/builtin"
)

// publishBuiltins registers the builtin tools for all tenants. What is there
// already stays as it is.
func (n *Node) publishBuiltins(ctx context.Context) error {
	_, err := n.catalog.Publish(ctx, access.System(), builtin.Manifests(), catalog.PublishOptions{Shared: true})
	if err != nil {
		return fmt.Errorf("the builtin tools cannot be published: %w", err)
	}
	return nil
}

// startExamples runs the bookshop and imports its document.
func (n *Node) startExamples(ctx context.Context) error {
	if !n.config.Examples.Enabled {
		return nil
	}
	return bookshop.Serve(ctx, bookshop.Serving{Secrets: n.config.SecretDirs()[0], By: access.System(), Imports: n.faces.imports,
		Listen: func(s *http.Server) (net.Addr, error) { return n.faces.listeners.HTTP(s, n.config.Examples.Addr, nil) }})
}
