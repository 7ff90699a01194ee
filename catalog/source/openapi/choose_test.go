package openapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
)

const shop = `openapi: 3.0.3
info: {title: Shop, version: '1'}
servers: [{url: 'https://shop.example'}]
paths:
  /v1/orders:
    get: {operationId: v1_listOrders, tags: [orders, reads], responses: {'200': {description: ok}}}
    post: {operationId: v1_createOrder, tags: [orders], responses: {'200': {description: ok}}}
  /v1/orders/{id}:
    get: {operationId: v1_getOrder, tags: [orders, reads], parameters: [{name: id, in: path, required: true, schema: {type: string}}], responses: {'200': {description: ok}}}
    trace: {operationId: v1_trace, responses: {'200': {description: ok}}}
  /admin/purge:
    post: {operationId: purge, tags: [admin], responses: {'200': {description: ok}}}
  /health:
    get: {responses: {'200': {description: ok}}}
`

// shelf is what was published.
type shelf map[string]*toolkeep.Tool

func (s shelf) options(c Choice) Options {
	return Options{Choice: c, Previous: func(id string) *toolkeep.Tool { return s[id] }, Published: func(namespace string) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(id string) bool { return !strings.HasPrefix(id, namespace+".") })
	}}
}

// put publishes a plan.
func (s shelf) put(t *testing.T, plan *Plan) {
	t.Helper()
	for _, tool := range plan.Tools {
		if tool.Change != source.ChangeUnchanged {
			parsed, err := catalog.ParseManifest(tool.Manifest)
			if err != nil {
				t.Fatal(err)
			}
			s[tool.Name] = parsed
		}
	}
}

func named(plan *Plan) (names []string) {
	for _, tool := range plan.Tools {
		names = append(names, tool.Name+" "+tool.Version)
	}
	return names
}

func wantNames(t *testing.T, what string, plan *Plan, want ...string) {
	t.Helper()
	if got := named(plan); !slices.Equal(got, want) {
		t.Errorf("%s: the tools are %q, not %q", what, got, want)
	}
}

func TestIncludeAndExclude(t *testing.T) {
	for _, c := range []struct {
		choice   Choice
		want     string
		excluded int
	}{
		{Choice{}, "v1_listOrders v1_createOrder v1_getOrder purge getHealth", 0},
		{Choice{Include: []string{"id:v1_*"}}, "v1_listOrders v1_createOrder v1_getOrder", 2},
		{Choice{Include: []string{"id:v1_get*", "path:/health"}}, "v1_getOrder getHealth", 4},
		{Choice{Include: []string{"path:/v1/*"}, Exclude: []string{"method:post"}}, "v1_listOrders v1_getOrder", 3},
		{Choice{Include: []string{"path:/v1/orders/{id}"}}, "v1_getOrder", 4},
		{Choice{Exclude: []string{"tag:admin", "method:TRACE"}}, "v1_listOrders v1_createOrder v1_getOrder getHealth", 2},
		{Choice{Include: []string{"tag:r*s"}}, "v1_listOrders v1_getOrder", 4},
		{Choice{Include: []string{"path:*"}}, "v1_listOrders v1_createOrder v1_getOrder purge getHealth", 0},
	} {
		plan := readText(t, shop, Options{Choice: c.choice})
		got := strings.NewReplacer("shop.", "", " 1.0.0", "").Replace(strings.Join(named(plan), " "))
		if got != c.want || plan.Excluded != c.excluded || plan.Operations != 6 {
			t.Errorf("%+v: %s, %d excluded of %d", c.choice, got, plan.Excluded, plan.Operations)
		}
	}
	for _, c := range []struct {
		choice Choice
		says   string
	}{
		{Choice{Include: []string{"tag:pets"}}, `"tag:pets" fits no operation`},
		{Choice{Exclude: []string{"id:"}}, "is not a pattern"},
		{Choice{Exclude: []string{"purge"}}, "is not a pattern"},
		{Choice{Exclude: []string{"color:red"}}, "is not a pattern"},
		{Choice{Exclude: []string{"path:*"}}, "leave none of the 6 operations"},
		{Choice{Include: []string{"id:" + strings.Repeat("x", maxPattern)}}, "is not a pattern"},
		{Choice{Include: slices.Repeat([]string{"path:*"}, maxPatterns+1)}, "more than 100 patterns"},
		{Choice{Names: []string{"nothing=x"}}, "fits no operationId"},
		{Choice{Names: []string{"^v1_"}}, "is not a rule"},
		{Choice{Names: []string{"(=x"}}, "cannot be read"},
		{Choice{Names: []string{"^purge$="}}, "leaves no name for purge"},
	} {
		if plan, err := Read(context.Background(), Options{Location: "api.yaml", Document: []byte(shop), Choice: c.choice}); !toolkeep.IsCode(err, toolkeep.ImportFailed) || !strings.Contains(err.Error(), c.says) || plan != nil {
			t.Errorf("%+v: %v", c.choice, err)
		}
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob, s string
		fits    bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "a", true}, {"a*", "abc", true}, {"*c", "abc", true}, {"*", "", true}, {"a*c", "abc", true}, {"a*c", "ac", true}, {"a*c", "a", false},
		{"a*b*c", "axbxc", true}, {"a*b*c", "axc", false}, {"a*a", "a", false}, {"*b*b*", "abb", true}, {"*b*b*", "ab", false}, {"/v1/[x]*", "/v1/[x]y", true}, {"ab*ba", "aba", false},
	} {
		if fitsGlob(c.glob, c.s) != c.fits {
			t.Errorf("%s on %s is not %v", c.glob, c.s, c.fits)
		}
	}
}

