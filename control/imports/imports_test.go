package imports_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/control/imports"
)

// fakeCatalog refuses manifests as they say: "bad" is invalid, "breaking" breaks, "taken"
// belongs to another, "unnamed" is refused without a name, "down" fails the store.
type fakeCatalog struct {
	sizes   []int // of each Publish
	sent    []string
	checked int    // manifests that came checked
	last    []byte // manifest
	options catalog.PublishOptions
	highest map[string]*toolkeep.Tool
	there   []string // ids that Describe knows
	said    []string // by SetAbout
	chosen  map[string]catalog.Choice
}

type manifest struct {
	ToolID  string `json:"tool_id"`
	Version string `json:"version"`
	Is      string `json:"is,omitempty"`
}

func (f *fakeCatalog) Publish(_ context.Context, _ *toolkeep.Principal, manifests [][]byte, o catalog.PublishOptions) ([]catalog.Published, error) {
	f.sizes, f.options = append(f.sizes, len(manifests)), o
	var out []catalog.Published
	var bad []catalog.ManifestFaults
	var breaking []catalog.Breaking
	for i, raw := range manifests {
		var m manifest
		if err := json.Unmarshal(raw, &m); err != nil {
			return nil, toolkeep.AsError(err)
		}
		switch m.Is {
		case "bad":
			bad = append(bad, catalog.ManifestFaults{Index: i, ToolID: m.ToolID, Errors: []toolkeep.Fault{{Pointer: "/version", Rule: "semver", Message: "is none"}}})
		case "breaking":
			breaking = append(breaking, catalog.Breaking{Index: i, ToolID: m.ToolID, From: "1.0.0", Version: m.Version})
		case "taken":
			return nil, toolkeep.NewError(toolkeep.DuplicateTool, "%s is taken", m.ToolID).With("tool_id", m.ToolID)
		case "unnamed":
			return nil, toolkeep.NewError(toolkeep.PermissionDenied, "one of them names a secret")
		case "down":
			return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the store is away")
		}
		f.last = raw
		out = append(out, catalog.Published{ToolID: m.ToolID, Version: m.Version, Created: true})
	}
	switch {
	case len(bad) > 0:
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "bad").With("manifests", bad)
	case len(breaking) > 0:
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "breaks").With("breaking", breaking)
	}
	for _, p := range out {
		f.sent = append(f.sent, p.ToolID+"@"+p.Version)
	}
	return out, nil
}

func (f *fakeCatalog) SetAbout(_ context.Context, p *toolkeep.Principal, namespace, text string, from catalog.AboutFrom, shared bool) error {
	f.said = append(f.said, fmt.Sprintf("%s %s %q %t %d", p.Tenant, namespace, text, shared, from))
	return nil
}

func (f *fakeCatalog) Choices(context.Context, *toolkeep.Principal, string, bool) (map[string]catalog.Choice, error) {
	return f.chosen, nil
}

func (f *fakeCatalog) SetChoice(_ context.Context, _ *toolkeep.Principal, _, title string, c catalog.Choice, _ bool) error {
	f.chosen = map[string]catalog.Choice{title: c}
	return nil
}

func (f *fakeCatalog) PublishChecked(ctx context.Context, p *toolkeep.Principal, checked []*catalog.Checked, o catalog.PublishOptions) ([]catalog.Published, error) {
	var manifests [][]byte
	for _, c := range checked {
		manifests = append(manifests, c.Raw())
	}
	f.checked += len(checked)
	return f.Publish(ctx, p, manifests, o)
}

func (f *fakeCatalog) Highest(_ *toolkeep.Principal, id string) *toolkeep.Tool { return f.highest[id] }

func (f *fakeCatalog) List(_ *toolkeep.Principal, o catalog.Filter, visible func(*toolkeep.Tool) bool) (list []catalog.Summary, total int) {
	for id, t := range f.highest {
		if namespace, _, _ := strings.Cut(id, "."); (o.Namespace == "" || namespace == o.Namespace) && visible(t) && (o.Capability == "" || slices.Contains(t.Manifest.Capabilities, o.Capability)) {
			list = append(list, catalog.Summary{ToolID: id})
		}
	}
	return list, len(list)
}

