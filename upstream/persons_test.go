//go:build linux

package upstream

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

const (
	pinnedDef  = `{"name":"x","description":"Reads.","inputSchema":{"type":"object"}}`
	changedDef = `{"name":"x","description":"Reads fast.","inputSchema":{"type":"object"}}`
)

// persons is a server that offers each person another list; "" is the tenant.
type persons struct {
	t *testing.T
	s *Servers

	mu       sync.Mutex
	offered  map[string]string
	accepted string
	told     []string                                // the stored descriptions of x, as announced
	onList   func(who string) (hang <-chan struct{}) // called at each tools/list, unlocked
	refuses  map[string]int                          // HTTP status of every request of a person
}

func newPersons(t *testing.T, change func(*Config, *Spec)) *persons {
	p := &persons{t: t, offered: map[string]string{}, accepted: pinnedDef, refuses: map[string]int{}}
	b := newWeb(t, func(w http.ResponseWriter, r *http.Request, m *mcp.Message) bool {
		who := strings.TrimPrefix(r.Header.Get("X-Who"), "who-")
		p.mu.Lock()
		status, list, onList := p.refuses[who], p.offered[who], p.onList
		p.mu.Unlock()
		if status != 0 {
			w.WriteHeader(status)
			return true
		}
		if m == nil || m.Method != mcp.MethodListTools {
			return false
		}
		if onList != nil {
			if hang := onList(who); hang != nil {
				select {
				case <-hang:
				case <-r.Context().Done():
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(mcp.Reply(m.ID, []byte(`{"tools":[`+list+`]}`)).Bytes())
		return true
	})
	c := httpConfig(t)
	c.Secrets = resolver(func(_ context.Context, p *toolkeep.Principal, _ string) (Value, error) {
		return Value{Text: "who-" + p.Subject}, nil
	})
	c.Accepted = func(_, _, tool string) [][]byte {
		p.mu.Lock()
		defer p.mu.Unlock()
		if tool != "x" {
			return nil
		}
		return [][]byte{[]byte(p.accepted)}
	}
	c.OnDefinitions = func(_, _ string, d Definitions) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.told = append(p.told, descriptionOf(d))
	}
	spec := httpSpec(b.URL)
	spec.Session = SessionPrincipal
	spec.Headers = map[string]string{"X-Who": "secret://k"}
	if change != nil {
		change(&c, &spec)
	}
	p.s = start(t, c, spec)
	return p
}

// descriptionOf is that of the first tool x.
func descriptionOf(d Definitions) string {
	for _, def := range d.Tools {
		if mcp.Text(def, "name") == "x" {
			return mcp.Text(def, "description")
		}
	}
	return "none"
}

func (p *persons) offers(who, list string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offered[who] = list
}

func (p *persons) accepts(def string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted = def
}

func (p *persons) refresh(who *toolkeep.Principal, want string) {
	p.t.Helper()
	d, err := p.s.Refresh(p.t.Context(), who, "s")
	p.want("refresh", d, err, want)
}

func (p *persons) recheck(alone bool, want string) {
	p.t.Helper()
	d, err := p.s.Recheck(p.t.Context(), "acme", "s", alone)
	p.want("recheck", d, err, want)
}

func (p *persons) want(what string, d Definitions, err error, want string) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
	if got := descriptionOf(d); got != want {
		p.t.Errorf("after the %s the tool is %q, want %q", what, got, want)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.told[len(p.told)-1]; what != "compare" && last != want {
		p.t.Errorf("after the %s %q is announced, want %q", what, last, want)
	}
}

// asPerson is a call of a connected person, whose session with a server that asks its client is
// that person's own.
func asPerson(p *toolkeep.Principal) *Request {
	r := toolCall(p, "x", "")
	r.Peer, r.Session = &listener{}, "of "+p.Subject
	return r
}

// TestNoReadOutvotesAPersonsSession: while an open session shows a person another definition,
// no read of anyone else, whatever it is for, brings the accepted one back, and the tool does
// not count as gone.
func TestNoReadOutvotesAPersonsSession(t *testing.T) {
	for name, change := range map[string]func(*Config, *Spec){
		"a session a person":                 nil,
		"a session a person that can answer": func(_ *Config, s *Spec) { s.Session, s.Capabilities = SessionShared, []string{CapRoots} },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPersons(t, change)
			p.offers("alice", changedDef)
			p.offers("bob", pinnedDef)
			p.offers("", pinnedDef)
			call(t, p.s, asPerson(alice()))
			p.refresh(bob(), "Reads fast.")
			p.refresh(&toolkeep.Principal{Tenant: "acme"}, "Reads fast.")
			p.recheck(true, "Reads fast.")
			d, err := p.s.Compare(t.Context(), bob(), "s")
			p.want("compare", d, err, "Reads fast.") // as accept would take it over
			p.offers("bob", "")
			p.offers("", "")
			p.refresh(bob(), "Reads fast.")
			p.offers("alice", pinnedDef)
			p.recheck(false, "Reads.")
		})
	}
}

