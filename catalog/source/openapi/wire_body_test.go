package openapi_test

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// content makes the body of OpenAPI 3.
func (c *call) content() error {
	content := c.op.in("requestBody").in("content")
	if !c.op.in("requestBody").flag("required") && !c.all {
		return nil
	}
	way, _, _ := strings.Cut(c.way, ",")
	for _, same := range []func(key string) bool{
		func(key string) bool { return key == way },
		func(key string) bool { return mediaOf(key) == mediaOf(way) },
		func(key string) bool { return key == "multipart/*" && strings.HasPrefix(way, "multipart/") },
		func(key string) bool { return key == "*/*" || key == "application/*" },
	} {
		for _, key := range content.keys() {
			if same(key) {
				return c.payload(content.in(key).get("schema"), content.in(key))
			}
		}
	}
	return fmt.Errorf("the body is %q, and the document has %q", c.way, content.keys())
}

// payload makes the body of a schema and a Media Type Object.
func (c *call) payload(schema, media node) error {
	if c.op.doc.version == "2.0" {
		consumes := c.op.in("consumes")
		if !c.op.has("consumes") {
			consumes = c.op.doc.root.in("consumes")
		}
		list, _ := consumes.v.([]any)
		if !slices.ContainsFunc(list, func(v any) bool {
			one, _ := v.(string)
			return mediaOf(one) == mediaOf(c.way) || strings.Contains(one, "*") || strings.Contains(c.way, one)
		}) && len(list) > 0 {
			return fmt.Errorf("the body is %q, and the document has %v", c.way, list)
		}
	}
	first, _, _ := strings.Cut(c.way, ",")
	c.media = mediaOf(first)
	s := shapeOf(schema, c.variant)
	kind := s.kind(c.variant)
	var v any
	if schema.follow().v != nil {
		v = c.of(schema, 0, false)
	} else {
		v = c.text()
	}
	differ := func(want string) func(arrived) string {
		return func(got arrived) string {
			if got.body == want {
				return ""
			}
			return fmt.Sprintf("the body is %.600q, want %.600q", got.body, want)
		}
	}
	arg := c.bound.Body.Arg
	switch {
	case isJSONType(c.media):
		c.args[arg] = v
		c.body = func(got arrived) string {
			if sameJSON(got.body, jsonText(v)) {
				return ""
			}
			return fmt.Sprintf("the body is %.600s, want %.600s", got.body, jsonText(v))
		}
	case c.media == formMedia:
		obj := c.styledFields(media, v)
		c.args[arg] = obj
		want := form(media, obj)
		c.body = func(got arrived) string { return samePairs("body", decoded(got.body, "*"), decoded(want, "*")) }
	case strings.HasPrefix(c.media, "multipart/"):
		obj := c.withFiles(s, media, c.styledFields(media, v))
		c.args[arg] = asArgument(obj)
		want := parts(media, obj)
		c.body = func(got arrived) string { return sameParts(got, want) }
	case strings.Contains(c.media, "json") && (strings.Contains(c.media, "nd") || strings.Contains(c.media, "line") || strings.HasSuffix(c.media, "jsonl") || strings.HasSuffix(c.media, "json-seq")):
		list := []any{v, v}
		if kind == "array" {
			list, _ = v.([]any)
		}
		c.args[arg] = list
		want := ""
		for _, e := range list {
			want += jsonText(e) + "\n"
		}
		c.body = differ(want)
	case isXMLType(c.media) && kind != "string" && (nested(v)):
		name := ""
		if ref := schema.text("$ref"); ref != "" {
			name = ref[strings.LastIndexByte(ref, '/')+1:]
		}
		c.args[arg] = v
		c.body = func(got arrived) string { return sameXML(got.body, schema, name, v) }
	case isEncoded(schema.follow()), isTextType(c.media), isXMLType(c.media):
		text, ok := v.(string)
		if !ok {
			text = c.text()
		}
		c.args[arg] = text
		c.body = differ(text)
	default:
		data := "bytes \x00\xff" + c.text()
		c.args[arg] = base64.StdEncoding.EncodeToString([]byte(data))
		if strings.Contains(first, "*") {
			c.media = strings.ReplaceAll(c.media, "*", "octet-stream")
			c.args[arg] = map[string]any{"base64": c.args[arg], "content_type": c.media}
		}
		c.body = differ(data)
	}
	return nil
}

