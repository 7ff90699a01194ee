package access

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Audience names what Visible depends on beside the tool: the principal's tenant, scope
// and roles with their rules as they are now, its permissions, and whether it has a
// subject. Principals for whom the names are equal see the same tools, on every node
// whose roles say the same; a role that is taken from a key, a narrowed scope or a
// changed rule makes another name. more is what a caller leaves out of the tools by
// itself, such as a category. The name tells nothing of what it stands for.
func (a *Access) Audience(p *toolkeep.Principal, more ...string) string {
	g := a.generation()
	name := ""
	if who := g.identity(p); who != nil {
		if known := who.audience.Load(); known != nil {
			name = *known
		} else {
			name = g.audience(p)
			who.audience.Store(&name)
		}
	} else {
		name = g.audience(p)
	}
	if len(more) == 0 {
		return name
	}
	h := sha256.New()
	write(h, name)
	write(h, more...)
	return text(h)
}

func (g *generation) audience(p *toolkeep.Principal) string {
	h := sha256.New()
	write(h, p.Tenant, fmt.Sprint(p.Subject != ""))
	write(h, p.Permissions...)
	write(h, p.Scope...)
	write(h, p.Roles...)
	for _, name := range p.Roles {
		c := g.rules[name]
		if c == nil {
			write(h, "none")
			continue
		}
		for _, list := range [...][]rule{c.deny, c.allow} {
			write(h, fmt.Sprint(len(list)))
			for i := range list {
				r := &list[i]
				write(h, r.tools...)
				write(h, r.tags...)
				write(h, r.categories...)
				write(h, r.effects...)
				write(h, fmt.Sprint(r.lowRisk, r.highRisk, r.actions))
			}
		}
	}
	return text(h)
}

// write adds a list in such a way that no two lists of texts are the same bytes.
func write(h hash.Hash, list ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", len(list))
	for _, s := range list {
		fmt.Fprintf(&b, "%d:%s", len(s), s)
	}
	h.Write([]byte(b.String()))
}

func text(h hash.Hash) string { return base64.RawURLEncoding.EncodeToString(h.Sum(nil)) }
