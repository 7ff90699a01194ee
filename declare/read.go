package declare

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/canon/yaml"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/contracts"
	"github.com/toolkeep/toolkeep/schema"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/upstream"
)

// Files of a folder.
const (
	Main      = "toolkeep.yaml"
	RolesFile = "roles.yaml"
	ToolsDir  = "tools"
)

// Limits of a folder.
const (
	MaxFiles = 20_000
	MaxBytes = 256 << 20 // of the files that are read, together
	maxFile  = catalog.MaxYAMLBytes
)

// Kinds are the kinds of imports.
var Kinds = []string{"openapi", "functions", "grpc", "sql", "toolbox"}

// Place is a line of a file. Line 0 is the whole file.
type Place struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	node *yaml.Node
}

// At returns the place of a JSON Pointer below p.
func (p Place) At(pointer string) Place {
	n := p.node
	for _, part := range strings.Split(pointer, "/")[1:] {
		var next *yaml.Node
		if n != nil {
			next = child(n, strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
		}
		if next == nil {
			break
		}
		n, p.Line = next, next.Line
	}
	p.node = n
	return p
}

func child(n *yaml.Node, part string) *yaml.Node {
	switch v := n.Value.(type) {
	case yaml.Mapping:
		for _, m := range v {
			if m.Key == part {
				return &yaml.Node{Line: m.Line, Value: m.Value.Value} // the line of the key
			}
		}
	case []*yaml.Node:
		if i, err := strconv.Atoi(part); err == nil && i >= 0 && i < len(v) {
			return v[i]
		}
	}
	return nil
}

// Fault is what is wrong at a place.
type Fault struct {
	Place
	Message string `json:"message"`
}

func (f Fault) String() string {
	if f.Line == 0 {
		return f.File + ": " + f.Message
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Message)
}

// Tool is a manifest.
type Tool struct {
	Place
	ID, Version string
	Manifest    []byte
}

// Import is a document that becomes tools.
type Import struct {
	Place
	Kind, Source string
	Options      map[string]any // the flags of the import by name: texts, numbers, booleans and lists of them
}

// Server is an MCP server; Spec is the body of upstream.ParseSpec.
type Server struct {
	Place
	Name string
	Spec []byte
}

// Secret is a reference that has to be there.
type Secret struct {
	Place
	Reference, Scope, Workspace string
}

// Key is the scope of API keys.
type Key struct {
	Place
	Subject, Name string
	Scope         []string
}

// Folder is what a folder says.
type Folder struct {
	Name    string
	Shared  bool
	Tools   []Tool
	Imports []Import
	Servers []Server
	Roles   []access.Role
	Secrets []Secret // those of the list, then what tools and servers name beside them
	Keys    []Key
	Faults  []Fault // of all files; with any, the rest is not whole

	left int // bytes that may still be read
}

// Read reads a folder. The error is of the file system, or of a limit; all else is in Faults.
func Read(files fs.FS) (*Folder, error) {
	f := &Folder{left: MaxBytes}
	var manifests []string
	roles, count := false, 0
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if count++; count > MaxFiles {
			return fmt.Errorf("the folder has more than %d files and folders; is it the right one?", MaxFiles)
		}
		inTools := strings.HasPrefix(name, ToolsDir+"/")
		switch {
		case name != "." && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir():
		case !d.Type().IsRegular():
			f.fault(Place{File: name}, "it is a link or no ordinary file; a folder of configuration has files and folders alone")
		case name == RolesFile:
			roles = true
		case inTools && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)):
			manifests = append(manifests, name)
		case inTools:
			f.fault(Place{File: name}, "it is no .yaml, .yml or .json; %s/ has manifests alone", ToolsDir)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name string
		read func(string, []byte)
		is   bool
	}{{Main, f.readMain, true}, {RolesFile, f.readRoles, roles}} {
		if step.is {
			f.read(files, step.name, step.read)
		}
	}
	for _, name := range manifests {
		f.read(files, name, f.readManifests)
	}
	f.twice()
	return f, nil
}

func (f *Folder) fault(at Place, format string, args ...any) {
	at.node = nil
	f.Faults = append(f.Faults, Fault{at, fmt.Sprintf(format, args...)})
}

// faults takes over those of an error at a place.
func (f *Folder) faults(at Place, err error) {
	list := catalog.Faults(err)
	if len(list) == 0 {
		f.fault(at, "%s", toolkeep.AsError(err).Message)
	}
	for _, one := range list {
		f.fault(at.At(one.Pointer), "%s", strings.TrimPrefix(one.Pointer+": "+one.Message, ": "))
	}
}

