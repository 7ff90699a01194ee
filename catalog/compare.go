package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Values of Comparison.Bump.
const (
	BumpMajor = "major"
	BumpMinor = "minor"
	BumpPatch = "patch"
	BumpNone  = "none"
)

// Values of Difference.Kind.
const (
	KindBreaking = "breaking"
	KindAdditive = "additive"
	KindPatch    = "patch"
)

// Difference is one difference between two versions of a tool.
type Difference struct {
	Pointer string `json:"pointer"` // JSON Pointer into the manifest, the new one if it is in both
	Kind    string `json:"kind"`    // breaking, additive or patch
	Message string `json:"message"` // one sentence
}

// Comparison is the difference between two versions.
type Comparison struct {
	Bump        string       `json:"bump"` // what SemVer requires: major, minor, patch, none
	Differences []Difference `json:"differences"`
}

// Breaking returns only the breaking differences.
func (c *Comparison) Breaking() []Difference {
	var out []Difference
	for _, d := range c.Differences {
		if d.Kind == KindBreaking {
			out = append(out, d)
		}
	}
	return out
}

// Compare returns how the new tool differs from the old one for a caller.
//
// Breaking is what can make a working call fail, or remove something that a result promised: a parameter removed,
// newly required or narrowed; a result property removed, no longer promised, of another type or format, or with a
// value that its enum or const excluded; newly writing,
// newly needing approval, a role, a permission or credentials. Additive is what offers more: parameters, results,
// wider limits. Everything else is a patch; the version number itself is no difference. A required parameter with a
// default counts as optional, because callers may omit it. Undecidable differences (conditions, negations, schemas
// too large to follow) count as breaking.
func Compare(old, new *toolkeep.Tool) Comparison {
	if old.Digest != "" && old.Digest == new.Digest {
		return Comparison{Bump: BumpNone}
	}
	c := &comparer{}
	a, b := manifestTree(old), manifestTree(new)
	c.schemas(a, b)
	c.effects(old.Manifest, new.Manifest)
	c.access(old.Manifest, new.Manifest)
	c.rest(a, b)
	return c.done()
}

// handled lists the manifest properties with rules of their own; those of the last line never count as a
// difference.
var handled = []string{
	"parameters_schema", "result_schema", "side_effects", "idempotent", "risk", "requires_approval",
	"required_roles", "permission_levels", "auth", "permissions",
	"version", "schema_version", "tool_id",
}

type comparer struct{ found []Difference }

func (c *comparer) add(pointer, kind, format string, args ...any) {
	c.found = append(c.found, Difference{pointer, kind, fmt.Sprintf(format, args...)})
}

func (c *comparer) done() Comparison {
	order := map[string]int{KindBreaking: 0, KindAdditive: 1, KindPatch: 2}
	slices.SortStableFunc(c.found, func(a, b Difference) int {
		if d := order[a.Kind] - order[b.Kind]; d != 0 {
			return d
		}
		return strings.Compare(a.Pointer, b.Pointer)
	})
	c.found = slices.Compact(c.found)
	out := Comparison{Bump: BumpNone, Differences: c.found}
	if len(c.found) > 0 {
		out.Bump = map[string]string{KindBreaking: BumpMajor, KindAdditive: BumpMinor, KindPatch: BumpPatch}[c.found[0].Kind]
	}
	return out
}

// manifestTree returns the manifest as sent; for a Tool without Raw, its typed form.
func manifestTree(t *toolkeep.Tool) map[string]any {
	raw := t.Raw
	if len(raw) == 0 {
		var err error
		if raw, err = json.Marshal(t.Manifest); err != nil {
			return nil
		}
	}
	tree, err := parseTree(raw)
	if err != nil {
		return nil
	}
	root, _ := tree.(map[string]any)
	return root
}

func (c *comparer) schemas(a, b map[string]any) {
	newSchemaComparer(c, a["parameters_schema"], b["parameters_schema"], input).compare("/parameters_schema")
	before, had := a["result_schema"]
	after, has := b["result_schema"]
	switch {
	case had && !has:
		c.add("/result_schema", KindBreaking, "the result is no longer described")
	case !had && has:
		c.add("/result_schema", KindAdditive, "the result is now described")
	case had && has:
		newSchemaComparer(c, before, after, output).compare("/result_schema")
	}
}

