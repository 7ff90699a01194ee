package redact_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

var (
	ann     = &toolkeep.Principal{Tenant: "acme", Subject: "ann"}
	bob     = &toolkeep.Principal{Tenant: "acme", Subject: "bob"}
	forAnn  = &toolkeep.Principal{Tenant: "acme", Subject: "agent", OnBehalf: "ann"}
	forBob  = &toolkeep.Principal{Tenant: "acme", Subject: "agent", OnBehalf: "bob"}
	agent   = &toolkeep.Principal{Tenant: "acme", Subject: "agent"}
	foreign = &toolkeep.Principal{Tenant: "globex", Subject: "ann", OnBehalf: "agent"}
)

func TestWhoseResultsAreCleaned(t *testing.T) {
	all := []*toolkeep.Principal{ann, bob, forAnn, forBob, agent, foreign}
	for _, tt := range []struct {
		name  string
		scope redact.Scope
		want  []*toolkeep.Principal
	}{
		{"everybody", redact.AllTenants, all},
		{"no tenant", redact.Scope{Person: "ann"}, all}, // no principal has this scope, so it redacts for all
		{"tenant", redact.TenantScope(ann), all[:5]},
		{"a person", redact.PersonScope(ann), []*toolkeep.Principal{ann, forAnn}},
		{"a person acted for", redact.PersonScope(forAnn), []*toolkeep.Principal{ann, forAnn}},
		{"an agent for itself", redact.PersonScope(agent), []*toolkeep.Principal{forAnn, forBob, agent}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := redact.NewRedactor(nil)
			views := map[*toolkeep.Principal]*redact.Cleaner{}
			for _, p := range all {
				views[p] = c.For(p) // before it is held
			}
			defer c.Hold(tt.scope, "the word")()
			for _, p := range all {
				want := "[REDACTED] of ann"
				if !containsPrincipal(tt.want, p) {
					want = "the word of ann"
				}
				if got := views[p].Clean("the word of ann"); got != want {
					t.Errorf("%+v is shown %q, want %q", *p, got, want)
				}
			}
			if got := c.Log().Clean("the word"); got != redact.Marker {
				t.Errorf("the log has %q", got)
			}
			if got := c.TenantLog("acme", "").Clean("the word"); got != redact.Marker {
				t.Errorf("the tenant's log has %q", got)
			}
			if got := c.TenantLog("globex", "").Clean("the word"); (got == redact.Marker) != (tt.scope.Tenant == "") {
				t.Errorf("the other tenant's log has %q", got)
			}
		})
	}
}

// TestUpstreams: a value is redacted from what can have come from the upstream that was given it, whatever its scope
// is, and from nothing else that the same principal is shown: otherwise a tool that returns its arguments would tell
// which guess is a secret.
func TestUpstreams(t *testing.T) {
	shop, bank := redact.URLHost("https://API.shop.example:8443/v1"), redact.Host("bank.example")
	if shop != redact.Host("api.shop.example") || redact.URLHost("http://[::1]:80/") != redact.Host("::1") {
		t.Fatalf("the host of the URL is %s", shop)
	}
	for name, scope := range map[string]redact.Scope{"all": redact.AllTenants, "tenant": redact.TenantScope(ann), "person": redact.PersonScope(ann)} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_800_000_000, 0)
			c := redact.NewRedactor(func() time.Time { return now })
			release := c.Hold(scope.At(shop), "the word")
			of := c.For(ann)
			own := redact.NewSecrets(nil)
			own.Hold("argument")
			for what, tt := range map[string]struct {
				v     *redact.Cleaner
				found bool
			}{
				"before an upstream is known": {of, false},
				"everybody":                   {c.All(), false},
				"the upstream":                {of.From(shop), true},
				"another upstream":            {of.From(bank), false},
				"a call below the upstream's": {of.From(shop).With(own).Below().From(bank), true},
				"the tenant's log of it":      {c.TenantLog("acme", shop), true},
				"the tenant's other log":      {c.TenantLog("acme", bank), false},
				"another tenant's log of it":  {c.TenantLog("globex", shop), scope == redact.AllTenants},
				"the process's log":           {c.Log(), true},
				"nobody's tenant":             {c.For(&toolkeep.Principal{Subject: "ann"}).From(shop), scope == redact.AllTenants},
			} {
				if got := tt.v.Clean("the word"); (got == redact.Marker) != tt.found {
					t.Errorf("%s: %q, want found %t", what, got, tt.found)
				}
			}
			if of.TookPersonal() != (name == "person") {
				t.Errorf("a person's value was found: %t", of.TookPersonal())
			}
			release()
			now = now.Add(2 * time.Minute)
			of.Clean("")
			if n, sets := c.Held(), c.Sets(); n != 0 || sets != 0 {
				t.Errorf("%d values in %d sets are left", n, sets)
			}
		})
	}
}

