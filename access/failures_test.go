package access

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// wrongSecret returns a key's text with a different secret and a correct checksum.
func wrongSecret(text string) string {
	body := text[:len(keyPrefix)+idChars+1]
	for len(body) < keyChars-sumChars {
		body += "0"
	}
	return body + sum(body)
}

func TestAgentIsBlocked(t *testing.T) {
	var c clock
	key, text := NewKey(agentSpec, c.Now())
	a := open(t, Config{Clock: c.Now}, key)
	ctx := t.Context()
	for range 10 {
		is(t, second(a.Authenticate(ctx, wrongSecret(text), "192.0.2.1")), toolkeep.Unauthenticated)
	}
	e := is(t, second(a.Authenticate(ctx, wrongSecret(text), "192.0.2.1")), toolkeep.AuthFailuresLimited)
	if e.RetryAfter != 5*time.Minute || e.Details["blocked"] != "agent" {
		t.Errorf("error %+v", e)
	}
	// Knowing the id locks the owner out nowhere.
	for _, addr := range []string{"192.0.2.1", "192.0.2.2"} {
		p := must[*toolkeep.Principal](t)(a.Authenticate(ctx, text, addr))
		if err := a.Blocked(p); err != nil {
			t.Error(err)
		}
	}
	is(t, second(a.Authenticate(ctx, wrongSecret(text), "192.0.2.2")), toolkeep.Unauthenticated)
	c.pass(5*time.Minute - 1)
	is(t, second(a.Authenticate(ctx, wrongSecret(text), "192.0.2.1")), toolkeep.AuthFailuresLimited)
	c.pass(1)
	for range 10 { // the count restarted
		is(t, second(a.Authenticate(ctx, wrongSecret(text), "192.0.2.1")), toolkeep.Unauthenticated)
	}
	is(t, second(a.Authenticate(ctx, wrongSecret(text), "192.0.2.1")), toolkeep.AuthFailuresLimited)
}

func TestSlowFailuresDoNotBlock(t *testing.T) {
	var c clock
	key, text := NewKey(agentSpec, c.Now())
	a := open(t, Config{Clock: c.Now}, key)
	for range 60 {
		is(t, second(a.Authenticate(t.Context(), wrongSecret(text), "192.0.2.1")), toolkeep.Unauthenticated)
		must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "192.0.2.1"))
		c.pass(10 * time.Second)
	}
}

func TestAddressIsBlocked(t *testing.T) {
	for name, tc := range map[string]struct{ from, same, other string }{
		"IPv4":          {"192.0.2.1", "192.0.2.1", "192.0.2.2"},
		"mapped":        {"::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.2"},
		"IPv6 network":  {"2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:2::1"},
		"zone":          {"fe80::1%eth0", "fe80::2%eth1", "fe80:0:0:1::1"},
		"not an IP":     {"unix", "unix", "192.0.2.1"},
		"without a one": {"", "", "192.0.2.1"},
	} {
		t.Run(name, func(t *testing.T) {
			var c clock
			key, text := NewKey(agentSpec, c.Now())
			a := open(t, Config{Clock: c.Now}, key)
			ctx := t.Context()
			for i := range 100 {
				attempt := "guess"
				if i%2 == 0 {
					_, attempt = NewKey(agentSpec, c.Now())
				}
				is(t, second(a.Authenticate(ctx, attempt, tc.from)), toolkeep.Unauthenticated)
			}
			e := is(t, second(a.Authenticate(ctx, "guess", tc.same)), toolkeep.AuthFailuresLimited)
			if e.RetryAfter != 15*time.Minute || e.Details["blocked"] != "address" {
				t.Errorf("error %+v", e)
			}
			is(t, second(a.Authenticate(ctx, "", tc.same)), toolkeep.AuthFailuresLimited)
			is(t, second(a.Authenticate(ctx, "guess", tc.other)), toolkeep.Unauthenticated)
			must[*toolkeep.Principal](t)(a.Authenticate(ctx, text, tc.same)) // never a valid key
			c.pass(15 * time.Minute)
			is(t, second(a.Authenticate(ctx, "guess", tc.same)), toolkeep.Unauthenticated)
		})
	}
}