// TestChoiceIsRemembered: an import without a choice makes that of the last one, in whatever order choices came.
func TestChoiceIsRemembered(t *testing.T) {
	s := shelf{}
	s.put(t, readText(t, shop, s.options(Choice{})))
	if len(s) != 5 {
		t.Fatalf("%d tools", len(s))
	}
	// Tools that stay learn the choice by a patch; those that are excluded stay and are named.
	plan := readText(t, shop, s.options(Choice{Exclude: []string{"tag:admin"}}))
	wantNames(t, "excluded", plan, "shop.v1_listOrders 1.0.1", "shop.v1_createOrder 1.0.1", "shop.v1_getOrder 1.0.1", "shop.getHealth 1.0.1")
	if !slices.Equal(plan.Left, []string{"shop.purge"}) || plan.Gone != nil || !hasWarning(plan, "shop.purge is excluded, and the tool stays published") {
		t.Errorf("left %q, gone %q, %q", plan.Left, plan.Gone, plan.Warnings)
	}
	s.put(t, plan)
	for range 2 {
		plan = readText(t, shop, s.options(Choice{}))
		wantNames(t, "again", plan, "shop.v1_listOrders 1.0.1", "shop.v1_createOrder 1.0.1", "shop.v1_getOrder 1.0.1", "shop.getHealth 1.0.1")
		if plan.Excluded != 1 || !hasWarning(plan, "the choice of the last import counts: --exclude 'tag:admin'") || len(plan.Changed()) != 0 {
			t.Errorf("%d excluded, %q", plan.Excluded, plan.Warnings)
		}
	}
	// The same choice again changes nothing.
	if plan = readText(t, shop, s.options(Choice{Exclude: []string{"tag:admin"}})); len(plan.Changed()) != 0 {
		t.Errorf("changed: %q", named(plan))
	}
	// A second choice counts more than what excluded tools remember of the first.
	s.put(t, readText(t, shop, s.options(Choice{Include: []string{"method:GET"}})))
	plan = readText(t, shop, s.options(Choice{}))
	wantNames(t, "the last of two", plan, "shop.v1_listOrders 1.0.2", "shop.v1_getOrder 1.0.2", "shop.getHealth 1.0.2")
	if !slices.Equal(plan.Left, []string{"shop.purge", "shop.v1_createOrder"}) {
		t.Errorf("left %q", plan.Left)
	}
	// A remembered pattern that fits nothing any more is not dropped in silence.
	if _, err := Read(t.Context(), optionsOf(s, strings.ReplaceAll(shop, "get:", "put:"))); err == nil || !strings.Contains(err.Error(), "method:GET") {
		t.Error(err)
	}
	// Everything again.
	s.put(t, readText(t, shop, s.options(Choice{Include: []string{"path:*"}})))
	if plan = readText(t, shop, s.options(Choice{})); len(plan.Tools) != 5 || plan.Excluded != 0 || len(plan.Left) != 0 {
		t.Errorf("%q, left %q", named(plan), plan.Left)
	}
	// Another document is not concerned.
	if plan = readText(t, strings.Replace(shop, "title: Shop", "title: Other", 1), s.options(Choice{})); len(plan.Tools) != 5 || hasWarning(plan, "choice") {
		t.Errorf("%q, %q", named(plan), plan.Warnings)
	}
}

func optionsOf(s shelf, text string) Options {
	o := s.options(Choice{})
	o.Location, o.Document = "api.yaml", []byte(text)
	return o
}

func hasWarning(plan *Plan, part string) bool {
	return slices.ContainsFunc(plan.Warnings, func(w string) bool { return strings.Contains(w, part) })
}

