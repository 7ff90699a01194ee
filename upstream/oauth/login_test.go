package oauth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// Each way of discovery in the revisions, up to the end of a login; the authorization
// server checks PKCE, redirect and resource.
func TestDiscovery(t *testing.T) {
	for name, prepare := range map[string]func(*world){
		"well-known path of the resource": func(*world) {},
		"well-known root of the resource": func(w *world) { w.mcp.at = "/.well-known/oauth-protected-resource" },
		"resource above the server": func(w *world) {
			w.mcp.at, w.mcp.meta["resource"] = "/.well-known/oauth-protected-resource", w.mcp.URL
		},
		"named in the header": func(w *world) {
			w.mcp.at = "/elsewhere/meta"
			w.mcp.header = `Basic realm="x", Bearer resource_metadata="` + w.mcp.URL + `/elsewhere/meta", scope="a b"`
		},
		"header that cannot be read": func(w *world) { w.mcp.header = `Bearer resource_metadata="` },
		"OpenID Connect":             func(w *world) { w.as.metaAt = []string{"/.well-known/openid-configuration"} },
		"issuer with a path": func(w *world) {
			w.as.path, w.as.metaAt = "/t1", []string{"/.well-known/oauth-authorization-server/t1"}
		},
		"OpenID Connect with a path": func(w *world) {
			w.as.path, w.as.metaAt = "/t1", []string{"/.well-known/openid-configuration/t1"}
		},
		"OpenID Connect behind a path": func(w *world) {
			w.as.path, w.as.metaAt = "/t1", []string{"/t1/.well-known/openid-configuration"}
		},
		"expires_in as text": func(w *world) { w.as.expires = "3600" },
		"no expires_in":      func(w *world) { w.as.expires = nil },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			prepare(w)
			w.mcp.meta["authorization_servers"] = []string{w.as.issuer()}
			r := w.ref("t", "agent")
			w.logIn(w.nodes[0], r)
			if who, err := w.call(w.nodes[0], r); err != nil || who != "ann" {
				t.Fatalf("%q, %v", who, err)
			}
			if n := w.as.exchanges.Load(); n != 1 {
				t.Errorf("%d exchanges", n)
			}
		})
	}
}

// Revision 2025-03-26: the MCP server is also the authorization server, with metadata
// at its root or with endpoints at fixed paths.
func TestDiscoveryWithoutMetadata(t *testing.T) {
	for name, metaAt := range map[string][]string{"root metadata": {"/.well-known/oauth-authorization-server"}, "fixed places": nil} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.mcp.at = ""
			both := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/mcp") {
					w.mcp.ServeHTTP(rw, r)
				} else {
					w.as.ServeHTTP(rw, r)
				}
			}))
			defer both.Close()
			w.as.metaAt, w.as.URL, w.mcp.URL = metaAt, both.URL, both.URL
			w.logIn(w.nodes[0], w.ref("t", "agent"))
		})
	}
}

