package openapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func read(t *testing.T, o Options) *Plan {
	t.Helper()
	plan, err := Read(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	checkPlan(t, plan)
	return plan
}

// readText reads a document given as text.
func readText(t *testing.T, text string, o Options) *Plan {
	t.Helper()
	o.Location = filepath.Join(writeFiles(t, []caseFile{{"api.yaml", text}}), "api.yaml")
	return read(t, o)
}

func wantRefused(t *testing.T, plan *Plan, operation, reason string) {
	t.Helper()
	for _, r := range plan.Refused {
		if r.Operation == operation {
			if !strings.Contains(r.Reason, reason) {
				t.Errorf("%s is refused for %q, not for %q", operation, r.Reason, reason)
			}
			return
		}
	}
	t.Errorf("%s is not refused", operation)
}

// refDocument has one operation whose parameter is a reference.
func refDocument(ref string) string {
	return fmt.Sprintf("openapi: 3.0.0\ninfo: {title: t, version: '1'}\nservers: [{url: 'https://a.example.com'}]\npaths: {/x: {get: {parameters: [{$ref: %q}], responses: {200: {description: ok}}}}}\n", ref)
}

const secretFile = "p: {name: leaked, in: query, schema: {type: string, description: hunter2}}\n"

func TestReferencesStayInTheFolder(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "docs")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, from string) {
		t.Helper()
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outer, "secret.yaml"), secretFile)
	write(filepath.Join(dir, "inside.yaml"), secretFile)
	link(filepath.Join(outer, "secret.yaml"), filepath.Join(dir, "link.yaml"))
	link("../secret.yaml", filepath.Join(dir, "relative.yaml"))
	link(outer, filepath.Join(dir, "up"))
	link("inside.yaml", filepath.Join(dir, "good.yaml"))

	for ref, reason := range map[string]string{
		"../secret.yaml#/p":                             "outside",
		"sub/../../secret.yaml#/p":                      "outside",
		"%2e%2e/secret.yaml#/p":                         "outside",
		"..%2fsecret.yaml#/p":                           "outside",
		filepath.Join(outer, "secret.yaml") + "#/p":     "outside",
		"file://" + filepath.Join(outer, "secret.yaml"): "leads to a URL",
		"//localhost/secret.yaml":                       "leads to a URL",
		"http://127.0.0.1:1/secret.yaml":                "leads to a URL",
		"..\\secret.yaml":                               "not a relative path",
		"link.yaml#/p":                                  "outside",
		"relative.yaml#/p":                              "outside",
		"up/secret.yaml#/p":                             "outside",
		"sub#/p":                                        "not a regular file",
		"nothing.yaml#/p":                               "no such file",
		"inside.yaml#/q":                                `no "q"`,
		"inside.yaml#anchor":                            "no anchor",
	} {
		write(filepath.Join(dir, "api.yaml"), refDocument(ref))
		plan := read(t, Options{Location: filepath.Join(dir, "api.yaml")})
		wantRefused(t, plan, "GET /x", reason)
		if text := fmt.Sprint(plan); strings.Contains(text, "hunter2") || strings.Contains(text, outer) && !strings.Contains(ref, outer) {
			t.Errorf("%s: the plan tells of what is outside: %s", ref, text)
		}
	}
	for _, ref := range []string{"inside.yaml#/p", "./sub/../inside.yaml#/p", "good.yaml#/p", "inside%2eyaml#/p"} {
		write(filepath.Join(dir, "api.yaml"), refDocument(ref))
		if plan := read(t, Options{Location: "file://" + filepath.Join(dir, "api.yaml")}); len(plan.Tools) != 1 {
			t.Errorf("%s: %+v", ref, plan.Refused)
		}
	}
}