// TestNameRules: rules make the names, are remembered, and the old names are told.
func TestNameRules(t *testing.T) {
	s := shelf{}
	s.put(t, readText(t, shop, s.options(Choice{})))
	plan := readText(t, shop, s.options(Choice{Names: []string{"^v1_(.*)=$1", "Order=Purchase"}}))
	wantNames(t, "by rules", plan, "shop.listPurchases 1.0.0", "shop.createPurchase 1.0.0", "shop.getPurchase 1.0.0", "shop.purge 1.0.1", "shop.getHealth 1.0.1")
	if len(plan.Gone) != 3 || !hasWarning(plan, "the operation of shop.v1_getOrder is shop.getPurchase now") {
		t.Errorf("gone %q, %q", plan.Gone, plan.Warnings)
	}
	s.put(t, plan)
	if plan = readText(t, shop, s.options(Choice{})); len(plan.Changed()) != 0 || plan.Tools[0].Name != "shop.listPurchases" {
		t.Errorf("again: %q", named(plan))
	}
	// Two operations that a rule gives one name are told apart as others are.
	plan = readText(t, shop, Options{Choice: Choice{Names: []string{"^v1_.*Orders?$=order"}}})
	if got := named(plan); got[0] != "shop.order 1.0.0" || !strings.HasPrefix(got[1], "shop.order_") || got[1] == got[2] {
		t.Errorf("%q", got)
	}
}

func fastAPI(more string) string {
	return `openapi: 3.1.0
info: {title: Fast, version: '1'}
servers: [{url: 'https://fast.example'}]
paths:
  /items/{item_id}:
    get: {operationId: read_item_items__item_id__get, parameters: [{name: item_id, in: path, required: true, schema: {type: string}}], responses: {'200': {description: ok}}}
  /:
    get: {operationId: root__get, responses: {'200': {description: ok}}}
  /v1/users:
    get: {operationId: list_v1_users_get, responses: {'200': {description: ok}}}
  /v2/users:
    get: {operationId: list_v2_users_get, responses: {'200': {description: ok}}}
` + more
}

// TestFastAPINames: a function's name stands for the whole id, where it is the only one and the tool is not published under the long name.
func TestFastAPINames(t *testing.T) {
	s := shelf{}
	plan := readText(t, fastAPI(""), s.options(Choice{}))
	wantNames(t, "new", plan, "fast.read_item 1.0.0", "fast.root 1.0.0", "fast.list_v1_users_get 1.0.0", "fast.list_v2_users_get 1.0.0")
	s.put(t, plan)
	// The published short name stays with its operation when another comes that would have it.
	more := fastAPI("  /old/items/{item_id}:\n    get: {operationId: read_item_old_items__item_id__get, parameters: [{name: item_id, in: path, required: true, schema: {type: string}}], responses: {'200': {description: ok}}}\n")
	plan = readText(t, more, s.options(Choice{}))
	if got := named(plan); got[0] != "fast.read_item 1.0.0" || got[4] != "fast.read_item_old_items__item_id__get 1.0.0" || plan.Gone != nil {
		t.Errorf("%q, gone %q", got, plan.Gone)
	}
	// An operation that has the short name as its own id keeps it.
	plan = readText(t, fastAPI("  /x:\n    get: {operationId: root, responses: {'200': {description: ok}}}\n"), Options{})
	if got := named(plan); got[1] != "fast.root__get 1.0.0" || got[4] != "fast.root 1.0.0" {
		t.Errorf("%q", got)
	}
	// What was published under the long name is called by it.
	old := shelf{}
	for name, tool := range s {
		long := map[string]string{"fast.read_item": "fast.read_item_items__item_id__get", "fast.root": "fast.root__get"}[name]
		if long == "" {
			old[name] = tool
			continue
		}
		parsed, err := catalog.ParseManifest([]byte(strings.Replace(string(tool.Raw), fmt.Sprintf("%q", name), fmt.Sprintf("%q", long), 1)))
		if err != nil {
			t.Fatal(err)
		}
		old[long] = parsed
	}
	plan = readText(t, fastAPI(""), old.options(Choice{}))
	wantNames(t, "published before", plan, "fast.read_item_items__item_id__get 1.0.0", "fast.root__get 1.0.0", "fast.list_v1_users_get 1.0.0", "fast.list_v2_users_get 1.0.0")
	if len(plan.Changed()) != 0 || plan.Gone != nil {
		t.Errorf("gone %q", plan.Gone)
	}
	for id, want := range map[string]string{"a_items__item_id__get": "a", "a_items_item_id_get": "", "items__item_id__get": "", "a_items__item_id__put": "", "_items__item_id__get": "", "": ""} {
		if got := fastAPIName(&operation{id: id, method: "GET", path: "/items/{item_id}"}); got != want {
			t.Errorf("%q became %q", id, got)
		}
	}
}
