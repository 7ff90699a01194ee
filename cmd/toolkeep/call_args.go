package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// maxInput limits arguments and manifests read from a file or standard input; the server's own limit is lower
// unless it was raised.
const maxInput = 16 << 20

// readInput reads a file of at most maxInput, or standard input for -.
func (a *app) readInput(name string) ([]byte, error) {
	if name != "-" {
		return readFile(name)
	}
	raw, err := io.ReadAll(io.LimitReader(a.stdin, maxInput+1))
	if err == nil && len(raw) > maxInput {
		err = fmt.Errorf("standard input is over %d MiB", maxInput>>20)
	}
	return raw, err
}

func isObject(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "{") }

// parametersOf parses the arguments; text is a JSON object, where names its source. schema returns that of the tool, nil
// if it is not known; it is asked for where a name or a text may depend on it.
func parametersOf(text, where string, pairs []string, schema func() *callSchema) ([]byte, error) {
	if text != "" {
		obj, err := canon.ParseObject([]byte(text), canon.Limits{Bytes: maxInput})
		var e *toolkeep.Error
		if errors.As(err, &e) {
			return nil, usagef("%s cannot be used: %s %s: %s", where, e.Code, e.Code.Info().Name, e.Message)
		}
		return canon.Append(nil, obj), err
	}
	all := make([]given, len(pairs))
	needed := false
	for i, pair := range pairs {
		g := &all[i]
		var err error
		if g.name, g.value, err = argument(pair); err != nil {
			return nil, err
		}
		g.typed = strings.HasPrefix(pair[len(g.name):], ":=")
		needed = needed || !g.typed || strings.Contains(g.name, ".")
	}
	var of *callSchema
	if needed {
		if of = schema(); of != nil && of.unread != nil {
			return nil, fmt.Errorf("the tool's parameters, by which key=value is understood, cannot be read; send it again, or give the arguments as --json '{…}': %w", of.unread)
		}
	}
	root := &argumentTree{}
	for _, g := range all {
		path, list, err := of.path(g.name)
		if err == nil {
			err = root.put(path, g, list)
		}
		if err != nil {
			return nil, err
		}
	}
	obj, _ := root.value().(map[string]any)
	return canon.Append(nil, obj), nil
}

// given is one argument of the command line.
type given struct {
	name  string
	value any
	typed bool
}

// argumentTree is an argument: the values that were given for it, or those of its members.
type argumentTree struct {
	as      string // the name of the first one that was given for it or a member
	values  []any
	list    bool // one value makes a list
	members map[string]*argumentTree
}

func (t *argumentTree) put(path []string, g given, list bool) error {
	for _, name := range path {
		if t.values != nil {
			return contradicts(t.as, g.name)
		}
		if t.members == nil {
			t.members = map[string]*argumentTree{}
		}
		if t.members[name] == nil {
			t.members[name] = &argumentTree{as: g.name}
		}
		t = t.members[name]
	}
	if t.members != nil {
		return contradicts(t.as, g.name)
	}
	t.values, t.list = append(t.values, g.value), list && !g.typed
	return nil
}

func contradicts(a, b string) error {
	return usagef("%s and %s contradict each other: one is the whole of which the other is a part; give the whole as JSON (NAME:=JSON), or its parts alone", a, b)
}

func (t *argumentTree) value() any {
	if len(t.values) == 1 && !t.list {
		return t.values[0]
	}
	if t.values != nil {
		return t.values
	}
	obj := make(map[string]any, len(t.members))
	for name, m := range t.members {
		obj[name] = m.value()
	}
	return obj
}

// callSchema is the schema of a tool's parameters, as far as the names of arguments need it. nil knows none.
type callSchema struct {
	root   any
	unread error // why the tool cannot be read now, which says nothing of its parameters
}

// maxParts is how many parts of a schema one look at it goes through: references may go round.
const maxParts = 10_000

// untold are the codes of a tool or version that there is not, is not usable, or is named wrongly.
var untold = []toolkeep.Code{toolkeep.ToolNotFound, toolkeep.ToolVersionNotFound, toolkeep.VersionConflict, toolkeep.ToolRemoved, toolkeep.ToolBlocked, toolkeep.InvalidParameters, toolkeep.MalformedRequest}

