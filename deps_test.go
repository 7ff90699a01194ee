package toolkeep_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/toolkeep/toolkeep"

// layers orders the tree: a package may import only packages of lower layers. Packages
// of one layer do not import each other, unless one is below the other.
var layers = map[string]int{
	"": 0, "contracts": 0, "proto": 0,
	"canon": 1, "pack": 1, "mcp": 1, "schema": 1, "redact": 1, "egress": 1, "promptscan": 1, "suggest": 1, "reload": 1, "datadir": 1, "clientconfig": 1, "mcpregistry": 1, "sharedcache": 1, "servertest": 1,
	"catalog": 2, "discover": 2, "access": 2, "limit": 2, "resultcache": 2, "secret": 2, "inspect": 2, "job": 2, "membership": 2, "upstream": 2, "overlay": 2, "approval": 2, "audit": 2,
	"invoke": 3, "control": 3, "declare": 3,
	"face": 4, "executor": 4, "store": 4, "telemetry": 4, "config": 4, "examples": 4, "rpcclient": 4,
	"node": 5, "toolkeeptest": 6, "cmd": 7, "bench": 7, "tools": 7,
}

// across lists allowed imports within one layer, with the reason.
var across = map[string]string{
	"mcp -> canon":              "messages are checked by the one parser",
	"mcp -> egress":             "the clients' transports count what was sent, and names of headers are read once",
	"schema -> canon":           "schema reads documents with the one parser",
	"mcpregistry -> canon":      "answers of registries are read with the one parser, and digests are of its canonical form",
	"mcpregistry -> promptscan": "what a registry says is inspected as descriptions of tools are",
	"pack -> canon":             "manifests are read with the one parser",
	"pack -> schema":            "the words of parameters are found by the keywords of schemas",
	"redact -> canon":           "redact cleans trees",
}

// shared lists the packages that their siblings may import, with the reason. No other
// siblings import each other, at any depth: no executor another executor, no store
// another store, no face another face. A package may import those above and below it.
var shared = map[string]string{
	"face/gate":          "what every request passes before a face reads it, the same for all faces",
	"executor/bindings":  "what every binding of a manifest has in common",
	"store/record":       "the encoding of the feed and the rows",
	"store/flow":         "the queue of Applies and the feed's delivery",
	"access/jwt":         "every kind of token is checked with the same care",
	"discover/mapped":    "files in memory, for the index and its models",
	"discover/assembly":  "usage learns from the contexts that were shown",
	"catalog/source/mcp": "export writes what the reader of MCP definitions reads",
	"catalog/source/sql": "a toolbox document is a list of SQL statements",
}

// TestDependencyRule reads the imports of every file and fails, with the reason, if one
// goes up or across, or if an exception is no longer needed.
func TestDependencyRule(t *testing.T) {
	checked, used := 0, map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "web" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		checked++
		checkFile(t, path, used)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 20 {
		t.Fatalf("only %d files were read; the walk is broken", checked)
	}
	for _, list := range []map[string]string{across, shared} {
		for name := range list {
			if !used[name] {
				t.Errorf("the exception %q is no longer needed; delete it", name)
			}
		}
	}
}

func checkFile(t *testing.T, file string, used map[string]bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), ".")
	from := top(dir)
	layer, ok := layers[from]
	if !ok {
		t.Errorf("%s: package %s has no place in the dependency rule; add it to layers", file, from)
		return
	}
	test := strings.HasSuffix(file, "_test.go")
	for _, imp := range parsed.Imports {
		name, _ := strconv.Unquote(imp.Path.Value)
		rest, ours := strings.CutPrefix(name, module)
		if !ours {
			if from == "" && !test && strings.Contains(strings.Split(name, "/")[0], ".") {
				t.Errorf("%s imports %s: the root package uses the standard library alone", file, name)
			}
			continue
		}
		path := strings.TrimPrefix(rest, "/")
		to := top(path)
		below, ok := layers[to]
		switch {
		case !ok:
			t.Errorf("%s imports %s, which has no place in the dependency rule", file, name)
		case test, below < layer:
		case below > layer:
			t.Errorf("%s imports %s: %s (layer %d) must not know %s (layer %d)", file, name, from, layer, to, below)
		case to != from:
			used[from+" -> "+to] = true
			if across[from+" -> "+to] == "" {
				t.Errorf("%s imports %s: %s and %s stand in the same layer and do not know each other", file, name, from, to)
			}
		case !under(dir, path) && !under(path, dir):
			used[path] = true
			if shared[path] == "" {
				t.Errorf("%s imports %s: siblings do not know each other; shared lists the packages that are for all of them", file, name)
			}
		}
	}
}