// No login begins if the metadata is untrusted or the login is impossible; the caller
// gets the reason, and no browser is redirected.
func TestDiscoveryRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*world)
		says    string
	}{
		"another resource":        {func(w *world) { w.mcp.meta["resource"] = "https://other.example/mcp" }, "another resource"},
		"a resource beside":       {func(w *world) { w.mcp.meta["resource"] = w.mcp.URL + "/mc" }, "another resource"},
		"no authorization server": {func(w *world) { delete(w.mcp.meta, "authorization_servers") }, "no authorization server"},
		"plain http elsewhere":    {func(w *world) { w.mcp.meta["authorization_servers"] = []string{"http://as.example"} }, "plain https"},
		"another issuer":          {func(w *world) { w.as.meta["issuer"] = "https://evil.example" }, "another issuer"},
		"no PKCE":                 {func(w *world) { delete(w.as.meta, "code_challenge_methods_supported") }, "PKCE"},
		"only plain PKCE":         {func(w *world) { w.as.meta["code_challenge_methods_supported"] = []string{"plain"} }, "PKCE"},
		"javascript endpoint":     {func(w *world) { w.as.meta["authorization_endpoint"] = "javascript:alert(1)//x" }, "not an https URL"},
		"http endpoint":           {func(w *world) { w.as.meta["token_endpoint"] = "http://as.example/token" }, "not an https URL"},
		"no registration":         {func(w *world) { w.as.register = false }, "oauth.client_id"},
		"metadata absent":         {func(w *world) { w.as.metaAt = nil }, "has no metadata"},
		"odd method":              {func(w *world) { w.as.method = "private_key_jwt" }, "private_key_jwt"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c.prepare(w)
			_, err := w.call(w.nodes[0], w.ref("t", "agent"))
			e := wantCode(t, err, toolkeep.MCPError)
			if !strings.Contains(e.Message, c.says) || !e.NothingSent {
				t.Errorf("%s (nothing sent %v), want %q", e.Message, e.NothingSent, c.says)
			}
			if n := len(w.store.all(oauth.LoginKind)); n != 0 {
				t.Errorf("%d logins are kept", n)
			}
		})
	}
}

// A server must not make Toolkeep request inner addresses, wherever it names them.
func TestDiscoveryReachesNoInnerAddress(t *testing.T) {
	for name, prepare := range map[string]func(*world, string){
		"authorization server": func(w *world, inner string) { w.mcp.meta["authorization_servers"] = []string{inner} },
		"resource metadata":    func(w *world, inner string) { w.mcp.header = `Bearer resource_metadata="` + inner + `/x"` },
		"registration":         func(w *world, inner string) { w.as.meta["registration_endpoint"] = inner + "/register" },
		"redirect": func(w *world, inner string) {
			w.mcp.at = ""
			old := w.mcp.Config.Handler
			w.mcp.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/.well-known/oauth-protected-resource") {
					http.Redirect(rw, r, inner+"/meta", http.StatusFound)
					return
				}
				old.ServeHTTP(rw, r)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := egress.NewPool(egress.PoolConfig{})
			defer pool.Close()
			w := newWorld(t, func(c *oauth.Config) {
				c.Client = func(tenant string, allow []toolkeep.HostPort) *http.Client {
					return &http.Client{Transport: pool.Transport(tenant, egress.NewAllowList(allow))}
				}
			})
			asked := false
			inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
			defer inner.Close()
			prepare(w, inner.URL)
			r := w.ref("t", "agent")
			r.Network = []toolkeep.HostPort{hostPort(t, w.mcp.URL), hostPort(t, w.as.URL)}
			_, err := w.call(w.nodes[0], r)
			wantCode(t, err, toolkeep.DestinationForbidden)
			if asked {
				t.Error("the inner address was asked")
			}
		})
	}
}

func hostPort(t *testing.T, at string) (h toolkeep.HostPort) {
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	h.Host = u.Hostname()
	if _, err := fmt.Sscan(u.Port(), &h.Port); err != nil {
		t.Fatal(err)
	}
	return h
}