func containsPrincipal(list []*toolkeep.Principal, p *toolkeep.Principal) bool {
	for _, q := range list {
		if p == q {
			return true
		}
	}
	return false
}

// TestOverlaps: a value of one scope inside another's must not leave the outer ends.
func TestOverlaps(t *testing.T) {
	for _, scopes := range [][2]redact.Scope{
		{redact.AllTenants, redact.PersonScope(ann)}, {redact.PersonScope(ann), redact.AllTenants},
		{redact.TenantScope(ann), redact.PersonScope(ann)}, {redact.PersonScope(ann), redact.TenantScope(ann)},
	} {
		c := redact.NewRedactor(nil)
		c.Hold(scopes[0], "left-middle-right")
		c.Hold(scopes[1], "middle")
		if got := c.For(ann).Clean("<left-middle-right> <middle>"); got != "<[REDACTED]> <[REDACTED]>" {
			t.Errorf("%v: %s", scopes, got)
		}
	}
	c := redact.NewRedactor(nil)
	c.Hold(redact.AllTenants, "left-middle-right")
	own := redact.NewSecrets(nil)
	own.Hold("middle", "argument")
	v := c.For(ann).With(own)
	if got := v.Clean("left-middle-right argument"); got != "[REDACTED] [REDACTED]" {
		t.Errorf("with more: %s", got)
	}
	if got := c.For(ann).Clean("argument"); got != "argument" {
		t.Errorf("without: %s", got)
	}
}

func TestRedactorForget(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := redact.NewRedactor(func() time.Time { return now })
	v := c.For(forAnn)
	first, second := c.Hold(redact.PersonScope(ann), "first-word", "first-word", "abc"), c.Hold(redact.TenantScope(ann), "other-word")
	third := c.Hold(redact.PersonScope(agent), "third-word")
	if n := c.Held(); n != 3 {
		t.Fatalf("%d values are held, want 3", n)
	}
	first()
	first()
	now = now.Add(59 * time.Second)
	second()
	if v.Clean("first-word") != redact.Marker || c.Log().Clean("first-word") != redact.Marker {
		t.Error("forgotten too early")
	}
	now = now.Add(time.Second)
	if v.Clean("first-word other-word") != "first-word [REDACTED]" || c.Held() != 2 {
		t.Errorf("%d are held, want 2", c.Held())
	}
	now = now.Add(time.Minute)
	if got := v.Clean("first-word other-word third-word"); got != "first-word other-word [REDACTED]" {
		t.Error(got)
	}
	again := c.Hold(redact.PersonScope(ann), "first-word")
	if got := v.Clean("first-word third-word"); got != "[REDACTED] [REDACTED]" {
		t.Error(got)
	}
	again()
	third()
	now = now.Add(time.Minute)
	v.Clean("")
	if n, sets := c.Held(), c.Sets(); n != 0 || sets != 0 {
		t.Errorf("%d values in %d sets are left", n, sets)
	}
	if got := c.Log().Clean("first-word other-word third-word"); strings.Contains(got, redact.Marker) {
		t.Errorf("the log still knows: %s", got)
	}
	c.HoldInLog("log-word")()
	if v.Clean("log-word") != "log-word" || c.Log().Clean("log-word") != redact.Marker {
		t.Error("what the log alone knows")
	}
	c.Hold(redact.PersonScope(ann), "abc")() // too short to be held
	if c.Sets() != 0 {
		t.Error("a set was made for nothing")
	}
}

func TestTookPersonal(t *testing.T) {
	c := redact.NewRedactor(nil)
	c.Hold(redact.AllTenants, "everybodys")
	c.Hold(redact.TenantScope(ann), "the tenants")
	c.Hold(redact.PersonScope(ann), "anns own")
	own := redact.NewSecrets(nil)
	own.Hold("argument")
	above := c.For(ann)
	v := above.With(own)
	v.Clean("everybodys, the tenants, argument, Bearer abcdefgh12345678")
	v.CleanValue(map[string]any{"the tenants": "argument"})
	v.CleanJSON([]byte(`["anns","own"]`))
	if v.TookPersonal() || above.TookPersonal() {
		t.Error("nothing of a person was there")
	}
	for _, clean := range []func(*redact.Cleaner){
		func(v *redact.Cleaner) { v.Clean("anns own") },
		func(v *redact.Cleaner) { v.CleanValue([]any{"anns own"}) },
		func(v *redact.Cleaner) { v.CleanJSON([]byte(`["anns own"]`)) },
	} {
		above := c.For(ann)
		clean(above.With(own))
		if !above.TookPersonal() {
			t.Error("what a person has was there")
		}
	}
	below := v.Below()
	below.Clean("everybodys, the tenants")
	if below.TookPersonal() {
		t.Error("nothing of a person or of the call above was there")
	}
	if got := below.With(redact.NewSecrets(nil)).Clean("argument"); got != redact.Marker || !below.TookPersonal() || !v.TookPersonal() {
		t.Errorf("an argument of the call above becomes %q", got)
	}
}

