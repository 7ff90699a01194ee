//go:build linux

package upstream

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

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