// A slow authorization server costs the waiting call its time, and the next call starts
// over.
func TestSlowDiscovery(t *testing.T) {
	w := newWorld(t, func(c *oauth.Config) { c.SetBeginTime(100 * time.Millisecond) })
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	w.mcp.meta["authorization_servers"] = []string{slow.URL}
	_, err := w.call(w.nodes[0], w.ref("t", "agent"))
	if e := wantCode(t, err, toolkeep.MCPError); !strings.Contains(e.Message, "in time") {
		t.Error(e.Message)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err = w.nodes[0].Login(ctx, w.ref("t", "agent"), &http.Response{StatusCode: 401, Header: http.Header{}})
	wantCode(t, err, toolkeep.Cancelled)
	w.mcp.set(func() { w.mcp.meta["authorization_servers"] = []string{w.as.issuer()} })
	wait(t, "the slow try has ended", func() bool {
		_, err := w.call(w.nodes[0], w.ref("t", "agent"))
		return toolkeep.IsCode(err, toolkeep.LoginRequired)
	})
}

// The three kinds of registration, and client authentication with a secret.
func TestClients(t *testing.T) {
	t.Run("metadata document", func(t *testing.T) {
		w := newWorld(t, nil)
		tls := httptest.NewTLSServer(w.public.Config.Handler)
		defer tls.Close()
		w.public.Close()
		w.public = tls
		w.as.fetch = tls.Client()
		w.as.meta["client_id_metadata_document_supported"] = true
		w.as.register = false
		w.logIn(w.nodes[0], w.ref("t", "agent"))
		if w.as.clients[tls.URL+oauth.MetadataPath] == nil {
			t.Error("another client was used")
		}
		w.as.revoke(false)
		w.clock.pass(time.Minute)
		if _, err := w.call(w.nodes[0], w.ref("t", "agent")); err != nil || w.as.refreshes.Load() != 1 {
			t.Errorf("refresh: %v", err)
		}
	})
	for _, method := range []string{"none", "client_secret_basic", "client_secret_post"} {
		for name, known := range map[string]bool{" named": true, " given": false} {
			t.Run("registered, "+method+name, func(t *testing.T) {
				w := newWorld(t, nil)
				if w.as.method = method; known {
					w.as.method, w.as.meta["token_endpoint_auth_methods_supported"] = "", []string{method}
				}
				w.logIn(w.nodes[0], w.ref("t", "agent"))
				w.as.revoke(false)
				w.clock.pass(time.Minute)
				if _, err := w.call(w.nodes[0], w.ref("t", "agent")); err != nil || w.as.refreshes.Load() != 1 {
					t.Errorf("refresh: %v", err)
				}
			})
		}
		t.Run("by hand, "+method, func(t *testing.T) {
			w := newWorld(t, nil)
			w.as.register = false
			c := &client{method: method, redirects: []string{w.public.URL + "/oauth/callback"}}
			r := w.ref("t", "agent")
			if r.ClientID = "our client"; method != "none" {
				c.secret = "pass word+/%"
				r.ClientSecret = func(context.Context) (string, error) { return w.as.clients["our client"].secret, nil }
			}
			w.as.clients["our client"] = c
			w.as.meta["token_endpoint_auth_methods_supported"] = []string{method}
			w.logIn(w.nodes[0], r)
			if method != "none" {
				w.as.set(func() { c.secret = "a new one" }) // the spec is updated at once
			}
			w.as.revoke(false)
			w.clock.pass(time.Minute)
			if _, err := w.call(w.nodes[0], r); err != nil || w.as.refreshes.Load() != 1 {
				t.Errorf("refresh: %v", err)
			}
		})
	}
}

// Scopes: those of the challenge, else those of the metadata, else only the spec's;
// offline_access if the server supports it.
func TestScopes(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*world)
		scopes  []string
		want    string
	}{
		"challenge": {func(w *world) {
			w.mcp.header, w.mcp.meta["scopes_supported"] = `Bearer scope="a b"`, []string{"c"}
		}, nil, "a b"},
		"metadata":   {func(w *world) { w.mcp.meta["scopes_supported"] = []string{"c", "d"} }, nil, "c d"},
		"definition": {func(w *world) { w.mcp.header = `Bearer scope="a b"` }, []string{"x"}, "x"},
		"none":       {func(*world) {}, nil, ""},
		"offline": {func(w *world) {
			w.mcp.header, w.as.meta["scopes_supported"] = `Bearer scope="a"`, []string{"offline_access", "z"}
		}, nil, "a offline_access"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c.prepare(w)
			r := w.ref("t", "agent")
			r.Scopes = c.scopes
			w.logIn(w.nodes[0], r)
			if got := strings.Join(w.as.families[0].scopes, " "); got != c.want {
				t.Errorf("asked for %q, want %q", got, c.want)
			}
		})
	}
}

