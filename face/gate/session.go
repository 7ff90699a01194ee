package gate

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// CSRFHeader goes with the cookie of a session on every request, reads too. A page of another origin can neither read the token
// nor send the header, so that the cookie alone is worth nothing: browsers send it to every port of a host.
const CSRFHeader = "X-Toolkeep-Csrf"

// sessionCookie is the name of the cookie over plain HTTP. Over HTTPS it has a prefix, with which browsers take it from this
// server alone.
const sessionCookie = "toolkeep_session"

// Sessions is what an Auth can do beside: name the caller by the session of a browser. E3214, E3810.
type Sessions interface {
	AuthenticateSession(ctx context.Context, cookie, token, addr string) (*toolkeep.Principal, error)
	// RenewSession returns the session's new cookie and how long it can last, "" where it needs none.
	RenewSession(cookie, token string) (renewed string, life time.Duration)
}

// proveSession is the prover of sessions, which are for REST alone. Another credential decides before it. E3214, E3810.
func (g *Gate) proveSession(ctx context.Context, s sender, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	by, ok := g.auth.(Sessions)
	if p != nil || !ok || s.session == "" {
		return p, nil
	}
	if s.csrf == "" {
		if s.certificate() != nil { // which may name the caller
			return nil, nil
		}
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the cookie of a session came without the header X-Toolkeep-CSRF; send both, or a key").
			With("reason", "CSRF_MISSING")
	}
	return by.AuthenticateSession(ctx, s.session, s.csrf, s.addr)
}

// base is the scheme and path under which browsers reach the server.
func (g *Gate) base() (secure bool, path string) {
	if g.baseURL == nil {
		return false, "/"
	}
	u, err := url.Parse(g.baseURL())
	if err != nil {
		return false, "/"
	}
	return u.Scheme == "https", strings.TrimRight(u.EscapedPath(), "/") + "/"
}

func (g *Gate) cookieName() string {
	switch secure, path := g.base(); {
	case !secure:
		return sessionCookie
	case path == "/":
		return "__Host-" + sessionCookie
	}
	return "__Secure-" + sessionCookie // __Host- demands the path /
}

// SessionCookie returns the value of Set-Cookie that gives a browser its session; "" takes it away.
func (g *Gate) SessionCookie(value string, life time.Duration) string {
	c := &http.Cookie{Name: g.cookieName(), Value: value, HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(life / time.Second)}
	if c.Secure, c.Path = g.base(); value == "" {
		c.MaxAge = -1
	}
	return c.String()
}

// session reads the cookie of a request's session and what goes with it, "" for none.
func (g *Gate) session(r *http.Request) (cookie, token string) {
	if r.Header["Cookie"] == nil {
		return "", ""
	}
	if all := r.CookiesNamed(g.cookieName()); len(all) > 0 {
		cookie = all[0].Value
	}
	if sent := r.Header[CSRFHeader]; len(sent) == 1 {
		token = sent[0]
	}
	return cookie, token
}

// RenewSession begins the idle time of a request's session again, in the headers of its answer.
func (g *Gate) RenewSession(h http.Header, r *http.Request) {
	by, ok := g.auth.(Sessions)
	if cookie, token := g.session(r); ok && token != "" && r.Header["Authorization"] == nil {
		if renewed, life := by.RenewSession(cookie, token); renewed != "" {
			h.Set("Set-Cookie", g.SessionCookie(renewed, life))
		}
	}
}
