package catalog

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

const seenDigest = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

func hold(t testing.TB, c *Catalog, id, version string) toolkeep.Lifecycle {
	t.Helper()
	life, err := c.Hold(t.Context(), admin("acme"), id, version, &toolkeep.Hold{Cause: toolkeep.CauseDefinitionChanged, Why: "its definition changed", Digest: seenDigest})
	if err != nil {
		t.Fatal(err)
	}
	return life
}

func TestHoldRefusesAndReleaseLetsRun(t *testing.T) {
	c, store, now := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0")
	before := store.applied()
	life := hold(t, c, "a.b", "2.0.0")
	if life.State != toolkeep.Active || life.Held == nil || !life.Held.At.Equal(now.Now()) || life.Held.Digest != seenDigest {
		t.Fatalf("%+v", life)
	}
	// Nothing else runs in place of a held version.
	for _, rng := range []string{"", "latest", "*", ">=1", "2.0.0", "^2"} {
		_, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", rng, nil)
		e := wantCode(t, err, toolkeep.DefinitionChanged)
		if e.Details["tool_id"] != "a.b" || e.Details["version"] != "2.0.0" || e.Details["reason"] != "its definition changed" ||
			e.Details["held_at"] != "2026-01-02T03:04:05Z" || e.Details["server"] != "a" || e.Details["seen_digest"] != seenDigest {
			t.Errorf("%q: %+v", rng, e.Details)
		}
		for _, want := range []string{"toolkeep servers diff a", "toolkeep servers accept a", "its definition changed"} {
			if !strings.Contains(e.Message, want) {
				t.Errorf("%q is not in %q", want, e.Message)
			}
		}
		v, _, err := c.Describe(t.Context(), admin("acme"), "a.b", rng, nil)
		if err != nil || v.Tool.Version != "2.0.0" || v.Life.Held == nil {
			t.Errorf("Describe %q: %+v %v", rng, v.Life, err)
		}
	}
	if v, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "^1", nil); err != nil || v.Tool.Version != "1.0.0" {
		t.Errorf("the version beside it: %v %v", v.Tool, err)
	}
	list, n := c.List(admin("acme"), Filter{}, nil)
	if n != 1 || list[0].Held == nil || list[0].Held.Why != "its definition changed" || list[0].LatestVersion != "2.0.0" {
		t.Errorf("%+v", list)
	}
	v, _, _ := c.Describe(t.Context(), admin("acme"), "a.b", "", nil)
	if life, ok := c.Snapshot().Life(v.Tool); !ok || life.Held == nil {
		t.Errorf("Snapshot.Life: %+v %t", life, ok)
	}
	if _, ok := c.Snapshot().Life(&toolkeep.Tool{ID: "a.b", Version: "9.0.0", Tenant: "acme"}); ok {
		t.Error("Snapshot.Life knows a version that is not there")
	}

	// The same hold again is no change, another reason is.
	hold(t, c, "a.b", "2.0.0")
	if got := store.applied(); got != before+1 {
		t.Errorf("holding again was stored: %d applies", got-before)
	}
	now.add(time.Hour)
	other := &toolkeep.Hold{Why: "it is gone"}
	if life, err := c.Hold(t.Context(), admin("acme"), "a.b", "2.0.0", other); err != nil || life.Held.Why != "it is gone" || life.Held.Digest != "" || !life.Held.At.Equal(now.Now()) {
		t.Errorf("%+v %v", life.Held, err)
	}
	if !other.At.IsZero() {
		t.Error("the caller's hold was written to")
	}

	life, err := c.Release(t.Context(), admin("acme"), "a.b", "2.0.0")
	if err != nil || life.Held != nil {
		t.Fatalf("%+v %v", life, err)
	}
	if _, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "", nil); err != nil {
		t.Error(err)
	}
	applies := store.applied()
	if _, err := c.Release(t.Context(), admin("acme"), "a.b", ""); err != nil || store.applied() != applies {
		t.Errorf("releasing what is not held: %v, %d applies", err, store.applied()-applies)
	}

	types, data := store.events(t)
	var got []string
	for i, kind := range types {
		if kind == "ai.agent.tool.definition.changed" {
			d := data[i]
			seen, _ := d["seen_digest"].(string)
			got = append(got, d["version"].(string)+" "+d["reason"].(string)+" "+seen[:min(len(seen), 9)]+" "+map[bool]string{true: "held", false: "released"}[d["held"].(bool)])
			if d["by"] != "ada" || d["server"] != "a" || d["tool_id"] != "a.b" {
				t.Errorf("%v", d)
			}
		}
	}
	if want := "2.0.0 its definition changed sha256:00 held, 2.0.0 it is gone  held, 2.0.0 it is gone  released"; strings.Join(got, ", ") != want {
		t.Errorf("events: %s, want %s", strings.Join(got, ", "), want)
	}
}

