package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
)

const maxName = 64 // of the second half of a tool id

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// nameAll gives every named definition the second half of its id. A valid name stays, unless the id
// was published for another name; the others get a hash of the full name, as long as needed to be
// unique.
func (r *reader) nameAll(all []*definition) {
	taken := map[string]bool{}
	take := func(d *definition, name string) bool {
		if taken[name] || r.meansAnother(name, d.tool) {
			return false
		}
		taken[name] = true
		d.name = name
		return true
	}
	var mapped []*definition
	for _, d := range all {
		if d.tool != "" && (!namePattern.MatchString(d.tool) || !take(d, d.tool)) {
			mapped = append(mapped, d)
		}
	}
	for _, d := range mapped {
		for n := 6; d.name == "" && n <= 48; n += 6 {
			take(d, withHash(d.tool, n))
		}
		if d.name == "" {
			d.refuse("no id is free for its name")
		}
	}
}

// meansAnother reports whether the id was published for another name.
func (r *reader) meansAnother(name, tool string) bool {
	old := r.previous(r.o.Namespace + "." + name)
	if old == nil {
		return false
	}
	was := toolOf(old)
	return was != "" && was != tool
}

// toolOf returns the server's own name of a published tool, "" if it is not an MCP server's.
func toolOf(t *toolkeep.Tool) string {
	if t.Manifest == nil || t.Manifest.Execution.Kind != Kind {
		return ""
	}
	var b struct {
		Tool string `json:"tool"`
	}
	if json.Unmarshal(t.Manifest.Execution.Binding, &b) != nil {
		return ""
	}
	return b.Tool
}

// withHash returns the valid part of a name, and n digits of the name's SHA-256.
func withHash(tool string, n int) string {
	sum := sha256.Sum256([]byte(tool))
	suffix := hex.EncodeToString(sum[:])[:n]
	name := catalog.Identifier(tool)
	name = strings.TrimRight(name[:min(len(name), maxName-1-n)], "_-")
	if name == "" {
		name = "tool"
	}
	return name + "_" + suffix
}
