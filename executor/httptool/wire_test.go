package httptool

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// wireCase is one call of an imported operation and what must arrive: the target with its
// percent-encoding undone, headers as "Name: value" lines, and the body.
type wireCase struct {
	tool, args string
	target     string
	headers    string
	body       string
}

// onTheWire imports a document and compares what arrives.
func onTheWire(t *testing.T, document string, cases []wireCase) {
	t.Helper()
	base, last := rawServer(t)
	tools := imported(t, base, document)
	e := newExecutor(t)
	for _, tt := range cases {
		m := tools[tt.tool]
		if m == nil {
			t.Errorf("there is no tool %s", tt.tool)
			continue
		}
		if _, err := execute(t, e, m, tt.args); err != nil {
			t.Errorf("%s %s: %v", tt.tool, tt.args, err)
			continue
		}
		raw := last()
		got, err := url.PathUnescape(target(raw))
		if err != nil || got != tt.target {
			t.Errorf("%s %s: the target is %s, want %s", tt.tool, tt.args, got, tt.target)
		}
		for line := range strings.Lines(tt.headers) {
			name, want, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if got := headerLine(raw, name); got != want {
				t.Errorf("%s %s: %s is %q, want %q", tt.tool, tt.args, name, got, want)
			}
		}
		body := bodyOf(raw)
		if plain, err := url.PathUnescape(body); err == nil && strings.HasPrefix(headerLine(raw, "Content-Type"), formType) {
			body = plain
		}
		if body != tt.body {
			t.Errorf("%s %s: the body is %q, want %q", tt.tool, tt.args, body, tt.body)
		}
	}
}

func TestDeepListsOnTheWire(t *testing.T) {
	onTheWire(t, `
openapi: 3.0.3
info: {title: Lists in deepObject and forms, version: "1"}
paths:
  /charges:
    get:
      operationId: listCharges
      parameters:
        - {name: expand, in: query, style: deepObject, explode: true, schema: {type: array, items: {type: string}}}
        - {name: f, in: query, style: deepObject, explode: true, schema: {type: object, properties: {tags: {type: array, items: {type: string}}, rows: {type: array, items: {type: object, properties: {a: {type: string}}}}}}}
        - {name: rails, in: query, style: deepObject, x-deep-lists: brackets, schema: {type: array, items: {}}}
        - {name: again, in: query, style: deepObject, x-deep-lists: repeat, schema: {type: object}}
      responses: {"200": {description: ok}}
    post:
      operationId: createCharge
      requestBody:
        content:
          application/x-www-form-urlencoded:
            encoding: {payment_method_types: {style: deepObject, explode: true}, items: {style: deepObject, explode: true}, rails: {style: deepObject, x-deep-lists: brackets}}
            schema: {type: object, properties: {payment_method_types: {type: array, items: {type: string}}, items: {type: array, items: {type: object, properties: {price: {type: string}, tax_rates: {type: array, items: {type: string}}}}}, rails: {type: array, items: {type: string}}}}
      responses: {"200": {description: ok}}
`, []wireCase{
		{tool: "listCharges", args: `{"expand":["a","b"]}`, target: "/charges?expand[0]=a&expand[1]=b"},
		{tool: "listCharges", args: `{"f":{"tags":["x"],"rows":[{"a":"1"},{"a":"2"}]}}`, target: "/charges?f[rows][0][a]=1&f[rows][1][a]=2&f[tags][0]=x"},
		{tool: "listCharges", args: `{"rails":["x","y"],"again":{"t":["x","y"]}}`, target: "/charges?rails[]=x&rails[]=y&again[t]=x&again[t]=y"},
		{tool: "createCharge", args: `{"body":{"payment_method_types":["card","cash"],"items":[{"price":"p","tax_rates":["t","u"]}],"rails":["r"]}}`, target: "/charges",
			body: "items[0][price]=p&items[0][tax_rates][0]=t&items[0][tax_rates][1]=u&payment_method_types[0]=card&payment_method_types[1]=cash&rails[]=r"},
	})
}

