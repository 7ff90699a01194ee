package httptool

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
)

// TestImportedBindings: every tool that the OpenAPI reader makes of real documents
// passes Check: what cannot be sent must be refused at import.
func TestImportedBindings(t *testing.T) {
	dir := "../../../shared/data/openapi"
	if _, err := os.Stat(dir); err != nil {
		t.Log("THE DOCUMENTS IN ../shared/data/openapi ARE MISSING: only the bookshop's is read")
		dir = "../../examples/bookshop"
	}
	e := newExecutor(t)
	documents, tools := 0, 0
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/digitalocean/resources/") || strings.Contains(path, "/googlemaps/") {
			return err
		}
		if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" && ext != ".json" {
			return nil
		}
		plan, err := openapi.Read(t.Context(), openapi.Options{Location: path, Namespace: "test", Server: "https://api.example.com"})
		if err != nil {
			return nil // not a whole document, or a refused one
		}
		documents++
		for _, p := range plan.Tools {
			tools++
			m := new(toolkeep.Manifest)
			if err := xjson.Unmarshal(p.Manifest, m); err != nil {
				t.Errorf("%s %s: %v", path, p.Name, err)
				continue
			}
			for _, f := range e.Check(m) {
				t.Errorf("%s %s %s: %+v", filepath.Base(path), p.Method, p.Path, f)
			}
		}
		return nil
	})
	if tools == 0 {
		t.Error("no tool was read")
	}
	t.Logf("%d tools of %d documents", tools, documents)
}

// FuzzImported: every tool that the OpenAPI reader makes of any document passes Check.
func FuzzImported(f *testing.F) {
	cases, err := filepath.Glob("../../catalog/source/openapi/testdata/*.txt")
	if err != nil || len(cases) == 0 {
		f.Fatalf("%d cases of the reader (%v)", len(cases), err)
	}
	for _, path := range cases {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, text, _ := strings.Cut(string(data), " --\n")
		text, _, _ = strings.Cut(text, "\n-- ")
		f.Add(text)
	}
	f.Add(bodiesDocument)
	e := newExecutor(f)
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "api.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		plan, err := openapi.Read(t.Context(), openapi.Options{Location: path, Namespace: "test", Server: "https://api.example.com"})
		if err != nil {
			return
		}
		for _, p := range plan.Tools {
			m := new(toolkeep.Manifest)
			if err := xjson.Unmarshal(p.Manifest, m); err != nil {
				t.Fatal(err)
			}
			if faults := e.Check(m); len(faults) > 0 {
				t.Fatalf("%s %s: %+v", p.Method, p.Path, faults)
			}
		}
	})
}
