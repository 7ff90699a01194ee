package oauth_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// together makes n concurrent calls, spread over all nodes, and returns their errors.
func (w *world) together(n int, r oauth.Ref) []error {
	errs := make([]error, n)
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() { _, errs[i] = w.call(w.nodes[i%len(w.nodes)], r) })
	}
	work.Wait()
	return errs
}

// Fifty calls find the token expired, by the clock or by a 401, on one node and on
// three: the refresh token is used once, which the authorization server enforces, and
// every call succeeds.
func TestOneRefresh(t *testing.T) {
	for name, nodes := range map[string]int{"one node": 1, "three nodes": 3} {
		for how, spoil := range map[string]func(*world){
			"expired": func(w *world) { w.clock.pass(time.Hour) },
			"refused": func(w *world) { w.clock.pass(time.Minute); w.as.revoke(false) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				w := newWorld(t, nil)
				w.as.strict = true
				for range nodes - 1 {
					w.node()
				}
				r := w.ref("t", "agent")
				w.logIn(w.nodes[0], r)
				for _, err := range w.together(nodes, r) { // all nodes know the token
					if err != nil {
						t.Fatal(err)
					}
				}
				for round := int64(1); round <= 3; round++ {
					spoil(w)
					for i, err := range w.together(50, r) {
						if err != nil {
							t.Fatalf("round %d, call %d: %v\n%s", round, i, err, w.log)
						}
					}
					if n := w.as.refreshes.Load(); n != round {
						t.Fatalf("%d refreshes in %d rounds", n, round)
					}
				}
				if w.as.families[0].dead {
					t.Error("a refresh token was used twice")
				}
			})
		}
	}
}

// holdOne blocks the next token request.
func (s *authServer) holdOne() (entered <-chan struct{}, leave func()) {
	in, out := make(chan struct{}), make(chan struct{})
	var taken atomic.Bool
	s.gate = func() {
		if taken.CompareAndSwap(false, true) {
			close(in)
			<-out
		}
	}
	leave = sync.OnceFunc(func() { close(out) })
	s.t.Cleanup(leave)
	return in, leave
}

// A node without the feed neither uses a refresh token twice nor ends the login of the
// node that won.
func TestRefreshWithoutTheFeed(t *testing.T) {
	w := newWorld(t, nil)
	w.as.strict = true
	deaf := w.node()
	r := w.ref("t", "agent")
	w.logIn(w.nodes[0], r)
	if _, err := w.call(deaf, r); err != nil {
		t.Fatal(err)
	}
	w.leave(deaf)
	w.clock.pass(time.Hour)
	if _, err := w.call(w.nodes[0], r); err != nil {
		t.Fatal(err)
	}
	if _, err := w.call(deaf, r); err != nil {
		t.Fatal(err)
	}
	if n := w.as.refreshes.Load(); n != 1 || w.as.families[0].dead {
		t.Errorf("%d refreshes, the family is dead: %v", n, w.as.families[0].dead)
	}
}

// While one node refreshes, another waits, and takes over when the lease has ended: the
// first may be gone.
func TestLease(t *testing.T) {
	w := newWorld(t, nil)
	r := w.ref("t", "agent")
	w.logIn(w.nodes[0], r)
	second := w.node()
	entered, leave := w.as.holdOne()
	w.clock.pass(time.Hour)
	first := make(chan error, 1)
	go func() { _, err := w.call(w.nodes[0], r); first <- err }()
	<-entered
	// The second does not contact the authorization server, and its caller may give up.
	ctx, cancel := context.WithCancel(context.Background())
	waiting := make(chan error, 1)
	go func() { _, err := second.Token(ctx, r); waiting <- err }()
	select {
	case err := <-waiting:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(100 * time.Millisecond): // too short a wait only weakens the test
	}
	cancel()
	wantCode(t, <-waiting, toolkeep.Cancelled)
	if n := w.as.refreshes.Load(); n != 0 {
		t.Fatalf("%d refreshes", n)
	}
	w.clock.pass(time.Minute) // the lease has ended
	if _, err := w.call(second, r); err != nil {
		t.Fatal(err)
	}
	// The late first node finds its token used and must not end the login.
	leave()
	if err := <-first; err != nil {
		t.Errorf("the late one: %v", err)
	}
	if len(w.store.all(oauth.TokenKind)) != 1 {
		t.Error("the late one ended the login")
	}
	if _, err := w.call(second, r); err != nil {
		t.Error(err)
	}
}

