package openapi

import (
	"slices"
	"sort"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
)

// answer is an operation's successful response.
type answer struct {
	types   []string // media types in the document, JSON first
	accept  string   // of all 2xx answers
	schema  any
	items   bool // schema is that of one element of a sequence
	hasJSON bool
	pages   map[string]any // binding.pagination, nil for none
}

// answerOf reads the responses. It refuses an operation whose success switches to another protocol.
func (d *document) answerOf(op *operation) (*answer, string) {
	v := op.op.get("responses")
	if v == nil {
		return &answer{}, ""
	}
	all, reason := d.object(v, "its responses")
	if reason != "" {
		d.warn("%s: the responses could not be read: %s", op.label(), reason)
		return &answer{}, ""
	}
	codes, upgrade := successCodes(all)
	if len(codes) == 0 {
		if upgrade {
			return nil, "it only switches to another protocol (101), which cannot be done yet"
		}
		return &answer{}, ""
	}
	var best *answer
	var each []*answer
	for _, code := range codes {
		r, reason := d.object(all.vals[code], "its response "+toolkeep.Clip(code, 20))
		if reason != "" {
			d.warn("%s: the response %s could not be read: %s", op.label(), toolkeep.Clip(code, 20), reason)
			continue
		}
		a := d.response(op, r)
		each = append(each, a)
		if best == nil || onlyStreams(best.types) && !onlyStreams(a.types) || a.hasJSON && !best.hasJSON {
			best = a
		}
	}
	if best == nil {
		best = &answer{}
	}
	best.join(each)
	d.pageable(op, best)
	return best, ""
}

func onlyStreams(types []string) bool {
	return len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return egress.MediaType(t) != "text/event-stream" })
}

// successCodes returns the success codes, lowest first; default counts only if there is no explicit
// code.
func successCodes(all *object) (codes []string, upgrade bool) {
	named := false
	for _, code := range all.keys {
		switch {
		case strings.HasPrefix(code, "x-"):
			continue
		case code == "101":
			upgrade = true
		case len(code) == 3 && code[0] == '2':
			codes = append(codes, code)
		case len(code) == 3 && code[0] == '3':
			upgrade = false
		}
		named = named || code != "default"
	}
	sort.SliceStable(codes, func(i, j int) bool { return strings.ToUpper(codes[i]) < strings.ToUpper(codes[j]) })
	if len(codes) == 0 && all.has("default") {
		if !named {
			return []string{"default"}, false
		}
		upgrade = false
	}
	return codes, upgrade
}

func (d *document) response(op *operation, r *object) *answer {
	a := &answer{}
	if d.dialect == v20 {
		if r.get("schema") == nil {
			return a
		}
		types := d.swaggerTypes(op, "produces")
		if len(types) == 0 {
			types = []string{"application/json"}
		}
		s, _ := d.object(r.get("schema"), "")
		a.take(types, func(string) any {
			if s.text("type") == "file" {
				return nil
			}
			return r.get("schema")
		})
		return a
	}
	content, reason := d.object(r.get("content"), "content")
	if reason != "" {
		if r.get("content") != nil {
			d.warn("%s: the content of a response could not be read: %s", op.label(), reason)
		}
		return a
	}
	a.take(content.keys, func(t string) any {
		m, reason := d.object(content.vals[t], "content")
		if reason != "" {
			return nil
		}
		if m.has("itemSchema") && !m.has("schema") {
			return nil // 3.2: a sequence of items, which is not a JSON value
		}
		return m.get("schema")
	})
	a.sequence(d, content)
	return a
}

// take sorts the media types, JSON first, and selects the schema of the JSON one.
func (a *answer) take(types []string, schema func(string) any) {
	var jsons, rest []string
	for _, t := range types {
		switch {
		case !plainHeader(t) || !strings.Contains(t, "/"):
		case egress.IsJSON(egress.MediaType(t)) && !strings.Contains(t, "stream="):
			jsons = append(jsons, t)
		default:
			rest = append(rest, t)
		}
	}
	sort.SliceStable(jsons, func(i, j int) bool {
		return egress.MediaType(jsons[i]) == "application/json" && egress.MediaType(jsons[j]) != "application/json"
	})
	a.types = append(slices.Clone(jsons), rest...)
	a.types = a.types[:min(len(a.types), maxTypes)]
	switch wild := slices.IndexFunc(rest, func(t string) bool { return isWildcard(egress.MediaType(t)) }); {
	case len(jsons) > 0:
		a.hasJSON = true
		a.schema = schema(jsons[0])
	case wild >= 0:
		a.hasJSON = true
		a.schema = schema(rest[wild])
	}
}

