package access

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Audience returns an opaque name for everything besides the tool that Callable and Visible
// depend on: the principal's tenant, scope, roles with their current rules, permissions, what its
// capability token shows, and whether it has a subject. Principals with equal names see and may call the same tools, on every
// node with the same roles; a removed role, a narrowed scope or a changed rule changes
// the name, and so does another policy that hides tools. more lists further filters of
// the caller, such as a category. The name reveals nothing about its inputs. It is "" if
// what the principal sees depends on the time.
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
	shown := ""
	if a.config.Policy != nil {
		var ok bool
		if shown, ok = a.config.Policy.Audience(g.whole(p)); !ok {
			return ""
		}
	}
	if len(more) == 0 && shown == "" {
		return name
	}
	h := sha256.New()
	if shown == "" {
		write(h, name)
	} else {
		write(h, name, shown)
	}
	write(h, more...)
	return text(h)
}

func (g *generation) audience(p *toolkeep.Principal) string {
	h := sha256.New()
	write(h, p.Tenant, fmt.Sprint(p.Subject != ""), narrowingOf(p))
	write(h, g.whole(p).Permissions...)
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
				write(h, r.Tools...)
				write(h, r.Tags...)
				write(h, r.Categories...)
				write(h, r.SideEffects...)
				write(h, fmt.Sprint(int(r.MinRisk), int(r.MaxRisk), r.actions))
			}
		}
	}
	return text(h)
}

// write hashes a list unambiguously: different lists never produce the same bytes.
func write(h hash.Hash, list ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", len(list))
	for _, s := range list {
		fmt.Fprintf(&b, "%d:%s", len(s), s)
	}
	h.Write([]byte(b.String()))
}

func text(h hash.Hash) string { return base64.RawURLEncoding.EncodeToString(h.Sum(nil)) }
