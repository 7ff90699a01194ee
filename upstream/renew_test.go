//go:build linux

package upstream

import (
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// slowCall takes 2.4 s and ends with "ok".
func slowCall() *Request {
	r := toolCall(alice(), "slow-progress", "")
	r.Params = mcp.Set(r.Params, []byte(`1`), "_meta", "progressToken")
	r.Peer = &listener{}
	return r
}

// TestRenewEndsNoCall: an idle session ends at once; one in use ends with its last call, and new
// calls, also of a downstream session that is bound to it, go to a new one.
func TestRenewEndsNoCall(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	if err := s.Renew("acme", "none"); !toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
		t.Errorf("%v", err)
	}
	pid := func() string { t.Helper(); return call(t, s, toolCall(alice(), "pid", "")) }
	renew := func() {
		t.Helper()
		if err := s.Renew("acme", "s"); err != nil {
			t.Fatal(err)
		}
	}
	idle := pid()
	renew()
	eventually(t, "the idle process ends", func() bool { return !alive(pids(t, idle)[0]) })

	la := &listener{}
	b, err := s.Bind(t.Context(), &Request{Principal: alice(), Server: "s", Session: "da", Peer: la})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Do(t.Context(), mcp.MethodSubscribe, []byte(`{"uri":"test://a"}`)); err != nil {
		t.Fatal(err)
	}
	used := pid()
	other := call(t, s, toolCall(carol(), "pid", ""))
	done := make(chan string, 2)
	go func() { done <- call(t, s, slowCall()) }()
	go func() {
		a, err := b.Do(t.Context(), mcp.MethodCallTool, slowCall().Params)
		if err != nil {
			done <- err.Error()
			return
		}
		done <- textOf(a)
	}()
	eventually(t, "both calls run", func() bool { return pending(s) == 2 })
	before := len(la.heard())
	renew()
	renewed := pid()
	if renewed == used {
		t.Error("a new call went to the session that was renewed")
	}
	if a, err := b.Do(t.Context(), mcp.MethodCallTool, toolCall(alice(), "pid", "").Params); err != nil || textOf(a) != renewed {
		t.Errorf("the bound session is at %v, %v", a, err)
	}
	eventually(t, "the subscription is renewed", func() bool { return len(la.heard()) > before && la.has("test://a") })
	for range 2 {
		if got := <-done; got != "ok" {
			t.Errorf("a call under way ended with %s", got)
		}
	}
	eventually(t, "the used process ends with its calls", func() bool { return !alive(pids(t, used)[0]) })
	if got := call(t, s, toolCall(carol(), "pid", "")); got != other {
		t.Error("another tenant's session was renewed")
	}
}

// TestRenewCountsInMaxSessions: a session that is still used keeps its place.
func TestRenewCountsInMaxSessions(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.MaxSessions = 1
	s := start(t, testConfig(t), spec)
	done := make(chan string, 1)
	go func() { done <- call(t, s, slowCall()) }()
	eventually(t, "it runs", func() bool { return pending(s) == 1 })
	if err := s.Renew("acme", "s"); err != nil {
		t.Fatal(err)
	}
	if e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.ConcurrencyLimitExceeded); !e.NothingSent {
		t.Errorf("%+v", e)
	}
	if got := <-done; got != "ok" {
		t.Error(got)
	}
	eventually(t, "there is room", func() bool { return status(t, s, alice()).Sessions == 0 })
	call(t, s, toolCall(alice(), "echo", ""))
}

// TestRenewedSessionsAreNotAsked: what a session shows that is still used does not count against
// what new ones show, and the first of those is announced even if it shows nothing new.
func TestRenewedSessionsAreNotAsked(t *testing.T) {
	p := newPersons(t, nil)
	p.offers("alice", pinnedDef)
	p.offers("bob", changedDef)
	p.refresh(alice(), "Reads.")
	b, err := p.s.Bind(t.Context(), &Request{Principal: alice(), Server: "s", Session: "da"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	srv := p.s.find(alice(), "s")
	old := srv.personalSessions("acme", 0)
	if len(old) != 1 {
		t.Fatalf("%d sessions", len(old))
	}
	p.accepts(changedDef)
	p.offers("alice", changedDef)
	srv.use(old[0].slot) // a call that still runs
	defer srv.release(old[0].slot)
	if err := p.s.Renew("acme", "s"); err != nil {
		t.Fatal(err)
	}
	p.refresh(bob(), "Reads fast.")

	got, err := srv.read(t.Context(), old[0], true)
	if err != nil {
		t.Fatal(err)
	}
	got.Tools = [][]byte{[]byte(pinnedDef)} // as it shows until it ends
	if srv.keep(old[0], got, false) || descriptionOf(must(p.s.Definitions(t.Context(), bob(), "s"))) != "Reads fast." {
		t.Error("what the session showed that was renewed is stored")
	}

	if err := p.s.Renew("acme", "s"); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.told = []string{"none"}
	p.mu.Unlock()
	p.refresh(bob(), "Reads fast.")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