func (f *Folder) read(files fs.FS, name string, with func(name string, raw []byte)) {
	if f.left < 0 {
		return // as was told
	}
	file, err := files.Open(name)
	if err != nil {
		if name == Main {
			err = fmt.Errorf("it cannot be opened (%w); a folder of configuration has it, with at least `name: NAME`", err)
		}
		f.fault(Place{File: name}, "%v", err)
		return
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, int64(min(maxFile, f.left)+1)))
	f.left -= len(raw)
	switch {
	case err != nil:
		f.fault(Place{File: name}, "it cannot be read: %v", err)
	case len(raw) > maxFile:
		f.fault(Place{File: name}, "it is over %d MiB", maxFile>>20)
	case f.left < 0:
		f.fault(Place{File: name}, "with it the files have more than %d MiB together; it and those after it are not read", MaxBytes>>20)
	default:
		with(name, raw)
	}
}

var options = yaml.Options{Bytes: maxFile, Values: 200_000, Depth: catalog.MaxManifestDepth, Aliases: true}

// unreadable is a fault of YAML, with its line.
func (f *Folder) unreadable(name string, err error) {
	at := Place{File: name}
	if e, ok := err.(*yaml.Error); ok {
		at.Line = e.Line
		err = fmt.Errorf("%s", e.Message)
	}
	f.fault(at, "not readable as YAML: %v", err)
}

// form is toolkeep.yaml. Its members are those of contracts/folder.schema.json.
type form struct {
	Name    string                     `json:"name"`
	Shared  bool                       `json:"shared"`
	Imports []map[string]any           `json:"imports"`
	Servers map[string]json.RawMessage `json:"servers"`
	Secrets []struct {
		Reference string `json:"reference"`
		Scope     string `json:"scope"`
		Workspace string `json:"workspace"`
	} `json:"secrets"`
	Keys []struct {
		Subject string   `json:"subject"`
		Name    string   `json:"name"`
		Scope   []string `json:"scope"`
	} `json:"keys"`
}

