package httptool

import (
	"bytes"
	"encoding/xml"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

func parsed(t testing.TB, binding string) *binding {
	t.Helper()
	b, faults := parse(manifest(t, "http://api.example", binding))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return b
}

// FuzzMultipart parses every multipart body with another reader: the parts match the
// arguments, and no text adds a part or header.
func FuzzMultipart(f *testing.F) {
	f.Add("name", "value", "file.txt", "text/plain", `{"a":[1,"b"]}`)
	f.Add("a\"; filename=\"x", "--toolkeep-\r\n", "\"\r\nX: y", "image/*", `[]`)
	f.Add("", "\r\n", "é\\", "", `null`)
	b := parsed(f, `{"method":"POST","server":"SERVER","path":"/","body":{"arg":"body","content_type":"multipart/form-data",
		"encoding":{"file":{"file":true,"headers":{"X-Name":"fixed"}},"styled":{"style":"deepObject"}}}}`)
	f.Fuzz(func(t *testing.T, name, value, fileName, contentType, raw string) {
		v, err := parseTree(raw)
		if err != nil {
			v = raw
		}
		body := map[string]any{name: value, "v": v, "styled": v,
			"file": map[string]any{"text": value, "file_name": fileName, "content_type": contentType}}
		args := map[string]any{"body": body}
		before := canon.Hash(args)
		r, terr := b.build(&toolkeep.Execution{Args: args})
		if canon.Hash(args) != before {
			t.Fatal("the arguments were modified")
		}
		if terr != nil {
			if !terr.NothingSent {
				t.Fatalf("NothingSent is not set: %v", terr)
			}
			return
		}
		media, params, merr := mime.ParseMediaType(r.header.Get("Content-Type"))
		if merr != nil || media != "multipart/form-data" {
			t.Fatalf("%v: %v", r.header, merr)
		}
		in := multipart.NewReader(bytes.NewReader(r.body), params["boundary"])
		texts := map[string][]string{}
		for {
			p, err := in.NextRawPart()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%v in %q", err, r.body)
			}
			data, err := io.ReadAll(p)
			if err != nil {
				t.Fatal(err)
			}
			for h := range p.Header {
				if h != "Content-Disposition" && h != "Content-Type" && h != "X-Name" {
					t.Fatalf("a part has the header %q", h)
				}
			}
			d := p.Header.Get("Content-Disposition")
			if !strings.HasPrefix(d, `form-data; name="`) || strings.Count(d, `"`)%2 != 0 {
				t.Fatalf("disposition %q", d)
			}
			n, _, _ := strings.Cut(strings.TrimPrefix(d, `form-data; name="`), `"`)
			texts[n] = append(texts[n], string(data))
			if n == "file" && p.Header.Get("X-Name") != "fixed" {
				t.Fatalf("X-Name is %q", p.Header.Get("X-Name"))
			}
		}
		quote := strings.ReplaceAll(name, `"`, "%22")
		if name != "v" && name != "styled" && name != "file" && !strings.HasPrefix(quote, "styled") && (len(texts[quote]) != 1 || texts[quote][0] != value) {
			t.Fatalf("%q: %q, want %q", name, texts[quote], value)
		}
		if len(texts["file"]) != 1 || name != "file" && texts["file"][0] != value {
			t.Fatalf("file: %q, want %q", texts["file"], value)
		}
	})
}

