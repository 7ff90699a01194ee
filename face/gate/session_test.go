package gate

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// sessionAuth knows one key and one session.
type sessionAuth struct{}

func (sessionAuth) Authenticate(_ context.Context, bearer, _ string) (*toolkeep.Principal, error) {
	if bearer != "key" {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "no API key was sent")
	}
	return &toolkeep.Principal{Subject: "of the key"}, nil
}

func (sessionAuth) AuthenticateSession(_ context.Context, cookie, token, _ string) (*toolkeep.Principal, error) {
	if cookie != "sealed" || token != "token" {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "over")
	}
	return &toolkeep.Principal{Subject: "of the session"}, nil
}

func (sessionAuth) RenewSession(cookie, token string) (string, time.Duration) {
	if cookie == "sealed" && token == "token" {
		return "again", time.Hour
	}
	return "", 0
}

func TestSessionCookie(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"":                          "toolkeep_session=v; Path=/; Max-Age=3600; HttpOnly; SameSite=Strict",
		"http://127.0.0.1:8080":     "toolkeep_session=v; Path=/; Max-Age=3600; HttpOnly; SameSite=Strict",
		"http://x.example/tools/":   "toolkeep_session=v; Path=/tools/; Max-Age=3600; HttpOnly; SameSite=Strict",
		"https://x.example":         "__Host-toolkeep_session=v; Path=/; Max-Age=3600; HttpOnly; Secure; SameSite=Strict",
		"https://x.example/a/tools": "__Secure-toolkeep_session=v; Path=/a/tools/; Max-Age=3600; HttpOnly; Secure; SameSite=Strict",
	} {
		g := New(Config{Auth: sessionAuth{}, BaseURL: func() string { return base }})
		if got := g.SessionCookie("v", time.Hour); got != want {
			t.Errorf("%q: %s, want %s", base, got, want)
		}
		if gone := g.SessionCookie("", 0); !strings.Contains(gone, "Max-Age=0") || !strings.HasPrefix(gone, g.cookieName()+"=;") {
			t.Errorf("%q: %s", base, gone)
		}
		// Only the cookie by the name of this server's address is taken.
		for _, name := range []string{"toolkeep_session", "__Host-toolkeep_session", "__Secure-toolkeep_session"} {
			r := httptest.NewRequest(http.MethodGet, "http://x/api/v1/tools", nil)
			r.Header.Set("Cookie", name+"=sealed")
			r.Header.Set("X-Toolkeep-CSRF", "token")
			if _, err := g.AuthenticateHTTP(r); (err == nil) != strings.HasPrefix(want, name+"=") {
				t.Errorf("%q: %s: %v", base, name, err)
			}
		}
	}
}

func TestSessionAmongCredentials(t *testing.T) {
	t.Parallel()
	g := New(Config{Auth: sessionAuth{}})
	const cookie = "toolkeep_session=sealed"
	for name, x := range map[string]struct {
		path, cookie, token, bearer, want string
		renewed                           bool
	}{
		"both":               {"/api/v1/tools", cookie, "token", "", "of the session", true},
		"beside a key":       {"/api/v1/tools", cookie, "token", "Bearer key", "of the key", false},
		"beside a wrong key": {"/api/v1/tools", cookie, "token", "Bearer x", "", false},
		"no header":          {"/api/v1/tools", cookie, "", "", "", false},
		"wrong header":       {"/api/v1/tools", cookie, "other", "", "", false},
		"no cookie":          {"/api/v1/tools", "", "token", "", "", false},
		"mcp":                {"/mcp", cookie, "token", "", "", true},
		"mcp, below":         {"/mcp/sets/a", cookie, "token", "", "", true},
		"a key over mcp":     {"/mcp", cookie, "token", "Bearer key", "of the key", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "http://x"+x.path, nil)
			for header, value := range map[string]string{"Cookie": x.cookie, "X-Toolkeep-CSRF": x.token, "Authorization": x.bearer} {
				if value != "" {
					r.Header.Set(header, value)
				}
			}
			p, err := g.AuthenticateHTTP(r)
			if got := ""; err == nil {
				if got = p.Subject; got != x.want {
					t.Errorf("it is %q, want %q", got, x.want)
				}
			} else if x.want != "" || !toolkeep.IsCode(err, toolkeep.Unauthenticated) {
				t.Error(err)
			}
			h := http.Header{}
			if g.RenewSession(h, r); (h.Get("Set-Cookie") != "") != x.renewed {
				t.Errorf("renewed: %v", h)
			}
		})
	}
	r := httptest.NewRequest(http.MethodGet, "http://x/api/v1/tools", nil)
	r.Header.Set("Cookie", cookie)
	r.Header["X-Toolkeep-Csrf"] = []string{"token", "token"}
	if _, err := g.AuthenticateHTTP(r); err == nil {
		t.Error("two tokens are taken")
	}
}
