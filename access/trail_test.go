package access

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// heard are the WARN lines and the records of an Access.
type heard struct {
	out   bytes.Buffer
	store *memory
}

func (h *heard) lines(t *testing.T, message string) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(h.out.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m["msg"] == message && m["level"] == "WARN" {
			lines = append(lines, m)
		}
	}
	return lines
}

func (h *heard) records(t *testing.T) (all []map[string]any) {
	t.Helper()
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	for _, c := range h.store.feed {
		if e, ok := c.Change.(toolkeep.AppendEvent); ok {
			m := map[string]any{"type": e.Event.Type, "tenant": e.Event.Tenant}
			if err := json.Unmarshal(e.Event.Data, &m); err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
	}
	return all
}

func listening(t *testing.T, c *clock, more Config, keys ...toolkeep.APIKey) (*Access, *heard) {
	h := &heard{store: newMemory()}
	for _, k := range keys {
		if err := h.store.Apply(t.Context(), toolkeep.PutKey{Key: k}); err != nil {
			t.Fatal(err)
		}
	}
	more.Clock, more.Store, more.Load = c.Now, h.store, h.store.keys
	more.Log = slog.New(slog.NewJSONHandler(&h.out, nil))
	a, err := New(more)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	return a, h
}

// TestEachFailureIsTold: every way to be refused is a WARN line and a record, also during
// a block, and no secret is in either.
func TestEachFailureIsTold(t *testing.T) {
	var c clock
	key, text := NewKey(agentSpec, c.Now())
	oldSpec := agentSpec
	oldSpec.Subject = "old"
	old, oldText := NewKey(oldSpec, c.Now())
	old.RevokedAt = c.Now()
	_, strange := NewKey(agentSpec, c.Now())
	a, h := listening(t, &c, Config{Failures: FailureLimits{PerAddr: 3}}, key, old)
	for _, bearer := range []string{"", "guess", wrongSecret(text), strange, "again", "", wrongSecret(text), oldText, "eyJ.e30.x"} {
		if _, err := a.Authenticate(t.Context(), bearer, "192.0.2.1"); err == nil {
			t.Fatalf("%q is let in", bearer)
		}
	}
	p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "192.0.2.1"))
	a.NoteDenied(p, "std.echo")
	a.NoteRefused(p, toolkeep.PermKeys)
	a.Stop()
	var told []string
	for _, l := range h.lines(t, "access refused") {
		told = append(told, fmt.Sprint(l["reason"], " ", l["addr"], " ", l["subject"], " ", l["tool"], " ", l["permission"]))
	}
	want := []string{"no_credential 192.0.2.1 <nil> <nil> <nil>", "malformed 192.0.2.1 <nil> <nil> <nil>", "wrong_secret 192.0.2.1 bot <nil> <nil>",
		"unknown_key 192.0.2.1 <nil> <nil> <nil>", "blocked 192.0.2.1 <nil> <nil> <nil>", "blocked 192.0.2.1 <nil> <nil> <nil>",
		"blocked 192.0.2.1 bot <nil> <nil>", "revoked 192.0.2.1 old <nil> <nil>", "blocked 192.0.2.1 <nil> <nil> <nil>",
		"denied 192.0.2.1 bot std.echo <nil>", "denied 192.0.2.1 bot <nil> keys:admin"}
	if fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("told\n%s\nwant\n%s", strings.Join(told, "\n"), strings.Join(want, "\n"))
	}
	records := h.records(t)
	if len(records) != len(want)-1 { // a denied call has its own
		t.Fatalf("%d records: %v", len(records), records)
	}
	for _, r := range records {
		if r["type"] != "ai.agent.auth.failed" || r["ip_address"] != "192.0.2.1" || r["tenant"] == "" || r["reason"] == "" {
			t.Errorf("record %v", r)
		}
	}
	for _, secret := range []string{text, oldText, strange} {
		if word := secret[len(keyPrefix)+idChars+1:]; strings.Contains(h.out.String()+fmt.Sprint(records), word) {
			t.Error("a secret is told")
		}
	}
}

// TestManyFailuresAreCounted: past a hundred a minute and address there is one line and
// one record with their number; addresses beyond the bound share one.
func TestManyFailuresAreCounted(t *testing.T) {
	var c clock
	a, h := listening(t, &c, Config{})
	fail := func(n int, addr string) {
		for range n {
			is2(t, second(a.Authenticate(t.Context(), "guess", addr)))
		}
	}
	fail(250, "2001:db8::1")
	fail(50, "2001:db8::2") // the same network
	fail(5, "192.0.2.1")
	if n := len(h.lines(t, "access refused")); n != 105 {
		t.Errorf("%d lines in the first minute", n)
	}
	c.pass(time.Minute)
	fail(1, "192.0.2.1")
	for i := range 3000 {
		fail(1, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
	}
	if n := len(h.lines(t, "access refused")); n != 105+1000 {
		t.Errorf("%d lines in the second minute", n)
	}
	if n := len(a.trail.of); n > perMinute+1 {
		t.Errorf("%d addresses are kept", n)
	}
	a.Stop()
	further := h.lines(t, "access refused further times within a minute")
	if len(further) != 2 || further[0]["addr"] != "2001:db8::/64" || further[0]["times"] != 200.0 || further[1]["addr"] != "" || further[1]["times"] != 2001.0 {
		t.Errorf("%v", further)
	}
	if r := h.records(t); len(r) < 106 || len(r) > 105+1000+2 {
		t.Errorf("%d records", len(r))
	}
}

func is2(t *testing.T, err error) {
	t.Helper()
	if !toolkeep.IsCode(err, toolkeep.Unauthenticated) && !toolkeep.IsCode(err, toolkeep.AuthFailuresLimited) {
		t.Fatal(err)
	}
}
