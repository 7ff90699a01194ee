package inspect_test

import (
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/inspect"
)

func TestKinds(t *testing.T) {
	const (
		xmlType  = "application/xml"
		csvType  = "text/csv"
		tsvType  = "text/tab-separated-values"
		htmlType = "text/html"
		lines    = "application/x-ndjson"
		sequence = "application/json-seq"
	)
	latin := "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>caf\xe9</a>"
	for _, c := range []struct{ name, contentType, body, want string }{
		{"XML text", xmlType, `<a>x &amp; &#233; <![CDATA[<y>]]></a>`, `{"a":"x & é <y>"}`},
		{"XML empty", xmlType, "\ufeff<?xml version='1.0'?>\n<!-- c --><a></a>\n", `{"a":""}`},
		{"XML attributes", xmlType, `<a id="1" x:lang="de" xmlns="urn:a" xmlns:x="urn:x"/>`, `{"a":{"@id":"1","@lang":"de"}}`},
		{"XML children", xmlType, `<a><b>1</b><c/><b><d>2</d></b><b/></a>`, `{"a":{"b":["1",{"d":"2"},""],"c":""}}`},
		{"XML mixed", xmlType, `<a k="v"> one <b>two</b> three </a>`, `{"a":{"#text":"one  three","@k":"v","b":"two"}}`},
		{"XML prefixes", xmlType, `<s:E xmlns:s="urn:s"><s:B><x xmlns="urn:x">1</x></s:B></s:E>`, `{"E":{"B":{"x":"1"}}}`},
		{"XML named as text", xmlType, `<a><b/>t<c at="1"/></a>`, `{"a":{"#text":"t","b":"","c":{"@at":"1"}}}`},
		{"XML by its declaration", xmlType, latin, `{"a":"café"}`},
		{"XML by its type", xmlType + "; charset=utf-8", `<?xml version="1.0" encoding="ISO-8859-1"?><a>é</a>`, `{"a":"é"}`},
		{"XML by its mark", "text/xml", "\xff\xfe<\x00a\x00>\x00\xe9\x00<\x00/\x00a\x00>\x00", `{"a":"é"}`},
		{"XML of the documentation", xmlType, `<order id="7"><item>bread</item><item n="2">milk</item><note/></order>`,
			`{"order":{"@id":"7","item":["bread",{"#text":"milk","@n":"2"}],"note":""}}`},
		{"a drawing is text", "image/svg+xml", `<svg/>`, `"<svg/>"`},

		{"CSV", csvType, "id,name\r\n1,\"Ann, \"\"A\"\"\"\r\n2,\"two\nlines\"\n", `[{"id":"1","name":"Ann, \"A\""},{"id":"2","name":"two\nlines"}]`},
		{"CSV headers alone", csvType, "id,name\n", `[]`},
		{"CSV short row", csvType, "a,b,c\n1,2\n", `[{"a":"1","b":"2"}]`},
		{"CSV names", csvType, "\ufeffa,,a,a\n1,2,3,4\n", `[{"a":"1","a (3)":"3","a (4)":"4","column 2":"2"}]`},
		{"CSV without header", csvType + "; header=absent", "1,2\n3\n", `[["1","2"],["3"]]`},
		{"CSV in windows-1252", csvType + "; charset=windows-1252", "a\n\x80\n", `[{"a":"€"}]`},
		{"CSV in Shift JIS", csvType + "; charset=Shift_JIS", "a\n\x93\xfa\n", `[{"a":"日"}]`},
		{"TSV", tsvType, "a\tb\r\n\"1\t2\n\n", `[{"a":"\"1","b":"2"}]`},

		{"lines", lines, "{\"a\":1.50}\r\n\n[2]\n3", `[{"a":1.50},[2],3]`},
		{"lines in utf-16", lines + "; charset=utf-16le", "1\x00\n\x002\x00", `[1,2]`},
		{"sequence", sequence, "\x1e{\"a\":1}\n\x1e\x1e2\n", `[{"a":1},2]`},

		{"HTML", htmlType, "<!DOCTYPE html><html><head><title>T &amp; U</title><script>alert('<p>')</script></head>\n <body onload=x()><h1 class=c>Hi\n\n  there</h1><!-- ignore --><p>1 &lt; 2</body></html>",
			`"<title>T &amp; U</title>\n<h1>Hi\nthere</h1><p>1 &lt; 2"`},
		{"HTML links", htmlType, `<a href="https://x.example/?a=1&amp;b=2" onclick="x()" title='"q"'>l</a><a href="javascript:x()">j</a><a href=" JAVAscript:x">k</a><img src="data:x" alt="A"><img src=/i.png><a href="java&#10;script:x()">n</a>`,
			`"<a href=\"https://x.example/?a=1&amp;b=2\" title=\"&quot;q&quot;\">l</a><a>j</a><a>k</a><img alt=\"A\"><img src=\"/i.png\"><a>n</a>"`},
		{"HTML hidden", htmlType, `a<div style="color: red; display : none">x<div>y</div>z</div>b<p hidden>c<p>d<span aria-hidden="true">e</span>f<li hidden>g<li>h`,
			`"ab<p>df<li>h"`},
		{"HTML dropped", htmlType, `a<svg><a href="x">b</a><svg></svg></svg>c<iframe src=x>d</iframe><object><object>e</object></object>f<style>p{}</style><noscript><b>g</b></noscript><math><mi>h</math>i<input value=j>k<template>l</template>`,
			`"acfik"`},
		{"HTML that stays", htmlType, "<table><tr><td colspan=2 bgcolor=red>a<pre>  b\n\n c</pre></table><unknown x=y>d</unknown></p>", `"<table><tr><td colspan=\"2\">a<pre>  b\n\n c</pre></table>d</p>"`},
		{"HTML broken", htmlType, `<scr<script>ipt>x</script>y<<b>z<a href="`, `"ipt&gt;xy&lt;<b>z"`},
		{"XHTML", "application/xhtml+xml", `<!DOCTYPE html PUBLIC "x" "y"><p/>a`, `"<p>a"`},
		{"HTML without a charset", htmlType, "<meta charset=iso-8859-2><p>\xb3", `"<p>ł"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := inspect.New(inspect.Config{}).Inspect(tool(&toolkeep.ResultSpec{HTML: "markup"}, ""), body(c.contentType, c.body), nil)
			if err != nil {
				t.Fatal(err)
			}
			got.Warnings = slices.DeleteFunc(got.Warnings, func(w toolkeep.Warning) bool { return w.Code == toolkeep.UnsafeHTML })
			if string(got.Output) != c.want || len(got.Warnings) != 0 {
				t.Errorf("got  %s %v\nwant %s", got.Output, got.Warnings, c.want)
			}
		})
	}
}

func TestAttached(t *testing.T) {
	i := inspect.New(inspect.Config{})
	long := strings.Repeat("\x00\xff", 4096)
	for _, c := range []struct {
		name     string
		spec     *toolkeep.ResultSpec
		schema   string
		body     string
		want     string
		attached bool
	}{
		{"short", nil, "", "\x00\xff", `{"base64":"AP8=","bytes":2,"content_type":"image/png"}`, true},
		{"long", nil, "", long, `{"bytes":8192,"content_type":"image/png"}`, true},
		{"long with a schema", nil, `{"required":["base64"]}`, long, `{"bytes":8192,"content_type":"image/png"}`, true},
		{"transformed", &toolkeep.ResultSpec{Transform: `.base64 | length`}, "", long, `10924`, false},
		{"hidden", &toolkeep.ResultSpec{SensitiveFields: []string{"/base64"}}, "", long, `{"base64":"[REDACTED]","bytes":8192,"content_type":"image/png"}`, false},
		{"with a secret", nil, "", "hunter22" + long, `{"bytes":8202,"content_type":"image/png"}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := i.Inspect(tool(c.spec, c.schema), body("image/png", c.body), textCleaner{"hunter22"})
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Output) != c.want || got.Attached != c.attached || got.Truncated {
				t.Errorf("got %s, attached %t", got.Output, got.Attached)
			}
			want := strings.ReplaceAll(c.body, "hunter22", "[REDACTED]")
			if c.attached && (string(got.Whole) != want || got.ContentType != "image/png") || !c.attached && got.Whole != nil {
				t.Errorf("%d bytes of %s are attached", len(got.Whole), got.ContentType)
			}
		})
	}
}

