package servers

import (
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// eventually waits for what another goroutine brings about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
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

// TestOlderProcessOfAnotherNode: a definition that one node's process offers is accepted. The
// process of another node, which is older, holds it for nobody: it is started again and
// compared then.
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
	eventually(t, "the restart", b.pool.was("restart pages"))
	eventually(t, "the reading of the new process", b.pool.was("recheck pages alone:true"))
	eventually(t, "the comparison", func() bool { return b.VerifyPinned("acme", "pages", "acme", "fetch") == nil })
	a.want(accepted)
	if a.pool.was("restart pages")() {
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
	if b.pool.was("restart pages")() {
		t.Error("a process that offers what was accepted was restarted")
	}
	a.began(time.Now(), v2)
	a.accept()
	eventually(t, "the restart", b.pool.was("restart pages"))
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
	wantCode(t, a.Restart(t.Context(), admin("acme"), "pages"), toolkeep.RecordUnavailable)
	mend()
	if err := a.Remove(t.Context(), admin("acme"), "pages"); err != nil {
		t.Fatal(err)
	}
	if docs, _, _ := a.store.Documents(t.Context(), ""); len(docs) != 0 {
		t.Errorf("stored are %+v", docs)
	}
}
