//go:build linux

package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/redact"
)

// lapse is a clock that a test advances.
type lapse struct {
	mu  sync.Mutex
	now time.Time
}

func (c *lapse) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *lapse) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// ownSecrets are the personal secrets of alice, bob and carol; alice's is a common word
// in everyone's texts.
func ownSecrets() resolver {
	values := map[string]string{"alice": "the word", "bob": "bobs-own", "carol": "carols-own"}
	return func(_ context.Context, p *toolkeep.Principal, _ string) (Value, error) {
		v, ok := values[p.Subject]
		if !ok {
			return Value{}, fmt.Errorf("asked for %+v", *p)
		}
		return Value{Text: v, Held: []string{v}, Scope: redact.PersonScope(p)}, nil
	}
}

// TestOwnSecretIsTakenOutOfOwnAnswersAlone: a personal secret that the server repeats
// is redacted for that person only; others see the word.
func TestOwnSecretIsTakenOutOfOwnAnswersAlone(t *testing.T) {
	clock := &lapse{now: time.Unix(1_800_000_000, 0)}
	c := testConfig(t)
	c.Redact = redact.NewRedactor(clock.time)
	c.Secrets = ownSecrets()
	spec := stdioSpec(t, "leaky")
	spec.Session, spec.Capabilities = SessionPrincipal, []string{CapElicitation}
	spec.Env["SECRET"] = "secret://k"
	s := start(t, c, spec)
	people := map[*toolkeep.Principal]string{
		alice(): redact.Marker + " is " + redact.Marker,
		bob():   "the word is " + redact.Marker,
		carol(): "the word is " + redact.Marker,
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for p := range people { // all sessions are open before the first answer
		call(t, s, toolCall(p, "echo", ""))
	}
	for p, want := range people {
		t.Run(p.Subject, func(t *testing.T) {
			seen := func(what, text string) {
				t.Helper()
				if !strings.Contains(text, want) {
					t.Errorf("%s: %s, want %s", what, text, want)
				}
			}
			peer := &listener{answer: func(context.Context, string, []byte) ([]byte, error) { return []byte(`{"action":"decline"}`), nil }}
			r := toolCall(p, "leak", "")
			r.Params = mcp.Set(r.Params, []byte(`"the word"`), "_meta", "progressToken")
			r.Peer, r.Session = peer, "session-of-"+p.Subject
			result := call(t, s, r)
			seen("the result, as the pipeline cleans it", c.Redact.For(p).From(s.UpstreamOf(p, "s")).Clean(result))
			if heard := peer.heard(); len(heard) != 2 || !strings.Contains(heard[1], `"progressToken":"the word"`) {
				t.Errorf("heard %q", heard)
			} else {
				seen("a log message", heard[0])
				seen("progress", heard[1])
			}
			if len(peer.asks) != 1 {
				t.Fatalf("asked %q", peer.asks)
			}
			seen("a question", peer.asks[0])

			read := &Request{Principal: p, Server: "s", Method: mcp.MethodReadResource, Params: []byte(`{"uri":"test://r"}`)}
			a, err := s.Do(ctx, read)
			if err != nil {
				t.Fatal(err)
			}
			seen("a resource", string(a.Result))
			prompt := &Request{Principal: p, Server: "s", Method: mcp.MethodGetPrompt, Params: []byte(`{"name":"p"}`)}
			_, err = s.Do(ctx, prompt)
			refusal := func(err error) {
				t.Helper()
				var rpc *mcp.Error
				if !errors.As(err, &rpc) {
					t.Fatal(err)
				}
				seen("an error", rpc.Message)
				seen("an error's data", string(rpc.Data))
			}
			refusal(err)

			b, err := s.Bind(ctx, &Request{Principal: p, Server: "s", Peer: peer, Session: "another-of-" + p.Subject})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			info, err := b.Info(ctx)
			if err != nil {
				t.Fatal(err)
			}
			seen("instructions", info.Instructions)
			seen("the server's title", string(info.Server))
			if a, err = b.Do(ctx, mcp.MethodReadResource, read.Params); err != nil {
				t.Fatal(err)
			}
			seen("a resource of a binding", string(a.Result))
			_, err = b.Do(ctx, mcp.MethodGetPrompt, prompt.Params)
			refusal(err)
		})
	}
	// Lists read in one person's session are stored for the tenant; others see neither
	// that person's secret nor a list without its words.
	for _, p := range []*toolkeep.Principal{bob(), alice(), bob(), carol()} {
		d, err := s.Definitions(ctx, p, "s")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{d.Instructions, string(d.Prompts[0]), string(d.Resources[0])} {
			if !strings.Contains(text, people[keyOf(people, p.Subject)]) {
				t.Errorf("%s is shown a list: %s", p.Subject, text)
			}
		}
	}
	// Administrators see no personal secret.
	eventually(t, "the log has all lines", func() bool {
		return strings.Count(logs(t, s, alice()), "[REDACTED] is [REDACTED]") == 2 && strings.Contains(logs(t, s, carol()), "the word is [REDACTED]")
	})
	if text := logs(t, s, alice()) + logs(t, s, carol()); strings.Contains(text, "bobs-own") || strings.Contains(text, "carols-own") {
		t.Error(text)
	}
	if got := c.Redact.Log().Clean("the word bobs-own carols-own"); got != "[REDACTED] [REDACTED] [REDACTED]" {
		t.Errorf("the process's log: %s", got)
	}
	// All of it is released when the sessions have ended.
	if n := c.Redact.Held(); n != 3 {
		t.Errorf("%d secrets are held, want 3", n)
	}
	clock.pass(time.Hour)
	if n := c.Redact.Held(); n != 3 {
		t.Errorf("%d secrets are held while the sessions last, want 3", n)
	}
	for p := range people {
		if err := s.Restart(p, "s"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the secrets are forgotten", func() bool {
		clock.pass(time.Minute)
		return c.Redact.Held() == 0
	})
}

func keyOf(people map[*toolkeep.Principal]string, subject string) *toolkeep.Principal {
	for p := range people {
		if p.Subject == subject {
			return p
		}
	}
	return nil
}

// TestFailedStartTellsNobodysSecret: the tenant's other people see why a session did
// not start.
func TestFailedStartTellsNobodysSecret(t *testing.T) {
	clock := &lapse{now: time.Unix(1_800_000_000, 0)}
	c := testConfig(t)
	c.Redact = redact.NewRedactor(clock.time)
	c.Secrets = ownSecrets()
	c.backoffBase = time.Hour
	spec := stdioSpec(t, "leaky-start")
	spec.Session = SessionPrincipal
	spec.Env["SECRET"] = "secret://k"
	s := start(t, c, spec)
	for range 2 {
		// Either its answer or its end comes first.
		if _, err := s.Do(t.Context(), toolCall(bob(), "echo", "")); err == nil {
			t.Fatal("it started")
		}
	}
	e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.MCPUnavailable)
	texts := e.Error() + fmt.Sprint(e.Details) + status(t, s, alice()).LastError + logs(t, s, alice())
	if strings.Contains(texts, "bobs-own") || !strings.Contains(texts, "ended it was "+redact.Marker) {
		t.Error(texts)
	}
	eventually(t, "the secrets are forgotten", func() bool {
		clock.pass(time.Minute)
		return c.Redact.Held() == 0
	})
}