func TestArgumentNamesOnTheWire(t *testing.T) {
	const long = "X-Very-Long-Header-Name-That-Goes-On-And-On-Past-The-Sixty-Four-Characters"
	onTheWire(t, `
openapi: 3.0.3
info: {title: Names, version: "1"}
paths:
  "/teams/{team id}":
    post:
      operationId: listTeams
      parameters:
        - {name: team id, in: path, required: true, schema: {type: string}}
        - {name: "page[size]", in: query, schema: {type: integer}}
        - {name: "$top", in: query, schema: {type: integer}}
        - {name: "Start<", in: query, schema: {type: string}}
        - {name: `+long+`, in: header, schema: {type: string}}
      requestBody: {content: {application/json: {schema: {type: object, properties: {"@type": {type: string}, "a.b": {type: string}}}}}}
      responses: {"200": {description: ok}}
`, []wireCase{{tool: "listTeams", args: `{"team_id":"a b","page_size":2,"top":3,"Start_lt":"x","X-Very-Long-Header-Name-That-Goes-On-And-On-Past-The-Sixt_91d2d9":"h","body":{"@type":"t","a.b":"u"}}`,
		target: "/teams/a b?page[size]=2&$top=3&Start<=x", headers: long + ": h", body: `{"@type":"t","a.b":"u"}`}})
}

func TestAnswersOnTheWire(t *testing.T) {
	onTheWire(t, `
openapi: 3.0.3
info: {title: Answers, version: "1"}
paths:
  /thumb/{id}:
    get:
      operationId: getThumb
      parameters: [{name: id, in: path, required: true, schema: {type: string}}]
      responses:
        "200": {description: image, content: {image/png: {schema: {type: string, format: binary}}}}
        "202": {description: not ready, content: {application/json: {schema: {type: object, properties: {message: {type: string}}}}}}
  /cover:
    put:
      operationId: putCover
      requestBody: {content: {image/jpeg: {schema: {type: string, format: byte}}}}
      responses: {"202": {description: taken, headers: {Location: {schema: {type: string}}}}}
    post:
      operationId: postCover
      requestBody: {content: {image/jpeg: {schema: {type: string, format: binary}}}}
      responses: {"202": {description: taken}}
  /report:
    get:
      operationId: getReport
      requestBody: {content: {application/json: {schema: {type: object}}}}
      responses:
        "200": {description: one of many, content: {text/csv: {}, text/event-stream: {}, application/json: {schema: {type: object}}, application/pdf: {}, "application/json;stream=watch": {}}}
    options:
      operationId: preflight
      requestBody: {content: {application/json: {schema: {type: object, properties: {name: {type: string}, size: {type: integer}}}}}}
      responses: {"200": {description: ok, content: {"*/*": {}}}}
    delete:
      operationId: remove
      requestBody: {content: {application/json: {schema: {type: object}}}}
      responses: {"204": {description: gone}}
  /stream: {get: {operationId: stream, responses: {"200": {description: ok, content: {text/event-stream: {}}}}}}
`, []wireCase{
		{tool: "getThumb", args: `{"id":"1"}`, target: "/thumb/1", headers: "Accept: image/png, application/json"},
		{tool: "putCover", args: `{"body":"aGk="}`, target: "/cover", headers: "Content-Type: image/jpeg", body: "aGk="},
		{tool: "postCover", args: `{"body":"aGk="}`, target: "/cover", headers: "Content-Type: image/jpeg", body: "hi"},
		{tool: "getReport", args: `{}`, target: "/report", headers: "Accept: application/json, text/csv;q=0.9, application/pdf;q=0.9, text/event-stream;q=0.1, application/json;stream=watch;q=0.1"},
		{tool: "getReport", args: `{"body":{"a":1}}`, target: "/report", headers: "Content-Type: application/json", body: `{"a":1}`},
		{tool: "preflight", args: `{"body":{"name":"n"}}`, target: "/report", headers: "Accept: application/json, */*;q=0.5", body: `{"name":"n"}`},
		{tool: "remove", args: `{"body":{"name":"n"}}`, target: "/report", body: `{"name":"n"}`},
		{tool: "stream", args: `{}`, target: "/stream", headers: "Accept: text/event-stream"},
	})
}

