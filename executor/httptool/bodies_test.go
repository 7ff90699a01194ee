package httptool

import (
	"regexp"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

const bodiesDocument = `openapi: 3.0.4
info: {title: Bodies, version: '1'}
paths:
  /upload: {post: {operationId: upload, responses: {200: {description: ok}}, requestBody: {content: {multipart/form-data: {
    schema: {type: object, properties: {
      title: {type: string}, count: {type: integer}, meta: {type: object}, tags: {type: array, items: {type: string}},
      points: {type: array, items: {type: object}}, csv: {type: array, items: {type: string}},
      history: {type: object, xml: {name: history}, properties: {on: {type: string}}},
      image: {type: string, format: binary}, files: {type: array, items: {type: string, format: binary}}, key: {type: string, format: byte}}},
    encoding: {image: {contentType: 'image/png, image/jpeg', headers: {X-Fixed: {schema: {type: string, enum: [one]}}, X-Size: {schema: {type: integer}}}},
      history: {contentType: application/xml}, csv: {style: form, explode: false}}}}}}}
  /image: {put: {operationId: image, responses: {200: {description: ok}}, requestBody: {required: true, content: {image/png: {}, image/jpeg: {}}}}}
  /any-image: {put: {operationId: anyImage, responses: {200: {description: ok}}, requestBody: {content: {'image/*': {}}}}}
  /tar: {put: {operationId: tar, responses: {200: {description: ok}}, requestBody: {content: {application/x-tar: {schema: {type: string, format: binary}}}}}}
  /csv: {put: {operationId: csv, responses: {200: {description: ok}}, requestBody: {content: {text/csv: {schema: {type: string}}}}}}
  /yaml: {put: {operationId: yaml, responses: {200: {description: ok}}, requestBody: {content: {application/yaml: {schema: {type: object}}}}}}
  /lines: {put: {operationId: lines, responses: {200: {description: ok}}, requestBody: {content: {application/x-ndjson: {schema: {type: array}}}}}}
  /rawxml: {put: {operationId: rawxml, responses: {200: {description: ok}}, requestBody: {content: {text/xml: {schema: {type: string}}}}}}
  /mixed: {post: {operationId: mixed, responses: {200: {description: ok}}, requestBody: {content: {multipart/mixed: {schema: {type: array, items: {}}}}}}}
  /related: {post: {operationId: related, responses: {200: {description: ok}}, requestBody: {content: {multipart/related: {schema: {type: object, properties: {meta: {type: object}, media: {type: string, format: binary}}}, encoding: {media: {contentType: image/png}}}}}}}
  /patch: {patch: {operationId: patch, responses: {200: {description: ok}}, requestBody: {content: {
    application/merge-patch+json: {schema: {type: object}}, application/json-patch+json: {schema: {type: array, items: {type: object}}}}}}}
  /either: {post: {operationId: either, responses: {200: {description: ok}}, requestBody: {content: {
    application/json: {schema: {type: object, properties: {url: {type: string}}}},
    multipart/form-data: {schema: {type: object, properties: {file: {type: string, format: binary}}}}}}}}
  /three: {post: {operationId: three, responses: {200: {description: ok}}, requestBody: {content: {image/png: {schema: {type: string, format: binary}}, text/plain: {schema: {type: string}}, image/jpeg: {}}}}}
  /form: {post: {operationId: form, responses: {200: {description: ok}}, requestBody: {content: {application/x-www-form-urlencoded: {
    schema: {type: object, properties: {id: {type: string}, address: {type: object}, icon: {type: string}, note: {type: object, xml: {name: note}, properties: {a: {type: string}}}}},
    encoding: {icon: {contentType: 'image/png, image/jpeg'}, note: {contentType: application/xml}}}}}}}
  /content: {get: {operationId: content, responses: {200: {description: ok}}, parameters: [
    {name: j, in: query, content: {application/json: {schema: {type: object}}}}, {name: t, in: query, content: {text/plain: {schema: {type: string}}}},
    {name: f, in: query, content: {application/x-www-form-urlencoded: {schema: {type: object}}}},
    {name: x, in: query, content: {application/xml: {schema: {type: object, xml: {name: x}, properties: {a: {type: string}}}}}},
    {name: X-J, in: header, content: {application/json: {schema: {type: object}}}}, {name: c, in: cookie, content: {application/json: {schema: {type: object}}}}]}}
  /search: {get: {operationId: getBody, responses: {200: {description: ok}}, requestBody: {required: true, content: {application/json: {schema: {type: object}}}}}}
`

var boundaryOf = regexp.MustCompile(`toolkeep-[0-9a-f]{40}`)

// TestBodies imports a document with every kind of body and compares the bytes on the
// wire. BOUNDARY stands for a multipart body's boundary, \r\n for the end of a line.
func TestBodies(t *testing.T) {
	base, last := rawServer(t)
	tools := imported(t, base, bodiesDocument)
	lines := func(l ...string) string { return strings.Join(l, "\r\n") + "\r\n" }
	tests := []struct {
		name, tool, args string
		target           string // "" is not looked at
		contentType      string
		body             string
		header           [2]string
	}{
		{name: "parts in the document's order", tool: "upload",
			args: `{"body":{"zz":1,"key":"a2V5","csv":["a","b"],"history":{"on":"<1>"},"points":[{"x":1},{"x":2.50}],"tags":["t","u"],"meta":{"b":1,"a":[null]},
				"count":9007199254740993,"title":"line\n\"é\"","image":"iVBORw0KGgo=","files":[{"text":"hello","file_name":"h \"i\".txt","content_type":"text/plain"},"_-8"]}}`,
			contentType: "multipart/form-data; boundary=BOUNDARY",
			body: lines(
				"--BOUNDARY", `Content-Disposition: form-data; name="title"`, "", "line\n\"é\"",
				"--BOUNDARY", `Content-Disposition: form-data; name="count"`, "", "9007199254740993",
				"--BOUNDARY", `Content-Disposition: form-data; name="meta"`, "Content-Type: application/json", "", `{"a":[null],"b":1}`,
				"--BOUNDARY", `Content-Disposition: form-data; name="tags"`, "", "t",
				"--BOUNDARY", `Content-Disposition: form-data; name="tags"`, "", "u",
				"--BOUNDARY", `Content-Disposition: form-data; name="points"`, "Content-Type: application/json", "", `{"x":1}`,
				"--BOUNDARY", `Content-Disposition: form-data; name="points"`, "Content-Type: application/json", "", `{"x":2.50}`,
				"--BOUNDARY", `Content-Disposition: form-data; name="csv"`, "", "a,b",
				"--BOUNDARY", `Content-Disposition: form-data; name="history"`, "Content-Type: application/xml", "", xmlHead+"<history><on>&lt;1&gt;</on></history>",
				"--BOUNDARY", `Content-Disposition: form-data; name="image"; filename="image"`, "Content-Type: image/png", "X-Fixed: one", "", "\x89PNG\r\n\x1a\n",
				"--BOUNDARY", `Content-Disposition: form-data; name="files"; filename="h %22i%22.txt"`, "Content-Type: text/plain", "", "hello",
				"--BOUNDARY", `Content-Disposition: form-data; name="files"; filename="files"`, "Content-Type: application/octet-stream", "", "\xff\xef",
				"--BOUNDARY", `Content-Disposition: form-data; name="key"`, "", "a2V5",
				"--BOUNDARY", `Content-Disposition: form-data; name="zz"`, "", "1",
				"--BOUNDARY--")},
		{name: "no parts", tool: "upload", args: `{"body":{}}`, contentType: "multipart/form-data; boundary=BOUNDARY", body: "--BOUNDARY--\r\n"},
		{name: "binary of the first type", tool: "image", args: `{"body":"/+8="}`, contentType: "image/png", body: "\xff\xef"},
		{name: "binary of the other type", tool: "image", args: `{"body":{"base64":"/+8","content_type":"image/jpeg"}}`, contentType: "image/jpeg", body: "\xff\xef"},
		{name: "binary of a range", tool: "anyImage", args: `{"body":{"text":"<svg/>","content_type":"image/svg+xml"}}`, contentType: "image/svg+xml", body: "<svg/>"},
		{name: "tar", tool: "tar", args: `{"body":"AAEC"}`, contentType: "application/x-tar", body: "\x00\x01\x02"},
		{name: "CSV", tool: "csv", args: `{"body":"a,b\r\n1,\"2\"\r\n"}`, contentType: "text/csv", body: "a,b\r\n1,\"2\"\r\n"},
		{name: "YAML", tool: "yaml", args: `{"body":"a: 1\n"}`, contentType: "application/yaml", body: "a: 1\n"},
		{name: "lines", tool: "lines", args: `{"body":[{"b":1.0,"a":"x\ny"},2,null]}`, contentType: "application/x-ndjson", body: "{\"a\":\"x\\ny\",\"b\":1.0}\n2\nnull\n"},
		{name: "XML as text", tool: "rawxml", args: `{"body":"<a/>"}`, contentType: "text/xml", body: "<a/>"},
		{name: "a list of parts", tool: "mixed", args: `{"body":["text",{"a":1}]}`, contentType: "multipart/mixed; boundary=BOUNDARY",
			body: lines("--BOUNDARY", "Content-Type: text/plain; charset=utf-8", "", "text", "--BOUNDARY", "Content-Type: application/json", "", `{"a":1}`, "--BOUNDARY--")},
		{name: "related parts", tool: "related", args: `{"body":{"media":"YQ","meta":{"n":1}}}`, contentType: `multipart/related; type="application/json"; boundary=BOUNDARY`,
			body: lines("--BOUNDARY", `Content-Disposition: form-data; name="meta"`, "Content-Type: application/json", "", `{"n":1}`,
				"--BOUNDARY", `Content-Disposition: form-data; name="media"; filename="media"`, "Content-Type: image/png", "", "a", "--BOUNDARY--")},
		{name: "merge patch", tool: "patch", args: `{"body":{"a":null}}`, contentType: "application/merge-patch+json", body: `{"a":null}`},
		{name: "JSON patch", tool: "patch", args: `{"content_type":"application/json-patch+json","body":[{"op":"remove","path":"/a"}]}`, contentType: "application/json-patch+json", body: `[{"op":"remove","path":"/a"}]`},
		{name: "JSON of two", tool: "either", args: `{"body":{"url":"https://x"}}`, contentType: "application/json", body: `{"url":"https://x"}`},
		{name: "multipart of two", tool: "either", args: `{"content_type":"multipart/form-data","body":{"file":"YQ=="}}`, contentType: "multipart/form-data; boundary=BOUNDARY",
			body: lines("--BOUNDARY", `Content-Disposition: form-data; name="file"; filename="file"`, "Content-Type: application/octet-stream", "", "a", "--BOUNDARY--")},
		{name: "an image of three", tool: "three", args: `{"content_type":"image/jpeg","body":"YQ=="}`, contentType: "image/jpeg", body: "a"},
		{name: "another image of three", tool: "three", args: `{"content_type":"image/png","body":"YQ=="}`, contentType: "image/png", body: "a"},
		{name: "text of three", tool: "three", args: `{"body":"a"}`, contentType: "text/plain", body: "a"},
		// The example of OpenAPI 3.0.4 and 3.1.1, "Support for x-www-form-urlencoded";
		// every character but letters, digits, - . _ ~ and the space is encoded.
		{name: "form", tool: "form", args: `{"body":{"id":"f81d4fae-7dec-11d0-a765-00a0c91e6bf6","address":{"streetAddress":"123 Example Dr.","zip":"99999+1234"},"icon":"iVBO+w==","note":{"a":"&"}}}`,
			contentType: formType, body: "address=%7B%22streetAddress%22%3A%22123+Example+Dr.%22%2C%22zip%22%3A%2299999%2B1234%22%7D&icon=iVBO%2Bw%3D%3D&id=f81d4fae-7dec-11d0-a765-00a0c91e6bf6" +
				"&note=%3C%3Fxml+version%3D%221.0%22+encoding%3D%22UTF-8%22%3F%3E%0A%3Cnote%3E%3Ca%3E%26amp%3B%3C%2Fa%3E%3C%2Fnote%3E"},
		{name: "content of parameters", tool: "content", args: `{"j":{"a":"&"},"t":"a b","f":{"k":"v w","l":[1,2]},"x":{"a":"<"}}`,
			target: "/content?j=%7B%22a%22%3A%22%26%22%7D&t=a%20b&f=k%3Dv%2Bw%26l%3D1%26l%3D2&x=%3C%3Fxml%20version%3D%221.0%22%20encoding%3D%22UTF-8%22%3F%3E%0A%3Cx%3E%3Ca%3E%26lt%3B%3C%2Fa%3E%3C%2Fx%3E"},
		{name: "content of a header", tool: "content", args: `{"X-J":{"a":[1]}}`, target: "/content", header: [2]string{"X-J", `{"a":[1]}`}},
		{name: "content of a cookie", tool: "content", args: `{"c":{"a":"; x"}}`, target: "/content", header: [2]string{"Cookie", `c=%7B%22a%22%3A%22%3B%20x%22%7D`}},
		{name: "body of GET", tool: "getBody", args: `{"body":{"q":1}}`, target: "/search", contentType: "application/json", body: `{"q":1}`},
	}
	e := newExecutor(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := tools[tt.tool]
			if m == nil {
				t.Fatal("there is no such tool")
			}
			_, err := execute(t, e, m, tt.args)
			if err != nil {
				t.Fatalf("%v: %v", err, err.Details)
			}
			raw := last()
			shown := boundaryOf.ReplaceAllString(raw, "BOUNDARY")
			if got := headerLine(shown, "Content-Type"); got != tt.contentType {
				t.Errorf("content type %q, want %q", got, tt.contentType)
			}
			if got := bodyOf(shown); got != tt.body {
				t.Errorf("body\n%q\nwant\n%q", got, tt.body)
			}
			if tt.target != "" && target(raw) != tt.target {
				t.Errorf("target\n%s\nwant\n%s", target(raw), tt.target)
			}
			if tt.header[0] != "" && headerLine(raw, tt.header[0]) != tt.header[1] {
				t.Errorf("%s: %s, want %s", tt.header[0], headerLine(raw, tt.header[0]), tt.header[1])
			}
			if _, err := execute(t, e, m, tt.args); err != nil || bodyOf(last()) != bodyOf(raw) {
				t.Errorf("a second time another body is sent (%v)", err)
			}
		})
	}
}

