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

// together makes n calls at once, over all nodes in turn, and gives their errors.
func (w *world) together(n int, r oauth.Ref) []error {
	errs := make([]error, n)
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() { _, errs[i] = w.call(w.nodes[i%len(w.nodes)], r) })
	}
	work.Wait()
	return errs
}

// Fifty calls find the token at its end, by the clock or by a 401, on one node and
// on three: the refresh token is used once, of which the authorization server is
// strict, and every call succeeds.
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

// holdOne keeps the next request for a token waiting.
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

// A node that hears nothing of the feed still neither uses a refresh token twice
// nor ends the login of the one that won.
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

// While one node is at it, another waits, and takes over when the lease has ended:
// the first may be gone.
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
	// The second does not ask the authorization server, and its caller may give up.
	ctx, cancel := context.WithCancel(context.Background())
	waiting := make(chan error, 1)
	go func() { _, err := second.Token(ctx, r); waiting <- err }()
	select {
	case err := <-waiting:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(100 * time.Millisecond): // nothing is told apart by this but a failure
	}
	cancel()
	wantCode(t, <-waiting, toolkeep.Cancelled)
	if n := w.as.refreshes.Load(); n != 0 {
		t.Fatalf("%d refreshes", n)
	}
	w.clock.pass(time.Minute) // the lease is over
	if _, err := w.call(second, r); err != nil {
		t.Fatal(err)
	}
	// The late first finds its token used up and must not end the login.
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

// The call that began a refresh gives up, and the node stops: the refresh goes on
// and is kept, since its answer is the only one.
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

// A refused refresh token ends the login, for everybody who has it.
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

// A token without a refresh token ends when it ends.
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

// The authorization server is away: E3403 and the login stays; while the old token
// lives it is used.
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

// The store is away before a refresh: the refresh token is not used, for it could
// not be kept. It goes away during one: the node goes on with the new token and
// keeps it as soon as it can.
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

// A node whose new token the store did not take keeps it by itself, and a logout
// meanwhile is not undone by that.
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

// A logout during a refresh counts.
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

// A token is one principal's, one tenant's, at one server with one address.
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

	// A sealed token that is put in another's place does not open there.
	stolen := w.store.all(oauth.TokenKind)[0]
	stolen.Tenant = "t2"
	if err := w.store.Apply(context.Background(), toolkeep.PutDocument{Document: stolen, Expect: toolkeep.AnyRevision}); err != nil {
		t.Fatal(err)
	}
	if s, err := l.Token(context.Background(), second); s != "" || err != nil {
		t.Errorf("a moved token opens: %q, %v", s, err)
	}
}

// A server that is removed takes its tokens along: its owner's, or all tenants'.
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

// A server whose address changes gets no token of the old one, and one whose
// subject is long has its place.
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

// A token that is refused as soon as it came does not send the authorization
// server round and round: a login is offered.
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
