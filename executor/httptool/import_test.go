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

// TestImportedBindings wants every tool that the OpenAPI reader makes of real
// documents to pass Check: what cannot be sent must be refused at import.
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
			return nil // no document by itself, or one that is refused
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
