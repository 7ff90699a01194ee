package datadir_test

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/datadir"
)

var update = flag.Bool("update", false, "write the table of docs/operations.md")

// TestPlaces checks the rows against each other and against the constants.
func TestPlaces(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range datadir.Places {
		fault := func(format string, args ...any) { t.Errorf("%s: %s", p.Name, fmt.Sprintf(format, args...)) }
		if seen[p.Name] || p.Name == "" || strings.Contains(p.Name, "/") {
			fault("a place has one row, and is named by one element of a path")
		}
		seen[p.Name] = true
		if got, ok := datadir.PlaceOf(p.Name); !ok || got.Name != p.Name {
			fault("the row of %q comes before it and is for the same name", got.Name)
		}
		if p.What == "" {
			fault("What is missing")
		}
		switch p.Kept {
		case datadir.Never:
			if p.Why == "" || p.Max != 0 || p.Missing != "" {
				fault("what is not in a backup has a reason, and no Max and Missing")
			}
		case datadir.Always, datadir.WithSecrets:
			if p.Why != "" || strings.ContainsAny(p.Name, `*?[\`) {
				fault("what is in a backup is no pattern and needs no reason")
			}
			if p.Max <= 0 && p.Name != datadir.Database {
				fault("what is in a backup needs a Max, beyond which a restore refuses it")
			}
			if p.Kept == datadir.WithSecrets && p.Missing == "" {
				fault("Missing has to say what to do after a backup without --secrets")
			}
		default:
			fault("Kept is %q", p.Kept)
		}
	}
	if first := datadir.Places[0]; first.Name != datadir.Database {
		t.Errorf("%s is copied before the database, whose records would lack what it had later", first.Name)
	}
	if p, ok := datadir.PlaceOf("mine"); ok {
		t.Errorf("a foreign file is %s", p.Name)
	}
	for name, value := range names(t) {
		if !seen[value] {
			t.Errorf("%s names %q, which has no row in Places", name, value)
		}
	}
}

// names are the constants of places.go that are texts without a type.
func names(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "places.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			spec := s.(*ast.ValueSpec)
			if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING && spec.Type == nil {
				found[spec.Names[0].Name], _ = strconv.Unquote(lit.Value)
			}
		}
	}
	if len(found) < 10 {
		t.Fatalf("only %v were found", found)
	}
	return found
}

// TestDocs compares the table of docs/operations.md with the rows.
func TestDocs(t *testing.T) {
	path := filepath.Join("..", "docs", "operations.md")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const head = "| in the data directory | in the archive | |\n| --- | --- | --- |\n"
	before, rest, ok := bytes.Cut(got, []byte(head))
	if !ok {
		t.Fatalf("docs/operations.md has no table that begins with\n%s", head)
	}
	want := bytes.NewBuffer(slices.Concat(before, []byte(head)))
	byKept := slices.Clone(datadir.Places)
	order := []datadir.Kept{datadir.Always, datadir.WithSecrets, datadir.Never}
	slices.SortStableFunc(byKept, func(a, b datadir.Place) int {
		return cmp.Compare(slices.Index(order, a.Kept), slices.Index(order, b.Kept))
	})
	for _, p := range byKept {
		name, kept, what := p.Name, strings.Replace(string(p.Kept), "--secrets", "`--secrets`", 1), p.What
		if p.Folder {
			name += "/"
		}
		if p.Why != "" {
			what += "; " + p.Why
		}
		fmt.Fprintf(want, "| `%s` | %s | %s |\n", name, kept, what)
	}
	for bytes.HasPrefix(rest, []byte("|")) {
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	want.Write(rest)
	if *update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Fatal("the table of docs/operations.md is not what Places says; run make generate")
	}
}
