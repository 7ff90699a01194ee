package imports

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
)

// Catalog is the part of the catalogue that imports use; *catalog.Catalog is one.
type Catalog interface {
	Publish(ctx context.Context, p *toolkeep.Principal, manifests [][]byte, o catalog.PublishOptions) ([]catalog.Published, error)
	PublishChecked(ctx context.Context, p *toolkeep.Principal, manifests []*catalog.Checked, o catalog.PublishOptions) ([]catalog.Published, error)
	Highest(p *toolkeep.Principal, toolID string) *toolkeep.Tool
	List(p *toolkeep.Principal, f catalog.Filter, visible func(*toolkeep.Tool) bool) ([]catalog.Summary, int)
	Find(p *toolkeep.Principal, tool, rng string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error)
	SetAbout(ctx context.Context, p *toolkeep.Principal, namespace, text string, from catalog.AboutFrom, shared bool) error
	Choices(ctx context.Context, p *toolkeep.Principal, namespace string, shared bool) (map[string]catalog.Choice, error)
	SetChoice(ctx context.Context, p *toolkeep.Principal, namespace, title string, choice catalog.Choice, shared bool) error
}

// Config is what Imports asks.
type Config struct {
	Catalog Catalog
	// Visible tells whether a tool exists for a principal.
	Visible func(p *toolkeep.Principal, t *toolkeep.Tool) bool
	// Transport reaches the URLs of documents for a tenant, under the SSRF guard.
	Transport func(tenant string) http.RoundTripper
	// Dialer connects under the SSRF guard, also to the named addresses if they are internal ones.
	Dialer func(inside []toolkeep.HostPort) func(ctx context.Context, addr string) (net.Conn, error)
}

// Imports plans and publishes.
type Imports struct{ c Config }

// New makes an Imports.
func New(c Config) *Imports { return &Imports{c} }

// Request asks to turn an OpenAPI document into tools.
type Request struct {
	Location  string // http or https URL, which the server fetches; "" where Document is given
	Document  []byte // the document itself; it refers to no other file
	Name      string // of Document; default document.yaml
	Namespace string
	Server    string            // base URL instead of the document's
	Auth      map[string]string // security scheme -> secret reference
	Schemes   map[string]string // what undefined security schemes are, such as header:X-Session
	DeepLists string            // how deepObject writes lists: indices, brackets or repeat
	Choice    openapi.Choice    // which operations become tools, and their names
	catalog.PublishOptions
}

// Plan is what a document would become, or became.
type Plan struct {
	Namespace  string        `json:"namespace" doc:"of the tools"`
	Title      string        `json:"title"`
	About      string        `json:"about,omitempty" doc:"what the document says of itself: searches find its tools by it too"`
	Version    string        `json:"version"`
	Digest     string        `json:"digest"`
	Operations int           `json:"operations" doc:"operations in the document; tools + refused + excluded"`
	Tools      []PlannedTool `json:"tools"`
	Refused    []RefusedTool `json:"refused"`
	Excluded   int           `json:"excluded,omitempty" doc:"operations that include and exclude left out"`
	Gone       []string      `json:"gone,omitempty" doc:"published tools whose operation left the document or has another name now; they stay until they are deprecated"`
	Left       []string      `json:"left,omitempty" doc:"published tools whose operation is excluded; they stay until they are deprecated"`
	Warnings   []string      `json:"warnings"`
}

// PlannedTool is one operation, method or function that becomes a tool.
type PlannedTool struct {
	Name        string `json:"name"`
	Method      string `json:"method" doc:"of an OpenAPI operation, else empty"`
	Path        string `json:"path" doc:"of an OpenAPI operation, else the name in the source: Service/Method or the function's"`
	OperationID string `json:"operation_id,omitempty"`
	Version     string `json:"version"`
	Change      string `json:"change" enum:"new,unchanged,patch,minor,major"`
}

// RefusedTool is one operation that becomes none, with the reason.
type RefusedTool struct {
	Operation string `json:"operation"`
	Reason    string `json:"reason"`
}

// Times of one import.
const (
	importTime = 2 * time.Minute  // in all
	fetchTime  = 30 * time.Second // of one request for the document
)