func TestWarningsOfTheExecutor(t *testing.T) {
	o := value(t, `[1]`)
	o.Warnings = []toolkeep.Warning{{Code: toolkeep.ResultTooLarge, Message: "cut"}}
	got, err := inspect.New(inspect.Config{}).Inspect(tool(nil, ""), o, nil)
	if err != nil || len(got.Warnings) != 1 || got.Warnings[0].Message != "cut" {
		t.Errorf("%+v, %v", got, err)
	}
}

// fuzzKind feeds bodies of one type: the outcome is JSON or a result error.
func fuzzKind(f *testing.F, contentType string, check func(t *testing.T, in string, out any)) {
	i := inspect.New(inspect.Config{HardBytes: 1 << 20})
	f.Fuzz(func(t *testing.T, in string) {
		got, err := i.Inspect(tool(nil, ""), body(contentType, in), nil)
		if err != nil {
			if e := toolkeep.AsError(err); e.Code.Info().Kind != toolkeep.KindResult {
				t.Fatal(err)
			}
			return
		}
		if err := canon.Check(got.Value, 1000); err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		check(t, in, got.Value)
	})
}

func FuzzXML(f *testing.F) {
	for _, s := range []string{`<a/>`, `<a x="1"><b>t</b>u<b/></a>`, `<!DOCTYPE a><a/>`, `<?xml version="1.0" encoding="latin1"?><a>` + "\xe9</a>", `<a:b xmlns:a="c"><![CDATA[x]]></a:b>`} {
		f.Add(s)
	}
	fuzzKind(f, "application/xml; charset=utf-8", func(t *testing.T, in string, out any) {
		if in == "" {
			return
		}
		if strings.Contains(in, "<!DOCTYPE") && !strings.Contains(in, "<![CDATA[") && !strings.Contains(in, "<!--") && !strings.Contains(in, "<?") {
			t.Fatalf("%q: a DTD was read", in)
		}
		root, ok := out.(map[string]any)
		if !ok || len(root) != 1 {
			t.Fatalf("%q gives %v", in, out)
		}
		if err := xml.Unmarshal([]byte(strings.TrimPrefix(in, "\ufeff")), new(struct{})); err != nil && !strings.Contains(in, "encoding") {
			t.Fatalf("%q: %v", in, err)
		}
	})
}

