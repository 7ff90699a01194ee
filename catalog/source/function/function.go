package function

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
)

// Form is the notation of the functions.
type Form string

// The forms. Auto detects the form of each function.
const (
	Auto      Form = ""
	OpenAI    Form = "openai"
	Anthropic Form = "anthropic"
	Gemini    Form = "gemini"
	LangChain Form = "langchain"
	MCP       Form = "mcp"
)

// Forms returns the forms that can be named.
func Forms() []Form { return []Form{OpenAI, Anthropic, Gemini, LangChain, MCP} }

// Limits of a file.
const (
	MaxBytes     = 16 << 20
	maxFunctions = 20_000
)

var fileLimits = canon.Limits{Bytes: MaxBytes, Depth: 200, Properties: 1_000_000, Elements: 1_000_000}

// Options say what to read and what executes the functions. Each function needs URL or an entry in
// Builtins.
type Options struct {
	Name      string // of the file, for display and the manifest's source
	Data      []byte
	Form      Form   // Auto detects the form of each function
	Namespace string // of the tools; derived from the file's name if empty

	// URL is the address of the functions. {name} in its path stands for the function's name;
	// without it the name is appended to the path.
	URL    string
	Method string             // POST (default), PUT or PATCH
	Auth   *toolkeep.AuthSpec // how to authenticate to the endpoint; nil: not at all
	// SideEffects of the functions behind URL: none, reads or writes (default).
	SideEffects string

	// Builtins maps function names to functions of the server; they take precedence over URL.
	Builtins map[string]Builtin

	Previous source.Previous
}

// Builtin is the tool that executes a function.
type Builtin struct {
	Kind        string          // execution.kind
	Binding     json.RawMessage // execution.binding
	SideEffects string
	Idempotent  bool
	Result      json.RawMessage // its result schema
}

// Read plans a tool for every function of the file. It changes nothing.
//
// Errors: E3011 if the file holds no functions, or URL cannot be used.
func Read(o Options) (*source.Plan, error) {
	r := &reader{o: o, ids: map[string]string{}, plan: &source.Plan{Title: filepath.Base(o.Name), Digest: canon.Digest(o.Data)}}
	if o.Namespace == "" {
		base := filepath.Base(o.Name)
		r.o.Namespace = namespace(strings.TrimSuffix(base, filepath.Ext(base)))
	} else if err := source.CheckNamespace(o.Namespace); err != nil {
		return nil, err
	}
	if err := r.checkTarget(); err != nil {
		return nil, err
	}
	tree, err := canon.Parse(o.Data, fileLimits)
	if err != nil {
		return nil, refuse("%s is not JSON that can be read: %s", o.Name, toolkeep.AsError(err).Message).Because(err)
	}
	r.collect("", tree, 0)
	if r.plan.Items == 0 {
		return nil, refuse("%s holds no functions; it should be a list of them in the form of OpenAI, Anthropic, Gemini, LangChain or MCP", o.Name)
	}
	for name := range o.Builtins {
		if !r.met[name] {
			return nil, refuse("%s holds no function %q, which should be built in", o.Name, name)
		}
	}
	return r.plan, nil
}

func refuse(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ImportFailed, format, args...)
}

var (
	namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
)

type reader struct {
	o      Options
	plan   *source.Plan
	ids    map[string]string // tool id -> the function's name
	met    map[string]bool   // names of functions that were planned or refused
	target *url.URL
	path   string // of target, as written
}

// checkTarget checks URL and the related options.
func (r *reader) checkTarget() error {
	r.met = map[string]bool{}
	switch r.o.SideEffects {
	case "":
		r.o.SideEffects = "writes"
	case "none", "reads", "writes":
	default:
		return refuse("the side effects are none, reads or writes, not %q", r.o.SideEffects)
	}
	switch r.o.Method = cmp.Or(strings.ToUpper(r.o.Method), "POST"); r.o.Method {
	case "POST", "PUT", "PATCH":
	default:
		return refuse("the arguments are the body of a POST, PUT or PATCH; %s has none", r.o.Method)
	}
	if r.o.URL == "" {
		if len(r.o.Builtins) == 0 {
			return refuse("say what executes the functions: a URL that accepts the arguments, or built-in functions")
		}
		return nil
	}
	_, rest, _ := strings.Cut(r.o.URL, "://")
	host, path, _ := strings.Cut(rest, "/")
	u, err := url.Parse(r.o.URL)
	switch {
	case strings.ContainsAny(host, "{}"):
		return refuse("{name} may stand in the path of the URL alone")
	case err != nil:
		return refuse("the URL cannot be read")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return refuse("the URL must be an absolute http or https URL")
	case u.User != nil:
		return refuse("the URL must not hold a user or password; name a secret instead")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return refuse("the URL must have neither query nor fragment")
	case strings.ContainsAny(strings.ReplaceAll(path, "{name}", ""), "{}"):
		return refuse("the URL's path may hold {name} and no other braces")
	}
	r.target, r.path = u, "/"+path
	return nil
}

