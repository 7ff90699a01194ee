package toolkeep_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/toolkeep/toolkeep"

// layers orders the tree: a package may import packages of lower layers only.
// Packages of one layer do not import each other, except below one another.
var layers = map[string]int{
	"": 0, "contracts": 0, "proto": 0,
	"canon": 1, "mcp": 1, "schema": 1, "redact": 1, "egress": 1, "suggest": 1, "servertest": 1,
	"catalog": 2, "discover": 2, "access": 2, "limit": 2, "resultcache": 2, "secret": 2, "inspect": 2, "job": 2, "upstream": 2, "overlay": 2,
	"invoke": 3,
	"face":   4, "executor": 4, "store": 4, "telemetry": 4, "config": 4, "examples": 4, "rpcclient": 4,
	"node": 5, "toolkeeptest": 6, "cmd": 7, "bench": 7, "tools": 7,
}

// within lists imports inside one layer that the tree allows, with the reason.
var within = map[string]string{
	"mcp -> canon":         "messages are checked by the one parser",
	"mcp -> egress":        "the clients' transports count what was sent",
	"schema -> canon":      "schema reads documents with the one parser",
	"redact -> canon":      "redact cleans trees",
	"store -> store":       "the conformance suite stands beside the stores",
	"executor -> executor": "the conformance suite stands beside the executors",
	"face -> face":         "the conformance suite stands beside the faces",
}

// TestDependencyRule reads the imports of every file and fails with the reason
// where one goes up or across.
func TestDependencyRule(t *testing.T) {
	checked := 0
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
		checkFile(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 20 {
		t.Fatalf("only %d files were read; the walk is broken", checked)
	}
}

func checkFile(t *testing.T, path string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	from := top(filepath.ToSlash(filepath.Dir(path)))
	layer, ok := layers[from]
	if !ok {
		t.Errorf("%s: package %s has no place in the dependency rule; add it to layers", path, from)
		return
	}
	test := strings.HasSuffix(path, "_test.go")
	for _, imp := range file.Imports {
		name, _ := strconv.Unquote(imp.Path.Value)
		rest, ours := strings.CutPrefix(name, module)
		if !ours {
			if from == "" && !test && strings.Contains(strings.Split(name, "/")[0], ".") {
				t.Errorf("%s imports %s: the root package uses the standard library alone", path, name)
			}
			continue
		}
		to := top(strings.TrimPrefix(rest, "/"))
		below, ok := layers[to]
		switch {
		case !ok:
			t.Errorf("%s imports %s, which has no place in the dependency rule", path, name)
		case to == from, below < layer, test:
		case below > layer:
			t.Errorf("%s imports %s: %s (layer %d) must not know %s (layer %d)", path, name, from, layer, to, below)
		case within[from+" -> "+to] == "":
			t.Errorf("%s imports %s: %s and %s stand in the same layer and do not know each other", path, name, from, to)
		}
	}
}

// top is the first element of a package's path within the module.
func top(dir string) string {
	if dir == "." || dir == "" {
		return ""
	}
	return strings.Split(dir, "/")[0]
}
