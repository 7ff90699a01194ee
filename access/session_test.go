package access

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// documents returns what a node reads of a kind when it starts.
func (m *memory) documents(_ context.Context, kind string) (docs []toolkeep.Document, seq int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.feed {
		if put, ok := c.Change.(toolkeep.PutDocument); ok && put.Document.Kind == kind {
			docs = append(docs, put.Document)
		}
	}
	return docs, int64(len(m.feed)), nil
}

// sessions are the nodes of a store, and a key with its text.
func sessions(t testing.TB, c *clock, nodes int) (all []*Access, key toolkeep.APIKey, text string, another func() *Access) {
	t.Helper()
	store := newMemory()
	sealer := must[*secret.Sealer](t)(secret.NewSealer())
	another = func() *Access {
		return open(t, Config{Store: store, Load: store.keys, Clock: c.Now, Signing: Signing{Sealer: sealer}, Sessions: Sessions{Life: 12 * time.Hour, Idle: 2 * time.Hour, Documents: store.documents}})
	}
	key, text = NewKey(toolkeep.APIKey{Tenant: "default", Subject: "ann", Roles: []string{Admin}}, c.Now())
	if err := store.Apply(t.Context(), toolkeep.PutKey{Key: key}); err != nil {
		t.Fatal(err)
	}
	for range nodes {
		all = append(all, another())
	}
	return all, key, text, another
}

func begin(t testing.TB, a *Access, text string) (cookie, token string) {
	t.Helper()
	p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "192.0.2.1"))
	cookie, token, _, err := a.BeginSession(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return cookie, token
}

// caughtUp waits until the nodes know what the store has.
func caughtUp(t testing.TB, all ...*Access) {
	t.Helper()
	for _, a := range all {
		if err := a.position.Await(t.Context(), a.config.Store); err != nil {
			t.Fatal(err)
		}
	}
}

