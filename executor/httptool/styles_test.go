package httptool

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
)

// rawServer answers every request with {} and records its raw bytes.
func rawServer(t testing.TB) (base string, last func() string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := ""
	conns := map[net.Conn]bool{}
	serve := func(c net.Conn) {
		defer wg.Done()
		defer c.Close()
		var raw bytes.Buffer
		in := bufio.NewReader(io.TeeReader(c, &raw))
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			mu.Lock()
			seen = raw.String()
			mu.Unlock()
			raw.Reset()
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}
	}
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns[c] = true
			wg.Add(1)
			mu.Unlock()
			go serve(c)
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + l.Addr().String(), func() string { mu.Lock(); defer mu.Unlock(); return seen }
}

// target returns the target in the request's first line.
func target(raw string) string {
	line, _, _ := strings.Cut(raw, "\r\n")
	_, rest, _ := strings.Cut(line, " ")
	return strings.TrimSuffix(rest, " HTTP/1.1")
}

// headerLine returns one header of the raw request, or "".
func headerLine(raw, name string) string {
	head, _, _ := strings.Cut(raw, "\r\n\r\n")
	for line := range strings.SplitSeq(head, "\r\n") {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			return v
		}
	}
	return ""
}

func bodyOf(raw string) string {
	_, body, _ := strings.Cut(raw, "\r\n\r\n")
	return body
}

// imported reads a document and returns its tools by operationId.
func imported(t testing.TB, base, document string) map[string]*toolkeep.Manifest {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.yaml")
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	plan, err := openapi.Read(t.Context(), openapi.Options{Location: path, Namespace: "test", Server: base})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range plan.Refused {
		t.Errorf("refused: %+v", r)
	}
	tools := map[string]*toolkeep.Manifest{}
	e := newExecutor(t)
	for _, p := range plan.Tools {
		m := new(toolkeep.Manifest)
		if err := xjson.Unmarshal(p.Manifest, m); err != nil {
			t.Fatal(err)
		}
		for _, f := range e.Check(m) {
			t.Errorf("%s: %+v", p.Name, f)
		}
		tools[p.OperationID] = m
	}
	return tools
}

// The tables of OpenAPI 3.0.4, 3.1.1 and 3.2.0, "Style Examples", for a parameter named
// color. The object's members are A, B, C instead of R, G, B: they are sent sorted by
// name, which is then the tables' order. The column "empty" is the empty string, as in
// the tables of 3.0.3 and 3.1.0; their undefined value is an absent argument, which
// sends nothing, except in a path, where it is required. E is a refusal with E3320:
// "n/a" in the tables.
//
// Where the tables say n/a for a plain value or an exploded list in spaceDelimited and
// pipeDelimited, it is sent as in form, as earlier tables and all importers of them do.
const styleTable = `
in     style          explode empty           string       array                                 object
path   matrix         false   ;color          ;color=blue  ;color=blue,black,brown               ;color=A,100,B,200,C,150
path   matrix         true    ;color          ;color=blue  ;color=blue;color=black;color=brown   ;A=100;B=200;C=150
path   label          false   E               .blue        .blue,black,brown                     .A,100,B,200,C,150
path   label          true    E               .blue        .blue.black.brown                     .A=100.B=200.C=150
path   simple         false   E               blue         blue,black,brown                      A,100,B,200,C,150
path   simple         true    E               blue         blue,black,brown                      A=100,B=200,C=150
header simple         false   -               blue         blue,black,brown                      A,100,B,200,C,150
header simple         true    -               blue         blue,black,brown                      A=100,B=200,C=150
query  form           false   ?color=         ?color=blue  ?color=blue,black,brown               ?color=A,100,B,200,C,150
query  form           true    ?color=         ?color=blue  ?color=blue&color=black&color=brown   ?A=100&B=200&C=150
query  spaceDelimited false   ?color=         ?color=blue  ?color=blue%20black%20brown           ?color=A%20100%20B%20200%20C%20150
query  spaceDelimited true    ?color=         ?color=blue  ?color=blue&color=black&color=brown   ?A=100&B=200&C=150
query  pipeDelimited  false   ?color=         ?color=blue  ?color=blue%7Cblack%7Cbrown           ?color=A%7C100%7CB%7C200%7CC%7C150
query  pipeDelimited  true    ?color=         ?color=blue  ?color=blue&color=black&color=brown   ?A=100&B=200&C=150
query  deepObject     true    ?color=         ?color=blue  ?color%5B0%5D=blue&color%5B1%5D=black&color%5B2%5D=brown ?color%5BA%5D=100&color%5BB%5D=200&color%5BC%5D=150
cookie form           false   color=          color=blue   color=blue,black,brown                color=A,100,B,200,C,150
cookie form           true    color=          color=blue   color=blue;•color=black;•color=brown  A=100;•B=200;•C=150
cookie cookie         false   color=          color=blue   color=blue,black,brown                color=A,100,B,200,C,150
cookie cookie         true    color=          color=blue   color=blue;•color=black;•color=brown  A=100;•B=200;•C=150
`

