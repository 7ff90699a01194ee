package gate

import (
	"net/netip"
	"strings"
)

// Proxies are the reverse proxies whose Forwarded and X-Forwarded-For are believed.
type Proxies []netip.Prefix

func (p Proxies) trust(ip netip.Addr) bool {
	for _, n := range p {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

// has reports whether a peer's address is a proxy's.
func (p Proxies) has(peer string) bool {
	ip, err := netip.ParseAddr(peer)
	return err == nil && p.trust(ip.Unmap().WithZone(""))
}

// client is the address that a request comes from, without port: the peer's, or where
// the peer is a trusted proxy, the rightmost address that is no trusted proxy's in
// Forwarded (RFC 7239) or X-Forwarded-For. A client can invent what stands left of it.
//
// An entry that is no address ends the search at the proxy that wrote it. So do two
// headers that name different clients: a proxy that sets one may pass on the other as
// the client sent it.
func (p Proxies) client(h Headers, peer string) string {
	ip, err := netip.ParseAddr(peer)
	if ip = ip.Unmap().WithZone(""); err != nil || !p.trust(ip) {
		return peer
	}
	plain, standard := h.values[h.names.forwardedFor], h.values[h.names.forwarded]
	switch {
	case standard == nil && plain == nil:
		return peer
	case standard == nil:
		return p.rightmost(ip, splitPlain(plain)).String()
	case plain == nil:
		return p.rightmost(ip, splitForwarded(standard)).String()
	}
	a, b := p.rightmost(ip, splitPlain(plain)), p.rightmost(ip, splitForwarded(standard))
	if a != b {
		return peer
	}
	return a.String()
}

// rightmost walks from the proxy at towards the client.
func (p Proxies) rightmost(at netip.Addr, hops []string) netip.Addr {
	for i := len(hops) - 1; i >= 0 && p.trust(at); i-- {
		host := hops[i]
		if _, err := netip.ParseAddr(host); err != nil {
			host = withoutPort(host) // 192.0.2.1:4711, [2001:db8::1]:4711, [2001:db8::1]
		}
		ip, err := netip.ParseAddr(host)
		if err != nil {
			return at
		}
		at = ip.Unmap().WithZone("")
	}
	return at
}

// splitPlain splits the lines of X-Forwarded-For.
func splitPlain(lines []string) []string {
	hops := strings.Split(strings.Join(lines, ","), ",")
	for i, s := range hops {
		hops[i] = strings.TrimSpace(s)
	}
	return hops
}

// splitForwarded gives the for of each element of the lines of Forwarded, "" where it
// has none. What is not well formed is one element without.
func splitForwarded(lines []string) []string {
	var hops []string
	for _, line := range lines {
		for more := true; more; {
			var hop string
			hop, line, more = element(line)
			hops = append(hops, hop)
		}
	}
	return hops
}

// element reads the first element of a Forwarded line; more says that a comma follows.
func element(s string) (hop, rest string, more bool) {
	for {
		name, after, ok := strings.Cut(s, "=")
		if !ok {
			return "", "", false
		}
		var value string
		if strings.HasPrefix(after, `"`) {
			if value, after, ok = quoted(after[1:]); !ok {
				return "", "", false
			}
		} else {
			end := strings.IndexAny(after, ",; \t")
			if end < 0 {
				end = len(after)
			}
			value, after = after[:end], after[end:]
		}
		if strings.EqualFold(strings.TrimSpace(name), "for") {
			if hop != "" {
				return "", "", false
			}
			hop = value
		}
		after = strings.TrimLeft(after, " \t")
		switch {
		case after == "":
			return hop, "", false
		case after[0] == ',':
			return hop, after[1:], true
		case after[0] != ';':
			return "", "", false
		}
		s = after[1:]
	}
}

// quoted reads a quoted string after its first quote.
func quoted(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}
