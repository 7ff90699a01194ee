package catalog

import (
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// maxAlike is how many ids of a tenant, and of all tenants, that begin like a cut name are compared with it.
const maxAlike = 1000

// exported finds the tool that a name stands for which exports and the MCP face give: mcp.ToolName of its id, or, where a longer id has
// that, mcp.NameWithHash. Both forms with a hash have mcp.MaxToolName bytes, so that shorter names are namespace__name alone. Of several tools the
// first counts of which visible admits a version: the one with a cut name, as in an export. An id has a dot and a name none, so no id
// is looked for here. nil for none.
func (s *Snapshot) exported(tenant, name string, visible func(*toolkeep.Tool) bool) *entry {
	if len(name) > mcp.MaxToolName || strings.Contains(name, ".") || !strings.Contains(name, "__") {
		return nil
	}
	plain := s.owned(tenant, strings.Replace(name, "__", ".", 1))
	if len(name) < mcp.MaxToolName {
		return plain
	}
	long := s.hashed(tenant, name, func(id string) bool { return mcp.ToolName(id) == name })
	rival := s.hashed(tenant, name, func(id string) bool {
		own := mcp.ToolName(id)
		return own != name && s.hashed(tenant, own, func(other string) bool { return other != id && mcp.ToolName(other) == own }) != nil
	})
	var first *entry
	for _, e := range [...]*entry{long, plain, rival} {
		if e != nil && len(e.visible(visible)) > 0 {
			return e
		}
		if first == nil {
			first = e
		}
	}
	return first
}

// hashed finds the tool with a name of mcp.NameWithHash that is accepts. Ids are in order, so those that begin alike are adjacent.
func (s *Snapshot) hashed(tenant, name string, is func(id string) bool) *entry {
	rest, ok := mcp.WithoutHash(name)
	if !ok {
		return nil
	}
	begin := strings.Replace(rest, "__", ".", 1)
	i, _ := slices.BinarySearchFunc(s.order, &toolKey{id: begin}, compareKeys)
	alike := 0
	for ; i < len(s.order) && alike < maxAlike && strings.HasPrefix(s.order[i].id, begin); i++ {
		k := s.order[i]
		if k.tenant != "" && k.tenant != tenant { // costs no hash
			continue
		}
		if alike++; mcp.NameWithHash(k.id) == name && is(k.id) {
			return s.owned(tenant, k.id)
		}
	}
	return nil
}

// ID returns the id of the tool that an exported name stands for, if visible admits it; else the text as it is, an
// id too. It is for what keeps ids and does not look the tool up, such as filters.
func ID(c Describer, p *toolkeep.Principal, name string, visible func(*toolkeep.Tool) bool) string {
	if name == "" || strings.Contains(name, ".") {
		return name
	}
	if v, _, err := c.Find(p, name, "", visible); err == nil {
		return v.Tool.ID
	}
	return name
}
