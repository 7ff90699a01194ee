package catalog

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func TestSetState(t *testing.T) {
	c, store, now := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0")
	life := setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated, Reason: "old", Successor: "2.0.0"})
	if life.State != toolkeep.Deprecated || !life.DeprecatedAt.Equal(now.Now()) || !life.RemoveAfter.Equal(now.Now().Add(90*day)) {
		t.Errorf("%+v", life)
	}
	types, data := store.events(t)
	last := data[len(data)-1]
	if types[len(types)-1] != eventChanged || last["state"] != "deprecated" || last["previous_state"] != "active" || last["reason"] != "old" || last["by"] != "ada" || last["successor"] != "2.0.0" {
		t.Error(last)
	}
	applies := store.applied()
	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated, Reason: "old", Successor: "2.0.0"})
	if store.applied() != applies {
		t.Error("the same state again was stored")
	}

	_, err := c.SetState(t.Context(), admin("acme"), "a.b", "1.0.0", StateChange{State: toolkeep.Removed})
	if e := wantCode(t, err, toolkeep.InvalidParameters); e.Details["earliest"] != "2026-04-02T03:04:05Z" {
		t.Errorf("%+v", e)
	}
	now.add(90 * day)
	if life := setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Removed}); life.State != toolkeep.Removed {
		t.Errorf("%+v", life)
	}
	_, err = c.SetState(t.Context(), admin("acme"), "a.b", "1.0.0", StateChange{State: toolkeep.Active})
	wantCode(t, err, toolkeep.ToolRemoved)
}

func TestSetStateRefuses(t *testing.T) {
	c, _, now := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0", "3.0.0")
	publish(t, c, "a.other", "1.0.0")
	setState(t, c, "a.b", "3.0.0", StateChange{State: toolkeep.Blocked})
	for _, r := range []struct {
		name, tool, version string
		ch                  StateChange
		code                toolkeep.Code
		says                string
	}{
		{"unknown tool", "a.x", "", StateChange{State: toolkeep.Blocked}, toolkeep.ToolNotFound, ""},
		{"unknown version", "a.b", "9.0.0", StateChange{State: toolkeep.Blocked}, toolkeep.ToolVersionNotFound, ""},
		{"unknown state", "a.b", "1.0.0", StateChange{State: "gone"}, toolkeep.InvalidParameters, `"gone"`},
		{"sunset without a date", "a.b", "1.0.0", StateChange{State: toolkeep.Sunset}, toolkeep.InvalidParameters, "date"},
		{"sunset too early", "a.b", "1.0.0", StateChange{State: toolkeep.Sunset, Date: now.Now().Add(89 * day)}, toolkeep.InvalidParameters, "2026-04-02"},
		{"removal date too early", "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated, Date: now.Now().Add(day)}, toolkeep.InvalidParameters, "2026-04-02"},
		{"date with blocked", "a.b", "1.0.0", StateChange{State: toolkeep.Blocked, Date: now.Now()}, toolkeep.InvalidParameters, "date"},
		{"removed without deprecation", "a.b", "1.0.0", StateChange{State: toolkeep.Removed}, toolkeep.InvalidParameters, "90 days"},
		{"blocked to deprecated", "a.b", "3.0.0", StateChange{State: toolkeep.Deprecated}, toolkeep.InvalidParameters, "unblock"},
		{"own successor", "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated, Successor: "1.0.0"}, toolkeep.InvalidParameters, "own successor"},
		{"successor that is blocked", "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated, Successor: "3.0.0"}, toolkeep.InvalidParameters, "3.0.0"},
		{"successor unknown", "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated, Successor: "x.y"}, toolkeep.InvalidParameters, "x.y"},
		{"successor of active", "a.b", "3.0.0", StateChange{State: toolkeep.Active, Successor: "1.0.0"}, toolkeep.InvalidParameters, "successor"},
		{"long reason", "a.b", "1.0.0", StateChange{State: toolkeep.Blocked, Reason: strings.Repeat("x", 2001)}, toolkeep.InvalidParameters, "2000"},
	} {
		t.Run(r.name, func(t *testing.T) {
			_, err := c.SetState(t.Context(), admin("acme"), r.tool, r.version, r.ch)
			if e := wantCode(t, err, r.code); !strings.Contains(e.Message, r.says) {
				t.Errorf("%q is not in %q", r.says, e.Message)
			}
		})
	}
	_, err := c.SetState(t.Context(), publisher("acme"), "a.b", "1.0.0", StateChange{State: toolkeep.Blocked})
	wantCode(t, err, toolkeep.PermissionDenied)
	_, err = c.SetState(t.Context(), admin("other"), "a.b", "1.0.0", StateChange{State: toolkeep.Blocked})
	wantCode(t, err, toolkeep.ToolNotFound)

	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated, Successor: "a.other@^1"})
}

func TestSetStateNow(t *testing.T) {
	c, _, now := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0")
	soon := now.Now().Add(day)
	if life := setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Deprecated, Date: soon, Now: true}); !life.RemoveAfter.Equal(soon) {
		t.Errorf("%+v", life)
	}
	now.add(day)
	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Removed})
	setState(t, c, "a.b", "2.0.0", StateChange{State: toolkeep.Removed, Now: true})
}