// TestReferencesStayInTheRoot: with a root, references may leave the document's folder and not the root.
func TestReferencesStayInTheRoot(t *testing.T) {
	outer := writeFiles(t, []caseFile{{"secret.yaml", secretFile}, {"repo/common/p.yaml", secretFile}, {"repo/apis/api.yaml", ""}, {"elsewhere/api.yaml", ""}})
	root, api := filepath.Join(outer, "repo"), filepath.Join(outer, "repo", "apis", "api.yaml")
	for from, to := range map[string]string{"repo/common/out.yaml": "../../secret.yaml", "repo/common/up": outer, "alias": root, "repo/common/in.yaml": "p.yaml"} {
		if err := os.Symlink(to, filepath.Join(outer, filepath.FromSlash(from))); err != nil {
			t.Fatal(err)
		}
	}
	const link, given = "--root DIR", "outside of the folder that --root names"
	for ref, tt := range map[string]struct{ alone, rooted string }{
		"../common/p.yaml#/p":                        {link, ""},
		"../common/in.yaml#/p":                       {link, ""},
		"%2e%2e/common/p.yaml#/p":                    {link, ""},
		"../../repo/common/p.yaml#/p":                {link, given},
		"../../secret.yaml#/p":                       {link, given},
		"../common/out.yaml#/p":                      {link, given},
		"../common/up/secret.yaml#/p":                {link, given},
		"../common/nothing.yaml#/p":                  {link, "no such file"},
		filepath.Join(root, "common/p.yaml") + "#/p": {link, given},
	} {
		if err := os.WriteFile(api, []byte(refDocument(ref)), 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, read(t, Options{Location: api}), "GET /x", tt.alone)
		for _, dir := range []string{root, filepath.Join(outer, "alias"), root + "/apis/.."} {
			plan := read(t, Options{Location: api, Root: dir})
			if tt.rooted != "" {
				wantRefused(t, plan, "GET /x", tt.rooted)
				if strings.Contains(fmt.Sprint(plan), "hunter2") {
					t.Errorf("%s: the plan tells of what is outside", ref)
				}
			} else if len(plan.Tools) != 1 {
				t.Errorf("%s in %s: %+v", ref, dir, plan.Refused)
			}
		}
	}
	for _, o := range []Options{
		{Location: filepath.Join(outer, "elsewhere", "api.yaml"), Root: root},
		{Location: api, Root: filepath.Join(outer, "nothing")},
		{Location: "https://example.com/api.yaml", Root: root, Client: http.DefaultClient},
		{Location: "api.yaml", Document: []byte(header + "paths: {}"), Root: root},
	} {
		_, err := Read(t.Context(), o)
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.ImportFailed || !strings.Contains(e.Message, "--root") {
			t.Errorf("%s in %s: %v", o.Location, o.Root, err)
		}
	}
}

// site serves files by path and records requests.
type site struct {
	*httptest.Server
	asked []string
}

