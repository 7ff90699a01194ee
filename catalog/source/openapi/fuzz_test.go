package openapi

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

// nowhere is a source in which every reference fails, so that fuzzing uses neither disk nor
// network.
type nowhere struct{}

func (nowhere) resolve(_, ref string) (string, string) { return ref, "" }
func (nowhere) read(context.Context, string, int64) (data []byte, why string) {
	return nil, "there is no such file"
}
func (nowhere) name(loc string) string { return loc }
func (nowhere) close()                 {}

func readBytes(ctx context.Context, data []byte, o Options) (*Plan, error) {
	files := &files{ctx: ctx, src: nowhere{}, left: 1 << 20, limit: 1 << 20, byLoc: map[string]*file{}, bad: map[string]string{}}
	main, reason := files.add("api.yaml", data)
	if reason != "" {
		return nil, importError("%s", reason)
	}
	return readTree(ctx, o, files, main)
}

func FuzzRead(f *testing.F) {
	cases, _ := filepath.Glob("testdata/*.txt")
	for _, path := range cases {
		_, files := parseCase(f, path)
		for _, file := range files[:len(files)-1] {
			f.Add([]byte(file.text))
		}
	}
	for _, path := range documents(f) {
		if data, err := os.ReadFile(path); err == nil && len(data) < 8<<10 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		plan, err := readBytes(ctx, data, Options{Server: "https://fuzz.example.com"})
		if err != nil {
			if e := toolkeep.AsError(err); e.Code != toolkeep.ImportFailed {
				t.Fatalf("not E3011: %v", err)
			}
			return
		}
		if len(plan.Tools)+len(plan.Refused) != plan.Operations {
			t.Fatalf("%d and %d are not %d", len(plan.Tools), len(plan.Refused), plan.Operations)
		}
		for _, r := range plan.Refused {
			if strings.HasPrefix(r.Reason, ownFault) {
				t.Fatal(r.Reason)
			}
		}
		names := map[string]bool{}
		for _, tool := range plan.Tools {
			if names[tool.Name] {
				t.Fatalf("%s is there twice", tool.Name)
			}
			names[tool.Name] = true
			if _, err := catalog.ParseManifest(tool.Manifest); err != nil {
				t.Fatalf("%s: %v", tool.Name, err)
			}
		}
	})
}
