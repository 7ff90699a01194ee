package rest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/control/imports"
	"github.com/toolkeep/toolkeep/discover"
)

func TestListTools(t *testing.T) {
	s := newSystem()
	s.catalog.resolve = func(*toolkeep.Principal, string, string) (toolkeep.Version, []toolkeep.Warning, error) {
		return toolkeep.Version{Tool: demoTool()}, nil, nil
	}
	s.catalog.list = func(f catalog.Filter) ([]catalog.Summary, int) {
		if !reflect.DeepEqual(f, catalog.Filter{Category: "utility", Tags: []string{"x", "y"}, Capability: "c", Namespace: "demo", IncludeDeprecated: true, Offset: 20, Limit: 10}) {
			t.Errorf("%+v", f)
		}
		return []catalog.Summary{{ToolID: "demo.hash", LatestVersion: "1.2.0", State: toolkeep.Active}}, 21
	}
	w := s.do(t, "GET", "/api/v1/tools?category=utility&tag=x&tag=y&capability=c&namespace=demo&include_deprecated=true&page=3&page_size=10", "")
	wantStatus(t, w, 200)
	m := decode(t, w)
	one := m["tools"].([]any)[0].(map[string]any)
	if one["tool_id"] != "demo.hash" || one["health"] != "degraded" || one["tags"] == nil || one["versions"] == nil || m["total_count"] != number("21") || m["page"] != number("3") || m["page_size"] != number("10") {
		t.Errorf("%v", m)
	}

	w = s.do(t, "GET", "/api/v1/tools/demo.hash/health", "")
	wantStatus(t, w, 200)
	if m := decode(t, w); m["tool_id"] != "demo.hash" || m["status"] != "degraded" || m["error_rate_percent"] == nil || m["metadata"] == nil {
		t.Errorf("%v", m)
	}

	s.catalog.list = func(f catalog.Filter) ([]catalog.Summary, int) {
		if f.Limit != 50 || f.Offset != 0 {
			t.Errorf("defaults: %+v", f)
		}
		return nil, 0
	}
	if w := s.do(t, "GET", "/api/v1/tools", ""); !strings.Contains(w.Body.String(), `"tools":[]`) {
		t.Errorf("%s", w.Body)
	}
}

// TestListByPurpose: capability_query limits the list to what search finds, best first.
func TestListByPurpose(t *testing.T) {
	s := newSystem()
	s.catalog.resolve = func(*toolkeep.Principal, string, string) (toolkeep.Version, []toolkeep.Warning, error) {
		return toolkeep.Version{Tool: demoTool()}, nil, nil
	}
	s.Search = fakeSearch(func(q string, n int, _ func(*toolkeep.Tool) bool) []discover.Match {
		if q != "hash a text" || n != discover.MaxResults {
			t.Errorf("%q %d", q, n)
		}
		return []discover.Match{{Tool: demoTool()}, {Tool: &toolkeep.Tool{ID: "demo.other", Manifest: &toolkeep.Manifest{}}}}
	})
	s.catalog.list = func(f catalog.Filter) ([]catalog.Summary, int) {
		if !reflect.DeepEqual(f.Among, []string{"demo.hash", "demo.other"}) || f.Limit != 1 {
			t.Errorf("%+v", f)
		}
		return []catalog.Summary{{ToolID: "demo.hash", LatestVersion: "1.2.0", State: toolkeep.Active}}, 2
	}
	w := s.do(t, "GET", "/api/v1/tools?capability_query=hash+a+text&page_size=1", "")
	wantStatus(t, w, 200)
	if decode(t, w)["total_count"] != number("2") {
		t.Errorf("%s", w.Body)
	}
	problem(t, s.do(t, "GET", "/api/v1/tools?capability_query=a%07b", ""), toolkeep.InvalidEncoding)
}

func TestPagesOutOfBounds(t *testing.T) {
	s := newSystem()
	for q, code := range map[string]toolkeep.Code{
		"page_size=201": toolkeep.InvalidParameters, "page_size=0": toolkeep.InvalidParameters, "page=-1": toolkeep.InvalidParameters,
		"page=x": toolkeep.InvalidParameters, "pagesize=5": toolkeep.MalformedRequest, "page=9999999": toolkeep.InvalidParameters,
	} {
		w := s.do(t, "GET", "/api/v1/tools?"+q, "")
		wantStatus(t, w, 400)
		problem(t, w, code)
	}
}

func TestGetTool(t *testing.T) {
	s := newSystem()
	s.catalog.resolve = func(_ *toolkeep.Principal, tool, rng string) (toolkeep.Version, []toolkeep.Warning, error) {
		if tool != "demo.hash" || rng != "^1" {
			return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolNotFound, "no")
		}
		return toolkeep.Version{Tool: demoTool(), Life: toolkeep.Lifecycle{State: toolkeep.Deprecated, PublishedAt: at}},
			[]toolkeep.Warning{{Code: toolkeep.ToolDeprecated, Message: "old", Details: map[string]any{"deprecated_at": "2026-01-01T00:00:00Z"}}}, nil
	}
	w := s.do(t, "GET", "/api/v1/tools/demo.hash?version=%5E1", "")
	wantStatus(t, w, 200)
	m := decode(t, w)
	if m["version"] != "1.2.0" || m["manifest"].(map[string]any)["tool_id"] != "demo.hash" || m["lifecycle"].(map[string]any)["state"] != "deprecated" ||
		w.Header().Get("Deprecation") != "@1767225600" || w.Header().Get("Sunset") != "" {
		t.Errorf("%v %v", m, w.Header())
	}
	problem(t, s.do(t, "GET", "/api/v1/tools/other.tool", ""), toolkeep.ToolNotFound)
	w = s.do(t, "GET", "/api/v1/tools/retrieval/manifest/demo.hash?version=%5E1", "")
	wantStatus(t, w, 200)
	if d := decode(t, w)["data"].(map[string]any); d["toolId"] != "demo.hash" || len(d["examples"].([]any)) != 1 {
		t.Errorf("%v", d)
	}
}

