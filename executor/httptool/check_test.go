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
		{name: "parameter content", binding: head + `"/","parameters":[{"name":"a","in":"query","content":"application/xml"}]}`, want: []string{"/execution/binding/parameters/0/content"}},
		{name: "reserved in a path", binding: head + `"/{a}","parameters":[{"name":"a","in":"path","allow_reserved":true}]}`, want: []string{"/execution/binding/parameters/0/allow_reserved"}},
		{name: "argument", edit: withSchema, binding: head + `"/","parameters":[{"name":"a","arg":"nope","in":"query"}],"body":{"arg":"b","content_type":"text/plain"}}`,
			want: []string{"/execution/binding/body/arg", "/execution/binding/parameters/0/arg"}},
		{name: "header host", binding: head + `"/","parameters":[{"name":"Host","arg":"a","in":"header"}]}`, want: []string{"/execution/binding/parameters/0/name"}},
		{name: "header name", binding: head + `"/","parameters":[{"name":"a b","in":"header"}]}`, want: []string{"/execution/binding/parameters/0/name"}},
		{name: "fixed headers", binding: head + `"/","headers":{"Transfer-Encoding":"x","X-Y":"a\nb","Content-Length":"1"}}`,
			want: []string{"/execution/binding/headers/Content-Length", "/execution/binding/headers/Transfer-Encoding", "/execution/binding/headers/X-Y"}},
		{name: "cookie name", binding: head + `"/","parameters":[{"name":"a;b","in":"cookie"}]}`, want: []string{"/execution/binding/parameters/0/name"}},
		{name: "body type", binding: head + `"/","body":{"arg":"b","content_type":"multipart/form-data"}}`, want: []string{"/execution/binding/body/content_type"}},
		{name: "encoding of JSON", binding: head + `"/","body":{"arg":"b","content_type":"application/json","encoding":{"a":{"style":"form"}}}}`, want: []string{"/execution/binding/body/encoding"}},
		{name: "encoding", binding: head + `"/","body":{"arg":"b","content_type":"application/x-www-form-urlencoded","encoding":{"a":{"style":"simple"},"b":{"content_type":"image/png"},"c":{"nope":1}}}}`,
			want: []string{"/execution/binding/body/encoding/a/style", "/execution/binding/body/encoding/b/content_type", "/execution/binding/body/encoding/c/nope"}},
		{name: "auth types", binding: head + `"/"}`, edit: auth(`[{"type":"none"},{"type":"bearer"},{"type":"basic"},{"type":"api_key","name":"k","in":"query"},{"type":"oauth2_client_credentials"},{"type":"mtls"}]`),
			want: []string{"/auth/4/type", "/auth/5/type"}},
		{name: "auth places", binding: head + `"/"}`, edit: auth(`[{"type":"api_key"},{"type":"api_key","name":"k","in":"body"},{"type":"api_key","name":"Host"},{"type":"bearer","in":"query"},{"type":"api_key","name":"k","in":"env"}]`),
			want: []string{"/auth/0/name", "/auth/1/in", "/auth/2/name", "/auth/3/in", "/auth/4/in"}},
		{name: "auth also", binding: head + `"/"}`, edit: auth(`[{"type":"bearer","settings":{"also":[{"type":"api_key","name":"k"},{"type":"aws_sigv4"}]}},{"type":"bearer","settings":{"also":[{"nope":1}]}}]`),
			want: []string{"/auth/0/settings/also/1/type", "/auth/1/settings/also"}},
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