// TestCallersOwnSession: a call is refused where the caller's own session shows a definition
// that is not accepted, whatever other sessions show.
func TestCallersOwnSession(t *testing.T) {
	p := newPersons(t, nil)
	p.offers("alice", changedDef)
	p.offers("bob", pinnedDef)
	p.accepts(changedDef)
	call(t, p.s, toolCall(alice(), "x", ""))
	call(t, p.s, toolCall(bob(), "x", ""))
	p.recheck(false, "Reads.")
	p.accepts(pinnedDef)
	call(t, p.s, toolCall(bob(), "x", ""))
	if e := fails(t, p.s, toolCall(alice(), "x", ""), toolkeep.DefinitionChanged); !e.NothingSent {
		t.Error(e)
	}
	p.accepts(changedDef)
	call(t, p.s, toolCall(alice(), "x", ""))
}

// TestDoubledName: of a name that stands twice in one list the first definition counts, and two
// different ones are never the accepted one, in whatever order and however often they are read.
func TestDoubledName(t *testing.T) {
	for _, list := range []string{changedDef + "," + pinnedDef, pinnedDef + "," + changedDef} {
		p := newPersons(t, nil)
		p.offers("alice", list)
		call(t, p.s, toolCall(alice(), "x", ""))
		for range 3 {
			p.recheck(false, "Reads fast.")
		}
		p.offers("bob", pinnedDef)
		call(t, p.s, toolCall(bob(), "x", ""))
		p.recheck(false, "Reads fast.")
		p.refresh(alice(), "Reads fast.")
		p.mu.Lock()
		if slices.Contains(p.told, "Reads.") {
			t.Errorf("told were %q", p.told)
		}
		p.mu.Unlock()
		p.offers("alice", pinnedDef+","+pinnedDef)
		p.recheck(false, "Reads.")
	}
}

// TestRecheckEndsNoSession: a session that is opened in the background ends no other one, and
// goes first where a person's needs room.
func TestRecheckEndsNoSession(t *testing.T) {
	p := newPersons(t, func(_ *Config, s *Spec) { s.MaxSessions = 2 })
	p.offers("alice", changedDef)
	p.offers("bob", pinnedDef)
	p.offers("", pinnedDef)
	call(t, p.s, toolCall(alice(), "x", ""))
	call(t, p.s, toolCall(bob(), "x", ""))
	d, err := p.s.Recheck(t.Context(), "acme", "s", true)
	if !toolkeep.IsCode(err, toolkeep.ConcurrencyLimitExceeded) {
		t.Errorf("a third session of two: %v", err)
	}
	if got := descriptionOf(d); got != "Reads fast." {
		t.Errorf("the tool is %q", got)
	}
	if err := p.s.Restart(alice(), "s"); err != nil {
		t.Fatal(err)
	}
	call(t, p.s, toolCall(alice(), "x", ""))
	p.recheck(true, "Reads fast.") // there is room now
	call(t, p.s, toolCall(bob(), "x", ""))
	p.recheck(false, "Reads fast.")
	if st := status(t, p.s, alice()); st.Sessions != 2 {
		t.Errorf("%+v", st)
	}
}