func TestVersionsAndDiff(t *testing.T) {
	s := newSystem()
	v1, v2 := demoTool(), demoTool()
	v1.Version, v2.Version = "1.0.0", "2.0.0"
	s.catalog.versions = func(id string) ([]toolkeep.Version, error) {
		if id != "demo.hash" {
			return nil, toolkeep.NewError(toolkeep.ToolNotFound, "no")
		}
		return []toolkeep.Version{{Tool: v2, Life: toolkeep.Lifecycle{State: toolkeep.Active}}, {Tool: v1, Life: toolkeep.Lifecycle{State: toolkeep.Removed}}}, nil
	}
	s.catalog.resolve = func(_ *toolkeep.Principal, _, rng string) (toolkeep.Version, []toolkeep.Warning, error) {
		if rng == "latest" {
			return toolkeep.Version{Tool: v2}, nil, nil
		}
		return toolkeep.Version{}, nil, toolkeep.NewError(toolkeep.ToolVersionNotFound, "no %s", rng)
	}
	w := s.do(t, "GET", "/api/v1/tools/demo.hash/versions", "")
	wantStatus(t, w, 200)
	if l := decode(t, w)["versions"].([]any); len(l) != 2 || l[0].(map[string]any)["version"] != "2.0.0" {
		t.Errorf("%v", l)
	}
	problem(t, s.do(t, "GET", "/api/v1/tools/no.such/versions", ""), toolkeep.ToolNotFound)

	// The removed version is named exactly, the other by a range.
	w = s.do(t, "GET", "/api/v1/tools/demo.hash/diff?from=1.0.0&to=latest", "")
	wantStatus(t, w, 200)
	if m := decode(t, w); m["from"] != "1.0.0" || m["to"] != "2.0.0" || m["bump"] == "" {
		t.Errorf("%v", m)
	}
	problem(t, s.do(t, "GET", "/api/v1/tools/demo.hash/diff?from=1.0.0&to=9.9.9", ""), toolkeep.ToolVersionNotFound)
	problem(t, s.do(t, "GET", "/api/v1/tools/demo.hash/diff?from=1.0.0", ""), toolkeep.MissingParameter)
}

func TestRegister(t *testing.T) {
	s := newSystem()
	var sent [][]byte
	var options catalog.PublishOptions
	created := true
	s.catalog.publish = func(p *toolkeep.Principal, m [][]byte, o catalog.PublishOptions) ([]catalog.Published, error) {
		sent, options = m, o
		out := []catalog.Published{}
		for range m {
			out = append(out, catalog.Published{ToolID: "demo.hash", Version: "1.0.0", Digest: "sha256:00", Bump: "new", Created: created})
		}
		return out, nil
	}
	var again []string
	s.SearchAdmin = &fakeSearchAdmin{reindex: func(ids []string, embeddings bool) (int, error) {
		again = append(again, fmt.Sprint(ids, embeddings))
		return len(ids), nil
	}}
	w := s.do(t, "POST", "/api/v1/tools/register", `{"manifest":{"tool_id":"demo.hash","big":9007199254740993},"force":true,"shared":true,"forceReindex":true}`)
	wantStatus(t, w, 201)
	if fmt.Sprint(again) != "[[demo.hash] true]" {
		t.Errorf("indexed anew: %v", again)
	}
	if m := decode(t, w); m["created"] != true || m["indexed"] != true || w.Header().Get("Location") != "/api/v1/tools/demo.hash?version=1.0.0" {
		t.Errorf("%v %v", m, w.Header())
	}
	if string(sent[0]) != `{"tool_id":"demo.hash","big":9007199254740993}` || options != (catalog.PublishOptions{Force: true, Shared: true}) {
		t.Errorf("%s %+v", sent[0], options)
	}

	w = s.do(t, "PUT", "/api/v1/tools/demo.hash", `{"manifest":{"tool_id":"demo.hash","n":1e300},"useCases":["u"],"examples":[{"scenario":"s","input":{"x":9007199254740993}}],"dry_run":true}`)
	wantStatus(t, w, 200)
	if string(sent[0]) != `{"examples":[{"scenario":"s","input":{"x":9007199254740993}}],"n":1e300,"tool_id":"demo.hash","use_cases":["u"]}` || !options.DryRun {
		t.Errorf("%s %+v", sent[0], options)
	}
	if decode(t, w)["indexed"] != false {
		t.Error("a dry run indexes nothing")
	}

	created = false
	wantStatus(t, s.do(t, "POST", "/api/v1/tools/register", `{"manifest":{"tool_id":"demo.hash"}}`), 200)

	w = s.do(t, "POST", "/api/v1/tools/batch-register", `{"tools":[{"manifest":{"a":1}},{"manifest":{"b":1},"useCases":["x"]}]}`)
	wantStatus(t, w, 200)
	if len(sent) != 2 || string(sent[1]) != `{"b":1,"use_cases":["x"]}` || len(decode(t, w)["published"].([]any)) != 2 {
		t.Errorf("%s", sent)
	}
}