// insufficient_scope leads to a login that keeps the granted scopes and adds the rest;
// if they are not granted, they are not requested again.
func TestStepUp(t *testing.T) {
	w := newWorld(t, nil)
	w.mcp.need, w.mcp.needMore, w.mcp.header = []string{"read"}, []string{"admin"}, `Bearer scope="read"`
	l, r := w.nodes[0], w.ref("t", "agent")
	w.logIn(l, r)
	_, err := w.callTo(l, r, r.URL+"/admin")
	if status, page := newBrowser(t, w).logIn(w.address(err)); status != 200 {
		t.Fatal(page)
	}
	for _, at := range []string{r.URL, r.URL + "/admin"} {
		if _, err := w.callTo(l, r, at); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	if got := strings.Join(w.as.families[1].scopes, " "); got != "read admin" {
		t.Errorf("the second login asked for %q", got)
	}

	w.as.set(func() { w.as.grants = []string{"read"} })
	w.mcp.set(func() { w.mcp.needMore = []string{"root"} })
	_, err = w.callTo(l, r, r.URL+"/admin")
	if status, page := newBrowser(t, w).logIn(w.address(err)); status != 200 {
		t.Fatal(page)
	}
	_, err = w.callTo(l, r, r.URL+"/admin")
	if e := wantCode(t, err, toolkeep.SecretAccessDenied); !strings.Contains(e.Message, "root") || !e.NothingSent {
		t.Error(e.Message, e.NothingSent)
	}
	if _, err := w.call(l, r); err != nil {
		t.Errorf("what the login gives stays usable: %v", err)
	}
	// A 403 for another reason is passed on.
	_, err = l.Challenge(context.Background(), r, "x", &http.Response{StatusCode: 403, Header: http.Header{}})
	wantCode(t, err, toolkeep.SecretAccessDenied)
}

// The callback must come from the server that was asked (RFC 9207).
func TestIssuerInTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		announced bool
		iss       func(w *world) []string
		ok        bool
	}{
		"as announced":        {true, func(w *world) []string { return []string{w.as.issuer()} }, true},
		"announced, missing":  {true, func(*world) []string { return nil }, false},
		"announced, another":  {true, func(*world) []string { return []string{"https://evil.example"} }, false},
		"announced, twice":    {true, func(w *world) []string { return []string{w.as.issuer(), "https://evil.example"} }, false},
		"unannounced, absent": {false, func(*world) []string { return nil }, true},
		"unannounced, wrong":  {false, func(*world) []string { return []string{"https://evil.example"} }, false},
		"with a slash more":   {true, func(w *world) []string { return []string{w.as.issuer() + "/"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.as.meta["authorization_response_iss_parameter_supported"] = c.announced
			w.as.iss = c.iss(w)
			status, page := newBrowser(t, w).logIn(w.wantLogin(w.nodes[0], w.ref("t", "agent")))
			if (status == 200) != c.ok || (w.as.exchanges.Load() == 1) != c.ok {
				t.Errorf("%d, %d exchanges: %s", status, w.as.exchanges.Load(), page)
			}
			if has := len(w.store.all(oauth.TokenKind)) == 1; has != c.ok {
				t.Errorf("a token is kept: %v", has)
			}
		})
	}
}

