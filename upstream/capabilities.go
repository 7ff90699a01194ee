package upstream

import (
	"github.com/toolkeep/toolkeep/mcp"
)

// asksClient reports whether the server may send requests that only a caller can
// answer.
func asksClient(s *Spec) bool {
	return s.may(CapSampling) || s.may(CapElicitation) || s.may(CapRoots) && len(s.Roots) == 0
}

// ownCapabilities are the client capabilities of a session without a caller: roots, if
// the spec lists them, and nothing else.
func ownCapabilities(s *Spec) []byte {
	if s.may(CapRoots) && len(s.Roots) > 0 {
		return []byte(`{"roots":{}}`)
	}
	return []byte(`{}`)
}

// declared returns the client capabilities of a bound session: what the spec allows and
// the caller supports, as the caller wrote them. With theirs nil, the caller counts as
// supporting everything.
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

// capabilityOf returns the capability that a server request needs, or "" for an unknown
// method.
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

// rootsResult answers roots/list from the spec.
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
