package toolkeeptest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// withViews starts a system that accepts the issuer's tokens and has every kind of
// view.
func withViews(t *testing.T, s *issuer, more map[string]string) *toolkeeptest.Toolkeep {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sets := filepath.Join(t.TempDir(), "sets.yaml")
	if err := os.WriteFile(sets, []byte("office:\n  namespaces: [std]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{"mcp.sets_file": sets}
	for n, v := range more {
		settings[n] = v
	}
	k := s.start(t, settings, node.Options{Reaper: []string{self, "__reaper"}})
	admin(t, k).put(t, "pages", offerByStdio(t, definition("read", "Reads a page.")))
	return k
}

// TestWhereToLogIn: each view publishes its authorization server under the URL the
// client used, and the challenge points there.
func TestWhereToLogIn(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	k := withViews(t, s, nil)
	nobody := as(t, k, "")
	for _, view := range append(slices.Clone(views), "/", "/all/") {
		t.Run("mcp"+view, func(t *testing.T) {
			for _, a := range []answer{nobody.says(view, "", initialize), nobody.do("GET", "/mcp"+view, "", "Accept", "text/event-stream"), nobody.do("DELETE", "/mcp"+view, "")} {
				a.want(t, 401)
				p := challengeOf(t, a)
				if p["error"] != "" { // nothing was sent that could be wrong
					t.Errorf("challenge %v", p)
				}
				at, ok := strings.CutPrefix(p["resource_metadata"], k.URL())
				if !ok || at != "/.well-known/oauth-protected-resource/mcp"+view {
					t.Fatalf("challenge %v", p)
				}
			}
			m := nobody.do("GET", "/.well-known/oauth-protected-resource/mcp"+view, "").want(t, 200)
			if m.text(t, "resource") != k.URL()+"/mcp"+view || m.text(t, "authorization_servers", "0") != s.URL || !strings.Contains(m.body, `"tools:call"`) {
				t.Errorf("%s", m)
			}
			meta, err := oauthex.GetProtectedResourceMetadata(t.Context(), k.URL()+"/.well-known/oauth-protected-resource/mcp"+view, k.URL()+"/mcp"+view, nobody.http)
			if err != nil || len(meta.AuthorizationServers) != 1 {
				t.Errorf("the SDK reads %+v, %v", meta, err)
			}
			// A token for that URL is accepted there.
			token := s.sign(map[string]any{"aud": k.URL() + "/mcp" + view, "scope": "tools:call"})
			as(t, k, token).says(view, "", initialize).want(t, 200)
		})
	}
	if p := challengeOf(t, nobody.do("GET", "/api/v1/tools", "").want(t, 401)); p["resource_metadata"] != k.URL()+"/.well-known/oauth-protected-resource" {
		t.Errorf("challenge %v", p)
	}
	if m := nobody.do("GET", "/.well-known/oauth-protected-resource", "").want(t, 200); m.text(t, "resource") != k.URL() {
		t.Errorf("%s", m)
	}
	// An unauthenticated client does not learn whether a server exists.
	for _, name := range []string{"pages", "nothing"} {
		nobody.says("/servers/"+name, "", initialize).want(t, 401)
		nobody.do("GET", "/.well-known/oauth-protected-resource/mcp/servers/"+name, "").want(t, 200)
	}
	for _, path := range []string{"/api/v1/tools", "/mcpx", "/.well-known"} {
		nobody.do("GET", "/.well-known/oauth-protected-resource"+path, "").want(t, 404)
	}
}

// TestWhereToLogInFromAPage: a page of another origin can read the metadata and, if
// mcp.origins lists it, the challenge.
func TestWhereToLogInFromAPage(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	const page = "https://app.example"
	k := s.start(t, map[string]string{"mcp.origins": page}, node.Options{})
	nobody := as(t, k, "")
	for _, path := range []string{"", "/mcp", "/mcp/all"} {
		m := nobody.do("GET", "/.well-known/oauth-protected-resource"+path, "", "Origin", page).want(t, 200)
		if m.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s", m)
		}
		o := nobody.do("OPTIONS", "/.well-known/oauth-protected-resource"+path, "", "Origin", page,
			"Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "mcp-protocol-version").want(t, 204)
		if !strings.Contains(strings.ToLower(o.header.Get("Access-Control-Allow-Headers")), "mcp-protocol-version") {
			t.Errorf("%s", o)
		}
	}
	a := nobody.do("POST", "/mcp", initialize, "Origin", page).want(t, 401)
	if a.header.Get("Access-Control-Allow-Origin") != page || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "WWW-Authenticate") {
		t.Errorf("%s", a)
	}
	challengeOf(t, a)
	nobody.do("POST", "/mcp", initialize, "Origin", "https://other.example").want(t, 403)
	nobody.do("GET", "/api/v1/tools", "", "Origin", page).want(t, 403)
}

// TestPublicURLIsTheResource: behind a proxy the URLs are those of the proxy.
func TestPublicURLIsTheResource(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	const public = "https://tools.example"
	k := s.start(t, map[string]string{"http.public_url": public + "/", "http.hosts": "tools.example"}, node.Options{})
	nobody := as(t, k, "")
	if p := challengeOf(t, nobody.says("/all", "", initialize).want(t, 401)); p["resource_metadata"] != public+"/.well-known/oauth-protected-resource/mcp/all" {
		t.Errorf("challenge %v", p)
	}
	if m := nobody.do("GET", "/.well-known/oauth-protected-resource/mcp/all", "").want(t, 200); m.text(t, "resource") != public+"/mcp/all" {
		t.Errorf("%s", m)
	}
	as(t, k, s.sign(map[string]any{"aud": public, "scope": "tools:call"})).call("std.echo", `{}`).success(t)
	as(t, k, s.sign(map[string]any{"aud": []string{"x", public + "/mcp/all"}, "scope": "tools:call"})).call("std.echo", `{}`).success(t)
	as(t, k, s.sign(map[string]any{"aud": k.URL(), "scope": "tools:call", "sub": "eve"})).call("std.echo", `{}`).want(t, 401)
}

// TestNoIssuerNoMetadata: if no tokens are accepted, nothing suggests otherwise.
func TestNoIssuerNoMetadata(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	nobody := as(t, k, "")
	nobody.do("GET", "/.well-known/oauth-protected-resource/mcp", "").want(t, 404)
	for _, a := range []answer{nobody.says("/all", "", initialize), nobody.do("GET", "/api/v1/tools", "")} {
		if h := a.want(t, 401).header.Get("WWW-Authenticate"); h != `Bearer realm="toolkeep"` {
			t.Errorf("challenge %q", h)
		}
	}
	s := newIssuer(t)
	as(t, k, s.sign(map[string]any{"aud": k.URL(), "scope": "tools:call"})).call("std.echo", `{}`).want(t, 401)
	if ready := nobody.do("GET", "/health/ready", ""); strings.Contains(ready.body, "oauth_issuer") {
		t.Errorf("%s", ready.body)
	}
}

// browse follows an authorization request to the redirect, like the browser of a person
// who has consented.
func browse(hc *http.Client) auth.AuthorizationCodeFetcher {
	return func(ctx context.Context, a *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.URL, nil)
		if err != nil {
			return nil, err
		}
		resp, err := hc.Transport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		to, err := resp.Location()
		if err != nil {
			return nil, errors.Join(err, fmt.Errorf("the authorization server answered %s", resp.Status))
		}
		return &auth.AuthorizationResult{Code: to.Query().Get("code"), State: to.Query().Get("state")}, nil
	}
}

