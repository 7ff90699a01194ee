package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// tool is a version whose manifest has numbers and nested values of every kind.
func tool(tenant, id, version, digest string) toolkeep.Version {
	strict := false
	v := toolkeep.Version{
		Tool: &toolkeep.Tool{
			ID: id, Version: version, Tenant: tenant, Digest: digest,
			Manifest: &toolkeep.Manifest{
				ReleaseNotes: digest, SchemaVersion: 1, ToolID: id, Version: version, Description: "does <something> & more",
				Tags: []string{"a", "b"}, SideEffects: "reads", Risk: "low",
				ParametersSchema: json.RawMessage(`{"$defs":{"large":` + largeDefinition + `},"maximum":9007199254740993,"type":"object"}`),
				Examples:         []toolkeep.Example{{Scenario: "say it", Input: json.RawMessage(`{"n":1.10}`)}},
				Result:           &toolkeep.ResultSpec{Strict: &strict},
				Icons:            []any{map[string]any{"size": json.Number("9007199254740993")}},
				Execution:        toolkeep.ExecutionSpec{Kind: "http", Binding: json.RawMessage(`{"method":"GET"}`), TimeoutMS: 1000},
				Source:           &toolkeep.SourceSpec{Type: "openapi", Metadata: map[string]any{"n": json.Number("1.10"), "none": nil}},
			},
		},
		Life: toolkeep.Lifecycle{State: toolkeep.Active, PublishedAt: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), PublishedBy: "p"},
	}
	var err error
	if v.Tool.Raw, err = json.Marshal(v.Tool.Manifest); err != nil {
		panic(err)
	}
	return v
}

// largeDefinition is a part of the manifests of all tools.
var largeDefinition = `{"description":"` + strings.Repeat("said at length; ", 64) + `"}`

// whole returns a version with its whole tool.
func (f *fixture) whole(v toolkeep.Version) toolkeep.Version {
	f.Helper()
	t, err := v.Tool.Whole()
	if err != nil {
		f.Fatal(err)
	}
	v.Tool = t
	return v
}

// wholes returns versions with their whole tools. They come as outlines.
func (f *fixture) wholes(list []toolkeep.Version) []toolkeep.Version {
	f.Helper()
	out := make([]toolkeep.Version, len(list))
	for i, v := range list {
		if v.Tool.Raw != nil || v.Tool.Manifest.ParametersSchema != nil || v.Tool.Manifest.Description == "" {
			f.Errorf("%s is not an outline: %+v", v.Tool.Ref(), v.Tool.Manifest)
		}
		out[i] = f.whole(v)
	}
	return out
}

func (f *fixture) versions() ([]toolkeep.Version, int64) {
	f.Helper()
	list, seq, err := f.store.Versions(f.Context())
	if err != nil {
		f.Fatalf("Versions: %v", err)
	}
	return f.wholes(list), seq
}

