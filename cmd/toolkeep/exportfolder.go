package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/canon/yaml"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/declare"
)

// withFolderExport lets export write a folder of configuration.
func withFolderExport(a *app, c *cobra.Command) *cobra.Command {
	var dir, name string
	var shared bool
	form := c.RunE
	c.Use = "export --as FORM | export -f DIR"
	c.Short = "Write tools as function schemas for a provider of models, or a folder of configuration"
	c.Long += `

With -f it writes a folder of configuration for apply, into a folder that is not there yet or is empty: the latest version of
each of your tenant's tools as a manifest, MCP servers, roles, the names of secrets, and scopes of keys that are narrowed. Values
of secrets are never written; literal values of MCP servers are (hidden), which a server that has them takes as unchanged.`
	c.Example += "\n  toolkeep export -f shop"
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if dir == "" {
			if name != "" || shared {
				return usagef("--name and --shared go with -f DIR")
			}
			return form(cmd, args)
		}
		if cmd.Flags().Changed("as") {
			return usagef("--as FORM writes function schemas, -f DIR a folder of configuration: give one of them")
		}
		if abs, err := filepath.Abs(dir); name == "" && err == nil {
			name = filepath.Base(abs)
		}
		if err := toolkeep.CheckFolder(name); err != nil {
			return usagef("--name: %s", toolkeep.AsError(err).Message)
		}
		return a.exportFolder(cmd.Context(), dir, name, shared)
	}
	c.Flags().StringVarP(&dir, "folder", "f", "", "write a folder of configuration")
	c.Flags().StringVar(&name, "name", "", "with -f: name of the folder of configuration; that of DIR without it")
	c.Flags().BoolVar(&shared, "shared", false, "with -f: what belongs to all tenants, and not what belongs to yours")
	return c
}

type storedServer struct {
	folder  string
	shared  bool
	spec    map[string]any
	waiting int // tools that were not accepted yet, and those that are held
}

// serverSpecs are the MCP servers whose definitions the caller may see, by name.
func (c *client) serverSpecs(ctx context.Context) (map[string]storedServer, error) {
	var list struct {
		Servers []struct {
			Name  string          `json:"name"`
			Owner string          `json:"owner"`
			Spec  json.RawMessage `json:"spec"`

			Pending []string `json:"pending"`
			Held    int      `json:"held"`
		} `json:"servers"`
	}
	if _, err := c.get(ctx, "/api/v1/servers", &list); err != nil {
		return nil, err
	}
	out := map[string]storedServer{}
	for _, s := range list.Servers {
		spec, err := canon.ParseObject(s.Spec, canon.Limits{})
		if err != nil {
			continue // of all tenants: its definition is not the caller's
		}
		folder, _ := spec["folder"].(string)
		delete(spec, "folder")
		out[s.Name] = storedServer{folder, s.Owner == "", spec, len(s.Pending) + s.Held}
	}
	return out, nil
}

// validKeys are the keys of the tenant that are neither revoked nor expired.
func (c *client) validKeys(ctx context.Context) (all []declare.Held, err error) {
	for page, seen := 1, 0; ; page++ {
		var list keyList
		if _, err := c.get(ctx, fmt.Sprintf("/api/v1/keys?page=%d&page_size=200", page), &list); err != nil {
			return nil, err
		}
		for _, k := range list.Keys {
			if k.RevokedAt == nil && (k.ExpiresAt == nil || k.ExpiresAt.After(time.Now())) {
				all = append(all, declare.Held{ID: k.ID, Subject: k.Subject, Name: k.Name, Scope: k.Scope, Successor: k.Successor})
			}
		}
		if seen += len(list.Keys); len(list.Keys) == 0 || seen >= list.TotalCount {
			return all, nil
		}
	}
}

// folderExport is a folder of configuration that is being written.
type folderExport struct {
	a      *app
	cl     *client
	shared bool
	files  map[string][]byte
	folded map[string]bool // names of files in lower case
	main   map[string]any
	refs   []string // references of tools and servers
	left   int      // what was left out
}

