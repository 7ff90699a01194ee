package toolkeep_test

import (
	"go/ast"
	"go/token"
	"path"
	"strings"
	"testing"
)

// TestDataDirectory finds code that names a place in the data directory itself: its name
// is a constant of package datadir, which has a row for each.
func TestDataDirectory(t *testing.T) {
	found := 0
	eachSource(t, func(file string, at func(ast.Node) token.Position, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || path.Dir(file) == "datadir" || len(call.Args) < 2 || nameOf(call.Fun) != "filepath.Join" {
			return
		}
		first := nameOf(call.Args[0])
		if first = first[strings.LastIndex(first, ".")+1:]; !strings.EqualFold(first, "data") {
			return
		}
		found++
		if second := nameOf(call.Args[1]); !strings.HasPrefix(second, "datadir.") && second != "p.Name" {
			t.Errorf("%s: a place in the data directory is named here; give it a row in datadir/places.go and use its constant", at(call))
		}
	})
	if found < 10 {
		t.Errorf("only %d places were found; the search is broken", found)
	}
}

// nameOf writes an identifier or a selector, "" for anything else.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return nameOf(e.X) + "." + e.Sel.Name
	}
	return ""
}
