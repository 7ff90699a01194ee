package upstream

import (
	"context"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

func TestSpecRoundTrip(t *testing.T) {
	for _, text := range []string{
		`{"transport":"stdio","command":["npx","-y","x"],"env":{"A":"env://B"},"dir":"/srv","session":"principal","capabilities":["roots"],"roots":[{"uri":"file:///a","name":"n"}],"on_change":"additive","start_timeout_s":1.5,"call_timeout_s":2,"idle_stop_s":-1,"ping_s":3,"max_sessions":4,"max_result_bytes":5,"max_tools":6,"disabled":true,"registry":{"url":"https://r.example","name":"io.x/y","version":"1.0.0","digest":"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}`,
		`{"transport":"http","url":"https://example.com/mcp","headers":{"Authorization":"Bearer env://T"},"network":[{"host":"db.internal","port":80}]}`,
		`{"transport":"http","url":"https://example.com/mcp","session":"call","auth":{"type":"oauth2_token_exchange","secret":"secret://s","token_url":"https://x.example","scopes":["a"],"settings":{"audience":"b"}}}`,
	} {
		s, err := ParseSpec("s", "acme", []byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, toolkeep.AsError(err).Details)
		}
		if s.Tenant != "acme" || s.Name != "s" {
			t.Errorf("%+v", s)
		}
		again, err := ParseSpec("s", "acme", s.Body())
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%s became %s: %v", text, s.Body(), err)
		}
	}
	s, _ := ParseSpec("s", "", []byte(`{"transport":"stdio","command":["x"],"start_timeout_s":0.25}`))
	f := s.Filled()
	if f.StartTimeout != 250*time.Millisecond || f.CallTimeout != 30*time.Second || f.IdleStop != 10*time.Minute || f.PingEvery != 30*time.Second ||
		f.MaxSessions != 32 || f.MaxTools != 10_000 || f.MaxResultBytes != 100<<20 || f.Session != SessionShared || f.OnChange != OnChangeHold {
		t.Errorf("%+v", f)
	}
}

func TestSpecFaults(t *testing.T) {
	long := strings.Repeat("x", maxValue+1)
	for _, c := range []struct{ text, pointer string }{
		{`{}`, "/transport"},
		{`{"transport":"carrier-pigeon"}`, "/transport"},
		{`{"transport":"stdio"}`, "/command"},
		{`{"transport":"stdio","command":[""]}`, "/command"},
		{`{"transport":"stdio","command":["x","a\u0000"]}`, ""},
		{`{"transport":"stdio","command":["` + long + `"]}`, "/command/0"},
		{`{"transport":"stdio","command":["x"],"url":"https://example.com"}`, "/url"},
		{`{"transport":"stdio","command":["x"],"headers":{"A":"b"}}`, "/headers"},
		{`{"transport":"stdio","command":["x"],"env":{"A=B":"c"}}`, "/env/A=B"},
		{`{"transport":"stdio","command":["x"],"env":{"A":"env://"}}`, "/env/A"},
		{`{"transport":"stdio","command":["x"],"dir":"relative"}`, "/dir"},
		{`{"transport":"stdio","command":["x"],"dir":"/a/../b"}`, "/dir"},
		{`{"transport":"stdio","command":["x"],"session":"mine"}`, "/session"},
		{`{"transport":"stdio","command":["x"],"on_change":"whatever"}`, "/on_change"},
		{`{"transport":"stdio","command":["x"],"capabilities":["tasks"]}`, "/capabilities/0"},
		{`{"transport":"stdio","command":["x"],"capabilities":["roots","roots"]}`, "/capabilities/1"},
		{`{"transport":"stdio","command":["x"],"roots":[{"uri":"file:///a"}]}`, "/roots"},
		{`{"transport":"stdio","command":["x"],"capabilities":["roots"],"roots":[{"uri":"a"}]}`, "/roots/0/uri"},
		{`{"transport":"stdio","command":["x"],"start_timeout_s":-1}`, "/start_timeout_s"},
		{`{"transport":"stdio","command":["x"],"call_timeout_s":1e300}`, "/call_timeout_s"},
		{`{"transport":"stdio","command":["x"],"max_sessions":-1}`, "/max_sessions"},
		{`{"transport":"stdio","command":["x"],"max_result_bytes":99999999999}`, "/max_result_bytes"},
		{`{"transport":"stdio","command":["x"],"registry":{"url":"","name":"io.x/y","version":"1.0.0","digest":"sha256:` + strings.Repeat("a", 64) + `"}}`, "/registry/url"},
		{`{"transport":"stdio","command":["x"],"registry":{"url":"https://r.example","name":"` + strings.Repeat("x", 257) + `","version":"1","digest":"sha256:` + strings.Repeat("a", 64) + `"}}`, "/registry/name"},
		{`{"transport":"stdio","command":["x"],"registry":{"url":"https://r.example","name":"io.x/y","version":"1","digest":"md5"}}`, "/registry/digest"},
		{`{"transport":"stdio","command":"x"}`, "/command"},
		{`{"transport":"stdio","command":["x"],"comand":1}`, "/comand"},
		{`{"transport":"stdio","command":["x"],"name":"other"}`, "/name"},
		{`{"transport":"http"}`, "/url"},
		{`{"transport":"http","url":"ftp://example.com"}`, "/url"},
		{`{"transport":"http","url":"https://u:p@example.com"}`, "/url"},
		{`{"transport":"sse","url":"https://example.com/#x"}`, "/url"},
		{`{"transport":"http","url":"https://example.com","command":["x"]}`, "/command"},
		{`{"transport":"http","url":"https://example.com","headers":{"Mcp-Session-Id":"x"}}`, "/headers/Mcp-Session-Id"},
		{`{"transport":"http","url":"https://example.com","headers":{"Host":"x"}}`, "/headers/Host"},
		{`{"transport":"http","url":"https://example.com","headers":{"a b":"x"}}`, "/headers/a b"},
		{`{"transport":"http","url":"https://example.com","headers":{"A":"x\ny"}}`, "/headers/A"},
		{`{"transport":"http","url":"https://example.com","headers":{"A":"x","a":"y"}}`, "/headers/a"},
		{`{"transport":"http","url":"https://example.com","network":[{"host":""}]}`, "/network/0"},
	} {
		_, err := ParseSpec("s", "", []byte(c.text))
		if err == nil {
			t.Errorf("%.100s passes", c.text)
			continue
		}
		e := toolkeep.AsError(err)
		faults, _ := e.Details["errors"].([]toolkeep.Fault)
		found := false
		for _, f := range faults {
			found = found || f.Pointer == c.pointer || strings.EqualFold(f.Pointer, c.pointer)
		}
		if c.pointer == "" && e.Code == toolkeep.InvalidEncoding {
			continue // refused by the parser
		}
		if !found {
			t.Errorf("%.100s: %v, want a fault at %s", c.text, faults, c.pointer)
		}
	}
	for _, name := range []string{"", "A", "1a", "a_b", "a.b", strings.Repeat("a", 33)} {
		if _, err := ParseSpec(name, "", []byte(`{"transport":"stdio","command":["x"]}`)); err == nil {
			t.Errorf("the name %q passes", name)
		}
	}
}

