package catalog

import (
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// maxOffering is how many tools E3103 lists.
const maxOffering = 20

// offering returns the id of the one tool that exists for the principal and declares the capability in the version that
// lists show. E3002 for none, E3103 for several; details.tools then lists the first 20, details.total counts them.
func (c *Catalog) offering(p *toolkeep.Principal, name string, visible func(*toolkeep.Tool) bool) (string, error) {
	ids, total := c.offerings(p, name, visible)
	shown := toolkeep.ClipBytes(name, 100)
	switch total {
	case 0:
		return "", toolkeep.NewError(toolkeep.CapabilityNotFound,
			"no tool that you may see offers the capability %q; search for one in words, or name a tool", shown).With("capability", shown)
	case 1:
		return ids[0], nil
	}
	return "", toolkeep.NewError(toolkeep.CapabilityAmbiguous, "%d tools that you may see offer the capability %q: %s; name one of them as the tool",
		total, shown, strings.Join(ids[:min(len(ids), 5)], ", ")+more(total-5)).
		With("capability", shown).With("tools", slices.Clip(ids)).With("total", total)
}

// Offering returns the ids of the first 20 tools, by id, that offering chooses from.
func (c *Catalog) Offering(p *toolkeep.Principal, name string, visible func(*toolkeep.Tool) bool) []string {
	ids, _ := c.offerings(p, name, visible)
	return ids
}

func (c *Catalog) offerings(p *toolkeep.Principal, name string, visible func(*toolkeep.Tool) bool) (ids []string, total int) {
	list, total := c.List(p, Filter{Capability: name, Limit: maxOffering}, visible)
	ids = make([]string, len(list))
	for i, t := range list {
		ids[i] = t.ToolID
	}
	return ids, total
}

func more(n int) string {
	if n <= 0 {
		return ""
	}
	return " and more"
}