func (a *app) exportFolder(ctx context.Context, dir, name string, shared bool) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return usagef("%s is not empty; a folder of configuration is written into a new one", dir)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return usagef("%v", err)
	}
	cl, err := a.connect()
	if err != nil {
		return err
	}
	x := &folderExport{a: a, cl: cl, shared: shared, files: map[string][]byte{}, folded: map[string]bool{}, main: map[string]any{"name": name}}
	if shared {
		x.main["shared"] = true
	}
	say, done := a.patience("exporting")
	for _, part := range []struct {
		what  string
		write func(context.Context) error
	}{{"tools", func(ctx context.Context) error { return x.tools(ctx, say) }}, {"MCP servers", x.servers}, {"roles", x.roles}, {"keys", x.keys}, {"secrets", x.secrets}} {
		var r *refusedError
		if err == nil {
			err = part.write(ctx)
		}
		if errors.As(err, &r) && r.Code == string(toolkeep.PermissionDenied) {
			x.leave("%s: %s", part.what, r.Detail)
			err = nil
		}
	}
	done()
	if err != nil {
		return err
	}
	if x.files[declare.Main], err = yaml.Marshal(x.main); err != nil {
		return err
	}
	for file, raw := range x.files {
		path := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return usagef("%v", err)
		}
		if err := os.WriteFile(path, raw, 0o644); err != nil {
			return usagef("%v", err)
		}
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s written, %d left out. `toolkeep diff -f %s` compares it with a server.\n", dir, counted(len(x.files), "file"), x.left, quote(dir))
	if err == nil && x.left > 0 {
		err = &failure{code: exitToolFailed, err: fmt.Errorf("%s is not whole: %s left out, as told above", dir, counted(x.left, "thing was", "things were"))}
	}
	return err
}

// file is the name of a tool's file: ids that differ in case alone would be one file on some systems.
func (x *folderExport) file(id string) string {
	name := id
	for n := 2; x.folded[strings.ToLower(name)]; n++ {
		name = fmt.Sprintf("%s-%d", id, n)
	}
	x.folded[strings.ToLower(name)] = true
	return declare.ToolsDir + "/" + name + ".json"
}

// leave tells what is not written.
func (x *folderExport) leave(format string, args ...any) {
	x.left++
	fmt.Fprintln(x.a.stderr, "toolkeep: left out:", printable(fmt.Sprintf(format, args...), ""))
}

func (x *folderExport) tools(ctx context.Context, say func(string)) error {
	var ids []string
	if err := x.cl.eachTool(ctx, "", func(t toolSummary) bool {
		ids = append(ids, t.ToolID)
		return true
	}); err != nil {
		return err
	}
	for i, id := range ids {
		say(fmt.Sprintf("reading %d of %d tools", i+1, len(ids)))
		raw, err := x.cl.do(ctx, "GET", "/api/v1/tools/"+url.PathEscape(id), nil)
		var r *refusedError
		if errors.As(err, &r) && slices.Contains([]string{string(toolkeep.ToolNotFound), string(toolkeep.ToolRemoved), string(toolkeep.ToolBlocked)}, r.Code) {
			continue // it left since it was listed
		}
		if err != nil {
			return err
		}
		var t struct {
			describedRaw
			Digest string
			Shared bool
		}
		if err := decode(raw, &t); err != nil {
			return err
		}
		tool, err := catalog.ParseManifest(t.Manifest)
		switch {
		case err == nil && (t.Shared != x.shared || tool.Manifest.Execution.Kind == "mcp" || t.Shared && strings.HasPrefix(id, "std.")):
			continue
		case err != nil || tool.ID != id || tool.Digest != t.Digest: // a valid manifest's id is the name of a file
			x.leave("%s: your key does not see its whole manifest", id)
			continue
		}
		for _, e := range tool.Manifest.Auth {
			x.refs = append(x.refs, declare.ReferencesOf(e)...)
		}
		text, err := indent(t.Manifest)
		if err != nil {
			return err
		}
		x.files[x.file(id)] = []byte(text + "\n")
	}
	return nil
}