// The call that began a refresh gives up, and the node stops: the refresh completes and
// is stored, because its response comes only once.
func TestRefreshOutlivesItsCaller(t *testing.T) {
	w := newWorld(t, nil)
	r := w.ref("t", "agent")
	l := w.nodes[0]
	w.logIn(l, r)
	entered, leave := w.as.holdOne()
	w.clock.pass(time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan error, 1)
	go func() { _, err := l.Token(ctx, r); gone <- err }()
	<-entered
	cancel()
	wantCode(t, <-gone, toolkeep.Cancelled)
	stopped := make(chan struct{})
	go func() { l.Stop(); close(stopped) }()
	leave()
	<-stopped
	w.as.strict = true
	if _, err := w.call(w.node(), r); err != nil {
		t.Fatal(err)
	}
	if n := w.as.refreshes.Load(); n != 1 {
		t.Errorf("%d refreshes", n)
	}
}

// A refused refresh token ends the login for every node.
func TestInvalidGrant(t *testing.T) {
	w := newWorld(t, nil)
	second := w.node()
	r := w.ref("t", "agent")
	w.logIn(w.nodes[0], r)
	if _, err := w.call(second, r); err != nil {
		t.Fatal(err)
	}
	w.as.revoke(true)
	w.clock.pass(time.Hour)
	first := w.wantLogin(w.nodes[0], r)
	if len(w.store.all(oauth.TokenKind)) != 0 {
		t.Error("the token is still kept")
	}
	w.wantLogin(second, r)
	if status, page := newBrowser(t, w).logIn(first); status != 200 {
		t.Fatal(page)
	}
	if _, err := w.call(second, r); err != nil {
		t.Error(err)
	}
	if n := w.as.refreshes.Load(); n != 1 {
		t.Errorf("%d refreshes", n)
	}
}

// A token without a refresh token cannot be renewed.
func TestNoRefreshToken(t *testing.T) {
	w := newWorld(t, nil)
	r := w.ref("t", "agent")
	w.as.meta["token_endpoint"] = w.as.URL + "/plain-token"
	plain := w.as.Config.Handler
	w.as.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/plain-token" {
			plain.ServeHTTP(rw, q)
			return
		}
		w.as.set(func() { w.as.tokens["short"] = &family{person: "ann", resource: w.mcp.URL + "/mcp"} })
		writeJSON(rw, 200, map[string]any{"access_token": "short", "token_type": "bearer", "expires_in": 60})
	})
	w.logIn(w.nodes[0], r)
	w.clock.pass(40 * time.Second)
	if _, err := w.call(w.nodes[0], r); err != nil {
		t.Error(err)
	}
	w.clock.pass(time.Minute)
	w.as.revoke(true)
	w.wantLogin(w.nodes[0], r)
}

// The authorization server is down: E3403, and the login stays; the old token is used
// while it is valid.
func TestTemporaryFailure(t *testing.T) {
	w := newWorld(t, nil)
	l, r := w.nodes[0], w.ref("t", "agent")
	w.logIn(l, r)
	for _, status := range []int{500, 503, 429} {
		w.as.set(func() { w.as.broken = status })
		w.clock.pass(time.Hour - 10*time.Second)
		if _, err := w.call(l, r); err != nil {
			t.Errorf("%d, the token lives: %v", status, err)
		}
		w.clock.pass(20 * time.Second)
		_, err := w.call(l, r)
		if e := wantCode(t, err, toolkeep.SecretRetrievalFailed); !e.NothingSent || !e.Retryable {
			t.Errorf("%+v", e)
		}
		w.as.set(func() { w.as.broken = 0 })
		if _, err := w.call(l, r); err != nil {
			t.Fatalf("%d, after: %v", status, err)
		}
	}
}