// maxTypes bounds the media types of an operation's answers.
const maxTypes = 16

// join takes the media types of all 2xx answers into types and accept. Within one answer JSON is
// preferred and a stream comes last; types of different answers are not alternatives, so that none
// of them is preferred.
func (a *answer) join(each []*answer) {
	weight, order := map[string]string{}, []string{}
	add := func(t, q string) {
		if old, there := weight[t]; !there {
			order = append(order, t)
		} else if q < old {
			q = old
		}
		weight[t] = q
	}
	streams := !slices.ContainsFunc(each, func(one *answer) bool { return len(one.types) > 0 && !onlyStreams(one.types) })
	for _, one := range each {
		for _, t := range one.types {
			switch {
			case isWildcard(egress.MediaType(t)):
				add("application/json", "1")
				add("*/*", "0.5")
			case !streams && (egress.MediaType(t) == "text/event-stream" || strings.Contains(t, "stream=")):
				add(t, "0.1")
			case one.hasJSON && !egress.IsJSON(egress.MediaType(t)):
				add(t, "0.9")
			default:
				add(t, "1")
			}
		}
	}
	sort.SliceStable(order, func(i, j int) bool { return weight[order[i]] > weight[order[j]] })
	var accept []string
	for _, t := range order[:min(len(order), maxTypes)] {
		if weight[t] != "1" {
			t += ";q=" + weight[t]
		}
		accept = append(accept, t)
	}
	a.accept = strings.Join(accept, ", ")
	types := a.types
	for _, one := range each {
		for _, t := range one.types {
			if !slices.Contains(types, t) {
				types = append(slices.Clip(types), t)
			}
		}
	}
	a.types = types[:min(len(types), maxTypes)]
}

// sequence uses the element schema (3.2's itemSchema) of an answer that is a sequence of JSON
// values, whose result is their list. Events (text/event-stream) have another form: there the
// schema does not describe the result.
func (a *answer) sequence(d *document, content *object) {
	if a.hasJSON || len(a.types) != 1 || !sequences[egress.MediaType(a.types[0])] {
		return
	}
	m, reason := d.object(content.vals[a.types[0]], "content")
	if reason == "" && m.has("itemSchema") && !m.has("schema") {
		a.schema, a.items = m.get("itemSchema"), true
	}
}

var sequences = map[string]bool{
	"application/jsonl": true, "application/x-jsonl": true, "application/jsonlines": true, "application/x-jsonlines": true,
	"application/x-ndjson": true, "application/ndjson": true, "application/json-seq": true,
}

// pageable reads x-ms-pageable, the one widely documented way to declare paging: the answer has the
// list under itemName ("value") and the next page's address under nextLinkName. No other extension
// declares both the items and the next page.
func (d *document) pageable(op *operation, a *answer) {
	v := op.op.get("x-ms-pageable")
	if v == nil || op.method != "GET" || !a.hasJSON {
		return
	}
	hint, reason := d.object(v, "x-ms-pageable")
	if reason != "" {
		return
	}
	next, item := hint.text("nextLinkName"), hint.text("itemName")
	if item == "" {
		item = "value"
	}
	if next == "" {
		return // a single page
	}
	s, _ := d.object(a.schema, "its schema")
	list := d.property(s, item)
	if list.text("type") != "array" {
		reason := "is not a list"
		if list == nil {
			reason = "is not in the schema of its answer"
		}
		d.warn("%s: its pages are not fetched: the list %q of x-ms-pageable %s", op.label(), toolkeep.Clip(item, 60), reason)
		return
	}
	a.pages = map[string]any{"kind": "url", "items": canon.Pointer(item), "next": canon.Pointer(next)}
	a.schema, a.items = list.get("items"), true
}