// TestWhoSharesASessionKnowsItsSecrets: a session's secrets are redacted at least for
// everyone who shares it.
func TestWhoSharesASessionKnowsItsSecrets(t *testing.T) {
	b := newWeb(t, nil)
	for _, tt := range []struct {
		session string
		want    map[string]bool // whose results are redacted
	}{
		{SessionPrincipal, map[string]bool{"alice": true, "alice for dave": true, "bob": false}},
		{SessionShared, map[string]bool{"alice": true, "alice for dave": true, "bob": true}},
	} {
		t.Run(string(tt.session), func(t *testing.T) {
			c := httpConfig(t)
			c.Redact = redact.NewRedactor(nil)
			// A store that treats every secret as personal.
			c.Secrets = resolver(func(_ context.Context, p *toolkeep.Principal, _ string) (Value, error) {
				return Value{Text: "the word", Held: []string{"the word"}, Scope: redact.Scope{Tenant: p.Tenant, Person: "somebody"}}, nil
			})
			spec := httpSpec(b.URL)
			spec.Session = tt.session
			spec.Headers = map[string]string{"X-Key": "env://K"}
			s := start(t, c, spec)
			call(t, s, toolCall(alice(), "x", ""))
			for who, want := range tt.want {
				subject, behalf, _ := strings.Cut(who, " for ")
				v := c.Redact.For(&toolkeep.Principal{Tenant: "acme", Subject: subject, OnBehalf: behalf}).From(redact.URLHost(b.URL))
				if got := v.Clean("the word") == redact.Marker; got != want {
					t.Errorf("%s: cleaned %t, want %t", who, got, want)
				}
			}
			if c.Redact.For(carol()).From(redact.URLHost(b.URL)).Clean("the word") == redact.Marker {
				t.Error("another tenant's results are cleaned")
			}
		})
	}
}

