package httptool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
)

// part is one part of a multipart body.
type part struct {
	name        string // "" for a part without a name
	fileName    string
	contentType string
	headers     []header
	data        []byte
}

// renderMultipart builds a multipart body. An object's parts are named by its
// properties, a list's parts are unnamed. The boundary is a hash of the parts: the same
// call sends the same bytes, and no part can contain it.
func (c *codec) renderMultipart(at string, v any, secrets []header) ([]byte, string, *toolkeep.Error) {
	var parts []part
	var err *toolkeep.Error
	switch t := v.(type) {
	case nil:
	case map[string]any:
		parts, err = c.namedParts(at, t, secrets)
	case []any:
		if egress.MediaType(c.contentType) == "multipart/form-data" || len(secrets) > 0 {
			return nil, "", unsafe(at, "the value must be an object: its properties are the parts of %s", c.contentType)
		}
		parts, err = listParts(at, t)
	default:
		return nil, "", unsafe(at, "the value must be an object or a list to be sent as %s", c.contentType)
	}
	if err != nil {
		return nil, "", err
	}
	for _, s := range secrets {
		parts = append(parts, part{name: s.name, data: []byte(s.value)})
	}
	size := 0
	heads := make([][]byte, len(parts))
	sum := sha256.New()
	for i := range parts {
		if heads[i], err = parts[i].head(at); err != nil {
			return nil, "", err
		}
		size += len(heads[i]) + len(parts[i].data) + 80
		sum.Write([]byte(strconv.Itoa(len(heads[i])) + " " + strconv.Itoa(len(parts[i].data)) + "\n"))
		sum.Write(heads[i])
		sum.Write(parts[i].data)
	}
	if size > maxBody {
		return nil, "", unsafe(at, "the request's body would be over %d MiB", maxBody>>20)
	}
	boundary := "toolkeep-" + hex.EncodeToString(sum.Sum(nil)[:20])
	var buf bytes.Buffer
	buf.Grow(size + 80)
	for i := range parts {
		buf.WriteString("--" + boundary + "\r\n")
		buf.Write(heads[i])
		buf.WriteString("\r\n")
		buf.Write(parts[i].data)
		buf.WriteString("\r\n")
	}
	buf.WriteString("--" + boundary + "--\r\n")
	contentType := c.contentType
	if egress.MediaType(contentType) == "multipart/related" && len(parts) > 0 && !strings.Contains(strings.ToLower(contentType), "type=") {
		first := egress.MediaType(parts[0].contentType) // RFC 2387 requires the root's type
		if first == "" {
			first = "text/plain"
		}
		contentType += `; type="` + first + `"`
	}
	return buf.Bytes(), contentType + "; boundary=" + boundary, nil
}

// head writes a part's headers.
func (p *part) head(at string) ([]byte, *toolkeep.Error) {
	var buf []byte
	if p.name != "" || p.fileName != "" {
		disposition := "form-data"
		if p.name == "" {
			disposition = "attachment"
		}
		buf = append(buf, "Content-Disposition: "+disposition...)
		for _, q := range []header{{"name", p.name}, {"filename", p.fileName}} {
			if q.value == "" {
				continue
			}
			text, ok := quoted(q.value)
			if !ok {
				return nil, unsafe(at, "the %s of a part has a control character, which its header cannot hold", q.name)
			}
			buf = append(buf, "; "+q.name+`="`+text+`"`...)
		}
		buf = append(buf, "\r\n"...)
	}
	if p.contentType != "" {
		buf = append(buf, "Content-Type: "+p.contentType+"\r\n"...)
	}
	for _, h := range p.headers {
		buf = append(buf, h.name+": "+h.value+"\r\n"...)
	}
	return buf, nil
}

// quoted encodes a name as browsers do (HTML, multipart/form-data encoding): a quote is
// percent-encoded, everything else stays UTF-8.
func quoted(s string) (string, bool) {
	if !validHeaderValue(s) || !utf8.ValidString(s) {
		return "", false
	}
	return strings.ReplaceAll(s, `"`, "%22"), true
}

func (c *codec) namedParts(at string, obj map[string]any, secrets []header) ([]part, *toolkeep.Error) {
	var parts []part
	names := make([]string, 0, len(obj))
	for _, name := range c.order {
		if _, ok := obj[name]; ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(obj)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		v := obj[name]
		if v == nil || isSecret(secrets, name) {
			continue
		}
		here := at + canon.Pointer(name)
		if name == "" {
			return nil, unsafe(here, "a part must have a name")
		}
		f := c.fields[name]
		if f == nil {
			f = &field{}
		}
		if f.styled {
			styled, err := f.styledParts(here, name, v)
			if err != nil {
				return nil, err
			}
			parts = append(parts, styled...)
			continue
		}
		list, isList := v.([]any)
		if !isList {
			list = []any{v}
		}
		for i, el := range list {
			elAt := here
			if isList {
				elAt += "/" + strconv.Itoa(i)
			}
			p, err := f.part(elAt, el)
			if err != nil {
				return nil, err
			}
			if p.name = name; f.file && p.fileName == "" {
				p.fileName = name
			}
			parts = append(parts, p)
		}
	}
	return parts, nil
}

func listParts(at string, list []any) ([]part, *toolkeep.Error) {
	parts := make([]part, len(list))
	for i, el := range list {
		var err *toolkeep.Error
		if parts[i], err = (&field{}).part(at+"/"+strconv.Itoa(i), el); err != nil {
			return nil, err
		}
		if parts[i].contentType == "" {
			parts[i].contentType = "text/plain; charset=utf-8"
		}
	}
	return parts, nil
}

// part encodes a value as one part. If the field has no content type, a plain value is
// text and anything else JSON.
func (f *field) part(at string, v any) (part, *toolkeep.Error) {
	p := part{headers: f.headers}
	if f.file {
		got, err := readFile(at, v, f.content.contentType)
		p.data, p.contentType, p.fileName = got.data, got.contentType, got.name
		if p.fileName == "" {
			p.fileName = f.fileName
		}
		return p, err
	}
	if f.content != nil {
		var err *toolkeep.Error
		p.data, p.contentType, err = f.content.render(at, v, nil)
		return p, err
	}
	if s, ok := plain(v); ok {
		p.data = []byte(s)
		return p, nil
	}
	p.data, p.contentType = canon.Append(nil, v), "application/json"
	return p, nil
}

// styledParts encodes a field with a style: each of the style's pairs is a part,
// unencoded.
func (f *field) styledParts(at, name string, v any) ([]part, *toolkeep.Error) {
	p := f.parameter
	p.arg, p.name = name, name
	w := pairs{names: escNone, gather: &[]header{}}
	if err := w.parameter(&p, v, escNone); err != nil {
		return nil, err.With("pointer", at)
	}
	w.finish()
	parts := make([]part, 0, len(*w.gather))
	for _, t := range *w.gather {
		parts = append(parts, part{name: t.name, data: []byte(t.value)})
	}
	return parts, nil
}