// TestStyleTables imports a document with every style and compares the requests with
// the tables.
func TestStyleTables(t *testing.T) {
	base, last := rawServer(t)
	values := map[string]string{"empty": `{"color":""}`, "string": `{"color":"blue"}`,
		"array": `{"color":["blue","black","brown"]}`, "object": `{"color":{"A":100,"B":200,"C":150}}`}
	columns := []string{"empty", "string", "array", "object"}
	for _, version := range []string{"3.0.4", "3.1.1", "3.2.0"} {
		doc := "openapi: " + version + "\ninfo: {title: Styles, version: '1'}\npaths:\n"
		var rows [][]string
		for line := range strings.Lines(styleTable) {
			row := strings.Fields(line)
			if len(row) == 0 || row[0] == "in" || row[1] == "cookie" && version != "3.2.0" {
				continue
			}
			path := fmt.Sprintf("/r%d", len(rows))
			if row[0] == "path" {
				path += "/{color}"
			}
			doc += fmt.Sprintf("  %s: {get: {operationId: r%d, responses: {200: {description: ok}}, parameters: [{name: color, in: %s, required: %t, style: %s, explode: %s, schema: {}}]}}\n",
				path, len(rows), row[0], row[0] == "path", row[1], row[2])
			rows = append(rows, row)
		}
		tools := imported(t, base, doc)
		e := newExecutor(t)
		for i, row := range rows {
			m := tools["r"+strconv.Itoa(i)]
			send := func(a string) string {
				if _, err := execute(t, e, m, a); err != nil {
					if err.Code != toolkeep.UnsafeArgument || !err.NothingSent {
						return err.Error()
					}
					return "E"
				}
				raw, where := last(), "/r"+strconv.Itoa(i)
				switch row[0] {
				case "path":
					return strings.TrimPrefix(target(raw), where+"/")
				case "query":
					return strings.TrimPrefix(target(raw), where)
				case "cookie":
					return headerLine(raw, "Cookie")
				}
				return headerLine(raw, "Color")
			}
			for c, column := range columns {
				want := strings.ReplaceAll(row[3+c], "•", " ")
				if want == "-" {
					want = ""
				}
				if got := send(values[column]); got != want {
					t.Errorf("%s: %s %s explode %s, %s: got %s, want %s", version, row[0], row[1], row[2], column, got, want)
				}
			}
			if row[0] != "path" {
				if got := send(`{}`); got != "" {
					t.Errorf("%s: %s %s undefined: got %s", version, row[0], row[1], got)
				}
			}
		}
	}
}

// The collection formats of Swagger 2.0 in every applicable place, for a list with no,
// one and three elements.
const collectionTable = `
in       format none one  three
path     -      E    a    a,b,c
path     csv    E    a    a,b,c
path     ssv    E    a    a%20b%20c
path     tsv    E    a    a%09b%09c
path     pipes  E    a    a%7Cb%7Cc
query    -      -    ?color=a  ?color=a,b,c
query    csv    -    ?color=a  ?color=a,b,c
query    ssv    -    ?color=a  ?color=a%20b%20c
query    tsv    -    ?color=a  ?color=a%09b%09c
query    pipes  -    ?color=a  ?color=a%7Cb%7Cc
query    multi  -    ?color=a  ?color=a&color=b&color=c
header   -      -    a    a,b,c
header   csv    -    a    a,b,c
header   ssv    -    a    a•b•c
header   tsv    -    a    a→b→c
header   pipes  -    a    a|b|c
formData -      -    color=a  color=a,b,c
formData csv    -    color=a  color=a,b,c
formData ssv    -    color=a  color=a+b+c
formData tsv    -    color=a  color=a%09b%09c
formData pipes  -    color=a  color=a%7Cb%7Cc
formData multi  -    color=a  color=a&color=b&color=c
`