func (f *Folder) readMain(name string, raw []byte) {
	doc, err := yaml.One(raw, options)
	if err == nil && doc == nil {
		err = fmt.Errorf("it is empty")
	}
	var tree any
	if err == nil {
		tree, err = doc.Tree()
	}
	if err != nil {
		f.unreadable(name, err)
		return
	}
	at := Place{File: name, Line: doc.Line, node: doc}
	s, err := schema.Compile(contracts.FolderSchema())
	if err != nil {
		f.fault(at, "%v", err)
		return
	}
	for _, fault := range s.ValidateSecret(context.Background(), tree) {
		f.fault(at.At(fault.Pointer), "%s", strings.TrimPrefix(fault.Pointer+": "+fault.Message, ": "))
	}
	if len(f.Faults) > 0 && slices.ContainsFunc(f.Faults, func(x Fault) bool { return x.File == name }) {
		return
	}
	var m form
	if err := strict.Unmarshal(canon.Append(nil, tree), &m); err != nil {
		f.fault(at, "%v", err)
		return
	}
	f.Name, f.Shared = m.Name, m.Shared
	for i, entry := range m.Imports {
		f.readImport(at.At(fmt.Sprintf("/imports/%d", i)), entry)
	}
	for i, one := range m.Secrets {
		where := at.At(fmt.Sprintf("/secrets/%d", i))
		if one.Workspace != "" && one.Scope != "workspace" {
			f.fault(where, "workspace goes with the scope workspace")
		}
		f.Secrets = append(f.Secrets, Secret{where, one.Reference, one.Scope, one.Workspace})
	}
	for i, one := range m.Keys {
		f.Keys = append(f.Keys, Key{at.At(fmt.Sprintf("/keys/%d", i)), one.Subject, one.Name, one.Scope})
	}
	for server, spec := range m.Servers {
		f.readServer(at.At("/servers/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(server)), server, spec)
	}
	slices.SortFunc(f.Servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
}

func (f *Folder) readImport(at Place, entry map[string]any) {
	one := Import{Place: at, Options: entry}
	for _, kind := range Kinds {
		if source, has := entry[kind].(string); has {
			if one.Kind != "" {
				f.fault(at, "an import is of one kind, not of %s and %s", one.Kind, kind)
			}
			one.Kind, one.Source = kind, source
		}
	}
	if one.Kind == "" {
		f.fault(at, "an import has one of %s, with its document or address", strings.Join(Kinds, ", "))
		return
	}
	delete(entry, one.Kind)
	f.Imports = append(f.Imports, one)
}

func (f *Folder) readServer(at Place, name string, raw []byte) {
	spec, err := upstream.ParseSpec(name, "", raw)
	if err != nil {
		f.faults(at, err)
		return
	}
	if spec.Folder != "" {
		f.fault(at.At("/folder"), "folder is not written here: it is the name of this folder")
	}
	values := map[string]string{}
	for field, m := range map[string]map[string]string{"env": spec.Env, "headers": spec.Headers} {
		for k, v := range m {
			values["/"+field+"/"+k] = v
		}
	}
	if spec.OAuth != nil && spec.OAuth.ClientSecret != "" {
		values["/oauth/client_secret"] = spec.OAuth.ClientSecret
	}
	for pointer, v := range values {
		_, ref, isRef := upstream.Secret(v)
		switch {
		case isRef:
			f.uses(at.At(pointer), ref)
		case v != Hidden && !strings.HasPrefix(v, "text:") && upstream.SecretName(path.Base(pointer)):
			f.fault(at.At(pointer), "%s is named as a secret is: write a reference, such as secret://NAME, or text: before a value that is none", pointer)
		}
	}
	if spec.Auth != nil {
		for _, ref := range ReferencesOf(*spec.Auth) {
			f.uses(at.At("/auth"), ref)
		}
	}
	f.Servers = append(f.Servers, Server{at, name, raw})
}

// Hidden stands for a value of a server that is not shown; the server keeps the one that it has.
const Hidden = "(hidden)"

// uses adds a reference that a tool or a server names, unless it is there.
func (f *Folder) uses(at Place, ref string) {
	if !slices.ContainsFunc(f.Secrets, func(s Secret) bool { return s.Reference == ref }) {
		at.node = nil
		f.Secrets = append(f.Secrets, Secret{Place: at, Reference: ref})
	}
}

// ReferencesOf are the secret references of an auth entry.
func ReferencesOf(spec toolkeep.AuthSpec) (refs []string) {
	for _, e := range secret.Entries(spec) {
		if e.Secret != "" {
			refs = append(refs, e.Secret)
		}
	}
	return refs
}

var rolesLine = regexp.MustCompile(`line (\d+)(, column \d+)?: `)

func (f *Folder) readRoles(name string, raw []byte) {
	roles, err := access.ParseRoles(raw)
	for _, fault := range catalog.Faults(err) {
		at := Place{File: name}
		if m := rolesLine.FindStringSubmatch(fault.Message); m != nil {
			at.Line, _ = strconv.Atoi(m[1])
		}
		f.fault(at, "%s", rolesLine.ReplaceAllString(fault.Message, ""))
	}
	f.Roles = roles
}

func (f *Folder) readManifests(name string, raw []byte) {
	if path.Ext(name) == ".json" {
		node, _ := yaml.One(raw, options) // for its lines alone: JSON is YAML but for a few escapes
		f.readManifest(Place{File: name, Line: 1, node: node}, bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")))
		return
	}
	for doc, err := range yaml.Documents(raw, options) {
		var tree any
		if err == nil {
			tree, err = doc.Tree()
		}
		if err != nil {
			f.unreadable(name, err)
			return
		}
		if tree != nil {
			f.readManifest(Place{File: name, Line: doc.Line, node: doc}, canon.Append(nil, tree))
		}
	}
}

func (f *Folder) readManifest(at Place, raw []byte) {
	checked, err := catalog.Check(raw)
	if err != nil {
		f.faults(at, err)
		return
	}
	t := checked.Tool()
	if t.Manifest.Execution.Kind == "mcp" {
		f.fault(at.At("/execution/kind"), "%s is a tool of an MCP server; name the server under servers in %s", t.ID, Main)
	}
	f.References(at, t.Manifest)
	at.node = nil // of thousands of manifests the trees are not kept
	f.Tools = append(f.Tools, Tool{at, t.ID, t.Version, checked.Raw()})
}

// References adds the references of a manifest to Secrets.
func (f *Folder) References(at Place, m *toolkeep.Manifest) {
	for _, spec := range m.Auth {
		for _, ref := range ReferencesOf(spec) {
			f.uses(at.At("/auth"), ref)
		}
	}
}

// twice finds what stands in the folder twice.
func (f *Folder) twice() {
	seen := map[string]Place{}
	once := func(what string, at Place) {
		if first, has := seen[what]; has {
			f.fault(at, "%s is already at %s:%d", what, first.File, first.Line)
			return
		}
		seen[what] = at
	}
	for _, t := range f.Tools {
		once("the tool "+t.ID+"@"+t.Version, t.Place)
	}
	for _, k := range f.Keys {
		once(fmt.Sprintf("the key of %s with the name %q", k.Subject, k.Name), k.Place)
	}
	for _, t := range f.Tools {
		namespace, _, _ := strings.Cut(t.ID, ".")
		if slices.ContainsFunc(f.Servers, func(s Server) bool { return s.Name == namespace }) {
			f.fault(t.Place, "%s is in the namespace of the MCP server %s", t.ID, namespace)
		}
	}
}