func TestCallback(t *testing.T) {
	type result struct {
		status int
		text   string
		lives  bool // the login can still be completed
		code   bool // the code was exchanged
	}
	for name, c := range map[string]struct {
		run  func(w *world, at string) (int, string)
		want result
	}{
		"denied": {func(w *world, at string) (int, string) {
			w.as.deny = true
			return newBrowser(w.t, w).logIn(at)
		}, result{403, "access_denied", false, false}},
		"wrong state": {func(w *world, at string) (int, string) {
			b := newBrowser(w.t, w)
			back, _ := url.Parse(b.until(at))
			q := back.Query()
			q.Set("state", q.Get("state")+"X")
			back.RawQuery = q.Encode()
			resp, page := b.do("GET", back.String())
			return resp.StatusCode, page
		}, result{410, "over", true, false}},
		"no state": {func(w *world, at string) (int, string) {
			resp, page := newBrowser(w.t, w).do("GET", w.public.URL+"/oauth/callback?code=x")
			return resp.StatusCode, page
		}, result{410, "over", true, false}},
		"another browser": {func(w *world, at string) (int, string) {
			resp, page := newBrowser(w.t, w).do("GET", newBrowser(w.t, w).until(at))
			return resp.StatusCode, page
		}, result{403, "Another browser", true, false}},
		// The authorization server's address, forwarded to a person who never saw the
		// login page.
		"page passed by": {func(w *world, at string) (int, string) {
			thief := newBrowser(w.t, w)
			thief.client.CheckRedirect = egress.NoRedirects
			resp, _ := thief.press(at)
			resp, page := newBrowser(w.t, w).do("GET", resp.Header.Get("Location"))
			return resp.StatusCode, page
		}, result{403, "Another browser", true, false}},
		"another site's form": {func(w *world, at string) (int, string) {
			resp, page := newBrowser(w.t, w).do("POST", at, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
			return resp.StatusCode, page
		}, result{403, "Another site", true, false}},
		"another site's form, older browser": {func(w *world, at string) (int, string) {
			resp, page := newBrowser(w.t, w).do("POST", at, "Origin", "null")
			return resp.StatusCode, page
		}, result{403, "Another site", true, false}},
		"twice": {func(w *world, at string) (int, string) {
			b := newBrowser(w.t, w)
			back := b.until(at)
			if resp, page := b.do("GET", back); resp.StatusCode != 200 {
				w.t.Fatal(page)
			}
			resp, page := b.do("GET", back)
			return resp.StatusCode, page
		}, result{410, "over", false, true}},
		"too late": {func(w *world, at string) (int, string) {
			b := newBrowser(w.t, w)
			back := b.until(at)
			w.clock.pass(time.Hour)
			resp, page := b.do("GET", back)
			return resp.StatusCode, page
		}, result{410, "over", false, false}},
		"page too late": {func(w *world, at string) (int, string) {
			w.clock.pass(time.Hour)
			resp, page := newBrowser(w.t, w).do("GET", at)
			return resp.StatusCode, page
		}, result{410, "over", false, false}},
		"no such login": {func(w *world, at string) (int, string) {
			resp, page := newBrowser(w.t, w).do("GET", w.public.URL+"/oauth/login/../../etc")
			return resp.StatusCode, page
		}, result{404, "", true, false}},
		"code of another": {func(w *world, at string) (int, string) {
			b := newBrowser(w.t, w)
			back, _ := url.Parse(b.until(at))
			q := back.Query()
			q.Set("code", "stolen")
			back.RawQuery = q.Encode()
			resp, page := b.do("GET", back.String())
			return resp.StatusCode, page
		}, result{403, "invalid_grant", false, true}},
		"script in the error": {func(w *world, at string) (int, string) {
			b := newBrowser(w.t, w)
			back, _ := url.Parse(b.until(at))
			q := back.Query()
			q.Del("code")
			q.Set("error", "<script>alert(1)</script>")
			back.RawQuery = q.Encode()
			resp, page := b.do("GET", back.String())
			return resp.StatusCode, page
		}, result{403, "&lt;script&gt;", false, false}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			at := w.wantLogin(w.nodes[0], w.ref("t", "agent"))
			status, page := c.run(w, at)
			if status != c.want.status || !strings.Contains(page, c.want.text) || strings.Contains(page, "<script>") {
				t.Errorf("%d: %s", status, page)
			}
			if got := w.as.exchanges.Load() > 0; got != c.want.code {
				t.Errorf("a code was exchanged: %v", got)
			}
			w.as.deny = false
			if !c.want.lives {
				if next := w.wantOrNot(); next == at {
					t.Error("the old login's address is given again")
				}
				return
			}
			if again := w.wantLogin(w.nodes[0], w.ref("t", "agent")); again != at {
				t.Error("who asks again gets another address")
			}
			if status, page := newBrowser(t, w).logIn(at); status != 200 {
				t.Errorf("the login could not be finished: %d %s", status, page)
			}
		})
	}
}