func TestHoldKeepsToItsVersionsThroughStates(t *testing.T) {
	c, _, now := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0", "3.0.0", "4.0.0")
	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Removed, Now: true})
	setState(t, c, "a.b", "2.0.0", StateChange{State: toolkeep.Deprecated})
	setState(t, c, "a.b", "3.0.0", StateChange{State: toolkeep.Blocked})
	hold(t, c, "a.b", "") // all but the removed one
	want := map[string]toolkeep.Code{"1.0.0": toolkeep.ToolRemoved, "2.0.0": toolkeep.DefinitionChanged, "3.0.0": toolkeep.ToolBlocked, "4.0.0": toolkeep.DefinitionChanged}
	for version, code := range want {
		if _, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", version, nil); codeOf(err) != code {
			t.Errorf("%s: %v, want %s", version, err, code)
		}
	}
	// A state change does not lift it.
	if life := setState(t, c, "a.b", "3.0.0", StateChange{State: toolkeep.Active}); life.Held == nil {
		t.Error("unblocking lifted the hold")
	}
	setState(t, c, "a.b", "4.0.0", StateChange{State: toolkeep.Sunset, Date: now.Now().Add(day), Now: true})
	if _, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "4.0.0", nil); codeOf(err) != toolkeep.DefinitionChanged {
		t.Errorf("a sunset version that still runs: %v", err)
	}
	// A new version is not held, and publishing does not lift the other holds.
	publish(t, c, "a.b", "5.0.0")
	if _, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "", nil); err != nil {
		t.Error(err)
	}
	if _, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "3.0.0", nil); codeOf(err) != toolkeep.DefinitionChanged {
		t.Error(err)
	}
	now.add(2 * day)
	if _, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "4.0.0", nil); codeOf(err) != toolkeep.ToolRemoved {
		t.Errorf("past its date: %v", err)
	}
	if _, err := c.Release(t.Context(), admin("acme"), "a.b", ""); err != nil {
		t.Fatal(err)
	}
	versions, err := c.Versions(admin("acme"), "a.b", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		if v.Life.Held != nil {
			t.Errorf("%s is still held", v.Tool.Version)
		}
	}
}