func TestRegisterRefusals(t *testing.T) {
	s := newSystem()
	s.catalog.publish = func(*toolkeep.Principal, [][]byte, catalog.PublishOptions) ([]catalog.Published, error) {
		return nil, toolkeep.FaultsError(toolkeep.InvalidManifest, "2 faults", []toolkeep.Fault{{Pointer: "/version"}, {Pointer: "/tool_id"}})
	}
	deep := strings.Repeat(`{"a":`, 60) + "1" + strings.Repeat("}", 60)
	for name, x := range map[string]struct {
		method, path, body string
		code               toolkeep.Code
	}{
		"bad manifest":         {"POST", "/api/v1/tools/register", `{"manifest":{}}`, toolkeep.InvalidManifest},
		"no manifest":          {"POST", "/api/v1/tools/register", `{}`, toolkeep.MissingParameter},
		"no body":              {"POST", "/api/v1/tools/register", ``, toolkeep.MalformedRequest},
		"manifest is a list":   {"POST", "/api/v1/tools/register", `{"manifest":[]}`, toolkeep.InvalidParameters},
		"unknown field":        {"POST", "/api/v1/tools/register", `{"manifest":{},"forced":true}`, toolkeep.MalformedRequest},
		"not json":             {"POST", "/api/v1/tools/register", `{"manifest":`, toolkeep.MalformedRequest},
		"duplicate key":        {"POST", "/api/v1/tools/register", `{"manifest":{"a":1,"a":2}}`, toolkeep.InvalidEncoding},
		"too deep":             {"POST", "/api/v1/tools/register", `{"manifest":` + deep + `}`, toolkeep.InvalidEncoding},
		"too large":            {"POST", "/api/v1/tools/register", `{"manifest":{"a":"` + strings.Repeat("x", 1<<20) + `"}}`, toolkeep.RequestTooLarge},
		"another tool":         {"PUT", "/api/v1/tools/demo.hash", `{"manifest":{"tool_id":"demo.other"}}`, toolkeep.MalformedRequest},
		"examples twice":       {"POST", "/api/v1/tools/register", `{"manifest":{"examples":[]},"examples":[{"scenario":"s"}]}`, toolkeep.MalformedRequest},
		"huge number":          {"POST", "/api/v1/tools/retrieval/context", `{"budget":1e400}`, toolkeep.InvalidParameters},
		"whole, with fraction": {"POST", "/api/v1/tools/retrieval/context", `{"budget":600.0}`, toolkeep.InvalidParameters},
		"empty batch":          {"POST", "/api/v1/tools/batch-register", `{"tools":[]}`, toolkeep.InvalidParameters},
		"import of nothing":    {"POST", "/api/v1/tools/import", `{"type":"openapi"}`, toolkeep.MalformedRequest},
		"import of two":        {"POST", "/api/v1/tools/import", `{"type":"openapi","location":"http://x","document":"y"}`, toolkeep.MalformedRequest},
		"import of a file":     {"POST", "/api/v1/tools/import", `{"type":"openapi","location":"file:///etc/passwd"}`, toolkeep.InvalidParameters},
		"import of a path":     {"POST", "/api/v1/tools/import", `{"type":"openapi","location":"/etc/passwd"}`, toolkeep.InvalidParameters},
		"import with userinfo": {"POST", "/api/v1/tools/import", `{"type":"openapi","location":"http://u:p@x/"}`, toolkeep.InvalidParameters},
		"import of a kind":     {"POST", "/api/v1/tools/import", `{"type":"soap","location":"http://x"}`, toolkeep.InvalidParameters},
		"grpc of a document":   {"POST", "/api/v1/tools/import", `{"type":"grpc","location":"x:1","document":"y"}`, toolkeep.MalformedRequest},
		"grpc protoset":        {"POST", "/api/v1/tools/import", `{"type":"grpc","location":"x:1","protoset":"%"}`, toolkeep.InvalidParameters},
		"grpc with a secret":   {"POST", "/api/v1/tools/import", `{"type":"grpc","location":"x:1","secret":"hunter2"}`, toolkeep.InvalidParameters},
		"functions of no URL":  {"POST", "/api/v1/tools/import", `{"type":"functions","document":"[]"}`, toolkeep.MalformedRequest},
	} {
		t.Run(name, func(t *testing.T) {
			w := s.do(t, x.method, x.path, x.body)
			p := problem(t, w, x.code)
			if strings.Contains(w.Body.String(), "goroutine") || p.Detail == "" {
				t.Errorf("%+v", p)
			}
		})
	}
	p := problem(t, s.do(t, "POST", "/api/v1/tools/register", `{"manifest":{}}`), toolkeep.InvalidManifest)
	if len(p.Details["errors"].([]any)) != 2 {
		t.Errorf("%v", p.Details)
	}
	// What was sent is not shown again: it may hold a secret.
	w := s.do(t, "POST", "/api/v1/keys", `{"subject":12345678987654321,"roles":["agent"]}`)
	if problem(t, w, toolkeep.InvalidParameters); strings.Contains(w.Body.String(), "12345678987654321") {
		t.Errorf("%s", w.Body)
	}
}

func TestBulkRoutesTakeMore(t *testing.T) {
	s := newSystem()
	n := 0
	s.catalog.publish = func(_ *toolkeep.Principal, m [][]byte, _ catalog.PublishOptions) ([]catalog.Published, error) {
		n = len(m)
		return make([]catalog.Published, len(m)), nil
	}
	one := `{"manifest":{"a":1,"b":{"c":2},"d":"` + strings.Repeat("x", 1000) + `"}}`
	wantStatus(t, s.do(t, "POST", "/api/v1/tools/batch-register", `{"tools":[`+strings.Repeat(one+",", 1999)+one+`]}`), 200)
	if n != 2000 {
		t.Errorf("%d manifests", n)
	}
}