// definition is one function, independent of its form.
type definition struct {
	form        Form
	pointer     string // in the file
	name        string
	title       string
	description string
	parameters  any // a JSON Schema; nil: none
	result      any // likewise
	annotations map[string]any
	hints       map[string]any // MCP's annotations
	notes       []string       // worth a warning
}

// add plans one function.
func (r *reader) add(d *definition) {
	r.plan.Items++
	origin := cmp.Or(d.name, "the function at "+cmp.Or(d.pointer, "the root"))
	no := func(format string, args ...any) {
		e := refuse(format, args...)
		r.plan.Refused = append(r.plan.Refused, source.Refused{Origin: toolkeep.Clip(origin, 200), Reason: toolkeep.Clip(e.Message, 600)})
	}
	parameters, problem := objectSchema(d.parameters)
	switch {
	case problem != "":
		r.met[d.name] = true
		no("%s", problem)
		return
	case d.name == "":
		no("it has no name")
		return
	case r.met[d.name]:
		no("the file has another function of this name")
		return
	}
	r.met[d.name] = true
	id := r.id(d.name)
	if id == "" {
		no("its name has no letter or digit, so no tool id can be made from it")
		return
	}
	if other, taken := r.ids[id]; taken {
		id = r.hashed(id, d.name)
		if _, taken := r.ids[id]; taken {
			no("its name and that of %q make the same tool id", other)
			return
		}
	}
	m, problem := r.manifest(d, id, parameters)
	if problem != "" {
		no("%s", problem)
		return
	}
	about := toolkeep.SourceSpec{Type: "function", URI: filepath.Base(r.o.Name), Digest: canon.Digest(canon.Append(nil, m)),
		Metadata: map[string]any{"form": string(d.form), "function": d.name}}
	if d.form == LangChain {
		about.Type = "langchain"
	}
	tool, err := source.Settle(m, about, r.o.Previous)
	if err != nil && m["result_schema"] != nil && onlyResult(err) {
		r.warn("%s: its result has no schema: %s", d.name, toolkeep.Clip(catalog.FaultText(err), 300))
		delete(m, "result_schema")
		tool, err = source.Settle(m, about, r.o.Previous)
	}
	if err != nil {
		no("its manifest is refused: %s", catalog.FaultText(err))
		return
	}
	for _, n := range d.notes {
		r.warn("%s: %s", d.name, n)
	}
	tool.Origin = toolkeep.Clip(d.name, 200)
	r.ids[id] = d.name
	r.plan.Tools = append(r.plan.Tools, tool)
}

func (r *reader) warn(format string, args ...any) {
	if len(r.plan.Warnings) < 1000 {
		r.plan.Warnings = append(r.plan.Warnings, refuse(format, args...).Message)
	}
}

// onlyResult reports whether the tool would be valid without its result schema.
func onlyResult(err error) bool {
	faults := catalog.Faults(err)
	for _, f := range faults {
		if f.Pointer != "/result_schema" && !strings.HasPrefix(f.Pointer, "/result_schema/") {
			return false
		}
	}
	return len(faults) > 0
}

// objectSchema returns the schema of a function's arguments, which must be an object. A function
// without a schema has no arguments.
func objectSchema(v any) (any, string) {
	switch s := v.(type) {
	case nil:
		return map[string]any{"type": "object", "properties": map[string]any{}}, ""
	case bool:
		if s {
			return map[string]any{"type": "object"}, ""
		}
		return nil, "its schema is false, which allows no call"
	case problem:
		return nil, string(s)
	case map[string]any:
		switch t := s["type"].(type) {
		case nil:
			return s, ""
		case string:
			if t != "object" {
				return nil, "its parameters are of type " + toolkeep.Clip(strconv.Quote(t), 60) + "; the arguments of a function are an object"
			}
			return s, ""
		case []any:
			if slices.Contains(t, any("object")) {
				return s, ""
			}
		}
		return nil, "its parameters are of another type than object"
	}
	return nil, "its parameters are no JSON Schema"
}