// isEncoded reports whether a text is encoded bytes: format byte until 3.0, contentEncoding from 3.1 on.
func isEncoded(n node) bool {
	if n.doc.version >= "3.1" {
		return n.has("contentEncoding")
	}
	return n.text("format") == "byte"
}

func isTextType(m string) bool {
	if strings.HasPrefix(m, "text/") && m != "text/*" || strings.HasSuffix(m, "+yaml") {
		return true
	}
	return slices.Contains([]string{"application/yaml", "application/x-yaml", "application/toml", "application/csv", "application/graphql", "application/sql"}, m)
}

// styledFields leaves out what a style that the encoding gives cannot hold. Parts are not percent-encoded,
// so that in them a comma separates as well.
func (c *call) styledFields(media node, v any) map[string]any {
	obj, ok := v.(map[string]any)
	if !ok {
		return map[string]any{}
	}
	for name, f := range obj {
		h, styled := encodingOf(media.in("encoding").in(name), nil)
		if !styled || h.style == "deepObject" {
			continue
		}
		whole := func(e any) any {
			d := delims[h.style]
			if text, ok := e.(string); ok && !h.explode && (d != "," || c.media != formMedia) {
				return strings.ReplaceAll(text, d, "_")
			}
			return e
		}
		switch t := f.(type) {
		case []any:
			t = slices.DeleteFunc(t, func(e any) bool { return e == nil || nested(e) })
			for i, e := range t {
				t[i] = whole(e)
			}
			obj[name] = t
		case map[string]any:
			maps.DeleteFunc(t, func(k string, e any) bool { return nested(e) || h.explode && obj[k] != nil })
			for k, e := range t {
				t[k] = whole(e)
			}
		}
	}
	return obj
}

// withFiles puts contents in the place of files.
func (c *call) withFiles(s *shape, media node, obj map[string]any) map[string]any {
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		p := s.props[name].follow()
		_, list := obj[name].([]any)
		if list {
			p = p.in("items")
		}
		e := media.in("encoding").in(name)
		if _, styled := encodingOf(e, nil); styled {
			continue
		}
		m := mediaOf(e.text("contentType"))
		named := m != "" && !isJSONType(m) && !isXMLType(m) && !isTextType(m) && !isEncoded(p) && (p.text("type") == "string" || p.text("type") == "")
		if !isBytes(p) && !named {
			continue
		}
		data := asBytes("file \x00\xff " + c.text())
		if obj[name] = data; list {
			obj[name] = []any{data, data + "2"}
		}
	}
	return obj
}

// asArgument writes files as callers do, in base64.
func asArgument(v any) any {
	switch t := v.(type) {
	case asBytes:
		return base64.StdEncoding.EncodeToString([]byte(t))
	case []any:
		out := make([]any, len(t))
		for i, e := range t {
			out[i] = asArgument(e)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range t {
			out[k] = asArgument(e)
		}
		return out
	}
	return v
}

// fields makes the form of Swagger 2.0. A file makes it multipart.
func (c *call) fields(list []node) error {
	c.media = mediaOf(c.way)
	var pairs []string
	var want []part
	args := map[string]any{}
	for _, p := range list {
		name := p.text("name")
		if !p.flag("required") && !c.all {
			continue
		}
		if p.text("type") == "file" {
			data := asBytes("file \x00\xff " + c.text())
			args[name] = asArgument(data)
			want = append(want, part{name, "application/octet-stream", string(data), noHeaders})
			continue
		}
		h := how{encode: formEncode}
		h.collection(p, "form")
		multipart := c.media != formMedia
		if multipart {
			h.encode = func(s string) string { return s }
		}
		g := c.values
		if d := delims[h.style]; !h.explode && (d != "," || multipart) {
			g.without += d
		}
		for _, d := range h.inner {
			g.without += d
		}
		v := g.of(p, 0, len(h.inner) == 0)
		c.n = g.n
		args[name] = v
		for _, pair := range h.pairs(name, v) {
			key, value, _ := strings.Cut(pair, "=")
			pairs, want = append(pairs, pair), append(want, part{key, "text/plain", value, noHeaders})
		}
	}
	if len(args) == 0 && !c.all {
		c.media = ""
		return nil
	}
	c.args[c.bound.Body.Arg] = args
	c.body = func(got arrived) string {
		return samePairs("body", decoded(got.body, "*"), decoded(strings.Join(pairs, "&"), "*"))
	}
	if c.media != formMedia {
		c.body = func(got arrived) string { return sameParts(got, want) }
	}
	return nil
}