func testPublish(t *testing.T, f *fixture) {
	v := tool("t", "ns.a", "1.0.0", "sha256:1")
	shared := tool("", "ns.a", "1.0.0", "sha256:1")
	next := tool("t", "ns.a", "1.1.0", "sha256:2")
	f.apply(toolkeep.PublishVersion{Version: v}, toolkeep.PublishVersion{Version: next})
	f.apply(toolkeep.PublishVersion{Version: shared})
	head := f.head()

	again := tool("t", "ns.a", "1.0.0", "sha256:1")
	again.Life.State = toolkeep.Blocked
	f.apply(toolkeep.PublishVersion{Version: again})
	f.refused(toolkeep.ErrVersionExists, toolkeep.PublishVersion{Version: tool("t", "ns.a", "1.0.0", "sha256:other")})
	if f.head() != head {
		t.Errorf("publishing again moved the feed from %d to %d", head, f.head())
	}
	got, seq := f.versions()
	if seq != head {
		t.Errorf("the catalogue is of %d, the feed is at %d", seq, head)
	}
	sameJSON(t, "versions", got, []toolkeep.Version{shared, v, next})
	want := tool("t", "ns.a", "1.0.0", "sha256:1")
	for _, v := range got {
		if n, ok := v.Tool.Manifest.Icons[0].(map[string]any)["size"].(json.Number); !ok || n != "9007199254740993" {
			t.Errorf("a number in a tree came back as %#v", v.Tool.Manifest.Icons[0])
		}
		if !bytes.Equal(v.Tool.Manifest.ParametersSchema, want.Tool.Manifest.ParametersSchema) {
			t.Errorf("the schema came back as %s", v.Tool.Manifest.ParametersSchema)
		}
	}

	// Of many concurrent publishers, one succeeds and the others get an error.
	results := make(chan error, 20)
	together(20, func(i int) {
		results <- f.store.Apply(t.Context(), toolkeep.PublishVersion{Version: tool("t", "ns.b", "1.0.0", fmt.Sprint("sha256:", i))})
	})
	won := 0
	for range 20 {
		switch err := <-results; {
		case err == nil:
			won++
		case !errors.Is(err, toolkeep.ErrVersionExists):
			t.Errorf("publish: %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d of 20 different versions of one number were published", won)
	}
}

func testLifecycle(t *testing.T, f *fixture) {
	v := tool("t", "ns.a", "1.0.0", "sha256:1")
	f.apply(toolkeep.PublishVersion{Version: v})
	v.Life.State, v.Life.Reason, v.Life.RemoveAfter = toolkeep.Deprecated, "old", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	f.apply(toolkeep.SetLifecycle{Tenant: "t", ToolID: "ns.a", Version: "1.0.0", Life: v.Life, By: "boss"})
	got, _ := f.versions()
	sameJSON(t, "versions", got, []toolkeep.Version{v})
	// A change based on an outdated lifecycle changes nothing.
	before, after := v.Life, v.Life
	after.Held = &toolkeep.Hold{At: time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC), Cause: toolkeep.CauseDefinitionChanged, Why: "look at it"}
	change := toolkeep.SetLifecycle{Tenant: "t", ToolID: "ns.a", Version: "1.0.0", Life: after, By: "boss", From: &before}
	f.apply(change)
	f.refused(toolkeep.ErrStale, change)
	change.Life.State, change.From = toolkeep.Blocked, &toolkeep.Lifecycle{State: after.State}
	f.refused(toolkeep.ErrStale, change)
	if got, _ = f.versions(); got[0].Life.State != after.State || got[0].Life.Held == nil {
		t.Errorf("a refused change left %+v", got[0].Life)
	}
	change.From, change.Life.Cause = &got[0].Life, toolkeep.CauseServerRemoved
	f.apply(change)
	v.Life = change.Life
	got, _ = f.versions()
	sameJSON(t, "versions", got, []toolkeep.Version{v})
	change.ToolID = "ns.none"
	f.refused(toolkeep.ErrNotFound, change)
	for _, c := range []toolkeep.SetLifecycle{
		{Tenant: "t", ToolID: "ns.a", Version: "2.0.0"}, {Tenant: "", ToolID: "ns.a", Version: "1.0.0"},
		{Tenant: "t", ToolID: "ns.b", Version: "1.0.0"},
	} {
		f.refused(toolkeep.ErrNotFound, c)
	}
}

func apiKey(tenant, id string) toolkeep.APIKey {
	k := toolkeep.APIKey{
		ID: id, Tenant: tenant, Subject: "s", Name: "name", Roles: []string{"r1", "r2"}, Scope: []string{"ns.*"},
		CreatedAt: time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC), CreatedBy: "boss",
		ExpiresAt: time.Date(2027, 2, 3, 4, 5, 6, 0, time.UTC), RequireSignature: true, Signing: []byte("sealed"),
	}
	copy(k.Hash[:], "the hash of "+id+" that has 32 bytes.....")
	return k
}