// If the store is down before a refresh, the refresh token is not used, because the
// result could not be stored. If it goes down during one, the node uses the new token
// and stores it as soon as it can.
func TestStoreDownInARefresh(t *testing.T) {
	w := newWorld(t, nil)
	w.as.strict = true
	l, r := w.nodes[0], w.ref("t", "agent")
	w.logIn(l, r)
	w.clock.pass(time.Hour)
	w.store.hook(func(toolkeep.Change) error { return errDown })
	_, err := w.call(l, r)
	wantCode(t, err, toolkeep.RecordUnavailable)
	if n := w.as.refreshes.Load(); n != 0 {
		t.Fatalf("%d refreshes", n)
	}
	var puts atomic.Int64
	w.store.hook(func(toolkeep.Change) error {
		if puts.Add(1) > 1 {
			return errDown
		}
		return nil
	})
	if _, err := w.call(l, r); err != nil {
		t.Fatal(err)
	}
	if _, err := w.call(l, r); err != nil {
		t.Fatal(err)
	}
	w.store.hook(nil)
	second := w.node()
	if _, err := w.call(l, r); err != nil {
		t.Fatal(err)
	}
	if _, err := w.call(second, r); err != nil {
		t.Errorf("the other node has the new token: %v", err)
	}
	if n := w.as.refreshes.Load(); n != 1 {
		t.Errorf("%d refreshes", n)
	}
}

// A node whose new token could not be stored retries by itself, and does not undo a
// logout meanwhile.
func TestUnsavedToken(t *testing.T) {
	for name, logout := range map[string]bool{"kept later": false, "logged out": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			l, r := w.nodes[0], w.ref("t", "agent")
			w.logIn(l, r)
			w.clock.pass(time.Hour)
			var puts atomic.Int64
			w.store.hook(func(c toolkeep.Change) error {
				if _, put := c.(toolkeep.PutDocument); put && puts.Add(1) == 2 {
					return errDown
				}
				return nil
			})
			if _, err := w.call(l, r); err != nil {
				t.Fatal(err)
			}
			if logout {
				if err := l.Logout(context.Background(), r); err != nil {
					t.Fatal(err)
				}
				wait(t, "the node tried again", func() bool { return puts.Load() > 2 })
				w.wantLogin(l, r)
				return
			}
			before := w.store.all(oauth.TokenKind)[0].Revision
			wait(t, "it is kept", func() bool { return w.store.all(oauth.TokenKind)[0].Revision > before })
			if _, err := w.call(w.node(), r); err != nil || w.as.refreshes.Load() != 1 {
				t.Errorf("%v, %d refreshes", err, w.as.refreshes.Load())
			}
		})
	}
}

// A logout during a refresh takes effect.
func TestLogoutDuringARefresh(t *testing.T) {
	w := newWorld(t, nil)
	l, r := w.nodes[0], w.ref("t", "agent")
	w.logIn(l, r)
	entered, leave := w.as.holdOne()
	w.clock.pass(time.Hour)
	token := make(chan string, 1)
	go func() { s, _ := l.Token(context.Background(), r); token <- s }()
	<-entered
	if err := l.Logout(context.Background(), r); err != nil {
		t.Fatal(err)
	}
	leave()
	if s := <-token; s != "" {
		t.Errorf("a token after the logout: %q", s)
	}
	w.wantLogin(l, r)
}

