package inspect

import (
	"bytes"
	"encoding/xml"
	"io"
	"regexp"
	"strings"

	"golang.org/x/net/html/atom"

	"github.com/toolkeep/toolkeep"
)

// svgDoctype is the document type of a drawing: none but the name, or the W3C's, which browsers and parsers know without
// fetching it.
var svgDoctype = regexp.MustCompile(`^DOCTYPE\s+svg(\s+(PUBLIC\s+["']-//W3C//DTD SVG [\w. ]+//EN["']|SYSTEM)\s+["']https?://www\.w3\.org/[\w./-]+\.dtd["'])?\s*$`)

const xhtml = "http://www.w3.org/1999/xhtml"

// judgeSVG reads a drawing, which is given as it was sent: it is text to a model, and a program to a browser. A DTD other than
// the W3C's is E3713. What runs or loads something, or cannot be read to its end, is a warning, E3712, and with html: reject
// the error.
func (r *result) judgeSVG(text []byte) error {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	var c cleaner
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil { // XML 1.1, say, which a browser may read
			c.took(&c.unsafe, "markup that cannot be judged")
			break
		}
		switch tok := tok.(type) {
		case xml.Directive:
			if !svgDoctype.Match(tok) {
				return errDTD()
			}
		case xml.ProcInst:
			if tok.Target != "xml" { // a stylesheet can make a page of the drawing
				c.took(&c.unsafe, "instruction "+tok.Target)
			}
		case xml.StartElement:
			c.judgeElement(tok)
		}
	}
	switch {
	case len(c.unsafe) == 0:
	case r.html() == "reject":
		return unsafeMarkup("a drawing (SVG)", c.unsafe)
	default:
		r.out.Warnings = append(r.out.Warnings, toolkeep.Warning{Code: toolkeep.UnsafeHTML,
			Message: "the drawing (SVG) has " + strings.Join(c.unsafe, ", ") + ", which a browser may run; it is given as it was sent",
			Details: map[string]any{"found": c.unsafe}})
	}
	return nil
}

// judgeElement notes what an element of a drawing runs or loads. An animation of an address sets what its values say.
func (c *cleaner) judgeElement(e xml.StartElement) {
	name := strings.ToLower(e.Name.Local)
	switch {
	case name == "foreignobject" || name == "handler" || name != "svg" && active[atom.Lookup([]byte(name))]:
		c.took(&c.unsafe, name)
	case e.Name.Space == xhtml:
		c.took(&c.unsafe, "HTML")
	}
	var animated string
	for _, a := range e.Attr {
		if strings.EqualFold(a.Name.Local, "attributeName") {
			animated = strings.ToLower(strings.TrimSpace(a.Value[strings.LastIndexByte(a.Value, ':')+1:]))
		}
	}
	for _, a := range e.Attr {
		name, address, values := strings.ToLower(a.Name.Local), false, []string{a.Value}
		switch name {
		case "href", "base":
			address = true
		case "values":
			values = strings.Split(a.Value, ";")
			fallthrough
		case "to", "from", "by":
			address = animated == "href"
			if strings.HasPrefix(animated, "on") {
				c.took(&c.unsafe, "animation of "+animated)
			}
		}
		for _, v := range values {
			if address && !plainURL(v) && !picture(v) || hasScriptURL(v) {
				c.took(&c.unsafe, "address in "+name)
			}
		}
		if strings.HasPrefix(name, "on") && a.Name.Space != "xmlns" {
			c.took(&c.unsafe, name)
		}
	}
}

// picture reports whether an address holds a picture that is no drawing.
func picture(address string) bool {
	address = strings.ToLower(strings.TrimSpace(address))
	return strings.HasPrefix(address, "data:image/") && !strings.HasPrefix(address, "data:image/svg")
}

// hasScriptURL reports whether an attribute has a script's address, also within CSS.
func hasScriptURL(value string) bool {
	value = strings.ToLower(strings.Map(func(c rune) rune {
		if c <= ' ' {
			return -1
		}
		return c
	}, value))
	return strings.Contains(value, "javascript:") || strings.Contains(value, "vbscript:")
}