func newSite(t *testing.T, pages map[string]string) *site {
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked = append(s.asked, r.URL.RequestURI())
		page, ok := pages[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
		case strings.HasPrefix(page, "-> "):
			http.Redirect(w, r, page[3:], http.StatusFound)
		default:
			fmt.Fprint(w, page)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestReferencesStayOnTheHost(t *testing.T) {
	other := newSite(t, map[string]string{"/p.yaml": secretFile})
	pages := map[string]string{
		"/v1/parts/p.yaml": secretFile,
		"/hop.yaml":        "-> /v1/parts/p.yaml",
		"/away.yaml":       "-> " + other.URL + "/p.yaml",
		"/loop.yaml":       "-> /loop.yaml",
	}
	mine := newSite(t, pages)
	for ref, reason := range map[string]string{
		other.URL + "/p.yaml#/p":            "another host",
		"//" + other.URL[7:] + "/p.yaml":    "another host",
		"http://localhost:1/p.yaml":         "another host",
		"file:///etc/passwd":                "another host",
		"/away.yaml#/p":                     "redirects to another host",
		"/loop.yaml#/p":                     "redirects too often",
		"/nothing.yaml?token=hunter2#/p":    "status 404",
		"parts/p.yaml#/p":                   "",
		"../v1/parts/p.yaml#/p":             "",
		"/hop.yaml#/p":                      "",
		mine.URL + "/v1/parts/p.yaml#/p":    "",
		"../../../../v1/parts/p.yaml#/p":    "",
		"https://" + mine.URL[7:] + "/x#/p": "another host",
	} {
		pages["/v1/api.yaml"] = refDocument(ref)
		plan := read(t, Options{Location: mine.URL + "/v1/api.yaml", Client: mine.Client()})
		if reason == "" {
			if len(plan.Tools) != 1 {
				t.Errorf("%s: %+v", ref, plan.Refused)
			}
			continue
		}
		wantRefused(t, plan, "GET /x", reason)
	}
	if len(other.asked) != 0 {
		t.Errorf("another host was asked: %v", other.asked)
	}
}

func TestDocumentBehindURL(t *testing.T) {
	relative := "openapi: 3.0.0\ninfo: {title: Web, version: '1'}\nservers: [{url: ../api}]\npaths: {/x: {get: {responses: {200: {description: ok}}}}, /far: {servers: [{url: 'http://10.0.0.1'}], get: {responses: {200: {description: ok}}}}}\n"
	swagger := "swagger: '2.0'\ninfo: {title: Web, version: '1'}\npaths: {/x: {get: {responses: {200: {description: ok}}}}}\n"
	pages := map[string]string{"/docs/v1/api.yaml": relative, "/old.yaml": swagger, "/go": "-> /docs/v1/api.yaml"}
	s := newSite(t, pages)
	host := s.URL[7:]

	plan := read(t, Options{Location: "http://user:hunter2@" + host + "/go?token=hunter2#x", Client: s.Client()})
	if len(plan.Tools) != 2 {
		t.Fatalf("%+v", plan)
	}
	near, far := string(plan.Tools[0].Manifest), string(plan.Tools[1].Manifest)
	for _, part := range []string{`"server":"` + s.URL + `/docs/api"`, `"uri":"` + s.URL + `/docs/v1/api.yaml"`, `"network"`} {
		if !strings.Contains(near, part) {
			t.Errorf("%s is not in %s", part, near)
		}
	}
	if strings.Contains(far, "network") {
		t.Errorf("a fetched document opens another address of the network by itself: %s", far)
	}
	if text := fmt.Sprint(plan.Warnings) + near + far; strings.Contains(text, "hunter2") {
		t.Errorf("a credential is shown: %s", text)
	}

	plan = read(t, Options{Location: s.URL + "/old.yaml", Client: s.Client()})
	if len(plan.Tools) != 1 || !strings.Contains(string(plan.Tools[0].Manifest), `"server":"`+s.URL+`"`) {
		t.Errorf("%+v", plan)
	}
}

func TestReadFails(t *testing.T) {
	s := newSite(t, map[string]string{"/big.yaml": strings.Repeat("# long\n", 1000), "/away": "-> http://127.0.0.1:1/x"})
	dir := writeFiles(t, []caseFile{
		{"list.yaml", "- a\n"}, {"empty.yaml", "\n"}, {"null.yaml", "~\n"}, {"other.yaml", "kind: Pod\n"},
		{"v4.yaml", "openapi: 4.0.0\npaths: {}\n"}, {"v12.json", `{"swagger": "1.2", "paths": {}}`},
		{"nothing.yaml", "openapi: 3.1.0\ninfo: {title: t, version: '1'}\n"},
		{"pathlist.yaml", "openapi: 3.1.0\npaths: []\n"}, {"pathref.yaml", "openapi: 3.1.0\npaths: {$ref: gone.yaml}\n"},
		{"bad.json", "{\"openapi\": \"3.0.0\",\n \"paths\": }"}, {"bad.yaml", "openapi: 3.0.0\npaths: [\n"},
		{"alias.yaml", "openapi: 3.0.0\npaths: &a {x: *a}\n"}, {"key.yaml", "openapi: 3.0.0\n? [a]\n: b\n"},
		{"deep.yaml", "openapi: 3.0.0\npaths: " + strings.Repeat("[", 400) + strings.Repeat("]", 400) + "\n"},
		{"good.yaml", "openapi: 3.0.0\ninfo: {title: t, version: '1'}\npaths: {}\n"},
		{"large.yaml", "openapi: 3.0.0\ninfo: {title: t, version: '1'}\npaths: {}\n" + strings.Repeat("# long\n", 1000)},
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "no document was named"},
		{Options{Location: at("gone.yaml")}, "no such file"},
		{Options{Location: dir}, "not a regular file"},
		{Options{Location: at("x/y.yaml")}, "no such file"},
		{Options{Location: "file://elsewhere/x.yaml"}, "names no path"},
		{Options{Location: at("list.yaml")}, "root is not a mapping"},
		{Options{Location: at("empty.yaml")}, "empty"},
		{Options{Location: at("null.yaml")}, "empty"},
		{Options{Location: at("other.yaml")}, "neither"},
		{Options{Location: at("v4.yaml")}, `"4.0.0"`},
		{Options{Location: at("v12.json")}, `"1.2"`},
		{Options{Location: at("nothing.yaml")}, "has no paths"},
		{Options{Location: at("pathlist.yaml")}, "not a mapping"},
		{Options{Location: at("pathref.yaml")}, "no such file"},
		{Options{Location: at("bad.json")}, "bad.json:2"},
		{Options{Location: at("bad.yaml")}, "not YAML"},
		{Options{Location: at("alias.yaml")}, "inside of its own anchor"},
		{Options{Location: at("key.yaml")}, "not a scalar"},
		{Options{Location: at("deep.yaml")}, "deeper than"},
		{Options{Location: at("large.yaml"), maxBytes: 500}, "larger than 500 bytes"},
		{Options{Location: s.URL + "/big.yaml", Client: s.Client(), maxBytes: 500}, "larger than 500 bytes"},
		{Options{Location: s.URL + "/gone.yaml?k=hunter2", Client: s.Client()}, "status 404"},
		{Options{Location: s.URL + "/away", Client: s.Client()}, "another host"},
		{Options{Location: "http://127.0.0.1:1/x?k=hunter2", Client: s.Client()}, "could not be fetched: nothing listens there"},
		{Options{Location: s.URL + "/x"}, "needs an HTTP client"},
		{Options{Location: at("good.yaml"), Namespace: "Bad Name"}, "namespace"},
		{Options{Location: at("good.yaml"), Server: "/relative"}, "not a usable URL"},
		{Options{Location: at("good.yaml"), Auth: map[string]string{"x": "hunter2"}}, "not a reference"},
		{Options{Location: at("good.yaml"), Auth: map[string]string{"x": "env://X"}}, "does not have"},
	} {
		_, err := Read(context.Background(), c.o)
		e := toolkeep.AsError(err)
		if e == nil || e.Code != toolkeep.ImportFailed || !strings.Contains(e.Message, c.want) {
			t.Errorf("%+v: got %v, want E3011 with %q", c.o.Location, err, c.want)
			continue
		}
		if strings.Contains(e.Message, "hunter2") {
			t.Errorf("a secret is shown: %v", err)
		}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Read(cancelled, Options{Location: s.URL + "/big.yaml", Client: s.Client()}); toolkeep.AsError(err) == nil {
		t.Error("a cancelled context still reads")
	}
}