func TestHoldRefuses(t *testing.T) {
	c, store, _ := open(t)
	publish(t, c, "a.b", "1.0.0")
	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated})
	publish(t, c, "a.gone", "1.0.0")
	setState(t, c, "a.gone", "", StateChange{State: toolkeep.Removed, Now: true})
	good := &toolkeep.Hold{Why: "changed"}
	servers := &toolkeep.Principal{Subject: "sue", Tenant: "acme", Permissions: []string{toolkeep.PermServers}}
	for _, r := range []struct {
		name    string
		p       *toolkeep.Principal
		id, ver string
		h       *toolkeep.Hold
		code    toolkeep.Code
	}{
		{"nobody", nil, "a.b", "", good, toolkeep.PermissionDenied},
		{"who may publish", publisher("acme"), "a.b", "", good, toolkeep.PermissionDenied},
		{"another tenant", admin("other"), "a.b", "", good, toolkeep.ToolNotFound},
		{"unknown tool", servers, "a.x", "", good, toolkeep.ToolNotFound},
		{"unknown version", servers, "a.b", "9.0.0", good, toolkeep.ToolVersionNotFound},
		{"removed", servers, "a.gone", "1.0.0", good, toolkeep.ToolRemoved},
		{"all removed", servers, "a.gone", "", good, toolkeep.ToolRemoved},
		{"no hold", servers, "a.b", "", nil, toolkeep.InvalidParameters},
		{"no reason", servers, "a.b", "", &toolkeep.Hold{Why: " "}, toolkeep.InvalidParameters},
		{"long reason", servers, "a.b", "", &toolkeep.Hold{Why: strings.Repeat("x", 2001)}, toolkeep.InvalidParameters},
		{"bad digest", servers, "a.b", "", &toolkeep.Hold{Why: "changed", Digest: "sha256:12"}, toolkeep.InvalidParameters},
	} {
		applies := store.applied()
		if _, err := c.Hold(t.Context(), r.p, r.id, r.ver, r.h); codeOf(err) != r.code {
			t.Errorf("%s: %v, want %s", r.name, err, r.code)
		}
		if store.applied() != applies {
			t.Errorf("%s: something was stored", r.name)
		}
	}
	if _, err := c.Hold(t.Context(), servers, "a.b", "", good); err != nil {
		t.Errorf("who may manage servers: %v", err)
	}
	// Only the home tenant may hold a shared tool.
	home, _, _ := open(t, func(c *Config) { c.Home = "home" })
	if _, err := home.Publish(t.Context(), admin("home"), [][]byte{manifest("a.s", "1.0.0")}, PublishOptions{Shared: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := home.Hold(t.Context(), admin("acme"), "a.s", "", good); codeOf(err) != toolkeep.PermissionDenied {
		t.Errorf("a guest held a shared tool: %v", err)
	}
	if _, err := home.Hold(t.Context(), admin("home"), "a.s", "", good); err != nil {
		t.Error(err)
	}
	// A failing store changes nothing.
	store.mu.Lock()
	store.refuse = toolkeep.ErrClosed
	store.mu.Unlock()
	if _, err := c.Release(t.Context(), servers, "a.b", ""); codeOf(err) != toolkeep.RecordUnavailable {
		t.Error(err)
	}
	if v, _, err := c.Describe(t.Context(), servers, "a.b", "", nil); err != nil || v.Life.Held == nil {
		t.Errorf("the hold is gone although the store failed: %v", err)
	}
}

func TestSetHoldsIsAllOrNothing(t *testing.T) {
	c, store, _ := open(t)
	publish(t, c, "a.one", "1.0.0")
	publish(t, c, "a.two", "1.0.0", "2.0.0")
	h := &toolkeep.Hold{Why: "changed"}
	applies := store.applied()
	err := c.SetHolds(t.Context(), admin("acme"), []HoldChange{{"a.one", "", h}, {"a.none", "", h}})
	if codeOf(err) != toolkeep.ToolNotFound || store.applied() != applies {
		t.Fatalf("%v, %d applies", err, store.applied()-applies)
	}
	if err := c.SetHolds(t.Context(), admin("acme"), make([]HoldChange, MaxBatch+1)); codeOf(err) != toolkeep.InvalidParameters {
		t.Errorf("too many: %v", err)
	}
	if err := c.SetHolds(t.Context(), admin("acme"), nil); err != nil {
		t.Error(err)
	}
	// The last change of one version counts, and all go in one commit.
	if err := c.SetHolds(t.Context(), admin("acme"), []HoldChange{{"a.one", "", h}, {"a.two", "", h}, {"a.two", "2.0.0", nil}}); err != nil {
		t.Fatal(err)
	}
	if store.applied() != applies+1 {
		t.Errorf("%d commits", store.applied()-applies)
	}
	for ref, code := range map[string]toolkeep.Code{"a.one@1.0.0": toolkeep.DefinitionChanged, "a.two@1.0.0": toolkeep.DefinitionChanged, "a.two@2.0.0": ""} {
		id, version, _ := strings.Cut(ref, "@")
		if _, _, err := c.Resolve(t.Context(), admin("acme"), id, version, nil); codeOf(err) != code {
			t.Errorf("%s: %v, want %q", ref, err, code)
		}
	}
}

// TestHoldReachesOtherNodes has two catalogues on one feed.
func TestHoldReachesOtherNodes(t *testing.T) {
	c, store, _ := open(t)
	other := New(Config{Store: store, Checkers: c.checkers})
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Stop)
	seen := make(chan bool, 64)
	other.OnChange(func(s *Snapshot) {
		if v := s.find("acme", "a.b", nil).find("1.0.0"); v != nil {
			seen <- v.Life.Held != nil
		}
	})
	publish(t, c, "a.b", "1.0.0")
	wait := func(want bool) {
		t.Helper()
		timeout := time.After(time.Minute)
		for {
			select {
			case held := <-seen:
				if held == want {
					return
				}
			case <-timeout:
				t.Fatalf("the other node never saw held = %t", want)
			}
		}
	}
	wait(false)
	hold(t, c, "a.b", "1.0.0")
	wait(true)
	if _, _, err := other.Resolve(t.Context(), admin("acme"), "a.b", "", nil); codeOf(err) != toolkeep.DefinitionChanged {
		t.Error(err)
	}
	if _, err := c.Release(t.Context(), admin("acme"), "a.b", ""); err != nil {
		t.Fatal(err)
	}
	wait(false)
}

