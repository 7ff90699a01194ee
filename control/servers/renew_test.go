package servers

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/upstream"
)

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func (p *pool) was(told string) func() bool {
	return func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Contains(p.told, told)
	}
}

// began is when a session began, of what the node's server offers from now on.
func (h *fixture) began(at time.Time, defs ...[]byte) {
	d := h.offers(defs...)
	d.Since = at
	h.pool.mu.Lock()
	h.pool.defs.Since = at
	h.pool.mu.Unlock()
	h.DefinitionsRead("pages", "acme", d)
}

// TestOlderProcessOfAnotherNode: a definition that one node's process offers is accepted. Another
// node's process is older. It does not hold the tool: that node starts it again and compares
// what the new process offers.
func TestOlderProcessOfAnotherNode(t *testing.T) {
	v1, v2, v3 := tool("fetch", "one"), tool("fetch", "two"), tool("fetch", "three")
	a := newFixture(t, nil)
	b := newNode(t, a.store, nil)
	a.imports(httpSpec, v1)
	begun := time.Now()
	a.began(begun, v1)
	eventually(t, "the import on the other node", func() bool { _, ok := b.get(serverID{"acme", "pages"}); return ok })
	b.began(begun, v1)
	b.renewOutdated() // what it sees of the catalogue now is where it begins

	a.began(time.Now(), v2)
	a.want("fetch@1.0.0 active held:definition_changed")
	a.accept()
	accepted := a.states()
	eventually(t, "the accepted version on the other node", func() bool { return b.states() == accepted })

	b.pool.mu.Lock()
	b.pool.defs.Tools = [][]byte{v2} // what a newer process offers
	b.pool.defs.Since = time.Now().Add(time.Second)
	b.pool.mu.Unlock()
	old := b.pool.defs
	old.Tools, old.Since = [][]byte{v1}, begun
	b.DefinitionsRead("pages", "acme", old) // its process announces something
	eventually(t, "the renewal", b.pool.was("renew pages"))
	eventually(t, "the reading of the new process", b.pool.was("recheck pages alone:true"))
	eventually(t, "the comparison", func() bool { return b.VerifyPinned("acme", "pages", "acme", "fetch") == nil })
	a.want(accepted)
	if a.pool.was("renew pages")() {
		t.Error("the node whose process is right restarted it")
	}

	b.began(time.Now().Add(2*time.Second), v3) // a process that is newer than what was accepted
	if got := b.states(); got == accepted {
		t.Errorf("a change was not held: %s", got)
	}
}

// TestOutdatedIsNoticed: also a process that announces nothing is renewed.
func TestOutdatedIsNoticed(t *testing.T) {
	v1, v2 := tool("fetch", "one"), tool("fetch", "two")
	a := newFixture(t, nil)
	b := newNode(t, a.store, nil)
	a.imports(httpSpec, v1)
	eventually(t, "the import on the other node", func() bool { _, ok := b.get(serverID{"acme", "pages"}); return ok })
	b.began(time.Now(), v1)
	b.renewOutdated()
	if b.pool.was("renew pages")() {
		t.Error("a process that offers what was accepted was restarted")
	}
	a.began(time.Now(), v2)
	a.accept()
	eventually(t, "the renewal", b.pool.was("renew pages"))
}

// older is a node whose process is older than v2, which another node's process offers and which was
// accepted there: now is what it shows, newer is what its next process shows.
func older(t *testing.T, now, newer [][]byte) (a, b *fixture, accepted string) {
	t.Helper()
	a = newFixture(t, nil)
	a.imports(httpSpec, tool("fetch", "one"))
	b = newNode(t, a.store, nil)
	begun := time.Now()
	a.began(time.Now(), tool("fetch", "two"))
	a.accept()
	accepted = a.states()
	eventually(t, "the accepted version on the other node", func() bool { return b.states() == accepted })
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	b.pool.defs = upstream.Definitions{Tools: now, Settled: true, Owner: "acme", Since: begun}
	b.pool.newer = &upstream.Definitions{Tools: newer, Settled: true, Owner: "acme", Since: time.Now().Add(time.Second)}
	return a, b, accepted
}

// TestChangeAfterItsAcceptanceIsHeld: a session that offered what was accepted is the right one,
// also if it is older than the acceptance. What it shows later is held at once.
func TestChangeAfterItsAcceptanceIsHeld(t *testing.T) {
	v1, v2, v3 := tool("fetch", "one"), tool("fetch", "two"), tool("fetch", "three")
	for name, between := range map[string]func(h *fixture, begun time.Time){
		"at once":            func(*fixture, time.Time) {},
		"noticed before":     func(h *fixture, _ time.Time) { h.renewOutdated() },
		"announced again":    func(h *fixture, begun time.Time) { h.began(begun, v2) },
		"other sessions":     func(h *fixture, begun time.Time) { h.began(begun.Add(time.Millisecond), v2); h.began(begun, v2) },
		"another in between": func(h *fixture, begun time.Time) { h.began(begun.Add(-time.Millisecond), v2) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t, nil)
			h.imports(httpSpec, v1)
			begun := time.Now()
			h.began(begun, v1)
			h.began(begun, v2)
			h.want("fetch@1.0.0 active held:definition_changed")
			h.accept()
			between(h, begun)
			h.began(begun, v3)
			if got := h.states(); !strings.Contains(got, "active held:definition_changed") {
				t.Errorf("the second change is not held: %s", got)
			}
			for range 2 {
				h.renewOutdated()
			}
			if h.pool.was("renew pages")() || h.pool.was("restart pages")() {
				t.Error("the session that offered what was accepted was ended")
			}
		})
	}
}

