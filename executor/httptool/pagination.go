package httptool

import (
	"encoding/json"
	"slices"
	"strings"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

const (
	defaultPages = 10
	maxPages     = 100
)

// pagination says how the pages of an answer follow each other.
type pagination struct {
	kind  string // link, url, cursor, page, offset
	items string // pointer to the page's list
	next  string // pointer to the cursor or URL of the next page
	more  string // pointer to a flag that is false on the last page
	total string // pointer to the number of items in all
	param string // query parameter of the cursor, page number or offset

	start     int64 // of the first page
	size      int64 // items that a page holds, 0 if not known
	sizeParam string

	max    int
	maxArg string // argument that lowers max
}

var pageKinds = []string{"link", "url", "cursor", "page", "offset"}

// readPagination reads binding.pagination.
func readPagination(top *bindings.Object) *pagination {
	o, ok := top.Sub("pagination")
	if !ok {
		return nil
	}
	p := &pagination{kind: o.Text("kind", true), max: defaultPages}
	p.items, p.next = pointerText(o, "items"), pointerText(o, "next")
	p.more, p.total = pointerText(o, "more"), pointerText(o, "total")
	p.param, p.sizeParam, p.maxArg = o.Text("param", false), o.Text("size_param", false), o.Text("max_pages_arg", false)
	if n, ok := o.Whole("max_pages", 1, maxPages); ok {
		p.max = int(n)
	}
	if p.kind == "page" {
		p.start = 1
	}
	if n, ok := o.Whole("start", 0, 1<<40); ok {
		p.start = n
	}
	if n, ok := o.Whole("size", 1, 1_000_000); ok {
		p.size = n
	}
	if p.kind != "" && !slices.Contains(pageKinds, p.kind) {
		o.Fault("kind", "enum", "pages follow each other by %s, not %q", strings.Join(pageKinds, ", "), p.kind)
	}
	needs := func(name, value string, kinds ...string) {
		switch wanted := slices.Contains(kinds, p.kind); {
		case wanted && value == "":
			o.Fault(name, "required", "pages by %s need %s", p.kind, name)
		case !wanted && value != "" && slices.Contains(pageKinds, p.kind):
			o.Fault(name, "unsupported", "pages by %s have no %s", p.kind, name)
		}
	}
	needs("next", p.next, "url", "cursor")
	needs("param", p.param, "cursor", "page", "offset")
	if p.sizeParam != "" && p.size == 0 {
		o.Fault("size", "required", "size_param needs size, the number to send")
	}
	o.Done()
	return p
}

// pointerText reads a JSON Pointer; "" is the whole.
func pointerText(o *bindings.Object, name string) string {
	s := o.Text(name, false)
	if _, ok := canon.Tokens(s); !ok {
		o.Fault(name, "pointer", "%s must be a JSON Pointer such as /data/items", name)
	}
	return s
}

// checkPagination compares pagination with the rest of the manifest.
func (b *binding) checkPagination(r *bindings.Reader, m *toolkeep.Manifest) {
	p := b.pages
	if p == nil {
		return
	}
	const at = bindings.At + "/pagination"
	if b.method == "HEAD" {
		r.Fault(at, "unsupported", "the answer to HEAD has no pages")
	}
	if b.method != "GET" && b.method != "HEAD" && m.SideEffects != "none" && m.SideEffects != "reads" {
		r.Fault(at, "side_effects", "fetching pages repeats the request, so a tool that writes cannot have them")
	}
	if p.maxArg == "" {
		return
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if xjson.Unmarshal(m.ParametersSchema, &schema) == nil && len(schema.Properties) > 0 && schema.Properties[p.maxArg] == nil {
		r.Fault(at+"/max_pages_arg", "argument", "parameters_schema has no property %q", p.maxArg)
	}
}

// stream are the options for answers that come event by event.
type stream struct {
	sentinel   string // data that ends the stream, "" for none
	maxEvents  int
	maxBytes   int64
	maxSeconds int64  // 0 is the attempt's time
	progress   string // pointer into an event's data to a percentage
}

const (
	defaultEvents     = 1000
	maxEvents         = 100_000
	defaultEventBytes = 10 << 20
)

var defaultStream = stream{maxEvents: defaultEvents, maxBytes: defaultEventBytes}

// readStream reads binding.stream.
func readStream(top *bindings.Object) *stream {
	o, ok := top.Sub("stream")
	if !ok {
		return &defaultStream
	}
	s := defaultStream
	s.sentinel, s.progress = o.Text("sentinel", false), pointerText(o, "progress")
	if n, ok := o.Whole("max_events", 1, maxEvents); ok {
		s.maxEvents = int(n)
	}
	if n, ok := o.Whole("max_bytes", 1, defaultMaxBytes); ok {
		s.maxBytes = n
	}
	if n, ok := o.Whole("max_seconds", 1, 24*3600); ok {
		s.maxSeconds = n
	}
	o.Done()
	return &s
}

// readResponse reads binding.response: the type that answers have whatever they
// say, for servers that say it wrong.
func readResponse(top *bindings.Object) (contentType string) {
	o, ok := top.Sub("response")
	if !ok {
		return ""
	}
	contentType = o.Text("content_type", false)
	if contentType != "" && (!validHeaderValue(contentType) || !strings.Contains(mediaType(contentType), "/")) {
		o.Fault("content_type", "type", "content_type must be a content type such as application/json")
	}
	o.Done()
	return contentType
}
