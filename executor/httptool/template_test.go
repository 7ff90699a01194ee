package httptool

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

const templateBinding = `{"method":"POST","server":"SERVER/v1","template":{
	"path":"/orders/{{id}}/items/{{id}}.{{format}}",
	"query":{"page":"{{page?}}","q":"name:{{name}}","tags":"{{tags?}}","all":["x","{{tags?}}"],"fixed":1},
	"headers":{"X-Team":"team {{team}}","X-Opt":"{{opt?}}","X-Version":"2"},
	"cookies":{"lang":"{{lang?}}"},
	"body":{"order":{"id":"{{id}}","note":"Note: {{name}}","lines":"{{lines}}"},"opt":"{{opt?}}","list":[1,"{{opt?}}","{{{{braces}}"],"$gt":true}}}`

func TestTemplate(t *testing.T) {
	base, last := rawServer(t)
	e := newExecutor(t)
	const least = `"id":"a/b","format":"json","name":"x&y","team":7,"lines":[{"sku":"1","n":2.50}]`
	tests := []struct {
		name, binding, args  string
		target, body, header string
		code                 toolkeep.Code
		pointer              string
	}{
		{name: "least", binding: templateBinding, args: `{` + least + `}`, target: "/v1/orders/a%2Fb/items/a%2Fb.json?all=x&fixed=1&q=name%3Ax%26y",
			body: `{"$gt":true,"list":[1,"{{braces}}"],"order":{"id":"a/b","lines":[{"n":2.50,"sku":"1"}],"note":"Note: x&y"}}`, header: "X-Team: team 7"},
		{name: "all", binding: templateBinding, args: `{` + least + `,"page":3,"opt":false,"tags":["t","u"],"lang":"de; a=b"}`, target: "", code: toolkeep.UnsafeArgument, pointer: "/all/1"},
		{name: "optional", binding: templateBinding, args: `{` + least + `,"page":3,"opt":false,"lang":"de; a=b","tags":"t"}`, target: "/v1/orders/a%2Fb/items/a%2Fb.json?all=x&all=t&fixed=1&page=3&q=name%3Ax%26y&tags=t",
			body: `{"$gt":true,"list":[1,false,"{{braces}}"],"opt":false,"order":{"id":"a/b","lines":[{"n":2.50,"sku":"1"}],"note":"Note: x&y"}}`, header: "Cookie: lang=de%3B%20a%3Db"},
		{name: "quotes stay within a value", binding: templateBinding, args: `{"id":"1","format":"x","name":"\",\"admin\":true,\"x\":\"","team":"t","lines":null}`, target: "/v1/orders/1/items/1.x?all=x&fixed=1&q=name%3A%22%2C%22admin%22%3Atrue%2C%22x%22%3A%22",
			body: `{"$gt":true,"list":[1,"{{braces}}"],"order":{"id":"1","lines":null,"note":"Note: \",\"admin\":true,\"x\":\""}}`},
		{name: "missing", binding: templateBinding, args: `{"id":"1","format":"x","team":"t","lines":[]}`, code: toolkeep.MissingParameter, pointer: "/name"},
		{name: "no plain value in a text", binding: templateBinding, args: `{"id":"1","format":"x","name":{"a":1},"team":"t","lines":[]}`, code: toolkeep.UnsafeArgument, pointer: "/name"},
		{name: "header injection", binding: templateBinding, args: `{"id":"1","format":"x","name":"n","team":"t\r\nX-Evil: 1","lines":[]}`, code: toolkeep.UnsafeArgument},
		{name: "path escape", binding: templateBinding, args: `{"id":"..","format":"x","name":"n","team":"t","lines":[]}`, code: toolkeep.UnsafeArgument, pointer: "/id"},
		{name: "dots of two", binding: `{"method":"GET","server":"SERVER","template":{"path":"/{{a}}.{{b}}"}}`, args: `{"a":"x","b":"y"}`, target: "/x.y"},
		{name: "form", binding: `{"method":"POST","server":"SERVER","template":{"path":"/","content_type":"application/x-www-form-urlencoded","body":{"a":"{{a}}","b":"x {{a}}"},"encoding":{"a":{"style":"pipeDelimited"}}}}`,
			args: `{"a":"1&b=2"}`, target: "/", body: "a=1%26b%3D2&b=x+1%26b%3D2"},
		{name: "multipart", binding: `{"method":"POST","server":"SERVER","template":{"path":"/","content_type":"multipart/form-data","body":{"f":"{{file}}","n":"{{n?}}"},"encoding":{"f":{"file":true,"content_type":"text/plain"}}}}`,
			args: `{"file":{"text":"hi","file_name":"a.txt"}}`, target: "/", body: "--BOUNDARY\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nhi\r\n--BOUNDARY--\r\n"},
		{name: "text", binding: `{"method":"POST","server":"SERVER","template":{"path":"/","content_type":"text/plain","body":"Hello {{name}}!\n"}}`, args: `{"name":"you"}`, target: "/", body: "Hello you!\n"},
		{name: "text that is JSON", binding: `{"method":"POST","server":"SERVER","template":{"path":"/","body":"a {{a}}"}}`, args: `{"a":"\"}"}`, target: "/", body: `"a \"}"`},
		{name: "whole argument", binding: `{"method":"POST","server":"SERVER","template":{"path":"/","body":"{{a}}"}}`, args: `{"a":[1,{"b":null}]}`, target: "/", body: `[1,{"b":null}]`},
		{name: "XML", binding: `{"method":"POST","server":"SERVER","template":{"path":"/","content_type":"text/xml; charset=utf-8","body":"<?xml version=\"1.0\"?><e:Envelope xmlns:e='urn:soap'><e:Body a='{{a}}'>{{b}} and {{b}}</e:Body></e:Envelope>","headers":{}}}`,
			args: `{"a":"'/><evil x='","b":"</e:Body>&x;"}`, target: "/", body: "<?xml version=\"1.0\"?><e:Envelope xmlns:e='urn:soap'><e:Body a='&apos;/&gt;&lt;evil x=&apos;'>&lt;/e:Body&gt;&amp;x; and &lt;/e:Body&gt;&amp;x;</e:Body></e:Envelope>"},
		{name: "XML with a control character", binding: `{"method":"POST","server":"SERVER","template":{"path":"/","content_type":"text/xml","body":"<a>{{b}}</a>"}}`, args: `{"b":"\u0001"}`, code: toolkeep.UnsafeArgument, pointer: "/b"},
		{name: "GraphQL", binding: `{"method":"POST","server":"SERVER","template":{"path":"/graphql","body":{"query":"query($id: ID!) {user(id: $id) {name}}","variables":{"id":"{{id}}"}}}}`,
			args: `{"id":"1"}`, target: "/graphql", body: `{"query":"query($id: ID!) {user(id: $id) {name}}","variables":{"id":"1"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := execute(t, e, manifest(t, base, tt.binding), tt.args)
			if err != nil || tt.code != "" {
				if err == nil || err.Code != tt.code || !err.NothingSent || tt.pointer != "" && err.Details["pointer"] != tt.pointer {
					t.Fatalf("error %v at %v, want %s at %s", err, err.Details["pointer"], tt.code, tt.pointer)
				}
				return
			}
			raw := boundaryOf.ReplaceAllString(last(), "BOUNDARY")
			if target(raw) != tt.target || bodyOf(raw) != tt.body {
				t.Errorf("got\n%s\n%q\nwant\n%s\n%q", target(raw), bodyOf(raw), tt.target, tt.body)
			}
			if !strings.Contains(raw, "\r\n"+tt.header) {
				t.Errorf("%q is not in\n%s", tt.header, raw)
			}
		})
	}
}

func TestWholeQuery(t *testing.T) {
	base, last := rawServer(t)
	e := newExecutor(t)
	for _, tt := range []struct{ content, args, want string }{
		{"application/json", `{"q":{"a":["b c"]}}`, "/?%7B%22a%22%3A%5B%22b%20c%22%5D%7D"},
		{formType, `{"q":{"a":"b c","l":[1,2]}}`, "/?a=b+c&l=1&l=2"},
		{"text/plain", `{"q":"a=b&c#d"}`, "/?a%3Db%26c%23d"},
		{"text/plain", `{}`, "/"},
	} {
		m := manifest(t, base, `{"method":"GET","server":"SERVER","path":"/","parameters":[{"name":"q","in":"querystring","content":"`+tt.content+`"}]}`)
		if _, err := execute(t, e, m, tt.args); err != nil || target(last()) != tt.want {
			t.Errorf("%s: %s, want %s (%v)", tt.content, target(last()), tt.want, err)
		}
	}
	m := manifest(t, base, `{"method":"GET","server":"SERVER","path":"/","parameters":[{"name":"q","in":"querystring","content":"`+formType+`"}]}`)
	key := func(x *toolkeep.Execution) {
		x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "api_key", In: "query", Name: "key"}, Value: "s"}}
	}
	if _, err := execute(t, e, m, `{"q":{"a":1}}`, key); err != nil || target(last()) != "/?a=1&key=s" {
		t.Errorf("%s (%v)", target(last()), err)
	}
	if _, err := execute(t, e, m, `{"q":{"key":1}}`, key); err == nil || err.Code != toolkeep.UnsafeArgument {
		t.Errorf("an argument takes the name of a credential: %v", err)
	}
}

func TestMethods(t *testing.T) {
	base, last := rawServer(t)
	e := newExecutor(t)
	for _, method := range []string{"QUERY", "PURGE", "M-SEARCH"} {
		m := manifest(t, base, `{"method":"`+method+`","server":"SERVER","path":"/","body":{"arg":"b","content_type":"text/plain"}}`)
		if _, err := execute(t, e, m, `{"b":"x"}`); err != nil || !strings.HasPrefix(last(), method+" / HTTP/1.1\r\n") || bodyOf(last()) != "x" {
			t.Errorf("%s: %v\n%s", method, err, last())
		}
	}
	for _, method := range []string{"TRACE", "CONNECT", "get", "A B"} {
		if faults := e.Check(manifest(t, base, `{"method":"`+method+`","server":"SERVER","path":"/"}`)); len(faults) != 1 || faults[0].Pointer != "/execution/binding/method" {
			t.Errorf("%s: %+v", method, faults)
		}
	}
}

// TestTemplateNamesTheHeader: an error about a value built from several arguments names
// the header, one about a single argument names the argument.
func TestTemplateNamesTheHeader(t *testing.T) {
	for _, tt := range []struct{ header, want, pointer string }{
		{"team-{{team}}", "the header X-Team, which arguments are part of,", ""},
		{"{{team}}", "the argument team", "/team"},
	} {
		b := parsed(t, `{"method":"GET","server":"http://127.0.0.1:1","template":{"path":"/","headers":{"X-Team":"`+tt.header+`"}}}`)
		_, err := b.build(&toolkeep.Execution{Args: map[string]any{"team": "a\r\nb"}})
		if err == nil || err.Code != toolkeep.UnsafeArgument || !strings.HasPrefix(err.Message, tt.want+" has a line break") || err.Details["pointer"] != tt.pointer {
			t.Errorf("%v %v, want %q at %q", err, err.Details, tt.want, tt.pointer)
		}
	}
}