// A token belongs to one principal, tenant, server and address.
func TestTokensStayApart(t *testing.T) {
	w := newWorld(t, nil)
	l := w.nodes[0]
	r := w.ref("t1", "agent")
	w.logIn(l, r)
	elsewhere := newResource(t, w.as)
	for name, other := range map[string]oauth.Ref{
		"subject": w.ref("t1", "agent2"), "tenant": w.ref("t2", "agent"), "prefix": w.ref("t1", "agen"),
		"server":         {Server: "crm2", URL: r.URL, Tenant: "t1", Subject: "agent"},
		"address":        {Server: r.Server, URL: elsewhere.URL + "/mcp", Tenant: "t1", Subject: "agent"},
		"path":           {Server: r.Server, URL: r.URL + "/x", Tenant: "t1", Subject: "agent"},
		"slash":          {Server: r.Server, URL: r.URL, Tenant: "t1", Subject: "x/agent"},
		"tenant's slash": {Server: r.Server, URL: r.URL, Tenant: "t1\x00crm", Subject: "agent"},
	} {
		if s, err := l.Token(context.Background(), other); s != "" || err != nil {
			t.Errorf("%s: %q, %v", name, s, err)
		}
		if s, err := w.node().Token(context.Background(), other); s != "" || err != nil {
			t.Errorf("%s, another node: %q, %v", name, s, err)
		}
	}
	// Two principals log in as two people.
	w.as.set(func() { w.as.person = "bob" })
	second := w.ref("t2", "agent")
	w.logIn(l, second)
	for ref, want := range map[*oauth.Ref]string{&r: "ann", &second: "bob"} {
		if who, err := w.call(l, *ref); err != nil || who != want {
			t.Errorf("%s acts as %q, want %q (%v)", ref.Tenant, who, want, err)
		}
	}
	if err := l.Logout(context.Background(), second); err != nil {
		t.Fatal(err)
	}
	if _, err := w.call(l, r); err != nil {
		t.Errorf("another's logout: %v", err)
	}
	w.wantLogin(l, second)

	// A sealed token copied to another item cannot be opened.
	stolen := w.store.all(oauth.TokenKind)[0]
	stolen.Tenant = "t2"
	if err := w.store.Apply(context.Background(), toolkeep.PutDocument{Document: stolen, Expect: toolkeep.AnyRevision}); err != nil {
		t.Fatal(err)
	}
	if s, err := l.Token(context.Background(), second); s != "" || err != nil {
		t.Errorf("a moved token opens: %q, %v", s, err)
	}
}

// Removing a server removes its tokens: its owner's, or all tenants'.
func TestRemove(t *testing.T) {
	w := newWorld(t, nil)
	l := w.nodes[0]
	one, two := w.ref("t1", "agent"), w.ref("t2", "agent")
	longer := w.ref("t1", "agent")
	longer.Server = "crm2"
	for _, r := range []oauth.Ref{one, two, longer} {
		w.logIn(l, r)
	}
	for owner, gone := range map[string]oauth.Ref{"t1": one, "": two} {
		if err := l.Remove(context.Background(), "crm", owner); err != nil {
			t.Fatal(err)
		}
		if s, err := l.Token(context.Background(), gone); s != "" || err != nil {
			t.Errorf("%q: %q, %v", owner, s, err)
		}
	}
	if _, err := w.call(l, longer); err != nil {
		t.Errorf("another server's: %v", err)
	}
}

// A server whose address changed gets no token of the old address, and a long subject
// still fits.
func TestAddressChanges(t *testing.T) {
	w := newWorld(t, nil)
	l := w.nodes[0]
	long := make([]byte, 600)
	for i := range long {
		long[i] = 'a' + byte(i%26)
	}
	r := w.ref("t", string(long))
	w.logIn(l, r)
	moved := newResource(t, w.as)
	other := r
	other.URL = moved.URL + "/mcp"
	at := w.wantLogin(l, other)
	if status, page := newBrowser(t, w).logIn(at); status != 200 {
		t.Fatal(page)
	}
	if _, err := w.call(l, other); err != nil {
		t.Error(err)
	}
	if s, err := l.Token(context.Background(), r); s != "" || err != nil {
		t.Errorf("the old address still has a token: %q, %v", s, err)
	}
}

// A token that is refused immediately does not cause endless refreshes: a login is
// offered.
func TestRefusedAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	l, r := w.nodes[0], w.ref("t", "agent")
	w.logIn(l, r)
	w.as.revoke(false)
	w.clock.pass(time.Minute)
	w.mcp.set(func() { w.mcp.meta["resource"] = w.mcp.URL + "/mcp" })
	if _, err := w.call(l, r); err != nil {
		t.Fatal(err)
	}
	w.as.revoke(false)
	w.wantLogin(l, r)
	if n := w.as.refreshes.Load(); n != 1 {
		t.Errorf("%d refreshes", n)
	}
}
