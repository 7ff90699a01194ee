package openapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
	"github.com/toolkeep/toolkeep/executor/executortest"
	"github.com/toolkeep/toolkeep/executor/httptool"
)

// TestDocumentsOnTheWire imports every operation of the documents, calls it with arguments made
// from the document's schemas, and compares what arrives with what an encoder of its own makes of the
// document: method, path, query, headers, cookies and body. Every tool also passes Check: what cannot
// be sent must be refused at import.
func TestDocumentsOnTheWire(t *testing.T) {
	w := newWire(t)
	for _, path := range documents(t) {
		w.document(t, path)
	}
	if w.tools == 0 {
		t.Error("no tool was read")
	}
	t.Logf("%d documents, %d tools, %d requests compared", w.documents, w.tools, w.requests)
	for _, kind := range slices.Sorted(maps.Keys(w.seen)) {
		t.Logf("%6d %s", w.seen[kind], kind)
	}
	for _, why := range slices.Sorted(maps.Keys(w.unsent)) {
		t.Logf("%d parameters were not sent: %s", w.unsent[why], why)
	}
}

var isDocument = regexp.MustCompile(`(?m)^[ {]{0,4}["']?(openapi|swagger)["']?\s*:`)

// documents lists the files that declare themselves OpenAPI or Swagger at their root: the project's own,
// which hold what the shared ones lack, and the shared ones where they are; under -short the shared API descriptions
// are left out.
func documents(t *testing.T) []string {
	var list []string
	const described = "../../../../shared/data/openapi"
	for _, dir := range []string{"testdata/documents", "../../../examples/bookshop", described, "../../../../shared/cases/openapi"} {
		if testing.Short() && dir == described {
			continue
		}
		if _, err := os.Stat(dir); err != nil {
			t.Logf("NOT TESTED: the documents of %s are missing", dir)
			continue
		}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
				return err
			}
			data, err := os.ReadFile(path)
			if err == nil && isDocument.Match(data) {
				list = append(list, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// arrived is one request.
type arrived struct {
	method, target, body string
	header               http.Header
}

type wire struct {
	executor *httptool.Executor
	base     string
	address  toolkeep.HostPort
	got      <-chan arrived

	documents, tools, requests int
	unsent, seen               map[string]int
}

func newWire(t *testing.T) *wire {
	w := &wire{executor: httptool.New(httptool.Config{}), unsent: map[string]int{}, seen: map[string]int{}}
	t.Cleanup(w.executor.Close)
	got := make(chan arrived, 1)
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- arrived{r.Method, r.RequestURI, string(body), r.Header.Clone()}
		rw.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	at := s.Listener.Addr().(*net.TCPAddr)
	w.base, w.address = s.URL, toolkeep.HostPort{Host: at.IP.String(), Port: at.Port}
	w.got = got
	return w
}

func (w *wire) document(t *testing.T, path string) {
	plan, err := openapi.Given(t.Context(), path)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	doc, err := readRaw(path)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return
	}
	w.documents++
	if strings.HasPrefix(path, "testdata") {
		for _, r := range plan.Refused {
			t.Errorf("%s: %s is refused: %s", path, r.Operation, r.Reason)
		}
	}
	for _, tool := range plan.Tools {
		w.tools++
		m := new(toolkeep.Manifest)
		if err := json.Unmarshal(tool.Manifest, m); err != nil {
			t.Errorf("%s %s: %v", path, tool.Name, err)
			continue
		}
		for _, f := range w.executor.Check(m) {
			t.Errorf("%s %s %s: %+v", path, tool.Method, tool.Path, f)
		}
		w.here(m)
		if err := w.operation(t, doc, m, tool); err != nil {
			t.Errorf("%s: %s %s: %v", strings.TrimPrefix(path, "../../../../shared/"), tool.Method, tool.Path, err)
		}
	}
}

// here leads a tool to the server of the test. Calls have no credentials.
func (w *wire) here(m *toolkeep.Manifest) {
	m.Execution.Binding = bytes.ReplaceAll(m.Execution.Binding, []byte(openapi.GivenServer), []byte(w.base))
	m.Permissions = &toolkeep.Permissions{Network: []toolkeep.HostPort{w.address}}
	m.Auth = nil
}

// interfaceOf is what the binding says of the tool's arguments.
type interfaceOf struct {
	Parameters []struct{ Name, In, Arg string }
	Body       *struct {
		Arg         string
		ContentType string `json:"content_type"`
		TypeArg     string `json:"type_arg"`
		Others      []struct {
			ContentType string `json:"content_type"`
		}
	}
}

func (i *interfaceOf) arg(in, name string) string {
	for _, p := range i.Parameters {
		if p.In == in && (p.Name == name || in == "header" && strings.EqualFold(p.Name, name)) {
			return p.Arg
		}
	}
	return ""
}

// operation calls one tool several times and returns the first difference.
func (w *wire) operation(t *testing.T, doc *raw, m *toolkeep.Manifest, tool openapi.PlannedTool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			why, ok := p.(unread)
			if !ok {
				panic(p)
			}
			err = fmt.Errorf("the test cannot read it: %s", string(why))
		}
	}()
	var bound interfaceOf
	if err := json.Unmarshal(m.Execution.Binding, &bound); err != nil {
		return err
	}
	item := doc.root.in("paths").in(tool.Path)
	op := item.in(strings.ToLower(tool.Method))
	if op.v == nil {
		op = item.in("additionalOperations").in(tool.Method)
	}
	ways := []string{""}
	if b := bound.Body; b != nil {
		ways[0] = b.ContentType
		for _, o := range b.Others {
			ways = append(ways, o.ContentType)
		}
	}
	for variant := range max(5, len(ways)) {
		c := &call{wire: w, item: item, op: op, bound: &bound, args: map[string]any{}, values: values{variant: variant, all: variant > 0}}
		if c.values.all {
			c.way = ways[variant%len(ways)]
		} else {
			c.way = ways[0]
		}
		if bound.Body != nil && c.way != ways[0] {
			c.args[bound.Body.TypeArg] = c.way
		}
		if err := c.expect(tool.Path); err != nil {
			return err
		}
		if err := c.compare(t, m, tool.Method); err != nil {
			shown, _ := json.Marshal(c.args)
			return fmt.Errorf("%w\n\twith %s", err, shown[:min(len(shown), 1500)])
		}
		w.requests++
		w.seen["body "+c.media]++
	}
	return nil
}

