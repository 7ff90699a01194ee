package openapi

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// server is the target of an operation.
type server struct {
	url     *url.URL
	others  []string // other servers of the document, as written
	trusted bool     // the user named the host, or the document is the user's own file
}

// parseServer parses an absolute server URL. The reason says why it cannot be used.
func parseServer(s string) (*url.URL, string) {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, "it is not a URL"
	case strings.EqualFold(u.Scheme, "ws") || strings.EqualFold(u.Scheme, "wss"):
		return nil, "it is a WebSocket, which cannot be called yet"
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, "it is not an absolute http or https URL"
	case u.Hostname() == "" || !validHost(u.Host):
		return nil, "it names no host"
	case u.User != nil:
		return nil, "it holds a user or password, which belong into a secret"
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(s, "#"):
		return nil, "it holds a query or a fragment"
	case strings.ContainsAny(s, "{}"):
		return nil, "it holds a variable that has no value"
	case egress.HasDotSegments(u.EscapedPath()):
		return nil, "its path has \".\" or \"..\" segments"
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return nil, "its port is not a number from 1 to 65535"
		}
	}
	u.Host = strings.ToLower(u.Host)
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, ""
}

func validHost(host string) bool {
	return !strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || strings.ContainsRune("\"'<>\\^`{|}%", r) || r == 0x7f })
}

const maxServers = 50 // that are looked at of one list

const noServer = "the document names no absolute server; give one with --server URL"

// serverOf finds the server of an operation: its own, else its path's, else the
// document's; of several the first that can be used.
func (d *document) serverOf(op *operation) (*server, string) {
	urls, reason := d.serverURLs(op)
	if reason != "" {
		return nil, reason
	}
	if d.opt.Server != "" {
		return d.givenServer(urls)
	}
	if len(urls) == 0 {
		urls = []candidate{{url: "/"}} // what the standard says of a document without servers
	}
	first := ""
	for i, c := range urls {
		u, reason := c.absolute(d)
		if reason != "" {
			if first == "" {
				first = reason
			}
			continue
		}
		s := &server{url: u, trusted: d.vouched(u)}
		for j, o := range urls {
			if j != i {
				s.others = append(s.others, o.shown())
			}
		}
		if first != "" {
			d.warn("%s: the first server is skipped (%s); %s is used", op.label(), first, safeURL(u))
		}
		return s, ""
	}
	return nil, first
}

// givenServer puts the user's server in the place of the document's. A relative
// server of the document is kept behind a given one that has no path.
func (d *document) givenServer(urls []candidate) (*server, string) {
	u, reason := parseServer(d.opt.Server)
	if reason != "" {
		return nil, reason
	}
	s := &server{url: u, trusted: true}
	for _, c := range urls {
		s.others = append(s.others, c.shown())
	}
	if u.Path == "" && len(urls) > 0 && urls[0].bad == "" {
		if path, ok := urls[0].relativePath(); ok {
			joined := *u
			joined.Path, joined.RawPath = path, ""
			if v, reason := parseServer(joined.String()); reason == "" {
				s.url = v
			}
		}
	}
	return s, ""
}

// candidate is one server of the document with its variables filled in.
type candidate struct {
	url string
	bad string // why it cannot be used
}

// shown is the server for people, as written but without user and query.
func (c candidate) shown() string {
	s, _, _ := strings.Cut(c.url, "?")
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		s = "…" + s[i:]
	}
	return toolkeep.Clip(clean(s), 200)
}

// relativePath is the path of a server without a host.
func (c candidate) relativePath() (string, bool) {
	u, err := url.Parse(c.url)
	if err != nil || u.Scheme != "" || u.Host != "" || u.RawQuery != "" {
		return "", false
	}
	return "/" + strings.Trim(u.Path, "/"), true
}

// absolute resolves a relative server against the URL of the document.
func (c candidate) absolute(d *document) (*url.URL, string) {
	if c.bad != "" {
		return nil, c.bad
	}
	u, err := url.Parse(c.url)
	if err != nil {
		return nil, fmt.Sprintf("the server %q is not a URL; give one with --server URL", c.shown())
	}
	if !u.IsAbs() {
		base, err := url.Parse(d.main.loc)
		if err != nil || !isURL(d.main.loc) {
			if u.Host != "" {
				return nil, fmt.Sprintf("the server %q names no scheme; give one with --server URL", c.shown())
			}
			return nil, noServer
		}
		base.User = nil
		u = base.ResolveReference(u)
	}
	out, reason := parseServer(u.String())
	if reason != "" {
		return nil, fmt.Sprintf("the server %q cannot be used: %s; give one with --server URL", c.shown(), reason)
	}
	return out, ""
}

