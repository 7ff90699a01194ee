package openapi

import (
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source"
)

// goneTools returns the published tools of the namespace that came from a document of this title and of which the document
// no longer has the operation, or has it under another name, and those whose operation is excluded.
func (d *document) goneTools(ops, excluded []*operation) (gone, left []string) {
	named := func(id string) func(*operation) bool {
		return func(op *operation) bool { return d.namespace+"."+op.name == id }
	}
	for _, id := range d.publishedIDs() {
		if slices.ContainsFunc(ops, named(id)) {
			continue
		}
		old := d.ofThisDocument(id)
		if old == nil {
			continue
		}
		was := old.Manifest.Source.Metadata
		at := func(op *operation) bool { return was["method"] == op.method && was["path"] == op.path }
		if slices.ContainsFunc(excluded, named(id)) || slices.ContainsFunc(excluded, at) {
			left = append(left, id)
			d.warn("the operation of %s is excluded, and the tool stays published; if it should go: toolkeep lifecycle %s@%s deprecated", id, id, old.Version)
			continue
		}
		gone = append(gone, id)
		if i := slices.IndexFunc(ops, at); i >= 0 {
			d.warn("the operation of %s is %s.%s now, and both are published; if callers have moved: toolkeep lifecycle %s@%s deprecated", id, d.namespace, ops[i].name, id, old.Version)
			continue
		}
		d.warn("the document no longer has the operation of %s; if it is gone: toolkeep lifecycle %s@%s deprecated", id, id, old.Version)
	}
	return gone, left
}

// lostOverlay reports whether the published version of a tool was made with an overlay and the new one is not.
func (d *document) lostOverlay(tool *PlannedTool) bool {
	if d.opt.Previous == nil || tool.Change == source.ChangeUnchanged || len(d.opt.Overlays) > 0 {
		return false
	}
	old := d.ofThisDocument(tool.Name)
	return old != nil && old.Manifest.Source.Metadata["overlays"] != nil
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
