package openapi

import (
	"slices"
	"sort"
	"strings"
)

// answer is what an operation gives back on success.
type answer struct {
	types   []string // media types that the document promises, JSON first
	accept  string
	schema  any
	hasJSON bool
}

// answerOf reads the responses. It refuses an operation whose success is no
// answer but a connection that stays open.
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
	streams, others := false, false
	for _, code := range codes {
		r, reason := d.object(all.vals[code], "its response "+clip(code, 20))
		if reason != "" {
			d.warn("%s: the response %s could not be read: %s", op.label(), clip(code, 20), reason)
			others = true
			continue
		}
		a := d.response(op, r)
		if onlyStreams(a.types) {
			streams = true
			continue
		}
		others = true
		if best == nil || a.hasJSON && !best.hasJSON {
			best = a
		}
	}
	if streams && !others {
		return nil, "it answers only with a stream of events (text/event-stream), which cannot be read yet"
	}
	if best == nil {
		best = &answer{}
	}
	return best, ""
}

func onlyStreams(types []string) bool {
	return len(types) > 0 && !slices.ContainsFunc(types, func(t string) bool { return mediaType(t) != "text/event-stream" })
}

// successCodes gives the codes of success, lowest first; default counts only
// where no code is named at all.
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
			return nil // 3.2: a sequence of items, which is no JSON value
		}
		return m.get("schema")
	})
	return a
}

// take sorts the media types, JSON first, and picks the schema of the JSON one.
func (a *answer) take(types []string, schema func(string) any) {
	var jsons, rest []string
	for _, t := range types {
		switch {
		case !plainHeader(t) || !strings.Contains(t, "/"):
		case isJSON(mediaType(t)) && !strings.Contains(t, "stream="):
			jsons = append(jsons, t)
		default:
			rest = append(rest, t)
		}
	}
	sort.SliceStable(jsons, func(i, j int) bool {
		return mediaType(jsons[i]) == "application/json" && mediaType(jsons[j]) != "application/json"
	})
	a.types = append(slices.Clone(jsons), rest...)
	if len(a.types) > 16 {
		a.types = a.types[:16]
	}
	switch {
	case len(jsons) > 0:
		a.hasJSON = true
		a.schema = schema(jsons[0])
		a.accept = strings.Join(jsons[:min(len(jsons), 4)], ", ")
	case slices.ContainsFunc(rest, func(t string) bool { return isWildcard(mediaType(t)) }):
		i := slices.IndexFunc(rest, func(t string) bool { return isWildcard(mediaType(t)) })
		a.hasJSON = true
		a.schema = schema(rest[i])
		a.accept = "application/json, */*;q=0.5"
	case len(rest) > 0:
		keep := slices.DeleteFunc(slices.Clone(rest), func(t string) bool { return mediaType(t) == "text/event-stream" })
		a.accept = strings.Join(keep[:min(len(keep), 4)], ", ")
	}
}
