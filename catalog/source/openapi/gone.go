package openapi

import (
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source"
)

// goneTools returns the published tools of the namespace that came from a document of this title and
// of which the document no longer has the operation.
func (d *document) goneTools(ops []*operation) (gone []string) {
	if d.opt.Published == nil || d.opt.Previous == nil {
		return nil
	}
	for _, id := range d.opt.Published(d.namespace) {
		if slices.ContainsFunc(ops, func(op *operation) bool { return d.namespace+"."+op.name == id }) {
			continue
		}
		old := d.opt.Previous(id)
		if old == nil || old.Manifest == nil || old.Manifest.Source == nil || old.Manifest.Source.Type != "openapi" || old.Manifest.Source.Metadata["title"] != d.title {
			continue
		}
		gone = append(gone, id)
		d.warn("the document no longer has the operation of %s; if it is gone: toolkeep lifecycle %s@%s deprecated", id, id, old.Version)
	}
	return gone
}

// wasAt returns the method and the path of the published version of a tool, "" if there is none.
func (d *document) wasAt(id string) (method, path string) {
	if d.opt.Previous == nil {
		return "", ""
	}
	old := d.opt.Previous(id)
	var was struct {
		Method string `json:"method"`
		Path   string `json:"path"`
	}
	if old == nil || old.Manifest == nil || json.Unmarshal(old.Manifest.Execution.Binding, &was) != nil {
		return "", ""
	}
	return was.Method, was.Path
}

// tellMove warns of a tool whose operation has another method or path than the published version.
func (d *document) tellMove(op *operation, name string) {
	method, path := d.wasAt(name)
	if path != "" && (method != op.method || path != op.template.sent) {
		d.warn("%s moved: it was %s %s and is %s %s", name, method, toolkeep.Clip(path, 200), op.method, toolkeep.Clip(op.path, 200))
	}
}

// lostSecrets returns the security schemes for which the published version of a tool has a secret and the new one has
// none.
func (d *document) lostSecrets(tool *PlannedTool) (schemes []string) {
	if d.opt.Previous == nil || tool.Change == source.ChangeUnchanged {
		return nil
	}
	old := d.opt.Previous(tool.Name)
	if old == nil || old.Manifest == nil {
		return nil
	}
	var now toolkeep.Manifest
	if json.Unmarshal(tool.Manifest, &now) != nil {
		return nil // impossible: it was made here
	}
	for _, was := range old.Manifest.Auth {
		scheme, ok := was.Settings["scheme"].(string)
		if !ok || was.Secret == "" {
			continue
		}
		kept := func(a toolkeep.AuthSpec) bool { return a.Settings["scheme"] == scheme && a.Secret != "" }
		if !slices.ContainsFunc(now.Auth, kept) {
			schemes = append(schemes, scheme)
		}
	}
	return schemes
}