func TestSecretReferences(t *testing.T) {
	for v, want := range map[string][2]string{
		"env://A": {"", "env://A"}, "Bearer env://A": {"Bearer ", "env://A"}, "file:///x/y": {"", "file:///x/y"},
		"vault://a": {"", "vault://a"}, "secret://a": {"", "secret://a"},
		"plain": {}, "text:env://A": {}, "https://env://": {}, "two words env://A": {}, "": {}, " env://A": {},
	} {
		prefix, ref, ok := Secret(v)
		if prefix != want[0] || ref != want[1] || ok != (want[1] != "") {
			t.Errorf("%q: %q %q %t", v, prefix, ref, ok)
		}
	}
	if literal("text:env://A") != "env://A" || literal("x") != "x" {
		t.Error("literals")
	}
}

func TestNamesOfFolders(t *testing.T) {
	seen := map[string]string{}
	for _, tenant := range []string{"", "_", "acme", "Acme", "a/b", "..", ".", "a.b", "ä", strings.Repeat("x", 300), strings.Repeat("x", 301), ".2e"} {
		name := safeName(tenant)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q share the folder %s", tenant, other, name)
		}
		seen[name] = tenant
		if strings.ContainsAny(name, "/") || name == "." || name == ".." || len(name) > 255 {
			t.Errorf("%q gives %q", tenant, name)
		}
	}
}

func TestHealth(t *testing.T) {
	c := Config{restartLimit: 4, restartWindow: time.Minute, backoffBase: time.Second, backoffMax: 3 * time.Second, cooling: 30 * time.Second}
	var h health
	now := time.Unix(1_800_000_000, 0)
	wait := func() time.Duration {
		if e := h.gate("s", now); e != nil {
			return e.RetryAfter
		}
		return 0
	}
	if wait() != 0 {
		t.Error("it begins closed")
	}
	h.fail(&c, now, "why", "last")
	if wait() != 0 {
		t.Error("the first failure costs time")
	}
	h.fail(&c, now, "why", "last")
	if d := wait(); d < 750*time.Millisecond || d > time.Second {
		t.Errorf("the second costs %s", d)
	}
	h.fail(&c, now, "why", "last")
	if d := wait(); d < 1500*time.Millisecond || d > 2*time.Second || h.stateLocked(now) != StateBackoff {
		t.Errorf("the third costs %s", d)
	}
	h.fail(&c, now, "why", "last")
	if d := wait(); d != 30*time.Second || h.stateLocked(now) != StateFailed {
		t.Errorf("the fourth costs %s", d)
	}
	// After its rest one more start; a failure makes it rest again.
	now = now.Add(31 * time.Second)
	if wait() != 0 {
		t.Error("it rests for ever")
	}
	h.fail(&c, now, "why", "last")
	if wait() != 30*time.Second {
		t.Error("it does not rest again")
	}
	now = now.Add(2 * time.Minute)
	h.started()
	if wait() != 0 || h.stateLocked(now) != StateIdle {
		t.Error("it is not well again")
	}
	h.fail(&c, now, "why", "last") // failures older than the window do not count
	if wait() != 0 {
		t.Error("old failures count")
	}
	h.note(now, toolkeep.NewError(toolkeep.LoginRequired, "x"), "y")
	if h.stateLocked(now) != StateLogin {
		t.Error("login")
	}
	h.forgive()
	if h.stateLocked(now) != StateIdle {
		t.Error("forgive")
	}
}

