package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// contract checks every exchange of the tests against the document: the route
// is in it, the status is, and bodies match their schemas. Schemas of answers
// are closed for this, so that an answer cannot have a field that the document
// does not.
type contract struct {
	mux      *http.ServeMux
	doc      map[string]any
	compiler *jsonschema.Compiler
	mu       sync.Mutex // of compiler
}

var theContract = sync.OnceValue(func() *contract {
	a := newSystem().api()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(a.document.json()))
	if err != nil {
		panic(err)
	}
	c := &contract{mux: a.mux, doc: v.(map[string]any), compiler: jsonschema.NewCompiler()}
	for _, s := range c.doc["components"].(map[string]any)["schemas"].(map[string]any) {
		s := s.(map[string]any)
		if s["properties"] != nil && s["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
	}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource("mem:doc", v); err != nil {
		panic(err)
	}
	return c
})

func escapePointer(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(s)
}

// operation finds the document's operation and its pointer.
func (c *contract) operation(r *http.Request) (map[string]any, string) {
	_, pattern := c.mux.Handler(r)
	method, path, ok := strings.Cut(pattern, " ")
	if !ok {
		return nil, ""
	}
	method = strings.ToLower(method)
	op := c.doc["paths"].(map[string]any)[path].(map[string]any)[method].(map[string]any)
	return op, "/paths/" + escapePointer(path) + "/" + method
}

func (c *contract) validate(pointer string, body []byte) error {
	c.mu.Lock()
	s, err := c.compiler.Compile("mem:doc#" + pointer)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func (c *contract) check(t *testing.T, r *http.Request, sent string, w *httptest.ResponseRecorder) {
	t.Helper()
	op, at := c.operation(r)
	if op == nil {
		return // 404 and 405
	}
	responses := op["responses"].(map[string]any)
	status := strconv.Itoa(w.Code)
	if responses[status] == nil {
		if w.Code < 400 {
			t.Errorf("%s %s answers %s, which the document does not have", r.Method, r.URL.Path, status)
			return
		}
		status = "default"
	}
	ct, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
	content, _ := responses[status].(map[string]any)["content"].(map[string]any)
	if strings.HasSuffix(ct, "json") && ct != ndjsonType && w.Header().Get("Content-Encoding") == "" && w.Body.Len() > 0 && r.Method != http.MethodHead {
		if content[ct] == nil {
			t.Errorf("%s %s answers %s with %s, which the document does not have", r.Method, r.URL.Path, status, ct)
			return
		}
		p := at + "/responses/" + status + "/content/" + escapePointer(ct) + "/schema"
		if err := c.validate(p, w.Body.Bytes()); err != nil {
			t.Errorf("the answer breaks the document at %s: %v\n%s", p, err, w.Body)
		}
	}
	if w.Code < 400 && sent != "" {
		if err := c.validate(at+"/requestBody/content/application~1json/schema", []byte(sent)); err != nil {
			t.Errorf("a request that was accepted breaks the document: %v\n%s", err, sent)
		}
	}
}

func TestDocumentIsValidOpenAPI(t *testing.T) {
	a := newSystem().api()
	for name, body := range map[string][]byte{"json": a.document.json(), "yaml": a.document.yaml()} {
		doc, err := libopenapi.NewDocument(body)
		if err != nil {
			t.Fatal(name, err)
		}
		model, err := doc.BuildV3Model()
		if err != nil {
			t.Fatal(name, err)
		}
		if v := model.Model.Version; !strings.HasPrefix(v, "3.1") {
			t.Errorf("%s: version %s", name, v)
		}
		if n := model.Model.Paths.PathItems.Len(); n < 20 {
			t.Errorf("%s: %d paths", name, n)
		}
		if model.Model.Info.Version != "1.2.3" {
			t.Errorf("%s: %+v", name, model.Model.Info)
		}
	}
}

func TestEverySchemaCompiles(t *testing.T) {
	c := theContract()
	for name := range c.doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := c.compiler.Compile("mem:doc#/components/schemas/" + name); err != nil {
			t.Error(err)
		}
	}
}

func TestDocumentAndRoutesAreTheSame(t *testing.T) {
	least := newSystem()
	least.Search, least.Keys, least.Blobs, least.Invalidate, least.Health = nil, nil, nil, nil, nil
	for name, s := range map[string]*system{"whole": newSystem(), "least": least} {
		t.Run(name, func(t *testing.T) {
			a := s.api()
			var doc struct {
				Paths map[string]map[string]struct {
					OperationID string           `json:"operationId"`
					Parameters  []map[string]any `json:"parameters"`
				} `json:"paths"`
			}
			if err := json.Unmarshal(a.document.json(), &doc); err != nil {
				t.Fatal(err)
			}
			var documented []string
			ids := map[string]bool{}
			for path, ops := range doc.Paths {
				for method, op := range ops {
					documented = append(documented, strings.ToUpper(method)+" "+path)
					if op.OperationID == "" || ids[op.OperationID] {
						t.Errorf("%s %s: operation id %q is empty or taken", method, path, op.OperationID)
					}
					ids[op.OperationID] = true
					for _, part := range strings.Split(path, "/") {
						if n := strings.Trim(part, "{}"); n != part && !slices.ContainsFunc(op.Parameters, func(p map[string]any) bool { return p["name"] == n && p["in"] == "path" }) {
							t.Errorf("%s %s: parameter %s is not documented", method, path, n)
						}
					}
				}
			}
			served := slices.Clone(a.patterns)
			slices.Sort(served)
			slices.Sort(documented)
			if !slices.Equal(served, documented) {
				t.Errorf("served     %v\ndocumented %v", served, documented)
			}
		})
	}
}

func TestDocumentIsServed(t *testing.T) {
	s := newSystem()
	for path, ct := range map[string]string{"/openapi.json": "application/openapi+json", "/openapi.yaml": "application/openapi+yaml"} {
		w := s.do(t, "GET", path, "", "Authorization: ")
		wantStatus(t, w, 200)
		if got := w.Header().Get("Content-Type"); got != ct {
			t.Errorf("%s: %s", path, got)
		}
		if _, err := libopenapi.NewDocument(w.Body.Bytes()); err != nil {
			t.Error(path, err)
		}
	}
}

// The reader of the envelope and the type that documents it know the same fields.
func TestEnvelopeMatchesItsDocument(t *testing.T) {
	for _, x := range []struct {
		fields []field
		typ    any
	}{
		{envelopeFields, InvokeRequest{}}, {agentFields, AgentContext{}}, {limitFields, ResourceLimits{}}, {documentFields, DocumentContext{}},
		{checkpointFields, CheckpointConfig{}}, {optionFields, ExecutionOptions{}}, {contextFields, ExecutionContext{}},
	} {
		var documented []string
		for typ, i := reflect.TypeOf(x.typ), 0; i < typ.NumField(); i++ {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			documented = append(documented, name)
		}
		read := slices.Sorted(slices.Values(namesOf(x.fields)))
		slices.Sort(documented)
		if !slices.Equal(read, documented) {
			t.Errorf("%T: read %v, documented %v", x.typ, read, documented)
		}
	}
}

func TestExampleOfTheDocumentIsAccepted(t *testing.T) {
	body, err := json.Marshal(invokeExample)
	if err != nil {
		t.Fatal(err)
	}
	if c, _ := decodeCall(body, nil); c.Fault != nil {
		t.Error(c.Fault)
	}
	if err := theContract().validate("/components/schemas/InvokeRequest", body); err != nil {
		t.Error(err)
	}
}