// A session that began on one node is one on the others, until it is logged out on any, also on nodes that start later.
func TestSessionsOnNodes(t *testing.T) {
	t.Parallel()
	c := new(clock)
	all, _, text, another := sessions(t, c, 2)
	cookie, token := begin(t, all[0], text)
	p := must[*toolkeep.Principal](t)(all[1].AuthenticateSession(t.Context(), cookie, token, "192.0.2.1"))
	if p.Subject != "ann" || p.Console == nil || !p.Until.Equal(c.Now().Add(2*time.Hour)) || p.Method != "api_key" {
		t.Errorf("%+v", p)
	}
	kept, keptToken := begin(t, all[0], text)
	if err := all[1].EndSession(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	caughtUp(t, all...)
	for i, a := range append(all, another()) {
		is(t, second(a.AuthenticateSession(t.Context(), cookie, token, "")), toolkeep.Unauthenticated)
		is(t, second(a.Refresh(t.Context(), p)), toolkeep.Unauthenticated)
		if renewed, _ := a.RenewSession(cookie, token); renewed != "" {
			t.Errorf("node %d renews what has ended", i)
		}
		if _, err := a.AuthenticateSession(t.Context(), kept, keptToken, ""); err != nil {
			t.Errorf("node %d ended another session: %v", i, err)
		}
	}
	// A node with another sealing key knows neither, and holds it against no address.
	other, _, _, _ := sessions(t, c, 1)
	for range 300 {
		is(t, second(other[0].AuthenticateSession(t.Context(), kept, keptToken, "192.0.2.9")), toolkeep.Unauthenticated)
	}
	is(t, second(other[0].Authenticate(t.Context(), "", "192.0.2.9")), toolkeep.Unauthenticated)
}

// A session ends when it is not used, and at the latest after its life; use goes on from the renewed cookie.
func TestSessionsEndInTime(t *testing.T) {
	t.Parallel()
	c := new(clock)
	all, _, text, _ := sessions(t, c, 1)
	a := all[0]
	cookie, token := begin(t, a, text)
	c.pass(renewAfter - time.Second)
	if renewed, _ := a.RenewSession(cookie, token); renewed != "" {
		t.Error("it is renewed at once")
	}
	old := cookie
	for range 8 {
		c.pass(time.Hour + 20*time.Minute)
		renewed, life := a.RenewSession(cookie, token)
		if renewed == "" || renewed == cookie || life > 12*time.Hour {
			t.Fatalf("renewed %q for %s", renewed, life)
		}
		if none, _ := a.RenewSession(cookie, token+"x"); none != "" {
			t.Fatal("it is renewed without its token")
		}
		cookie = renewed
		if _, err := a.AuthenticateSession(t.Context(), cookie, token, ""); err != nil {
			t.Fatal(err)
		}
	}
	is(t, second(a.AuthenticateSession(t.Context(), old, token, "")), toolkeep.Unauthenticated) // idle for long
	p := must[*toolkeep.Principal](t)(a.AuthenticateSession(t.Context(), cookie, token, ""))
	c.pass(time.Hour + 20*time.Minute + time.Second) // 12 h in all
	is(t, second(a.AuthenticateSession(t.Context(), cookie, token, "")), toolkeep.Unauthenticated)
	is(t, second(a.Refresh(t.Context(), p)), toolkeep.Unauthenticated)

	idle, idleToken := begin(t, a, text)
	c.pass(2 * time.Hour)
	is(t, second(a.AuthenticateSession(t.Context(), idle, idleToken, "")), toolkeep.Unauthenticated)
}

func TestSessionsOfKeys(t *testing.T) {
	t.Parallel()
	c := new(clock)
	all, key, text, _ := sessions(t, c, 1)
	a := all[0]
	boss := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "192.0.2.1"))
	// What may have none.
	_, signedText, _, err := a.CreateSignedKey(t.Context(), boss, toolkeep.APIKey{Subject: "runtime", Roles: []string{Agent}})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*toolkeep.Principal{
		"signed":     must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), signedText, "")),
		"no key":     {Tenant: "default", Subject: "ann", Roles: []string{Admin}, Permissions: []string{"*"}, Method: MethodOAuth},
		"in a name":  {Tenant: "default", Subject: "ann", OnBehalf: "bob", KeyID: key.ID},
		"as another": {Tenant: "default", Subject: "bob", KeyID: key.ID},
	} {
		if _, _, _, err := a.BeginSession(t.Context(), p); !toolkeep.IsCode(err, toolkeep.PermissionDenied) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := a.MakeLink(p); !toolkeep.IsCode(err, toolkeep.PermissionDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A session ends with its key.
	made, bot, err := a.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "bot", Roles: []string{Agent}, ExpiresAt: c.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	cookie, token := begin(t, a, bot)
	if p := must[*toolkeep.Principal](t)(a.AuthenticateSession(t.Context(), cookie, token, "")); !p.Until.Equal(made.ExpiresAt) {
		t.Errorf("%+v", p)
	}
	link, _, err := a.MakeLink(must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), bot, "")))
	if err != nil {
		t.Fatal(err)
	}
	c.pass(LinkLife)
	if _, _, _, err := a.RedeemLink(t.Context(), link, ""); !strings.Contains(is(t, err, toolkeep.Unauthenticated).Message, "ten minutes") {
		t.Error(err)
	}
	c.pass(time.Hour - LinkLife)
	is(t, second(a.AuthenticateSession(t.Context(), cookie, token, "")), toolkeep.Unauthenticated)
	// Links that are none are guesses, and block their address.
	for range 150 {
		_, _, _, err = a.RedeemLink(t.Context(), "AAAA", "192.0.2.66")
	}
	is(t, err, toolkeep.AuthFailuresLimited)
	if _, _, _, err := a.RedeemLink(t.Context(), cookie, "192.0.2.67"); err == nil {
		t.Error("a session's cookie is a login link")
	}
}

// Logging in, using, renewing, logging out and rotating at once: an ended session is refused from when its end was told.
func TestSessionsAtOnce(t *testing.T) {
	t.Parallel()
	c := new(clock)
	all, _, text, _ := sessions(t, c, 2)
	boss := must[*toolkeep.Principal](t)(all[0].Authenticate(t.Context(), text, "192.0.2.1"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			a, b := all[i%2], all[(i+1)%2]
			for range 20 {
				made, own, err := a.CreateKey(t.Context(), boss, toolkeep.APIKey{Subject: "bot", Roles: []string{Agent}})
				if err != nil {
					t.Error(err)
					return
				}
				cookie, token := begin(t, a, own)
				p, err := b.AuthenticateSession(t.Context(), cookie, token, "192.0.2.1") // which waits for the key
				if err != nil {
					t.Error(err)
					return
				}
				c.pass(time.Millisecond)
				if i%3 == 0 {
					_, _, _, err = a.RotateKey(t.Context(), boss, made.ID, time.Hour)
				} else {
					err = a.EndSession(t.Context(), p)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := a.AuthenticateSession(t.Context(), cookie, token, "192.0.2.1"); !toolkeep.IsCode(err, toolkeep.Unauthenticated) {
					t.Errorf("after its end: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
