package catalog

import (
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestFolder: what is applied from a folder keeps its name, only its own folder prunes it, and it comes back with the same
// content from there alone.
func TestFolder(t *testing.T) {
	c, store, _ := open(t)
	apply := func(folder string, manifests ...[]byte) []Published {
		t.Helper()
		list, err := c.Publish(t.Context(), admin("acme"), manifests, PublishOptions{Folder: folder})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	listed := func(folder string) int {
		list, n := c.List(admin("acme"), Filter{Folder: folder}, nil)
		if len(list) != n {
			t.Errorf("%d listed, %d counted", len(list), n)
		}
		return n
	}
	publish(t, c, "hand.made", "1.0.0")
	made := apply("shop", manifest("a.b", "1.0.0"), manifest("hand.made", "1.0.0", `{"description":"version 1.0.0"}`))
	if !made[0].Created || made[0].State != toolkeep.Active || made[1].Created || lifeOf(t, c, "a.b", "1.0.0").Folder != "shop" || lifeOf(t, c, "hand.made", "1.0.0").Folder != "" {
		t.Fatalf("%+v", made)
	}
	if listed("shop") != 1 || listed("other") != 0 || listed("") != 2 {
		t.Errorf("the lists have %d, %d, %d", listed("shop"), listed("other"), listed(""))
	}
	_, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.c", "1.0.0")}, PublishOptions{Folder: "No Name"})
	wantCode(t, err, toolkeep.InvalidParameters)

	prune := func(id, folder string) error {
		_, err := c.SetState(t.Context(), admin("acme"), id, "1.0.0", StateChange{State: toolkeep.Blocked, Folder: folder, Reason: "gone"})
		return err
	}
	wantCode(t, prune("a.b", "other"), toolkeep.StateConflict)
	wantCode(t, prune("hand.made", "shop"), toolkeep.StateConflict)
	_, err = c.SetState(t.Context(), admin("acme"), "a.b", "1.0.0", StateChange{State: toolkeep.Removed, Now: true, Folder: "shop"})
	wantCode(t, err, toolkeep.InvalidParameters)
	if err := prune("a.b", "shop"); err != nil {
		t.Fatal(err)
	}
	if l := lifeOf(t, c, "a.b", "1.0.0"); l.State != toolkeep.Blocked || l.Cause != toolkeep.CausePruned || l.Folder != "shop" || listed("shop") != 0 {
		t.Errorf("%+v", l)
	}

	// Only its folder brings it back.
	for _, folder := range []string{"", "other"} {
		if again := apply(folder, manifest("a.b", "1.0.0")); again[0].Created || again[0].Restored || again[0].State != toolkeep.Blocked {
			t.Errorf("%q: %+v", folder, again)
		}
	}
	applies := store.applied()
	dry, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.0.0")}, PublishOptions{Folder: "shop", DryRun: true})
	if err != nil || !dry[0].Restored || dry[0].State != toolkeep.Active || store.applied() != applies {
		t.Errorf("%+v %v", dry, err)
	}
	if again := apply("shop", manifest("a.b", "1.0.0"), manifest("a.b", "1.1.0")); !again[0].Restored || again[0].Created || !again[1].Created {
		t.Errorf("%+v", again)
	}
	if l := lifeOf(t, c, "a.b", "1.0.0"); l.State != toolkeep.Active || l.Cause != "" || l.Reason != "" || l.Folder != "shop" {
		t.Errorf("%+v", l)
	}
	types, data := store.events(t)
	if last := data[len(data)-2]; types[len(types)-2] != eventChanged || last["previous_state"] != "blocked" || last["state"] != "active" || last["by"] != "ada" {
		t.Errorf("the event of what came back is %v", last)
	}

	// What was deprecated when it was pruned comes back deprecated, and what is one active version too many is told as it is.
	setState(t, c, "a.b", "1.1.0", StateChange{State: toolkeep.Deprecated, Reason: "old"})
	was := lifeOf(t, c, "a.b", "1.1.0")
	if _, err := c.SetState(t.Context(), admin("acme"), "a.b", "1.1.0", StateChange{State: toolkeep.Blocked, Folder: "shop", Reason: "gone"}); err != nil {
		t.Fatal(err)
	}
	again := apply("shop", manifest("a.b", "1.1.0"))
	if l := lifeOf(t, c, "a.b", "1.1.0"); !again[0].Restored || again[0].State != toolkeep.Deprecated || l.State != toolkeep.Deprecated || !l.RemoveAfter.Equal(was.RemoveAfter) {
		t.Errorf("%+v %+v", again, l)
	}
	numbers := []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0"}
	var many [][]byte
	for _, v := range numbers {
		many = append(many, manifest("a.many", v))
	}
	several := apply("shop", many...)
	for i, v := range numbers {
		if l := lifeOf(t, c, "a.many", v); several[i].State != l.State || i == 0 && l.State != toolkeep.Deprecated {
			t.Errorf("%s is told to be %s and is %s", v, several[i].State, l.State)
		}
	}

	// What an administrator blocked stays blocked: pruning does not take it over, and its folder does not undo it.
	setState(t, c, "a.b", "1.0.0", StateChange{State: toolkeep.Blocked, Reason: "leaks"})
	if err := prune("a.b", "shop"); err != nil {
		t.Fatal(err)
	}
	if l := lifeOf(t, c, "a.b", "1.0.0"); l.Cause != toolkeep.CauseAdministrator || l.Reason != "leaks" {
		t.Errorf("%+v", l)
	}
	if again := apply("shop", manifest("a.b", "1.0.0")); again[0].Restored || again[0].State != toolkeep.Blocked {
		t.Errorf("%+v", again)
	}
}