// Each permission is asked for before anything else happens.
func TestPermissions(t *testing.T) {
	s := newSystem() // its fakes panic if they are reached
	for _, x := range [][3]string{
		{"POST", "/api/v1/tools/register", `{"manifest":{}}`}, {"PUT", "/api/v1/tools/a.b", `{"manifest":{}}`},
		{"POST", "/api/v1/tools/batch-register", `{"tools":[{"manifest":{}}]}`}, {"POST", "/api/v1/tools/import", `{"type":"openapi","location":"http://x"}`},
		{"DELETE", "/api/v1/tools/a.b", ""}, {"POST", "/api/v1/tools/a.b/versions/1.0.0/state", `{"state":"blocked"}`},
		{"GET", "/api/v1/keys", ""}, {"POST", "/api/v1/keys", `{"subject":"s","roles":["admin"]}`}, {"DELETE", "/api/v1/keys/k", ""}, {"PATCH", "/api/v1/keys/k", `{"scope":["a.*"]}`}, {"GET", "/api/v1/roles", ""},
		{"POST", "/cache/invalidate/a.b", ""}, {"DELETE", "/api/v1/tools/admin/cache/invalidate", `{"scope":"all"}`},
		{"POST", "/api/v1/tools/admin/reindex", `{"scope":"all"}`}, {"GET", "/api/v1/admin/nodes", ""}, {"GET", "/api/v1/policies", ""},
		{"GET", "/api/v1/breakers", ""}, {"GET", "/api/v1/breakers/tool:a", ""}, {"POST", "/api/v1/breakers/tool:a", `{"action":"open"}`},
		{"GET", "/api/v1/policies/who?tool_id=a.b", ""}, {"GET", "/api/v1/policies/what?subject=s", ""}, {"POST", "/api/v1/policies/replay", `{"files":{}}`},
		{"GET", "/api/v1/invocations?agent_id=someone", ""},
	} {
		w := s.do(t, x[0], x[1], x[2], "Authorization: Bearer agent")
		wantStatus(t, w, 403)
		if p := problem(t, w, toolkeep.PermissionDenied); p.Details["reason"] != "RBAC_DENIED" || p.Details["permission"] == "" {
			t.Errorf("%v", p.Details)
		}
	}
}

func TestImport(t *testing.T) {
	s := newSystem()
	var got imports.Request
	s.Imports = fakeImports(func(r imports.Request) (*imports.Plan, []catalog.Published, error) {
		got = r
		return &imports.Plan{Title: "Pets", Operations: 2, Tools: []imports.PlannedTool{{Name: "pets.list", Method: "GET", Path: "/pets", Version: "1.0.0", Change: "new"}},
			Refused: []imports.RefusedTool{{Operation: "GET /x", Reason: "why"}}, Warnings: []string{}}, []catalog.Published{{ToolID: "pets.list", Created: true}}, nil
	})
	w := s.do(t, "POST", "/api/v1/tools/import", `{"type":"openapi","document":"openapi: 3.1.0","namespace":"pets","server":"https://x","auth":{"key":"env://K"},"dry_run":true}`)
	wantStatus(t, w, 200)
	if string(got.Document) != "openapi: 3.1.0" || got.Namespace != "pets" || got.Server != "https://x" || got.Auth["key"] != "env://K" || !got.DryRun {
		t.Errorf("%+v", got)
	}
	m := decode(t, w)
	if m["operations"] != number("2") || len(m["tools"].([]any)) != 1 || len(m["refused"].([]any)) != 1 || len(m["published"].([]any)) != 1 || m["warnings"] == nil {
		t.Errorf("%v", m)
	}
	for body, want := range map[string]imports.Request{
		`{"type":"grpc","location":"x:1","protoset":"AAE=","namespace":"n","plaintext":true,"services":["a.*"],"methods":["Get*"],"deadline_ms":5,"secret":"env://K","secret_as":"basic","dry_run":true}`: {Location: "x:1",
			Document: []byte{0, 1}, Namespace: "n", Name: "true [a.*] [Get*] 5ms &{basic env://K", PublishOptions: catalog.PublishOptions{DryRun: true}},
		`{"type":"functions","document":"[]","server":"https://x/","form":"openai","http_method":"PUT","side_effects":"reads"}`: {Server: "https://x/", Document: []byte("[]"), Name: "openai PUT reads <nil>"},
	} {
		wantStatus(t, s.do(t, "POST", "/api/v1/tools/import", body), 200)
		if !strings.HasPrefix(got.Name, want.Name) {
			t.Errorf("%q, want %q", got.Name, want.Name)
		}
		if got.Name = want.Name; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	s.Imports = fakeImports(func(imports.Request) (*imports.Plan, []catalog.Published, error) {
		return nil, nil, toolkeep.NewError(toolkeep.ImportFailed, "line 3")
	})
	problem(t, s.do(t, "POST", "/api/v1/tools/import", `{"type":"openapi","location":"https://x/openapi.json"}`), toolkeep.ImportFailed)
}

func TestLifecycle(t *testing.T) {
	s := newSystem()
	var got catalog.StateChange
	var of string
	s.catalog.setState = func(id, version string, ch catalog.StateChange) (toolkeep.Lifecycle, error) {
		of, got = id+"@"+version, ch
		if id == "no.such" {
			return toolkeep.Lifecycle{}, toolkeep.NewError(toolkeep.ToolNotFound, "no")
		}
		return toolkeep.Lifecycle{State: ch.State, Reason: ch.Reason, PublishedAt: at, SunsetAt: ch.Date}, nil
	}
	w := s.do(t, "POST", "/api/v1/tools/demo.hash/versions/1.0.0/state", `{"state":"sunset","reason":"r","successor":"2.0.0","date":"2026-06-01T00:00:00Z","now":true}`)
	wantStatus(t, w, 200)
	want := catalog.StateChange{State: toolkeep.Sunset, Reason: "r", Successor: "2.0.0", Date: time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), Now: true}
	if of != "demo.hash@1.0.0" || !reflect.DeepEqual(got, want) {
		t.Errorf("%s %+v", of, got)
	}
	if m := decode(t, w); m["lifecycle"].(map[string]any)["sunset_at"] != "2026-06-01T00:00:00Z" {
		t.Errorf("%v", m)
	}
	w = s.do(t, "DELETE", "/api/v1/tools/demo.hash?reason=old&successor=2.0.0", "")
	wantStatus(t, w, 200)
	if of != "demo.hash@" || !reflect.DeepEqual(got, catalog.StateChange{State: toolkeep.Deprecated, Reason: "old", Successor: "2.0.0"}) {
		t.Errorf("%s %+v", of, got)
	}
	problem(t, s.do(t, "DELETE", "/api/v1/tools/no.such?version=1.0.0", ""), toolkeep.ToolNotFound)
	problem(t, s.do(t, "POST", "/api/v1/tools/a.b/versions/1.0.0/state", `{"state":"gone"}`), toolkeep.InvalidParameters)
}