// TestToolThatIsNotShown: a server that does not show everybody every tool is not older for that.
func TestToolThatIsNotShown(t *testing.T) {
	a := newFixture(t, nil)
	a.imports(`{"transport":"http","url":"https://mcp.example/","session":"principal"}`, tool("fetch", "one"), tool("add", "one"))
	b := newNode(t, a.store, nil)
	b.began(time.Now(), tool("fetch", "one"))
	a.began(time.Now(), tool("fetch", "one"), tool("add", "two"))
	a.accept()
	accepted := a.states()
	eventually(t, "the accepted version on the other node", func() bool { return b.states() == accepted })
	b.renewOutdated()
	if b.pool.was("renew pages")() {
		t.Error("it was renewed for a tool that it does not show")
	}
}

// TestOlderProcessIsNotReadForAnOperator: nor do a diff, a refresh and an accept that reach a node
// with an older process go by that one.
func TestOlderProcessIsNotReadForAnOperator(t *testing.T) {
	v1, v2 := tool("fetch", "one"), tool("fetch", "two")
	for name, do := range map[string]func(h *fixture) error{
		"refresh": func(h *fixture) error { return h.Refresh(t.Context(), admin("acme"), "pages") },
		"accept":  func(h *fixture) error { _, err := h.Accept(t.Context(), admin("acme"), "pages", nil, nil); return err },
		"diff": func(h *fixture) error {
			p, err := h.Diff(t.Context(), admin("acme"), "pages")
			if err == nil && len(p.Tools[0].Changes) > 0 {
				t.Errorf("diff shows %+v", p.Tools[0].Changes)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, accepted := older(t, [][]byte{v1}, [][]byte{v2})
			if err := do(b); err != nil {
				t.Fatal(err)
			}
			if !b.pool.was("renew pages")() {
				t.Error("the older process was not renewed")
			}
			a.want(accepted)
			b.want(accepted)
		})
	}
	t.Run("a process that stays", func(t *testing.T) {
		a, b, accepted := older(t, [][]byte{v1}, nil)
		b.pool.mu.Lock()
		b.pool.newer = nil
		b.pool.mu.Unlock()
		wantCode(t, b.Refresh(t.Context(), admin("acme"), "pages"), toolkeep.MCPUnavailable)
		a.want(accepted)
	})
}

// TestSessionOfTheStart: a session that a node opened when it had just started is older than what
// was accepted after that, also if it is the first thing that the node compares.
func TestSessionOfTheStart(t *testing.T) {
	a, b, accepted := older(t, nil, [][]byte{tool("fetch", "two")})
	b.pool.mu.Lock()
	d := b.pool.defs
	b.pool.mu.Unlock()
	d.Tools = [][]byte{tool("fetch", "one")}
	b.DefinitionsRead("pages", "acme", d)
	if !b.pool.was("renew pages")() {
		t.Error("the older process was not renewed")
	}
	a.want(accepted)
}

// TestNothingIsRenewedAfterStop: nor is anything begun while Stop waits.
func TestNothingIsRenewedAfterStop(t *testing.T) {
	_, b, _ := older(t, nil, nil)
	b.pool.mu.Lock()
	d := b.pool.defs
	b.pool.mu.Unlock()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			d := d
			d.Tools, d.Owner = [][]byte{tool("fetch", "one")}, "acme"
			b.DefinitionsRead("pages", fmt.Sprint("tenant", i), d)
		})
	}
	b.Stop()
	all.Wait()
	d.Tools = [][]byte{tool("fetch", "one")}
	b.pool.mu.Lock()
	b.pool.told = nil
	b.pool.mu.Unlock()
	b.DefinitionsRead("pages", "acme", d)
	if b.pool.was("renew pages")() || b.pool.was("recheck pages alone:true")() {
		t.Errorf("after Stop: %q", b.pool.told)
	}
}

// TestRestartReachesAllNodes: and a server that is removed takes its last order along.
func TestRestartReachesAllNodes(t *testing.T) {
	a := newFixture(t, nil)
	b := newNode(t, a.store, nil)
	a.imports(httpSpec, tool("fetch", "one"))
	if err := a.Restart(t.Context(), admin("acme"), "pages"); err != nil {
		t.Fatal(err)
	}
	if !a.pool.was("restart pages")() {
		t.Error("it was not restarted here when Restart returned")
	}
	eventually(t, "the restart on the other node", b.pool.was("restart pages"))
	wantCode(t, a.Restart(t.Context(), admin("acme"), "other"), toolkeep.ResourceNotFound)

	mend := a.store.fails(func(c toolkeep.Change) error {
		if _, ok := c.(toolkeep.PutDocument); ok {
			return toolkeep.ErrClosed
		}
		return nil
	})
	e := wantCode(t, a.Restart(t.Context(), admin("acme"), "pages"), toolkeep.RecordUnavailable)
	if e != nil && !strings.Contains(e.Message, "`toolkeep servers restart pages`") {
		t.Errorf("the message names no command: %s", e.Message)
	}
	mend()
	if err := a.Remove(t.Context(), admin("acme"), "pages", ""); err != nil {
		t.Fatal(err)
	}
	if docs, _, _ := a.store.Documents(t.Context(), ""); len(docs) != 0 {
		t.Errorf("stored are %+v", docs)
	}
}