func TestHoldersOfOldKeysSpareTheAddress(t *testing.T) {
	var c clock
	key, text := NewKey(agentSpec, c.Now())
	oldSpec := agentSpec
	oldSpec.Subject = "old"
	old, oldText := NewKey(oldSpec, c.Now())
	old.RevokedAt = c.Now()
	a := open(t, Config{Clock: c.Now}, key, old)
	for range 10 {
		is(t, second(a.Authenticate(t.Context(), oldText, "127.0.0.1")), toolkeep.Unauthenticated)
	}
	for range 500 {
		is(t, second(a.Authenticate(t.Context(), oldText, "127.0.0.1")), toolkeep.AuthFailuresLimited)
	}
	for range 500 { // a request without credentials is not a guess
		is(t, second(a.Authenticate(t.Context(), "", "127.0.0.1")), toolkeep.Unauthenticated)
	}
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "127.0.0.1"))
}

func TestDeniedCallsBlock(t *testing.T) {
	var c clock
	spec := agentSpec
	spec.Roles = []string{Agent, "stand-in"}
	key, text := NewKey(spec, c.Now())
	var told []Failure
	a := open(t, Config{Clock: c.Now, Roles: []Role{{Name: "stand-in", Permissions: []string{toolkeep.PermActAs}}},
		OnFailure: func(f Failure) { told = append(told, f) }}, key)
	p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "192.0.2.1"))
	acting := func(subject, user string) *toolkeep.Principal {
		return must[*toolkeep.Principal](t)(a.ActingAs(p, &toolkeep.Call{Subject: subject, User: user}))
	}
	for _, tc := range []struct {
		name  string
		who   *toolkeep.Principal
		other []*toolkeep.Principal
	}{
		{"a person", acting("", "ann"), []*toolkeep.Principal{p, acting("", "bob"), acting("clerk", "ann"), acting("clerk", "")}},
		{"a subject", acting("clerk", ""), []*toolkeep.Principal{p, acting("", "bob"), acting("porter", ""),
			{Tenant: "acme", Subject: "clerk"}}}, // one that has a key of its own
		{"the agent", p, []*toolkeep.Principal{acting("", "bob"), acting("porter", "")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for i := range 10 {
				if err := a.Blocked(tc.who); err != nil {
					t.Fatal(err)
				}
				from := *tc.who
				from.Addr = fmt.Sprint("192.0.2.", i)
				a.NoteDenied(&from, "std.echo")
			}
			if e := is(t, a.Blocked(tc.who), toolkeep.AuthFailuresLimited); e.RetryAfter != 5*time.Minute {
				t.Errorf("error %+v", e)
			}
			for _, o := range tc.other {
				if err := a.Blocked(o); err != nil {
					t.Errorf("%s on behalf of %q is blocked: %v", o.Subject, o.OnBehalf, err)
				}
			}
			must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "198.51.100.7"))
		})
	}
	a.NoteDenied(p, "std.echo")
	if n := len(told); n != 31 || told[0].Reason != "denied" || told[0].Subject != "bot" || told[0].OnBehalf != "ann" || told[30].Reason != "blocked" {
		t.Errorf("told %+v", told)
	}
	c.pass(5 * time.Minute)
	if err := a.Blocked(p); err != nil {
		t.Error(err)
	}
}

func TestFailuresAreBounded(t *testing.T) {
	var c clock
	key, text := NewKey(agentSpec, c.Now())
	a := open(t, Config{Clock: c.Now, Failures: FailureLimits{tracked: 200}}, key)
	ctx := t.Context()
	for range 100 {
		is(t, second(a.Authenticate(ctx, "guess", "192.0.2.1")), toolkeep.Unauthenticated)
	}
	for i := range 5000 {
		is(t, second(a.Authenticate(ctx, "guess", fmt.Sprintf("10.%d.%d.1", i/250, i%250))), toolkeep.Unauthenticated)
	}
	if n := len(a.failures.records); n > 200 {
		t.Errorf("%d records", n)
	}
	is(t, second(a.Authenticate(ctx, "guess", "192.0.2.1")), toolkeep.AuthFailuresLimited) // the block survives the flood
	must[*toolkeep.Principal](t)(a.Authenticate(ctx, text, "192.0.2.1"))
	c.pass(time.Hour)
	is(t, second(a.Authenticate(ctx, "guess", "10.99.1.1")), toolkeep.Unauthenticated)
	if n := len(a.failures.records); n > 200 {
		t.Errorf("%d records", n)
	}
}

