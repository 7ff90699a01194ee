package httptool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	xjson "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

const (
	defaultPages   = 10
	maxPages       = 100
	answerDepth    = 1000      // nesting of a response, as in package inspect
	answerElements = 2_000_000 // values of a response, as in package inspect
)

// pagination says how to get the next page.
type pagination struct {
	kind  string // link, url, cursor, page, offset
	items string // pointer to the page's list
	next  string // pointer to the cursor or URL of the next page
	more  string // pointer to a flag that is false on the last page
	total string // pointer to the total number of items
	param string // query parameter for the cursor, page number or offset

	start     int64 // of the first page
	size      int64 // items per page, 0 if unknown
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

// pointerText reads a JSON Pointer; "" is the whole document.
func pointerText(o *bindings.Object, name string) string {
	s := o.Text(name, false)
	if _, ok := canon.Tokens(s); !ok {
		o.Fault(name, "pointer", "%s must be a JSON Pointer such as /data/items", name)
	}
	return s
}

// checkPagination checks pagination against the rest of the manifest.
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

// pages fetches page after page and returns the list of all items.
//
// It stops after the last page, at the page limit of the binding or the call, at the
// byte limit of all pages, and if the next page is at another origin or was fetched
// before. A warning reports any early stop. If a page fails, the call fails, with
// details.page.
func (a *attempt) pages(r *request) (*toolkeep.Output, *toolkeep.Error) {
	p := a.binding.pages
	t := &pager{a: a, p: p, first: r, left: a.limit(), seen: make(map[string]bool)}
	most, err := t.most()
	if err != nil {
		return nil, err
	}
	next := t.begin()
	out := &toolkeep.Output{HasValue: true, ContentType: "application/json"}
	for {
		t.page++
		if t.p.kind != "cursor" {
			t.seen[next.url.String()] = true
		}
		resp, at, err := a.exchange(next, t.page == 1)
		if err != nil {
			return nil, t.failed(err)
		}
		tree, size, err := t.read(resp)
		resp.Body.Close()
		if err != nil && err.Code == toolkeep.ResultTooLarge && t.page > 1 {
			t.page--
			out.Warnings = t.cut("the pages together are over the limit of bytes")
			break
		}
		if err != nil {
			return nil, t.failed(err)
		}
		out.BytesRecv += size
		if next, err = t.next(tree, resp, at); err != nil {
			return nil, t.failed(err)
		}
		t.tell()
		if next == nil {
			out.Warnings = t.warnings
			break
		}
		if t.page == most {
			out.Warnings = t.cut(fmt.Sprintf("at most %d pages are fetched in one call", most))
			break
		}
	}
	out.Warnings = append(out.Warnings, a.repairs.Warnings()...)
	out.Value, out.BytesSent = t.items, a.sent
	return out, nil
}

// pager fetches the pages of one call.
type pager struct {
	a     *attempt
	p     *pagination
	first *request

	page     int   // pages requested so far
	position int64 // page number or offset of the latest request
	left     int64 // bytes
	items    []any
	seen     map[string]bool // addresses of pages, or cursors
	warnings []toolkeep.Warning
}

// most returns how many pages this call may fetch.
func (t *pager) most() (int, *toolkeep.Error) {
	if t.p.maxArg == "" {
		return t.p.max, nil
	}
	v, ok := t.a.x.Args[t.p.maxArg]
	if !ok || v == nil {
		return t.p.max, nil
	}
	n, isNumber := v.(json.Number)
	if i, err := n.Int64(); isNumber && err == nil && i >= 1 {
		return int(min(i, int64(t.p.max))), nil
	}
	return 0, unsafe(canon.Pointer(t.p.maxArg), "the argument %s must be a whole number from 1 to %d: the most pages to fetch", t.p.maxArg, t.p.max)
}

// begin builds the first request, with the page size unless the call sets it, at the
// call's start position.
func (t *pager) begin() *request {
	t.position = t.p.start
	query := t.first.url.Query()
	if t.p.kind == "cursor" && query.Get(t.p.param) != "" {
		t.seen[query.Get(t.p.param)] = true
	}
	if t.p.param != "" {
		if n, err := strconv.ParseInt(query.Get(t.p.param), 10, 64); err == nil && n >= 0 {
			t.position = n
		}
	}
	r := t.first
	if t.p.sizeParam != "" {
		if n, err := strconv.ParseInt(query.Get(t.p.sizeParam), 10, 64); err == nil && n > 0 {
			sized := *t.p
			sized.size, t.p = n, &sized
		} else if !query.Has(t.p.sizeParam) {
			r = r.withQuery(t.p.sizeParam, strconv.FormatInt(t.p.size, 10))
			t.first = r
		}
	}
	return r
}

// withQuery returns the request with one query parameter replaced.
func (r *request) withQuery(name, value string) *request {
	next := *r
	u := *r.url
	kept := make([]string, 0, 8)
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		key, _, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(key); part != "" && (err != nil || plain != name) {
			kept = append(kept, part)
		}
	}
	w := pairs{sep: "&", buf: []byte(strings.Join(kept, "&"))}
	w.add(name, value, escStrict)
	u.RawQuery = string(w.buf)
	next.url = &u
	return &next
}