// TestRecheckCountsNoFailures: sessions that are opened in the background and fail, or end, do
// not have the calls of persons refused, and the server's status asks for no login.
func TestRecheckCountsNoFailures(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusUnauthorized} {
		p := newPersons(t, nil)
		p.offers("bob", pinnedDef)
		p.mu.Lock()
		p.refuses[""] = status
		p.mu.Unlock()
		for range 8 {
			if _, err := p.s.Recheck(t.Context(), "acme", "s", true); err == nil {
				t.Fatal("it was read")
			}
		}
		srv, err := p.s.open(bob(), "s")
		if err != nil {
			t.Fatal(err)
		}
		h := &srv.state("acme").health
		h.mu.Lock()
		if h.failed || len(h.fails) > 0 || h.login != nil || h.last != "" {
			t.Errorf("HTTP %d counts: %+v", status, h.fails)
		}
		h.mu.Unlock()
		call(t, p.s, toolCall(bob(), "x", ""))
	}
}

// TestStaleReads: what was read before does not replace what was read since, in the same session
// or in another one.
func TestStaleReads(t *testing.T) {
	p := newPersons(t, nil)
	p.offers("alice", pinnedDef)
	p.offers("", pinnedDef)
	call(t, p.s, toolCall(alice(), "x", ""))
	srv, err := p.s.open(alice(), "s")
	if err != nil {
		t.Fatal(err)
	}
	sess := srv.personalSessions("acme", 0)[0]
	old, err := srv.read(t.Context(), sess, true)
	if err != nil {
		t.Fatal(err)
	}
	p.offers("alice", changedDef)
	p.refresh(alice(), "Reads fast.")
	srv.keep(sess, old, false)
	if d, _ := srv.state("acme").defs.get(); descriptionOf(d) != "Reads fast." {
		t.Error("an older read of the session replaced the newer one")
	}
	p.recheck(false, "Reads fast.")
	if old, err = srv.read(t.Context(), sess, true); err != nil {
		t.Fatal(err)
	}
	p.offers("alice", pinnedDef)
	p.refresh(alice(), "Reads.")
	srv.keep(sess, old, false)
	if d, _ := srv.state("acme").defs.get(); descriptionOf(d) != "Reads." {
		t.Error("an older read of the session replaced the newer one")
	}
	p.offers("alice", changedDef)
	p.refresh(alice(), "Reads fast.")

	// The session that shows it is gone, so it does not answer for it any more.
	p.offers("bob", pinnedDef)
	call(t, p.s, toolCall(bob(), "x", ""))
	other := slices.DeleteFunc(srv.personalSessions("acme", 0), func(o *session) bool { return o == sess })[0]
	old, err = srv.read(t.Context(), other, true)
	if err != nil {
		t.Fatal(err)
	}
	p.refresh(alice(), "Reads fast.")
	srv.mu.Lock()
	for _, sl := range srv.slots {
		if sl.sess == sess {
			srv.retire(sl)
		}
	}
	srv.mu.Unlock()
	srv.keep(other, old, false)
	if d, _ := srv.state("acme").defs.get(); descriptionOf(d) != "Reads fast." {
		t.Error("an older read of another session replaced the newer one")
	}
	p.recheck(false, "Reads.")
}

// TestRecheckWaitsForNoSlowSession: what a person's session shows is stored while the tenant's
// session hangs.
func TestRecheckWaitsForNoSlowSession(t *testing.T) {
	p := newPersons(t, nil)
	p.offers("alice", changedDef)
	call(t, p.s, toolCall(alice(), "x", ""))
	p.recheck(false, "Reads fast.")
	hang := make(chan struct{})
	p.mu.Lock()
	p.onList = func(who string) <-chan struct{} {
		if who == "" {
			return hang
		}
		return nil
	}
	p.mu.Unlock()
	eventually(t, "the new session is read when it has settled", func() bool {
		sess := p.s.find(alice(), "s").personalSessions("acme", 0)[0]
		sess.mu.Lock()
		defer sess.mu.Unlock()
		return sess.listed.Sub(sess.began) >= settleTime
	})
	p.offers("alice", pinnedDef)
	p.offers("", pinnedDef)
	done := make(chan struct{})
	go func() { defer close(done); p.recheck(true, "Reads fast.") }()
	stored := func() string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.told[len(p.told)-1]
	}
	eventually(t, "the person's session is stored", func() bool { return stored() == "Reads." })
	p.offers("alice", changedDef)
	p.refresh(alice(), "Reads fast.")
	close(hang)
	<-done
	if got := stored(); got != "Reads fast." {
		t.Errorf("at the end it is %q", got)
	}
}