func TestCollectionFormats(t *testing.T) {
	base, last := rawServer(t)
	doc := "swagger: '2.0'\ninfo: {title: Collections, version: '1'}\npaths:\n"
	var rows [][]string
	for line := range strings.Lines(collectionTable) {
		row := strings.Fields(line)
		if len(row) == 0 || row[0] == "in" {
			continue
		}
		format, path := "", fmt.Sprintf("/r%d", len(rows))
		if row[1] != "-" {
			format = ", collectionFormat: " + row[1]
		}
		if row[0] == "path" {
			path += "/{color}"
		}
		doc += fmt.Sprintf("  %s: {post: {operationId: r%d, consumes: [application/x-www-form-urlencoded], responses: {200: {description: ok}}, parameters: [{name: color, in: %s, required: %t, type: array, items: {type: string}%s}]}}\n",
			path, len(rows), row[0], row[0] == "path", format)
		rows = append(rows, row)
	}
	tools := imported(t, base, doc)
	e := newExecutor(t)
	for i, row := range rows {
		m := tools["r"+strconv.Itoa(i)]
		for c, value := range []string{`[]`, `["a"]`, `["a","b","c"]`} {
			want := strings.NewReplacer("•", " ", "→", "\t").Replace(row[2+c])
			if want == "-" {
				want = ""
			}
			a := `{"color":` + value + `}`
			if row[0] == "formData" {
				a = `{"body":` + a + `}`
			}
			got := "E"
			if _, err := execute(t, e, m, a); err == nil {
				raw, where := last(), "/r"+strconv.Itoa(i)
				switch row[0] {
				case "path":
					got = strings.TrimPrefix(target(raw), where+"/")
				case "query":
					got = strings.TrimPrefix(target(raw), where)
				case "formData":
					got = bodyOf(raw)
				default:
					got = headerLine(raw, "Color")
				}
			} else if err.Code != toolkeep.UnsafeArgument {
				t.Error(err)
			}
			if got != want {
				t.Errorf("%s %s %s: got %q, want %q", row[0], row[1], value, got, want)
			}
		}
	}
}