func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "a,a,\n\"x\ny\",2\r\n", "\ufeffa\n\n\"\"\"\"\n", "a\n1,2"} {
		f.Add(s)
	}
	fuzzKind(f, "text/csv", func(t *testing.T, in string, out any) {
		rows, ok := out.([]any)
		if in != "" && (!ok || len(rows) > strings.Count(in, "\n")) {
			t.Fatalf("%q gives %v", in, out)
		}
	})
}

func FuzzHTML(f *testing.F) {
	for _, s := range []string{`<p onclick=x>a<script>b</script>`, `<a href="javascript:x">`, `<svg><style><img src=x onerror=y></style></svg>`, `<div hidden><p>x</div>`, `&lt;script&gt;`, `<!--><img src=x onerror=y>-->`} {
		f.Add(s)
	}
	i := inspect.New(inspect.Config{})
	fuzzKind(f, "text/html; charset=utf-8", func(t *testing.T, in string, out any) {
		s, _ := out.(string)
		lower := strings.ToLower(s)
		for _, bad := range []string{"<script", "<style", "<iframe", "<svg", "<!--", "<input", "<object", "<math"} {
			if strings.Contains(lower, bad) {
				t.Fatalf("%q gives %q", in, s)
			}
		}
		// Cleaning clean output is idempotent for anything that runs or loads.
		again, err := i.Inspect(tool(nil, ""), body("text/html; charset=utf-8", s), nil)
		if err != nil {
			t.Fatal(err)
		}
		if second, _ := again.Value.(string); second != s && len(strings.Join(strings.Fields(second), "")) != len(strings.Join(strings.Fields(s), "")) {
			t.Fatalf("%q gives %q, and that %q", in, s, second)
		}
	})
}

