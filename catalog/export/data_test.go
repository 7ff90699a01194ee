package export

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/function"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
	"github.com/toolkeep/toolkeep/schema"
)

const dataFolder = "../../../shared/data/openapi"

// dataTools returns the tools of the shared OpenAPI documents, by document. Without the folder it returns none, and
// the test passes. Under -short only some of the folders are read.
func dataTools(t *testing.T) map[string][]*toolkeep.Tool {
	t.Helper()
	sets, err := readData()
	switch {
	case err != nil:
		t.Fatal(err)
	case sets == nil:
		t.Logf("NOT TESTED: the shared documents are missing at %s; this test passes without having looked at one", dataFolder)
	}
	return sets
}

var readData = sync.OnceValues(func() (map[string][]*toolkeep.Tool, error) {
	if _, err := os.Stat(dataFolder); err != nil {
		return nil, nil
	}
	sets := map[string][]*toolkeep.Tool{}
	err := filepath.WalkDir(dataFolder, func(path string, e os.DirEntry, err error) error {
		if err == nil && testing.Short() && e.IsDir() && slices.Contains([]string{"adyen", "digitalocean", "fixtures-readme-oas", "influxdb", "kubernetes", "twilio"}, e.Name()) {
			return filepath.SkipDir
		}
		if err != nil || e.IsDir() || !slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(path)) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Contains(data, []byte("swagger")) && !bytes.Contains(data, []byte("openapi")) {
			return nil
		}
		plan, err := openapi.Read(context.Background(), openapi.Options{Location: path, Server: "https://example.invalid"})
		if err != nil {
			return nil // a part of a document; the openapi package's test lists the whole ones
		}
		var tools []*toolkeep.Tool
		for _, p := range plan.Tools {
			tool, err := catalog.ParseManifest(p.Manifest)
			if err != nil {
				return err
			}
			tools = append(tools, tool)
		}
		name, err := filepath.Rel(dataFolder, path)
		sets[name] = tools
		return err
	})
	return sets, err
})

// TestData exports every tool of the shared documents in every form. The output keeps the published limits,
// compiles as JSON Schema, and reimports as the same schema if no loss was reported.
func TestData(t *testing.T) {
	sets := dataTools(t)
	if sets == nil {
		return
	}
	total := 0
	tally := map[string]map[string]int{}
	for _, name := range sortedNames(sets) {
		tools := sets[name]
		total += len(tools)
		for _, f := range Forms() {
			for _, strict := range []bool{false, true} {
				if strict && f != OpenAI && f != Anthropic {
					continue
				}
				label := string(f)
				if strict {
					label += " strict"
				}
				if tally[label] == nil {
					tally[label] = map[string]int{}
				}
				check(t, name, tools, Options{f, strict}, tally[label])
			}
		}
	}
	least := 2000
	if testing.Short() {
		least = 250
	}
	if total < least {
		t.Errorf("only %d tools were looked at", total)
	}
	for _, label := range sortedNames(tally) {
		n := tally[label]
		t.Logf("%-18s %d tools: %d written (%d strict), %d of them without a loss, %d left out; %d losses", label, total, n["written"], n["strict"], n["whole"], n["left"], n["losses"])
	}
}

func sortedNames[V any](m map[string]V) []string {
	var names []string
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	return names
}

func check(t *testing.T, set string, tools []*toolkeep.Tool, o Options, n map[string]int) {
	t.Helper()
	res, err := Export(tools, o)
	if err != nil {
		t.Errorf("%s as %s: %v", set, o.Form, err)
		return
	}
	byID := map[string]*toolkeep.Tool{}
	for _, tool := range tools {
		byID[tool.ID] = tool
	}
	if len(res.Names)+len(res.LeftOut) != len(tools) {
		t.Errorf("%s as %s: %d written and %d left out of %d", set, o.Form, len(res.Names), len(res.LeftOut), len(tools))
	}
	for _, l := range res.LeftOut {
		n["left"]++
		t.Logf("%s as %s (strict %t): left out %s: %s", set, o.Form, o.Strict, l.Tool, l.Reason)
	}
	lost := map[string]bool{}
	for _, l := range res.Losses {
		lost[l.Tool] = true
		if l.Lost == "" || l.Why == "" || byID[l.Tool] == nil {
			t.Errorf("%s as %s: a loss that says nothing: %+v", set, o.Form, l)
		}
	}
	n["losses"] += len(res.Losses)
	entries := entriesOf(t, o.Form, res.Document)
	if len(entries) != len(res.Names) {
		t.Fatalf("%s as %s: %d entries for %d names", set, o.Form, len(entries), len(res.Names))
	}
	for i, named := range res.Names {
		n["written"]++
		if named.Strict {
			n["strict"]++
		}
		entry := entries[i]
		if faults := Validate(o.Form, named.Strict, entry); len(faults) > 0 {
			t.Errorf("%s as %s: %s: %+v", set, o.Form, named.Tool, faults[0])
		}
		got := schemaOf(o.Form, entry)
		original, err := canon.Parse(byID[named.Tool].Manifest.ParametersSchema, treeLimits)
		if err != nil {
			t.Fatal(err)
		}
		if !lost[named.Tool] {
			n["whole"]++
			if want := normal(original); !reflect.DeepEqual(normal(got), want) {
				t.Errorf("%s as %s: %s changed without a loss:\n%s\n%s", set, o.Form, named.Tool, canon.Append(nil, normal(got)), canon.Append(nil, want))
			}
		} else if _, err := schema.Compile(canon.Append(nil, got)); err != nil {
			t.Errorf("%s as %s: %s does not compile: %v", set, o.Form, named.Tool, err)
		}
	}
	if !o.Strict && o.Form != Responses { // strict ones differ in more than their names; Responses equals OpenAI
		comesBack(t, set, o, res, lost, byID)
	}
}

