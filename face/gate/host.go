package gate

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// Pages are web pages of other origins that may use a path and all below it.
type Pages struct {
	Path    string   // such as /mcp
	Origins []string // such as https://app.example; "*" is any
	// Allow writes the headers that let such a page use the answer; asked is what it
	// wants to send. With it the gate answers preflights; nil leaves them to the
	// handler.
	Allow func(h http.Header, origin, asked string)
}

// guard refuses what a browser was tricked into sending, and headers over the
// limit. done says that the request was a preflight.
func (g *Gate) guard(answer http.Header, r *http.Request) (done bool, err error) {
	if !g.hostAllowed(r) {
		return false, toolkeep.NewError(toolkeep.PermissionDenied,
			"the Host %q is not one of this server's names; add it to the setting http.hosts", toolkeep.ClipBytes(r.Host, 100)).
			With("reason", "HOST_NOT_ALLOWED")
	}
	if origin := r.Header["Origin"]; origin != nil && !sameHost(origin, r.Host) {
		pages := g.pagesOf(origin, r.URL.Path)
		if pages == nil {
			return false, toolkeep.NewError(toolkeep.PermissionDenied, "requests from the web page of another site are refused").
				With("reason", "ORIGIN_NOT_ALLOWED")
		}
		if pages.Allow != nil {
			pages.Allow(answer, origin[0], r.Header.Get("Access-Control-Request-Headers"))
			if r.Method == http.MethodOptions {
				return true, nil
			}
		}
	}
	n := len(r.RequestURI) + len(r.Host)
	for k, vs := range r.Header {
		for _, v := range vs {
			n += len(k) + len(v) + 4
		}
	}
	if n > g.limits.HeaderBytes {
		return false, WithStatus(http.StatusRequestHeaderFieldsTooLarge, toolkeep.NewError(toolkeep.RequestTooLarge,
			"the request's header block has more than %d bytes", g.limits.HeaderBytes).With("limit_bytes", g.limits.HeaderBytes))
	}
	return false, nil
}

// hostAllowed keeps DNS rebinding out: a page that made its own name point here
// still sends that name. Health probes come by address and learn nothing, so
// they pass.
func (g *Gate) hostAllowed(r *http.Request) bool {
	if g.hosts["*"] || loopbackName(r.Host) || isHealth(r.URL.Path) {
		return true
	}
	host := strings.ToLower(r.Host)
	return g.hosts[host] || g.hosts[withoutPort(host)]
}

func isHealth(path string) bool {
	return path == "/health" || path == "/ready" || strings.HasPrefix(path, "/health/")
}

func loopbackName(hostport string) bool {
	host := withoutPort(hostport)
	switch host {
	case "127.0.0.1", "localhost", "::1":
		return true
	case "":
		return false
	}
	if c := host[0]; c != '1' && c != ':' {
		return strings.EqualFold(host, "localhost")
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// withoutPort takes the port and the brackets off.
func withoutPort(hostport string) string {
	if strings.HasPrefix(hostport, "[") {
		if i := strings.IndexByte(hostport, ']'); i > 0 {
			return hostport[1:i]
		}
		return ""
	}
	if i := strings.LastIndexByte(hostport, ':'); i >= 0 && strings.IndexByte(hostport, ':') == i {
		return hostport[:i]
	}
	return hostport
}

func sameHost(origin []string, host string) bool {
	if len(origin) != 1 {
		return false
	}
	u, err := url.Parse(origin[0])
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// pagesOf finds the rule that lets the origin's pages use the path, nil for none.
func (g *Gate) pagesOf(origin []string, path string) *Pages {
	if len(origin) != 1 {
		return nil
	}
	for i, p := range g.pages {
		if (path == p.Path || strings.HasPrefix(path, p.Path+"/")) &&
			(slices.Contains(p.Origins, "*") || slices.Contains(p.Origins, strings.ToLower(origin[0]))) {
			return &g.pages[i]
		}
	}
	return nil
}
