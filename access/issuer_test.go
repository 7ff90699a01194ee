package access

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/jwt"
)

// quickly runs a test in a synctest bubble, where hours pass at once.
func quickly(t *testing.T, f func(t *testing.T, s *authServer, a *Access)) {
	t.Helper()
	testKeys()
	synctest.Test(t, func(t *testing.T) {
		s := &authServer{url: "https://issuer.example"}
		s.publish(jwkOf(t, "rsa", nil))
		c := s.config()
		c.Client = &http.Client{Transport: s}
		a := open(t, Config{OAuth: c})
		f(t, s, a)
		a.Stop()
	})
}

func (s *authServer) lasting(t *testing.T) string {
	return s.token(t, map[string]any{"exp": time.Now().Add(1000 * time.Hour).Unix()})
}

func TestIssuerDown(t *testing.T) {
	quickly(t, func(t *testing.T, s *authServer, a *Access) {
		bearer := s.lasting(t)
		must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), bearer, addr))
		time.Sleep(35 * time.Minute) // on the bubble's clock
		if n := s.fetches.Load(); n != 4 {
			t.Errorf("the keys were fetched %d times in 35 minutes", n)
		}
		s.set(func() { s.down = true })
		time.Sleep(23 * time.Hour)
		if err := a.OAuthHealth(t.Context()); err == nil || !strings.Contains(err.Error(), "used until") || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("health: %v", err)
		}
		must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), bearer, addr)) // with the last fetched keys
		other := signed(t, map[string]any{"alg": "RS256", "kid": "rsa2"}, s.claims(map[string]any{"exp": time.Now().Add(time.Hour).Unix()}), "rsa2")
		e := is(t, second(a.Authenticate(t.Context(), other, addr)), toolkeep.RegistryUnavailable)
		if e.RetryAfter <= 0 {
			t.Errorf("%+v", e)
		}
		time.Sleep(2 * time.Hour)
		is(t, second(a.Authenticate(t.Context(), bearer, addr)), toolkeep.RegistryUnavailable)
		if err := a.OAuthHealth(t.Context()); err == nil || !strings.Contains(err.Error(), "every token is refused") {
			t.Errorf("health: %v", err)
		}
		s.set(func() { s.down = false })
		time.Sleep(longestFailWait)
		must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), bearer, addr))
		if err := a.OAuthHealth(t.Context()); err != nil {
			t.Errorf("health: %v", err)
		}
	})
}

// TestIssuerDownAtStart: the server starts, tokens wait, API keys work.
func TestIssuerDownAtStart(t *testing.T) {
	testKeys()
	synctest.Test(t, func(t *testing.T) {
		s := &authServer{url: "https://issuer.example", down: true}
		s.publish(jwkOf(t, "rsa", nil))
		c := s.config()
		c.Client = &http.Client{Transport: s}
		key, text := NewKey(toolkeep.APIKey{Tenant: "acme", Subject: "bob", Roles: []string{Agent}}, time.Now())
		a := open(t, Config{OAuth: c}, key)
		bearer := s.lasting(t)
		is(t, second(a.Authenticate(t.Context(), bearer, addr)), toolkeep.RegistryUnavailable)
		must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, addr))
		for range 200 { // an issuer outage blocks no caller
			is(t, second(a.Authenticate(t.Context(), bearer, addr)), toolkeep.RegistryUnavailable)
		}
		s.set(func() { s.down = false })
		time.Sleep(31 * time.Second)
		must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), bearer, addr))
		a.Stop()
		a.Stop()
	})
}

// TestIssuerHangs: a request does not wait longer than its own context.
func TestIssuerHangs(t *testing.T) {
	s := listen(t)
	hold := make(chan struct{})
	s.set(func() { s.hold = hold })
	a := open(t, Config{OAuth: s.config(), Clock: (&clock{}).Now})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is(t, second(a.Authenticate(ctx, s.token(t, nil), addr)), toolkeep.RegistryUnavailable)
	if err := a.OAuthHealth(t.Context()); err == nil {
		t.Error("health knows nothing of it")
	}
	close(hold)
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), s.token(t, nil), addr))
}

func TestIssuerAnswers(t *testing.T) {
	big := `{"keys":[` + strings.Repeat(" ", maxKeysBody) + `]}`
	many := `{"keys":[` + strings.TrimSuffix(strings.Repeat(`{"kty":"oct","k":"AA"},`, jwt.MaxKeys+1), ",") + `]}`
	for name, c := range map[string]struct {
		change func(*authServer)
		says   string
	}{
		"only OpenID's metadata":  {func(s *authServer) { s.oidcOnly = true }, ""},
		"metadata of another":     {func(s *authServer) { s.metadata = map[string]any{"issuer": "https://evil.example"} }, `"https://evil.example"`},
		"keys by plain http":      {func(s *authServer) { s.metadata = map[string]any{"jwks_uri": "http://issuer.example/keys"} }, "jwks_uri"},
		"no place of keys":        {func(s *authServer) { s.metadata = map[string]any{"jwks_uri": nil} }, "jwks_uri"},
		"too large":               {func(s *authServer) { s.body = big }, "more than 1048576 bytes"},
		"too many keys":           {func(s *authServer) { s.body = many }, "key set"},
		"no JSON":                 {func(s *authServer) { s.body = "<html>" }, "key set"},
		"no key that can be used": {func(s *authServer) { s.body = `{"keys":[{"kty":"oct","k":"AAAA","kid":"rsa"}]}` }, "none of its 1 keys"},
		"no keys":                 {func(s *authServer) { s.body = `{"keys":[]}` }, "none of its 0 keys"},
		"an error":                {func(s *authServer) { s.down = true }, "answers 502"},
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t)
			c.change(s)
			a := open(t, Config{OAuth: s.config(), Clock: (&clock{}).Now})
			_, err := a.Authenticate(t.Context(), s.token(t, nil), addr)
			health := a.OAuthHealth(t.Context())
			if c.says == "" {
				if err != nil || health != nil {
					t.Errorf("%v, %v", err, health)
				}
				return
			}
			is(t, err, toolkeep.RegistryUnavailable)
			if health == nil || !strings.Contains(health.Error(), c.says) {
				t.Errorf("health: %v, want %q", health, c.says)
			}
		})
	}
	t.Run("a redirect", func(t *testing.T) {
		s := listen(t)
		srv := httptest.NewServer(http.RedirectHandler(s.url+"/keys", http.StatusFound))
		t.Cleanup(srv.Close)
		c := s.config()
		c.JWKSURL = srv.URL
		a := open(t, Config{OAuth: c, Clock: (&clock{}).Now})
		is(t, second(a.Authenticate(t.Context(), s.token(t, nil), addr)), toolkeep.RegistryUnavailable)
		if err := a.OAuthHealth(t.Context()); err == nil || !strings.Contains(err.Error(), "answers 302") {
			t.Errorf("health: %v", err)
		}
	})
}