// OpenAPI plans a document and publishes what is new or changed, unless DryRun is set.
// The URL of a document must not lead to a private address: such a document is sent as
// bytes.
//
// Errors: E3201; E3011 the document cannot be read; those of catalog.Publish.
func (m *Imports) OpenAPI(ctx context.Context, p *toolkeep.Principal, r Request) (*Plan, []catalog.Published, error) {
	if err := mayPublish(p, r.PublishOptions); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, importTime)
	defer cancel()
	o := openapi.Options{Location: r.Location, Document: r.Document, Namespace: r.Namespace, Server: r.Server, Auth: r.Auth, Schemes: r.Schemes, DeepLists: r.DeepLists, Choice: r.Choice,
		Previous:  func(id string) *toolkeep.Tool { return m.c.Catalog.Highest(p, id) },
		Published: func(namespace string) []string { return m.published(p, namespace) },
		Choices: func(namespace string) (map[string]catalog.Choice, error) {
			return m.c.Catalog.Choices(ctx, p, namespace, r.Shared)
		}}
	if len(r.Document) > 0 {
		o.Location = cmp.Or(r.Name, "document.yaml")
	} else {
		if u, err := url.Parse(r.Location); err != nil || u.Scheme != "http" && u.Scheme != "https" {
			return nil, nil, toolkeep.NewError(toolkeep.ImportFailed, "the server reads documents from http and https URLs; send a file's content as document, or use the command line")
		}
		o.Client = &http.Client{Transport: m.c.Transport(p.Tenant), Timeout: fetchTime}
	}
	read, err := openapi.Read(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	plan := PlanOf(read)
	if !r.DryRun && read.Choice != nil { // first: what is excluded must not come back because of a fault below
		if err := m.c.Catalog.SetChoice(ctx, p, read.Namespace, read.Title, *read.Choice, r.Shared); err != nil {
			return nil, nil, err
		}
	}
	var published []catalog.Published
	if manifests := read.Checked(); len(manifests) > 0 {
		if published, err = m.c.Catalog.PublishChecked(ctx, p, manifests, r.PublishOptions); err != nil {
			return nil, nil, err
		}
	}
	if r.DryRun || len(read.Tools) == 0 {
		return plan, nil, nil
	}
	// Where it may not be kept, the tools are published all the same.
	if err := m.c.Catalog.SetAbout(ctx, p, read.Namespace, read.About, catalog.AboutOfImport, r.Shared); err != nil {
		plan.Warnings = append(plan.Warnings, "searches do not know what the document says of itself: "+toolkeep.AsError(err).Message)
	}
	return plan, published, nil
}

// SetAbout keeps what the source of a namespace's tools says of itself, as catalog.SetAbout.
func (m *Imports) SetAbout(ctx context.Context, p *toolkeep.Principal, namespace, text string, from catalog.AboutFrom, shared bool) error {
	return m.c.Catalog.SetAbout(ctx, p, namespace, text, from, shared)
}

// Choices returns what was chosen of the documents behind a namespace's tools, as catalog.Choices.
func (m *Imports) Choices(ctx context.Context, p *toolkeep.Principal, namespace string, shared bool) (map[string]catalog.Choice, error) {
	return m.c.Catalog.Choices(ctx, p, namespace, shared)
}

// SetChoice keeps what was chosen of a document, as catalog.SetChoice.
func (m *Imports) SetChoice(ctx context.Context, p *toolkeep.Principal, namespace, title string, choice catalog.Choice, shared bool) error {
	return m.c.Catalog.SetChoice(ctx, p, namespace, title, choice, shared)
}

// published lists the ids of the active tools of a namespace.
func (m *Imports) published(p *toolkeep.Principal, namespace string) (ids []string) {
	visible := func(t *toolkeep.Tool) bool { return m.c.Visible(p, t) }
	for {
		list, total := m.c.Catalog.List(p, catalog.Filter{Namespace: namespace, Offset: len(ids), Limit: catalog.MaxPage}, visible)
		for _, t := range list {
			ids = append(ids, t.ToolID)
		}
		if len(list) == 0 || len(ids) >= total {
			return ids
		}
	}
}

// PlanOf is a plan as people see it, without manifests.
func PlanOf(plan *openapi.Plan) *Plan {
	out := &Plan{Namespace: plan.Namespace, Title: plan.Title, About: plan.About, Version: plan.Version, Digest: plan.Digest, Operations: plan.Operations,
		Tools: []PlannedTool{}, Refused: []RefusedTool{}, Excluded: plan.Excluded, Gone: plan.Gone, Left: plan.Left, Warnings: append([]string{}, plan.Warnings...)}
	for _, t := range plan.Tools {
		out.Tools = append(out.Tools, PlannedTool{t.Name, t.Method, t.Path, t.OperationID, t.Version, t.Change})
	}
	for _, r := range plan.Refused {
		out.Refused = append(out.Refused, RefusedTool{r.Operation, r.Reason})
	}
	return out
}

func need(p *toolkeep.Principal, permission string) error {
	if p.May(permission) {
		return nil
	}
	return toolkeep.NewError(toolkeep.PermissionDenied, "this needs the permission %s, which none of your roles grants", permission).
		With("reason", "RBAC_DENIED").With("permission", permission)
}