// call is one call of a tool: its arguments and what must arrive.
type call struct {
	*wire
	values
	item, op node
	bound    *interfaceOf
	way      string // content type of the body

	args   map[string]any
	path   string
	query  []string
	whole  string // the query, if one parameter is all of it
	cookie []string
	header map[string]string
	media  string // of the body, "" without one
	body   func(got arrived) string
}

// expect makes the arguments and what must arrive.
func (c *call) expect(path string) error {
	c.header = map[string]string{}
	doc := c.op.doc
	params := map[string]node{}
	for _, list := range [][]node{c.item.list("parameters"), c.op.list("parameters")} {
		for _, p := range list {
			p = p.follow()
			name := p.text("name")
			if p.text("in") == "header" {
				name = strings.ToLower(name)
			}
			params[p.text("in")+" "+name] = p
		}
	}
	segments := map[string]string{}
	var fields []node
	for _, key := range slices.Sorted(maps.Keys(params)) {
		p := params[key]
		switch p.text("in") {
		case "body":
		case "formData":
			fields = append(fields, p)
		default:
			if err := c.parameter(p, path, params, segments); err != nil {
				return fmt.Errorf("parameter %s: %w", key, err)
			}
		}
	}
	c.path = c.prefix() + c.template(path, segments)
	switch {
	case c.bound.Body == nil:
		return nil
	case doc.version != "2.0":
		return c.content()
	case len(fields) > 0:
		return c.fields(fields)
	}
	for _, p := range params {
		if p.text("in") == "body" {
			return c.payload(p.get("schema"), node{doc: doc, file: p.file})
		}
	}
	return fmt.Errorf("there is a body that the document does not have")
}