func (f *fakeCatalog) Find(_ *toolkeep.Principal, id, _ string, visible func(*toolkeep.Tool) bool) (toolkeep.Version, []toolkeep.Warning, error) {
	t := &toolkeep.Tool{ID: id}
	if slices.Contains(f.there, id) && visible(t) {
		return toolkeep.Version{Tool: t}, nil, nil
	}
	return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "there is no tool %s", id)
}

var publisher = &toolkeep.Principal{Tenant: "acme", Subject: "bob", Permissions: []string{toolkeep.PermPublish}}

func newImports(f *fakeCatalog) *imports.Imports {
	return imports.New(imports.Config{Catalog: f, Visible: func(_ *toolkeep.Principal, t *toolkeep.Tool) bool { return t.ID != "demo.hidden" },
		Transport: func(string) http.RoundTripper { return http.DefaultTransport }})
}

const petsDocument = `openapi: 3.0.3
info: {title: Pets, version: '1.0'}
servers: [{url: 'https://pets.example'}]
paths:
  /pets:
    get: {operationId: listPets, summary: List pets, responses: {'200': {description: ok}}}
  /shared:
    get: {operationId: other, summary: Other, parameters: [{$ref: 'other.yaml#/x'}], responses: {'200': {description: ok}}}
`

// TestOpenAPIFromBytes: a document that comes as bytes is read without a file system.
func TestOpenAPIFromBytes(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "there-is-none"))
	f := &fakeCatalog{highest: map[string]*toolkeep.Tool{}}
	m := newImports(f)
	plan, done, err := m.OpenAPI(t.Context(), publisher, imports.Request{Document: []byte(petsDocument)})
	if err != nil {
		t.Fatal(err)
	}
	if plan.Title != "Pets" || plan.Operations != 2 || len(plan.Tools) != 1 || plan.Tools[0].Name != "pets.listPets" || plan.Tools[0].Change != "new" || plan.Warnings == nil {
		t.Errorf("%+v", plan)
	}
	if len(plan.Refused) != 1 || plan.Refused[0].Operation != "GET /shared" || !strings.Contains(plan.Refused[0].Reason, "leads to another file") {
		t.Errorf("what names another file: %+v", plan.Refused)
	}
	if len(done) != 1 || !slices.Equal(f.sent, []string{"pets.listPets@1.0.0"}) {
		t.Errorf("published %+v, %v", done, f.sent)
	}
	if want := publisher.Tenant + ` pets "Pets" false 1`; !slices.Equal(f.said, []string{want}) || plan.About != "Pets" || plan.Namespace != "pets" {
		t.Errorf("it says of itself %q, want %q; %+v", f.said, want, plan)
	}
	if f.checked != 1 {
		t.Errorf("%d manifests came as the plan checked them, want 1: publishing checks the others once more", f.checked)
	}

	// What is unchanged is not published again.
	if f.highest["pets.listPets"], err = catalog.ParseManifest(f.last); err != nil {
		t.Fatal(err)
	}
	plan, done, err = m.OpenAPI(t.Context(), publisher, imports.Request{Document: []byte(petsDocument)})
	if err != nil || plan.Tools[0].Change != "unchanged" || done != nil || len(f.sizes) != 1 {
		t.Errorf("the same once more: %+v, %v", plan, err)
	}
	_, done, err = m.OpenAPI(t.Context(), publisher, imports.Request{Document: []byte(petsDocument), Namespace: "zoo", PublishOptions: catalog.PublishOptions{DryRun: true}})
	if err != nil || done != nil || !f.options.DryRun || len(f.said) != 2 {
		t.Errorf("a dry run: %+v, %v", done, err)
	}
}

