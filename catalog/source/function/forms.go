package function

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// lists are the members of a request or an answer that hold a list of functions.
var lists = []string{"tools", "functions", "functionDeclarations", "function_declarations"}

// collect finds the functions of a value and plans each. depth counts the enclosing objects: the
// answer of tools/list holds a result, which holds tools.
func (r *reader) collect(pointer string, v any, depth int) {
	if r.plan.Items >= maxFunctions {
		return
	}
	switch v := v.(type) {
	case []any:
		for i, e := range v {
			r.collect(pointer+"/"+strconv.Itoa(i), e, depth+1)
		}
	case map[string]any:
		if depth < 4 {
			if r.within(pointer, v, depth) {
				return
			}
		}
		r.add(r.read(pointer, v))
	default:
		if pointer != "" {
			r.add(&definition{pointer: pointer, parameters: problem("it is not an object")})
		}
	}
}

// within descends into an object that contains functions but is not one itself.
func (r *reader) within(pointer string, v map[string]any, depth int) bool {
	found := false
	for _, name := range lists {
		if list, ok := v[name].([]any); ok && (v["name"] == nil || name == "tools") {
			found = true
			r.collect(pointer+canon.Pointer(name), list, depth+1)
		}
	}
	for _, name := range lists {
		if v[name] != nil && !found && v["name"] == nil && looks(v) == Auto {
			found = true
			r.add(&definition{pointer: pointer + canon.Pointer(name), parameters: problem("it should be a list of functions, and is " + jsonKind(v[name]))})
		}
	}
	if result, ok := v["result"].(map[string]any); ok && !found && v["name"] == nil {
		found = true
		r.collect(pointer+"/result", result, depth+1)
	}
	return found
}

func jsonKind(v any) string {
	switch v.(type) {
	case string:
		return "a text"
	case bool:
		return "true or false"
	case map[string]any:
		return "an object"
	}
	return "a number"
}

// looks detects a function's form.
func looks(v map[string]any) Form {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { _, ok := v[n]; return ok })
	}
	inner, _ := v["function"].(map[string]any)
	switch {
	case inner != nil:
		return OpenAI
	case has("input_schema"):
		return Anthropic
	case has("inputSchema"):
		return MCP
	case has("parametersJsonSchema", "parameters_json_schema", "responseJsonSchema"):
		return Gemini
	case has("args_schema") || has("args") && !has("parameters"):
		return LangChain
	case v["type"] == "function":
		return OpenAI
	case has("parameters") && shouting(v["parameters"], 0):
		return Gemini
	case has("parameters"):
		return OpenAI
	case has("title") && has("properties") && !has("name"):
		return LangChain
	case has("name") && !has("type"):
		return OpenAI // a function without arguments
	}
	return Auto
}

// shouting reports whether the schema's types are in capitals, like Gemini's.
func shouting(v any, depth int) bool {
	s, ok := v.(map[string]any)
	if !ok || depth > 8 {
		return false
	}
	if t, ok := s["type"].(string); ok {
		return t != "" && strings.ToUpper(t) == t
	}
	properties, _ := s["properties"].(map[string]any)
	for _, p := range properties {
		if shouting(p, depth+1) {
			return true
		}
	}
	return shouting(s["items"], depth+1)
}

// read parses one function.
func (r *reader) read(pointer string, v map[string]any) *definition {
	form := looks(v)
	asked := r.o.Form
	wrong := func(why string) *definition {
		return &definition{form: asked, pointer: pointer, name: nameOf(v), parameters: problem(why)}
	}
	switch {
	case form == Auto && v["type"] == "custom":
		d := wrong("it is of type custom: it takes one text, possibly by a grammar, instead of arguments with a schema; describe it as a function with one text argument")
		if inner, ok := v["custom"].(map[string]any); ok && d.name == "" {
			d.name = nameOf(inner)
		}
		return d
	case form == Auto:
		return wrong("it is not a function: " + kindOf(v) + " is executed by its provider, or has an unknown form")
	case asked != Auto && asked != form:
		if !(asked == LangChain && form != MCP || asked == Gemini && form == OpenAI && v["type"] == nil) {
			return wrong("it is not in the form of " + string(asked) + "; it looks like that of " + string(form))
		}
		if asked == Gemini {
			form = Gemini // a schema without types fits both
		}
	}
	d := &definition{form: form, pointer: pointer}
	switch form {
	case OpenAI:
		readOpenAI(d, v)
	case Anthropic:
		d.take(v, "input_schema", "type")
	case Gemini:
		readGemini(d, v)
	case LangChain:
		readLangChain(d, v)
	case MCP:
		readMCP(d, v)
	}
	return d
}

