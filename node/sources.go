package node

import (
	"context"
	"net"
	"net/http"

	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/examples/bookshop"
)

// startExamples runs the bookshop and imports its document.
func (n *Node) startExamples(ctx context.Context) error {
	if !n.config.Examples.Enabled {
		return nil
	}
	return bookshop.Serve(ctx, bookshop.Serving{Secrets: n.config.SecretDirs()[0], By: access.System(), Imports: n.faces.imports,
		Listen: func(s *http.Server) (net.Addr, error) { return n.faces.listeners.HTTP(s, n.config.Examples.Addr, nil) }})
}