// TestChoiceIsKept keeps what an import chose, not in a dry run, and takes it the next time though no tool is active.
func TestChoiceIsKept(t *testing.T) {
	f := &fakeCatalog{}
	run := func(r imports.Request) *imports.Plan {
		t.Helper()
		r.Document = []byte(strings.Replace(petsDocument, "paths:\n", "paths:\n  /admin: {get: {operationId: purge, responses: {'200': {description: ok}}}}\n", 1))
		plan, _, err := newImports(f).OpenAPI(t.Context(), publisher, r)
		if err != nil {
			t.Fatal(err)
		}
		return plan
	}
	r := imports.Request{Choice: catalog.Choice{Exclude: []string{"path:/admin"}}, PublishOptions: catalog.PublishOptions{DryRun: true}}
	if run(r); f.chosen != nil {
		t.Errorf("a dry run keeps %v", f.chosen)
	}
	r.DryRun = false
	if plan := run(r); plan.Excluded != 1 || len(f.chosen["Pets"].Exclude) != 1 {
		t.Errorf("%+v, %v", plan, f.chosen)
	}
	if plan := run(imports.Request{}); plan.Excluded != 1 || slices.Contains(f.sent, "pets.purge@1.0.0") {
		t.Errorf("%+v, %q", plan, f.sent)
	}
}

func TestOpenAPIFromURL(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, petsDocument) }))
	defer web.Close()
	f := &fakeCatalog{}
	plan, _, err := newImports(f).OpenAPI(t.Context(), publisher, imports.Request{Location: web.URL + "/openapi.yaml"})
	if err != nil || len(plan.Tools) != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}
	for _, r := range []imports.Request{{Location: "/etc/passwd"}, {Location: "file:///etc/passwd"}, {}} {
		if _, _, err := newImports(f).OpenAPI(t.Context(), publisher, r); err == nil || !toolkeep.IsCode(err, toolkeep.ImportFailed) {
			t.Errorf("%q: %v", r.Location, err)
		}
	}
}