func TestSearch(t *testing.T) {
	s := newSystem()
	other := demoTool()
	other.Manifest.Category = "other"
	s.Search = fakeSearch(func(q string, n int, visible func(*toolkeep.Tool) bool) []discover.Match {
		if q != "hash a text" || n != 3 || !visible(demoTool()) || visible(other) {
			t.Errorf("%q %d", q, n)
		}
		return []discover.Match{{Tool: demoTool(), Score: 2.5, Why: []string{"hash"}}}
	})
	w := s.do(t, "GET", "/api/v1/tools/retrieval/search?q=hash+a+text&limit=3&category=utility", "")
	wantStatus(t, w, 200)
	d := decode(t, w)["data"].(map[string]any)
	one := d["lightweightIndex"].([]any)[0].(map[string]any)
	if one["toolId"] != "demo.hash" || one["requiredParams"].([]any)[0] != "text" || one["optionalParams"].([]any)[0] != "algorithm" || one["shortDescription"] != "Hashes text" {
		t.Errorf("%v", one)
	}
	if md := d["metadata"].(map[string]any); md["totalToolsAvailable"] != number("7") || md["toolsRetrieved"] != number("1") || md["retrievalStrategy"] != "keyword" {
		t.Errorf("%v", md)
	}
	if rest := d["indexRest"].(map[string]any); rest["tools"] != number("3") || len(rest["categories"].([]any)) != 1 || rest["hint"] == "" {
		t.Errorf("%v", rest)
	}
	s.Search = fakeSearch(func(_ string, n int, _ func(*toolkeep.Tool) bool) []discover.Match {
		if n != 5 {
			t.Errorf("default limit %d", n)
		}
		return nil
	})
	problem(t, s.do(t, "GET", "/api/v1/tools/retrieval/search?q=x", ""), toolkeep.NoToolMatches)
	for q, code := range map[string]toolkeep.Code{"": toolkeep.MissingParameter, "q=x&strategy=category": toolkeep.MalformedRequest, "q=x&strategy=guess": toolkeep.InvalidParameters,
		"q=x&maxTools=21": toolkeep.InvalidParameters, "q=x&maxTools=2&limit=3": toolkeep.MalformedRequest} {
		problem(t, s.do(t, "GET", "/api/v1/tools/retrieval/search?"+q, ""), code)
	}
}

func TestKeys(t *testing.T) {
	s := newSystem()
	s.keys.create = func(k toolkeep.APIKey) (toolkeep.APIKey, string, error) {
		k.ID, k.CreatedAt, k.CreatedBy, k.Hash = "k1", at, "admin", [32]byte{1}
		return k, "the-secret", nil
	}
	w := s.do(t, "POST", "/api/v1/keys", `{"subject":"bot","name":"n","roles":["agent"],"scope":["demo.*"],"expires_at":"2027-01-01T00:00:00Z"}`)
	wantStatus(t, w, 201)
	if m := decode(t, w); m["id"] != "k1" || m["secret"] != "the-secret" || m["subject"] != "bot" || m["expires_at"] != "2027-01-01T00:00:00Z" || w.Header().Get("Location") != "/api/v1/keys/k1" {
		t.Errorf("%v", m)
	}
	for body, overlap := range map[string]string{`{}`: "1h0m0s", `{"overlap_s":0}`: "0s", `{"overlap_s":60}`: "1m0s"} {
		w = s.do(t, "POST", "/api/v1/keys/k0/rotate", body)
		wantStatus(t, w, 201)
		if m := decode(t, w); m["id"] != "k1" || m["secret"] != "the-secret" || m["subject"] != "of k0" || m["name"] != overlap || w.Header().Get("Location") != "/api/v1/keys/k1" {
			t.Errorf("%s: %v", body, m)
		}
	}
	for _, body := range []string{`{"overlap_s":-1}`, `{"overlap_s":2592001}`, `{"overlap_s":1.5}`, `{"overlap":1}`} {
		wantStatus(t, s.do(t, "POST", "/api/v1/keys/k0/rotate", body), 400)
	}
	s.keys.list = func() ([]toolkeep.APIKey, error) {
		return []toolkeep.APIKey{{ID: "k1", Subject: "a"}, {ID: "k2", Subject: "b"}, {ID: "k3", Subject: "c"}}, nil
	}
	w = s.do(t, "GET", "/api/v1/keys?page=2&page_size=2", "")
	wantStatus(t, w, 200)
	if m := decode(t, w); m["total_count"] != number("3") || len(m["keys"].([]any)) != 1 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%v", m)
	}
	if m := decode(t, s.do(t, "GET", "/api/v1/keys?page=9", "")); len(m["keys"].([]any)) != 0 {
		t.Errorf("%v", m)
	}
	s.keys.revoke = func(id string) error {
		if id != "k1" {
			return toolkeep.NewError(toolkeep.ResourceNotFound, "no")
		}
		return nil
	}
	wantStatus(t, s.do(t, "DELETE", "/api/v1/keys/k1", ""), 204)
	w = s.do(t, "PATCH", "/api/v1/keys/k1", `{"scope":["demo.*"]}`)
	wantStatus(t, w, 200)
	if m := decode(t, w); m["id"] != "k1" || len(m["scope"].([]any)) != 1 || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%s", w.Body)
	}
	wantStatus(t, s.do(t, "PATCH", "/api/v1/keys/k1", `{}`), 400)
	problem(t, s.do(t, "PATCH", "/api/v1/keys/k1", `{"scope":null}`), toolkeep.InputValidationFailed)
	problem(t, s.do(t, "DELETE", "/api/v1/keys/k9", ""), toolkeep.ResourceNotFound)
}