// manifest builds the tool without version and source.
func (r *reader) manifest(d *definition, id string, parameters any) (map[string]any, string) {
	m := map[string]any{
		"schema_version": 1, "tool_id": id, "category": "function",
		"description":       toolkeep.Clip(cmp.Or(strings.TrimSpace(d.description), d.title, "The function "+d.name+"."), 8000),
		"parameters_schema": parameters,
		"result":            map[string]any{"strict": false},
		"side_effects":      r.o.SideEffects, "idempotent": r.o.SideEffects != "writes",
	}
	if short := shorten(cmp.Or(d.description, d.title)); short != "" {
		m["short_description"] = short
	}
	if d.title != "" {
		m["tool_name"] = toolkeep.Clip(d.title, 200)
	}
	if d.result != nil {
		m["result_schema"] = d.result
	}
	if len(d.annotations) > 0 {
		m["annotations"] = map[string]any{string(d.form): d.annotations}
	}
	if b, ok := r.o.Builtins[d.name]; ok {
		return m, builtin(m, b)
	}
	if r.target == nil {
		return nil, "nothing says what executes it; give a URL or a built-in function"
	}
	hinted(m, d.hints)
	r.http(m, d.name)
	return m, ""
}

// hinted applies an MCP definition's hints about the function's effects.
func hinted(m, hints map[string]any) {
	if hints["readOnlyHint"] == true {
		m["side_effects"], m["idempotent"] = "reads", true
		return
	}
	if hints["idempotentHint"] == true {
		m["idempotent"] = true
	}
	if hints["destructiveHint"] == true {
		m["risk"] = "medium"
	}
}

func builtin(m map[string]any, b Builtin) string {
	binding, err := canon.Parse(b.Binding, canon.Limits{})
	if err != nil {
		return "the built-in tool that should execute it has no readable binding"
	}
	m["execution"] = map[string]any{"kind": b.Kind, "binding": binding}
	m["side_effects"], m["idempotent"] = b.SideEffects, b.Idempotent
	if m["result_schema"] == nil && len(b.Result) > 0 {
		if result, err := canon.Parse(b.Result, canon.Limits{Properties: 20_000}); err == nil {
			m["result_schema"] = result
		}
	}
	return ""
}

// http binds the function to its endpoint. The importer chose the address, so it may be a private
// one.
func (r *reader) http(m map[string]any, name string) {
	path := r.path
	if strings.Contains(path, "{name}") {
		path = strings.ReplaceAll(path, "{name}", url.PathEscape(name))
	} else {
		path = strings.TrimRight(path, "/") + "/" + url.PathEscape(name)
	}
	m["execution"] = map[string]any{"kind": "http", "binding": map[string]any{
		"method": r.o.Method, "server": r.target.Scheme + "://" + r.target.Host, "path": path,
		"body": map[string]any{"all": true, "content_type": "application/json"},
	}}
	port := 443
	if r.target.Scheme == "http" {
		port = 80
	}
	if p, err := strconv.Atoi(r.target.Port()); err == nil {
		port = p
	}
	m["permissions"] = map[string]any{"network": []any{map[string]any{"host": r.target.Hostname(), "port": port}}}
	if r.o.Auth != nil {
		m["auth"] = source.Auth(r.o.Auth)
	}
}

// id returns the tool's id, "" if the name has no usable characters.
func (r *reader) id(name string) string {
	own := name
	if !namePattern.MatchString(own) {
		if own = catalog.Identifier(name); own == "" {
			return ""
		}
	}
	id := r.o.Namespace + "." + own
	if len(own) > 64 {
		return r.hashed(id, name)
	}
	return id
}

// hashed returns an id that is unique to the name.
func (r *reader) hashed(id, name string) string {
	sum := sha256.Sum256([]byte(name))
	_, own, _ := strings.Cut(id, ".")
	return r.o.Namespace + "." + own[:min(len(own), 64-9)] + "_" + hex.EncodeToString(sum[:4])
}

// namespace derives a namespace from a file's name.
func namespace(s string) string {
	s = strings.Trim(strings.ToLower(strings.ReplaceAll(catalog.Identifier(s), "_", "-")), "-")
	s = strings.TrimLeft(s, "0123456789-")
	if s == "" {
		return "functions"
	}
	return strings.TrimRight(s[:min(len(s), 32)], "-")
}

// shorten returns the first sentence, at most 100 characters.
func shorten(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.TrimSpace(s)
	if i := strings.Index(s, ". "); i > 0 {
		s = s[:i+1]
	}
	return toolkeep.Clip(s, 100)
}
