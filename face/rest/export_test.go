package rest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

// exporting is a system whose catalogue holds the tools demo.t0, demo.t1, … ; the
// last of them waits for review.
func exporting(n int) (*system, *[]catalog.Filter) {
	s := newSystem()
	asked := &[]catalog.Filter{}
	s.catalog.resolve = func(_ *toolkeep.Principal, id, rng string) (toolkeep.Version, []toolkeep.Warning, error) {
		var i int
		if _, err := fmt.Sscanf(id, "demo.t%d", &i); err != nil || i >= n || rng != "" {
			return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "no %s", id)
		}
		v := toolkeep.Version{Tool: &toolkeep.Tool{ID: id, Version: "1.0.0", Manifest: &toolkeep.Manifest{ToolID: id, Description: "A tool.",
			Category: "utility", Tags: []string{fmt.Sprintf("tag%d", i%2)}, ParametersSchema: []byte(`{"type":"object","properties":{"a":{"type":"string","minLength":1}}}`)}}}
		if i == n-1 {
			v.Life.Held = &toolkeep.Hold{Why: "its definition changed"}
		}
		return v, nil, nil
	}
	s.catalog.list = func(f catalog.Filter) ([]catalog.Summary, int) {
		*asked = append(*asked, f)
		var list []catalog.Summary
		for i := f.Offset; i < min(n, f.Offset+f.Limit); i++ {
			list = append(list, catalog.Summary{ToolID: fmt.Sprintf("demo.t%d", i)})
		}
		return list, n
	}
	return s, asked
}

func TestExport(t *testing.T) {
	s, asked := exporting(3)
	w := s.do(t, "GET", "/api/v1/tools/export?as=gemini&namespace=demo&category=utility&tag=tag0", "")
	wantStatus(t, w, 200)
	m := decode(t, w)
	names, left, losses := m["names"].([]any), m["left_out"].([]any), m["losses"].([]any)
	if len(names) != 2 || names[0].(map[string]any)["name"] != "demo__t0" || len(losses) != 2 || losses[0].(map[string]any)["pointer"] != "/properties/a/minLength" {
		t.Errorf("%v %v", names, losses)
	}
	if len(left) != 1 || left[0].(map[string]any)["tool"] != "demo.t2" || !strings.Contains(fmt.Sprint(left), "waits for review") {
		t.Errorf("%v", left)
	}
	if list := m["tools"].([]any); len(list[0].(map[string]any)["functionDeclarations"].([]any)) != 2 {
		t.Errorf("%v", m["tools"])
	}
	if f := (*asked)[0]; !reflect.DeepEqual(f, catalog.Filter{Category: "utility", Tags: []string{"tag0"}, Namespace: "demo", Limit: catalog.MaxPage}) {
		t.Errorf("%+v", f)
	}

	// All pages are read.
	s, asked = exporting(catalog.MaxPage + 5)
	w = s.do(t, "GET", "/api/v1/tools/export?as=mcp", "")
	wantStatus(t, w, 200)
	if n := len(decode(t, w)["names"].([]any)); n != catalog.MaxPage+4 || len(*asked) != 2 {
		t.Errorf("%d tools in %d pages", n, len(*asked))
	}
	s.catalog.list = func(catalog.Filter) ([]catalog.Summary, int) { return nil, maxExported + 1 }
	problem(t, s.do(t, "GET", "/api/v1/tools/export?as=mcp", ""), toolkeep.InvalidParameters)
}

func TestExportOfNamedTools(t *testing.T) {
	s, _ := exporting(4)
	w := s.do(t, "GET", "/api/v1/tools/export?as=openai&strict=true&tool=demo.t2&tool=demo.t0&tool=demo.t1&tool=demo.t0&tag=tag0", "")
	wantStatus(t, w, 200)
	names := decode(t, w)["names"].([]any)
	if len(names) != 2 || names[0].(map[string]any)["tool"] != "demo.t0" || names[1].(map[string]any)["strict"] != true {
		t.Errorf("%v", names)
	}
	problem(t, s.do(t, "GET", "/api/v1/tools/export?as=openai&tool=demo.t9", ""), toolkeep.ToolNotFound)
	problem(t, s.do(t, "GET", "/api/v1/tools/export?as=cohere", ""), toolkeep.InvalidParameters)
	problem(t, s.do(t, "GET", "/api/v1/tools/export", ""), toolkeep.MissingParameter)
}

func TestExportOfASet(t *testing.T) {
	s, _ := exporting(2)
	problem(t, s.do(t, "GET", "/api/v1/tools/export?as=openai&set=front", ""), toolkeep.ResourceNotFound)
	var visible func(*toolkeep.Tool) bool
	s.Set = func(_ *toolkeep.Principal, name string) (func(*toolkeep.Tool) bool, bool) {
		return func(t *toolkeep.Tool) bool { return t.ID == "demo.t0" }, name == "front"
	}
	seen := s.catalog.resolve
	s.catalog.resolve = func(p *toolkeep.Principal, id, rng string) (toolkeep.Version, []toolkeep.Warning, error) {
		v, warnings, err := seen(p, id, rng)
		if err == nil && !visible(v.Tool) {
			return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "no")
		}
		return v, warnings, err
	}
	s.catalog.sees = func(fn func(*toolkeep.Tool) bool) { visible = fn }
	w := s.do(t, "GET", "/api/v1/tools/export?as=openai&set=front", "")
	wantStatus(t, w, 200)
	if names := decode(t, w)["names"].([]any); len(names) != 1 || names[0].(map[string]any)["tool"] != "demo.t0" {
		t.Errorf("%v", names)
	}
}