func TestCleanJSON(t *testing.T) {
	c := redact.NewRedactor(nil)
	v := c.For(ann)
	raw := []byte(`{"b": 1.50, "a": "Bearer abcdefgh12345678"}`)
	if got := v.CleanJSON(raw); &got[0] != &raw[0] {
		t.Errorf("nothing is held: %s", got)
	}
	c.Hold(redact.PersonScope(ann), "hunter22", "7654321", `","text":"`)
	for text, want := range map[string]string{
		`{"b": 1.50, "a": "Bearer abcdefgh12345678"}`: "",
		`{"n": 7654321}`:                         `{"n":"[REDACTED]"}`,
		`{"b": 1.5, "a": ["a hunter\u00322 b"]}`: `{"a":["a [REDACTED] b"],"b":1.5}`,
		`{"hunter22": null}`:                     `{"[REDACTED]":null}`,
		`{"type":"x","text":"y"}`:                "", // no text of it
		`["` + base64.StdEncoding.EncodeToString([]byte("user:hunter22")) + `"]`: `["dXNlcj[REDACTED]=="]`,
		`{"cut": "hunter22`: `null`,
	} {
		if want == "" {
			want = text
		}
		if got := string(v.CleanJSON([]byte(text))); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
	if got := string(c.For(bob).CleanJSON([]byte(`"hunter22"`))); got != `"hunter22"` {
		t.Errorf("bob is shown %s", got)
	}
}

func TestManySnapshots(t *testing.T) {
	c := redact.NewRedactor(nil)
	v := c.For(forAnn)
	want, text := "", ""
	for i := range 12 {
		s := redact.NewSecrets(nil)
		s.Hold(fmt.Sprintf("word-%02d", i))
		v = v.With(s)
		text, want = text+fmt.Sprintf("word-%02d,", i), want+redact.Marker+","
	}
	c.Hold(redact.PersonScope(ann), "anns own")
	if got := v.Clean(text + "anns own"); got != want+redact.Marker || !v.TookPersonal() {
		t.Error(got)
	}
}

// TestRedactorConcurrently: held values are redacted, however many come and go.
func TestRedactorConcurrently(t *testing.T) {
	var mu sync.Mutex
	now := time.Unix(1_800_000_000, 0)
	c := redact.NewRedactor(func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			p := &toolkeep.Principal{Tenant: fmt.Sprintf("t%d", i%2), Subject: fmt.Sprintf("s%d", i)}
			v := c.For(p)
			for j := range 200 {
				word, tenant := fmt.Sprintf("word-%d-%d", i, j%5), "tenants-"+p.Tenant
				mine, ours := c.Hold(redact.PersonScope(p), word), c.Hold(redact.TenantScope(p), tenant)
				if got := v.Clean(word + " " + tenant); got != "[REDACTED] [REDACTED]" {
					t.Errorf("left: %s", got)
				}
				if got := c.Log().Clean(word); got != redact.Marker {
					t.Errorf("the log has %s", got)
				}
				mine()
				ours()
			}
		})
	}
	all.Wait()
	mu.Lock()
	now = now.Add(time.Hour)
	mu.Unlock()
	if n, sets := c.Held(), c.Sets(); n != 0 || sets != 0 {
		t.Errorf("%d values in %d sets are left", n, sets)
	}
}

func BenchmarkView(b *testing.B) {
	text := strings.Repeat(sample, 10)[:2048]
	for _, held := range []string{"nothing", "all", "others", "own"} {
		c := redact.NewRedactor(nil)
		switch held {
		case "all":
			c.Hold(redact.AllTenants, "secret-number-1")
		case "others":
			for i := range 1000 {
				c.Hold(redact.Scope{Tenant: "acme", Person: fmt.Sprint("p", i)}, fmt.Sprint("secret-number-", i))
			}
		case "own":
			c.Hold(redact.PersonScope(ann), "secret-number-1")
			c.Hold(redact.TenantScope(ann), "secret-number-2")
		}
		v := c.For(ann)
		b.Run(held, func(b *testing.B) {
			b.SetBytes(2048)
			b.ReportAllocs()
			for b.Loop() {
				v.Clean(text)
			}
		})
	}
}