func testKeys(t *testing.T, f *fixture) {
	a, b := apiKey("t", "a"), apiKey("u", "a")
	f.apply(toolkeep.PutKey{Key: a}, toolkeep.PutKey{Key: b})
	a.Roles = []string{"other"}
	f.apply(toolkeep.PutKey{Key: a})
	at := f.clock()
	b.ExpiresAt, b.Successor = at.Add(time.Hour), "c"
	f.refused(toolkeep.ErrStale, toolkeep.RevokeKey{Tenant: "u", ID: "a", At: at, Successor: "d", Expires: at, Scope: []string{"wider.*"}}, toolkeep.PutKey{Key: apiKey("u", "d")})
	f.apply(toolkeep.RevokeKey{Tenant: "u", ID: "a", At: at, By: "boss", Successor: "c", Expires: b.ExpiresAt, Scope: b.Scope})
	f.refused(toolkeep.ErrStale, toolkeep.RevokeKey{Tenant: "u", ID: "a", At: at, Successor: "d", Expires: at, Scope: b.Scope}, toolkeep.PutKey{Key: apiKey("u", "d")})
	b.Scope = []string{"other.*"}
	f.apply(toolkeep.ScopeKey{Tenant: "u", ID: "a", From: []string{"ns.*"}, Scope: b.Scope})
	f.refused(toolkeep.ErrStale, toolkeep.ScopeKey{Tenant: "u", ID: "a", From: []string{"ns.*"}, Scope: []string{"late.*"}})
	f.refused(toolkeep.ErrNotFound, toolkeep.ScopeKey{Tenant: "t", ID: "b", Scope: []string{"x.*"}})
	for c, err := range f.store.Watch(t.Context(), f.head()-1) {
		if put, ok := c.Change.(toolkeep.PutKey); err != nil || !ok || !slices.Equal(put.Key.Scope, b.Scope) || put.Key.Successor != "c" || put.Key.Hash != b.Hash {
			t.Errorf("watchers of a key's scope get %+v, %v", c, err)
		}
		break
	}
	f.apply(toolkeep.RevokeKey{Tenant: "t", ID: "a", At: at, By: "boss"})
	f.refused(toolkeep.ErrStale, toolkeep.ScopeKey{Tenant: "t", ID: "a", From: a.Scope, Scope: []string{"x.*"}}) // it is revoked
	head := f.head()
	f.apply(toolkeep.RevokeKey{Tenant: "t", ID: "a", At: at.Add(time.Hour), By: "boss"})
	f.refused(toolkeep.ErrNotFound, toolkeep.RevokeKey{Tenant: "t", ID: "b", At: at})
	f.refused(toolkeep.ErrStale, toolkeep.RevokeKey{Tenant: "t", ID: "a", At: at, Successor: "d", Expires: at, Scope: a.Scope}) // it is over already
	a.RevokedAt = at
	got, seq, err := f.store.Keys(context.Background())
	if err != nil || seq != head {
		t.Fatalf("Keys: position %d, want %d; %v", seq, head, err)
	}
	sameJSON(t, "keys", got, []toolkeep.APIKey{a, b})
}

func testAllOrNothing(t *testing.T, f *fixture) {
	before := f.head()
	late := toolkeep.RequestCancel{Call: ref("nobody"), By: "s"}
	f.apply(toolkeep.ClaimCall{Invocation: keyed("held", "k")})
	f.refused(toolkeep.ErrNotFound,
		toolkeep.RecordCall{Invocation: call("r", toolkeep.CallSucceeded)},
		toolkeep.ClaimCall{Invocation: call("c", toolkeep.CallRunning)},
		toolkeep.MoveCall{Invocation: call("held", toolkeep.CallFailed), From: []toolkeep.CallState{toolkeep.CallRunning}, FreeKey: true},
		toolkeep.PublishVersion{Version: tool("t", "ns.a", "1.0.0", "sha256:1")},
		toolkeep.PutKey{Key: apiKey("t", "a")},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Type: "x", Tenant: "t"}},
		late,
	)
	f.missing("r")
	f.missing("c")
	f.same(f.get("held"), keyed("held", "k"))
	f.refused(toolkeep.ErrKeyTaken, toolkeep.ClaimCall{Invocation: keyed("x", "k")})
	if list, _ := f.versions(); len(list) != 0 {
		t.Errorf("a version was published")
	}
	if keys, _, err := f.store.Keys(t.Context()); err != nil || len(keys) != 0 {
		t.Errorf("a key was put: %v", err)
	}
	if got := f.head(); got != before {
		t.Errorf("the feed went from %d to %d", before, got)
	}
	// The failed Apply succeeds in one piece without the bad part.
	f.apply(
		toolkeep.RecordCall{Invocation: call("r", toolkeep.CallSucceeded)},
		toolkeep.ClaimCall{Invocation: call("c", toolkeep.CallRunning)},
		toolkeep.RequestCancel{Call: ref("c"), By: "s"},
	)
	if f.get("c").CancelBy != "s" {
		t.Errorf("a later change of an Apply does not see an earlier one")
	}
	f.apply()
}