// TestRenewedHeaderIsHeld: a secret that changes during a session replaces the earlier
// one in the redactor.
func TestRenewedHeaderIsHeld(t *testing.T) {
	clock := &lapse{now: time.Unix(1_800_000_000, 0)}
	var mu sync.Mutex
	value := "first-value"
	b := newWeb(t, func(w http.ResponseWriter, r *http.Request, _ *mcp.Message) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("X-Key") != value {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		return false
	})
	c := httpConfig(t)
	c.Redact = redact.NewRedactor(clock.time)
	c.Secrets = resolver(func(_ context.Context, p *toolkeep.Principal, _ string) (Value, error) {
		mu.Lock()
		defer mu.Unlock()
		return Value{Text: value, Held: []string{value}, Scope: redact.PersonScope(p)}, nil
	})
	spec := httpSpec(b.URL)
	spec.Session = SessionPrincipal
	spec.Headers = map[string]string{"X-Key": "secret://k"}
	s := start(t, c, spec)
	call(t, s, toolCall(alice(), "x", ""))
	mu.Lock()
	value = "second-value"
	mu.Unlock()
	call(t, s, toolCall(alice(), "x", ""))
	v := c.Redact.For(alice()).From(s.UpstreamOf(alice(), "s"))
	if got := v.Clean("first-value second-value"); got != "[REDACTED] [REDACTED]" {
		t.Error(got)
	}
	clock.pass(time.Minute)
	if got := v.Clean("first-value second-value"); got != "first-value [REDACTED]" {
		t.Error(got)
	}
	if err := s.Restart(alice(), "s"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the secrets are forgotten", func() bool {
		clock.pass(time.Minute)
		return c.Redact.Held() == 0
	})
}

// TestToolsShowNobodysSecret: a personal secret that a server writes into its tools is
// redacted for everyone, and the definitions are the same in every session.
func TestToolsShowNobodysSecret(t *testing.T) {
	c := testConfig(t)
	c.Secrets = ownSecrets()
	spec := stdioSpec(t, "leaky-tools")
	spec.Session = SessionPrincipal
	spec.Env["SECRET"] = "secret://k"
	var heard, changes int
	var last []byte
	var mu sync.Mutex
	c.OnDefinitions = func(_, _ string, d Definitions) {
		mu.Lock()
		defer mu.Unlock()
		heard++
		if now := bytes.Join(d.Tools, nil); !bytes.Equal(now, last) {
			changes, last = changes+1, bytes.Clone(now)
		}
	}
	// An earlier accepted definition still matches, although it contains one person's
	// secret word.
	c.Accepted = func(owner, server, tool string) [][]byte {
		if owner != "" || server != "s" {
			t.Errorf("asked for %s of %q's %s", tool, owner, server)
		}
		if tool == "plain" {
			return [][]byte{[]byte(`{"description":"the word","inputSchema":{"type":"object"},"name":"plain"}`)}
		}
		return nil
	}
	s := start(t, c, spec)
	for _, p := range []*toolkeep.Principal{alice(), bob(), alice(), carol()} {
		call(t, s, toolCall(p, "echo", ""))
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		d, err := s.Refresh(ctx, p, "s")
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		all := string(bytes.Join(d.Tools, nil))
		if strings.Contains(all, "bobs-own") || strings.Contains(all, "carols-own") || len(d.Tools) != 4 {
			t.Errorf("%s read %s", p.Subject, all)
		}
		if got := mcp.Text(d.Tools[1], "description"); got != "the word" {
			t.Errorf("%s read %q: one person's word is missing for everybody", p.Subject, got)
		}
		if got := mcp.Text(d.Tools[0], "name"); got != "says" || d.Withheld["says"] != "" || d.Withheld["plain"] != "" {
			t.Errorf("%s read %s, withheld %v", p.Subject, all, d.Withheld)
		}
		if len(d.Withheld) != 2 || d.Withheld["default"] == "" || d.Withheld["member"] == "" {
			t.Errorf("withheld are %v", d.Withheld)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	// Other people's sessions show alice's word too, which reverts one change.
	if changes > 2 || heard == 0 {
		t.Errorf("the definitions were told %d times, and changed %d times", heard, changes)
	}
}
