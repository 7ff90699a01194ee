package mcpserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadSets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sets.yaml")
	for _, c := range []struct{ text, says string }{
		{"", ""},
		{"shop:\n  title: Shop\n  tools: [shop.*]\n  tags:\n", ""},
		{"- a", "must map the names"},
		{"Shop: {tools: [a.b]}", `the name "Shop"`},
		{"shop: {tools: [a.b]}\nshop: {tools: [a.b]}", `line 2, column 1: the key "shop" stands twice`},
		{"shop:", "names no tools"},
		{"shop: {tools: []}", "names no tools"},
		{"shop:\n  tols: [a.b]", `"tols" within "/shop"`},
		{"shop: {title: 5}", `"/shop/title"`},
		{"shop: {tools: a.b}", `"/shop/tools"`},
		{"shop: {tags: [1.0]}", `"/shop/tags/0"`},
		{"shop: {tools: ['[']}", "is not a pattern"},
		{"shop: [", "line "},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		sets, err := ReadSets(path)
		switch {
		case c.says == "" && err != nil, c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%q: %v", c.text, err)
		case c.says == "" && c.text != "" && (sets["shop"].Title != "Shop" || sets["shop"].Tools[0] != "shop.*"):
			t.Errorf("%+v", sets["shop"])
		}
	}
}
