package tokenexchange

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// rotating answers each refresh token that is the newest of its client with the next one.
func rotating(t *testing.T) *server {
	newest := map[string]string{}
	return newServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		client, refresh := r.PostForm.Get("client_id"), r.PostForm.Get("refresh_token")
		if now, ok := newest[client]; ok && refresh != now {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
			return
		}
		newest[client] = fmt.Sprintf("%s-%d", client, n)
		fmt.Fprintf(w, `{"access_token":"token-of-%s-%d","refresh_token":%q,"expires_in":3600}`, client, n, newest[client])
	})
}

func refreshSecret(client, refresh string) string {
	return fmt.Sprintf(`{"client_id":%q,"refresh_token":%q}`, client, refresh)
}

// TestOnlyCopy: neither callers' tokens nor others push out a refresh token that is not stored. One that is stored goes
// like any other.
func TestOnlyCopy(t *testing.T) {
	for name, store := range map[string]func(m *Minter, rotated string){
		"not stored":                         nil,
		"stored":                             func(m *Minter, rotated string) { m.Stored("acme", rotated) },
		"stored, as its next use shows":      func(*Minter, string) {},
		"stored by another tenant, the same": func(m *Minter, rotated string) { m.Stored("other", rotated) },
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newMinter(t, func(c *Config) { c.kept = 3 })
			s, plainTokens := rotating(t), newServer(t, tokens)
			a := newAuthority(t, "https://login.example", "tk:hush", c.Now)
			spec := toolkeep.AuthSpec{Type: Refresh, TokenURL: s.URL}
			first, rotated := mint(t, m, spec, refreshSecret("c", "r0"), false)
			if rotated == "" {
				t.Fatal("it is not rotated")
			}
			if store != nil {
				store(m, rotated)
			}
			if name == "stored, as its next use shows" {
				mint(t, m, spec, refreshSecret("c", rotated), false)
			}
			stays := name == "not stored" || name == "stored by another tenant, the same"
			for i := range 10 {
				token, end := a.person("p"+strconv.Itoa(i), nil)
				if _, _, err := m.Mint(t.Context(), caller("acme", "p", token, end), loopback, exchangeSpec(a.URL, nil), "tk:hush", false); err != nil {
					t.Fatal(err)
				}
				mint(t, m, credentials(plainTokens), "c:"+strconv.Itoa(i), false)
			}
			v, _, err := m.Mint(t.Context(), acme, loopback, spec, refreshSecret("c", "r0"), false)
			switch {
			case stays && (err != nil || v.Text() != first):
				t.Errorf("%q %v, want %s", v.Text(), err, first)
			case !stays && codeOf(err) != toolkeep.SecretAccessDenied:
				t.Errorf("%q %v", v.Text(), err)
			}
			if !stays {
				return
			}
			c.add(2 * time.Hour)
			if next, _ := mint(t, m, spec, refreshSecret("c", "r0"), false); next == first {
				t.Errorf("%s again", next)
			}
		})
	}
}

// TestOnlyCopies: over the limit of refresh tokens that are not stored, one more is refused before anything is sent, and
// those that are there serve.
func TestOnlyCopies(t *testing.T) {
	m, _ := newMinter(t, func(c *Config) { c.kept = 3 })
	s := rotating(t)
	spec := toolkeep.AuthSpec{Type: Refresh, TokenURL: s.URL}
	last := ""
	for i := range 3 {
		_, last = mint(t, m, spec, refreshSecret("c"+strconv.Itoa(i), "r0"), false)
	}
	before := s.requests.Load()
	_, _, err := m.Mint(t.Context(), acme, loopback, spec, refreshSecret("d", "r0"), false)
	if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.SecretRetrievalFailed || !e.NothingSent || s.requests.Load() != before {
		t.Fatalf("%v, %d requests", err, s.requests.Load()-before)
	}
	mint(t, m, spec, refreshSecret("c0", "r0"), true)
	m.Stored("acme", last)
	mint(t, m, spec, refreshSecret("d", "r0"), false)
}

// TestUnderWay: a request in progress is shared however many other tokens are asked for meanwhile.
func TestUnderWay(t *testing.T) {
	m, _ := newMinter(t, func(c *Config) { c.kept = 3 })
	begun, goOn := make(chan struct{}), make(chan struct{})
	slow := newServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
		begun <- struct{}{}
		<-goOn
		tokens(w, r, n)
	})
	fast := newServer(t, tokens)
	var wg sync.WaitGroup
	ask := func() {
		if v, _, err := m.Mint(t.Context(), acme, loopback, credentials(slow), plain, false); err != nil || v.Text() != "token-1" {
			t.Errorf("%q %v", v.Text(), err)
		}
	}
	wg.Go(ask)
	<-begun
	for i := range 10 {
		mint(t, m, credentials(fast), "c:"+strconv.Itoa(i), false)
	}
	wg.Go(ask)
	for { // until it waits too
		m.mu.Lock()
		n := m.waiting
		m.mu.Unlock()
		if n == 2 {
			break
		}
		select {
		case <-begun:
			t.Error("a second request")
			goOn <- struct{}{}
		case <-time.After(time.Millisecond):
		}
	}
	close(goOn)
	wg.Wait()
	if n := slow.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// TestCallersGo: nothing is kept of a refused exchange, nor of a token that has ended.
func TestCallersGo(t *testing.T) {
	m, c := newMinter(t, nil)
	a := newAuthority(t, "https://login.example", "tk:hush", c.Now)
	ask := func(name string) error {
		token, end := a.person(name, nil)
		_, _, err := m.Mint(t.Context(), caller("acme", name, token, end), loopback, exchangeSpec(a.URL, nil), "tk:hush", false)
		return err
	}
	held := func() int {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.holders)
	}
	a.fail("access_denied")
	for i := range 5 {
		if ask(strconv.Itoa(i)) == nil {
			t.Error("it is not refused")
		}
	}
	if n := held(); n != 0 {
		t.Errorf("%d are kept of refused exchanges", n)
	}
	a.fail("")
	for i := range 5 {
		if err := ask(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := held(); n != 5 {
		t.Errorf("%d are kept", n)
	}
	c.add(2 * time.Hour)
	if err := ask("next"); err != nil {
		t.Fatal(err)
	}
	if n := held(); n != 1 {
		t.Errorf("%d are kept after the others' end", n)
	}
}
