package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/schema"
)

// route is one operation, as the mux and the document have it.
type route struct {
	method, path, id, tag, summary string
	description                    string
	public                         bool   // no credential is asked for
	status                         int    // of success; default 200, without a body 204
	params                         []tree // for the document
	body                           tree   // for the document
	responses                      tree   // for the document, beside those that follow from the answer's type

	limits  canon.Limits // of the body; default those of one call
	streams bool         // it tells how far it is to clients that accept a stream
	free    bool         // it is not counted against the agent's limits, because it follows a call that was
	spares  string       // the permission whose holders it is not counted for: they may do more here than others
	reads   string       // what of the tools it reads, as package audit names it; "" for nothing
}

// register makes a route of a function that takes the principal as a parameter and
// returns ordinary errors. permission, if set, must be the principal's. An input that is a
// needer is asked for what else the principal needs.
//
// The fields of I are filled from what their tags name (path, query, header) and
// Body from the body, all of it held against the schemas of the document. Of O,
// Status and the fields with the tag header are sent, and Body as JSON.
func register[I, O any](a *API, r route, permission string, fn func(context.Context, *toolkeep.Principal, *I) (*O, error)) {
	in, out := a.inputOf(reflect.TypeFor[I](), r.id), a.outputOf(reflect.TypeFor[O](), r.id)
	if r.limits.Bytes == 0 {
		r.limits.Bytes = a.limits.BodyBytes
	}
	if r.status == 0 {
		if r.status = http.StatusOK; out.body == nil {
			r.status = http.StatusNoContent
		}
	}
	doc := in.document(out.document(r))
	if permission == "" && !r.free {
		counted(doc.responses)
	}
	a.add(doc, permission)
	carryOut := func(h http.Header, req *http.Request, to *progress) (answer *O, err error) {
		p, err := a.caller(req)
		if err != nil {
			return nil, err
		}
		if permission == "" && !r.free && (r.spares == "" || !p.May(r.spares)) {
			left, err := a.gate.Count(req.Context(), p)
			if gate.RateHeaders(h, left); err != nil {
				return nil, err
			}
		}
		defer func() { a.gate.Note(p, err) }()
		x := new(I)
		if r.reads != "" {
			defer func() { a.read(p, req, r.reads, x, answer, err) }()
		}
		if err := gate.Need(p, permission); err != nil {
			return nil, err
		}
		needs := func(tree) error { return nil }
		if n, ok := any(x).(needer); ok {
			needs = func(body tree) error { return n.needs(a, p, body) }
		}
		if err := in.read(req, r.limits, reflect.ValueOf(x).Elem(), needs); err != nil {
			return nil, err
		}
		if told, ok := any(x).(interface{ tells(*progress) }); ok {
			told.tells(to)
		}
		ctx := req.Context()
		if to != nil { // a stream ends with what opened it
			var over context.CancelFunc
			ctx, over = a.gate.While(ctx, p)
			defer over()
		}
		out, err := fn(ctx, p, x)
		if to != nil && to.begun && !a.gate.Still(p) {
			return nil, gate.Gone()
		}
		return out, err
	}
	serve := func(w http.ResponseWriter, req *http.Request, to *progress) {
		answer, err := carryOut(w.Header(), req, to)
		status, body := r.status, []byte(nil)
		if err == nil && answer != nil && (out.body != nil || out.headers != nil) {
			status, body, err = out.write(w.Header(), status, reflect.ValueOf(answer).Elem())
		}
		switch {
		case to != nil && to.begun:
			to.end(w, req, body, err)
		case err != nil:
			a.gate.Refuse(w, req, err)
		case body == nil:
			a.gate.Send(w, req, status, "", nil)
		default:
			a.gate.Send(w, req, status, gate.JSONType, body)
		}
	}
	a.route(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) {
		if r.streams {
			if to := a.newProgress(w, req); to != nil {
				a.gate.Streaming(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { serve(w, req, to) }))(w, req)
				return
			}
		}
		serve(w, req, nil)
	})
}

// needer is an input whose body decides which permission the principal needs. It is asked
// before the body is checked against its schema: a principal without the permission does not
// learn what is wrong with the body. A member of a wrong type counts as absent.
type needer interface {
	needs(a *API, p *toolkeep.Principal, body tree) error
}

// textOf is v if it is text.
func textOf(v any) string {
	s, _ := v.(string)
	return s
}

// param is a field of an input that is not in the body.
type param struct {
	index    []int
	in, name string
	explode  bool // a list: each value is a parameter of its own
	absent   string
	doc      tree // nil where it is hidden
}

// input is where the fields of a route's input come from.
type input struct {
	params   []param
	body     []int // index of the field; nil without
	optional bool  // the body
	bodyDoc  tree
	// The checks are compiled when they are first needed.
	checkParams, checkBody func() *schema.Schema
}

// places are where parameters come from.
var places = []string{"path", "query", "header"}

