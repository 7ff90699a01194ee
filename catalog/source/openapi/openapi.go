// Package openapi reads OpenAPI and Swagger documents (2.0, 3.0, 3.1, 3.2) and turns each operation
// into the manifest of an http tool, or says why it cannot.
//
// No request is ever sent wrong: an operation that needs something the http executor does not
// support is refused with the reason. The invariant is len(Tools)+len(Refused)+Excluded == Operations.
// Webhooks and callbacks are not operations.
//
// A document is processed from bytes to a plain tree (tree.go, yaml.go), which overlays change
// (overlay.go), files and references (files.go, ref.go), operations (walk.go) of which some are
// chosen (choose.go), and for each operation server, security, parameters,
// body and response, whose schemas become one self-contained JSON Schema 2020-12 (schema.go,
// bundle.go), then the manifest and its version (manifest.go).
package openapi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
)

// Limits of one Read. Anything larger is refused with E3011.
const (
	maxFiles    = 5000
	maxBytes    = 64 << 20
	maxTime     = 60 * time.Second
	maxDepth    = 256 // nesting of one document, and of one schema
	maxRefChain = 64  // references that lead to references
	maxWarnings = 500
)

// Options say what to read and how. Only Location is required.
type Options struct {
	// Location is a path, a file:// URL or an http(s):// URL. References are followed only inside
	// the folder of the path (or Root), or on the host of the URL.
	Location string
	// Root is the folder that files named by references must be in; default the document's own
	// folder. The document must be in it too. Links out of it are refused. It is for paths alone.
	Root string
	// Document is the document itself, if it should not be read; Location is then its name. It may
	// not refer to other files.
	Document []byte
	// Namespace is the part of the tool ids before the dot,
	// ^[a-z][a-z0-9-]{0,31}$; default a slug of info.title.
	Namespace string
	// Server replaces every server of the document. Its path prefix is kept. If it has no path, a
	// relative server of the document (or a basePath without host) is resolved against it.
	Server string
	// Auth maps names of security schemes to secret references (secret://, vault://, env:// or
	// file://). A plain value is refused.
	Auth map[string]string
	// Schemes say what security schemes are that the document names and does not define: header:NAME,
	// query:NAME, cookie:NAME, bearer or basic.
	Schemes map[string]string
	// DeepLists says how style deepObject writes the elements of a list, where a parameter's
	// x-deep-lists does not: indices (a[0]=1, the default), brackets (a[]=1) or repeat (a=1).
	DeepLists string
	// Overlays change the document before it is read, in their order: at most 20, of 1 MiB each. The document then has at most
	// 16 MiB, and places in messages are those of what became of it.
	Overlays []Overlay
	// Choice says which operations become tools, and their names.
	Choice Choice
	// Choices returns the choices that are kept for a namespace, by the titles of documents (catalog.Choices); nil knows none.
	Choices func(namespace string) (map[string]Choice, error)
	// Client fetches documents from URLs; without one a URL is refused. It should block forbidden
	// addresses.
	Client *http.Client
	// Previous returns the published version of a tool to compare with, or nil.
	Previous source.Previous
	// Published lists the ids of the published tools of a namespace, to find those that left the
	// document; nil finds none.
	Published func(namespace string) []string
	// maxBytes bounds all files together; default 64 MiB.
	maxBytes int64
}

// Plan is what an import would publish, in document order.
type Plan struct {
	Operations int // of the document: Tools + Refused + Excluded
	Tools      []PlannedTool
	Refused    []Refused
	Excluded   int      // operations that were not chosen
	Namespace  string   // of the tools
	Title      string   // info.title
	About      string   // what the document says of itself, for catalog.SetAbout
	Version    string   // info.version
	Choice     *Choice  // what to keep by catalog.SetChoice, under Title; nil where it is kept or there is none
	Digest     string   // "sha256:…" over the document and every file it reached
	Gone       []string // published tools whose operation left the document, or has another name now
	Left       []string // published tools whose operation was not chosen
	Warnings   []string // what was dropped or loosened, and where
}

// Changed returns the manifests that are new or changed.
func (p *Plan) Changed() (manifests [][]byte) {
	for _, t := range p.Tools {
		if t.Checked != nil {
			manifests = append(manifests, t.Manifest)
		}
	}
	return manifests
}

// Checked returns the manifests of Changed as Settle checked them.
func (p *Plan) Checked() (manifests []*catalog.Checked) {
	for _, t := range p.Tools {
		if t.Checked != nil {
			manifests = append(manifests, t.Checked)
		}
	}
	return manifests
}

// PlannedTool is one operation that becomes a tool.
type PlannedTool struct {
	source.Tool
	Method      string
	Path        string
	OperationID string
}

// Refused is one operation that does not become a tool.
type Refused struct {
	Operation string // "METHOD path"
	Reason    string
}

var secretPattern = regexp.MustCompile(`^(secret|vault|env|file)://.+`)