func TestFailureLimitsCanBeOff(t *testing.T) {
	a := open(t, Config{Failures: FailureLimits{PerAgent: -1, PerAddr: -1, Global: -1}})
	for range 300 {
		is(t, second(a.Authenticate(t.Context(), "guess", "192.0.2.1")), toolkeep.Unauthenticated)
		a.NoteDenied(principal(Agent), "std.echo")
	}
	if err := a.Blocked(principal(Agent)); err != nil {
		t.Error(err)
	}
}

func TestGlobalAlarm(t *testing.T) {
	var c clock
	var log counter
	f := newFailures(FailureLimits{Global: 5}, c.Now, &log)
	for range 50 {
		f.noteGlobal()
	}
	if log.n != 1 {
		t.Errorf("%d alarms, want 1", log.n)
	}
	c.pass(time.Minute)
	for range 50 {
		f.noteGlobal()
	}
	if log.n != 2 {
		t.Errorf("%d alarms, want 2", log.n)
	}
}

// TestFailuresOfNodes: of several nodes each blocks an address at its share of the limit, and raises the alarm at its
// share. The failures of one agent count on each node: a share of 1 would block it at the first.
func TestFailuresOfNodes(t *testing.T) {
	var log counter
	f := newFailures(FailureLimits{Global: 40}, new(clock).Now, &log)
	f.share = func(limit int) (int, int) { return limit / 10, 10 }
	for range 4 {
		f.noteGlobal()
	}
	if log.n != 1 {
		t.Errorf("%d alarms, want 1", log.n)
	}
	// The share of an address is at least 10, or the whole limit where that is less: many callers can have one.
	for limit, want := range map[int]int{200: 20, 100: 10, 50: 10, 10: 10, 4: 4, 1: 1} {
		a := open(t, Config{Share: f.share, Failures: FailureLimits{PerAddr: limit, PerAgent: -1}})
		guess := func() error { return a.guessed(Failure{Tenant: "acme", Subject: "x"}, "192.0.2.1", "wrong") }
		for i := range want {
			if e := toolkeep.AsError(guess()); e.Code != toolkeep.Unauthenticated {
				t.Fatalf("limit %d, guess %d: %v", limit, i, e)
			}
		}
		if e := toolkeep.AsError(guess()); e.Code != toolkeep.AuthFailuresLimited || e.Details["blocked"] != "address" {
			t.Errorf("limit %d: %v %v", limit, e, e.Details)
		}
	}
	none := func(limit int) (int, int) { return limit, 10 }
	a := open(t, Config{Share: none, Failures: FailureLimits{PerAddr: -1, PerAgent: -1}})
	for range 1000 {
		if e := toolkeep.AsError(a.guessed(Failure{}, "192.0.2.1", "wrong")); e.Code != toolkeep.Unauthenticated {
			t.Fatalf("without a limit: %v", e)
		}
	}
}

type counter struct{ n int }

func (c *counter) Error(string, ...any) { c.n++ }

func TestFailuresHammer(t *testing.T) {
	a := open(t, Config{Failures: FailureLimits{tracked: 50}})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for i := range 300 {
				addr := fmt.Sprint("192.0.2.", i%120)
				_, _ = a.Authenticate(t.Context(), "guess", addr)
				a.NoteDenied(&toolkeep.Principal{Tenant: "acme", Subject: addr}, "std.echo")
				_ = a.Blocked(&toolkeep.Principal{Tenant: "acme", Subject: addr, Addr: addr})
			}
		})
	}
	wg.Wait()
}
