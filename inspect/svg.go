package inspect

import (
	"bytes"
	"encoding/xml"
	"io"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html/atom"

	"github.com/toolkeep/toolkeep"
)

// svgDoctype is the document type of a drawing: none but the name, or the W3C's, which browsers and parsers know without
// fetching it.
var svgDoctype = regexp.MustCompile(`^DOCTYPE\s+([\w.-]+:)?svg(\s+(PUBLIC\s+["']-//W3C//DTD [\w. ]*SVG [\w. ]+//EN["']|SYSTEM)\s+["']https?://www\.w3\.org/[\w./-]+\.dtd["'])?\s*$`)

// declared is a declaration where a decoder does not get to.
var declared = regexp.MustCompile(`(?i)<!(DOCTYPE|ENTITY|ELEMENT|ATTLIST|NOTATION)[^>]*>?`)

const xhtml = "http://www.w3.org/1999/xhtml"

// judgeSVG reads a drawing, which is given as it was sent: it is text to a model, and a program to a browser. A DTD other than
// the W3C's is E3713. What runs or loads something, is over 256 deep, has over 2,000,000 elements and attributes or 10,000 in one
// element, or cannot be read to its end, is a warning, E3712, and with html: reject the error.
func (r *result) judgeSVG(text []byte) error {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	var c cleaner
	begin, depth, left := int64(-1), 0, maxElements
	for {
		at := d.InputOffset()
		wide := at != begin && wideTag(text[at:]) // an end tag that closes several elements is several tokens
		begin = at
		var tok xml.Token
		var err error
		if !wide {
			tok, err = d.Token()
		}
		if err == io.EOF {
			break
		}
		if start, ok := tok.(xml.StartElement); ok {
			depth, left = depth+1, left-1-len(start.Attr)
		}
		if wide || err != nil || depth > maxXMLDepth || left < 0 { // XML 1.1, say, which a browser may read
			for _, m := range declared.FindAll(text[begin:], -1) {
				if !svgDoctype.Match(bytes.TrimSuffix(m[2:], []byte(">"))) {
					return errDTD()
				}
			}
			c.took(&c.unsafe, "markup that cannot be judged")
			break
		}
		switch tok := tok.(type) {
		case xml.Directive:
			if !svgDoctype.Match(tok) {
				return errDTD()
			}
		case xml.ProcInst:
			if strings.EqualFold(tok.Target, "xml-stylesheet") { // it can make a page of the drawing
				c.took(&c.unsafe, "instruction "+tok.Target)
			}
		case xml.StartElement:
			c.judgeElement(tok)
		case xml.EndElement:
			depth--
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
	var animated []string // a reader may take any of several
	for _, a := range e.Attr {
		if strings.EqualFold(a.Name.Local, "attributeName") {
			animated = append(animated, strings.ToLower(strings.TrimSpace(a.Value[strings.LastIndexByte(a.Value, ':')+1:])))
		}
	}
	for _, a := range e.Attr {
		name, address, runs, values := strings.ToLower(a.Name.Local), false, false, []string{a.Value}
		switch name {
		case "href", "base":
			address = true
		case "src", "data", "action", "formaction":
			runs = true
		case "values":
			values = strings.Split(a.Value, ";")
			fallthrough
		case "to", "from", "by":
			address, runs = slices.Contains(animated, "href"), true
			for _, of := range animated {
				if strings.HasPrefix(of, "on") {
					c.took(&c.unsafe, "animation of "+of)
				}
			}
		}
		for _, v := range values {
			if address && !plainURL(v) && !picture(v) || runs && scriptURL.MatchString(squeezed(v)) || scriptInCSS.MatchString(squeezed(v)) {
				c.took(&c.unsafe, "address in "+name)
			}
		}
		if strings.HasPrefix(name, "on") && a.Name.Space != "xmlns" {
			c.took(&c.unsafe, name)
		}
	}
}

var (
	pictureURL  = regexp.MustCompile(`^data:image/(png|jpe?g|gif|webp|avif)([;,]|$)`)
	scriptURL   = regexp.MustCompile(`^(javascript|vbscript):`)
	scriptInCSS = regexp.MustCompile(`url\(["']?(javascript|vbscript):`)
)

// picture reports whether an address holds a picture that is no drawing.
func picture(address string) bool { return pictureURL.MatchString(squeezed(address)) }

// squeezed returns an address or CSS in lower case without what browsers skip in it: spaces and control characters.
func squeezed(value string) string {
	return strings.ToLower(strings.Map(func(c rune) rune {
		if c <= ' ' {
			return -1
		}
		return c
	}, value))
}
