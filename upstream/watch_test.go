//go:build linux

package upstream

import (
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/mcp"
)

// TestSubscriptionDoesNotOvertake: a subscribe during an unsubscribe of the same
// resource stays in effect.
func TestSubscriptionDoesNotOvertake(t *testing.T) {
	var mu sync.Mutex
	var once sync.Once
	subscribed, asked := false, 0
	leaving, left := make(chan struct{}), make(chan struct{})
	b := newWeb(t, func(w http.ResponseWriter, _ *http.Request, m *mcp.Message) bool {
		if m == nil || m.Method != mcp.MethodSubscribe && m.Method != mcp.MethodUnsubscribe {
			return false
		}
		on := m.Method == mcp.MethodSubscribe
		if !on {
			once.Do(func() { close(leaving) })
			<-left
		}
		mu.Lock()
		subscribed = on
		asked++
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(mcp.Reply(m.ID, []byte(`{}`)).Bytes())
		return true
	})
	s := start(t, httpConfig(t), httpSpec(b.URL))
	bind := func() *Binding {
		t.Helper()
		bound, err := s.Bind(t.Context(), &Request{Principal: alice(), Server: "s", Peer: &listener{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(bound.Close)
		return bound
	}
	do := func(on *Binding, method string) {
		t.Helper()
		if _, err := on.Do(t.Context(), method, []byte(`{"uri":"test://r"}`)); err != nil {
			t.Error(err)
		}
	}
	one, two := bind(), bind()
	do(one, mcp.MethodSubscribe)
	sess, err := one.session(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	do(one, mcp.MethodUnsubscribe)
	<-leaving
	var second sync.WaitGroup
	second.Go(func() { do(two, mcp.MethodSubscribe) })
	for deadline := time.Now().Add(limit); ; runtime.Gosched() {
		mu.Lock()
		overtook := asked > 1
		mu.Unlock()
		sess.mu.Lock()
		waits := sess.turns["test://r"] != nil && sess.turns["test://r"].users == 2
		sess.mu.Unlock()
		if overtook || waits {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the second one neither subscribes nor waits")
		}
	}
	close(left)
	second.Wait()
	eventually(t, "nobody has the turn any more", func() bool {
		sess.mu.Lock()
		defer sess.mu.Unlock()
		return len(sess.turns) == 0
	})
	mu.Lock()
	defer mu.Unlock()
	if !subscribed || asked != 3 {
		t.Errorf("subscribed: %t after %d requests", subscribed, asked)
	}
}
