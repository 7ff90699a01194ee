package access

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// ResourceMetadataPath is the path of the protected resource metadata (RFC 9728); the
// path of an MCP endpoint may follow it.
const ResourceMetadataPath = "/.well-known/oauth-protected-resource"

// isResource reports whether clients may name the path as a resource of its own.
func isResource(path string) bool { return path == "/mcp" || strings.HasPrefix(path, "/mcp/") }

// ResourceMetadata serves ResourceMetadataPath and below, without authentication: the
// resource, its authorization servers, and the scopes that grant a role. Without an
// OAuth issuer it responds 404.
func (a *Access) ResourceMetadata() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, ok := strings.CutPrefix(r.URL.Path, ResourceMetadataPath)
		if path == "/" {
			path = ""
		}
		// Any other path stays as it is: clients compare resource with their own URL.
		if len(a.issuers) == 0 || !ok || path != "" && !isResource(path) {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*") // public, and pages of any origin may be clients
		switch r.Method {
		case http.MethodGet, http.MethodHead:
		case http.MethodOptions:
			h.Set("Access-Control-Allow-Methods", "GET")
			h.Set("Access-Control-Allow-Headers", "MCP-Protocol-Version")
			w.WriteHeader(http.StatusNoContent)
			return
		default:
			h.Set("Allow", "GET, HEAD, OPTIONS")
			http.Error(w, "only GET is possible here", http.StatusMethodNotAllowed)
			return
		}
		known, servers, scopes := map[string]bool{}, []any{}, []any{}
		for _, o := range a.issuers {
			servers = append(servers, o.c.Issuer)
			for s := range o.c.Scopes {
				known[s] = true
			}
		}
		for _, s := range slices.Sorted(maps.Keys(known)) {
			scopes = append(scopes, s)
		}
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "public, max-age=300")
		_, _ = w.Write(canon.Append(nil, map[string]any{ // a client that has left needs no response
			"resource": a.issuers[0].c.BaseURL() + path, "authorization_servers": servers, "scopes_supported": scopes,
			"bearer_methods_supported": []any{"header"}, "resource_name": "Toolkeep",
		}))
	})
}

// Challenge returns the WWW-Authenticate header value for a refusal of the requested
// path. sent says whether the request carried credentials. scopes are those that would
// be sufficient, if known; where no valid token was sent they are by default those that
// map to the role agent, so that clients do not ask for all that there are. It returns
// "" for refusals that need no such header.
func (a *Access) Challenge(path string, err error, sent bool, scopes ...string) string {
	e := toolkeep.AsError(err)
	var b strings.Builder
	b.WriteString(`Bearer realm="toolkeep"`)
	param := func(name, value string) {
		b.WriteString(", " + name + `="` + quotable(value) + `"`)
	}
	switch {
	case e.Code == toolkeep.Unauthenticated:
		if sent {
			param("error", "invalid_token")
			param("error_description", e.Message)
		}
	case e.Code == toolkeep.PermissionDenied && len(a.issuers) > 0:
		param("error", "insufficient_scope")
		param("error_description", e.Message)
	default:
		return ""
	}
	if len(a.issuers) == 0 {
		return b.String()
	}
	if len(scopes) == 0 && e.Code == toolkeep.Unauthenticated {
		scopes = a.issuers.agentScopes()
	}
	if len(scopes) > 0 {
		param("scope", strings.Join(scopes, " "))
	}
	if !isResource(path) {
		path = ""
	}
	param("resource_metadata", a.issuers[0].c.BaseURL()+ResourceMetadataPath+path)
	return b.String()
}

// agentScopes are the scopes that make an agent, sorted.
func (o *issuer) agentScopes() []string {
	var scopes []string
	for _, s := range slices.Sorted(maps.Keys(o.c.Scopes)) {
		if o.c.Scopes[s] == Agent {
			scopes = append(scopes, s)
		}
	}
	return scopes
}

// quotable removes characters that RFC 6750 does not allow between quotes.
func quotable(s string) string {
	if len(s) > 500 {
		s = s[:500]
	}
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e || r == '"' || r == '\\' {
			return -1
		}
		return r
	}, s)
}

// OAuthHealth returns the errors of the OAuth issuers' keys, or nil if there is none or
// no tokens are accepted. API keys work regardless.
func (a *Access) OAuthHealth(context.Context) error { return a.issuers.health() }

// TakesTokens reports whether an OAuth issuer is configured.
func (a *Access) TakesTokens() bool { return len(a.issuers) > 0 }