// inputOf reads the tags of a type.
func (a *API) inputOf(t reflect.Type, id string) *input {
	in := &input{}
	groups := tree{}
	for _, where := range places {
		groups[where] = tree{"properties": tree{}, "required": []string{}}
	}
	groups["query"].(tree)["additionalProperties"] = false
	for _, f := range reflect.VisibleFields(t) {
		if f.Name == "Body" {
			in.body, in.optional = f.Index, f.Type.Kind() == reflect.Pointer
			in.bodyDoc = a.components.member(f, id+"Request")
			in.checkBody = a.components.checker(in.bodyDoc)
			continue
		}
		for _, where := range places {
			tag, ok := f.Tag.Lookup(where)
			if !ok {
				continue
			}
			p := param{index: f.Index, in: where, absent: f.Tag.Get("default")}
			p.name, _, p.explode = strings.Cut(tag, ",explode")
			s, required := a.components.member(f, ""), where == "path" || f.Tag.Get("required") == "true"
			g := groups[where].(tree)
			g["properties"].(tree)[p.name] = s
			if required {
				g["required"] = append(g["required"].([]string), p.name)
			}
			if f.Tag.Get("hidden") != "true" {
				p.doc = paramDoc(where, p.name, f.Tag.Get("doc"), required, s)
				if where == "query" {
					p.doc["explode"] = p.explode
				}
			}
			in.params = append(in.params, p)
		}
	}
	in.checkParams = a.components.checker(tree{"properties": groups})
	return in
}

// document adds the input to the document's route.
func (in *input) document(r route) route {
	for _, p := range in.params {
		if p.doc != nil {
			r.params = append(r.params, p.doc)
		}
	}
	if in.body != nil {
		r.body = tree{"content": tree{gate.JSONType: tree{"schema": in.bodyDoc}}}
		if !in.optional {
			r.body["required"] = true
		}
	}
	return r
}

// read fills an input. E3301, E3302, E3311, E3312, E3330, and what needs answers for the body.
func (in *input) read(r *http.Request, limits canon.Limits, v reflect.Value, needs func(tree) error) error {
	if err := in.readParams(r, v); err != nil || in.body == nil {
		return err
	}
	var body []byte
	var err error
	if r.ContentLength != 0 {
		if body, err = gate.ReadBody(r, limits.Bytes, true); err != nil {
			return err
		}
	}
	if len(body) == 0 {
		if in.optional {
			return nil
		}
		return toolkeep.NewError(toolkeep.MalformedRequest, "the body is missing; send JSON, as /openapi.json has it")
	}
	sent, err := canon.Parse(body, limits)
	if err != nil {
		return err
	}
	if object, ok := sent.(map[string]any); ok {
		if err := needs(object); err != nil {
			return err
		}
	}
	if faults := in.checkBody().ValidateSecret(r.Context(), sent); len(faults) > 0 {
		return badInput(faults)
	}
	if err := strict.Unmarshal(body, v.FieldByIndex(in.body).Addr().Interface()); err != nil {
		// What fits the schema can only be a number that its field does not hold.
		f := toolkeep.Fault{Rule: "range", Message: "the number is out of range, or has a fraction where a whole number is expected"}
		var at *strict.SemanticError
		if errors.As(err, &at) {
			f.Pointer = string(at.JSONPointer)
		}
		return badInput([]toolkeep.Fault{f})
	}
	return nil
}

// readParams fills what is not in the body. An empty value is as good as none.
func (in *input) readParams(r *http.Request, v reflect.Value) error {
	query := r.URL.Query()
	sent := map[string]map[string]any{"query": {}, "path": {}, "header": {}}
	for _, p := range in.params {
		var values []string
		switch p.in {
		case "path":
			values = []string{r.PathValue(p.name)}
		case "query":
			values = query[p.name]
			delete(query, p.name)
			if len(values) > 1 && !p.explode { // it is a list on another route
				return toolkeep.NewError(toolkeep.InvalidEncoding, "the query parameter %q is given %d times", p.name, len(values))
			}
		default:
			values = r.Header.Values(p.name)
		}
		if len(values) == 0 || len(values) == 1 && values[0] == "" {
			if p.absent == "" {
				continue
			}
			values = []string{p.absent}
		}
		if len(values) > 1 && !p.explode && p.in == "query" { // one that may be repeated elsewhere
			return toolkeep.NewError(toolkeep.InvalidEncoding, "the query parameter %q is given %d times", p.name, len(values))
		}
		sent[p.in][p.name] = setField(v.FieldByIndex(p.index), values)
	}
	for name := range query {
		sent["query"][name] = "" // it is not known
	}
	tree := map[string]any{}
	for where, values := range sent {
		tree[where] = values
	}
	faults := in.checkParams().ValidateSecret(r.Context(), tree)
	if len(faults) == 0 {
		return nil
	}
	for i, f := range faults { // /query/page is told as query.page
		faults[i].Pointer = strings.ReplaceAll(strings.TrimPrefix(f.Pointer, "/"), "/", ".")
	}
	return badInput(faults)
}

