package catalog

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/itchyny/gojq"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

const maxVersionLength = 128

// CapabilityPrefix precedes the name of a capability where it stands for a tool: in a manifest's fallback, and as the
// tool_id of a call.
const CapabilityPrefix = "capability:"

var (
	schemePattern   = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]{0,31})://`)
	toolPattern     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}\.[A-Za-z_][A-Za-z0-9_-]{0,63}$`)
	fallbackPattern = regexp.MustCompile(`^(capability:.+|[a-z][a-z0-9-]{0,31}\.[A-Za-z_][A-Za-z0-9_-]{0,63}(@.+)?)$`)
)

// checkMeaning checks what the manifest's JSON Schema cannot express. It works on the raw tree and skips values of
// the wrong type, which the schema has already reported, so that one run finds all faults.
func checkMeaning(root map[string]any) []toolkeep.Fault {
	if root == nil {
		return nil
	}
	c := &check{}
	c.version(root)
	usable := c.schemaAt(root, "parameters_schema")
	c.describesObject(root["parameters_schema"])
	c.schemaAt(root, "result_schema")
	c.pointers("/redact", root["redact"])
	if result, ok := root["result"].(map[string]any); ok {
		c.pointers("/result/sensitive_fields", result["sensitive_fields"])
		c.transform(text(result, "transform"))
	}
	c.secrets(root)
	c.cache(root)
	c.references(root)
	c.relationships(root)
	if usable {
		c.examples(root)
	}
	return c.faults
}

type check struct{ faults []toolkeep.Fault }

func (c *check) fault(pointer, rule, format string, args ...any) {
	c.faults = append(c.faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: fmt.Sprintf(format, args...)})
}

func (c *check) version(root map[string]any) {
	v, ok := root["version"].(string)
	if !ok {
		return
	}
	if len(v) > maxVersionLength {
		c.fault("/version", "semver", "the version has %d characters; at most %d are allowed", len(v), maxVersionLength)
		return
	}
	if _, err := semver.StrictNewVersion(v); err != nil {
		c.fault("/version", "semver", "%q is not a full SemVer 2.0.0 version such as 1.2.3 or 2.0.0-beta.1", v)
	}
}

// schemaAt checks the schema under key and reports whether there is one that can be used.
func (c *check) schemaAt(root map[string]any, key string) bool {
	v, ok := root[key]
	if !ok || !isSchema(v) {
		return false
	}
	if err := schema.Check(canon.Append(nil, v)); err != nil {
		e := toolkeep.AsError(err)
		faults, _ := e.Details["errors"].([]toolkeep.Fault)
		for _, f := range faults {
			c.fault("/"+key+f.Pointer, f.Rule, "the schema cannot be used: %s", f.Message)
		}
		if len(faults) == 0 {
			c.fault("/"+key, "schema", "the schema cannot be used: %s", e.Message)
		}
		return false
	}
	return true
}

func isSchema(v any) bool {
	switch v.(type) {
	case map[string]any, bool:
		return true
	}
	return false
}

// describesObject: arguments are always an object, so a schema that allows none would make a tool that cannot be
// called.
func (c *check) describesObject(v any) {
	if v == false {
		c.fault("/parameters_schema", "type", "the schema false admits no arguments; use {\"type\": \"object\"} or true")
		return
	}
	node, ok := v.(map[string]any)
	for hops := 0; ok && hops < 16; hops++ {
		if !admitsObject(node["type"]) {
			c.fault("/parameters_schema", "type", "the schema must describe an object: its type is %s; use \"type\": \"object\"", canon.Append(nil, node["type"]))
			return
		}
		ref, isRef := node["$ref"].(string)
		if !isRef || !strings.HasPrefix(ref, "#") {
			return
		}
		target, _ := atFragment(v, ref[1:])
		node, ok = target.(map[string]any)
	}
}

func admitsObject(t any) bool {
	switch t := t.(type) {
	case string:
		return t == "object"
	case []any:
		return slices.Contains(t, any("object"))
	}
	return true
}

func (c *check) pointers(at string, v any) {
	list, _ := v.([]any)
	for i, e := range list {
		s, ok := e.(string)
		if _, valid := canon.Tokens(s); ok && !valid {
			c.fault(at+"/"+strconv.Itoa(i), "json-pointer", "%q is not a JSON Pointer: it is empty or begins with /, and ~ stands only in ~0 and ~1", toolkeep.ClipBytes(s, 200))
		}
	}
}

func (c *check) transform(program string) {
	if program == "" {
		return
	}
	query, err := gojq.Parse(program)
	if err == nil {
		_, err = gojq.Compile(query)
	}
	if err != nil {
		c.fault("/result/transform", "jq", "the jq program cannot be used: %s", toolkeep.ClipBytes(err.Error(), 200))
	}
}

func (c *check) secrets(root map[string]any) {
	list, _ := root["auth"].([]any)
	c.authList("/auth", list, 0)
	permissions, _ := root["permissions"].(map[string]any)
	credentials, _ := permissions["credentials"].([]any)
	for i, e := range credentials {
		// A credential is a name or a reference; only a reference has a scheme.
		if s, ok := e.(string); ok && strings.Contains(s, "://") {
			c.reference("/permissions/credentials/"+strconv.Itoa(i), s)
		}
	}
}

// authList also follows settings.also, whose auth entries apply together with the first.
func (c *check) authList(at string, list []any, depth int) {
	if depth > 4 {
		c.fault(at, "depth", "auth settings nest more than 4 levels")
		return
	}
	for i, e := range list {
		spec, _ := e.(map[string]any)
		here := at + "/" + strconv.Itoa(i)
		if s, ok := spec["secret"].(string); ok {
			c.reference(here+"/secret", s)
		}
		settings, _ := spec["settings"].(map[string]any)
		if also, ok := settings["also"].([]any); ok {
			c.authList(here+"/settings/also", also, depth+1)
		}
	}
}

// reference never repeats its input, which may be the secret itself.
func (c *check) reference(at, s string) {
	found := schemePattern.FindStringSubmatch(s)
	if found == nil {
		c.fault(at, "secret-reference", "this is not a secret reference; write secret://, vault://, env:// or file:// and a name, never the secret itself")
		return
	}
	switch found[1] {
	case "secret", "vault", "env", "file", "context":
		if len(s) == len(found[0]) {
			c.fault(at, "secret-reference", "the reference names nothing after %s", found[0])
		}
	default:
		c.fault(at, "secret-reference", "the scheme %q is unknown; secret, vault, env, file and context are known", found[1])
	}
}

func (c *check) cache(root map[string]any) {
	cache, _ := root["cache"].(map[string]any)
	if text(cache, "policy") != "forever" {
		return
	}
	switch root["side_effects"] {
	case nil, "writes":
		c.fault("/cache/policy", "cache", "a tool that writes cannot be cached forever; declare side_effects none or reads (absent means writes) or choose another policy")
	}
}

func (c *check) references(root map[string]any) {
	if r := text(root, "compatibility_range"); r != "" {
		if !isRange(r) {
			c.fault("/compatibility_range", "range", "%q is not a version range such as ^1.2 or >=1 <3", toolkeep.ClipBytes(r, 200))
		}
	}
	f := text(root, "fallback")
	if f == "" {
		return
	}
	if !fallbackPattern.MatchString(f) {
		c.fault("/fallback", "reference", "%q is neither namespace.name, optionally with @range, nor capability:NAME", toolkeep.ClipBytes(f, 200))
	} else if id, _, _ := strings.Cut(f, "@"); id == text(root, "tool_id") {
		c.fault("/fallback", "reference", "a tool cannot be its own fallback")
	}
}

// maxRelated is the maximum number of tools in a list of relationships.
const maxRelated = 100

// relationships checks the form of related tool names, not that the tools exist: related tools are published one
// after the other, and this publisher may not see them all.
func (c *check) relationships(root map[string]any) {
	all, _ := root["relationships"].(map[string]any)
	own := text(root, "tool_id")
	for _, kind := range []string{"dependencies", "pairings", "alternatives"} {
		list, _ := all[kind].([]any)
		at := "/relationships/" + kind
		if len(list) > maxRelated {
			c.fault(at, "maxItems", "%d tools are named; at most %d are allowed", len(list), maxRelated)
			continue
		}
		seen := map[string]bool{}
		for i, e := range list {
			here := at + "/" + strconv.Itoa(i)
			ref, ok := e.(string)
			one := ref
			if pair, isPair := e.(map[string]any); isPair {
				ref, ok = pair["tool_id"].(string)
				one = ref + " " + text(pair, "sequence")
				here += "/tool_id"
			}
			if !ok {
				continue // the schema has reported it
			}
			id, rng, ranged := strings.Cut(ref, "@")
			switch {
			case !toolPattern.MatchString(id):
				c.fault(here, "reference", "%q is not a tool; write namespace.name, optionally with @range", toolkeep.ClipBytes(ref, 200))
			case id == own:
				c.fault(here, "reference", "a tool cannot be related to itself")
			case ranged && !isRange(rng):
				c.fault(here, "range", "%q is not a version range such as ^1.2 or >=1 <3", toolkeep.ClipBytes(rng, 200))
			case seen[one]:
				c.fault(here, "uniqueItems", "%q is named twice", toolkeep.ClipBytes(ref, 200))
			}
			seen[one] = true
		}
	}
}

func isRange(s string) bool {
	_, err := semver.NewConstraint(s)
	return err == nil
}

// examples must pass as calls do: after coercion and defaults. schemaAt has accepted the parameters' schema.
func (c *check) examples(root map[string]any) {
	list, _ := root["examples"].([]any)
	if len(list) == 0 {
		return
	}
	parameters, err := schema.Compile(canon.Append(nil, root["parameters_schema"]))
	if err != nil {
		return // impossible: schemaAt accepted it
	}
	for i, e := range list {
		example, _ := e.(map[string]any)
		input, ok := example["input"]
		if !ok {
			continue
		}
		at := "/examples/" + strconv.Itoa(i) + "/input"
		args, ok := input.(map[string]any)
		if !ok {
			c.fault(at, "example", "the input of example %q is not an object", toolkeep.ClipBytes(text(example, "scenario"), 200))
			continue
		}
		_, faults := parameters.Prepare(context.Background(), args)
		for _, f := range faults {
			c.fault(at+f.Pointer, f.Rule, "the input of example %q does not fit parameters_schema: %s", toolkeep.ClipBytes(text(example, "scenario"), 200), f.Message)
		}
	}
}