func TestSetStateOfAllVersions(t *testing.T) {
	c, _, now := open(t)
	publish(t, c, "a.b", "1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0")
	states := func() string {
		versions, err := c.Versions(admin("acme"), "a.b", nil)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, v := range versions {
			out = append(out, string(v.Life.State[:1]))
		}
		return strings.Join(out, "")
	}
	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Sunset, Date: now.Now().Add(200 * day)})
	setState(t, c, "a.b", "", StateChange{State: toolkeep.Deprecated})
	if got := states(); got != "dddddds" {
		t.Errorf("deprecated: %s", got)
	}
	setState(t, c, "a.b", "", StateChange{State: toolkeep.Blocked})
	if got := states(); got != "bbbbbbb" {
		t.Errorf("blocked: %s", got)
	}
	setState(t, c, "a.b", "", StateChange{State: toolkeep.Active})
	if got := states(); got != "aaaaadd" {
		t.Errorf("unblocked: %s", got)
	}
	_, err := c.SetState(t.Context(), admin("acme"), "a.b", "1.0.0", StateChange{State: toolkeep.Active})
	wantCode(t, err, toolkeep.InvalidParameters)
	setState(t, c, "a.b", "", StateChange{State: toolkeep.Removed, Now: true})
	if got := states(); got != "rrrrrrr" {
		t.Errorf("removed: %s", got)
	}
	_, err = c.SetState(t.Context(), admin("acme"), "a.b", "", StateChange{State: toolkeep.Blocked})
	wantCode(t, err, toolkeep.ToolRemoved)
}

func TestSetStateBack(t *testing.T) {
	c, _, now := open(t)
	publish(t, c, "a.b", "1.0.0", "2.0.0")
	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Sunset, Date: now.Now().Add(100 * day), Reason: "x"})
	life := setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Active})
	if life.State != toolkeep.Active || life.Reason != "" || !life.DeprecatedAt.IsZero() || !life.SunsetAt.IsZero() || !life.RemoveAfter.Equal(time.Time{}) {
		t.Errorf("%+v", life)
	}
}

// TestCauseOfABlock: an automatic change neither replaces nor undoes an administrator's block, whatever its reason
// says.
func TestCauseOfABlock(t *testing.T) {
	c, _, _ := open(t)
	publish(t, c, "a.b", "1.0.0", "1.1.0")
	set := func(version string, ch StateChange) {
		t.Helper()
		setState(t, c, "a.b", version, ch)
	}
	states := func() (got []string) {
		all, err := c.Versions(admin("acme"), "a.b", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range all {
			got = append(got, v.Tool.Version+" "+string(v.Life.State)+" "+string(v.Life.Cause))
		}
		return got
	}
	automatic := StateChange{State: toolkeep.Blocked, Cause: toolkeep.CauseServerRemoved, Reason: "the MCP server a was removed"}
	undo := StateChange{State: toolkeep.Active, BlockedFor: []toolkeep.Cause{toolkeep.CauseServerRemoved}}

	set("1.0.0", StateChange{State: toolkeep.Blocked, Reason: automatic.Reason})
	set("", automatic)
	if got := states(); !slices.Equal(got, []string{"1.1.0 blocked server_removed", "1.0.0 blocked administrator"}) {
		t.Error(got)
	}
	set("", undo)
	if got := states(); !slices.Equal(got, []string{"1.1.0 active ", "1.0.0 blocked administrator"}) {
		t.Error(got)
	}
	set("", undo) // nothing is left to undo
	set("1.1.0", automatic)
	set("1.1.0", StateChange{State: toolkeep.Blocked})
	set("", undo)
	if got := states(); !slices.Equal(got, []string{"1.1.0 blocked administrator", "1.0.0 blocked administrator"}) {
		t.Error(got)
	}
	for _, ch := range []StateChange{
		{State: toolkeep.Blocked, Cause: toolkeep.CauseDefinitionChanged}, {State: toolkeep.Blocked, Cause: "whim"},
		{State: toolkeep.Active, Cause: toolkeep.CauseAdministrator},
	} {
		if _, err := c.SetState(t.Context(), admin("acme"), "a.b", "", ch); codeOf(err) != toolkeep.InvalidParameters {
			t.Errorf("%+v: %v", ch, err)
		}
	}
}