func TestInvalidate(t *testing.T) {
	s := newSystem()
	s.SearchAdmin = nil
	got, whose := "-", ""
	s.Invalidate = func(_ context.Context, tenant, id, by string) (int, error) {
		whose, got = tenant+" by "+by, id
		return 4, nil
	}
	s.catalog.versions = func(id string) ([]toolkeep.Version, error) {
		return []toolkeep.Version{{Tool: &toolkeep.Tool{ID: id}}}, nil
	}
	if m := decode(t, s.do(t, "POST", "/cache/invalidate/demo.hash", "")); got != "demo.hash" || whose != "t by admin" || m["invalidated"] != number("4") {
		t.Errorf("%s %v", got, m)
	}
	whose = ""
	if m := decode(t, s.do(t, "DELETE", "/api/v1/tools/admin/cache/invalidate", `{"scope":"all"}`)); got != "" || whose != "t by admin" || m["invalidated"] != number("4") {
		t.Errorf("%q of %q: %v", got, whose, m)
	}
	wantStatus(t, s.do(t, "DELETE", "/api/v1/tools/admin/cache/invalidate", `{"scope":"tool","toolId":"a.b"}`), 200)
	if got != "a.b" {
		t.Errorf("%q", got)
	}
	got = "-"
	problem(t, s.do(t, "DELETE", "/api/v1/tools/admin/cache/invalidate", `{"scope":"all_tenants"}`), toolkeep.PermissionDenied) // an operator of the tenant t
	if got != "-" {
		t.Errorf("results of %q were dropped by an operator of another tenant", whose)
	}
	if wantStatus(t, s.do(t, "DELETE", "/api/v1/tools/admin/cache/invalidate", `{"scope":"all_tenants"}`, "Authorization: Bearer operator"), 200); got != "" || whose != " by operator" {
		t.Errorf("%q of %q", got, whose)
	}
	for body, code := range map[string]toolkeep.Code{`{"scope":"tool"}`: toolkeep.MalformedRequest, `{"scope":"all_tenants","toolId":"x"}`: toolkeep.MalformedRequest, `{"scope":"all","toolId":"x"}`: toolkeep.MalformedRequest,
		`{"scope":"some","toolId":"x"}`: toolkeep.InvalidParameters} {
		problem(t, s.do(t, "DELETE", "/api/v1/tools/admin/cache/invalidate", body), code)
	}
}

func invocationRow(state toolkeep.CallState) *toolkeep.Invocation {
	v := &toolkeep.Invocation{ID: "i1", Tenant: "t", Subject: "agent", ToolID: "demo.hash", Version: "1.0.0", State: state, CreatedAt: at, Attempts: 1,
		Progress: toolkeep.Progress{Percent: 40, Phase: "reading", Message: "row 4"}, Session: "s", CallID: "c"}
	if state.Ended() {
		v.StartedAt, v.EndedAt = at, at.Add(time.Second)
	}
	return v
}

func TestGetInvocation(t *testing.T) {
	s := newSystem()
	s.Config.TraceURL = "https://traces.example/{trace_id}?at=1"
	row := invocationRow(toolkeep.CallRunning)
	s.calls.get = func(_ *toolkeep.Principal, id string) (*toolkeep.Invocation, error) {
		if id != "i1" {
			return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "no")
		}
		return row, nil
	}
	w := s.do(t, "GET", "/api/v1/invocations/i1", "")
	wantStatus(t, w, 200)
	m := decode(t, w)
	if m["status"] != "running" || m["progress_percent"] != number("40") || m["current_phase"] != "reading" || m["polling_info"] == nil || m["result"] != nil {
		t.Errorf("%v", m)
	}
	row = invocationRow(toolkeep.CallSucceeded)
	row.Output = []byte(`{"n":1}`)
	if m := decode(t, s.do(t, "GET", "/api/v1/invocations/i1", "")); m["status"] != "success" || m["result"] == nil || m["polling_info"] != nil || m["execution_metadata"] == nil {
		t.Errorf("%v", m)
	}
	meta := decode(t, s.do(t, "GET", "/api/v1/invocations/i1", ""))["execution_metadata"].(map[string]any)
	for _, name := range []string{"steps", "attempts", "trace_id", "trace_url"} {
		if meta[name] != nil {
			t.Errorf("a row of an older program has %s: %v", name, meta[name])
		}
	}
	row.Steps = toolkeep.CallSteps{US: [12]uint32{1000, 500}, Ended: 12}
	row.Tries, row.TraceID = []toolkeep.Try{{TookUS: 3000, Code: toolkeep.UpstreamTimeout}, {AtUS: 4000, TookUS: 2000, Tool: "demo.other"}}, "0af7"
	meta = decode(t, s.do(t, "GET", "/api/v1/invocations/i1", ""))["execution_metadata"].(map[string]any)
	if all := meta["steps"].([]any); len(all) != 12 || !reflect.DeepEqual(all[1], map[string]any{"step": number("2"), "name": "resolve", "took_us": number("500"), "outcome": "pass"}) {
		t.Errorf("%v", all)
	}
	if want := []any{map[string]any{"at_ms": number("1.5"), "took_ms": number("3"), "error_code": "E3502"}, map[string]any{"at_ms": number("5.5"), "took_ms": number("2"), "tool_id": "demo.other"}}; !reflect.DeepEqual(meta["attempts"], want) {
		t.Errorf("%v", meta["attempts"])
	}
	if meta["trace_url"] != "https://traces.example/0af7?at=1" || meta["trace_id"] != "0af7" {
		t.Errorf("%v", meta)
	}
	s.calls.list = func(*toolkeep.Principal, toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
		return []*toolkeep.Invocation{row}, 1, nil
	}
	for query, want := range map[string]bool{"": false, "?steps=true": true} {
		listed := decode(t, s.do(t, "GET", "/api/v1/invocations"+query, ""))["invocations"].([]any)[0].(map[string]any)
		if m, ok := listed["execution_metadata"].(map[string]any); ok != want || ok && m["trace_id"] != "0af7" {
			t.Errorf("%q: %v", query, listed)
		}
	}
	row = invocationRow(toolkeep.CallRefused)
	row.Code, row.Message = toolkeep.PermissionDenied, "no"
	if m := decode(t, s.do(t, "GET", "/api/v1/invocations/i1", "")); m["status"] != "permission_denied" || m["error"].(map[string]any)["error_code"] != "E3201" {
		t.Errorf("%v", m)
	}
	problem(t, s.do(t, "GET", "/api/v1/invocations/i2", ""), toolkeep.ResourceNotFound)
	problem(t, s.do(t, "GET", "/api/v1/invocations/"+strings.Repeat("x", 5000), ""), toolkeep.InvalidParameters)
}