// TestBodiesRefused are bodies that cannot be sent correctly.
func TestBodiesRefused(t *testing.T) {
	base, _ := rawServer(t)
	tools := imported(t, base, bodiesDocument)
	e := newExecutor(t)
	for _, tt := range []struct{ tool, args, pointer string }{
		{"image", `{"body":"not base64!"}`, "/body"},
		{"image", `{"body":7}`, "/body"},
		{"image", `{"body":{"base64":"","text":""}}`, "/body"},
		{"image", `{"body":{"base64":"","content_type":"text/html"}}`, "/body"},
		{"image", `{"body":{"base64":"","content_type":"image/png\r\nX-Evil: 1"}}`, "/body"},
		{"image", `{"body":{"base64":"","nope":""}}`, "/body/nope"},
		{"anyImage", `{"body":"AAAA"}`, "/body"},
		{"anyImage", `{"body":{"base64":"","content_type":"image/*"}}`, "/body"},
		{"upload", `{"body":[]}`, "/body"},
		{"upload", `{"body":"x"}`, "/body"},
		{"upload", `{"body":{"image":{"base64":"","file_name":"a\r\nX: y"}}}`, "/body"},
		{"upload", `{"body":{"a\nb":"x"}}`, "/body"},
		{"upload", `{"body":{"csv":["a,b"]}}`, "/body/csv"},
		{"upload", `{"body":{"history":{"a b":1}}}`, "/body/history/a b"},
		{"lines", `{"body":{}}`, "/body"},
		{"csv", `{"body":[1]}`, "/body"},
		{"patch", `{"content_type":"text/plain","body":{}}`, "/content_type"},
		{"three", `{"content_type":"image/webp","body":""}`, "/content_type"},
		{"three", `{"content_type":"image/png\r\nX: y","body":""}`, "/content_type"},
		{"three", `{"content_type":"","body":""}`, "/content_type"},
	} {
		_, err := execute(t, e, tools[tt.tool], tt.args)
		if err == nil || err.Code != toolkeep.UnsafeArgument && err.Code != toolkeep.MissingParameter || !err.NothingSent || err.Details["pointer"] != tt.pointer {
			t.Errorf("%s %s: %v, pointer %v, want %s", tt.tool, tt.args, err, err.Details["pointer"], tt.pointer)
		}
	}
}

