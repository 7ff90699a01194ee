package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/control/imports"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/examples/bookshop"
	"github.com/toolkeep/toolkeep/executor/builtin"
)

// publishBuiltins registers the builtin tools for all tenants. What is there
// already stays as it is.
func (n *Node) publishBuiltins(ctx context.Context) error {
	_, err := n.catalog.Publish(ctx, System(), builtin.Manifests(), catalog.PublishOptions{Shared: true})
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
	secrets := filepath.Join(n.secretDirs()[0], "_shared")
	if err := os.MkdirAll(secrets, 0o700); err != nil {
		return err
	}
	keyFile := filepath.Join(secrets, "bookshop.key")
	if err := datadir.WriteFile(keyFile, bookshop.DefaultKey+"\n"); err != nil {
		return err
	}
	shop := &http.Server{Handler: bookshop.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	addr, err := n.faces.listeners.HTTP(shop, n.config.Examples.Addr, nil)
	if err != nil {
		return errors.Join(err, errors.New("move the example bookshop with examples.addr, or start without --examples"))
	}
	_, _, err = n.faces.imports.OpenAPI(ctx, System(), imports.Request{Document: bookshop.Document(), Name: "openapi.yaml", Namespace: "bookshop",
		Server: "http://" + addr.String(), Auth: map[string]string{"apiKey": "file://" + keyFile}, PublishOptions: catalog.PublishOptions{Shared: true}})
	return err
}