func TestListInvocations(t *testing.T) {
	s := newSystem()
	var got toolkeep.InvocationFilter
	s.calls.list = func(_ *toolkeep.Principal, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
		got = f
		failed := invocationRow(toolkeep.CallFailed)
		failed.Code, failed.TotalUS = toolkeep.UpstreamTimeout, 1500
		return []*toolkeep.Invocation{invocationRow(toolkeep.CallQueued), failed}, 9, nil
	}
	w := s.do(t, "GET", "/api/v1/invocations?tool_id=demo.hash&state=failed&agent_id=a&session_id=s&parent_invocation_id=p&since=2026-01-01T00:00:00Z&until=2026-02-01T00:00:00Z&page=2&page_size=4", "")
	wantStatus(t, w, 200)
	want := toolkeep.InvocationFilter{Tenant: "t", Subject: "a", ToolID: "demo.hash", State: toolkeep.CallFailed, Session: "s", Parent: "p",
		Since: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC), Offset: 4, Limit: 4}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	wantStatus(t, s.do(t, "GET", "/api/v1/invocations?state=failed&state=refused&error_code=E3201&face=mcp&user_id=u", ""), 200)
	want = toolkeep.InvocationFilter{Tenant: "t", States: []toolkeep.CallState{toolkeep.CallFailed, toolkeep.CallRefused}, Code: "E3201", Face: "mcp", Person: "u", Limit: 50}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	m := decode(t, w)
	if l := m["invocations"].([]any); len(l) != 2 || l[1].(map[string]any)["status"] != "timeout" || l[1].(map[string]any)["duration_ms"] != number("1.5") || m["total_count"] != number("9") {
		t.Errorf("%v", m)
	}
	if _, ok := m["total_is_least"]; ok {
		t.Errorf("a whole count is called the least: %v", m)
	}
	s.calls.list = func(_ *toolkeep.Principal, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
		got = f
		return nil, toolkeep.MaxTotal, nil
	}
	if m := decode(t, s.do(t, "GET", "/api/v1/invocations", "")); m["total_count"] != number("10000") || m["total_is_least"] != true {
		t.Errorf("%v", m)
	}
	// Who may not see everybody's calls sees the own ones.
	wantStatus(t, s.do(t, "GET", "/api/v1/invocations", "", "Authorization: Bearer agent"), 200)
	if got.Subject != "agent" {
		t.Errorf("%+v", got)
	}
	for _, q := range []string{"since=yesterday", "state=done"} {
		problem(t, s.do(t, "GET", "/api/v1/invocations?"+q, ""), toolkeep.InvalidParameters)
	}
}

func TestCancel(t *testing.T) {
	s := newSystem()
	why := ""
	s.calls.cancel = func(_ *toolkeep.Principal, id, reason string) (bool, string, error) {
		why = reason
		if id == "no" {
			return false, "", toolkeep.NewError(toolkeep.ResourceNotFound, "no")
		}
		return true, "Cancellation in progress", nil
	}
	w := s.do(t, "POST", "/api/v1/invocations/i1/cancel", "")
	wantStatus(t, w, 200)
	if m := decode(t, w); m["cancelled"] != true || m["message"] != "Cancellation in progress" || m["invocation_id"] != "i1" {
		t.Errorf("%v", m)
	}
	wantStatus(t, s.do(t, "POST", "/api/v1/invocations/i1/cancel", `{"invocation_id":"i1","reason":"changed my mind","agent_context":{"agent_did":"admin","tenant_id":"t"}}`), 200)
	if why != "changed my mind" {
		t.Error(why)
	}
	problem(t, s.do(t, "POST", "/api/v1/invocations/no/cancel", ""), toolkeep.ResourceNotFound)
	problem(t, s.do(t, "POST", "/api/v1/invocations/i1/cancel", `{"invocation_id":"i2"}`), toolkeep.MalformedRequest)
	problem(t, s.do(t, "POST", "/api/v1/invocations/i1/cancel", `{"agent_context":{"tenant_id":"u"}}`), toolkeep.PermissionDenied)
	problem(t, s.do(t, "POST", "/api/v1/invocations/i1/cancel", `{"agent_context":{"agent_did":"other"}}`, "Authorization: Bearer agent"), toolkeep.PermissionDenied)
}

