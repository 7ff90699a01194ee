package bookshop

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/control/imports"
	"github.com/toolkeep/toolkeep/datadir"
)

// The namespace of the published tools, and the name of their document.
const namespace, documentName = "bookshop", "openapi.yaml"

// Published reports whether a tool is one of those that Serve publishes.
func Published(t *toolkeep.Tool) bool {
	from := t.Manifest.Source
	return t.Tenant == "" && strings.HasPrefix(t.ID, namespace+".") && from != nil && from.Type == "openapi" && from.URI == documentName
}

// Serving is what Serve needs of a server.
type Serving struct {
	Secrets string // folder of file:// references
	By      *toolkeep.Principal
	Imports *imports.Imports
	Listen  func(*http.Server) (net.Addr, error)
}

// Serve runs the shop and publishes its tools for all tenants.
func Serve(ctx context.Context, s Serving) error {
	dir := filepath.Join(s.Secrets, "_shared")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	keyFile := filepath.Join(dir, "bookshop.key")
	if err := datadir.WriteFile(keyFile, DefaultKey+"\n"); err != nil {
		return err
	}
	addr, err := s.Listen(&http.Server{Handler: Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute})
	if err != nil {
		return errors.Join(err, errors.New("move the example bookshop with examples.addr, or start without --examples"))
	}
	_, _, err = s.Imports.OpenAPI(ctx, s.By, imports.Request{Document: Document(), Name: documentName, Namespace: namespace,
		Server: "http://" + addr.String(), Auth: map[string]string{"apiKey": "file://" + keyFile}, PublishOptions: catalog.PublishOptions{Shared: true}})
	return err
}
