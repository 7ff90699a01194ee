package openapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"
)

const (
	dataFolder   = "../../../../shared/data/openapi"
	coveragePage = "../../../docs/openapi-coverage.md"
)

// largeFolders are left out under -short.
var largeFolders = map[string]bool{"adyen": true, "digitalocean": true, "googlemaps": true, "influxdb": true, "kubernetes": true, "twilio": true}

// documents lists the shared documents: files that declare themselves OpenAPI or Swagger at their
// root. Without the folder there are none, and the test passes. Under -short those of largeFolders are left out.
func documents(t testing.TB) []string {
	t.Helper()
	if _, err := os.Stat(dataFolder); err != nil {
		t.Logf("NOT TESTED: the shared documents are missing at %s; this test passes without having looked at one", dataFolder)
		return nil
	}
	var docs []string
	err := filepath.WalkDir(dataFolder, func(path string, e os.DirEntry, err error) error {
		if err == nil && testing.Short() && e.IsDir() && largeFolders[e.Name()] {
			return filepath.SkipDir
		}
		if err != nil || e.IsDir() {
			return err
		}
		switch filepath.Ext(path) {
		case ".json", ".yaml", ".yml":
		default:
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Contains(data, []byte("swagger")) && !bytes.Contains(data, []byte("openapi")) {
			return nil
		}
		root, err := parseTree(data, &file{loc: path, name: path})
		if err != nil {
			t.Errorf("%s: %v", path, err)
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

// knownOperations is the number of operations in the documents, counted by another reader.
// fixtures-go-openapi has one more document, with 4 operations, which that reader could not read
// (dates that do not exist).
var knownOperations = map[string]int{
	"adyen": 119, "digitalocean": 659, "discourse": 93, "docker-engine": 107, "e2b": 64,
	"fixtures-go-openapi": 161 + 4, "fixtures-kin-openapi": 104, "fixtures-readme-oas": 488,
	"googlemaps": 17, "influxdb": 224, "kubernetes": 245, "openai": 28, "redocly-museum": 8,
	"rekor": 8, "twilio": 197,
}

// TestEveryDocument plans every document without and with a given server, the smaller ones twice,
// and checks the invariants of every plan. docs/openapi-coverage.md has its table.
func TestEveryDocument(t *testing.T) {
	docs := documents(t)
	if len(docs) == 0 {
		return
	}
	operations := map[string]int{}
	var rows []string
	for _, path := range docs {
		rel, err := filepath.Rel(dataFolder, path)
		if err != nil {
			t.Fatal(err)
		}
		rel = filepath.ToSlash(rel)
		start := time.Now()
		alone, err1 := Read(t.Context(), Options{Location: path})
		if took := time.Since(start); took > 2*time.Second {
			t.Logf("%s took %v", rel, took.Round(time.Millisecond))
		}
		given, err2 := Given(t.Context(), path)
		if err := errors.Join(err1, err2); err != nil {
			t.Errorf("%s: %v", rel, err)
			continue
		}
		checkPlan(t, given)
		if given.Operations <= 120 { // the large ones contain nothing that these do not
			samePlan(t, rel, given, read(t, Options{Location: path, Server: GivenServer}))
		}
		if len(alone.Tools)+len(alone.Refused) != alone.Operations {
			t.Errorf("%s: %d tools and %d refused are not %d operations", rel, len(alone.Tools), len(alone.Refused), alone.Operations)
		}
		if alone.Operations != given.Operations {
			t.Errorf("%s: %d operations, with a server %d", rel, alone.Operations, given.Operations)
		}
		folder, _, _ := strings.Cut(rel, "/")
		operations[folder] += alone.Operations
		rows = append(rows, coverageRow(rel, alone, given))
	}
	if testing.Short() {
		return // the table has every document
	}
	for folder, want := range knownOperations {
		if operations[folder] != want {
			t.Errorf("%s: %d operations, known are %d", folder, operations[folder], want)
		}
	}
	checkPage(t, rows)
}

func samePlan(t *testing.T, name string, a, b *Plan) {
	t.Helper()
	if fmt.Sprint(a.Refused, a.Warnings, a.Digest) != fmt.Sprint(b.Refused, b.Warnings, b.Digest) || len(a.Tools) != len(b.Tools) {
		t.Errorf("%s: two readings differ", name)
		return
	}
	for i := range a.Tools {
		if a.Tools[i].Name != b.Tools[i].Name || !bytes.Equal(a.Tools[i].Manifest, b.Tools[i].Manifest) {
			t.Errorf("%s: two readings differ at %s", name, a.Tools[i].Name)
		}
	}
}

func coverageRow(name string, alone, given *Plan) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %s |", name, alone.Operations, len(alone.Tools), len(given.Tools), len(given.Refused), reasons(given.Refused))
}

var quotedText = regexp.MustCompile(`"[^"]*"|\{[^}]*\}| at \S+:\d+`)

// reasons counts reasons, most frequent first, without the parts that differ between operations.
func reasons(refused []Refused) string {
	count := map[string]int{}
	for _, r := range refused {
		reason := r.Reason
		if strings.Contains(reason, "outside of the document's folder") {
			reason = "a reference leads outside of the document's folder"
		} else if strings.Contains(reason, "cannot be resolved") {
			reason = "a reference cannot be resolved"
		}
		count[strings.ReplaceAll(quotedText.ReplaceAllString(reason, "…"), "|", "/")]++
	}
	var list []string
	for r := range count {
		list = append(list, r)
	}
	sort.Slice(list, func(i, j int) bool {
		if count[list[i]] != count[list[j]] {
			return count[list[i]] > count[list[j]]
		}
		return list[i] < list[j]
	})
	for i, r := range list {
		list[i] = fmt.Sprintf("%d: %s", count[r], r)
	}
	if len(list) > 4 {
		list = append(list[:4], "…")
	}
	return strings.Join(list, "; ")
}

const pageHead = `# What becomes of real documents

Each document of the shared test set, read as ` + "`toolkeep import openapi --dry-run`" + ` reads it. "Tools" is without options, "with server" and "refused" with ` + "`--server https://example.invalid`" + `: documents without an absolute server refuse every operation until one is given. The last column says why operations are refused, with "…" for what differs between them; ` + "`--dry-run`" + ` names each.

This page is written by a test: ` + "`UPDATE_GOLDEN=1 go test -run TestEveryDocument ./catalog/source/openapi/`" + `.

| document | operations | tools | with server | refused | reasons |
| --- | ---: | ---: | ---: | ---: | --- |
`

// checkPage compares the documentation page with the results.
func checkPage(t *testing.T, rows []string) {
	t.Helper()
	var sum [4]int
	for _, row := range rows {
		cells := strings.Split(row, "|")
		for i := range sum {
			var n int
			if _, err := fmt.Sscan(cells[i+2], &n); err != nil {
				t.Fatal(err)
			}
			sum[i] += n
		}
	}
	total := fmt.Sprintf("| **%d documents** | %d | %d | %d | %d | |\n", len(rows), sum[0], sum[1], sum[2], sum[3])
	want := pageHead + strings.Join(rows, "\n") + "\n" + total
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(coveragePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(coveragePage)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is not what comes out now; run make generate and look at the difference", coveragePage)
	}
}

func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	path := filepath.Join(dir, "api.yaml")
	_, files := parseCase(b, "testdata/schemas31.txt")
	if err := os.WriteFile(path, []byte(files[0].text), 0o644); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Read(context.Background(), Options{Location: path}); err != nil {
			b.Fatal(err)
		}
	}
}