func TestOpenAPINeedsPermissions(t *testing.T) {
	for _, c := range []struct {
		p *toolkeep.Principal
		o catalog.PublishOptions
	}{
		{&toolkeep.Principal{Tenant: "acme"}, catalog.PublishOptions{}},
		{publisher, catalog.PublishOptions{Force: true}},
		{publisher, catalog.PublishOptions{Shared: true}},
	} {
		_, _, err := newImports(&fakeCatalog{}).OpenAPI(t.Context(), c.p, imports.Request{Document: []byte("not read"), PublishOptions: c.o})
		if e := toolkeep.AsError(err); err == nil || e.Code != toolkeep.PermissionDenied || e.Details["permission"] == "" {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

func entry(id, version, is string) imports.Entry {
	return imports.Entry{Manifest: fmt.Appendf(nil, `{"tool_id":%q,"version":%q,"is":%q}`, id, version, is)}
}

// outcomes is what became of each entry.
func outcomes(b *imports.Batch) (list []string) {
	for _, e := range b.Entries {
		s := e.ToolID + " published"
		if e.Published == nil {
			s = e.ToolID + " " + string(e.Error.Code)
		}
		list = append(list, s)
	}
	return list
}

func TestPublishPartly(t *testing.T) {
	f := &fakeCatalog{}
	var told []int
	b := &imports.Batch{Partial: true, Progress: func(done int) { told = append(told, done) }, Entries: []imports.Entry{
		entry("demo.a", "1.0.0", ""), entry("demo.bad", "1.0.0", "bad"), entry("demo.taken", "1.0.0", "taken"), entry("demo.unnamed", "1.0.0", "unnamed"),
		entry("demo.two", "1.0.0", ""), entry("demo.two", "2.0.0", "bad"), entry("demo.breaks", "1.1.0", "breaking"),
		{Error: toolkeep.NewError(toolkeep.MalformedRequest, "sent twice")}, entry("demo.b", "1.0.0", ""),
	}}
	if err := newImports(f).Publish(t.Context(), publisher, b); err != nil {
		t.Fatal(err)
	}
	want := []string{"demo.a published", "demo.bad E3008", "demo.taken E3007", "demo.unnamed E3201", "demo.two E3008", "demo.two E3008", "demo.breaks E3008", " E3312", "demo.b published"}
	if got := outcomes(b); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if m := b.Entries[1].Error.Message; !strings.Contains(m, "/version: is none") {
		t.Error(m)
	}
	if !slices.Equal(told, []int{1, 9}) {
		t.Errorf("told of %v", told)
	}
}

// The outcomes of a partial batch tell no more faults than one refusal does.
func TestPublishPartlyBoundsItsFaults(t *testing.T) {
	b := &imports.Batch{Partial: true}
	for i := range 2000 {
		b.Entries = append(b.Entries, entry(fmt.Sprintf("demo.t%d", i), "1.0.0", "bad"))
	}
	if err := newImports(&fakeCatalog{}).Publish(t.Context(), publisher, b); err != nil {
		t.Fatal(err)
	}
	told := 0
	for i, e := range b.Entries {
		faults, _ := e.Error.Details["errors"].([]toolkeep.Fault)
		told += len(faults)
		if has := strings.Contains(e.Error.Message, "/version"); has != (i < toolkeep.MaxFaults) {
			t.Errorf("entry %d: %q", i, e.Error.Message)
		}
	}
	if told != toolkeep.MaxFaults {
		t.Errorf("%d faults were told", told)
	}
}

func TestPublishPartlyWithoutStore(t *testing.T) {
	f := &fakeCatalog{}
	b := &imports.Batch{Partial: true, Entries: []imports.Entry{entry("demo.x", "1.0.0", "down")}}
	for i := range 300 {
		b.Entries = append(b.Entries, entry(fmt.Sprintf("demo.t%d", i), "1.0.0", ""))
	}
	if err := newImports(f).Publish(t.Context(), publisher, b); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.sizes, []int{200, 101}) || b.Entries[0].Error.Code != toolkeep.RecordUnavailable || b.Entries[300].Published == nil {
		t.Errorf("a store that is away was asked %v times", f.sizes)
	}
}

func TestPublishWhole(t *testing.T) {
	f := &fakeCatalog{}
	b := &imports.Batch{Entries: []imports.Entry{entry("demo.a", "1.0.0", ""), entry("demo.bad", "1.0.0", "bad")}}
	if err := newImports(f).Publish(t.Context(), publisher, b); err == nil || !toolkeep.IsCode(err, toolkeep.InvalidManifest) || b.Entries[0].Published != nil {
		t.Errorf("%v, %+v", err, b.Entries)
	}
}

func TestUnknownRelations(t *testing.T) {
	f := &fakeCatalog{there: []string{"demo.there", "demo.hidden"}}
	b := &imports.Batch{Entries: []imports.Entry{{Manifest: []byte(`{"tool_id":"demo.new","version":"1.0.0","relationships":{
		"dependencies":["demo.there@1","demo.hidden"],"pairings":[{"tool_id":"no.such"}],"alternatives":["demo.beside"]}}`)}, entry("demo.beside", "1.0.0", "")}}
	if err := newImports(f).Publish(t.Context(), publisher, b); err != nil {
		t.Fatal(err)
	}
	var names []any
	for _, w := range b.Entries[0].Warnings {
		names = append(names, w.Details["tool"])
	}
	if !slices.Equal(names, []any{"demo.hidden", "no.such"}) || b.Entries[1].Warnings == nil {
		t.Errorf("warned of %v", names)
	}
}

// TestUnknownFallback: a fallback that does not exist for the publisher is told, as a tool and as a capability.
func TestUnknownFallback(t *testing.T) {
	f := &fakeCatalog{there: []string{"demo.there", "demo.hidden"}, highest: map[string]*toolkeep.Tool{
		"demo.there": {ID: "demo.there", Manifest: &toolkeep.Manifest{Capabilities: []string{"weather"}}}}}
	beside := imports.Entry{Manifest: []byte(`{"tool_id":"demo.beside","version":"1.0.0","capabilities":["tides"]}`)}
	for fallback, code := range map[string]toolkeep.Code{
		"demo.there": "", "demo.there@^1": "", "demo.beside": "", "demo.hidden": toolkeep.ToolNotFound, "no.such@^1": toolkeep.ToolNotFound,
		"capability:weather": "", "capability:tides": "", "capability:teleport": toolkeep.CapabilityNotFound,
	} {
		b := &imports.Batch{Entries: []imports.Entry{{Manifest: []byte(`{"tool_id":"demo.new","version":"1.0.0","fallback":"` + fallback + `"}`)}, beside}}
		if err := newImports(f).Publish(t.Context(), publisher, b); err != nil {
			t.Fatal(err)
		}
		if w := b.Entries[0].Warnings; code == "" && len(w) != 0 || code != "" && (len(w) != 1 || w[0].Code != code || !strings.HasPrefix(w[0].Message, "fallback names ")) {
			t.Errorf("%s: %+v, want %q", fallback, w, code)
		}
	}
}