// read reads one page.
func (t *pager) read(resp *http.Response) (tree any, wire int64, err *toolkeep.Error) {
	status := resp.StatusCode
	if status < 200 || status > 299 {
		return nil, 0, t.a.refused(resp)
	}
	if status == http.StatusNoContent || status == http.StatusResetContent {
		return nil, 0, nil
	}
	if resp.ContentLength > t.left {
		return nil, 0, tooLarge(t.a.limit(), status)
	}
	body, wire, rerr := readAnswer(resp, t.left, t.a.x.Grow, nil)
	if rerr == errTooLarge || int64(len(body)) > t.left {
		return nil, 0, tooLarge(t.a.limit(), status)
	}
	if rerr != nil {
		return nil, 0, t.a.unreadable(status, rerr)
	}
	t.left -= int64(len(body))
	tree, repairs, perr := canon.ParseLoose(bytes.TrimPrefix(body, []byte("\ufeff")), eventLimits)
	if perr != nil {
		return nil, 0, t.bad(status, "is not JSON: %s", toolkeep.AsError(perr).Message)
	}
	t.a.repaired(repairs)
	return tree, wire, nil
}

func (t *pager) bad(status int, format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.InvalidResponse, "a page of the upstream's answer "+format, args...).With("status", status)
}

// next takes a page's items and returns the request for the next page; nil after the
// last.
func (t *pager) next(tree any, resp *http.Response, at *request) (*request, *toolkeep.Error) {
	count := 0
	if tree != nil {
		v, _ := canon.Lookup(tree, t.p.items)
		list, ok := v.([]any)
		if !ok && v != nil {
			return nil, t.bad(resp.StatusCode, "has no list at %q, where the tool's binding has its items", t.p.items)
		}
		if v == nil && t.page == 1 {
			return nil, t.bad(resp.StatusCode, "has nothing at %q, where the tool's binding has its items", t.p.items)
		}
		if t.items == nil {
			t.items = make([]any, 0, len(list))
		}
		t.items = append(t.items, list...)
		if len(t.items) > answerElements {
			return nil, tooLarge(t.a.limit(), resp.StatusCode)
		}
		count = len(list)
	}
	if t.items == nil {
		t.items = []any{}
	}
	if t.p.more != "" {
		if more, ok := canon.Lookup(tree, t.p.more); ok && (more == false || more == nil) {
			return nil, nil
		}
	}
	switch t.p.kind {
	case "link":
		return t.follow(nextLink(resp.Header["Link"]), at), nil
	case "url":
		return t.follow(textAt(tree, t.p.next), at), nil
	case "cursor":
		cursor := textAt(tree, t.p.next)
		if cursor == "" {
			return nil, nil
		}
		if t.seen[cursor] {
			t.warn("the upstream gave a cursor again that was followed already")
			return nil, nil
		}
		t.seen[cursor] = true
		return t.first.withQuery(t.p.param, cursor), nil
	}
	if count == 0 || t.p.size > 0 && int64(count) < t.p.size {
		return nil, nil
	}
	if t.p.total != "" {
		if n, err := strconv.ParseInt(textAt(tree, t.p.total), 10, 64); err == nil && int64(len(t.items)) >= n {
			return nil, nil
		}
	}
	if t.p.kind == "page" {
		t.position++
	} else {
		t.position += int64(count)
	}
	return t.first.withQuery(t.p.param, strconv.FormatInt(t.position, 10)), nil
}

