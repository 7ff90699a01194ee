package openapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/promptscan"
)

// Dialects: the version of the document as one number.
const (
	v20 = 20
	v30 = 30
	v31 = 31
	v32 = 32
)

// document is the state of one Read.
type document struct {
	ctx         context.Context
	opt         Options
	files       *files
	main        *file
	root        *object
	dialect     int
	title       string
	about       string
	infoVersion string
	namespace   string
	choice      Choice   // that counts
	kept        Choice   // lists of it that were chosen before
	published   []string // ids of the namespace's published tools, see publishedIDs
	warnings    []string
	warned      map[string]bool
	more        int // warnings beyond maxWarnings
	entered     int
	looked      map[*object]looked
	schemas     converter
	children    map[*object][]subtype // named schemas by what their allOf names
	patterns    map[string]string     // why a pattern cannot be used, "" if it can
}

func (d *document) warn(format string, args ...any) {
	w := fmt.Sprintf(format, args...)
	if d.warned == nil {
		d.warned = map[string]bool{}
	}
	if d.warned[w] {
		return
	}
	if len(d.warned) >= maxWarnings {
		d.more++
		return
	}
	d.warned[w] = true
	d.warnings = append(d.warnings, w)
}

// allWarnings returns the warnings of the files, by location, and then those of the document.
func (d *document) allWarnings() []string {
	var all []string
	for _, loc := range slices.Sorted(maps.Keys(d.files.byLoc)) {
		all = append(all, d.files.byLoc[loc].warnings...)
	}
	if over := len(all) - maxWarnings; over > 0 {
		all, d.more = all[:maxWarnings], d.more+over
	}
	all = append(all, d.warnings...)
	if d.more > 0 {
		all = append(all, fmt.Sprintf("%d more warnings are left out", d.more))
	}
	return all
}

// identify determines the document's version and title.
func (d *document) identify() error {
	root, ok := d.main.root.(*object)
	if !ok {
		return importError("%s is not an OpenAPI document: its root is not a mapping", d.main.name)
	}
	d.root = root
	version := root.text("openapi")
	switch {
	case version != "":
		switch {
		case version == "3" || hasMinor(version, "3.0"):
			d.dialect = v30
		case hasMinor(version, "3.1"):
			d.dialect = v31
		case hasMinor(version, "3.2"):
			d.dialect = v32
		default:
			return importError("%s says OpenAPI %q; 2.0, 3.0, 3.1 and 3.2 can be read", root.location(), toolkeep.Clip(version, 40))
		}
	case root.has("swagger"):
		version = root.text("swagger")
		if version != "2" && !hasMinor(version, "2.0") {
			return importError("%s says Swagger %q; 2.0 can be read", root.location(), toolkeep.Clip(version, 40))
		}
		d.dialect = v20
	default:
		return importError("%s is not an OpenAPI document: it has neither \"openapi\" nor \"swagger\" at its root", d.main.name)
	}
	info, reason := d.object(root.get("info"), "info")
	if reason != "" {
		d.warn("%s: the document has no info: %s", d.main.name, reason)
	}
	d.title = toolkeep.Clip(clean(strings.TrimSpace(info.text("title"))), 200)
	var found *promptscan.Finding
	if d.about, found = catalog.AboutText(d.title, clean(info.text("summary")), clean(info.text("description"))); found != nil {
		d.warn("%s: what the document says of itself is not looked for in searches: %s (%s)", d.main.name, found.Message, found.Text)
	}
	d.infoVersion = toolkeep.Clip(clean(info.text("version")), 100)
	d.namespace = d.opt.Namespace
	if d.namespace == "" {
		d.namespace = d.defaultNamespace()
	}
	return d.knownSchemes()
}

// hasMinor reports whether version is minor or a patch of it.
func hasMinor(version, minor string) bool {
	return version == minor || strings.HasPrefix(version, minor+".") || strings.HasPrefix(version, minor+"-")
}

const maxPath = 2000 // bytes of a path template

// operation is one operation of the document.
type operation struct {
	method, path string
	item         *object // its path item
	op           *object // the operation resolved
	name         string  // second half of the tool id
	id           string  // operationId
	ruled        string  // what the rules for names make of it, "" without rules
	out          bool    // it was not chosen
	bad          string  // why it was refused before it was examined
	template     template
}

func (o *operation) label() string { return o.method + " " + o.path }

var methods = map[string]string{
	"get": "GET", "put": "PUT", "post": "POST", "delete": "DELETE",
	"options": "OPTIONS", "head": "HEAD", "patch": "PATCH", "trace": "TRACE",
}

// operations lists every operation in document order.
func (d *document) operations() ([]*operation, error) {
	if !d.root.has("paths") {
		return nil, d.noPaths()
	}
	raw := d.root.get("paths")
	if raw == nil {
		d.warn("%s: paths is empty: there are no operations", d.main.name)
		return nil, nil
	}
	v, reason := d.follow(raw)
	if reason != "" {
		return nil, importError("paths cannot be read: %s", reason).With("place", d.root.location())
	}
	paths, ok := v.(*object)
	if !ok {
		return nil, importError("paths of %s is not a mapping", d.main.name).With("place", d.root.location())
	}
	var ops []*operation
	for _, path := range paths.keys {
		if strings.HasPrefix(path, "x-") || paths.vals[path] == nil {
			continue
		}
		ops = append(ops, d.pathOperations(path, paths.vals[path])...)
	}
	if len(ops) == 0 {
		d.warn("%s: its paths hold no operations", d.main.name)
	}
	return ops, nil
}