// entriesOf returns the tools in a document.
func entriesOf(t *testing.T, f Form, doc []byte) []map[string]any {
	t.Helper()
	tree, err := canon.Parse(doc, canon.Limits{Bytes: MaxBytes + 1000, Depth: 200, Properties: 5_000_000, Elements: 5_000_000})
	if err != nil {
		t.Fatal(err)
	}
	switch f {
	case Gemini:
		tree = tree.([]any)[0].(map[string]any)["functionDeclarations"]
	case MCP:
		tree = tree.(map[string]any)["tools"]
	}
	var out []map[string]any
	for _, e := range tree.([]any) {
		out = append(out, e.(map[string]any))
	}
	return out
}

func schemaOf(f Form, entry map[string]any) any {
	if f == OpenAI {
		entry = entry["function"].(map[string]any)
	}
	return entry[schemaMember[f]]
}

// normal normalises an arguments schema: an object with explicit type and properties, without unused definitions,
// and with sorted required names.
func normal(v any) any {
	s, ok := plain(v).(map[string]any)
	if !ok {
		return v
	}
	s["type"] = "object"
	if s["properties"] == nil {
		s["properties"] = map[string]any{}
	}
	if s["$defs"] != nil {
		prune(s)
	}
	schema.Walk(s, func(_ string, m map[string]any) bool {
		if list := strs(m["required"]); len(list) > 0 {
			slices.Sort(list)
			var sorted []any
			for _, name := range list {
				sorted = append(sorted, name)
			}
			m["required"] = sorted
		} else {
			delete(m, "required")
		}
		return true
	})
	return s
}

// comesBack imports the export and wants the same schemas.
func comesBack(t *testing.T, set string, o Options, res *Result, lost map[string]bool, byID map[string]*toolkeep.Tool) {
	t.Helper()
	if len(res.Names) == 0 || len(res.Document) > function.MaxBytes {
		return
	}
	plan, err := function.Read(function.Options{Name: "export.json", Data: res.Document, URL: "https://example.invalid"})
	if err != nil {
		t.Errorf("%s as %s: %v", set, o.Form, err)
		return
	}
	for _, r := range plan.Refused {
		t.Errorf("%s as %s: %s does not come back: %s", set, o.Form, r.Origin, r.Reason)
	}
	back := map[string][]byte{}
	for _, tool := range plan.Tools {
		back[tool.Origin] = tool.Manifest
	}
	for _, named := range res.Names {
		if lost[named.Tool] || back[named.Name] == nil {
			continue
		}
		m, err := catalog.DecodeManifest(back[named.Name]) // the plan has checked it
		if err != nil {
			t.Fatal(err)
		}
		got, err := canon.Parse(m.ParametersSchema, treeLimits)
		if err != nil {
			t.Fatal(err)
		}
		want, err := canon.Parse(byID[named.Tool].Manifest.ParametersSchema, treeLimits)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(normal(got), normal(want)) {
			t.Errorf("%s as %s: %s comes back as another schema", set, o.Form, named.Tool)
		}
	}
}

// TestDataTwice: two exports of the same tools are equal.
func TestDataTwice(t *testing.T) {
	for name, tools := range dataTools(t) {
		if !strings.HasPrefix(name, "adyen") && !strings.HasPrefix(name, "openai") {
			continue
		}
		for _, f := range Forms() {
			a, err1 := Export(tools, Options{f, true})
			b, err2 := Export(tools, Options{f, true})
			if err1 != nil || err2 != nil || !bytes.Equal(a.Document, b.Document) || fmt.Sprint(a.Losses, a.LeftOut) != fmt.Sprint(b.Losses, b.LeftOut) {
				t.Errorf("%s as %s: two exports differ (%v, %v)", name, f, err1, err2)
			}
		}
	}
}