// serverURLs lists the servers that apply to an operation.
func (d *document) serverURLs(op *operation) ([]candidate, string) {
	if d.dialect == v20 {
		return d.swaggerServers(op), ""
	}
	for _, o := range []*object{op.op, op.item, d.root} {
		list, reason := d.list(o.get("servers"), "servers")
		if reason != "" {
			return nil, reason
		}
		if len(list) == 0 {
			continue
		}
		var out []candidate
		for _, v := range list[:min(len(list), maxServers)] {
			s, reason := d.object(v, "a server")
			if reason != "" {
				return nil, reason
			}
			out = append(out, d.fill(s))
		}
		return out, ""
	}
	return nil, ""
}

// fill puts the defaults of its variables into a server's URL.
func (d *document) fill(s *object) candidate {
	text := strings.TrimSpace(s.text("url"))
	vars, _ := d.object(s.get("variables"), "variables")
	var b strings.Builder
	for rest := text; rest != ""; {
		before, after, found := strings.Cut(rest, "{")
		b.WriteString(before)
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return candidate{text, fmt.Sprintf("the server %q has a { without its }; give one with --server URL", toolkeep.Clip(clean(text), 200))}
		}
		value, reason := d.variable(vars, name)
		if reason != "" {
			return candidate{text, fmt.Sprintf("the server %q cannot be used: its variable {%s} %s; give one with --server URL", toolkeep.Clip(clean(text), 200), toolkeep.Clip(clean(name), 80), reason)}
		}
		b.WriteString(value)
		rest = tail
	}
	return candidate{url: b.String()}
}

func (d *document) variable(vars *object, name string) (string, string) {
	v, reason := d.object(vars.get(name), "variable")
	if reason != "" {
		return "", "is not declared"
	}
	if !v.has("default") || v.get("default") == nil {
		return "", "has no default"
	}
	value, ok := scalarText(v.get("default"))
	if !ok {
		return "", "has a default that is not text"
	}
	enum, _ := v.get("enum").([]any)
	if len(enum) > 0 && !slices.ContainsFunc(enum, func(e any) bool { t, _ := scalarText(e); return t == value }) {
		return "", fmt.Sprintf("has the default %q, which its enum does not list", toolkeep.Clip(clean(value), 80))
	}
	return value, ""
}

// swaggerServers builds the server of Swagger 2.0 out of schemes, host and
// basePath.
func (d *document) swaggerServers(op *operation) []candidate {
	base := strings.TrimSpace(d.root.text("basePath"))
	if base != "" && !strings.HasPrefix(base, "/") {
		base = "/" + base
	}
	host := strings.TrimSpace(d.root.text("host"))
	if host == "" {
		if base == "" {
			base = "/"
		}
		return []candidate{{url: base}}
	}
	if strings.ContainsAny(host, "/?#@{}") {
		return []candidate{{host, fmt.Sprintf("the host %q is not valid; give a server with --server URL", toolkeep.Clip(clean(host), 200))}}
	}
	list, _ := d.list(d.root.get("schemes"), "schemes")
	if own, _ := d.list(op.op.get("schemes"), "schemes"); len(own) > 0 {
		list = own
	}
	var schemes []string
	for _, e := range list {
		if s, ok := e.(string); ok {
			schemes = append(schemes, strings.ToLower(s))
		}
	}
	if len(schemes) == 0 {
		schemes = []string{"https"}
		if strings.HasPrefix(strings.ToLower(d.main.loc), "http://") {
			schemes = []string{"http"} // the standard: the scheme that the document came by
		}
	}
	slices.SortStableFunc(schemes, func(a, b string) int { return schemeRank(a) - schemeRank(b) })
	var out []candidate
	for _, s := range schemes {
		out = append(out, candidate{url: s + "://" + host + base})
	}
	return out
}

// schemeRank puts https first.
func schemeRank(s string) int {
	switch s {
	case "https":
		return 0
	case "http":
		return 1
	}
	return 2
}

// vouched tells whether the user, and not only the document, stands for an
// address of the inner network: the document was fetched from that address. Only
// then, or if --server names it, the host enters the tool's allow-list, which
// opens it. A host name that a document gives is never opened: it is not known where
// it leads. Link-local addresses, where clouds keep their metadata, take --server.
func (d *document) vouched(u *url.URL) bool {
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && (ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified()) {
		return false
	}
	if !isURL(d.main.loc) || !isInside(u.Hostname()) {
		return false
	}
	base, err := url.Parse(d.main.loc)
	return err == nil && strings.EqualFold(base.Host, u.Host)
}

// port is the port of a URL, with its scheme's default.
func port(u *url.URL) int {
	if n, err := strconv.Atoi(u.Port()); err == nil {
		return n
	}
	if u.Scheme == "http" {
		return 80
	}
	return 443
}
