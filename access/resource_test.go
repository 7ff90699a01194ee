package access

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/toolkeep/toolkeep"
)

func TestResourceMetadata(t *testing.T) {
	s := listen(t)
	a := open(t, Config{OAuth: s.config(), Clock: (&clock{}).Now})
	ask := func(a *Access, method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		a.ResourceMetadata().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w
	}
	for path, resource := range map[string]string{"": here, "/": here, "/mcp": here + "/mcp", "/mcp/": here + "/mcp/", "/mcp/servers/github": here + "/mcp/servers/github"} {
		w := ask(a, "GET", ResourceMetadataPath+path)
		want := fmt.Sprintf(`{"authorization_servers":[%q],"bearer_methods_supported":["header"],"resource":%q,"resource_name":"Toolkeep","scopes_supported":["also:call","tools:admin","tools:audit","tools:call"]}`, s.url, resource)
		if w.Code != 200 || w.Body.String() != want || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	for path, code := range map[string]int{"/api": 404, "/mcpx": 404, "x": 404} {
		if w := ask(a, "GET", ResourceMetadataPath+path); w.Code != code {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := ask(a, "POST", ResourceMetadataPath); w.Code != 405 || w.Header().Get("Allow") == "" {
		t.Errorf("POST: %d", w.Code)
	}
	if w := ask(a, "OPTIONS", ResourceMetadataPath); w.Code != 204 || w.Header().Get("Access-Control-Allow-Methods") != "GET" {
		t.Errorf("OPTIONS: %d", w.Code)
	}
	if w := ask(open(t, Config{}), "GET", ResourceMetadataPath); w.Code != 404 {
		t.Errorf("without an issuer: %d", w.Code)
	}
}

// TestResourceMetadataClient lets an MCP client library find the issuer, starting from
// the refusal.
func TestResourceMetadataClient(t *testing.T) {
	s := listen(t)
	var a *Access
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, ResourceMetadataPath) {
			a.ResourceMetadata().ServeHTTP(w, r)
			return
		}
		_, err := a.Authenticate(r.Context(), "", addr)
		w.Header().Set("WWW-Authenticate", a.Challenge(r.URL.Path, err, false, "tools:call"))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(srv.Close)
	c := s.config()
	c.BaseURL = func() string { return srv.URL }
	a = open(t, Config{OAuth: c, Clock: (&clock{}).Now})
	res, err := srv.Client().Post(srv.URL+"/mcp", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	challenges, err := oauthex.ParseWWWAuthenticate(res.Header.Values("WWW-Authenticate"))
	if err != nil || len(challenges) != 1 || challenges[0].Scheme != "bearer" || challenges[0].Params["scope"] != "tools:call" {
		t.Fatalf("%+v, %v", challenges, err)
	}
	m, err := oauthex.GetProtectedResourceMetadata(t.Context(), challenges[0].Params["resource_metadata"], srv.URL+"/mcp", srv.Client())
	if err != nil || !slices.Equal(m.AuthorizationServers, []string{s.url}) || !slices.Contains(m.ScopesSupported, "tools:call") {
		t.Fatalf("%+v, %v", m, err)
	}
	// A token for the resource that the client named is accepted.
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), s.token(t, map[string]any{"aud": m.Resource}), addr))
}

func TestChallenge(t *testing.T) {
	s := listen(t)
	with, without := open(t, Config{OAuth: s.config(), Clock: (&clock{}).Now}), open(t, Config{})
	no := toolkeep.NewError(toolkeep.Unauthenticated, "say \"no\"\r\nSet-Cookie: x\\ ü")
	denied := toolkeep.NewError(toolkeep.PermissionDenied, "denied")
	at := `, resource_metadata="` + here + ResourceMetadataPath
	for i, c := range []struct {
		a      *Access
		path   string
		err    error
		sent   bool
		scopes []string
		want   string
	}{
		{with, "/mcp", no, false, nil, `Bearer realm="toolkeep", scope="also:call tools:call"` + at + `/mcp"`},
		{with, "/mcp/search/", no, true, nil, `Bearer realm="toolkeep", error="invalid_token", error_description="say noSet-Cookie: x ", scope="also:call tools:call"` + at + `/mcp/search/"`},
		{with, "/api/v1/tools", no, false, nil, `Bearer realm="toolkeep", scope="also:call tools:call"` + at + `"`},
		{with, "/mcp", denied, true, []string{"tools:call", "x"}, `Bearer realm="toolkeep", error="insufficient_scope", error_description="denied", scope="tools:call x"` + at + `/mcp"`},
		{with, "/mcp", toolkeep.NewError(toolkeep.AuthFailuresLimited, "x"), true, nil, ""},
		{without, "/mcp", no, true, nil, `Bearer realm="toolkeep", error="invalid_token", error_description="say noSet-Cookie: x "`},
		{without, "/mcp", no, false, nil, `Bearer realm="toolkeep"`},
		{without, "/mcp", denied, true, nil, ""},
	} {
		if got := c.a.Challenge(c.path, c.err, c.sent, c.scopes...); got != c.want {
			t.Errorf("%d: got  %s\nwant %s", i, got, c.want)
		}
	}
}
