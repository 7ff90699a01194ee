package servers

import (
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep/upstream"
)

// isOwn reports whether a definition leads back here: an address of this Toolkeep, or the command that connects a
// client to the one on this machine. `toolkeep mcp` with the address of another is a server like any other.
func (s *Servers) isOwn(spec *upstream.Spec) bool {
	if spec.Transport != upstream.Stdio {
		return s.atOwn(spec.URL)
	}
	c := spec.Command
	if len(c) < 2 || filepath.Base(c[0]) != "toolkeep" || !slices.Contains(c[1:], "mcp") {
		return false
	}
	at, elsewhere := spec.Env["TOOLKEEP_URL"]
	return !elsewhere || s.atOwn(strings.TrimPrefix(at, "text:"))
}

// atOwn reports whether a URL is under one of Config.Addresses. Of loopback addresses only
// the port counts.
func (s *Servers) atOwn(address string) bool {
	at, ok := hostOf(address)
	if !ok || s.c.Addresses == nil {
		return false
	}
	return slices.ContainsFunc(s.c.Addresses(), func(own string) bool {
		host, has := hostOf(own)
		return has && host == at
	})
}

// hostOf is the host and port of a URL, in one spelling.
func hostOf(address string) (string, bool) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "", false
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified()) {
		host = "localhost"
	}
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(host, port), true
}