type closer struct {
	io.Reader
	closed *bool
}

func (c closer) Close() error { *c.closed = true; return nil }

type seekCloser struct {
	*strings.Reader
	closer
}

func (s seekCloser) Read(p []byte) (int, error) { return s.Reader.Read(p) }

func TestBlobs(t *testing.T) {
	s := newSystem()
	text := strings.Repeat("line of text\n", 500)
	meta := toolkeep.Blob{ID: "b1", Tenant: "t", Subject: "agent", ContentType: "text/html", Bytes: int64(len(text)), CreatedAt: at}
	var closed, seekable bool
	s.Blobs = fakeBlobs(func(id string) (toolkeep.Blob, io.ReadCloser, error) {
		closed = false
		switch {
		case id == "b2":
			return toolkeep.Blob{}, nil, fmt.Errorf("blob: %w", toolkeep.ErrNotFound)
		case id != "b1":
			return toolkeep.Blob{}, nil, errors.New("disk")
		case seekable:
			return meta, seekCloser{strings.NewReader(text), closer{closed: &closed}}, nil
		}
		return meta, closer{strings.NewReader(text), &closed}, nil
	})
	for _, seekable = range []bool{false, true} {
		w := s.do(t, "GET", "/api/v1/blobs/b1", "", "Authorization: Bearer agent")
		wantStatus(t, w, 200)
		h := w.Header()
		if w.Body.String() != text || !closed || h.Get("Content-Disposition") != "attachment" || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("closed %t %v", closed, h)
		}
		w = s.do(t, "GET", "/api/v1/blobs/b1", "", "Accept-Encoding: gzip")
		if w.Header().Get("Content-Encoding") != "gzip" || unpack(t, "gzip", w.Body.Bytes()) != text {
			t.Errorf("%v", w.Header())
		}
	}
	w := s.do(t, "GET", "/api/v1/blobs/b1", "", "Range: bytes=0-3")
	wantStatus(t, w, 206)
	if w.Body.String() != "line" {
		t.Errorf("%q", w.Body)
	}
	problem(t, s.do(t, "GET", "/api/v1/blobs/b2", ""), toolkeep.ResourceNotFound)
	problem(t, s.do(t, "GET", "/api/v1/blobs/b3", ""), toolkeep.InternalError)
	meta.Subject = "somebody"
	problem(t, s.do(t, "GET", "/api/v1/blobs/b1", "", "Authorization: Bearer agent"), toolkeep.ResourceNotFound)
	wantStatus(t, s.do(t, "GET", "/api/v1/blobs/b1", ""), 200) // invocations:read
	meta.Tenant = "other"
	problem(t, s.do(t, "GET", "/api/v1/blobs/b1", ""), toolkeep.ResourceNotFound)
}

// A blob that breaks off must not look whole.
func TestBlobThatBreaksOff(t *testing.T) {
	s := newSystem()
	closed := false
	s.Blobs = fakeBlobs(func(string) (toolkeep.Blob, io.ReadCloser, error) {
		return toolkeep.Blob{Tenant: "t", Subject: "admin", ContentType: "x/y"}, closer{io.MultiReader(strings.NewReader("abc"), failing{}), &closed}, nil
	})
	defer func() {
		if recover() == nil || !closed {
			t.Error("the connection was not cut")
		}
	}()
	s.do(t, "GET", "/api/v1/blobs/b1", "")
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk") }

func unpack(t *testing.T, encoding string, b []byte) string {
	t.Helper()
	var rd io.Reader = bytes.NewReader(b)
	if encoding == "gzip" {
		z, err := gzip.NewReader(rd)
		if err != nil {
			t.Fatal(err)
		}
		rd = z
	} else {
		rd = brotli.NewReader(rd)
	}
	out, err := io.ReadAll(rd)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestCompression(t *testing.T) {
	s := newSystem()
	big := succeeded()
	big.Output = []byte(`"` + strings.Repeat("abcdefghij", 500) + `"`)
	small := succeeded()
	for _, x := range []struct {
		name, accept, want string
		res                *toolkeep.Result
	}{
		{"gzip", "gzip", "gzip", big}, {"br", "br", "br", big}, {"equal: gzip", "br, gzip", "gzip", big}, {"preferred", "gzip;q=0.5, br;q=0.9", "br", big},
		{"refused", "gzip;q=0", "", big}, {"identity preferred", "identity, gzip;q=0.5", "", big}, {"unknown", "zstd, deflate", "", big},
		{"none", "", "", big}, {"bad weight", "gzip;q=x", "", big}, {"browser", "gzip, deflate, br, zstd", "gzip", big}, {"small", "gzip", "", small},
	} {
		t.Run(x.name, func(t *testing.T) {
			s.Invoker = okInvoker(x.res)
			w := s.do(t, "POST", "/api/v1/tools/invoke", hashCall, "Accept-Encoding: "+x.accept)
			wantStatus(t, w, 200)
			if got := w.Header().Get("Content-Encoding"); got != x.want {
				t.Fatalf("Content-Encoding %q, want %q", got, x.want)
			}
			body := w.Body.String()
			if x.want != "" {
				body = unpack(t, x.want, w.Body.Bytes())
			}
			if body != string(appendResponse(nil, x.res)) {
				t.Errorf("%.100s", body)
			}
			if x.res == big && w.Header().Get("Vary") != "Accept-Encoding" {
				t.Error("Vary is missing")
			}
		})
	}
}