// problem stands for an unusable schema; objectSchema refuses it.
type problem string

func nameOf(v map[string]any) string {
	name, _ := v["name"].(string)
	if inner, ok := v["function"].(map[string]any); ok && name == "" {
		name, _ = inner["name"].(string)
	}
	if name == "" {
		name, _ = v["title"].(string)
	}
	return name
}

func kindOf(v map[string]any) string {
	if t, ok := v["type"].(string); ok && t != "" {
		return strconv.Quote(toolkeep.Clip(t, 60))
	}
	names := slices.Sorted(maps.Keys(v))
	if len(names) == 0 {
		return "an empty object"
	}
	return strconv.Quote(toolkeep.Clip(names[0], 60))
}

// take reads the members common to all forms; any other member that is not excluded becomes an
// annotation.
func (d *definition) take(v map[string]any, parameters string, without ...string) {
	d.name, _ = v["name"].(string)
	d.description, _ = v["description"].(string)
	d.parameters = v[parameters]
	for name, value := range v {
		if name == "name" || name == "description" || name == parameters || value == nil || slices.Contains(without, name) {
			continue
		}
		if d.annotations == nil {
			d.annotations = map[string]any{}
		}
		d.annotations[name] = value
	}
}

func readOpenAI(d *definition, v map[string]any) {
	inner, ok := v["function"].(map[string]any)
	if !ok {
		d.take(v, "parameters", "type")
		return
	}
	d.take(inner, "parameters")
	for name, value := range v { // a flag may be on either
		if name != "type" && name != "function" && value != nil {
			if d.annotations == nil {
				d.annotations = map[string]any{}
			}
			d.annotations[name] = value
		}
	}
}

func readMCP(d *definition, v map[string]any) {
	d.take(v, "inputSchema", "title", "outputSchema", "execution")
	d.title, _ = v["title"].(string)
	d.result = v["outputSchema"]
	d.hints, _ = v["annotations"].(map[string]any)
	if title, ok := d.hints["title"].(string); ok && d.title == "" {
		d.title = title
	}
}

func readLangChain(d *definition, v map[string]any) {
	switch {
	case v["args_schema"] != nil:
		d.take(v, "args_schema", "args")
		if _, ok := d.parameters.(string); ok {
			d.parameters = problem("its args_schema is the name of a class; write the class's JSON Schema (args_schema.model_json_schema()) instead")
		}
	case v["args"] != nil:
		d.take(v, "args")
		d.parameters = fromArgs(d)
	default: // a JSON Schema whose title is the name
		d.name, _ = v["title"].(string)
		d.description, _ = v["description"].(string)
		d.parameters = v
	}
	d.name = cmp.Or(d.name, nameOf(v))
}

// fromArgs builds a schema from BaseTool.args, which holds only the properties. pydantic writes a
// default for each optional argument.
func fromArgs(d *definition) any {
	properties, ok := d.parameters.(map[string]any)
	if !ok {
		return problem("its args are not an object of properties")
	}
	required := []any{}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p, _ := properties[name].(map[string]any)
		if _, has := p["default"]; !has {
			required = append(required, name)
		}
	}
	d.notes = append(d.notes, "args does not say which arguments are required; those without a default are treated as required")
	return map[string]any{"type": "object", "properties": properties, "required": required}
}
