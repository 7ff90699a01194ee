package catalog

import (
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// maxAlike is how many ids that begin like a cut name are compared with it.
const maxAlike = 1000

// exported finds the tool that a name stands for which exports and the MCP face give (mcp.ToolName): namespace__name,
// or a cut one with a hash, which comes first as in an export. An id has a dot and a name none, so no id is looked for here. nil for none.
func (s *Snapshot) exported(tenant, name string) *entry {
	if len(name) > mcp.MaxToolName || strings.Contains(name, ".") || !strings.Contains(name, "__") {
		return nil
	}
	if e := s.hashed(tenant, name); e != nil {
		return e
	}
	return s.owned(tenant, strings.Replace(name, "__", ".", 1))
}

// hashed finds the tool with a name of mcp.NameWithHash. Ids are in order, so those that begin alike are adjacent.
func (s *Snapshot) hashed(tenant, name string) *entry {
	rest, ok := mcp.WithoutHash(name)
	if !ok {
		return nil
	}
	begin := strings.Replace(rest, "__", ".", 1)
	i, _ := slices.BinarySearchFunc(s.order, &toolKey{id: begin}, compareKeys)
	for _, k := range s.order[i:min(i+maxAlike, len(s.order))] {
		if !strings.HasPrefix(k.id, begin) {
			return nil
		}
		if (k.tenant == "" || k.tenant == tenant) && mcp.NameWithHash(k.id) == name {
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