// noPaths accepts a document without paths if that is legitimate.
func (d *document) noPaths() error {
	for _, key := range []string{"webhooks", "components", "definitions"} {
		if d.root.has(key) {
			d.warn("%s: the document has %s but no paths: there are no operations to import", d.main.name, key)
			return nil
		}
	}
	return importError("%s has no paths", d.main.name).With("place", d.root.location())
}

// pathOperations returns the operations of one path item. If the item cannot be resolved, their
// number is unknown, so there is a warning.
func (d *document) pathOperations(path string, v any) []*operation {
	item, reason := d.pathItem(v)
	if reason != "" {
		d.warn("the path %q could not be read and its operations are not counted: %s", toolkeep.Clip(path, 200), reason)
		return nil
	}
	var ops []*operation
	for _, key := range item.keys {
		switch {
		case methods[key] != "":
			ops = append(ops, d.newOperation(path, methods[key], item, item.vals[key]))
		case key == "query" && d.dialect >= v32:
			ops = append(ops, d.newOperation(path, "QUERY", item, item.vals[key]))
		case key == "additionalOperations" && d.dialect >= v32:
			ops = append(ops, d.additional(path, item, item.vals[key])...)
		}
	}
	return ops
}

func (d *document) additional(path string, item *object, v any) []*operation {
	more, reason := d.object(v, "additionalOperations")
	if reason != "" {
		d.warn("additionalOperations of %q could not be read: %s", toolkeep.Clip(path, 200), reason)
		return nil
	}
	var ops []*operation
	for _, method := range more.keys {
		op := d.newOperation(path, method, item, more.vals[method])
		if !isToken(method) || len(method) > 64 {
			op.bad = "the method is not an HTTP method name"
		} else if method == "CONNECT" {
			op.bad = "the method CONNECT opens a tunnel and cannot be called"
		}
		ops = append(ops, op)
	}
	return ops
}

// pathItem resolves a path item. What stands beside its $ref wins over what the
// reference leads to.
func (d *document) pathItem(v any) (*object, string) {
	var layers []*object
	for range maxRefChain {
		o, ok := v.(*object)
		if !ok {
			return nil, "the path item is not a mapping"
		}
		layers = append(layers, o)
		if o.ref() == "" {
			return flatten(layers), ""
		}
		next, reason := d.next(o)
		if reason != "" {
			// The operations beside a broken reference are still there.
			if own := flatten(layers); hasMethods(own) {
				d.warn("%s", reason)
				return own, ""
			}
			return nil, reason
		}
		v = next
	}
	return nil, "its references lead in a circle"
}

func hasMethods(o *object) bool {
	for _, k := range o.keys {
		if methods[k] != "" {
			return true
		}
	}
	return false
}

// flatten puts layers over each other, the first on top.
func flatten(layers []*object) *object {
	if len(layers) == 1 && layers[0].ref() == "" {
		return layers[0]
	}
	flat := layers[0].empty()
	for _, l := range layers {
		for _, k := range l.keys {
			if k != "$ref" && !flat.has(k) {
				flat.set(k, l.vals[k])
			}
		}
	}
	return flat
}

func (d *document) newOperation(path, method string, item *object, v any) *operation {
	op := &operation{method: method, path: path, item: item}
	o, ok := v.(*object)
	if !ok {
		op.bad = "the operation is not a mapping"
	} else if o.ref() != "" {
		// Not in the standard, but a whole vendor writes it so.
		o, op.bad = d.pathItem(o)
	}
	op.template = readTemplate(path, d.pathNames(item, o))
	if op.bad != "" {
		return op
	}
	op.op = o
	op.id = strings.TrimSpace(clean(o.text("operationId")))
	if !strings.HasPrefix(path, "/") {
		op.bad = "the path does not begin with a slash"
	} else if len(path) > maxPath {
		op.bad = fmt.Sprintf("the path is longer than %d bytes", maxPath)
	}
	return op
}

// pathNames returns the names of the parameters in path that an operation and its path item declare.
func (d *document) pathNames(nodes ...*object) (names []string) {
	for _, o := range nodes {
		list, _ := d.list(o.get("parameters"), "")
		for _, v := range list {
			if p, _ := d.object(v, ""); p.text("in") == "path" {
				names = append(names, p.text("name"))
			}
		}
	}
	return names
}

// list gives a list, following a reference in its place.
func (d *document) list(v any, what string) ([]any, string) {
	if v == nil {
		return nil, ""
	}
	v, reason := d.follow(v)
	if reason != "" {
		return nil, reason
	}
	l, ok := v.([]any)
	if !ok && v != nil {
		return nil, what + " is not a list"
	}
	return l, ""
}

// maxToken bounds the name of a header or cookie, in bytes.
const maxToken = 256

// isToken reports whether s is an HTTP token of at most maxToken bytes.
func isToken(s string) bool { return len(s) <= maxToken && egress.IsToken(s) }