// wantOrNot returns the address of the account's next login, or "".
func (w *world) wantOrNot() string {
	_, err := w.call(w.nodes[0], w.ref("t", "agent"))
	if err == nil {
		return ""
	}
	return w.address(err)
}

// The page's text and the headers it sends.
func TestPage(t *testing.T) {
	w := newWorld(t, nil)
	w.mcp.header = `Bearer scope="mail.read"`
	r := w.ref("acme", `bot<b>"`)
	at := w.wantLogin(w.nodes[0], r)
	b := newBrowser(t, w)
	resp, page := b.do("GET", at, "Host", "evil.example", "X-Forwarded-Host", "evil.example")
	for _, want := range []string{"bot&lt;b&gt;", "acme", r.URL, w.as.issuer(), "mail.read", "Go on to " + strings.TrimPrefix(w.as.URL, "http://")} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q: %s", want, page)
		}
	}
	if strings.Contains(page, "evil") || strings.Contains(page, "state=") || strings.Contains(page, "code_challenge") {
		t.Errorf("the page says too much: %s", page)
	}
	if len(resp.Cookies()) != 0 {
		t.Error("looking at the page marks the browser")
	}
	for name, want := range map[string]string{
		"X-Frame-Options": "DENY", "Cache-Control": "no-store", "Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff", "Cross-Origin-Opener-Policy": "same-origin",
		"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	b.client.CheckRedirect = egress.NoRedirects
	resp, _ = b.press(at)
	if len(resp.Cookies()) != 1 || !resp.Cookies()[0].HttpOnly || resp.Cookies()[0].SameSite != http.SameSiteLaxMode {
		t.Errorf("cookies: %v", resp.Cookies())
	}
	if resp.Header.Get("Referrer-Policy") != "no-referrer" || !strings.HasPrefix(resp.Header.Get("Location"), w.as.URL+"/authorize?app=1") && !strings.Contains(resp.Header.Get("Location"), "app=1") {
		t.Errorf("leads on to %s", resp.Header.Get("Location"))
	}
	to, _ := url.Parse(resp.Header.Get("Location"))
	if got := to.Query().Get("redirect_uri"); got != w.public.URL+"/oauth/callback" {
		t.Errorf("comes back to %s", got)
	}
}

// Over https the cookie is bound to the host.
func TestCookieOverTLS(t *testing.T) {
	w := newWorld(t, nil)
	tls := httptest.NewTLSServer(w.public.Config.Handler)
	defer tls.Close()
	w.public.Close()
	w.public = tls
	at := w.wantLogin(w.nodes[0], w.ref("t", "agent"))
	b := newBrowser(t, w)
	b.client.CheckRedirect = egress.NoRedirects
	resp, _ := b.press(at)
	c := resp.Cookies()[0]
	if !strings.HasPrefix(c.Name, "__Host-") || !c.Secure || c.Path != "/" || c.Domain != "" {
		t.Errorf("%+v", c)
	}
}