// textAt returns the text or number at a pointer, or "".
func textAt(tree any, pointer string) string {
	v, _ := canon.Lookup(tree, pointer)
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// follow builds the request for the upstream's next-page address.
func (t *pager) follow(target string, at *request) *request {
	if target == "" {
		return nil
	}
	u, err := at.url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		t.warn("the upstream's address of the next page cannot be read")
		return nil
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if !egress.SameOrigin(u, t.first.url) {
		t.warn("the next page is at another origin, which is not followed")
		return nil
	}
	next := *t.first
	next.url = u
	next.addKeys()
	if t.seen[next.url.String()] {
		t.warn("the upstream gave the address of a page that was fetched already")
		return nil
	}
	return &next
}

func (t *pager) warn(why string) { t.warnings = t.cut(why) }

func (t *pager) cut(why string) []toolkeep.Warning {
	return []toolkeep.Warning{{Code: toolkeep.ResultTooLarge,
		Message: fmt.Sprintf("there are more pages than the %d that the result holds: %s", t.page, why),
		Details: map[string]any{"pages": t.page, "items": len(t.items)}}}
}

func (t *pager) failed(err *toolkeep.Error) *toolkeep.Error { return err.With("page", t.page) }

func (t *pager) tell() {
	if t.a.x.Caller != nil {
		t.a.x.Caller.Progress(toolkeep.Progress{Phase: "pages", Message: fmt.Sprintf("page %d, %d items", t.page, len(t.items))})
	}
}

// maxLinks bounds the links examined in one response.
const maxLinks = 64

// A link of RFC 8288, and one of its parameters.
var (
	linkPattern  = regexp.MustCompile(`^[ \t,]*<([^>]*)>((?:[ \t]*;[ \t]*[^=;, \t]*(?:[ \t]*=[ \t]*(?:"(?:[^"\\]|\\.)*"?|[^";, \t]*))?)*)`)
	paramPattern = regexp.MustCompile(`;[ \t]*([^=;, \t]*)(?:[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"?|([^";, \t]*)))?`)
)

// nextLink finds the target of the first link with the relation "next" in Link
// headers, "" if there is none. Links about another resource (with an anchor) do not
// count. A malformed header is read up to its first fault.
func nextLink(headers []string) string {
	links := 0
	for _, s := range headers {
		for m := linkPattern.FindStringSubmatch(s); m != nil; m = linkPattern.FindStringSubmatch(s) {
			if links++; links > maxLinks {
				return ""
			}
			if isNext(m[2]) {
				return strings.TrimSpace(m[1])
			}
			s = s[len(m[0]):]
		}
	}
	return ""
}

// isNext reports whether a link's parameters name the next page of this answer. Only
// the first rel counts (RFC 8288, 3.3).
func isNext(params string) bool {
	rel := ""
	for _, m := range paramPattern.FindAllStringSubmatch(params, -1) {
		switch name := strings.ToLower(m[1]); {
		case name == "anchor":
			return false
		case name == "rel" && rel == "":
			rel = m[2] + m[3] + " "
		}
	}
	return slices.ContainsFunc(strings.Fields(rel), func(r string) bool { return strings.EqualFold(r, "next") })
}
