package toolkeep_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// prose lists the code that may interpret human-readable text, by file and expression,
// with the reason why there is no field or type to use instead.
var prose = map[string]string{
	"files.go Error":      "os.Root has no error of its own for a path that escapes it",
	"schema.go err.Error": "pgconn has no type for a server that refuses TLS",
	"tls.go err.Error":    "alerts and some refusals of crypto/tls have no type",
}

// TestNothingIsDecidedByProse finds code that inspects a reason, a message or an
// error's text: decisions need a field with a closed set of values.
func TestNothingIsDecidedByProse(t *testing.T) {
	eachSource(t, func(path string, at func(ast.Node) token.Position, n ast.Node) {
		if text := readProse(n); text != "" && prose[filepath.Base(path)+" "+text] == "" {
			t.Errorf("%s: %s is read to decide something; make it a field with a closed set of values", at(n), text)
		}
	})
}

// eachSource visits every node of the product's source files, with the file's path and the position of a node.
func eachSource(t *testing.T, visit func(path string, at func(ast.Node) token.Position, n ast.Node)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "tools" || d.Name() == "bench" || strings.HasPrefix(d.Name(), ".") && path != ".") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		at := func(n ast.Node) token.Position { return files.Position(n.Pos()) }
		ast.Inspect(file, func(n ast.Node) bool {
			if n != nil {
				visit(filepath.ToSlash(path), at, n)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readProse returns the human-readable text that a call of package strings, or a
// comparison with several words, inspects.
func readProse(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || len(n.Args) == 0 {
			return ""
		}
		if pkg, ok := f.X.(*ast.Ident); !ok || pkg.Name != "strings" {
			return ""
		}
		switch f.Sel.Name {
		case "HasPrefix", "HasSuffix", "Contains", "ContainsAny", "Index", "EqualFold":
			return proseOf(n.Args[0])
		}
	case *ast.BinaryExpr:
		if lit, ok := n.Y.(*ast.BasicLit); ok && strings.Contains(lit.Value, " ") && (n.Op == token.EQL || n.Op == token.NEQ) {
			return proseOf(n.X)
		}
	}
	return ""
}

func proseOf(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok {
		e = call.Fun
		if f, ok := e.(*ast.SelectorExpr); !ok || f.Sel.Name != "Error" {
			return ""
		}
	}
	f, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	switch f.Sel.Name {
	case "Reason", "Why", "Message", "Error":
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return f.Sel.Name
	}
	return ""
}