// A login survives the node that began it, and its callback may reach any node.
func TestRestartAndOtherNodes(t *testing.T) {
	t.Run("restart", func(t *testing.T) {
		w := newWorld(t, nil)
		r := w.ref("t", "agent")
		b := newBrowser(t, w)
		back := b.until(w.wantLogin(w.nodes[0], r))
		w.nodes[0].Stop()
		w.leave(w.nodes[0])
		l := w.node()
		if resp, page := b.do("GET", back); resp.StatusCode != 200 {
			t.Fatal(page)
		}
		if _, err := w.call(l, r); err != nil {
			t.Fatal(err)
		}
		_, err := w.call(w.nodes[0], w.ref("t", "other"))
		wantCode(t, err, toolkeep.Draining)
	})
	t.Run("another node", func(t *testing.T) {
		w := newWorld(t, nil)
		r := w.ref("t", "agent")
		at := w.wantLogin(w.nodes[0], r)
		w.node()
		if status, page := newBrowser(t, w).logIn(at); status != 200 {
			t.Fatal(page)
		}
		for _, l := range w.nodes {
			if _, err := w.call(l, r); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a node without the feed", func(t *testing.T) {
		w := newWorld(t, nil)
		r := w.ref("t", "agent")
		at := w.wantLogin(w.nodes[0], r)
		w.leave(w.nodes[0])
		w.node()
		if status, page := newBrowser(t, w).logIn(at); status != 200 {
			t.Fatal(page)
		}
		if _, err := w.call(w.nodes[0], r); err != nil {
			t.Error(err)
		}
	})
}

// A repeated request gets the same address, whoever sends it; logins are bounded, and
// expired ones are removed.
func TestLoginsAreBounded(t *testing.T) {
	w := newWorld(t, func(c *oauth.Config) { c.SetMaxLogins(2) })
	l := w.nodes[0]
	at := make(chan string)
	for range 20 {
		go func() {
			_, err := w.call(l, w.ref("t", "a"))
			var e *toolkeep.Error
			errors.As(err, &e)
			at <- fmt.Sprint(e.Details["url"])
		}()
	}
	first := <-at
	for range 19 {
		if next := <-at; next != first {
			t.Errorf("%s, then %s", first, next)
		}
	}
	w.wantLogin(l, w.ref("t", "b"))
	_, err := w.call(l, w.ref("t", "c"))
	wantCode(t, err, toolkeep.RateLimitExceeded)
	w.clock.pass(11 * time.Minute)
	_, _ = w.call(l, w.ref("t", "c")) // notices that a sweep is due
	wait(t, "the old logins are gone", func() bool { return len(w.store.all(oauth.LoginKind)) == 0 })
	w.wantLogin(l, w.ref("t", "c"))
	if next := w.wantLogin(l, w.ref("t", "a")); next == first {
		t.Error("the address of a login that is over is given again")
	}
}

// The store fails at each step of a login: nothing is reported done that is not.
func TestStoreDownInALogin(t *testing.T) {
	w := newWorld(t, nil)
	l, r := w.nodes[0], w.ref("t", "agent")
	down := func(kind string) func(toolkeep.Change) error {
		return func(c toolkeep.Change) error {
			switch c := c.(type) {
			case toolkeep.PutDocument:
				if c.Document.Kind == kind {
					return errDown
				}
			case toolkeep.DeleteDocument:
				if c.Kind == kind {
					return errDown
				}
			}
			return nil
		}
	}
	w.store.hook(down(oauth.LoginKind))
	_, err := w.call(l, r)
	wantCode(t, err, toolkeep.RecordUnavailable)
	w.store.hook(nil)
	at := w.wantLogin(l, r)
	b := newBrowser(t, w)
	back := b.until(at)
	w.store.hook(down(oauth.LoginKind))
	if resp, page := b.do("GET", back); resp.StatusCode != 503 || w.as.exchanges.Load() != 0 {
		t.Errorf("%d %s", resp.StatusCode, page)
	}
	w.store.hook(nil)
	if resp, page := b.do("GET", back); resp.StatusCode != 200 {
		t.Errorf("the page was loaded again: %d %s", resp.StatusCode, page)
	}
	if err := l.Logout(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	w.store.hook(down(oauth.TokenKind))
	if status, page := newBrowser(t, w).logIn(w.wantLogin(l, r)); status != 503 || strings.Contains(page, "You are logged in") {
		t.Errorf("%d %s", status, page)
	}
	w.store.hook(nil)
	w.logIn(l, r)
	w.store.set(func() error { return errDown })
	_, err = l.Challenge(context.Background(), r, "x", &http.Response{StatusCode: 401, Header: http.Header{}})
	wantCode(t, err, toolkeep.RecordUnavailable)
	if _, err := w.call(l, r); err != nil {
		t.Errorf("a token that is known works without the store: %v", err)
	}
}

func (s *items) set(reading func() error) { s.mu.Lock(); defer s.mu.Unlock(); s.reading = reading }

// A server without login metadata requires no login.
func TestLoginNotWanted(t *testing.T) {
	w := newWorld(t, nil)
	w.mcp.at = ""
	if err := w.nodes[0].Login(context.Background(), w.ref("t", "agent"), nil); err != nil {
		t.Error(err)
	}
	w.mcp.at = "/.well-known/oauth-protected-resource/mcp"
	w.address(w.nodes[0].Login(context.Background(), w.ref("t", "agent"), nil))
}

// No secret of a login appears in the log, an error or a page, or unsealed in the
// store.
func TestSecrecy(t *testing.T) {
	w := newWorld(t, nil)
	w.as.method = "client_secret_post"
	var texts []string
	l, r := w.nodes[0], w.ref("t", "agent")
	note := func(err error) {
		for ; err != nil; err = errors.Unwrap(err) {
			texts = append(texts, err.Error())
		}
	}
	_, err := w.call(l, r)
	note(err)
	_, page := newBrowser(t, w).logIn(w.address(err))
	texts = append(texts, page)
	bodies := func() {
		for _, kind := range []string{oauth.TokenKind, oauth.LoginKind} {
			for _, it := range w.store.all(kind) {
				texts = append(texts, it.ID, string(it.Body))
			}
		}
	}
	bodies()
	w.wantLogin(l, w.ref("t", "second"))
	bodies()
	w.clock.pass(time.Hour)
	w.as.set(func() { w.as.broken = 500 }) // its text quotes the refresh token
	_, err = w.call(l, r)
	note(err)
	w.as.set(func() { w.as.broken = 0 })
	if _, err := w.call(l, r); err != nil {
		t.Fatal(err)
	}
	w.as.revoke(true)
	_, err = w.call(l, r)
	note(err)
	bodies()
	texts = append(texts, w.log.String())
	secrets := w.as.secrets()
	if len(secrets) < 6 {
		t.Fatalf("only %d secrets were made", len(secrets))
	}
	for _, s := range secrets {
		for _, text := range texts {
			if strings.Contains(text, s) {
				t.Errorf("%s is in: %s", s, text)
			}
		}
	}
	// If the token in use is echoed, it is redacted from what its person sees, also
	// when an agent calls on that person's behalf, and from the log.
	w.logIn(l, r)
	token, err := l.Token(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	echo := "echo " + token
	own := &toolkeep.Principal{Tenant: r.Tenant, Subject: r.Subject}
	behalf := &toolkeep.Principal{Tenant: r.Tenant, Subject: r.Subject, OnBehalf: "carol"}
	at := redact.URLHost(r.URL)
	if w.redact.For(own).From(at).Clean(echo) == echo || w.redact.For(behalf).From(at).Clean(echo) == echo || w.redact.Log().Clean(echo) == echo {
		t.Error("the bearer is not known to Redact")
	}
	if other := (&toolkeep.Principal{Tenant: r.Tenant, Subject: "other"}); w.redact.For(other).From(at).Clean(echo) != echo || w.redact.For(own).Clean(echo) != echo {
		t.Error("one person's token is known to all")
	}
}

func TestMetadataDocument(t *testing.T) {
	w := newWorld(t, nil)
	_, text := newBrowser(t, w).do("GET", w.public.URL+oauth.MetadataPath)
	var doc map[string]any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if doc["client_id"] != w.public.URL+oauth.MetadataPath || fmt.Sprint(doc["redirect_uris"]) != "["+w.public.URL+"/oauth/callback]" || doc["token_endpoint_auth_method"] != "none" {
		t.Error(text)
	}
}
