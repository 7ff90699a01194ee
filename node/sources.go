package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/examples/bookshop"
	"github.com/toolkeep/toolkeep/executor/builtin"
	"github.com/toolkeep/toolkeep/face/rest"
)

// importTime bounds one import that the server itself reads.
const importTime = 2 * time.Minute

// importOpenAPI plans and publishes a document that a caller of REST names. The
// server fetches it under the SSRF guard: a document on a private address is
// imported by the command line, which reads it where the caller stands.
func (n *Node) importOpenAPI(ctx context.Context, p *toolkeep.Principal, r rest.ImportRequest) (*rest.ImportPlan, []catalog.Published, error) {
	if !p.May(toolkeep.PermPublish) {
		return nil, nil, toolkeep.NewError(toolkeep.PermissionDenied, "importing needs the permission %s, which no role of yours grants", toolkeep.PermPublish)
	}
	ctx, cancel := context.WithTimeout(ctx, importTime)
	defer cancel()
	location, done, err := documentLocation(r)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	transport := n.pool.Transport(p.Tenant, egress.AllowList{})
	plan, err := openapi.Read(ctx, openapi.Options{Location: location, Namespace: r.Namespace, Server: r.Server, Auth: r.Auth,
		Client: &http.Client{Transport: transport, Timeout: 30 * time.Second}, Previous: n.previous(p)})
	if err != nil {
		return nil, nil, err
	}
	published, err := n.publishPlan(ctx, p, plan, catalog.PublishOptions{Force: r.Force, Shared: r.Shared, DryRun: r.DryRun})
	if err != nil {
		return nil, nil, err
	}
	if r.DryRun {
		published = nil
	}
	return planAnswer(plan), published, nil
}

// documentLocation is the URL of the request, or a file that holds the document
// that came with it, alone in its folder.
func documentLocation(r rest.ImportRequest) (string, func(), error) {
	if len(r.Document) == 0 {
		u, err := url.Parse(r.Location)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" {
			return "", nil, toolkeep.NewError(toolkeep.ImportFailed, "the server reads documents from http and https URLs; send a file's content as document, or use the command line")
		}
		return r.Location, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "toolkeep-import")
	if err != nil {
		return "", nil, err
	}
	done := func() { os.RemoveAll(dir) }
	path := filepath.Join(dir, "document.yaml")
	if err := os.WriteFile(path, r.Document, 0o600); err != nil {
		done()
		return "", nil, err
	}
	return path, done, nil
}

// previous finds the highest version of a tool, in whatever state, for a
// re-import: its number is taken, also if it is blocked.
func (n *Node) previous(p *toolkeep.Principal) func(string) *toolkeep.Tool {
	return func(id string) *toolkeep.Tool {
		all, err := n.catalog.Versions(p, id, func(*toolkeep.Tool) bool { return true })
		if err != nil || len(all) == 0 {
			return nil
		}
		return all[0].Tool
	}
}

func (n *Node) publishPlan(ctx context.Context, p *toolkeep.Principal, plan *openapi.Plan, o catalog.PublishOptions) ([]catalog.Published, error) {
	var manifests [][]byte
	for _, t := range plan.Tools {
		if t.Change != "unchanged" {
			manifests = append(manifests, t.Manifest)
		}
	}
	if len(manifests) == 0 {
		return nil, nil
	}
	return n.catalog.Publish(ctx, p, manifests, o)
}

func planAnswer(plan *openapi.Plan) *rest.ImportPlan {
	a := &rest.ImportPlan{Title: plan.Title, Version: plan.Version, Digest: plan.Digest, Operations: plan.Operations,
		Tools: []rest.PlannedTool{}, Refused: []rest.RefusedTool{}, Warnings: append([]string{}, plan.Warnings...)}
	for _, t := range plan.Tools {
		a.Tools = append(a.Tools, rest.PlannedTool{Name: t.Name, Method: t.Method, Path: t.Path, OperationID: t.OperationID, Version: t.Version, Change: t.Change})
	}
	for _, r := range plan.Refused {
		a.Refused = append(a.Refused, rest.RefusedTool{Operation: r.Operation, Reason: r.Reason})
	}
	return a
}

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
	secrets := filepath.Join(n.secretDirs()[0], "_shared")
	if err := os.MkdirAll(secrets, 0o700); err != nil {
		return err
	}
	keyFile := filepath.Join(secrets, "bookshop.key")
	if err := writeFile(keyFile, bookshop.DefaultKey+"\n"); err != nil {
		return err
	}
	shop := &http.Server{Handler: bookshop.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	addr, err := n.serve(shop, n.config.Examples.Addr, nil)
	if err != nil {
		return errors.Join(err, errors.New("move the example bookshop with examples.addr, or start without --examples"))
	}
	dir, err := os.MkdirTemp("", "toolkeep-example")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "openapi.yaml")
	if err := os.WriteFile(path, bookshop.Document(), 0o600); err != nil {
		return err
	}
	plan, err := openapi.Read(ctx, openapi.Options{Location: path, Namespace: "bookshop", Server: "http://" + addr.String(),
		Auth: map[string]string{"apiKey": "file://" + keyFile}, Previous: n.previous(System())})
	if err != nil {
		return err
	}
	_, err = n.publishPlan(ctx, System(), plan, catalog.PublishOptions{Shared: true})
	return err
}
