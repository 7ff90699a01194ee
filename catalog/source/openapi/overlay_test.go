package openapi

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func over(actions string) Overlay {
	return Overlay{Name: "over.yaml", Text: []byte("overlay: 1.0.0\ninfo: {title: o, version: '1'}\nactions:\n" + actions)}
}

// TestOverlay: update and remove change what is imported, in order, and count for the digest.
func TestOverlay(t *testing.T) {
	plain := readText(t, shop, Options{})
	change := over(`  - {target: "$.paths['/v1/orders'].get", update: {summary: "List\u0020orders", parameters: [{name: page, in: query, schema: {type: integer, maximum: 1.50}}]}}
  - {target: "$.paths.*[?@.tags[0] == 'admin']", remove: true}
  - {target: $.info, update: {version: "2"}}
`)
	plan := readText(t, shop, Options{Overlays: []Overlay{change, over("  - {target: $.info, update: {version: '3'}}\n")}})
	if plan.Version != "3" || plan.Operations != 5 || plan.Digest == plain.Digest || !strings.Contains(string(plan.Tools[0].Manifest), `"List orders"`) || !strings.Contains(string(plan.Tools[0].Manifest), `"maximum":1.50`) {
		t.Errorf("%+v\n%s", plan, plan.Tools[0].Manifest)
	}
	if !strings.Contains(string(plan.Tools[0].Manifest), `"overlays":["sha256:`) || strings.Contains(string(plain.Tools[0].Manifest), "overlays") {
		t.Errorf("the tools do not remember the overlay: %s", plan.Tools[0].Manifest)
	}
	if other := readText(t, shop, Options{Overlays: []Overlay{change}}); other.Digest == plan.Digest {
		t.Error("the digest does not cover the second overlay")
	}
	// A later import without it is told that it loses something.
	s := newShelf()
	s.put(t, plan)
	if plan = readText(t, shop, s.options(Choice{})); !hasWarning(plan, "1 tools were made with an overlay and this import names none") {
		t.Errorf("%q", plan.Warnings)
	}
}

// TestOverlayTexts: what JSON and YAML write differently comes through an overlay as it was.
func TestOverlayTexts(t *testing.T) {
	document := `{"openapi":"3.0.3","info":{"title":"Texts","version":"1.0"},"servers":[{"url":"https://a.example"}],"paths":{"/x":{"get":{"operationId":"x","summary":"a: b #c \"d\" \u00e9 \ud83d\ude00\nsecond","description":"yes","parameters":[
		{"name":"no","in":"query","schema":{"type":"string","enum":["yes","no","1.0","2020-01-01","null","~","<<","0x10","1e3"," lead"]}},{"name":"n","in":"query","schema":{"type":"number","minimum":1e-3}}],"responses":{"200":{"description":"ok"}}}}}}`
	plain := readText(t, document, Options{})
	plan := readText(t, document, Options{Overlays: []Overlay{over("  - {target: $.info, update: {x-y: 1}}\n")}})
	cut := func(p *Plan) string {
		before, _, _ := strings.Cut(string(p.Tools[0].Manifest), `"source":`)
		return before
	}
	if cut(plan) != cut(plain) {
		t.Errorf("it was\n%s\nand is\n%s", cut(plain), cut(plan))
	}
}

// TestLargeOverlay: what an overlay makes is bounded too.
func TestLargeOverlay(t *testing.T) {
	var paths strings.Builder
	for i := range 40 {
		fmt.Fprintf(&paths, "  /x%d: {get: {operationId: x%d, responses: {'200': {description: ok}}}}\n", i, i)
	}
	large := over("  - {target: '$.paths.*', update: {description: '" + strings.Repeat("x", 900000) + "'}}\n")
	_, err := Read(t.Context(), Options{Location: "api.yaml", Document: []byte(shop + paths.String()), Overlays: []Overlay{large}})
	if !toolkeep.IsCode(err, toolkeep.ImportFailed) || !strings.Contains(err.Error(), "makes more than 32 MiB") {
		t.Error(err)
	}
}

func TestOverlayFaults(t *testing.T) {
	good := "  - {target: $.info, update: {version: '3'}}\n"
	bomb := "a: &a [&x xxxxxxxxxxxxxxxxxxxxxxx, *x, *x, *x, *x, *x, *x, *x, *x, *x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n"
	for name, c := range map[string]struct {
		document string
		overlays []Overlay
		says     string
	}{
		"no overlay":    {shop, []Overlay{{"o.yaml", []byte(shop)}}, "the overlay o.yaml cannot be applied"},
		"not YAML":      {shop, []Overlay{{"o.yaml", []byte("a: [")}}, "the overlay cannot be read: o.yaml"},
		"empty":         {shop, []Overlay{{"o.yaml", nil}}, "o.yaml"},
		"a list":        {shop, []Overlay{{"o.yaml", []byte("[1]")}}, "o.yaml"},
		"no actions":    {shop, []Overlay{over("")}, "over.yaml"},
		"version":       {shop, []Overlay{{"o.yaml", []byte(strings.Replace(string(over(good).Text), "1.0.0", "2.0.0", 1))}}, "cannot be applied"},
		"a copy":        {shop, []Overlay{{"o.yaml", []byte(strings.Replace(string(over("  - {target: $.info, copy: $.paths}\n").Text), "1.0.0", "1.1.0", 1))}}, "the overlay o.yaml copies"},
		"bad target":    {shop, []Overlay{over("  - {target: 'paths[', remove: true}\n")}, "cannot be applied"},
		"bad update":    {shop, []Overlay{over("  - {target: $.info, update: [1]}\n")}, "cannot be applied"},
		"too long":      {shop, []Overlay{{"o.yaml", make([]byte, maxOverlay+1)}}, "over 1 MiB"},
		"too many":      {shop, make([]Overlay, maxOverlays+1), "more than 20 overlays"},
		"a bomb":        {shop, []Overlay{{"o.yaml", []byte(bomb)}}, "too large"},
		"a bomb itself": {shop + bomb, []Overlay{over(good)}, "too large"},
		"all removed":   {shop, []Overlay{over("  - {target: $.openapi, remove: true}\n")}, "neither \"openapi\" nor \"swagger\""},
	} {
		plan, err := Read(context.Background(), Options{Location: "api.yaml", Document: []byte(c.document), Overlays: c.overlays})
		if plan != nil || !toolkeep.IsCode(err, toolkeep.ImportFailed) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plan := readText(t, shop, Options{Overlays: []Overlay{over("  - {target: \"$.paths['/none']\", remove: true}\n")}})
	if !hasWarning(plan, "the action at $.paths['/none'] changed nothing") {
		t.Errorf("%q", plan.Warnings)
	}
}