// testNeighbours: good and bad Applies share transactions.
func testNeighbours(t *testing.T, f *fixture) {
	const n = 64
	f.apply(toolkeep.ClaimCall{Invocation: keyed("held", "k")})
	together(n, func(i int) {
		id := fmt.Sprint("c", i)
		var err, want error
		switch i % 4 {
		case 0:
			err = f.store.Apply(t.Context(), toolkeep.ClaimCall{Invocation: call(id, toolkeep.CallRunning)})
		case 1:
			want = toolkeep.ErrKeyTaken
			err = f.store.Apply(t.Context(), toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Tenant: "t"}},
				toolkeep.ClaimCall{Invocation: call(id, toolkeep.CallRunning)}, toolkeep.ClaimCall{Invocation: keyed(id+"x", "k")})
		case 2:
			err = f.store.Apply(t.Context(), toolkeep.RecordCall{Invocation: call(id, toolkeep.CallSucceeded)})
		case 3:
			want = toolkeep.ErrNotFound
			err = f.store.Apply(t.Context(), toolkeep.RecordCall{Invocation: call(id, toolkeep.CallSucceeded)},
				toolkeep.RequestCancel{Call: ref("nobody"), By: "s"})
		}
		if !errors.Is(err, want) {
			t.Errorf("Apply %d gave %v, want %v", i, err, want)
		}
	})
	for i := range n {
		if i%2 == 0 {
			f.get(fmt.Sprint("c", i))
		} else {
			f.missing(fmt.Sprint("c", i))
		}
	}
	made := map[string]bool{}
	for _, e := range f.journal(0, n/4) {
		made[e.Call.ID] = true
	}
	for i := 2; i < n; i += 4 {
		if !made[fmt.Sprint("c", i)] {
			t.Errorf("call %d is not in the journal", i)
		}
	}
}

func testMalformed(t *testing.T, f *fixture) {
	noState := call("a", "")
	for i, c := range []toolkeep.Change{
		nil,
		toolkeep.RecordCall{},
		toolkeep.RecordCall{Invocation: call("", toolkeep.CallSucceeded)},
		toolkeep.RecordCall{Invocation: &toolkeep.Invocation{ID: "a", State: toolkeep.CallSucceeded}},
		toolkeep.RecordCall{Invocation: call("a", toolkeep.CallRunning)},
		toolkeep.ClaimCall{Invocation: noState},
		toolkeep.ClaimCall{},
		toolkeep.MoveCall{Invocation: call("a", "flying"), From: []toolkeep.CallState{toolkeep.CallQueued}},
		toolkeep.RenewLeases{Calls: []toolkeep.CallRef{ref("a")}, Until: f.clock()},
		toolkeep.RequestCancel{Call: ref("a")},
		toolkeep.ReportProgress{},
		toolkeep.MarkFetched{},
		toolkeep.Enqueue{},
		toolkeep.ClaimNonce{},
		toolkeep.MoveCursor{To: toolkeep.Cursor{Seq: 1, At: f.clock()}},
		toolkeep.MoveCursor{Reader: "r", To: toolkeep.Cursor{Seq: 1}},
		toolkeep.MoveCursor{Reader: "r", From: 2, To: toolkeep.Cursor{Seq: 2, At: f.clock()}},
		toolkeep.MoveCursor{Reader: strings.Repeat("r", toolkeep.MaxReader+1), To: toolkeep.Cursor{Seq: 1, At: f.clock()}},
		toolkeep.PublishVersion{},
		toolkeep.PutKey{},
		toolkeep.ScopeKey{},
		toolkeep.RevokeKey{Tenant: "t", ID: "a"},
	} {
		if err := f.store.Apply(t.Context(), c); err == nil {
			t.Errorf("malformed change %d, %T, was committed", i, c)
		}
	}
	if f.head() != 0 {
		t.Errorf("the feed has %d changes", f.head())
	}
}

func testCancelledBefore(t *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.store.Apply(ctx, toolkeep.RecordCall{Invocation: call("a", toolkeep.CallSucceeded)}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f.missing("a")
	// With a context that may end at any moment, Apply still reports what happened.
	together(100, func(i int) {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		id := fmt.Sprint("c", i)
		err := f.store.Apply(ctx, toolkeep.RecordCall{Invocation: call(id, toolkeep.CallSucceeded)})
		_, found := f.store.Invocations().Get(t.Context(), ref(id))
		if (err == nil) != (found == nil) {
			t.Errorf("Apply gave %v, the call: %v", err, found)
		}
	})
}