func (x *folderExport) servers(ctx context.Context) error {
	all, err := x.cl.serverSpecs(ctx)
	specs := map[string]any{}
	for name, s := range all {
		if s.shared == x.shared {
			specs[name] = s.spec
			if strings.Contains(fmt.Sprint(s.spec), declare.Hidden) {
				fmt.Fprintf(x.a.stderr, "toolkeep: the MCP server %s has values that are not shown: write them, better as references, before you apply it elsewhere\n", printable(name, ""))
			}
		}
	}
	if len(specs) > 0 {
		x.main["servers"] = specs
	}
	return err
}

func (x *folderExport) roles(ctx context.Context) error {
	own, _, err := x.cl.roles(ctx)
	if err != nil || len(own) == 0 {
		return err
	}
	roles := map[string]any{}
	for _, r := range own {
		name := r.Name
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		tree, err := canon.ParseObject(raw, canon.Limits{})
		if err != nil {
			return err
		}
		delete(tree, "name")
		roles[name] = tree
	}
	x.files[declare.RolesFile], err = yaml.Marshal(map[string]any{"roles": roles})
	return err
}

// keys writes those that are narrowed, by subject and name.
func (x *folderExport) keys(ctx context.Context) error {
	all, err := x.cl.validKeys(ctx)
	var keys []any
	for _, k := range all {
		if len(k.Scope) == 0 || k.Successor != "" {
			continue
		}
		if n := slices.IndexFunc(all, func(o declare.Held) bool {
			return o.ID != k.ID && o.Subject == k.Subject && o.Name == k.Name && o.Successor == ""
		}); n >= 0 {
			x.leave("the key %s: another one has its subject %s and its name %q too", k.ID, k.Subject, k.Name)
			continue
		}
		key := map[string]any{"subject": k.Subject, "scope": anyOf(k.Scope)}
		if k.Name != "" {
			key["name"] = k.Name
		}
		keys = append(keys, key)
	}
	if len(keys) > 0 {
		x.main["keys"] = keys
	}
	return err
}

// secrets names those of the organisation and of workspaces, and as those of each user the references that are not ready for
// the caller.
func (x *folderExport) secrets(ctx context.Context) error {
	var out []any
	named := map[string]bool{}
	for page, seen := 1, 0; ; page++ {
		var list struct {
			Secrets    []secrets.Info `json:"secrets"`
			TotalCount int            `json:"total_count"`
		}
		if _, err := x.cl.get(ctx, fmt.Sprintf("/api/v1/secrets?page=%d&page_size=200", page), &list); err != nil {
			return err
		}
		for _, s := range list.Secrets {
			if s.Scope == "user" || s.State != "ready" || named[s.Reference] {
				continue
			}
			named[s.Reference] = true
			one := map[string]any{"reference": s.Reference, "scope": s.Scope}
			if s.Workspace != "" {
				one["workspace"] = s.Workspace
			}
			out = append(out, one)
		}
		if seen += len(list.Secrets); len(list.Secrets) == 0 || seen >= list.TotalCount {
			break
		}
	}
	for _, ref := range x.refs {
		var st secrets.State
		if named[ref] {
			continue
		}
		named[ref] = true
		if _, err := x.cl.post(ctx, "/api/v1/secrets/test", map[string]any{"reference": ref}, &st); err != nil {
			return err
		}
		if st.State != "ready" {
			out = append(out, map[string]any{"reference": ref, "scope": "user"})
			fmt.Fprintf(x.a.stderr, "toolkeep: %s is %s for you; it is written as a secret that each user has\n", ref, st.State)
		}
	}
	if len(out) > 0 {
		x.main["secrets"] = out
	}
	return nil
}

func anyOf(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
