package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/catalog/source/sql"
)

// TestChoiceNeedsTheList: where the published tools cannot be listed, an import does not take everything by mistake.
func TestChoiceNeedsTheList(t *testing.T) {
	published, away := 0, true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/health/live":
		case r.Method == http.MethodPost:
			published++
			answerJSON(w, map[string]any{"published": []any{}})
		case r.URL.Path == "/api/v1/namespaces/pets/choices" && !away:
			answerJSON(w, map[string]any{"choices": []any{map[string]any{"title": "Pets", "exclude": []string{"tag:admin"}}}})
		case r.URL.Path == "/api/v1/tools", r.URL.Path == "/api/v1/namespaces/pets/choices":
			w.WriteHeader(http.StatusServiceUnavailable)
			answerJSON(w, map[string]any{"code": "E3965", "name": "record_unavailable", "detail": "the store is away"})
		default:
			w.WriteHeader(http.StatusNotFound)
			answerJSON(w, map[string]any{"code": "E3001", "name": "tool_not_found", "detail": "none"})
		}
	}))
	defer s.Close()
	withoutSettings(t)
	t.Setenv("TOOLKEEP_DATA", t.TempDir())
	t.Setenv("TOOLKEEP_URL", s.URL)
	t.Setenv("TOOLKEEP_KEY", "tk_test")
	file := filepath.Join(t.TempDir(), "api.yaml")
	document := "openapi: 3.0.3\ninfo: {title: Pets, version: '1'}\nservers: [{url: 'https://pets.example'}]\npaths: {/pets: {get: {operationId: listPets, responses: {'200': {description: ok}}}}, /admin: {get: {operationId: purge, tags: [admin], responses: {'200': {description: ok}}}}}\n"
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args      []string
		away      bool
		says      string
		exit      int
		published int
	}{
		{nil, true, "the store is away", exitUsage, 0},
		{[]string{"--include", "path:*"}, true, "the store is away", exitUsage, 0},
		{[]string{"--dry-run"}, true, "what the last import chose is not known", exitOK, 0},
		{nil, false, "the choice of the last import counts: --exclude 'tag:admin'", exitOK, 1},
		{[]string{"--exclude", ""}, false, "the published tools could not be listed", exitOK, 2},
	} {
		var stdout, stderr bytes.Buffer
		away = c.away
		exit := run(t.Context(), nil, append([]string{"import", "openapi", file}, c.args...), strings.NewReader(""), &stdout, &stderr)
		if exit != c.exit || published != c.published || !strings.Contains(stdout.String()+stderr.String(), c.says) {
			t.Errorf("%q ended with %d and published %d times:\n%s%s", c.args, exit, published, &stdout, &stderr)
		}
	}
}

// TestVariablesOfAFolder: an import of a folder reads the variables alone that it is allowed, and no secret from a file.
func TestVariablesOfAFolder(t *testing.T) {
	t.Setenv(sqlPassword, "a")
	t.Setenv("SHOP", "b")
	of := func(names ...string) *app {
		return &app{mayRead: func(name string) bool { return slices.Contains(names, name) }}
	}
	for _, x := range []struct {
		a    *app
		want string
	}{{&app{}, "a"}, {of(), ""}, {of(sqlPassword), "a"}, {of("SHOP"), "b"}} {
		if got := x.a.schemaPassword("", sql.Options{Secret: "env://SHOP"}); got != x.want {
			t.Errorf("the password is %q, not %q", got, x.want)
		}
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("c"), 0o600); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{"env://SHOP": "b", "file://" + file: "c"} {
		if got, err := new(app).localSecret(ref); err != nil || got != want {
			t.Errorf("%s: %q %v", ref, got, err)
		}
		if got, err := of().localSecret(ref); err == nil || got != "" {
			t.Errorf("a folder reads %s: %q", ref, got)
		}
	}
}

// TestFilesOfAnExport: ids that differ in case alone are files of their own.
func TestFilesOfAnExport(t *testing.T) {
	x := &folderExport{folded: map[string]bool{}}
	var names []string
	for _, id := range []string{"a.get", "a.Get", "a.GET", "a.Get-2", "a.other"} {
		names = append(names, x.file(id))
	}
	if want := []string{"tools/a.get.json", "tools/a.Get-2.json", "tools/a.GET-3.json", "tools/a.Get-2-2.json", "tools/a.other.json"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}