func (c *comparer) effects(a, b *toolkeep.Manifest) {
	if x, y := cmp.Or(a.SideEffects, "writes"), cmp.Or(b.SideEffects, "writes"); x != y {
		if y == "writes" {
			c.add("/side_effects", KindBreaking, "the tool now writes; it declared %s before", x)
		} else {
			c.add("/side_effects", KindAdditive, "side effects went from %s to %s", x, y)
		}
	}
	if a.Idempotent != b.Idempotent {
		if b.Idempotent {
			c.add("/idempotent", KindAdditive, "the tool is now idempotent")
		} else {
			c.add("/idempotent", KindAdditive, "the tool is no longer idempotent, so failed calls are tried again less often")
		}
	}
	if x, y := cmp.Or(a.Risk, "low"), cmp.Or(b.Risk, "low"); x != y {
		c.add("/risk", KindAdditive, "risk went from %s to %s", x, y)
	}
}

func (c *comparer) access(a, b *toolkeep.Manifest) {
	if !a.RequiresApproval && b.RequiresApproval {
		c.add("/requires_approval", KindBreaking, "calls now wait for a person's approval")
	} else if a.RequiresApproval && !b.RequiresApproval {
		c.add("/requires_approval", KindAdditive, "calls no longer wait for a person's approval")
	}
	c.roles(a.RequiredRoles, b.RequiredRoles)
	for _, level := range missing(b.PermissionLevels, a.PermissionLevels) {
		if level == "public" {
			continue // asks for nothing
		}
		c.add("/permission_levels", KindBreaking, "callers now also need %q", level)
	}
	for _, level := range missing(a.PermissionLevels, b.PermissionLevels) {
		c.add("/permission_levels", KindAdditive, "callers no longer need %q", level)
	}
	if !needsAuth(a.Auth) && needsAuth(b.Auth) {
		c.add("/auth", KindBreaking, "the tool now needs credentials")
	} else if !sameJSON(a.Auth, b.Auth) {
		c.add("/auth", KindPatch, "how the tool authenticates upstream changed")
	}
	if !sameJSON(a.Permissions, b.Permissions) {
		c.add("/permissions", KindAdditive, "what the tool may reach changed")
	}
}

// roles: any of them admits a caller, and no list admits everyone.
func (c *comparer) roles(a, b []string) {
	switch {
	case len(b) == 0 && len(a) > 0:
		c.add("/required_roles", KindAdditive, "callers no longer need a role")
	case len(a) == 0 && len(b) > 0:
		c.add("/required_roles", KindBreaking, "callers now need one of the roles %s", strings.Join(b, ", "))
	default:
		for _, role := range missing(a, b) {
			c.add("/required_roles", KindBreaking, "the role %q no longer suffices", role)
		}
		for _, role := range missing(b, a) {
			c.add("/required_roles", KindAdditive, "the role %q now suffices", role)
		}
	}
}

// missing returns the elements of a that are not in b.
func missing(a, b []string) []string {
	var out []string
	for _, s := range a {
		if !slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}

func needsAuth(auth []toolkeep.AuthSpec) bool {
	for _, a := range auth {
		if a.Type == "none" {
			return false
		}
	}
	return len(auth) > 0
}

func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// rest reports every other property that changed.
func (c *comparer) rest(a, b map[string]any) {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if slices.Contains(handled, name) {
			continue
		}
		before, had := a[name]
		after, has := b[name]
		pointer := canon.Pointer(name)
		switch {
		case had && !has:
			c.add(pointer, KindPatch, "%s was taken out", name)
		case !had && has:
			c.add(pointer, KindPatch, "%s was added", name)
		case !bytes.Equal(canon.Append(nil, before), canon.Append(nil, after)):
			c.add(pointer, KindPatch, "%s changed", name)
		}
	}
}
