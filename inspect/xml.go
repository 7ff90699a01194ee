package inspect

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/toolkeep/toolkeep"
)

const (
	maxXMLDepth   = 256    // nesting of elements
	maxAttributes = 10_000 // of an element: the decoder keeps all of them before it gives any
	textName      = "#text"
)

// parseXML parses an XML document into a tree.
//
// The document is an object with one property, the root element. An element without attributes and child elements
// is its text, "" if it is empty. Any other is an object: its attributes under "@" and their name, its child
// elements under their name (an array if several have one name, in order), its text under "#text" if it is more
// than whitespace. Names have no prefixes; namespace declarations, comments and processing instructions are
// dropped. Text between child elements is joined and trimmed.
//
// A DTD is refused with E3713, so there are neither internal nor external entities. E3504 if it is not well-formed,
// over 256 deep, or has an element of over 10,000 attributes, E3710 if it has over 2,000,000 elements and attributes.
func parseXML(text []byte, left int) (any, error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	// The text is already UTF-8, whatever its declaration says.
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	var (
		open []*element
		root *element
	)
	for {
		if wideTag(text[d.InputOffset():]) {
			return nil, errWide
		}
		tok, err := d.Token()
		if err == io.EOF && root != nil && len(open) == 0 {
			return map[string]any{root.name: root.tree()}, nil
		}
		if err != nil {
			return nil, xmlError(err)
		}
		switch tok := tok.(type) {
		case xml.Directive:
			return nil, errDTD()
		case xml.StartElement:
			if left -= 1 + len(tok.Attr); left < 0 {
				return nil, errElements
			}
			if len(open) == maxXMLDepth {
				return nil, errDepth
			}
			if root != nil && len(open) == 0 {
				return nil, errors.New("it has more than one root element")
			}
			e := newElement(tok)
			if len(open) == 0 {
				root = e
			}
			open = append(open, e)
		case xml.EndElement:
			e := open[len(open)-1]
			open = open[:len(open)-1]
			if len(open) > 0 {
				open[len(open)-1].add(e.name, e.tree())
			}
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].text.Write(tok)
			} else if len(bytes.TrimSpace(bytes.TrimPrefix(tok, utf8BOM))) > 0 {
				return nil, errors.New("it has text outside of its root element")
			}
		}
	}
}

// wideTag reports whether a text begins with a start tag of over 10,000 attributes: of 20,000 spaces and equals signs outside
// of quotes.
func wideTag(text []byte) bool {
	if len(text) < 2*maxAttributes || text[0] != '<' || text[1] == '!' || text[1] == '?' {
		return false
	}
	var quote byte
	n := 0
	for _, c := range text[1:] {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '>':
			return false
		case c == '"' || c == '\'':
			quote = c
		case c <= ' ' || c == '=':
			if n++; n > 2*maxAttributes {
				return true
			}
		}
	}
	return false
}

func errDTD() error {
	return toolkeep.NewError(toolkeep.UnsafeXML, "the tool sent XML with a DTD, which is not read: it could name entities and files")
}

var (
	errElements = errors.New("it has too many elements")
	errDepth    = fmt.Errorf("its elements are nested over %d deep", maxXMLDepth)
	errWide     = fmt.Errorf("one of its elements has over %d attributes", maxAttributes)
)

// xmlError keeps the line and drops the message, which may quote the document.
func xmlError(err error) error {
	var syntax *xml.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d is not well-formed", syntax.Line)
	case errors.Is(err, io.EOF):
		return errors.New("it has no root element")
	}
	return errors.New("it is not well-formed")
}

// element is an element being read.
type element struct {
	name     string
	children map[string]any // attributes and child elements, nil if none
	several  map[string]bool
	text     strings.Builder
}

func newElement(start xml.StartElement) *element {
	e := &element{name: start.Name.Local}
	for _, a := range start.Attr {
		if a.Name.Space == "xmlns" || a.Name.Space == "" && a.Name.Local == "xmlns" {
			continue
		}
		e.add("@"+a.Name.Local, a.Value)
	}
	return e
}

func (e *element) add(name string, v any) {
	if e.children == nil {
		e.children = make(map[string]any)
	}
	before, there := e.children[name]
	switch {
	case !there:
		e.children[name] = v
	case e.several[name]:
		e.children[name] = append(before.([]any), v)
	default:
		if e.several == nil {
			e.several = make(map[string]bool)
		}
		e.several[name] = true
		e.children[name] = []any{before, v}
	}
}

func (e *element) tree() any {
	text := e.text.String()
	if e.children == nil {
		return text
	}
	if text = strings.TrimSpace(text); text != "" {
		e.add(textName, text)
	}
	return e.children
}
