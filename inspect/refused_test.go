//go:build !race

package inspect_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/inspect"
)

func TestKindsRefuse(t *testing.T) {
	const xmlType, csvType = "application/xml", "text/csv"
	many := func(s string, n int) string { return strings.Repeat(s, n) }
	for _, c := range []struct {
		name, contentType, body string
		code                    toolkeep.Code
	}{
		{"XML with a DTD", xmlType, `<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>`, toolkeep.UnsafeXML},
		{"XML with an external entity", xmlType, `<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>`, toolkeep.UnsafeXML},
		{"XML with a DTD of names alone", "text/xml", `<!DOCTYPE a><a/>`, toolkeep.UnsafeXML},
		{"XML that laughs", xmlType, `<!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><l>&b;</l>`, toolkeep.UnsafeXML},
		{"XML with a DTD in utf-16", xmlType, "\xff\xfe" + wide(`<!DOCTYPE a [<!ENTITY x SYSTEM "x">]><a/>`), toolkeep.UnsafeXML},
		{"XML with an entity of HTML", xmlType, `<a>&nbsp;</a>`, toolkeep.InvalidResponse},
		{"XML cut off", xmlType, `<a><b>`, toolkeep.InvalidResponse},
		{"XML crossed", xmlType, `<a><b></a></b>`, toolkeep.InvalidResponse},
		{"XML with two roots", xmlType, `<a/><b/>`, toolkeep.InvalidResponse},
		{"XML with text behind", xmlType, `<a/>x`, toolkeep.InvalidResponse},
		{"XML without root", xmlType, `<!-- -->`, toolkeep.InvalidResponse},
		{"XML that is JSON", "application/atom+xml", `{"a":1}`, toolkeep.InvalidResponse},
		{"XML that is deep", xmlType, many("<a>", 257) + many("</a>", 257), toolkeep.InvalidResponse},
		{"XML of an element with many attributes", xmlType, "<a" + many(` b=""`, 20_001) + "/>", toolkeep.InvalidResponse},
		{"XML with many elements", xmlType, "<a>" + many("<b/>", 2_000_000) + "</a>", toolkeep.ResultTooLarge},
		{"CSV with a longer row", csvType, "a\n1,2\n", toolkeep.InvalidResponse},
		{"CSV with a quote", csvType, "a,b\nx\"y,2\n", toolkeep.InvalidResponse},
		{"CSV with a quote left open", csvType, "a\n\"x", toolkeep.InvalidResponse},
		{"CSV with many fields", csvType, "a\n" + many("1\n", 1_000_001), toolkeep.ResultTooLarge},
		{"lines with a broken one", "application/x-ndjson", "1\n{\n", toolkeep.InvalidResponse},
		{"lines with two in one", "application/x-ndjson", "1 2\n", toolkeep.InvalidResponse},
		{"lines with many values", "application/x-ndjson", many("[1,2,3]\n", 500_001), toolkeep.ResultTooLarge},
		{"sequence that is none", "application/json-seq", "\x1e{", toolkeep.InvalidResponse},
		{"HTML to break readers", "text/html", many("<div hidden>", 600), toolkeep.UnsafeHTML},
		{"JSON with many values", "application/json", "[" + many("1,", 2_000_000) + "1]", toolkeep.ResultTooLarge},
		{"JSON with a number that is too long", "application/json", "[" + many("1", 2000) + "]", toolkeep.InvalidResponse},
		{"JSON that is HTML", "application/json", "<html>", toolkeep.InvalidResponse},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := inspect.New(inspect.Config{}).Inspect(tool(nil, ""), body(c.contentType, c.body), nil)
			var e *toolkeep.Error
			if !errors.As(err, &e) || e.Code != c.code {
				t.Fatalf("error = %v, want %s", err, c.code)
			}
			if strings.Contains(e.Message, "passwd") || strings.Contains(e.Message, "nbsp") {
				t.Errorf("the message quotes the body: %s", e.Message)
			}
		})
	}
}

// wide encodes ASCII as little-endian UTF-16.
func wide(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteByte(s[i])
		b.WriteByte(0)
	}
	return b.String()
}