func TestRing(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	secrets := redact.NewSecrets(nil)
	defer secrets.Hold("hunter22")()
	r := newRing(1000, secrets, func() time.Time { return now })
	r.copyStderr(strings.NewReader("first\n\n  \nhas hunter22 in it\r\n\x1b[31mred\x1b[0m\a\nbad \xff utf8\n" + strings.Repeat("y", 100_000) + "\nlast without a break"))
	got := string(r.bytes())
	if !strings.HasSuffix(got, "2> (83617 bytes left out) last without a break\n") {
		t.Errorf("the end is %q", got[max(0, len(got)-100):])
	}
	if strings.Contains(got, "hunter22") || strings.Contains(got, "\x1b") || len(got) > 1000+maxLogLine+50 {
		t.Errorf("%d bytes: %.200q", len(got), got)
	}
	if r.lastError() != "last without a break" {
		t.Error(r.lastError())
	}
	r = newRing(1<<20, secrets, func() time.Time { return now })
	r.copyStderr(strings.NewReader("first\n\n  \nhas hunter22 in it\r\n\x1b[31mred\x1b[0m\a\nbad \xff utf8\n"))
	want := "2027-01-15T08:00:00.000Z 2> first\n2027-01-15T08:00:00.000Z 2> has [REDACTED] in it\n2027-01-15T08:00:00.000Z 2> [31mred[0m\n2027-01-15T08:00:00.000Z 2> bad \ufffd utf8\n"
	if got := string(r.bytes()); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	for range 1000 {
		r.note("again")
	}
	now = now.Add(time.Minute)
	r.note("later")
	if got := string(r.bytes()); strings.Count(got, "again") != 4*noteRate || !strings.Contains(got, "(800 lines left out) later") {
		t.Errorf("%d lines", strings.Count(got, "again"))
	}
}

func TestQuietClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f pendingRequest
		gaveUp := make(chan error, 1)
		stop := f.watch(time.Second, func(err error) { gaveUp <- err })
		defer stop()
		time.Sleep(900 * time.Millisecond)
		f.signs.Add(1)
		f.asks.Add(1)
		time.Sleep(5 * time.Second)
		if len(gaveUp) != 0 {
			t.Fatal("the clock ran while a question waited")
		}
		f.asks.Add(-1)
		f.signs.Add(1)
		time.Sleep(2100 * time.Millisecond)
		if len(gaveUp) != 1 {
			t.Error("it is never given up")
		}
	})
}

// TestFailuresAtOnce: the pause after restartLimit failures also holds for callers that come at the same
// moment, and after it one of them tries.
func TestFailuresAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{restartLimit: 5, restartWindow: time.Minute, backoffBase: time.Millisecond, backoffMax: time.Millisecond, cooling: 30 * time.Second, Clock: time.Now}
		var h health
		together := func(works bool) (starts int64) {
			var n atomic.Int64
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if h.begin(t.Context(), &c, "s") != nil {
						return
					}
					defer h.over()
					n.Add(1)
					time.Sleep(time.Second)
					if works {
						h.started()
					} else {
						h.fail(&c, time.Now(), "why", "last")
					}
				})
			}
			all.Wait()
			return n.Load()
		}
		if n := together(false); n != 5 {
			t.Errorf("%d starts before the pause", n)
		}
		if n := together(false); n != 0 {
			t.Errorf("%d starts during the pause", n)
		}
		time.Sleep(31 * time.Second)
		if n := together(false); n != 1 {
			t.Errorf("%d starts after the pause", n)
		}
		time.Sleep(31 * time.Second)
		if n := together(true); n != 50 {
			t.Errorf("%d starts of a server that works", n)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		h = health{starts: 5}
		if e := h.begin(stopped, &c, "s"); e == nil || e.Code != toolkeep.MCPUnavailable {
			t.Errorf("a start that waits does not end: %v", e)
		}
	})
}
