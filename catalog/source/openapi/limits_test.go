package openapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

const header = "openapi: 3.1.0\ninfo: {title: Limits, version: '1'}\nservers: [{url: 'https://a.example.com'}]\n"

func onePost(schema string) string {
	return "paths: {/x: {post: {requestBody: {content: {application/json: {schema: " + schema + "}}}, responses: {200: {description: ok}}}}}\n"
}

// TestHostileDocuments reads documents made to take unlimited time or memory. Each ends within the
// test's time limit with a plan or an error.
func TestHostileDocuments(t *testing.T) {
	var laughs, merges, chain, fan, deepAll strings.Builder
	laughs.WriteString("x:\n  a0: &a0 {type: object, properties: {x: {type: string}}}\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&laughs, "  a%d: &a%d {type: object, properties: {a: *a%d, b: *a%d, c: *a%d}}\n", i, i, i-1, i-1, i-1)
	}
	merges.WriteString("x:\n  big: &big {")
	for i := range 20_000 {
		fmt.Fprintf(&merges, "k%d: 1, ", i)
	}
	merges.WriteString("}\n  all:\n")
	for range 200 {
		merges.WriteString("    - {<<: *big}\n")
	}
	chain.WriteString("components:\n  schemas:\n")
	for i := range 3000 {
		fmt.Fprintf(&chain, "    S%d: {$ref: '#/components/schemas/S%d/properties/p'}\n", i, i+1)
	}
	chain.WriteString("    S3000: {type: object, properties: {p: {type: string}}}\n")
	fan.WriteString("components:\n  schemas:\n")
	deepAll.WriteString("components:\n  schemas:\n")
	for i := range 12 {
		fmt.Fprintf(&fan, "    S%d: {type: object, properties: {", i)
		fmt.Fprintf(&deepAll, "    S%d: {allOf: [", i)
		for j := range 50 {
			fmt.Fprintf(&fan, "p%d: {$ref: '#/components/schemas/S%d'}, ", j, i+1)
			fmt.Fprintf(&deepAll, "{$ref: '#/components/schemas/S%d'}, ", i+1)
		}
		fan.WriteString("}}\n")
		deepAll.WriteString("], required: [a]}\n")
	}
	fan.WriteString("    S12: {type: string}\n")
	deepAll.WriteString("    S12: {properties: {a: {readOnly: true}}}\n")
	deep := strings.Repeat("{properties: {a: ", 100) + "{}" + strings.Repeat("}}", 100)
	names := "{required: [" + strings.Repeat("abc, ", 50_000) + "]}"
	for name, doc := range map[string]string{
		"laughs":   header + laughs.String() + onePost("*a39"),
		"merges":   header + merges.String() + "paths: {}\n",
		"chain":    header + chain.String() + onePost("{$ref: '#/components/schemas/S0'}"),
		"fan":      header + fan.String() + onePost("{$ref: '#/components/schemas/S0'}"),
		"deep all": header + deepAll.String() + onePost("{$ref: '#/components/schemas/S0'}"),
		"deep":     header + onePost(deep),
		"names":    header + onePost(names),
		"braces":   `{"openapi": "3.1.0", "paths": {"/` + strings.Repeat("{a}", 5000) + `": {"get": {}}}}`,
		"pointers": header + "components: {schemas: {a: {$ref: '#/components/schemas/b/x'}, b: {$ref: '#/components/schemas/a/x'}}}\n" + onePost("{$ref: '#/components/schemas/a'}"),
		"text":     header + onePost("{description: '"+strings.Repeat("long ", 200_000)+"'}"),
		"pattern":  header + onePost("{pattern: '"+strings.Repeat("(a{1000})", 400)+"'}"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeFiles(t, []caseFile{{"api.yaml", doc}})
			plan, err := Read(context.Background(), Options{Location: filepath.Join(dir, "api.yaml")})
			if err != nil {
				if e := toolkeep.AsError(err); e.Code != toolkeep.ImportFailed {
					t.Fatal(err)
				}
				t.Log(err)
				return
			}
			checkPlan(t, plan)
			for _, r := range plan.Refused {
				t.Log(toolkeep.Clip(r.Operation, 40), r.Reason)
			}
			for _, w := range plan.Warnings {
				t.Log(toolkeep.Clip(w, 300))
			}
		})
	}
}

func TestFileLimits(t *testing.T) {
	dir := t.TempDir()
	var doc strings.Builder
	doc.WriteString(header + "paths:\n")
	for i := range maxFiles + 5 {
		fmt.Fprintf(&doc, "  /p%d: {$ref: f%d.yaml}\n", i, i)
	}
	api := filepath.Join(dir, "api.yaml")
	if err := os.WriteFile(api, []byte(doc.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := Read(context.Background(), Options{Location: api})
	if e := toolkeep.AsError(err); e == nil || !strings.Contains(e.Message, "more than 5000 files") {
		t.Errorf("got %v", err)
	}

	if err := os.WriteFile(filepath.Join(dir, "f0.yaml"), []byte("get: {}\n"+strings.Repeat("# long\n", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(api, []byte(header+"paths: {/x: {$ref: f0.yaml}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = Read(context.Background(), Options{Location: api, maxBytes: 400})
	if e := toolkeep.AsError(err); e == nil || !strings.Contains(e.Message, "larger than 400 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestReadingEndsWithItsContext(t *testing.T) {
	dir := writeFiles(t, []caseFile{{"api.yaml", header + onePost("{}")}})
	ctx, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	_, err := Read(ctx, Options{Location: filepath.Join(dir, "api.yaml")})
	if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.ImportFailed {
		t.Errorf("got %v", err)
	}
}