// asked records the logins that a person's sessions ask for.
type asked struct{ n *atomic.Int64 }

func (asked) Header(context.Context) (http.Header, error) { return nil, nil }

func (a asked) Unauthorized(context.Context, *http.Response) error {
	a.n.Add(1)
	return toolkeep.NewError(toolkeep.LoginRequired, "log in")
}

// TestRecheckBeginsNoLogin: a person's session that is refused in the background begins no login,
// and does not make the tenant's lists stale; a call of the person does begin it.
func TestRecheckBeginsNoLogin(t *testing.T) {
	var logins atomic.Int64
	p := newPersons(t, func(c *Config, _ *Spec) {
		c.Authorize = func(context.Context, *Spec, *toolkeep.Principal) (Authorizer, error) { return asked{&logins}, nil }
	})
	p.offers("alice", changedDef)
	call(t, p.s, toolCall(alice(), "x", ""))
	p.mu.Lock()
	p.refuses["alice"] = http.StatusUnauthorized
	p.mu.Unlock()
	p.recheck(false, "Reads fast.")
	if n := logins.Load(); n != 0 {
		t.Errorf("%d logins were begun", n)
	}
	if st := status(t, p.s, alice()); st.Stale != "" {
		t.Errorf("the lists are stale: %s", st.Stale)
	}
	fails(t, p.s, toolCall(alice(), "x", ""), toolkeep.LoginRequired)
	if logins.Load() == 0 {
		t.Error("the call began no login")
	}
}

// TestRecheckReadsFewAtOnce: a look reads two sessions at once, and keeps what is not stored yet,
// or stores it at once where it is too much.
func TestRecheckReadsFewAtOnce(t *testing.T) {
	filler := strings.Repeat("long ", 300)
	p := newPersons(t, func(_ *Config, s *Spec) { s.MaxResultBytes = 3000 })
	var now, most, all atomic.Int64
	who := []string{"alice", "bob", "dave", "erin", "frank", "grace"}
	for _, subject := range who {
		p.offers(subject, pinnedDef)
		call(t, p.s, toolCall(&toolkeep.Principal{Tenant: "acme", Subject: subject}, "x", ""))
		p.offers(subject, changedDef+`,{"name":"of-`+subject+`","description":"`+filler+`","inputSchema":{"type":"object"}}`)
	}
	p.mu.Lock()
	p.onList = func(string) <-chan struct{} {
		all.Add(1)
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		hang := make(chan struct{})
		time.AfterFunc(50*time.Millisecond, func() { now.Add(-1); close(hang) }) // for others to come
		return hang
	}
	p.mu.Unlock()
	p.recheck(false, "Reads fast.")
	if most.Load() > 2 || all.Load() < int64(len(who)) {
		t.Errorf("%d of %d reads came at once", most.Load(), all.Load())
	}
	srv, err := p.s.open(alice(), "s")
	if err != nil {
		t.Fatal(err)
	}
	d, _ := srv.state("acme").defs.get()
	if len(d.Tools) != 1+len(who) {
		t.Errorf("%d tools are stored", len(d.Tools))
	}
	if got := srv.news(srv.state("acme").defs, d); len(got) != 0 {
		t.Errorf("%s is not stored yet", got)
	}
}

// TestPersonsSessionsAreReadThemselves: a person's new session is read before its first call, however
// recently another person's was.
func TestPersonsSessionsAreReadThemselves(t *testing.T) {
	p := newPersons(t, nil)
	p.offers("alice", pinnedDef)
	p.refresh(alice(), "Reads.")
	p.offers("bob", changedDef)
	call(t, p.s, toolCall(bob(), "x", ""))
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := p.told[len(p.told)-1]; last != "Reads fast." {
		t.Errorf("when the call was let through, %q was told last", last)
	}
}