// under reports whether a package is dir or below it.
func under(dir, pkg string) bool { return dir == "" || pkg == dir || strings.HasPrefix(pkg, dir+"/") }

// top returns the first element of a package's path within the module.
func top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// noRace lists packages whose goroutines and mutexes are covered by other packages' tests,
// with the reason.
var noRace = map[string]string{
	"bench": "measures", "tools": "generates", "examples": "is started by other tests",
	"cmd":                   "its parts are tested where they stand; the command runs as a process of its own",
	"store/postgres/pgtest": "starts servers for tests",
	"discover/vectortest":   "is run by the stores of vectors",
}

// TestRaceDetector fails if a package starts goroutines or has a mutex and the Makefile does
// not run its tests under the race detector.
func TestRaceDetector(t *testing.T) {
	raw, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	listed := listOfMakefile(raw, "RACE")
	if len(listed) < 10 {
		t.Fatalf("the Makefile's RACE cannot be read: %q", listed)
	}
	covers := func(dir string) bool {
		for _, l := range listed {
			l = strings.TrimPrefix(l, "./")
			if below, tree := strings.CutSuffix(l, "/..."); l == dir || tree && (dir == below || strings.HasPrefix(dir, below+"/")) {
				return true
			}
		}
		for l := range noRace {
			if dir == l || strings.HasPrefix(dir, l+"/") {
				return true
			}
		}
		return false
	}
	files, err := filepath.Glob("*/*.go")
	for _, pattern := range []string{"*/*/*.go", "*/*/*/*.go", "*/*/*/*/*.go"} {
		more, _ := filepath.Glob(pattern)
		files = append(files, more...)
	}
	if err != nil || len(files) < 100 {
		t.Fatalf("only %d files were found: %v", len(files), err)
	}
	for _, path := range files {
		dir := filepath.ToSlash(filepath.Dir(path))
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "testdata") || strings.Contains(path, "node_modules") || strings.HasPrefix(path, ".") || covers(dir) {
			continue
		}
		if concurrent(t, path) {
			t.Errorf("%s starts a goroutine or has a mutex, and %s is not in the Makefile's RACE", path, dir)
		}
	}
}

// TestPlainTestsRun fails if the Makefile's BOTH is not the list of the packages of RACE that have tests which only stand in the
// plain half: they would run nowhere.
func TestPlainTestsRun(t *testing.T) {
	raw, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if dir := "./" + filepath.ToSlash(filepath.Dir(path)); bytes.HasPrefix(text, []byte("//go:build !race\n")) && !slices.Contains(have, dir) {
			have = append(have, dir)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	both := listOfMakefile(raw, "BOTH")
	slices.Sort(both)
	if !slices.Equal(both, have) {
		t.Errorf("the Makefile's BOTH is %q, and tests with //go:build !race stand in %q", both, have)
	}
}

// listOfMakefile returns the words of a variable of the Makefile, which may have several lines.
func listOfMakefile(raw []byte, name string) []string {
	_, list, _ := strings.Cut(string(raw), "\n"+name+" := ")
	list, _, _ = strings.Cut(strings.ReplaceAll(list, "\\\n", " "), "\n")
	return strings.Fields(list)
}

// concurrent reports whether a file starts goroutines or has something that is locked.
func concurrent(t *testing.T, path string) (found bool) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Error(err)
		return false
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && (s.Sel.Name == "Go" || s.Sel.Name == "AfterFunc") {
				found = true
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "sync" && slices.Contains([]string{"Mutex", "RWMutex", "Map"}, n.Sel.Name) {
				found = true
			}
		}
		return !found
	})
	return found
}