// TestSDKClientLogsIn: a client that knows only the URL gets from the 401 through both
// metadata documents and a login to a call, on every view and in both protocol eras.
func TestSDKClientLogsIn(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	k := withViews(t, s, nil)
	for _, view := range views {
		for _, era := range []string{"2025-11-25", "2026-07-28"} {
			t.Run("mcp"+view+" "+era, func(t *testing.T) {
				s.set(func() { s.steps, s.wanted = nil, nil })
				tr := &http.Transport{}
				hc := &http.Client{Transport: tr}
				const back = "http://127.0.0.1:1/callback"
				h, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{Client: hc, AuthorizationCodeFetcher: browse(hc),
					ScopeFilter: func([]string) []string { return []string{"tools:call"} },
					DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{
						Metadata: &oauthex.ClientRegistrationMetadata{ClientName: "agent", RedirectURIs: []string{back}}}})
				if err != nil {
					t.Fatal(err)
				}
				c, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
					Endpoint: k.URL() + "/mcp" + view, HTTPClient: hc, MaxRetries: -1, OAuthHandler: h}, &sdk.ClientSessionOptions{ProtocolVersion: era})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = c.Close(); tr.CloseIdleConnections() })
				call := map[string]string{"/servers/pages": "read", "/search": "call_tool"}[view]
				args := map[string]any{}
				switch call {
				case "":
					call = "std__echo"
				case "call_tool":
					args = map[string]any{"tool_id": "std.echo", "arguments": map[string]any{}}
				}
				r, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: call, Arguments: args})
				if err != nil || r.IsError {
					t.Fatalf("%v %+v", err, r)
				}
				s.set(func() {
					want := k.URL() + "/mcp" + view + " tools:call"
					if !slices.Equal(s.wanted, []string{want}) {
						t.Errorf("tokens asked for %q, want %q alone", s.wanted, want)
					}
					if n := strings.Count(strings.Join(s.steps, "\n"), "POST /token"); n != 1 {
						t.Errorf("%d logins: %v", n, s.steps)
					}
				})
			})
		}
	}
}

// TestSessionBelongsToTheTokensPrincipal: a session id is useless to any other
// principal.
func TestSessionBelongsToTheTokensPrincipal(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	k := withViews(t, s, nil)
	const ping = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	alice := as(t, k, s.token(k, "tools:call"))
	for _, view := range []string{"/all", "/servers/pages"} {
		begun := alice.says(view, "", initialize).want(t, 200)
		id := begun.header.Get("Mcp-Session-Id")
		if id == "" {
			t.Fatalf("%s", begun)
		}
		alice.says(view, id, ping).want(t, 200)
		// Another token of the same principal works.
		as(t, k, s.token(k, "tools:call tools:watch", map[string]any{"jti": "2"})).says(view, id, ping).want(t, 200)
		for who, bearer := range map[string]string{
			"another subject":  s.token(k, "tools:call", map[string]any{"sub": "bob"}),
			"another tenant":   s.token(k, "tools:call", map[string]any{"tenant": otherTenant}),
			"an administrator": s.token(k, "tools:admin", map[string]any{"sub": "root"}),
			"a key of another": k.Key("default", "bob", "admin"),
		} {
			if who == "another tenant" && view == "/servers/pages" {
				continue // it has no such view
			}
			c := as(t, k, bearer)
			for _, a := range []answer{c.says(view, id, ping), c.do("DELETE", "/mcp"+view, "", "Mcp-Session-Id", id),
				c.do("GET", "/mcp"+view, "", "Mcp-Session-Id", id, "Accept", "text/event-stream")} {
				a.want(t, 404).refused(t, toolkeep.ResourceNotFound)
			}
		}
		as(t, k, "").says(view, id, ping).want(t, 401)
		alice.says(view, id, ping).want(t, 200)
		alice.do("DELETE", "/mcp"+view, "", "Mcp-Session-Id", id).want(t, 204)
		alice.says(view, id, ping).want(t, 404)
	}
}
