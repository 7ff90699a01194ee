package openapi

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"
)

var dataFolder = dataDir()

func dataDir() string {
	if d := os.Getenv("DATA"); d != "" {
		return d
	}
	return "../../../../shared/data/openapi"
}

// documents lists the roots of the shared documents: files that say at their
// beginning or root that they are OpenAPI.
func documents(t testing.TB) []string {
	t.Helper()
	if _, err := os.Stat(dataFolder); err != nil {
		t.Logf("NOT TESTED: the shared documents are missing at %s; this test passes without having looked at one", dataFolder)
		return nil
	}
	var docs []string
	err := filepath.WalkDir(dataFolder, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		ext := strings.ToLower(filepath.Ext(path))
		if ext != ".json" && ext != ".yaml" && ext != ".yml" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Contains(data, []byte("swagger")) && !bytes.Contains(data, []byte("openapi")) {
			return nil
		}
		f := &file{loc: path, name: filepath.Base(path)}
		root, err := parseTree(data, f)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		if o, ok := root.(*object); ok && (o.has("swagger") || o.has("openapi")) {
			docs = append(docs, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(docs)
	return docs
}

func TestEveryDocument(t *testing.T) {
	ops := 0
	for _, path := range documents(t) {
		rel, _ := filepath.Rel(dataFolder, path)
		start := time.Now()
		plan, err := Read(context.Background(), Options{Location: path, Server: os.Getenv("SRV")})
		took := time.Since(start)
		if err != nil {
			t.Errorf("%s: %v", rel, err)
			continue
		}
		t.Logf("%-60s ops %3d tools %3d refused %3d warnings %3d %v", rel, plan.Operations, len(plan.Tools), len(plan.Refused), len(plan.Warnings), took.Round(time.Millisecond))
		ops += plan.Operations
	}
	t.Logf("operations %d", ops)
}
