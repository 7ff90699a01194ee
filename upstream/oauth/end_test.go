package oauth_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// A token is renewed 30 s before its end, or at half its life where that is shorter: a
// short one is not renewed at every call.
func TestRenewalTime(t *testing.T) {
	for name, tt := range map[string]struct {
		life        int
		keeps, goes time.Duration // after the token was issued
	}{
		"20 s": {20, 9 * time.Second, 11 * time.Second},
		"50 s": {50, 24 * time.Second, 26 * time.Second},
		"1 h":  {3600, 3560 * time.Second, 3575 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.as.expires = tt.life
			l, r := w.nodes[0], w.ref("t", "agent")
			w.logIn(l, r)
			token := func() string {
				s, err := l.Token(context.Background(), r)
				if err != nil || s == "" {
					t.Fatal(s, err)
				}
				return s
			}
			first := token()
			w.clock.pass(tt.keeps)
			if token() != first || w.as.refreshes.Load() != 0 {
				t.Errorf("renewed after %s of %d s", tt.keeps, tt.life)
			}
			w.clock.pass(tt.goes - tt.keeps)
			if token() == first || w.as.refreshes.Load() != 1 {
				t.Errorf("not renewed after %s of %d s", tt.goes, tt.life)
			}
		})
	}
}

// A logout revokes the tokens where the authorization server has an endpoint for it, and
// ends the login here whatever that answers.
func TestLogoutRevokes(t *testing.T) {
	for name, tt := range map[string]struct {
		endpoint string
		status   int
		revoked  bool
		logged   bool
	}{
		"revoked":       {"/revoke", http.StatusOK, true, false},
		"refused":       {"/revoke", http.StatusServiceUnavailable, true, true},
		"no endpoint":   {"", http.StatusOK, false, false},
		"not an https":  {"ftp://example.com/revoke", http.StatusOK, false, true},
		"nobody's home": {"http://127.0.0.1:1/revoke", http.StatusOK, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			l, r := w.nodes[0], w.ref("t", "agent")
			w.as.set(func() {
				w.as.revokes = tt.status
				if at := tt.endpoint; strings.HasPrefix(at, "/") {
					w.as.meta["revocation_endpoint"] = w.as.URL + at
				} else if at != "" {
					w.as.meta["revocation_endpoint"] = at
				}
			})
			w.logIn(l, r)
			access, err := l.Token(context.Background(), r)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Logout(context.Background(), r); err != nil {
				t.Fatal(err)
			}
			w.as.mu.Lock()
			revoked := slices.Clone(w.as.revoked)
			w.as.mu.Unlock()
			if tt.revoked != (len(revoked) == 2 && strings.HasPrefix(revoked[0], "refresh_token ") && revoked[1] == "access_token "+access) || !tt.revoked && len(revoked) > 0 {
				t.Errorf("revoked: %q", revoked)
			}
			if got := strings.Contains(w.log.String(), "was not revoked"); got != tt.logged {
				t.Errorf("logged %t: %s", got, w.log)
			}
			if s, err := l.Token(context.Background(), r); s != "" || err != nil {
				t.Errorf("a token after the logout: %q, %v", s, err)
			}
			if err := l.Logout(context.Background(), r); err != nil {
				t.Errorf("once more: %v", err)
			}
		})
	}
}

// A pending login ends in its time without another one being begun, and with the
// registration of its server.
func TestPendingLoginEnds(t *testing.T) {
	for name, end := range map[string]func(*world, *oauth.Logins, oauth.Ref){
		"its time is over": func(w *world, _ *oauth.Logins, _ oauth.Ref) { w.clock.pass(time.Minute) },
		"the server is removed": func(_ *world, l *oauth.Logins, r oauth.Ref) {
			if err := l.Remove(context.Background(), r.Server, r.Tenant); err != nil {
				t.Error(err)
			}
		},
		"the server moved": func(_ *world, l *oauth.Logins, r oauth.Ref) {
			if err := l.EndLogins(context.Background(), r.Server, r.Tenant, "https://elsewhere.example/mcp"); err != nil {
				t.Error(err)
			}
		},
		"another registration asks": func(w *world, l *oauth.Logins, r oauth.Ref) {
			r.ClientID = "another-client"
			w.wantLogin(l, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *oauth.Config) { c.SetLoginTime(time.Minute) })
			if strings.HasPrefix(name, "its time") {
				w = newWorld(t, func(c *oauth.Config) { c.SetLoginTime(20 * time.Millisecond) })
			}
			l, r := w.nodes[0], w.ref("t", "agent")
			at := w.wantLogin(l, r)
			id := at[strings.LastIndex(at, "/")+1:]
			for _, keep := range []oauth.Ref{{Server: "other", Tenant: r.Tenant}, {Server: r.Server, Tenant: "other"}} {
				if err := l.EndLogins(context.Background(), keep.Server, keep.Tenant, ""); err != nil {
					t.Error(err)
				}
			}
			if err := l.EndLogins(context.Background(), r.Server, "", r.URL); err != nil {
				t.Error(err)
			}
			pending := func() bool {
				return slices.ContainsFunc(w.store.all(oauth.LoginKind), func(d toolkeep.Document) bool { return d.ID == id })
			}
			if !pending() && !strings.HasPrefix(name, "its time") {
				t.Fatal("it ended with another server's registration")
			}
			end(w, l, r)
			wait(t, "the login is gone", func() bool { return !pending() })
			if resp, page := newBrowser(t, w).do("GET", at); resp.StatusCode == http.StatusOK {
				t.Errorf("its page is shown: %s", page)
			}
		})
	}
}
