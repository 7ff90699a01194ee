package declare

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	hello = "schema_version: 1\ntool_id: demo.hello\nversion: 1.0.0\ndescription: Says hello.\nparameters_schema: {}\nexecution: {kind: builtin, binding: {name: echo}}\n"
	guard = "auth:\n  - {type: bearer, secret: \"secret://demo\"}\n"
)

// folder is a file system of name and text in turn.
func folder(files ...string) fstest.MapFS {
	out := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		out[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return out
}

func read(t *testing.T, files fs.FS) *Folder {
	t.Helper()
	f, err := Read(files)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRead(t *testing.T) {
	t.Parallel()
	f := read(t, folder(Main, `
name: shop
shared: true
imports:
  - {openapi: api.yaml, namespace: x, secret: {key: "secret://api"}}
  - sql: sqlite:///x.db
servers:
  b: {transport: http, url: "https://b.example/mcp", headers: {Authorization: "Bearer secret://b", X-Mode: fast}}
  a: {transport: stdio, command: [run], env: {API_KEY: "env://KEY", TOKEN: "(hidden)", PASSWORD: "text:none"}}
secrets:
  - {reference: "vault://a/b#c"}
  - {reference: "secret://demo", scope: user}
keys:
  - {subject: bot, scope: []}
  - {subject: bot, name: ci, scope: ["demo.*"]}
`, RolesFile, "roles: {reader: {allow: [{tools: [\"a.*\"]}]}}",
		"tools/hello.yaml", "# one\n---\n"+hello+guard+"---\n"+strings.Replace(hello, "1.0.0", "1.1.0", 1),
		"tools/deep/er/bye.json", `{"schema_version":1,"tool_id":"demo.bye","version":"1.0.0","description":"\ud83d\ude00 \/","parameters_schema":{},"execution":{"kind":"builtin"}}`,
		"tools/.hidden.txt", "x", ".git/config", "x", "README.md", "x", "api.yaml", "not read"))
	if len(f.Faults) > 0 {
		t.Fatal(f.Faults)
	}
	if f.Tools[0].node != nil {
		t.Error("the tree of a manifest is kept")
	}
	var ids, refs []string
	for _, x := range f.Tools {
		ids = append(ids, fmt.Sprintf("%s@%s %s:%d", x.ID, x.Version, x.File, x.Line))
	}
	for _, s := range f.Secrets {
		refs = append(refs, s.Reference+" "+s.Scope)
	}
	if want := []string{"demo.bye@1.0.0 tools/deep/er/bye.json:1", "demo.hello@1.0.0 tools/hello.yaml:3", "demo.hello@1.1.0 tools/hello.yaml:12"}; !slices.Equal(ids, want) {
		t.Errorf("%q", ids)
	}
	slices.Sort(refs)
	if want := []string{"env://KEY ", "secret://b ", "secret://demo user", "vault://a/b#c "}; !slices.Equal(refs, want) {
		t.Errorf("%q", refs)
	}
	if f.Name != "shop" || !f.Shared || len(f.Imports) != 2 || f.Imports[0].Kind != "openapi" || f.Imports[0].Source != "api.yaml" || len(f.Imports[0].Options) != 2 || f.Imports[0].Line != 5 ||
		len(f.Servers) != 2 || f.Servers[0].Name != "a" || f.Servers[1].Line != 8 || len(f.Roles) != 1 || len(f.Keys) != 2 || f.Keys[1].Scope[0] != "demo.*" {
		t.Errorf("%+v", f)
	}
}

// TestFaults: each fault has its file and line, and no other is left out for it.
func TestFaults(t *testing.T) {
	t.Parallel()
	link := folder(Main, "name: a\n", "tools/x.yaml", hello)
	link["tools/out.yaml"] = &fstest.MapFile{Data: []byte("../../etc/passwd"), Mode: fs.ModeSymlink}
	link["pipe"] = &fstest.MapFile{Mode: fs.ModeNamedPipe}
	for _, x := range []struct {
		name  string
		files fs.FS
		want  []string
	}{
		{"an empty folder", folder(), []string{"toolkeep.yaml: it cannot be opened"}},
		{"an empty file", folder(Main, ""), []string{"toolkeep.yaml: not readable as YAML: it is empty"}},
		{"links and pipes", link, []string{"pipe: it is a link or no ordinary file", "tools/out.yaml: it is a link"}},
		{"no YAML", folder(Main, "name: a\nkeys: [\n"), []string{"toolkeep.yaml:"}},
		{"unknown members", folder(Main, "name: a\nkeyz: []\nsecrets:\n- reference: secret://x\n  value: hunter2\n"), []string{"toolkeep.yaml:2: /keyz", "toolkeep.yaml:5: /secrets/0/value"}},
		{"a value where a reference stands", folder(Main, "name: a\nsecrets: [{reference: hunter2}]\n"), []string{"toolkeep.yaml:2: /secrets/0/reference"}},
		{"names", folder(Main, "name: A b\n"), []string{"toolkeep.yaml:1: /name"}},
		{"imports", folder(Main, "name: a\nimports:\n- {}\n- {openapi: x, sql: y}\n"), []string{"toolkeep.yaml:3: an import has one of", "toolkeep.yaml:4: an import is of one kind"}},
		{"servers", folder(Main, "name: a\nservers:\n  a: {transport: carrier}\n  b:\n    transport: stdio\n    command: [x]\n    folder: a\n    env:\n      MY_TOKEN: hunter2\n"),
			[]string{"toolkeep.yaml:3: /transport", "toolkeep.yaml:7: folder is not written here", "toolkeep.yaml:9: /env/MY_TOKEN is named as a secret is"}},
		{"secrets", folder(Main, "name: a\nsecrets: [{reference: \"secret://x\", workspace: w}]\n"), []string{"toolkeep.yaml:2: workspace goes with"}},
		{"keys twice", folder(Main, "name: a\nkeys:\n- {subject: b, scope: []}\n- {subject: b, scope: [\"x.*\"]}\n"), []string{`toolkeep.yaml:4: the key of b with the name "" is already at toolkeep.yaml:3`}},
		{"roles", folder(Main, "name: a\n", RolesFile, "roles:\n  x:\n    allow:\n    - {}\n  admin: {}\n"), []string{"roles.yaml:4: ", "roles.yaml:5: the built-in role admin"}},
		{"manifests", folder(Main, "name: a\n", "tools/a.yaml", hello+"---\n"+hello, "tools/b.json", "{", "tools/c.yml", "tool_id: [", "tools/d.txt", ""),
			[]string{"tools/a.yaml:8: the tool demo.hello@1.0.0 is already at tools/a.yaml:1", "tools/b.json:1: ", "tools/c.yml:", "tools/d.txt: it is no .yaml"}},
		{"tools of MCP servers", folder(Main, "name: a\nservers: {demo: {transport: http, url: \"https://a.example\"}}\n", "tools/a.yaml", hello, "tools/b.yaml", strings.NewReplacer("demo.", "mcp.", "builtin", "mcp").Replace(hello)),
			[]string{"tools/a.yaml:1: demo.hello is in the namespace of the MCP server demo", "tools/b.yaml:6: mcp.hello is a tool of an MCP server"}},
	} {
		p := Compare(read(t, x.files), Now{}, false)
		var got []string
		for _, f := range p.Faults {
			got = append(got, f.String())
		}
		if len(got) != len(x.want) {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], x.want[i]) || strings.Contains(got[i], "hunter2") {
				t.Errorf("%s: %q, want %q", x.name, got[i], x.want[i])
			}
		}
	}
}