// prefix is the path of a server that is relative to the one that was given: the operation's, else
// the path's, else the document's.
func (c *call) prefix() string {
	root := c.op.doc.root
	server := root.text("basePath")
	if root.has("host") {
		server = ""
	}
	for _, n := range []node{root, c.item, c.op} {
		if list := n.list("servers"); len(list) > 0 {
			server = list[0].text("url")
			variables := list[0].in("variables")
			for _, name := range variables.keys() {
				server = strings.ReplaceAll(server, "{"+name+"}", variables.in(name).text("default"))
			}
		}
	}
	if strings.Contains(server, "://") || strings.HasPrefix(server, "//") {
		return ""
	}
	server = strings.Trim(strings.TrimPrefix(server, "."), "/")
	if server == "" {
		return ""
	}
	return "/" + server
}

// template fills in the path. A Path Item's fragment is not sent.
func (c *call) template(path string, segments map[string]string) string {
	path, _, _ = strings.Cut(path, "#")
	var b strings.Builder
	for path != "" {
		text, rest, open := strings.Cut(path, "{")
		b.WriteString(percent(decoded(text, ""), "!$&'()*+,;=:@/%"))
		if !open {
			break
		}
		name, rest, _ := strings.Cut(rest, "}")
		if _, ok := segments[name]; !ok {
			// RFC 6570 §2.2; the parameter's encoding knows the operator.
			switch {
			case strings.HasPrefix(name, "?"), strings.HasPrefix(name, "&"):
				path = rest
				continue
			case strings.HasPrefix(name, "/"):
				b.WriteByte('/')
			}
			name = strings.Trim(name, "+./;*")
		}
		for i, one := range strings.Split(name, ",") {
			if i > 0 {
				b.WriteByte(',')
			}
			if _, ok := segments[one]; !ok {
				// No parameter declares it: it is a text.
				v := c.text()
				c.args[c.bound.arg("path", one)] = v
				segments[one] = percent(v, "")
			}
			b.WriteString(segments[one])
		}
		path = rest
	}
	return b.String()
}

// Headers that are no parameters: by the standard (3.1 §4.8.12.2), or as part of the connection.
var notParameters = []string{"accept", "content-type", "authorization", "host", "content-length", "transfer-encoding",
	"connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer", "upgrade",
	"expect", "http2-settings", "cookie", "accept-encoding"}

// absent says why a parameter of the document is no argument, "" if it must be one.
func (c *call) absent(p node, path string) string {
	in, name := p.text("in"), p.text("name")
	if in == "header" && slices.Contains(notParameters, strings.ToLower(name)) {
		return "a header that follows from the request"
	}
	if in == "path" && !strings.Contains(path, "{"+name+"}") {
		return "the path does not name it"
	}
	if list := shapeOf(p.get("schema"), 0); list.kind(0) == "array" && p.text("style") != "deepObject" && p.doc.version != "2.0" {
		if of := shapeOf(list.items, 0).kind(0); of == "array" || of == "object" {
			return "a list of lists or objects, which its style cannot hold"
		}
	}
	root := c.op.doc.root
	for _, schemes := range []node{root.in("components").in("securitySchemes"), root.in("securityDefinitions")} {
		for _, k := range schemes.keys() {
			if s := schemes.in(k); s.text("in") == in && strings.EqualFold(s.text("name"), name) {
				return "it carries a credential"
			}
		}
	}
	return ""
}

// parameter makes one argument and what arrives of it.
func (c *call) parameter(p node, path string, all map[string]node, segments map[string]string) error {
	in, name := p.text("in"), p.text("name")
	arg := c.bound.arg(in, name)
	if arg == "" {
		why := c.absent(p, path)
		if why == "" {
			return fmt.Errorf("it is no argument of the tool")
		}
		c.unsent[why]++
		return nil
	}
	if !p.flag("required") && in != "path" && !c.all {
		return nil
	}
	h, schema, flat := c.howOf(p, path)
	g := c.values
	g.plainNames = in == "cookie" || in == "header" || h.style == "spaceDelimited"
	if d := delims[h.style]; d != "," && !h.explode {
		g.without += d
	}
	for _, d := range h.inner {
		g.without += d
	}
	switch kind := shapeOf(schema, g.variant).kind(g.variant); {
	case in == "header" && (kind == "array" || kind == "object"):
		g.without += ",="
	case h.style == "label" && h.explode:
		g.without += "."
	}
	v := g.of(schema, 0, flat)
	c.n = g.n
	if obj, ok := v.(map[string]any); ok && h.style != "" {
		for k := range obj {
			if _, taken := all[in+" "+k]; taken && h.explode || h.style == "deepObject" && strings.ContainsAny(k, "[]") {
				delete(obj, k)
			}
		}
	}
	if in == "path" && hollow(v) {
		v = "some text" // a schema that says nothing
	}
	if v == nil || hollow(v) && p.flag("required") {
		return fmt.Errorf("the test has no value for it")
	}
	c.args[arg] = v
	c.seen[strings.TrimSpace(fmt.Sprintf("%s %s %s%s", in, h.style, kindOf(v), map[bool]string{true: " exploded"}[h.explode]))]++
	if media := p.in("content"); len(media.keys()) > 0 && !p.has("schema") {
		return c.contentParameter(p, mediaOf(media.keys()[0]), media.in(media.keys()[0]), v, segments)
	}
	switch in {
	case "path":
		segments[name] = h.segment(name, v)
	case "query":
		c.query = append(c.query, h.pairs(name, v)...)
	case "cookie":
		c.cookie = append(c.cookie, h.pairs(name, v)...)
	case "header":
		c.header[name] = h.field(v)
	}
	return nil
}

