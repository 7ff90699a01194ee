package bookshop

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// contract is the document that responses are checked against.
type contract struct {
	tree     map[string]any
	compiler *jsonschema.Compiler
	answered map[string]bool // "operationId status"
}

func readContract(t *testing.T) *contract {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal(Document(), &doc); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	doc, err = jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("urn:bookshop", doc); err != nil {
		t.Fatal(err)
	}
	return &contract{tree: doc.(map[string]any), compiler: c, answered: make(map[string]bool)}
}

// find follows names and local references through the document.
func (c *contract) find(names ...string) (any, string) {
	var v any = c.tree
	at := "urn:bookshop#"
	for _, n := range names {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, ""
		}
		v = m[n]
		at += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(n)
		if m, ok := v.(map[string]any); ok {
			if ref, ok := m["$ref"].(string); ok {
				v, at = c.find(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			}
		}
	}
	return v, at
}

// operation returns the operation with an id.
func (c *contract) operation(t *testing.T, id string) (path, method string) {
	t.Helper()
	for path, item := range c.tree["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			if op.(map[string]any)["operationId"] == id {
				return path, method
			}
		}
	}
	t.Fatalf("there is no operation %s", id)
	return "", ""
}

// call sends an operation's request and checks the response against the document.
func (c *contract) call(t *testing.T, h http.Handler, id, target, body string, want int, header ...string) map[string]any {
	t.Helper()
	path, method := c.operation(t, id)
	r := httptest.NewRequest(strings.ToUpper(method), target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != want {
		t.Fatalf("%s %s: status %d, want %d: %s", method, target, w.Code, want, w.Body)
	}
	status := strconv.Itoa(want)
	if v, _ := c.find("paths", path, method, "responses", status); v == nil {
		status = status[:1] + "XX"
	}
	media := w.Header().Get("Content-Type")
	schema, at := c.find("paths", path, method, "responses", status, "content", media, "schema")
	if schema == nil {
		t.Fatalf("%s: the document has no %s with %s", id, status, media)
	}
	s, err := c.compiler.Compile(at)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(v); err != nil {
		t.Errorf("%s %d: %v", id, want, err)
	}
	c.answered[id] = c.answered[id] || want < 300
	return v.(map[string]any)
}

func TestAgainstDocument(t *testing.T) {
	c := readContract(t)
	h := Handler()
	key := []string{"X-API-Key", DefaultKey}
	titles := func(v map[string]any) string {
		var ids []string
		for _, b := range v["books"].([]any) {
			ids = append(ids, b.(map[string]any)["id"].(string))
		}
		return strings.Join(ids, " ")
	}
	for target, want := range map[string]string{
		"/books?q=island":                             "treasure-island",
		"/books?q=the%20verne":                        "around-the-world",
		"/books?genre=horror&sort=year":               "frankenstein dracula",
		"/books?genre=horror&in_stock=true":           "frankenstein",
		"/books?genre=fantasy&genre=crime&sort=price": "alice sherlock-holmes",
		"/books?max_price_cents=700&sort=price":       "time-machine alice",
		"/books?sort=price&limit=1&offset=1":          "alice",
		"/books?offset=100":                           "",
		"/books?q=nothing+like+it":                    "",
	} {
		if got := titles(c.call(t, h, "searchBooks", target, "", 200)); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	for _, bad := range []string{"limit=0", "limit=x", "offset=-1", "sort=size", "in_stock=perhaps", "max_price_cents=0"} {
		c.call(t, h, "searchBooks", "/books?"+bad, "", 400)
	}
	c.call(t, h, "getBook", "/books/moby-dick", "", 200)
	c.call(t, h, "getBook", "/books/none", "", 404)

	c.call(t, h, "createOrder", "/orders", `{}`, 401)
	c.call(t, h, "listOrders", "/orders", "", 401, "X-API-Key", "wrong")
	c.call(t, h, "createOrder", "/orders", `{`, 400, key...)
	c.call(t, h, "createOrder", "/orders", `{"customer":"Ada","lines":[]}`, 422, key...)
	c.call(t, h, "createOrder", "/orders", `{"customer":"Ada","lines":[{"book_id":"none","quantity":1}]}`, 422, key...)
	c.call(t, h, "createOrder", "/orders", `{"customer":"Ada","lines":[{"book_id":"alice","quantity":0}]}`, 422, key...)
	c.call(t, h, "createOrder", "/orders", `{"customer":"Ada","lines":[{"book_id":"moby-dick","quantity":3},{"book_id":"moby-dick","quantity":3}]}`, 409, key...)
	c.call(t, h, "createOrder", "/orders", strings.Repeat(" ", maxBody+1), 413, key...)

	const order = `{"customer":"Ada","lines":[{"book_id":"moby-dick","quantity":2}],"note":"wrap it"}`
	withKey := append([]string{"Idempotency-Key", "k1"}, key...)
	first := c.call(t, h, "createOrder", "/orders", order, 201, withKey...)
	again := c.call(t, h, "createOrder", "/orders", order, 201, withKey...)
	if first["id"] != again["id"] || first["total_cents"] != json.Number("2398") {
		t.Errorf("orders %v and %v", first, again)
	}
	c.call(t, h, "createOrder", "/orders", `{"customer":"Bob","lines":[{"book_id":"alice","quantity":1}]}`, 409, withKey...)
	if b := c.call(t, h, "getBook", "/books/moby-dick", "", 200); b["stock"] != json.Number("3") {
		t.Errorf("the stock is %v, want 3: the repeated order was carried out twice", b["stock"])
	}
	id := first["id"].(string)
	c.call(t, h, "getOrder", "/orders/"+id, "", 200, key...)
	c.call(t, h, "getOrder", "/orders/none", "", 404, key...)
	if l := c.call(t, h, "listOrders", "/orders?customer=Ada&status=placed", "", 200, key...); l["total"] != json.Number("1") {
		t.Errorf("orders: %v", l)
	}
	if r := c.call(t, h, "salesReport", "/reports/sales?delay_ms=1", "", 200, key...); r["total_cents"] != json.Number("2398") {
		t.Errorf("report: %v", r)
	}
	c.call(t, h, "salesReport", "/reports/sales?delay_ms=70000", "", 400, key...)
	c.call(t, h, "cancelOrder", "/orders/"+id+"/cancel", "", 200, key...)
	c.call(t, h, "cancelOrder", "/orders/"+id+"/cancel", "", 409, key...)
	c.call(t, h, "cancelOrder", "/orders/none/cancel", "", 404, key...)
	if b := c.call(t, h, "getBook", "/books/moby-dick", "", 200); b["stock"] != json.Number("5") {
		t.Errorf("the stock is %v after cancelling, want 5", b["stock"])
	}

	c.call(t, h, "weatherOfTheDay", "/weather-of-the-day?fail_times=2&run=a", "", 503)
	c.call(t, h, "weatherOfTheDay", "/weather-of-the-day?fail_times=2&run=a&fail_with=429&retry_after_s=1", "", 429)
	c.call(t, h, "weatherOfTheDay", "/weather-of-the-day?fail_times=2&run=a", "", 200)
	c.call(t, h, "weatherOfTheDay", "/weather-of-the-day?fail_with=200", "", 400)

	for path, item := range c.tree["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			o := op.(map[string]any)
			id, _ := o["operationId"].(string)
			if !c.answered[id] {
				t.Errorf("%s %s (%s) was never answered with success", method, path, id)
			}
			if o["summary"] == nil || o["description"] == nil {
				t.Errorf("%s has no summary or description", id)
			}
		}
	}
}

func TestDocumentIsServed(t *testing.T) {
	s := httptest.NewServer(Handler())
	defer s.Close()
	resp, err := http.Get(s.URL + "/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, Document()) || resp.Header.Get("Content-Type") != "application/yaml" {
		t.Errorf("%d bytes as %s, %v", len(got), resp.Header.Get("Content-Type"), err)
	}
}

// TestReportEndsWithItsCaller: the caller of a slow report leaves.
func TestReportEndsWithItsCaller(t *testing.T) {
	r := httptest.NewRequest("GET", "/reports/sales?delay_ms=60000", nil)
	r.Header.Set("X-API-Key", DefaultKey)
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r.WithContext(ctx))
	if w.Body.Len() > 0 {
		t.Errorf("an answer to nobody: %s", w.Body)
	}
}

func TestKeyFromEnvironment(t *testing.T) {
	t.Setenv("BOOKSHOP_KEY", "own")
	h := Handler()
	for key, want := range map[string]int{"own": 200, DefaultKey: 401} {
		r := httptest.NewRequest("GET", "/orders", nil)
		r.Header.Set("X-API-Key", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("key %s: %d, want %d", key, w.Code, want)
		}
	}
}
