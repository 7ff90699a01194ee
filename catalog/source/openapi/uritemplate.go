package openapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
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

// template is a path template as it was read.
type template struct {
	sent   string       // the path as the binding has it: OpenAPI's {name} in the place of expressions
	names  []string     // in it
	found  []expression // of RFC 6570
	reason string       // why it cannot be sent
}

// readTemplate reads a path template. It replaces the expressions of RFC 6570 by OpenAPI's {name}, and
// says what each means; a name among declared is one as it stands. Some documents distinguish operations
// on one path by a fragment, which clients never send.
func readTemplate(path string, declared []string) (t template) {
	path, _, _ = strings.Cut(path, "#")
	t.sent = path
	var sent, literal strings.Builder
	name := func(name string) {
		sent.WriteString("{" + name + "}")
		literal.WriteString(name)
		if !slices.Contains(t.names, name) {
			t.names = append(t.names, name)
		}
	}
	text := func(s string) {
		sent.WriteString(s)
		literal.WriteString(s)
	}
	for rest := path; rest != ""; {
		before, after, open := strings.Cut(rest, "{")
		text(before)
		if !open {
			break
		}
		inside, tail, closed := strings.Cut(after, "}")
		if !closed || inside == "" || strings.ContainsRune(inside, '{') {
			t.reason = "the path has a { without its } or without a name"
			return t
		}
		rest = tail
		kind, special := operators[inside[0]]
		if slices.Contains(declared, inside) || !special && !strings.HasSuffix(inside, "*") && !strings.ContainsAny(inside, ",:#") {
			name(inside)
			continue
		}
		names := inside
		if special {
			names = inside[1:]
		}
		for i, one := range strings.Split(names, ",") {
			e := kind
			e.name, e.explode = strings.CutSuffix(one, "*")
			if !isPlainName(e.name) && !slices.Contains(declared, e.name) {
				t.reason = fmt.Sprintf("the path has the expression {%s}, which cannot be sent", toolkeep.Clip(inside, 80))
				return t
			}
			t.found = append(t.found, e)
			switch {
			case e.query:
				continue
			case special && inside[0] == '/':
				text("/")
			case i > 0 && (!special || e.reserve):
				text(",")
			}
			name(e.name)
		}
	}
	t.sent = sent.String()
	switch {
	case strings.ContainsRune(t.sent, '?'):
		t.reason = "the path holds a query, which belongs into parameters"
	case strings.ContainsRune(literal.String(), '}'):
		t.reason = "the path has a } without its {"
	case egress.HasDotSegments(literal.String()):
		t.reason = "the path has \".\" or \"..\" segments or a % that encodes nothing"
	}
	return t
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
	if op.template.reason != "" {
		return nil, op.template.reason
	}
	for _, e := range op.template.found {
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