func kindOf(v any) string {
	switch v.(type) {
	case []any:
		return "list"
	case map[string]any:
		return "object"
	}
	return "plain"
}

func hollow(v any) bool {
	switch t := v.(type) {
	case []any:
		return len(t) == 0
	case map[string]any:
		return len(t) == 0
	}
	return v == nil
}

// howOf reads how a parameter is written, and its schema.
func (c *call) howOf(p node, path string) (h how, schema node, flat bool) {
	in := p.text("in")
	h.encode = func(s string) string { return percent(s, "") }
	if in == "header" {
		h.encode = func(s string) string { return s }
	}
	if p.doc.version == "2.0" {
		h.collection(p, in)
		if p.text("type") == "" && p.has("schema") {
			return h, p.get("schema"), true
		}
		return h, p, len(h.inner) == 0
	}
	if content := p.in("content"); len(content.keys()) > 0 && !p.has("schema") {
		return h, content.in(content.keys()[0]).get("schema"), false
	}
	h.style = map[string]string{"path": "simple", "header": "simple", "query": "form", "cookie": "form"}[in]
	name := p.text("name")
	switch {
	case p.has("style"):
		h.style = p.text("style")
	case in == "path" && !strings.Contains(path, "{"+name+"}") && regexp.MustCompile(`\{\.`+name).MatchString(path):
		h.style = "label"
	case in == "path" && !strings.Contains(path, "{"+name+"}") && regexp.MustCompile(`\{;`+name).MatchString(path):
		h.style = "matrix"
	}
	h.explode = h.style == "form" || h.style == "deepObject" || h.style == "cookie"
	if b, ok := p.get("explode").v.(bool); ok {
		h.explode = b
	} else if strings.Contains(path, name+"*}") {
		h.explode = true
	}
	switch {
	case !p.flag("allowReserved"):
	case in == "query" && h.explode:
		h.encode = func(s string) string { return percent(s, ":/?@!$'()*,=") }
	case in == "query":
		h.encode = func(s string) string { return percent(s, ":/?@!$'()*=") }
	case in == "path" && p.doc.version >= "3.2":
		h.encode = func(s string) string { return percent(s, ":@!$&'()*+,;=") }
	}
	if in == "cookie" && h.style == "cookie" {
		h.encode = func(s string) string { return s }
	}
	return h, p.get("schema"), h.style != "deepObject"
}

// collection reads collectionFormat of Swagger 2.0; csv is the default.
func (h *how) collection(p node, in string) {
	formats := map[string]string{"": "form", "csv": "form", "ssv": "spaceDelimited", "tsv": "tabDelimited", "pipes": "pipeDelimited", "multi": "form"}
	h.style, h.explode = formats[p.text("collectionFormat")], p.text("collectionFormat") == "multi"
	if in == "path" && h.style == "form" {
		h.style = "simple"
	}
	for items := p.in("items"); p.text("type") == "array" && items.text("type") == "array"; items = items.in("items") {
		h.inner = append(h.inner, delims[formats[items.text("collectionFormat")]])
	}
}