// TestDelimiters sends elements that contain a delimiter: if percent-encoding
// distinguishes it, it is encoded, otherwise refused.
func TestDelimiters(t *testing.T) {
	tests := []struct {
		param parameter
		value string
		want  string
	}{
		{parameter{in: "query", style: "form"}, `["a,b","c"]`, "color=a%2Cb,c"},
		{parameter{in: "query", style: "form", allowReserved: true}, `["a,b/","c"]`, "color=a%2Cb/,c"},
		{parameter{in: "query", style: "form", allowReserved: true, explode: true}, `["a,b"]`, "color=a,b"},
		{parameter{in: "query", style: "form"}, `{"a,b":"c,d"}`, "color=a%2Cb,c%2Cd"},
		{parameter{in: "query", style: "spaceDelimited"}, `["a b"]`, "E"},
		{parameter{in: "query", style: "spaceDelimited"}, `{"a b":1}`, "E"},
		{parameter{in: "query", style: "spaceDelimited"}, `["a+b"]`, "color=a%2Bb"},
		{parameter{in: "query", style: "spaceDelimited", explode: true}, `["a b"]`, "color=a%20b"},
		{parameter{in: "query", style: "pipeDelimited"}, `["a|b"]`, "E"},
		{parameter{in: "query", style: "pipeDelimited"}, `{"a":"b|c"}`, "E"},
		{parameter{in: "query", style: "tabDelimited"}, `["a\tb"]`, "E"},
		{parameter{in: "query", style: "pipeDelimited", items: []string{"simple"}}, `[["a","b,c"],["d"]]`, "color=a,b%2Cc%7Cd"},
		{parameter{in: "query", style: "form", items: []string{"pipeDelimited", "spaceDelimited"}}, `[[["a","b"],["c"]],[["d"]]]`, "color=a%20b%7Cc,d"},
		{parameter{in: "query", style: "form", explode: true, items: []string{"simple"}}, `[["a","b"],["c"]]`, "color=a,b&color=c"},
		{parameter{in: "query", style: "form", items: []string{"pipeDelimited"}}, `[["a|b"]]`, "E"},
		{parameter{in: "query", style: "form", items: []string{"pipeDelimited"}}, `[[]]`, "E"},
		{parameter{in: "query", style: "form", items: []string{"pipeDelimited"}}, `[[["a"]]]`, "E"},
		{parameter{in: "query", style: "form"}, `[["a"]]`, "E"},
		{parameter{in: "path", style: "simple"}, `["a,b","c"]`, "a%2Cb,c"},
		{parameter{in: "path", style: "simple", allowReserved: true}, `"a:b,c;d=e/f?g#h%41"`, "a:b,c;d=e%2Ff%3Fg%23h%2541"},
		{parameter{in: "path", style: "simple", allowReserved: true}, `["a:b,c","d"]`, "a:b%2Cc,d"},
		{parameter{in: "path", style: "pipeDelimited"}, `["a|b"]`, "E"},
		{parameter{in: "path", style: "pipeDelimited"}, `{"a":1}`, "a%7C1"},
		{parameter{in: "path", style: "pipeDelimited", items: []string{"simple"}}, `[["a","b"],["c"]]`, "a,b%7Cc"},
		{parameter{in: "path", style: "pipeDelimited", items: []string{"simple"}}, `[["..","b"],["../c"]]`, "E"},
		{parameter{in: "path", style: "label", explode: true}, `["a.b","c"]`, "E"},
		{parameter{in: "path", style: "label", explode: true}, `{"a.b":1}`, "E"},
		{parameter{in: "path", style: "label", explode: true}, `"a.b"`, ".a.b"},
		{parameter{in: "path", style: "label"}, `["a.b","c"]`, ".a.b,c"},
		{parameter{in: "path", style: "matrix", explode: true}, `["a;color=b"]`, ";color=a%3Bcolor%3Db"},
		{parameter{in: "header", style: "simple"}, `["a,b"]`, "E"},
		{parameter{in: "header", style: "pipeDelimited"}, `["a,b","c"]`, "a,b|c"},
		{parameter{in: "header", style: "pipeDelimited"}, `["a|b"]`, "E"},
		{parameter{in: "header", style: "spaceDelimited"}, `{"a":"b c"}`, "E"},
		{parameter{in: "header", style: "tabDelimited"}, `["a\tb"]`, "E"},
		{parameter{in: "header", style: "pipeDelimited", items: []string{"simple"}}, `[["a","b"],["c"]]`, "a,b|c"},
		{parameter{in: "cookie", style: "form"}, `"a; b=c"`, "color=a%3B%20b%3Dc"},
		{parameter{in: "cookie", style: "cookie"}, `"a%20b"`, "color=a%20b"},
		{parameter{in: "cookie", style: "cookie"}, `"a; b=c"`, "E"},
		{parameter{in: "cookie", style: "cookie"}, `"a\r\nb"`, "E"},
		{parameter{in: "cookie", style: "cookie"}, `["a,b"]`, "E"},
		{parameter{in: "cookie", style: "cookie"}, `{"a":"b;c"}`, "E"},
	}
	for _, tt := range tests {
		p := tt.param
		p.name, p.arg = "color", "color"
		b := &binding{params: []parameter{p}, path: []piece{{text: "/", param: -1}}, taken: map[string]map[string]bool{}}
		if p.in == "path" {
			b.path = append(b.path, piece{param: 0})
		}
		r := &request{header: http.Header{}}
		a := map[string]any{"color": tree(t, tt.value)}
		path, err := b.renderPath(a)
		var query string
		if err == nil {
			query, err = b.renderParams(r, a, &sentCredentials{})
		}
		got := strings.TrimPrefix(path, "/") + query + r.header.Get("Color") + r.header.Get("Cookie")
		if err != nil {
			got = "E"
		}
		if got != tt.want {
			t.Errorf("%s %s %s: got %s, want %s (%v)", p.in, p.style, tt.value, got, tt.want, err)
		}
	}
}