// FuzzSVG looks for drawings that are given without a word although a plain search finds what runs in them.
func FuzzSVG(f *testing.F) {
	for _, s := range []string{`<svg/>`, `<!DOCTYPE svg SYSTEM "http://x/y.dtd"><svg/>`, `<svg><SCRIPT>x</svg>`, `<svg><a:script xmlns:a="b"/>`, `<svg onload=x>`,
		`<?xml version="1.1"?><svg onload="x"/>`, `<svg><set attributeName='href' to='javascript:x'/></svg>`, `<svg><![CDATA[<script>]]><!-- <script> --></svg>`} {
		f.Add(s)
	}
	i := inspect.New(inspect.Config{HardBytes: 1 << 20})
	runs := regexp.MustCompile(`(?i)<([\w-]+:)?(script|iframe|foreignobject)[\s/>]|<[\w:-]+\s+([\w-]+:)?(href|base)\s*=\s*["']\s*javascript:|<!(entity|doctype[^>]+(file:|[[]))`)
	f.Fuzz(func(t *testing.T, in string) {
		got, err := i.Inspect(tool(&toolkeep.ResultSpec{HTML: "reject"}, ""), body("image/svg+xml; charset=utf-8", in), nil)
		if err != nil {
			if !toolkeep.IsCode(err, toolkeep.UnsafeHTML) && !toolkeep.IsCode(err, toolkeep.UnsafeXML) {
				t.Fatal(err)
			}
			return
		}
		// Behind these, markup is text.
		if !strings.Contains(in, "<!--") && !strings.Contains(in, "<![") && !strings.Contains(in, "<?") && runs.MatchString(in) {
			t.Fatalf("%q is given: %+v", in, got)
		}
	})
}

func FuzzLines(f *testing.F) {
	for _, s := range []string{"1\n2\n", "{\"a\":1}\r\n\n[2]", "1 2\n"} {
		f.Add(s)
	}
	fuzzKind(f, "application/x-ndjson", func(t *testing.T, in string, out any) {
		if list, ok := out.([]any); in != "" && (!ok || len(list) > strings.Count(in, "\n")+1) {
			t.Fatalf("%q gives %v", in, out)
		}
	})
}

func BenchmarkKinds(b *testing.B) {
	var table, page strings.Builder
	table.WriteString("id,name,price\n")
	page.WriteString("<list>")
	for n := range 1000 {
		fmt.Fprintf(&table, "%d,\"name %d\",%d.50\n", n, n, n)
		fmt.Fprintf(&page, `<item id="%d"><name>name %d</name><price>%d.50</price></item>`, n, n, n)
	}
	page.WriteString("</list>")
	i := inspect.New(inspect.Config{})
	for name, o := range map[string]*toolkeep.Output{
		"xml": body("application/xml", page.String()), "csv": body("text/csv", table.String()), "html": body("text/html", page.String()),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(o.Body)))
			for b.Loop() {
				if _, err := i.Inspect(tool(nil, ""), o, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