func (c *call) contentParameter(p node, media string, m node, v any, segments map[string]string) error {
	text := ""
	switch {
	case isJSONType(media):
		text = jsonText(v)
	case media == formMedia:
		text = form(m, v.(map[string]any))
	case isXMLType(media) && nested(v):
		return fmt.Errorf("the test has no XML of a parameter")
	default:
		text = plainText(v)
	}
	name := p.text("name")
	switch p.text("in") {
	case "path":
		segments[name] = percent(text, "")
	case "query":
		c.query = append(c.query, percent(name, "")+"="+percent(text, ""))
	case "querystring":
		if c.whole = text; media != formMedia {
			c.whole = percent(text, "")
		}
	case "cookie":
		c.cookie = append(c.cookie, percent(name, "")+"="+percent(text, ""))
	case "header":
		c.header[name] = text
	}
	return nil
}

// samePairs compares pairs without their order.
func samePairs(what, got, want string) string {
	a, b := strings.Split(got, "&"), strings.Split(want, "&")
	order := func(x, y string) int {
		x, _, _ = strings.Cut(x, "=")
		y, _, _ = strings.Cut(y, "=")
		return strings.Compare(x, y)
	}
	slices.SortStableFunc(a, order)
	slices.SortStableFunc(b, order)
	if slices.Equal(a, b) {
		return ""
	}
	return fmt.Sprintf("the %s is %.600s, want %.600s", what, strings.Join(a, "&"), strings.Join(b, "&"))
}

func sameParts(got arrived, want []part) string {
	have, err := readParts(got.header.Get("Content-Type"), got.body)
	if err != nil {
		return err.Error()
	}
	order := func(a, b part) int { return strings.Compare(a.name, b.name) }
	slices.SortStableFunc(have, order)
	slices.SortStableFunc(want, order)
	same := slices.EqualFunc(have, want, func(a, b part) bool {
		return a == b || a.name == b.name && a.media == b.media && a.headers == b.headers && isJSONType(a.media) && sameJSON(a.data, b.data)
	})
	if same {
		return ""
	}
	return fmt.Sprintf("the parts are %.900q, want %.900q", have, want)
}

func sameXML(body string, schema node, name string, v any) string {
	have, err := readXML(body)
	if err != nil {
		return err.Error()
	}
	want, _ := xmlOf(schema, name, v)
	if len(want) == 1 && want[0].String() == have.String() {
		return ""
	}
	return fmt.Sprintf("the XML is %s, want %v", body, want)
}

// compare makes the call and compares.
func (c *call) compare(t *testing.T, m *toolkeep.Manifest, method string) error {
	select {
	case <-c.got: // of a call that failed after its request arrived
	default:
	}
	_, err := c.executor.Execute(t.Context(), &toolkeep.Execution{Tool: executortest.Tool(m), Args: c.args, MaxBytes: 1 << 20,
		Principal: &toolkeep.Principal{Tenant: "acme", Subject: "a"}})
	if err != nil {
		return fmt.Errorf("the call fails: %w", err)
	}
	got := <-c.got
	path, query, _ := strings.Cut(got.target, "?")
	if got.method != method {
		return fmt.Errorf("the method is %s", got.method)
	}
	if a, b := decoded(path, ""), decoded(c.path, ""); a != b {
		return fmt.Errorf("the path is %s, want %s", a, b)
	}
	if c.whole != "" {
		if query != c.whole {
			return fmt.Errorf("the query is %s, want %s", query, c.whole)
		}
	} else if d := samePairs("query", decoded(query, ""), decoded(strings.Join(c.query, "&"), "")); d != "" {
		return fmt.Errorf("%s", d)
	}
	cookies := strings.ReplaceAll(got.header.Get("Cookie"), "; ", "&")
	if d := samePairs("cookies", cookies, strings.Join(c.cookie, "&")); d != "" {
		return fmt.Errorf("%s", d)
	}
	for name, want := range c.header {
		if have := got.header.Get(name); have != want {
			return fmt.Errorf("the header %s is %q, want %q", name, have, want)
		}
	}
	if have := mediaOf(got.header.Get("Content-Type")); have != c.media {
		return fmt.Errorf("the content type is %q, want %q", have, c.media)
	}
	if c.body == nil {
		if got.body != "" {
			return fmt.Errorf("there is a body: %q", got.body)
		}
		return nil
	}
	if d := c.body(got); d != "" {
		return fmt.Errorf("%s", d)
	}
	return nil
}
