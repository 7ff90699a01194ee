//go:build linux

package upstream

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// TestRecheckOfPersonsSessions: the tools of a server with sessions a person are read again
// in the sessions that are open, each as its person, and without a person where that works.
// An open session that shows another definition than the accepted one is not outvoted.
func TestRecheckOfPersonsSessions(t *testing.T) {
	const pinned, changed = `{"name":"x","description":"Reads.","inputSchema":{"type":"object"}}`, `{"name":"x","description":"Reads fast.","inputSchema":{"type":"object"}}`
	var mu sync.Mutex
	offered := map[string]string{}
	closed := map[string]bool{}
	readers := map[string]int{}
	b := newWeb(t, func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		who := r.Header.Get("X-Who")
		if closed[who] {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		if m == nil || m.Method != mcp.MethodListTools {
			return false
		}
		readers[who]++
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(mcp.Reply(m.ID, []byte(`{"tools":[`+offered[who]+`]}`)).Bytes())
		return true
	})
	c := httpConfig(t)
	c.Secrets = resolver(func(_ context.Context, p *toolkeep.Principal, _ string) (Value, error) {
		return Value{Text: "who-" + p.Subject}, nil
	})
	c.Accepted = func(string, string, string) [][]byte { return [][]byte{[]byte(pinned)} }
	var told []string
	c.OnDefinitions = func(_, _ string, d Definitions) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, mcp.Text(d.Tools[0], "description"))
	}
	spec := httpSpec(b.URL)
	spec.Session = SessionPrincipal
	spec.Headers = map[string]string{"X-Who": "secret://k"}
	s := start(t, c, spec)
	set := func(who, def string) { mu.Lock(); defer mu.Unlock(); offered["who-"+who] = def }
	recheck := func(alone bool, want string) {
		t.Helper()
		d, err := s.Recheck(t.Context(), "acme", "s", alone)
		if err != nil {
			t.Fatal(err)
		}
		if got := mcp.Text(d.Tools[0], "description"); got != want {
			t.Errorf("the tool is %q, want %q", got, want)
		}
		mu.Lock()
		defer mu.Unlock()
		if told[len(told)-1] != want {
			t.Errorf("told were %q, want %q last", told, want)
		}
	}
	set("alice", changed)
	set("bob", pinned)
	set("", pinned)
	call(t, s, toolCall(alice(), "x", ""))
	recheck(false, "Reads fast.")
	call(t, s, toolCall(bob(), "x", "")) // in a new session, which is read too
	recheck(false, "Reads fast.")
	recheck(true, "Reads fast.")
	set("alice", "") // her session does not show the tool: that says nothing about another one
	recheck(false, "Reads.")

	set("bob", changed)
	recheck(false, "Reads fast.")
	set("bob", pinned)
	recheck(false, "Reads.")

	// Without open sessions the tenant's own is read, which takes no tool away.
	set("bob", changed)
	recheck(false, "Reads fast.")
	if err := s.Restart(alice(), "s"); err != nil {
		t.Fatal(err)
	}
	recheck(false, "Reads fast.")
	set("", "")
	recheck(true, "Reads fast.")
	set("", pinned)
	recheck(true, "Reads.")

	mu.Lock()
	closed["who-"] = true
	mu.Unlock()
	if err := s.Restart(alice(), "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recheck(t.Context(), "acme", "s", true); !toolkeep.IsCode(err, toolkeep.SecretAccessDenied) {
		t.Errorf("a refused session without a person: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	for who := range readers {
		if who != "who-" && who != "who-alice" && who != "who-bob" {
			t.Errorf("it was read as %s", who)
		}
	}
}

// TestRecheckReadsTheOldestFirst: one look reads at most 32 sessions, and the next one others.
func TestRecheckReadsTheOldestFirst(t *testing.T) {
	srv := &server{spec: &Spec{}, slots: map[key]*slot{}}
	for i := range 40 {
		ready := make(chan struct{})
		close(ready)
		k := key{tenant: "acme", subject: string(rune('a' + i))}
		srv.slots[k] = &slot{key: k, ready: ready, sess: &session{key: k, link: &link{}, listed: time.Unix(int64(i), 0)}}
	}
	seen := map[*session]bool{}
	for range 2 {
		list := srv.personalSessions("acme", maxReread)
		if len(list) != maxReread {
			t.Fatalf("%d sessions are read at once", len(list))
		}
		for _, sess := range list {
			seen[sess] = true
			sess.showed(&Definitions{read: time.Now()})
		}
	}
	if len(seen) != 40 {
		t.Errorf("two looks read %d of 40 sessions", len(seen))
	}
}
