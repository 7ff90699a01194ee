package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// expression is one variable of a path template by RFC 6570: {.ids*} is the variable ids in style
// label, exploded.
type expression struct {
	name    string
	style   string // "" for the parameter's own
	explode bool
	reserve bool // {+name}
	query   bool // {?name} and {&name}
}

// operators are those of RFC 6570 that a path can have, with the styles that they mean.
var operators = map[byte]expression{
	'+': {reserve: true},
	'.': {style: "label"},
	';': {style: "matrix"},
	'/': {style: "simple"},
	'?': {query: true},
	'&': {query: true},
}

// uriTemplate replaces the expressions of RFC 6570 in a path template by OpenAPI's {name}, and says
// what each means. A name that isName knows is one as it stands. Without an expression the path is
// returned as it is.
func uriTemplate(path string, isName func(string) bool) (plain string, found []expression, reason string) {
	var b strings.Builder
	for rest := path; rest != ""; {
		text, after, open := strings.Cut(rest, "{")
		b.WriteString(text)
		if !open {
			break
		}
		inside, tail, closed := strings.Cut(after, "}")
		if !closed {
			return path, nil, "" // templateNames has the reason
		}
		rest = tail
		kind, special := expression{}, false
		if inside != "" {
			kind, special = operators[inside[0]]
		}
		if isName(inside) || inside == "" || !special && !strings.HasSuffix(inside, "*") && !strings.ContainsAny(inside, ",:#") {
			b.WriteString("{" + inside + "}")
			continue
		}
		names := inside
		if special {
			names = inside[1:]
		}
		for i, name := range strings.Split(names, ",") {
			e := kind
			e.name, e.explode = strings.CutSuffix(name, "*")
			if !isPlainName(e.name) && !isName(e.name) {
				return "", nil, fmt.Sprintf("the path has the expression {%s}, which cannot be sent", toolkeep.Clip(inside, 80))
			}
			found = append(found, e)
			switch {
			case e.query:
				continue
			case special && inside[0] == '/':
				b.WriteByte('/')
			case i > 0 && (!special || e.reserve):
				b.WriteByte(',')
			}
			b.WriteString("{" + e.name + "}")
		}
	}
	return b.String(), found, ""
}

// expand applies the expressions of the path template to the parameters that they name, and adds
// those that nothing declares. What a parameter says itself comes first.
func (d *document) expand(op *operation, params []*param) ([]*param, string) {
	place := func(e expression) string {
		if e.query {
			return "query"
		}
		return "path"
	}
	find := func(name, in string) *param {
		i := slices.IndexFunc(params, func(p *param) bool { return p.in == in && p.name == name })
		if i < 0 {
			return nil
		}
		return params[i]
	}
	plain, found, reason := uriTemplate(op.pathTemplate(), func(name string) bool { return find(name, "path") != nil })
	if reason != "" {
		return nil, reason
	}
	op.template = plain
	for _, e := range found {
		p := find(e.name, place(e))
		if p == nil {
			d.warn("%s: the path names {%s} but no parameter declares it; it is taken as a text", op.label(), toolkeep.Clip(e.name, 80))
			p = &param{name: e.name, in: place(e), required: !e.query, style: stylesOf[place(e)][0], node: newObject(op.op.src, op.op.line), schema: textSchema}
			params = append(params, p)
		}
		if e.style != "" && !p.node.has("style") && p.content == "" {
			p.style = e.style
		}
		if e.explode && !p.node.has("explode") && p.content == "" {
			p.explode = true
		}
		p.reserved = p.reserved || e.reserve
	}
	return params, ""
}