// TestWhatAnAnswerTells: the Location of 201 and 202, and whether the schema of the result describes
// the answer's type.
func TestWhatAnAnswerTells(t *testing.T) {
	answer := ""
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		status, rest, _ := strings.Cut(answer, "|")
		contentType, location, _ := strings.Cut(rest, "|")
		w.Header().Set("Content-Type", contentType)
		if location != "" {
			w.Header().Set("Location", location)
		}
		code, _ := strconv.Atoi(status)
		w.WriteHeader(code)
		if r.Method != "HEAD" && code != 204 {
			io.WriteString(w, "{}")
		}
	})
	m := manifest(t, base, `{"method":"GET","server":"SERVER","path":"/","response_types":["application/json; charset=utf-8","text/csv","image/*"]}`)
	e := newExecutor(t)
	for _, tt := range []struct {
		answer, location string
		undescribed      bool
	}{
		{"200|application/json|/a", "", false},
		{"201|application/json|/a?b=c", "/a?b=c", false},
		{"202|text/csv; charset=utf-8|https://u:secret@example.com/a", "https://example.com/a", true},
		{"202|application/json|" + strings.Repeat("a", 3000), "", false},
		{"201|application/json|%zz", "", false},
		{"200|Text/CSV|", "", true},
		{"200|image/png|", "", true},
		{"200|text/html|", "", false},
		{"200|application/problem+json|", "", false},
	} {
		answer = tt.answer
		out, err := execute(t, e, m, `{}`)
		if err != nil {
			t.Errorf("%s: %v", tt.answer, err)
		} else if out.Location != tt.location || out.Undescribed != tt.undescribed {
			t.Errorf("%s: location %q, undescribed %v", tt.answer, out.Location, out.Undescribed)
		}
	}
}

func TestPathTemplatesOnTheWire(t *testing.T) {
	const ids = "schema: {type: array, items: {type: integer}}}]\n      responses: {'200': {description: ok}}\n"
	onTheWire(t, `
openapi: 3.0.3
info: {title: RFC 6570 path templates, version: "1"}
paths:
  "/label/{.ids*}":
    get:
      operationId: byLabelExploded
      parameters: [{name: ids, in: path, required: true, style: label, explode: true, `+ids+`
  "/label2/{.ids}":
    get:
      operationId: byLabel
      parameters: [{name: ids, in: path, required: true, style: label, `+ids+`
  "/matrix/{;ids*}":
    get:
      operationId: byMatrix
      parameters: [{name: ids, in: path, required: true, style: matrix, explode: true, `+ids+`
  "/said{;ids*}{.format}":
    get:
      operationId: bySaid
      parameters: [{name: format, in: path, required: true, schema: {type: string}}, {name: ids, in: path, required: true, `+ids+`
  "/own/{ids*}":
    get:
      operationId: byOwn
      parameters: [{name: ids, in: path, required: true, style: matrix, explode: false, `+ids+`
  "/users{/id}/{a,b}/{+rest}{?q,ids*}":
    get:
      operationId: byMany
      parameters: [{name: ids, in: query, explode: false, `+ids+`
  "/named/{.x}":
    get:
      operationId: byName
      parameters: [{name: .x, in: path, required: true, `+ids, []wireCase{
		{tool: "byLabelExploded", args: `{"ids":[1,2]}`, target: "/label/.1.2"},
		{tool: "byLabel", args: `{"ids":[1,2]}`, target: "/label2/.1,2"},
		{tool: "byMatrix", args: `{"ids":[1,2]}`, target: "/matrix/;ids=1;ids=2"},
		{tool: "bySaid", args: `{"ids":[1,2],"format":"csv"}`, target: "/said;ids=1;ids=2.csv"},
		{tool: "byOwn", args: `{"ids":[1,2]}`, target: "/own/;ids=1,2"},
		{tool: "byMany", args: `{"id":"1","a":"x","b":"y","rest":"p:q","q":"z","ids":[1,2]}`, target: "/users/1/x,y/p:q?ids=1,2&q=z"},
		{tool: "byName", args: `{".x":[1,2]}`, target: "/named/1,2"},
	})
}
