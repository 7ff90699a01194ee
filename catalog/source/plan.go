// Package source is shared by the readers of source documents: a plan of the tools that a document,
// a schema or a service would become, and the version each gets when imported again.
package source

import (
	"maps"
	"regexp"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
)

// Plan is what an import would publish. Planning changes nothing.
type Plan struct {
	Title    string // of the source, for display
	Version  string // the source's own, "" if it has none
	Digest   string // of the source's bytes, "sha256:…"; "" if there are none
	Items    int    // operations, methods, tables or functions of the source: Tools + Refused
	Tools    []Tool
	Refused  []Refused
	Warnings []string // what was left out, and where
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

// Values of Tool.Change besides major, minor and patch.
const (
	ChangeNew       = "new"
	ChangeUnchanged = "unchanged"
)

// Tool is one part of the source that becomes a tool.
type Tool struct {
	Name     string // the tool id
	Origin   string // its name in the source: a method, a table, a function
	Version  string
	Change   string           // new, unchanged, patch, minor, major
	Manifest []byte           // of an unchanged tool the published manifest, byte for byte
	Checked  *catalog.Checked // what publishing takes; nil of an unchanged tool
}

// Refused is one part of the source that does not become a tool.
type Refused struct{ Origin, Reason string }

// Previous returns the highest published version of a tool, or nil.
type Previous func(toolID string) *toolkeep.Tool

var namespacePattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// CheckNamespace refuses an invalid namespace of tool ids. "" leaves the choice to the reader and
// passes.
//
// Errors: E3011.
func CheckNamespace(s string) error {
	if s == "" || namespacePattern.MatchString(s) {
		return nil
	}
	return toolkeep.NewError(toolkeep.ImportFailed, "%q is not a namespace: write a lower-case letter and up to 31 lower-case letters, digits and hyphens after it, such as shop or hotel-api", s)
}

// Auth returns the auth of a manifest with one entry.
func Auth(a *toolkeep.AuthSpec) []any {
	auth := map[string]any{"type": a.Type, "secret": a.Secret}
	for k, v := range map[string]string{"in": a.In, "name": a.Name, "prefix": a.Prefix} {
		if v != "" {
			auth[k] = v
		}
	}
	return []any{auth}
}

// Settle completes a manifest without version and source: it keeps the published version if nothing
// changed, else it gets the next one according to the change (catalog.Compare). about becomes the manifest's source.
//
// Errors: E3008 with every fault if the catalogue would refuse the manifest.
func Settle(manifest map[string]any, about toolkeep.SourceSpec, previous Previous) (Tool, error) {
	id, _ := manifest["tool_id"].(string)
	t := Tool{Name: id, Version: catalog.FirstVersion, Change: ChangeNew}
	var old *toolkeep.Tool
	if previous != nil {
		old = previous(id)
	}
	if old != nil {
		if catalog.SameContent(old, manifest) {
			t.Version, t.Change, t.Manifest = old.Version, ChangeUnchanged, old.Raw
			return t, nil
		}
		t.Version = old.Version
	}
	t.Manifest = t.encode(manifest, about)
	checked, err := catalog.Check(t.Manifest)
	if err == nil && old != nil {
		version, change, ok := catalog.NextVersion(old, checked.Tool())
		if !ok {
			return t, toolkeep.NewError(toolkeep.InvalidManifest, "%s: the published version %q is not a SemVer version, so there is no next one", id, old.Version)
		}
		t.Version, t.Change = version, change
		t.Manifest = t.encode(manifest, about)
		checked, err = checked.Renumbered(version)
	}
	t.Checked = checked
	return t, err
}

func (t *Tool) encode(manifest map[string]any, about toolkeep.SourceSpec) []byte {
	m := maps.Clone(manifest)
	m["version"] = t.Version
	from := map[string]any{"type": about.Type}
	if about.URI != "" {
		from["uri"] = about.URI
	}
	if about.Digest != "" {
		from["digest"] = about.Digest
	}
	if about.Metadata != nil {
		from["metadata"] = about.Metadata
	}
	m["source"] = from
	return canon.Append(nil, m)
}