// TestLimits: a folder that is too large ends the reading, and a file that is too large is a fault.
func TestLimits(t *testing.T) {
	t.Parallel()
	big := folder(Main, "name: a\n")
	one := &fstest.MapFile{Data: make([]byte, maxFile+1)}
	big["tools/big.yaml"] = one
	if f := read(t, big); len(f.Faults) != 1 || f.Faults[0].String() != "tools/big.yaml: it is over 16 MiB" {
		t.Errorf("%v", f.Faults)
	}
	f := &Folder{left: 10}
	f.read(folder("a", "12345", "b", "123456"), "a", func(string, []byte) {})
	f.read(folder("a", "12345", "b", "123456"), "b", func(string, []byte) { t.Error("a file beyond the limit was read") })
	f.read(folder(), "c", nil) // nothing is opened any more
	if len(f.Faults) != 1 || !strings.HasPrefix(f.Faults[0].String(), "b: with it the files have more than 256 MiB together") {
		t.Errorf("%v", f.Faults)
	}
	many := folder(Main, "name: a\n")
	for i := range MaxFiles {
		many[fmt.Sprint(i)] = &fstest.MapFile{}
	}
	if _, err := Read(many); err == nil || !strings.Contains(err.Error(), "is it the right one") {
		t.Errorf("%v", err)
	}
}

// FuzzRead: whatever the files hold, reading ends, faults name lines that there are, and a plan can be made.
func FuzzRead(f *testing.F) {
	f.Add("name: a\nimports: [{openapi: x, namespace: 7}]\nservers: {a: {transport: http, url: \"https://a.example\"}}\nkeys: [{subject: b, scope: [\"x.*\"]}]\n", hello, "roles: {x: {allow: [{tools: [\"a.*\"]}]}}")
	f.Add("name: &a b\nsecrets: [{reference: *a}]\n", "---\n", "")
	f.Add("<<: {name: x}\nservers:\n  ~1/~0: {env: {a/b: c}}\n", `{"tool_id": "a.b"}`, "roles: 1")
	f.Fuzz(func(t *testing.T, main, manifest, roles string) {
		files := folder(Main, main, "tools/a.yaml", manifest, "tools/b.json", manifest, RolesFile, roles)
		got, err := Read(files)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range Compare(got, Now{}, true).Faults {
			lines := strings.Count(string(files[x.File].Data), "\n") + strings.Count(string(files[x.File].Data), "\r") + 2
			if x.Line < 0 || x.Line > lines || x.Message == "" {
				t.Errorf("%+v, the file has %d lines", x, lines)
			}
		}
	})
}
