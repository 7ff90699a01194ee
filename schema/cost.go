package schema

import (
	"fmt"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// maxCost limits the compiler's extra work, counted in schema parts it visits. For each reference to a place where
// no keyword puts a schema, such as a component outside $defs, it copies all that it knows of the document, and for
// each schema it goes through all that have an $id. A hundred such references in a schema of a thousand parts are
// cheap; ten thousand would take a minute.
const maxCost = 4_000_000

// idCost is how many schemas with an $id are visited in the time of one copied part.
const idCost = 4

// costs counts the parts of a schema that determine the cost.
type costs struct {
	id     string  // the keyword that names a schema
	drafts Dialect // dialects whose keywords hold schemas here
	parts  int
	ids    int
	refs   map[string]bool // referenced places within the document
	places map[string]bool // where keywords put schemas
}

// tooCostly finds a schema whose compilation takes far longer than its size suggests.
func tooCostly(doc any) []toolkeep.Fault {
	root, ok := doc.(map[string]any)
	if !ok {
		return nil
	}
	draft, _ := root["$schema"].(string)
	c := &costs{id: "$id", drafts: from4, refs: map[string]bool{}, places: map[string]bool{}}
	if strings.Contains(draft, "json-schema.org/draft-0") {
		c.drafts = to7
	}
	if strings.Contains(draft, "json-schema.org/draft-04/") {
		c.id = "id"
	}
	c.count(root, "")
	if !c.over(len(c.refs)) {
		return nil
	}
	c.ids = 0
	c.mark(root, "")
	odd := 0
	var first string
	for target := range c.refs {
		if !c.places[target] {
			if odd++; first == "" || target < first {
				first = target
			}
		}
	}
	switch {
	case !c.over(odd):
		return nil
	case c.over(0):
		return []toolkeep.Fault{{Rule: c.id, Message: fmt.Sprintf(
			"%d of its %d parts have an %s, which takes too long to tell apart; let fewer have one", c.ids, c.parts, c.id)}}
	}
	at, _ := findReference(doc, first, "")
	definitions := "$defs"
	if c.drafts == to7 {
		definitions = "definitions"
	}
	return []toolkeep.Fault{{Pointer: at, Rule: "$ref", Message: fmt.Sprintf(
		"%d references lead to places where the draft has no schemas, as to %s, which takes too long in a schema of %d parts; put what they lead to under %s",
		odd, quoteText(first, 200), c.parts, definitions)}}
}

// over reports whether that many odd references cost too much.
func (c *costs) over(odd int) bool { return c.parts*(odd+c.ids/idCost) > maxCost }

// count counts objects, those with an id, and the referenced places.
func (c *costs) count(v any, key string) {
	switch v := v.(type) {
	case map[string]any:
		c.parts++
		if _, named := v[c.id].(string); named {
			c.ids++
		}
		for k, e := range v {
			c.count(e, k)
		}
	case []any:
		for _, e := range v {
			c.count(e, "")
		}
	case string:
		if key == "$ref" || key == "$dynamicRef" || key == "$recursiveRef" {
			if target := fragment(v); strings.HasPrefix(target, "/") {
				c.refs[target] = true
			}
		}
	}
}

// mark records where keywords put schemas, and which of these have an id.
func (c *costs) mark(schema any, at string) {
	c.places[at] = true
	obj, ok := schema.(map[string]any)
	if !ok {
		return
	}
	if _, named := obj[c.id].(string); named {
		c.ids++
	}
	for p, v := range Below(obj) {
		if p.Keyword.In&c.drafts != 0 {
			c.mark(v, at+p.Pointer())
		}
	}
}