// Read reads the document and plans its import. It changes nothing.
//
// It fails with E3011 if the document cannot be read, is not an OpenAPI document, has neither paths
// nor webhooks nor components, exceeds a limit (5000 files, 64 MiB, 60 s), or an option is wrong. A
// fault inside one operation refuses only that operation.
func Read(ctx context.Context, o Options) (*Plan, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	files, main, err := openFiles(ctx, o)
	if err != nil {
		return nil, err
	}
	defer files.close()
	return readTree(ctx, o, files, main)
}

func readTree(ctx context.Context, o Options, files *files, main *file) (*Plan, error) {
	o.Previous = once(o.Previous)
	d := &document{ctx: ctx, opt: o, files: files, main: main}
	if err := d.overlay(); err != nil {
		return nil, err
	}
	if err := d.identify(); err != nil {
		return nil, err
	}
	all, err := d.operations()
	if err != nil {
		return nil, err
	}
	plan := &Plan{}
	if plan.Choice, err = d.decide(); err != nil {
		return nil, err
	}
	ops, excluded, err := d.choose(all)
	if err != nil {
		return nil, err
	}
	if err := d.nameAll(all); err != nil {
		return nil, err
	}
	*plan = Plan{Choice: plan.Choice, Operations: len(all), Excluded: len(excluded), Namespace: d.namespace, Title: d.title, About: d.about, Version: d.infoVersion}
	lost := map[string]int{} // tools by the scheme of a secret that they no longer have
	overlaid := 0            // tools that had an overlay and have none now
	for _, op := range ops {
		if ctx.Err() != nil {
			return nil, importError("reading took longer than the limit of %s or was cancelled", maxTime).Because(ctx.Err())
		}
		tool, reason := d.planSafely(op)
		if reason != "" {
			plan.Refused = append(plan.Refused, Refused{Operation: op.label(), Reason: reason})
			continue
		}
		plan.Tools = append(plan.Tools, *tool)
		d.tellMove(op, tool.Name)
		for _, scheme := range d.lostSecrets(tool) {
			lost[scheme]++
		}
		if d.lostOverlay(tool) {
			overlaid++
		}
	}
	for _, scheme := range slices.Sorted(maps.Keys(lost)) {
		d.warn("%d tools had a secret for the scheme %s and this import names none: their new versions cannot use it; add --secret %s=REFERENCE", lost[scheme], scheme, scheme)
	}
	if overlaid > 0 {
		d.warn("%d tools were made with an overlay and this import names none: add --overlay FILE to keep what it changed", overlaid)
	}
	plan.Gone, plan.Left = d.goneTools(ops, excluded)
	if ctx.Err() != nil {
		return nil, importError("reading took longer than the limit of %s or was cancelled", maxTime).Because(ctx.Err())
	}
	if files.over != nil {
		return nil, files.over
	}
	plan.Digest = files.digest()
	plan.Warnings = d.allWarnings()
	return plan, nil
}

// once looks each published tool up once; a look-up can be a request.
func once(find source.Previous) source.Previous {
	if find == nil {
		return nil
	}
	found := map[string]*toolkeep.Tool{}
	return func(id string) *toolkeep.Tool {
		t, known := found[id]
		if !known {
			t = find(id)
			found[id] = t
		}
		return t
	}
}

// ownFault is the prefix of a reason when the reader itself failed on an operation.
const ownFault = "a bug in the importer, please report it: "

// planSafely limits a panic of the reader to the operation that causes it: the others of the
// document can still be imported.
func (d *document) planSafely(op *operation) (tool *PlannedTool, reason string) {
	defer func() {
		if p := recover(); p != nil {
			tool, reason = nil, ownFault+toolkeep.Clip(fmt.Sprint(p), 300)
		}
	}()
	return d.plan(op)
}

// check refuses invalid options before anything is read.
func (o Options) check() error {
	if o.Location == "" {
		return importError("no document was named; give a path or a URL")
	}
	if o.Root != "" && (o.Document != nil || isURL(o.Location)) {
		return importError("--root names a folder, and the document is no file on disk")
	}
	if err := source.CheckNamespace(o.Namespace); err != nil {
		return err
	}
	if o.Server != "" {
		if _, reason := parseServer(o.Server); reason != "" {
			return importError("the given server is not a usable URL: %s", reason)
		}
	}
	if o.DeepLists != "" && !slices.Contains(deepListWays, o.DeepLists) {
		return importError("the elements of lists are written with %s, not %q", strings.Join(deepListWays, ", "), toolkeep.Clip(o.DeepLists, 40))
	}
	for _, name := range slices.Sorted(maps.Keys(o.Schemes)) {
		if _, ok := givenScheme(o.Schemes[name]); !ok {
			return importError("the security scheme %q is header:NAME, query:NAME, cookie:NAME, bearer or basic", toolkeep.Clip(name, 80))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Auth)) {
		// The value is not shown: it may be the secret itself.
		if !secretPattern.MatchString(o.Auth[name]) {
			return importError("the secret of security scheme %q is not a reference; give secret://, vault://, env:// or file://", name)
		}
	}
	return nil
}

func importError(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ImportFailed, "%s", fmt.Sprintf(format, args...))
}
