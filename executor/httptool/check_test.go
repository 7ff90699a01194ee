package httptool

import (
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestCheck(t *testing.T) {
	const head = `{"method":"GET","server":"https://api.example.com/v1","path":`
	withSchema := func(m *toolkeep.Manifest) {
		m.ParametersSchema = []byte(`{"type":"object","properties":{"id":{},"body":{}}}`)
	}
	auth := func(s string) func(*toolkeep.Manifest) {
		return func(m *toolkeep.Manifest) { m.Auth = specs(t, s) }
	}
	tests := []struct {
		name    string
		binding string
		edit    func(*toolkeep.Manifest)
		want    []string // pointers of all faults
	}{
		{name: "least", binding: head + `"/"}`},
		{name: "all", edit: withSchema, binding: `{"method":"POST","server":"https://api.example.com/v1/","path":"/a/{id}.json",
			"parameters":[{"name":"id","arg":"id","in":"path","style":"label","explode":true},
			{"name":"filter[x]","arg":"id","in":"query","style":"deepObject","explode":true,"allow_empty":true,"allow_reserved":false},
			{"name":"X-Id","arg":"id","in":"header"},{"name":"sid","arg":"id","in":"cookie"},
			{"name":"j","arg":"id","in":"query","content":"application/json; charset=utf-8"}],
			"body":{"arg":"body","content_type":"application/merge-patch+json","required":true},
			"headers":{"Accept":"application/json"},"response_types":["application/json","text/csv"]}`},
		{name: "not JSON", binding: `{`, want: []string{"/execution/binding"}},
		{name: "no object", binding: `[]`, want: []string{"/execution/binding"}},
		{name: "double key", binding: `{"method":"GET","method":"GET"}`, want: []string{"/execution/binding"}},
		{name: "empty", binding: `{}`, want: []string{"/execution/binding/method", "/execution/binding/path", "/execution/binding/server"}},
		{name: "types", binding: `{"method":1,"server":"https://x","path":"/","parameters":{},"body":[],"headers":1,"response_types":[1]}`,
			want: []string{"/execution/binding/body", "/execution/binding/headers", "/execution/binding/method", "/execution/binding/parameters", "/execution/binding/response_types/0"}},
		{name: "unknown fields", binding: head + `"/{p}","x":1,"parameters":[{"name":"p","in":"path","schema":{}}],"body":{"arg":"b","content_type":"text/plain","example":1}}`,
			want: []string{"/execution/binding/body/example", "/execution/binding/parameters/0/schema", "/execution/binding/x"}},
		{name: "method", binding: `{"method":"get","server":"https://x","path":"/"}`, want: []string{"/execution/binding/method"}},
		{name: "connect", binding: `{"method":"CONNECT","server":"https://x","path":"/"}`, want: []string{"/execution/binding/method"}},
		{name: "relative server", binding: `{"method":"GET","server":"/v1","path":"/"}`, want: []string{"/execution/binding/server"}},
		{name: "ftp", binding: `{"method":"GET","server":"ftp://x","path":"/"}`, want: []string{"/execution/binding/server"}},
		{name: "userinfo", binding: `{"method":"GET","server":"https://u:p@x","path":"/"}`, want: []string{"/execution/binding/server"}},
		{name: "server query", binding: `{"method":"GET","server":"https://x/?a=1","path":"/"}`, want: []string{"/execution/binding/server"}},
		{name: "server variable", binding: `{"method":"GET","server":"https://x/{v}","path":"/"}`, want: []string{"/execution/binding/server"}},
		{name: "server dots", binding: `{"method":"GET","server":"https://x/a/%2e%2e","path":"/"}`, want: []string{"/execution/binding/server"}},
		{name: "path dots", binding: head + `"/a/../b"}`, want: []string{"/execution/binding/path"}},
		{name: "path query", binding: head + `"/a?b=1"}`, want: []string{"/execution/binding/path"}},
		{name: "path without slash", binding: head + `"a"}`, want: []string{"/execution/binding/path"}},
		{name: "unclosed", binding: head + `"/{a"}`, want: []string{"/execution/binding/path"}},
		{name: "stray brace", binding: head + `"/a}"}`, want: []string{"/execution/binding/path"}},
		{name: "parameter of the path is missing", binding: head + `"/{a}"}`, want: []string{"/execution/binding/path"}},
		{name: "parameter is not in the path", binding: head + `"/","parameters":[{"name":"a","in":"path"}]}`, want: []string{"/execution/binding/parameters/0/name"}},
		{name: "parameter place", binding: head + `"/","parameters":[{"name":"a","in":"body"}]}`, want: []string{"/execution/binding/parameters/0/in"}},
		{name: "parameter style", binding: head + `"/","parameters":[{"name":"a","in":"header","style":"form"}]}`, want: []string{"/execution/binding/parameters/0/style"}},
		{name: "parameter twice", binding: head + `"/","parameters":[{"name":"A","in":"header"},{"name":"a","in":"header"}]}`, want: []string{"/execution/binding/parameters/1/name"}},
		{name: "parameter content", binding: head + `"/","parameters":[{"name":"a","in":"query","content":"multipart/form-data"},{"name":"b","in":"query","content":"image/png"},{"name":"c","in":"query","content":"application/xml"},{"name":"d","in":"header","content":"text/csv"}]}`,
			want: []string{"/execution/binding/parameters/0/content", "/execution/binding/parameters/1/content"}},
		{name: "whole query", binding: head + `"/","parameters":[{"name":"q","in":"querystring","content":"application/x-www-form-urlencoded"},{"name":"a","in":"query"},{"name":"b","in":"querystring","style":"form"}]}`,
			want: []string{"/execution/binding/parameters/1/in", "/execution/binding/parameters/2/content", "/execution/binding/parameters/2/in", "/execution/binding/parameters/2/style"}},
		{name: "lists within a list", binding: head + `"/","parameters":[{"name":"a","in":"query","item_styles":["simple"]},{"name":"b","in":"query","explode":true,"item_styles":["simple","pipeDelimited"]},{"name":"c","in":"query","item_styles":["form"]}]}`,
			want: []string{"/execution/binding/parameters/0/item_styles/0", "/execution/binding/parameters/2/item_styles/0"}},
		{name: "reserved in a header", binding: head + `"/","parameters":[{"name":"a","in":"header","allow_reserved":true}]}`, want: []string{"/execution/binding/parameters/0/allow_reserved"}},
		{name: "argument", edit: withSchema, binding: head + `"/","parameters":[{"name":"a","arg":"nope","in":"query"}],"body":{"arg":"b","content_type":"text/plain"}}`,
			want: []string{"/execution/binding/body/arg", "/execution/binding/parameters/0/arg"}},
		{name: "header host", binding: head + `"/","parameters":[{"name":"Host","arg":"a","in":"header"}]}`, want: []string{"/execution/binding/parameters/0/name"}},
		{name: "header name", binding: head + `"/","parameters":[{"name":"a b","in":"header"}]}`, want: []string{"/execution/binding/parameters/0/name"}},
		{name: "fixed headers", binding: head + `"/","headers":{"Transfer-Encoding":"x","X-Y":"a\nb","Content-Length":"1"}}`,
			want: []string{"/execution/binding/headers/Content-Length", "/execution/binding/headers/Transfer-Encoding", "/execution/binding/headers/X-Y"}},
		{name: "cookie name", binding: head + `"/","parameters":[{"name":"a;b","in":"cookie"}]}`, want: []string{"/execution/binding/parameters/0/name"}},
		{name: "body of any type", binding: head + `"/","body":{"arg":"b","content_type":"multipart/form-data","order":["a"],"encoding":{"a":{"file":true,"content_type":"image/*, text/csv","file_name":"a.bin","headers":{"X-A":"1"}}}}}`},
		{name: "range", binding: head + `"/","body":{"arg":"b","content_type":"text/*"}}`, want: []string{"/execution/binding/body/content_type"}},
		{name: "formats", binding: head + `"/","body":{"arg":"b","content_type":"image/png","format":"picture","others":[{"content_type":"application/xml","format":"xml"}],"type_arg":"t"}}`,
			want: []string{"/execution/binding/body/format", "/execution/binding/body/others/0/xml"}},
		{name: "others without a choice", binding: head + `"/","body":{"arg":"b","content_type":"image/png","others":[{"content_type":"text/plain"}]}}`, want: []string{"/execution/binding/body/type_arg"}},
		{name: "choice without others", binding: head + `"/","body":{"arg":"b","content_type":"image/png","type_arg":"t"}}`, want: []string{"/execution/binding/body/type_arg"}},
		{name: "part headers", binding: head + `"/","body":{"arg":"b","content_type":"multipart/mixed","encoding":{"a":{"headers":{"Content-Disposition":"x","Content-Type":"y","X":"a\nb","Y":{}}}}}}`,
			want: []string{"/execution/binding/body/encoding/a/headers/Content-Disposition", "/execution/binding/body/encoding/a/headers/Content-Type", "/execution/binding/body/encoding/a/headers/X", "/execution/binding/body/encoding/a/headers/Y"}},
		{name: "xml", binding: head + `"/","body":{"arg":"b","content_type":"application/xml","xml":{"root":"a b","type":{"name":"1","as":"cdata","ref":"nope","item":{"prefix":"xml"},"members":[{"name":"x"}]},"types":{}}}}`,
			want: []string{"/execution/binding/body/xml/root", "/execution/binding/body/xml/type/as", "/execution/binding/body/xml/type/item/prefix", "/execution/binding/body/xml/type/members/0/property",
				"/execution/binding/body/xml/type/name", "/execution/binding/body/xml/type/ref", "/execution/binding/body/xml/types"}},
		{name: "fields of other formats", binding: head + `"/","body":{"arg":"b","content_type":"application/json","order":["a"],"items":{},"prefix_items":[{}]}}`,
			want: []string{"/execution/binding/body/items", "/execution/binding/body/order", "/execution/binding/body/prefix_items"}},
		{name: "fields that cannot be", binding: head + `"/","body":{"arg":"b","content_type":"multipart/form-data","encoding":{"a":{"file":true,"file_name":"a\nb"},"b":{"content_type":"multipart/mixed"},"c":{"content_type":"application/x-ndjson"},"d":{"content_type":"a\nb"}}}}`,
			want: []string{"/execution/binding/body/encoding/a/file_name", "/execution/binding/body/encoding/b/content_type", "/execution/binding/body/encoding/c/content_type", "/execution/binding/body/encoding/d/content_type"}},
		{name: "template", edit: withSchema, binding: `{"method":"POST","server":"https://x","template":{"path":"/a/{{id}}/{{ id }}","query":{"q":"x:{{id}}","l":["{{id?}}"],"n":1},"headers":{"X-A":"{{id}}"},"cookies":{"c":"{{id}}"},"body":{"a":{"b":"{{body}}","c":"{{{{ {x} }}"}}}}`},
		{name: "template beside what it says", binding: `{"method":"POST","server":"https://x","path":"/","parameters":[{"name":"a","in":"query"}],"body":{"arg":"b","content_type":"text/plain"},"template":{"path":"/"}}`,
			want: []string{"/execution/binding/body", "/execution/binding/parameters", "/execution/binding/path"}},
		{name: "template places", edit: withSchema, binding: `{"method":"POST","server":"https://x","template":{"path":"/{{id?}}/{{x}}","query":{"a":"{{id","b":"{{}}","o":{}},"headers":{"Host":"x","X-A":"{{other}}","X-L":[]},"cookies":{"a b":"1"},"body":{"{{id}}":1,"l":["{{no}}"]}}}`,
			want: []string{"/execution/binding/template/body/l/0", "/execution/binding/template/body/{{id}}", "/execution/binding/template/cookies/a b", "/execution/binding/template/headers/Host", "/execution/binding/template/headers/X-A", "/execution/binding/template/headers/X-L", "/execution/binding/template/path", "/execution/binding/template/path", "/execution/binding/template/query/a", "/execution/binding/template/query/b", "/execution/binding/template/query/o"}},
		{name: "template path", binding: `{"method":"GET","server":"https://x","template":{"path":"a?b","content_type":"text/plain","nope":1}}`,
			want: []string{"/execution/binding/template/content_type", "/execution/binding/template/nope", "/execution/binding/template/path"}},
		{name: "template dots", binding: `{"method":"GET","server":"https://x","template":{"path":"/a/../{{b}}"}}`, want: []string{"/execution/binding/template/path"}},
		{name: "template of text", binding: `{"method":"POST","server":"https://x","template":{"path":"/","content_type":"text/plain","body":"Hello {{name}}"}}`},
		{name: "template of code", binding: `{"method":"POST","server":"https://x","template":{"path":"/","content_type":"application/sql","body":"select {{name}}"}}`, want: []string{"/execution/binding/template/body"}},
		{name: "template of XML", binding: `{"method":"POST","server":"https://x","template":{"path":"/","content_type":"text/xml","body":"<a b='{{x}}'>{{y}}<c/></a>"}}`},
		{name: "argument as an element", binding: `{"method":"POST","server":"https://x","template":{"path":"/","content_type":"text/xml","body":"<a><{{x}}/></a>"}}`, want: []string{"/execution/binding/template/body"}},
		{name: "argument as an attribute", binding: `{"method":"POST","server":"https://x","template":{"path":"/","content_type":"text/xml","body":"<a {{x}}='1'></a>"}}`, want: []string{"/execution/binding/template/body"}},
		{name: "argument as a namespace", binding: `{"method":"POST","server":"https://x","template":{"path":"/","content_type":"text/xml","body":"<a xmlns='{{x}}'></a>"}}`, want: []string{"/execution/binding/template/body"}},
		{name: "argument in CDATA", binding: `{"method":"POST","server":"https://x","template":{"path":"/","content_type":"text/xml","body":"<a><![CDATA[{{x}}]]></a>"}}`, want: []string{"/execution/binding/template/body"}},
		{name: "argument in a comment", binding: `{"method":"POST","server":"https://x","template":{"path":"/","content_type":"text/xml","body":"<a><!-- {{x}} --></a>"}}`, want: []string{"/execution/binding/template/body"}},
		{name: "encoding of JSON", binding: head + `"/","body":{"arg":"b","content_type":"application/json","encoding":{"a":{"style":"form"}}}}`, want: []string{"/execution/binding/body/encoding"}},
		{name: "encoding", binding: head + `"/","body":{"arg":"b","content_type":"application/x-www-form-urlencoded","encoding":{"a":{"style":"simple"},"b":{"content_type":"image/png"},"c":{"nope":1}}}}`,
			want: []string{"/execution/binding/body/encoding/a/style", "/execution/binding/body/encoding/c/nope"}},
		{name: "auth types", binding: head + `"/"}`, edit: auth(`[{"type":"none"},{"type":"bearer"},{"type":"basic"},{"type":"api_key","name":"k","in":"query"},{"type":"oauth2_client_credentials"},{"type":"mtls"},{"type":"oauth2_refresh","in":"query","name":"t"},
			{"type":"google_service_account","name":"X-Token"},{"type":"azure_ad"},{"type":"aws_sigv4","settings":{"region":"eu-central-1","service":"s3","unsigned_payload":true}},{"type":"kerberos"}]`),
			want: []string{"/auth/10/type"}},
		{name: "certificate", binding: `{"method":"GET","server":"http://x","path":"/"}`, edit: auth(`[{"type":"mtls","name":"x"},{"type":"aws_sigv4","in":"header","settings":{"region":"a/b","service":"x","unsigned_payload":true}},{"type":"aws_sigv4","settings":{"region":"r","service":"x","unsigned_payload":1}}]`),
			want: []string{"/auth/0/name", "/auth/0/type", "/auth/1/in", "/auth/1/settings/region", "/auth/1/settings/unsigned_payload", "/auth/2/settings/unsigned_payload"}},
		{name: "auth places", binding: head + `"/"}`, edit: auth(`[{"type":"api_key"},{"type":"api_key","name":"k","in":"body"},{"type":"api_key","name":"Host"},{"type":"bearer","in":"query"},{"type":"api_key","name":"k","in":"env"}]`),
			want: []string{"/auth/0/name", "/auth/1/in", "/auth/2/name", "/auth/3/name", "/auth/4/in"}},
		{name: "auth also", binding: head + `"/"}`, edit: auth(`[{"type":"bearer","settings":{"also":[{"type":"api_key","name":"k"},{"type":"aws_sigv4"}]}},{"type":"bearer","settings":{"also":[{"nope":1}]}}]`),
			want: []string{"/auth/0/settings/also/1/settings/region", "/auth/0/settings/also/1/settings/service", "/auth/1/settings/also"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := manifest(t, "", tt.binding)
			if tt.edit != nil {
				tt.edit(m)
			}
			faults := newExecutor(t).Check(m)
			var got []string
			for _, f := range faults {
				got = append(got, f.Pointer)
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("faults at %q, want %q\n%+v", got, tt.want, faults)
			}
		})
	}
}
