package httptool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

const (
	answerDepth    = 1000      // nesting of an answer, as package inspect has it
	answerElements = 2_000_000 // values of an answer, as package inspect has it
)

// pages fetches page after page and gives the list of all their items.
//
// It ends where the pages do, after the most pages that the binding and the call
// allow, where the bytes of all are over the limit, and where the next page is at
// another origin or has been fetched before. Whatever ends it early is told by a
// warning. A page that fails fails the call, with details.page.
func (a *attempt) pages(r *request) (*toolkeep.Output, *toolkeep.Error) {
	p := a.binding.pages
	t := &turner{a: a, p: p, first: r, left: a.limit(), seen: make(map[string]bool)}
	most, err := t.most()
	if err != nil {
		return nil, err
	}
	next := t.begin()
	out := &toolkeep.Output{HasValue: true, ContentType: "application/json"}
	for {
		t.page++
		t.seen[next.url.String()] = true
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
	out.Value, out.BytesSent = t.items, a.sent
	return out, nil
}

// turner turns the pages of one call.
type turner struct {
	a     *attempt
	p     *pagination
	first *request

	page     int   // number of pages asked for
	position int64 // page number or offset of the page last asked for
	cursor   string
	left     int64 // bytes
	items    []any
	seen     map[string]bool
	warnings []toolkeep.Warning
}

// most is how many pages this call may fetch.
func (t *turner) most() (int, *toolkeep.Error) {
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

// begin makes the first request: with the page's size where the call leaves it
// out, and from where the call wants to begin.
func (t *turner) begin() *request {
	t.position = t.p.start
	query := t.first.url.Query()
	if t.p.param != "" {
		if n, err := strconv.ParseInt(query.Get(t.p.param), 10, 64); err == nil && n >= 0 {
			t.position = n
		}
	}
	r := t.first
	if t.p.sizeParam != "" {
		if n, err := strconv.ParseInt(query.Get(t.p.sizeParam), 10, 64); err == nil && n > 0 {
			t.p = t.sized(n)
		} else if !query.Has(t.p.sizeParam) {
			r = r.withQuery(t.p.sizeParam, strconv.FormatInt(t.p.size, 10))
			t.first = r
		}
	}
	return r
}

func (t *turner) sized(n int64) *pagination {
	p := *t.p
	p.size = n
	return &p
}

// withQuery is the request with a query parameter set; the others stay as they are.
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
func (t *turner) read(resp *http.Response) (tree any, wire int64, err *toolkeep.Error) {
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
	body, wire, rerr := readAnswer(resp, t.left)
	if rerr == errTooLarge || int64(len(body)) > t.left {
		return nil, 0, tooLarge(t.a.limit(), status)
	}
	if rerr != nil {
		return nil, 0, t.a.unreadable(status, rerr)
	}
	t.left -= int64(len(body))
	tree, perr := canon.Parse(bytes.TrimPrefix(body, []byte("\ufeff")), canon.Limits{
		Bytes: defaultMaxBytes, Depth: answerDepth, Properties: answerElements, Elements: answerElements})
	if perr != nil {
		return nil, 0, t.bad(status, "is not JSON: %s", toolkeep.AsError(perr).Message)
	}
	return tree, wire, nil
}

func (t *turner) bad(status int, format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.InvalidResponse, "a page of the upstream's answer "+format, args...).With("status", status)
}

// next takes a page's items and gives the request for the page after it, nil after
// the last.
func (t *turner) next(tree any, resp *http.Response, at *request) (*request, *toolkeep.Error) {
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
		if t.page > 1 && cursor == t.cursor {
			t.warn("the upstream gave the same cursor twice")
			return nil, nil
		}
		t.cursor = cursor
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

// textAt is the text or number at a pointer, "" where there is none.
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

// follow makes the request to where the upstream says that the next page is.
func (t *turner) follow(target string, at *request) *request {
	if target == "" {
		return nil
	}
	u, err := at.url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		t.warn("the upstream's address of the next page cannot be read")
		return nil
	}
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	if !sameOrigin(u, t.first.url) {
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

func (t *turner) warn(why string) { t.warnings = t.cut(why) }

func (t *turner) cut(why string) []toolkeep.Warning {
	return []toolkeep.Warning{{Code: toolkeep.ResultTooLarge,
		Message: fmt.Sprintf("there are more pages than the %d that the result holds: %s", t.page, why),
		Details: map[string]any{"pages": t.page, "items": len(t.items)}}}
}

func (t *turner) failed(err *toolkeep.Error) *toolkeep.Error { return err.With("page", t.page) }

func (t *turner) tell() {
	if t.a.x.Caller != nil {
		t.a.x.Caller.Progress(toolkeep.Progress{Phase: "pages", Message: fmt.Sprintf("page %d, %d items", t.page, len(t.items))})
	}
}