// setField sets a field to text of its type, and gives what was sent as the schema
// has it: the text itself where it is not of the type.
func setField(f reflect.Value, values []string) any {
	text := values[0]
	switch f.Kind() {
	case reflect.Slice:
		f.Set(reflect.ValueOf(values))
		list := make([]any, len(values))
		for i, v := range values {
			list[i] = v
		}
		return list
	case reflect.Int:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			f.SetInt(n)
			return json.Number(text)
		}
	case reflect.Bool:
		if b, err := strconv.ParseBool(text); err == nil {
			f.SetBool(b)
			return b
		}
	default:
		f.SetString(text)
	}
	return text
}

// badInput is the error of faults. The rule of each is the keyword of JSON Schema
// that it breaks, or range.
func badInput(faults []toolkeep.Fault) error {
	code := toolkeep.InvalidParameters
	for _, f := range faults {
		switch {
		case f.Rule == "additionalProperties":
			code = toolkeep.MalformedRequest
		case f.Rule == "required" && code == toolkeep.InvalidParameters:
			code = toolkeep.MissingParameter
		}
	}
	text := faults[0].Message
	if at := faults[0].Pointer; at != "" {
		text += " (at " + at + ")"
	}
	if n := len(faults) - 1; n > 0 {
		text += " (and " + strconv.Itoa(n) + " more)"
	}
	return toolkeep.FaultsError(code, text, faults)
}

// output is what of a route's answer is sent, and how.
type output struct {
	status  []int // index of the field; nil without
	headers []param
	body    []int // nil without
	bodyDoc tree
}

func (a *API) outputOf(t reflect.Type, id string) *output {
	out := &output{}
	for _, f := range reflect.VisibleFields(t) {
		switch name := f.Tag.Get("header"); {
		case name != "":
			out.headers = append(out.headers, param{index: f.Index, name: name, doc: headerDoc(f.Tag.Get("doc"), a.components.of(f.Type, ""))})
		case f.Name == "Status" && len(f.Index) == 1:
			out.status = f.Index
		case f.Name == "Body":
			out.body, out.bodyDoc = f.Index, a.components.member(f, id+"Response")
		}
	}
	return out
}

// document adds the answer to the document's route.
func (out *output) document(r route) route {
	all := tree{}
	for status, doc := range r.responses {
		all[status] = doc
	}
	r.responses = all
	key := strconv.Itoa(r.status)
	answer, _ := all[key].(tree)
	if answer == nil {
		answer = tree{"description": http.StatusText(r.status)}
		all[key] = answer
	}
	if out.body != nil {
		forms, _ := answer["content"].(tree)
		if forms == nil {
			forms = tree{}
			answer["content"] = forms
		}
		forms[gate.JSONType] = tree{"schema": out.bodyDoc}
	}
	if len(out.headers) > 0 {
		headers := tree{}
		for _, h := range out.headers {
			headers[h.name] = h.doc
		}
		answer["headers"] = headers
	}
	return r
}

// write sets the headers of an answer, and gives its status and body.
func (out *output) write(h http.Header, status int, v reflect.Value) (int, []byte, error) {
	for _, p := range out.headers {
		if text := v.FieldByIndex(p.index).String(); text != "" {
			h.Set(p.name, text)
		}
	}
	if out.status != nil {
		if n := int(v.FieldByIndex(out.status).Int()); n != 0 {
			status = n
		}
	}
	if out.body == nil {
		return status, nil, nil
	}
	body, err := gate.Marshal(v.FieldByIndex(out.body).Interface())
	return status, body, err
}

// checker compiles a schema of the document when it is first needed.
func (c *components) checker(s tree) func() *schema.Schema {
	return sync.OnceValue(func() *schema.Schema {
		defs := tree{}
		c.needs(s, defs)
		raw, err := gate.Marshal(tree{"allOf": []any{s}, "$defs": defs})
		if err != nil {
			panic(err) // it is made of constants
		}
		compiled, err := schema.Compile([]byte(strings.ReplaceAll(string(raw), componentsAt, "#/$defs/")))
		if err != nil {
			panic(err)
		}
		return compiled
	})
}

// needs gathers the components that a schema refers to.
func (c *components) needs(v any, defs tree) {
	switch v := v.(type) {
	case tree:
		if ref, ok := v["$ref"].(string); ok {
			name := strings.TrimPrefix(ref, componentsAt)
			if defs[name] == nil {
				defs[name] = c.schemas[name]
				c.needs(c.schemas[name], defs)
			}
		}
		for _, one := range v {
			c.needs(one, defs)
		}
	case []any:
		for _, one := range v {
			c.needs(one, defs)
		}
	}
}
