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

// shelf is what was published, and the choices that are kept.
type shelf struct {
	tools   map[string]*toolkeep.Tool
	choices map[string]Choice
	gone    []string // tools that no list shows: deprecated or blocked
}

func newShelf() *shelf {
	return &shelf{tools: map[string]*toolkeep.Tool{}, choices: map[string]Choice{}}
}

func (s *shelf) options(c Choice) Options {
	return Options{Choice: c, Previous: func(id string) *toolkeep.Tool { return s.tools[id] }, Published: func(namespace string) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(s.tools)), func(id string) bool { return !strings.HasPrefix(id, namespace+".") || slices.Contains(s.gone, id) })
	}, Choices: func(string) (map[string]Choice, error) { return s.choices, nil }}
}

// put publishes a plan.
func (s *shelf) put(t *testing.T, plan *Plan) {
	t.Helper()
	if plan.Choice != nil {
		s.choices[plan.Title] = *plan.Choice
	}
	for _, tool := range plan.Tools {
		if tool.Change != source.ChangeUnchanged {
			parsed, err := catalog.ParseManifest(tool.Manifest)
			if err != nil {
				t.Fatal(err)
			}
			s.tools[tool.Name] = parsed
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
		{Choice{Include: []string{"id:" + strings.Repeat("x", catalog.MaxPattern)}}, "is not a pattern"},
		{Choice{Include: slices.Repeat([]string{"path:*"}, catalog.MaxPatterns+1)}, "more than 100 patterns"},
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

// TestChoiceIsRemembered: an import without a choice makes that of the last one, whatever became of the tools, and no tool
// gets a version by it.
func TestChoiceIsRemembered(t *testing.T) {
	s := newShelf()
	s.put(t, readText(t, shop, s.options(Choice{})))
	if len(s.tools) != 5 || len(s.choices) != 0 {
		t.Fatalf("%d tools, %v", len(s.tools), s.choices)
	}
	all := []string{"shop.v1_listOrders 1.0.0", "shop.v1_createOrder 1.0.0", "shop.v1_getOrder 1.0.0", "shop.getHealth 1.0.0"}
	admin := Choice{Exclude: []string{"tag:admin"}}
	plan := readText(t, shop, s.options(admin))
	wantNames(t, "excluded", plan, all...)
	if !slices.Equal(plan.Left, []string{"shop.purge"}) || plan.Gone != nil || !hasWarning(plan, "shop.purge is excluded, and the tool stays published") || len(plan.Changed()) != 0 {
		t.Errorf("left %q, gone %q, %q", plan.Left, plan.Gone, plan.Warnings)
	}
	s.put(t, plan)
	for _, gone := range [][]string{nil, {"shop.v1_listOrders"}, slices.Collect(maps.Keys(s.tools))} {
		s.gone = gone
		plan = readText(t, shop, s.options(Choice{}))
		wantNames(t, "again", plan, all...)
		if plan.Excluded != 1 || !hasWarning(plan, "the choice of the last import counts: --exclude 'tag:admin'") || len(plan.Changed()) != 0 || plan.Choice != nil {
			t.Errorf("%d excluded, %q", plan.Excluded, plan.Warnings)
		}
	}
	s.gone = nil
	if plan = readText(t, shop, s.options(admin)); plan.Choice != nil || hasWarning(plan, "the choice of") {
		t.Errorf("the same again is kept again: %v, %q", plan.Choice, plan.Warnings)
	}
	// One list changes, and the others count.
	plan = readText(t, shop, s.options(Choice{Include: []string{"method:POST"}}))
	wantNames(t, "beside the list that was kept", plan, "shop.v1_createOrder 1.0.0")
	if !hasWarning(plan, "the choice of the last import counts: --exclude 'tag:admin'") {
		t.Errorf("%q", plan.Warnings)
	}
	s.put(t, plan)
	plan = readText(t, shop, s.options(Choice{Exclude: []string{""}}))
	wantNames(t, "one list dropped", plan, "shop.v1_createOrder 1.0.0", "shop.purge 1.0.0")
	s.put(t, plan)
	// What fits nothing any more is told with the flags that mend it.
	for text, c := range map[string]Choice{"--include 'id:a*'": {Include: []string{"id:a*", "tag:x"}}, "--exclude ''": {Exclude: []string{"tag:x"}}, "--name-rule 'a=b'": {Names: []string{"a=b", "xyz=z"}}} {
		s.choices["Shop"] = c
		o := s.options(Choice{})
		o.Location, o.Document = "api.yaml", []byte(strings.NewReplacer("purge", "apurge").Replace(shop))
		if _, err := Read(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the last import chose it") || !strings.HasSuffix(err.Error(), "counts still: "+text) {
			t.Error(err)
		}
	}
	// Everything again.
	s.put(t, readText(t, shop, s.options(Choice{Include: []string{""}, Exclude: []string{""}, Names: []string{""}})))
	if plan = readText(t, shop, s.options(Choice{})); len(plan.Tools) != 5 || plan.Excluded != 0 || len(plan.Left) != 0 || hasWarning(plan, "choice") {
		t.Errorf("%q, left %q, %q", named(plan), plan.Left, plan.Warnings)
	}
}

// TestChoiceOfAnotherDocument: where a choice is kept for another document of the namespace, which may be this one under another
// title, an import says what it takes.
func TestChoiceOfAnotherDocument(t *testing.T) {
	s := newShelf()
	s.put(t, readText(t, shop, s.options(Choice{Exclude: []string{"tag:admin"}})))
	other := strings.Replace(shop, "title: Shop", "title: Shop two", 1)
	o := s.options(Choice{})
	o.Namespace, o.Location, o.Document = "shop", "api.yaml", []byte(other)
	if _, err := Read(t.Context(), o); !toolkeep.IsCode(err, toolkeep.ImportFailed) || !strings.Contains(err.Error(), `keeps a choice of the document "Shop" and none of this one, "Shop two"`) {
		t.Error(err)
	}
	o = s.options(Choice{Include: []string{"path:*"}})
	o.Namespace = "shop"
	plan := readText(t, other, o)
	if s.put(t, plan); len(plan.Tools) != 5 || len(s.choices) != 2 {
		t.Errorf("%q, %v", named(plan), s.choices)
	}
	if plan = readText(t, shop, s.options(Choice{})); plan.Excluded != 1 {
		t.Errorf("%d excluded", plan.Excluded)
	}
	failing := s.options(Choice{Include: []string{"path:*"}})
	failing.Location, failing.Document = "api.yaml", []byte(shop)
	failing.Choices = func(string) (map[string]Choice, error) {
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "away")
	}
	if _, err := Read(t.Context(), failing); !toolkeep.IsCode(err, toolkeep.RecordUnavailable) {
		t.Error(err)
	}
}

// TestRulesAndExcluded: a rule that leaves no name for an operation that is left out is no fault, and an excluded operation is
// told as excluded under its old name too.
func TestRulesAndExcluded(t *testing.T) {
	s := newShelf()
	s.put(t, readText(t, shop, s.options(Choice{})))
	plan := readText(t, shop, s.options(Choice{Exclude: []string{"tag:admin", "id:v1_getOrder"}, Names: []string{"^purge$=", "^v1_=x_"}}))
	if want := []string{"shop.purge", "shop.v1_getOrder"}; !slices.Equal(plan.Left, want) || len(plan.Gone) != 2 {
		t.Errorf("left %q, gone %q: %q", plan.Left, plan.Gone, plan.Warnings)
	}
}

func hasWarning(plan *Plan, part string) bool {
	return slices.ContainsFunc(plan.Warnings, func(w string) bool { return strings.Contains(w, part) })
}

// TestNameRules: rules make the names, are remembered, and the old names are told.
func TestNameRules(t *testing.T) {
	s := newShelf()
	s.put(t, readText(t, shop, s.options(Choice{})))
	plan := readText(t, shop, s.options(Choice{Names: []string{"^v1_(.*)=$1", "Order=Purchase"}}))
	wantNames(t, "by rules", plan, "shop.listPurchases 1.0.0", "shop.createPurchase 1.0.0", "shop.getPurchase 1.0.0", "shop.purge 1.0.0", "shop.getHealth 1.0.0")
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
	s := newShelf()
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
	old := newShelf()
	for name, tool := range s.tools {
		long := map[string]string{"fast.read_item": "fast.read_item_items__item_id__get", "fast.root": "fast.root__get"}[name]
		if long == "" {
			old.tools[name] = tool
			continue
		}
		parsed, err := catalog.ParseManifest([]byte(strings.Replace(string(tool.Raw), fmt.Sprintf("%q", name), fmt.Sprintf("%q", long), 1)))
		if err != nil {
			t.Fatal(err)
		}
		old.tools[long] = parsed
	}
	plan = readText(t, fastAPI(""), old.options(Choice{}))
	wantNames(t, "published before", plan, "fast.read_item_items__item_id__get 1.0.0", "fast.root__get 1.0.0", "fast.list_v1_users_get 1.0.0", "fast.list_v2_users_get 1.0.0")
	if len(plan.Changed()) != 0 || plan.Gone != nil {
		t.Errorf("gone %q", plan.Gone)
	}
	// The short name of a tool from elsewhere is left to it.
	foreign := newShelf()
	parsed, err := catalog.ParseManifest([]byte(strings.Replace(string(s.tools["fast.root"].Raw), `"title":"Fast"`, `"title":"Other"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	parsed.Manifest.Execution.Binding = []byte(strings.Replace(string(parsed.Manifest.Execution.Binding), `"path":"/"`, `"path":"/other"`, 1))
	foreign.tools["fast.root"] = parsed
	if got := named(readText(t, fastAPI(""), foreign.options(Choice{}))); got[1] != "fast.root__get 1.0.0" {
		t.Errorf("%q", got)
	}
	for id, want := range map[string]string{"a_items__item_id__get": "a", "a_items_item_id_get": "", "items__item_id__get": "", "a_items__item_id__put": "", "_items__item_id__get": "", "": ""} {
		if got := fastAPIName(&operation{id: id, method: "GET", path: "/items/{item_id}"}); got != want {
			t.Errorf("%q became %q", id, got)
		}
	}
}
