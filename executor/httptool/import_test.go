package httptool

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
)

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