// schemaOf asks the server for the schema of a tool; nil if there is no such tool for the caller, as the call itself says.
func (a *app) schemaOf(ctx context.Context, id, rng string) *callSchema {
	cl, err := a.connect()
	if err != nil {
		return &callSchema{unread: err}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	t, err := cl.published(ctx, id, rng)
	var refused *refusedError
	switch {
	case errors.As(err, &refused) && slices.Contains(untold, toolkeep.Code(refused.Code)):
		return nil
	case err != nil:
		return &callSchema{unread: err}
	}
	m, err := canon.ParseObject(t.Manifest, canon.Limits{Bytes: maxInput, Depth: 1000, Properties: 1_000_000, Elements: 1_000_000})
	if err != nil {
		return &callSchema{unread: err}
	}
	return &callSchema{root: m["parameters_schema"]}
}

// maxNested is how deep the dots of a name lead.
const maxNested = 16

// path returns the names of the members that the dots of a name lead through, and whether a list is expected there. A
// parameter that has dots in its own name comes first. Without a schema, or where no parameter begins so, a name is one.
func (s *callSchema) path(name string) (path []string, list bool, err error) {
	if s == nil {
		return []string{name}, false, nil
	}
	for at, rest := s.root, name; ; {
		if len(path) == maxNested {
			return nil, false, usagef("the dots of %s lead through more than %d objects; give the whole as JSON (NAME:=JSON)", toolkeep.Clip(name, 60), maxNested)
		}
		own, below := rest, ""
		member, ok := s.member(at, own)
		for !ok && strings.Contains(own, ".") { // the longest that there is
			i := strings.LastIndexByte(own, '.')
			own, below = own[:i], rest[i+1:]
			member, ok = s.member(at, own)
		}
		switch others := s.others(at); {
		case ok:
		case len(path) == 0:
			return []string{name}, false, nil
		case others != nil && !slices.Contains(s.kinds(others), "object"): // of any name, with dots too
			own, below, member = rest, "", others
		default:
			own, below, _ = strings.Cut(rest, ".")
			member = others
		}
		if own == "" || below == "" && own != rest {
			return nil, false, usagef("%q has a dot without a name before or after it; write NAME.MEMBER=value", toolkeep.Clip(name, 60))
		}
		path = append(path, own)
		list = s.isList(member)
		if below == "" {
			return path, list, nil
		}
		if list {
			return nil, false, usagef("%s is a list, whose members have no names; write %s:='[…]'", strings.Join(path, "."), strings.Join(path, "."))
		}
		at, rest = member, below
	}
}

// each calls fn with a schema and those that it refers to or is made of, until fn returns false.
func (s *callSchema) each(at any, fn func(map[string]any) bool) {
	left := maxParts
	var walk func(at any) bool
	walk = func(at any) bool {
		m, ok := at.(map[string]any)
		if left--; !ok || left < 0 {
			return true
		}
		if !fn(m) {
			return false
		}
		if ref, ok := m["$ref"].(string); ok && strings.HasPrefix(ref, "#") && !walk(s.lookup(ref[1:])) {
			return false
		}
		for _, k := range []string{"allOf", "anyOf", "oneOf"} {
			of, _ := m[k].([]any)
			if slices.ContainsFunc(of, func(one any) bool { return !walk(one) }) {
				return false
			}
		}
		return true
	}
	walk(at)
}

func (s *callSchema) lookup(pointer string) any {
	names, _ := canon.Tokens(pointer)
	at := s.root
	for _, name := range names {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	return at
}

// member returns the schema of a property.
func (s *callSchema) member(at any, name string) (member any, ok bool) {
	s.each(at, func(m map[string]any) bool {
		properties, _ := m["properties"].(map[string]any)
		member, ok = properties[name]
		return !ok
	})
	return member, ok
}

// others returns the schema of properties that have no name in the schema, nil if it says nothing of them.
func (s *callSchema) others(at any) (others any) {
	s.each(at, func(m map[string]any) bool {
		if of, ok := m["additionalProperties"].(map[string]any); ok {
			others = of
		}
		return others == nil
	})
	return others
}

// kinds returns the types that a schema names.
func (s *callSchema) kinds(at any) (kinds []string) {
	s.each(at, func(m map[string]any) bool {
		switch of := m["type"].(type) {
		case string:
			kinds = append(kinds, of)
		case []any:
			for _, one := range of {
				if k, ok := one.(string); ok {
					kinds = append(kinds, k)
				}
			}
		}
		return true
	})
	return kinds
}

// isList reports whether a schema takes lists and nothing else, but null. An alternative that names no type takes anything.
func (s *callSchema) isList(at any) bool {
	kinds, list := s.kinds(at), true
	s.each(at, func(m map[string]any) bool {
		for _, k := range []string{"anyOf", "oneOf"} {
			of, _ := m[k].([]any)
			list = list && !slices.ContainsFunc(of, func(one any) bool { return len(s.kinds(one)) == 0 })
		}
		return list
	})
	return list && slices.Contains(kinds, "array") && !slices.ContainsFunc(kinds, func(k string) bool { return k != "array" && k != "null" })
}

// argument parses key=value, key:=JSON or key=@FILE.
func argument(pair string) (string, any, error) {
	name, value, ok := strings.Cut(pair, "=")
	if !utf8.ValidString(pair) {
		return "", nil, usagef("%q is not UTF-8 text", toolkeep.Clip(pair, 60))
	}
	if isObject(pair) {
		return "", nil, usagef("%s is a JSON object: put --json before it", toolkeep.Clip(pair, 60))
	}
	if !ok || name == "" || name == ":" {
		return "", nil, usagef("%q is not an argument: write key=value, key:=JSON, key=@FILE or --json '{…}'", pair)
	}
	if typed, isTyped := strings.CutSuffix(name, ":"); isTyped {
		v, err := canon.Parse([]byte(value), canon.Limits{Bytes: maxInput})
		if err != nil {
			if json.Valid([]byte(value)) { // valid JSON but refused: NUL, a duplicate name, too deep
				return "", nil, usagef("the value of %s cannot be sent: %s", typed, toolkeep.AsError(err).Message)
			}
			return "", nil, usagef("the value of %s is not JSON: %s; for text write %s=%s", typed, toolkeep.Clip(value, 60), typed, toolkeep.Clip(value, 60))
		}
		return typed, v, nil
	}
	if path, isFile := strings.CutPrefix(value, "@"); isFile && path != "" {
		raw, err := readFile(path)
		if err != nil {
			return "", nil, usagef("%s: %v; for text that begins with @ write '%s:=\"@…\"'", name, err, name)
		}
		if !utf8.Valid(raw) {
			return "", nil, usagef("%s: %s is not UTF-8 text; tools accept bytes as base64, if their description says so", name, path)
		}
		return name, string(raw), nil
	}
	return name, value, nil
}