// TestHoldHammer changes holds and states of one tool concurrently; the last write wins.
func TestHoldHammer(t *testing.T) {
	c, _, _ := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0")
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 20 {
				switch i {
				case 0:
					if _, err := c.Hold(t.Context(), admin("acme"), "a.b", "", &toolkeep.Hold{Why: "changed"}); err != nil {
						t.Error(err)
					}
				case 1:
					if _, err := c.Release(t.Context(), admin("acme"), "a.b", ""); err != nil {
						t.Error(err)
					}
				case 2:
					if _, err := c.SetState(t.Context(), admin("acme"), "a.b", "1.0.0", StateChange{State: toolkeep.Blocked}); err != nil {
						t.Error(err)
					}
				case 3:
					if v, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "2.0.0", nil); err == nil && v.Life.Held != nil {
						t.Error("a held version was resolved")
					}
				}
			}
		})
	}
	all.Wait()
	if hold(t, c, "a.b", "2.0.0").Held == nil {
		t.Error("not held at last")
	}
}

// TestHoldByHand: an administrator holds and lets go what no server holds, with catalog:admin.
func TestHoldByHand(t *testing.T) {
	c, _, _ := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0")
	why := "look at it"
	for _, p := range []*toolkeep.Principal{nil, {Subject: "s", Tenant: "acme", Permissions: []string{toolkeep.PermServers, toolkeep.PermPublish}}} {
		_, err := c.HoldByHand(t.Context(), p, "a.b", "2.0.0", &why)
		wantCode(t, err, toolkeep.PermissionDenied)
	}
	by := &toolkeep.Principal{Subject: "ada", Tenant: "acme", Permissions: []string{toolkeep.PermLifecycle}}
	life, err := c.HoldByHand(t.Context(), by, "a.b", "2.0.0", &why)
	if err != nil || life.Held == nil || life.Held.Cause != toolkeep.CauseAdministrator || life.Held.Why != why {
		t.Fatalf("%+v %v", life, err)
	}
	_, _, err = c.Resolve(t.Context(), admin("acme"), "a.b", "2.0.0", nil)
	if e := wantCode(t, err, toolkeep.DefinitionChanged); strings.Contains(e.Message, "servers accept") || !strings.Contains(e.Message, "/versions/2.0.0/hold") {
		t.Error(e.Message)
	}
	if _, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", "1.0.0", nil); err != nil {
		t.Error(err)
	}
	// A server that holds and lets go all versions of its tool leaves that one as it is.
	for _, h := range []*toolkeep.Hold{{Cause: toolkeep.CauseDefinitionChanged, Why: "another one"}, nil} {
		if err := c.SetHolds(t.Context(), admin("acme"), []HoldChange{{ToolID: "a.b", Hold: h}}); err != nil {
			t.Fatal(err)
		}
		_, _, err = c.Resolve(t.Context(), admin("acme"), "a.b", "2.0.0", nil)
		wantCode(t, err, toolkeep.DefinitionChanged)
		if _, _, err = c.Resolve(t.Context(), admin("acme"), "a.b", "1.0.0", nil); (err == nil) != (h == nil) {
			t.Error(err)
		}
	}
	if life, err = c.HoldByHand(t.Context(), by, "a.b", "2.0.0", nil); err != nil || life.Held != nil {
		t.Errorf("%+v %v", life, err)
	}
	_, err = c.HoldByHand(t.Context(), by, "a.b", "3.0.0", &why)
	wantCode(t, err, toolkeep.ToolVersionNotFound)
	_, err = c.HoldByHand(t.Context(), by, "a.none", "1.0.0", nil)
	wantCode(t, err, toolkeep.ToolNotFound)

	// What a server holds stays held.
	if _, err := c.Hold(t.Context(), admin("acme"), "a.b", "1.0.0", &toolkeep.Hold{Cause: toolkeep.CauseDefinitionChanged, Why: "another one"}); err != nil {
		t.Fatal(err)
	}
	for _, reason := range []*string{&why, nil} {
		_, err = c.HoldByHand(t.Context(), by, "a.b", "1.0.0", reason)
		wantCode(t, err, toolkeep.StateConflict)
	}
}