const xmlDocument = `openapi: 3.1.1
info: {title: XML, version: '1'}
paths:
PATHScomponents:
  schemas:
`

// TestXML sends the values of the examples of OpenAPI 3.1.1, "XML Object Examples", and
// cases that they leave out.
func TestXML(t *testing.T) {
	base, last := rawServer(t)
	const array = `{type: array, items: {type: string`
	tests := []struct{ name, schema, value, want string }{
		{"noname", `{type: object, properties: {animals: {type: string}}}`, `{"animals":"cat"}`, `<Root><animals>cat</animals></Root>`},
		{"list", `{type: object, properties: {animals: ` + array + `}}}}`, `{"animals":["cat","dog"]}`, `<Root><animals>cat</animals><animals>dog</animals></Root>`},
		{"renamed", `{type: object, properties: {animals: {type: string, xml: {name: animal}}}}`, `{"animals":"cat"}`, `<Root><animal>cat</animal></Root>`},
		{"person", `{type: object, properties: {id: {type: integer, xml: {attribute: true}}, name: {type: string, xml: {namespace: "https://example.com/schema/sample", prefix: sample}}}}`,
			`{"name":"example","id":123}`, `<Root id="123"><sample:name xmlns:sample="https://example.com/schema/sample">example</sample:name></Root>`},
		{"item name", `{type: object, properties: {animals: ` + array + `, xml: {name: animal}}}}}`, `{"animals":["a","b"]}`, `<Root><animal>a</animal><animal>b</animal></Root>`},
		{"list name has no effect", `{type: object, properties: {animals: ` + array + `, xml: {name: animal}}, xml: {name: aliens}}}}`, `{"animals":["a"]}`, `<Root><animal>a</animal></Root>`},
		{"wrapped", `{type: object, properties: {animals: ` + array + `}, xml: {wrapped: true}}}}`, `{"animals":["a","b"]}`, `<Root><animals><animals>a</animals><animals>b</animals></animals></Root>`},
		{"wrapped item name", `{type: object, properties: {animals: ` + array + `, xml: {name: animal}}, xml: {wrapped: true}}}}`, `{"animals":["a"]}`, `<Root><animals><animal>a</animal></animals></Root>`},
		{"wrapped both names", `{type: object, properties: {animals: ` + array + `, xml: {name: animal}}, xml: {name: aliens, wrapped: true}}}}`, `{"animals":["a"]}`, `<Root><aliens><animal>a</animal></aliens></Root>`},
		{"wrapped list name", `{type: object, properties: {animals: ` + array + `}, xml: {name: aliens, wrapped: true}}}}`, `{"animals":["a"]}`, `<Root><aliens><aliens>a</aliens></aliens></Root>`},
		{"wrapped empty", `{type: object, properties: {animals: ` + array + `}, xml: {wrapped: true}}}}`, `{"animals":[]}`, `<Root><animals></animals></Root>`},
		{"root name", `{type: object, xml: {name: pet, namespace: "urn:p", prefix: p}, properties: {a: {type: string, xml: {attribute: true, prefix: p, namespace: "urn:p"}}}}`, `{"a":"1"}`, `<p:pet xmlns:p="urn:p" p:a="1"></p:pet>`},
		{"default namespace", `{type: object, xml: {namespace: "urn:p"}, properties: {b: {type: boolean}}}`, `{"b":false}`, `<Root xmlns="urn:p"><b>false</b></Root>`},
		{"order of the document", `{type: object, properties: {z: {}, a: {}, m: {}}}`, `{"m":1,"z":2,"a":3,"b":4}`, `<Root><z>2</z><a>3</a><m>1</m><b>4</b></Root>`},
		{"escapes", `{type: object, properties: {a: {type: string, xml: {attribute: true}}}}`, `{"a":"<&\"'\n\t>","t":"<&\"'\r\n]]>"}`, "<Root a=\"&lt;&amp;&quot;&apos;&#xA;&#x9;&gt;\"><t>&lt;&amp;\"'&#xD;\n]]&gt;</t></Root>"},
		{"nulls are left out", `{type: object, properties: {a: {}, b: {}}}`, `{"a":null,"b":1}`, `<Root><b>1</b></Root>`},
		{"all of", `{allOf: [{type: object, properties: {b: {type: string, xml: {name: bee}}}}, {properties: {a: {type: string, xml: {attribute: true}}}}]}`, `{"a":"1","b":"2"}`, `<Root a="1"><bee>2</bee></Root>`},
		{"reference", `{type: object, properties: {name: {type: string, xml: {attribute: true}}, child: {$ref: '#/components/schemas/s16'}}}`, `{"name":"a","child":{"a":"b"}}`, `<Root name="a"><child a="b"></child></Root>`},
		{"beside a reference", `{type: object, properties: {child: {$ref: '#/components/schemas/s11', xml: {name: kid}}}}`, `{"child":{"a":"b"}}`, `<Root><p:kid xmlns:p="urn:p" p:a="b"></p:kid></Root>`},
		{"node types", `{type: object, properties: {lang: {xml: {nodeType: attribute}}, text: {xml: {nodeType: text}}, raw: {xml: {nodeType: cdata}}}}`, `{"lang":"de","text":"a<b","raw":"x]]>y"}`, `<Root lang="de">a&lt;bx]]&gt;y</Root>`},
		{"control character", `{type: object}`, `{"a":"\u0001"}`, "E"},
		{"a name that is none", `{type: object}`, `{"a b":1}`, "E"},
		{"a name that declares", `{type: object, properties: {xmlns: {xml: {attribute: true}}}}`, `{"xmlns":"urn:evil"}`, "E"},
		{"null in a list", `{type: object}`, `{"a":[null]}`, "E"},
		{"list in a list", `{type: object}`, `{"a":[["x"]]}`, "E"},
		{"attribute of a list", `{type: object, properties: {a: {xml: {attribute: true}}}}`, `{"a":["x"]}`, "E"},
	}
	doc, paths := xmlDocument, ""
	for i, tt := range tests {
		n := string(rune('0'+i/10)) + string(rune('0'+i%10))
		paths += "  /x" + n + ": {post: {operationId: x" + n + ", responses: {200: {description: ok}}, requestBody: {content: {application/xml: {schema: {$ref: '#/components/schemas/s" + n + "'}}}}}}\n"
		doc += "    s" + n + ": " + tt.schema + "\n"
	}
	tools := imported(t, base, strings.Replace(doc, "PATHS", paths, 1))
	e := newExecutor(t)
	for i, tt := range tests {
		n := string(rune('0'+i/10)) + string(rune('0'+i%10))
		t.Run(tt.name, func(t *testing.T) {
			if tools["x"+n] == nil {
				t.Fatal("there is no such tool")
			}
			_, err := execute(t, e, tools["x"+n], `{"body":`+tt.value+`}`)
			got := "E"
			if err == nil {
				got = strings.TrimPrefix(bodyOf(last()), xmlHead)
				got = strings.NewReplacer("<s"+n+">", "<Root>", "<s"+n+" ", "<Root ", "</s"+n+">", "</Root>").Replace(got)
			} else if err.Code != toolkeep.UnsafeArgument || !err.NothingSent {
				t.Error(err)
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestBodies32 sends the additions of OpenAPI 3.1 and 3.2: lists of parts, sequences,
// contentEncoding, and a QUERY with a body.
func TestBodies32(t *testing.T) {
	base, last := rawServer(t)
	tools := imported(t, base, `openapi: 3.2.0
info: {title: New, version: '1'}
paths:
  /parts: {post: {operationId: parts, responses: {200: {description: ok}}, requestBody: {content: {multipart/mixed: {
    schema: {type: array, prefixItems: [{type: object}], items: {type: string}}}}}}}
  /seq: {post: {operationId: seq, responses: {200: {description: ok}}, requestBody: {content: {application/json-seq: {itemSchema: {type: object}}}}}}
  /coded: {post: {operationId: coded, responses: {200: {description: ok}}, requestBody: {content: {multipart/form-data: {schema: {type: object, properties: {
    a: {type: string, contentEncoding: base64, contentMediaType: image/png}, b: {contentMediaType: image/gif}, c: {type: string, contentEncoding: base64url}, d: {type: string, contentMediaType: text/html}}}}}}}}
  /find: {query: {operationId: find, responses: {200: {description: ok}}, requestBody: {required: true, content: {application/json: {schema: {type: object}}}}}}
`)
	lines := func(l ...string) string { return strings.Join(l, "\r\n") + "\r\n" }
	e := newExecutor(t)
	for _, tt := range []struct{ tool, args, start, body string }{
		{"parts", `{"body":[{"a":1},"x,y","z"]}`, "POST /parts ", lines("--BOUNDARY", "Content-Type: application/json", "", `{"a":1}`,
			"--BOUNDARY", "Content-Type: text/plain; charset=utf-8", "", "x,y", "--BOUNDARY", "Content-Type: text/plain; charset=utf-8", "", "z", "--BOUNDARY--")},
		{"seq", `{"body":[{"a":1},{"b":2}]}`, "POST /seq ", "\x1e{\"a\":1}\n\x1e{\"b\":2}\n"},
		{"coded", `{"body":{"a":"YQ==","b":"YQ==","c":"_w","d":"<p>"}}`, "POST /coded ", lines(
			"--BOUNDARY", `Content-Disposition: form-data; name="a"`, "Content-Type: image/png", "", "YQ==",
			"--BOUNDARY", `Content-Disposition: form-data; name="b"; filename="b"`, "Content-Type: image/gif", "", "a",
			"--BOUNDARY", `Content-Disposition: form-data; name="c"`, "Content-Type: application/octet-stream", "", "_w",
			"--BOUNDARY", `Content-Disposition: form-data; name="d"`, "", "<p>", "--BOUNDARY--")},
		{"find", `{"body":{"q":1}}`, "QUERY /find ", `{"q":1}`},
	} {
		if _, err := execute(t, e, tools[tt.tool], tt.args); err != nil {
			t.Errorf("%s: %v", tt.tool, err)
			continue
		}
		raw := boundaryOf.ReplaceAllString(last(), "BOUNDARY")
		if !strings.HasPrefix(raw, tt.start) || bodyOf(raw) != tt.body {
			t.Errorf("%s:\n%q\nwant\n%q", tt.tool, raw, tt.body)
		}
	}
}

// TestListsOfLists sends Swagger 2.0's nested lists, each with its collectionFormat.
func TestListsOfLists(t *testing.T) {
	base, last := rawServer(t)
	tools := imported(t, base, `swagger: '2.0'
info: {title: Lists, version: '1'}
paths:
  /a/{p}:
    get:
      operationId: lists
      responses: {200: {description: ok}}
      parameters:
        - {name: p, in: path, required: true, type: array, collectionFormat: pipes, items: {type: array, items: {type: integer}}}
        - {name: q, in: query, type: array, collectionFormat: multi, items: {type: array, collectionFormat: ssv, items: {type: array, items: {type: string}}}}
        - {name: X-H, in: header, type: array, items: {type: array, collectionFormat: pipes, items: {type: string}}}
`)
	if _, err := execute(t, newExecutor(t), tools["lists"], `{"p":[[1,2],[3]],"q":[[["a","b"],["c,"]],[["d"]]],"X-H":[["x","y"],["z"]]}`); err != nil {
		t.Fatal(err)
	}
	if got, want := target(last()), "/a/1,2%7C3?q=a,b%20c%2C&q=d"; got != want || headerLine(last(), "X-H") != "x|y,z" {
		t.Errorf("%s and %s, want %s and x|y,z", got, headerLine(last(), "X-H"), want)
	}
}

func TestBodyLimit(t *testing.T) {
	b := parsed(t, `{"method":"PUT","server":"https://x","path":"/","body":{"arg":"b","content_type":"multipart/form-data"}}`)
	half := strings.Repeat("x", maxBody/2)
	for value, want := range map[*map[string]any]bool{{"a": half}: true, {"a": half, "b": half}: false} {
		r, err := b.build(&toolkeep.Execution{Args: map[string]any{"b": *value}})
		if want != (err == nil) || err != nil && (err.Code != toolkeep.UnsafeArgument || !err.NothingSent) {
			t.Errorf("%d parts: %v %v", len(*value), r != nil, err)
		}
	}
	b = parsed(t, `{"method":"PUT","server":"https://x","path":"/","body":{"arg":"b","content_type":"text/plain"}}`)
	if _, err := b.build(&toolkeep.Execution{Args: map[string]any{"b": half + half + "x"}}); err == nil || err.Code != toolkeep.UnsafeArgument {
		t.Errorf("a text over the limit: %v", err)
	}
}