// FuzzXML parses every XML body: it is well-formed, has one root, and its texts are
// those of the arguments.
func FuzzXML(f *testing.F) {
	f.Add("name", "a<b&\"'", `{"x":[1,{"y":"z"}]}`)
	f.Add("x y", "]]>", `{"":[[]]}`)
	f.Add("a:b", "\r\n\t", `"\u0000"`)
	b := parsed(f, `{"method":"POST","server":"SERVER","path":"/","body":{"arg":"body","content_type":"application/xml","xml":{"root":"root","type":{"members":[
		{"property":"attr","as":"attribute"},{"property":"cdata","name":"c","as":"element","members":[{"property":"t","as":"text"}]},{"property":"list","wrapped":true,"item":{"name":"item"}}]}}}}`)
	f.Fuzz(func(t *testing.T, name, value, raw string) {
		v, err := parseTree(raw)
		if err != nil {
			v = raw
		}
		body := map[string]any{"attr": value, "cdata": map[string]any{"t": value}, "list": v, "text": value, name: v}
		r, terr := b.build(&toolkeep.Execution{Args: map[string]any{"body": body}})
		if terr != nil {
			if !terr.NothingSent {
				t.Fatalf("NothingSent is not set: %v", terr)
			}
			return
		}
		if !utf8.Valid(r.body) {
			t.Fatalf("no UTF-8: %q", r.body)
		}
		if strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 }) || strings.ContainsFunc(raw, func(r rune) bool { return r >= 0x80 }) || strings.Contains(raw, `\u`) {
			return // names with letters that the reader below does not know
		}
		d := xml.NewDecoder(bytes.NewReader(r.body))
		depth, roots, found := 0, 0, ""
		var path []string
		for {
			tok, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%v in %q", err, r.body)
			}
			switch tok := tok.(type) {
			case xml.StartElement:
				if depth == 0 {
					roots++
					for _, a := range tok.Attr {
						if a.Name.Local != "attr" || name != "attr" && a.Value != value {
							t.Fatalf("attribute %v, want %q", a, value)
						}
					}
				}
				depth++
				path = append(path, tok.Name.Local)
			case xml.EndElement:
				depth--
				path = path[:len(path)-1]
			case xml.CharData:
				if strings.Join(path, "/") == "root/text" {
					found += string(tok)
				}
			case xml.Comment, xml.Directive:
				t.Fatalf("%q holds %v", r.body, tok)
			}
		}
		if roots != 1 || name != "text" && name != "" && found != value {
			t.Fatalf("%d roots, text %q, want %q in %q", roots, found, value, r.body)
		}
	})
}

// FuzzTemplate compiles any template and fills in any argument: the result is a request
// whose JSON body has the template's members, or an error.
func FuzzTemplate(f *testing.F) {
	f.Add("{{a}}", "x", `"y"`)
	f.Add("{{a?}} {{{{ }} {{b", "\r\n", `{"b":1}`)
	f.Add("/{{a}}.{{a}}", "..", `[1]`)
	f.Fuzz(func(t *testing.T, template, text, raw string) {
		v, err := parseTree(raw)
		if err != nil {
			v = text
		}
		body := canon.Append(nil, map[string]any{"fixed": true, "t": template, "list": []any{template}})
		doc := `{"method":"POST","server":"SERVER","template":{"path":` + string(canon.Append(nil, "/p/"+template)) + `,"query":{"q":` + string(canon.Append(nil, template)) +
			`},"headers":{"X-T":` + string(canon.Append(nil, template)) + `},"body":` + string(body) + `}}`
		b, faults := parse(manifest(t, "http://api.example", doc))
		if len(faults) > 0 {
			return
		}
		r, terr := b.build(&toolkeep.Execution{Args: map[string]any{"a": text, "b": v}})
		if terr != nil {
			if !terr.NothingSent {
				t.Fatalf("NothingSent is not set: %v", terr)
			}
			return
		}
		u, perr := url.Parse(r.url.String())
		if perr != nil || u.Host != "api.example" || u.Fragment != "" || !strings.HasPrefix(u.EscapedPath(), "/p/") {
			t.Fatalf("%q leads to %s (%v)", template, r.url, perr)
		}
		for h, values := range r.header {
			if !validHeaderValue(values[0]) || http.CanonicalHeaderKey(h) != h {
				t.Fatalf("the header %q: %q", h, values)
			}
		}
		got, perr := canon.ParseObject(r.body, canon.Limits{})
		if perr != nil || got["fixed"] != true || len(got) > 3 {
			t.Fatalf("%q makes the body %s (%v)", template, r.body, perr)
		}
	})
}
