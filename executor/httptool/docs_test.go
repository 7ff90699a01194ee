package httptool

import (
	"os"
	"strings"
	"testing"
)

// TestDocs: every binding of docs/http-tools.md passes Check, and the XML example is
// sent as the page says.
func TestDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/http-tools.md")
	if err != nil {
		t.Fatal(err)
	}
	base, last := rawServer(t)
	e := newExecutor(t)
	blocks := strings.Split(string(page), "```json\n")[1:]
	if len(blocks) < 8 {
		t.Fatalf("%d bindings were found", len(blocks))
	}
	for _, b := range blocks {
		b, _, _ = strings.Cut(b, "```")
		if faults := e.Check(manifest(t, "", b)); len(faults) > 0 {
			t.Errorf("%s\n%+v", b, faults)
		}
		if !strings.Contains(b, `"xml"`) {
			continue
		}
		m := manifest(t, base, strings.Replace(b, "https://api.example.com", base, 1))
		_, rest, _ := strings.Cut(string(page), "```\n\n`{\"id\":1,")
		value, rest, _ := strings.Cut(rest, "`")
		_, rest, _ = strings.Cut(rest, "`")
		want, _, _ := strings.Cut(rest, "`")
		if _, err := execute(t, e, m, `{"book":{"id":1,`+value+`}`); err != nil || bodyOf(last()) != xmlHead+want {
			t.Errorf("%q, the page says %q (%v)", bodyOf(last()), want, err)
		}
	}
}
