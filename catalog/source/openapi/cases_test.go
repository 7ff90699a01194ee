package openapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
)

// A case is a text file: lines of options, then files after lines of the form "-- name --", the
// first of them the document, the last one, "want", the expected plan. UPDATE_GOLDEN=1 writes the
// actual plan instead.

type caseFile struct{ name, text string }

func parseCase(t testing.TB, path string) (options map[string]string, files []caseFile) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	options = map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, isName := strings.CutPrefix(strings.TrimSpace(line), "-- ")
		name, isEnd := strings.CutSuffix(name, " --")
		switch {
		case isName && isEnd:
			files = append(files, caseFile{name: name})
		case len(files) > 0:
			files[len(files)-1].text += line
		default:
			if k, v, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(k, "#") {
				options[k] = v
			}
		}
	}
	return options, files
}

func writeFiles(t *testing.T, files []caseFile) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range files {
		p := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(f.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestCases(t *testing.T) {
	cases, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(cases) == 0 {
		t.Fatal("no cases in testdata", err)
	}
	for _, path := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			options, files := parseCase(t, path)
			last := len(files) - 1
			want := files[last]
			if want.name != "want" {
				t.Fatal("the last file of a case is called want")
			}
			o := Options{Namespace: options["namespace"], Server: options["server"], Auth: map[string]string{}, Schemes: map[string]string{}}
			for k, v := range options {
				if scheme, ok := strings.CutPrefix(k, "auth "); ok {
					o.Auth[scheme] = v
				}
				if scheme, ok := strings.CutPrefix(k, "scheme "); ok {
					o.Schemes[scheme] = v
				}
			}
			dir := writeFiles(t, files[:last])
			o.Location = filepath.Join(dir, files[0].name)
			got := describePlan(t, o)
			if again := describePlan(t, o); again != got {
				t.Fatalf("a second reading gives something else:\n%s", again)
			}
			if os.Getenv("UPDATE_GOLDEN") != "" {
				data, _ := os.ReadFile(path)
				i := strings.LastIndex(string(data), "-- want --\n")
				if err := os.WriteFile(path, []byte(string(data)[:i]+"-- want --\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want.text {
				t.Errorf("the plan differs; got:\n%s\nwant:\n%s", got, want.text)
			}
		})
	}
}

// describePlan formats a plan, with the relevant parts of each manifest.
func describePlan(t *testing.T, o Options) string {
	t.Helper()
	plan, err := Read(context.Background(), o)
	if err != nil {
		return "ERROR " + err.Error() + "\n"
	}
	checkPlan(t, plan)
	var b strings.Builder
	fmt.Fprintf(&b, "%q %s: %d operations, %d tools, %d refused\n", plan.Title, plan.Version, plan.Operations, len(plan.Tools), len(plan.Refused))
	for _, tool := range plan.Tools {
		m, err := canon.ParseObject(tool.Manifest, canon.Limits{Properties: 20_000})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n%s: %s %s (%s)\n", tool.Name, tool.Method, tool.Path, tool.Change)
		fmt.Fprintf(&b, "  %s, idempotent %v, risk %s, category %s\n", m["side_effects"], m["idempotent"], m["risk"], m["category"])
		for _, k := range []string{"description", "tags", "parameters_schema", "result_schema", "examples", "auth", "permissions", "redact"} {
			if v, ok := m[k]; ok {
				fmt.Fprintf(&b, "  %s %s\n", k, canon.Append(nil, v))
			}
		}
		execution := m["execution"].(map[string]any)
		fmt.Fprintf(&b, "  binding %s\n", canon.Append(nil, execution["binding"]))
	}
	if len(plan.Refused) > 0 {
		b.WriteString("\n")
	}
	for _, r := range plan.Refused {
		fmt.Fprintf(&b, "REFUSED %s: %s\n", r.Operation, r.Reason)
	}
	if len(plan.Warnings) > 0 {
		b.WriteString("\n")
	}
	for _, w := range plan.Warnings {
		fmt.Fprintf(&b, "WARNING %s\n", w)
	}
	return b.String()
}

// checkPlan checks the invariants of every plan.
func checkPlan(t *testing.T, plan *Plan) {
	t.Helper()
	if len(plan.Tools)+len(plan.Refused)+plan.Excluded != plan.Operations {
		t.Errorf("%d tools and %d refused are not %d operations", len(plan.Tools), len(plan.Refused), plan.Operations)
	}
	if !strings.HasPrefix(plan.Digest, "sha256:") || len(plan.Digest) != 71 {
		t.Errorf("the digest is %q", plan.Digest)
	}
	names := map[string]bool{}
	for _, tool := range plan.Tools {
		if names[tool.Name] {
			t.Errorf("the name %s is there twice", tool.Name)
		}
		names[tool.Name] = true
		parsed, err := catalog.ParseManifest(tool.Manifest)
		if err != nil {
			t.Errorf("%s %s: the catalogue refuses the manifest: %v", tool.Method, tool.Path, err)
			continue
		}
		checkArguments(t, tool)
		if parsed.ID != tool.Name || parsed.Version != tool.Version {
			t.Errorf("%s@%s has the manifest of %s", tool.Name, tool.Version, parsed.Ref())
		}
	}
	for _, r := range plan.Refused {
		if strings.HasPrefix(r.Reason, ownFault) {
			t.Errorf("%s: %s", r.Operation, r.Reason)
		}
		if r.Operation == "" || r.Reason == "" {
			t.Errorf("an operation is refused without saying which or why: %+v", r)
		}
	}
}
