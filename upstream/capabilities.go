package upstream

import (
	"github.com/toolkeep/toolkeep/mcp"
)

// asksClient tells whether the server may ask for what only a caller can answer.
func asksClient(s *Spec) bool {
	return s.may(CapSampling) || s.may(CapElicitation) || s.may(CapRoots) && len(s.Roots) == 0
}

// ownCapabilities is what a session that nobody is bound to tells the server:
// roots, where they are the spec's own, and nothing else.
func ownCapabilities(s *Spec) []byte {
	if s.may(CapRoots) && len(s.Roots) > 0 {
		return []byte(`{"roots":{}}`)
	}
	return []byte(`{}`)
}

// declared is what a bound session tells the server: what the spec allows and the
// caller can do, in the caller's own words. theirs nil: nothing is known of the
// caller, which then counts as able to do all of it.
func declared(s *Spec, theirs []byte) []byte {
	out := []byte(`{}`)
	for _, name := range []string{CapSampling, CapElicitation, CapRoots} {
		if !s.may(name) {
			continue
		}
		switch word := mcp.Get(theirs, name); {
		case name == CapRoots && len(s.Roots) > 0:
			out = mcp.Set(out, []byte(`{}`), name)
		case mcp.IsObject(word):
			out = mcp.Set(out, word, name)
		case theirs == nil:
			out = mcp.Set(out, []byte(`{}`), name)
		}
	}
	return out
}

// capabilityOf is the capability that a question of the server needs; "" if it is
// none that we know.
func capabilityOf(method string) string {
	switch method {
	case mcp.MethodCreateMessage:
		return CapSampling
	case mcp.MethodElicit:
		return CapElicitation
	case mcp.MethodListRoots:
		return CapRoots
	}
	return ""
}

// rootsResult is the spec's own answer to roots/list.
func rootsResult(s *Spec) []byte {
	out := []byte(`{"roots":[`)
	for i, r := range s.Roots {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, `{"uri":`...), mcp.Quote(r.URI)...)
		if r.Name != "" {
			out = append(append(out, `,"name":`...), mcp.Quote(r.Name)...)
		}
		out = append(out, '}')
	}
	return append(out, "]}"...)
}
