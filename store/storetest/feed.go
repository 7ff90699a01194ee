package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
)

// everyChange returns one change of each type that the feed delivers, in an order in
// which each succeeds, and what watchers must get.
func everyChange(now time.Time) (changes, want []toolkeep.Change) {
	claimed := FullCall("c", toolkeep.CallQueued, 1)
	claimed.CancelBy, claimed.CancelWhy = "", ""
	moved := FullCall("c", toolkeep.CallRunning, 2)
	moved.Subject, moved.LeaseOwner, moved.CancelBy = claimed.Subject, claimed.LeaseOwner, ""
	until := moved.LeaseUntil.Add(time.Hour)
	record := FullCall("r", toolkeep.CallFailed, 3)
	ended := without(FullCall("c", toolkeep.CallSucceeded, 4), "FetchedAt")
	version := tool("t", "ns.a", "1.0.0", "sha256:1")
	deprecated := version.Life
	deprecated.State, deprecated.Reason = toolkeep.Deprecated, "old"
	move := func(v *toolkeep.Invocation) toolkeep.MoveCall {
		return toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallQueued, toolkeep.CallRunning},
			Owner: claimed.LeaseOwner, FreeKey: v == ended}
	}
	changes = []toolkeep.Change{
		toolkeep.PublishVersion{Version: version},
		toolkeep.SetLifecycle{Tenant: "t", ToolID: "ns.a", Version: "1.0.0", Life: deprecated, By: "boss"},
		toolkeep.RecordCall{Invocation: record},
		toolkeep.ClaimCall{Invocation: without(claimed, "FetchedAt")},
		toolkeep.MoveCall(move(without(moved, "FetchedAt"))),
		toolkeep.RenewLeases{Owner: claimed.LeaseOwner, Calls: []toolkeep.CallRef{ref("c")}, Until: until},
		toolkeep.RequestCancel{Call: ref("c"), By: "s", Why: "because"},
		toolkeep.ReportProgress{Call: ref("c"), Progress: toolkeep.Progress{Percent: 5, Phase: "p", Message: "m"}},
		toolkeep.MoveCall(move(ended)),
		toolkeep.MarkFetched{Call: ref("c"), At: now},
		toolkeep.PutKey{Key: apiKey("t", "a")},
		toolkeep.RevokeKey{Tenant: "t", ID: "a", At: now, By: "boss"},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Type: "ai.agent.tool.registered", Tenant: "t", Time: now, Data: []byte(`{"a":1}`)}},
		toolkeep.PutDocument{Document: fullDocument(now), Expect: toolkeep.NoRevision},
		toolkeep.DeleteDocument{Kind: "kind", Tenant: "t", ID: "i", Expect: 1, By: "boss"},
	}
	hide := []string{"Output", "SealedArgs"}
	want = append(want, changes...)
	want[2] = toolkeep.RecordCall{Invocation: without(record, WaitingOnly()...)}
	want[3] = toolkeep.ClaimCall{Invocation: without(claimed, append(hide, "FetchedAt")...)}
	want[4] = move(without(moved, append(hide, "FetchedAt")...))
	last := move(ended)
	last.Invocation = without(ended, append(hide, "LeaseOwner", "LeaseUntil")...)
	want[8] = last
	placed := fullDocument(now)
	placed.Revision = 1
	want[13] = toolkeep.PutDocument{Document: placed, Expect: toolkeep.NoRevision}
	return changes, want
}

// changeTypes returns the types of the closed set toolkeep.Change, as declared in
// change.go at the root of the module.
func changeTypes(t *testing.T) []string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Skip("the sources of toolkeep are not above the test's directory; the closed set cannot be read")
		}
		dir = filepath.Dir(dir)
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, "change.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && fn.Name.Name == "change" {
			names = append(names, fn.Recv.List[0].Type.(*ast.Ident).Name)
		}
	}
	if len(names) == 0 {
		t.Fatal("change.go declares no change")
	}
	return names
}

// testEveryChange applies a change of every type of the closed set. A store without an
// action for a new type fails here.
func testEveryChange(t *testing.T, f *fixture) {
	changes, _ := everyChange(f.clock())
	changes = append(changes, toolkeep.Enqueue{Call: ref("c")})
	applied := map[string]bool{}
	for _, c := range changes {
		applied[fmt.Sprintf("%T", c)] = true
		if err := f.store.Apply(t.Context(), c); err != nil {
			t.Errorf("%T: %v", c, err)
		}
	}
	for _, name := range changeTypes(t) {
		if !applied["toolkeep."+name] {
			t.Errorf("no example of toolkeep.%s: add one to everyChange, with what watchers get", name)
		}
	}
}

func testFeed(t *testing.T, f *fixture) {
	changes, want := everyChange(f.clock())
	for _, c := range changes {
		f.apply(c)
		f.pass(time.Second)
	}
	check := func() {
		t.Helper()
		got := f.feed(0)
		if len(got) != len(want) {
			t.Fatalf("the feed has %d changes, want %d", len(got), len(want))
		}
		start := got[0].At
		for i, c := range got {
			if c.Seq != int64(i)+1 || !c.At.Equal(start.Add(time.Duration(i)*time.Second)) {
				t.Errorf("change %d is at %d, %s", i, c.Seq, c.At)
			}
			change := c.Change
			if r, ok := change.(toolkeep.RecordCall); ok { // may carry fields that the index does not keep
				change = toolkeep.RecordCall{Invocation: without(r.Invocation, WaitingOnly()...)}
			}
			if fmt.Sprintf("%T", change) != fmt.Sprintf("%T", want[i]) {
				t.Errorf("change %d is %T, want %T", i, change, want[i])
			}
			sameJSON(t, fmt.Sprintf("change %d, %T", i, want[i]), change, want[i])
		}
		if rest := f.feed(5); len(rest) != len(want)-5 || rest[0].Seq != 6 {
			t.Errorf("after 5 come %d changes", len(rest))
		}
	}
	check()
	if f.reopen == nil {
		t.Log("LEFT OUT: this store cannot be opened again")
		return
	}
	f.store = f.reopen()
	check()
}

func testFeedSilence(t *testing.T, f *fixture) {
	f.apply(toolkeep.RecordCall{Invocation: call("over", toolkeep.CallSucceeded)})
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	head := f.head()
	f.apply(toolkeep.RequestCancel{Call: ref("over"), By: "s"})
	f.apply(toolkeep.ReportProgress{Call: ref("over"), Progress: toolkeep.Progress{Percent: 1}})
	f.apply(toolkeep.MarkFetched{Call: ref("a"), At: f.clock()})
	f.apply(toolkeep.RenewLeases{Owner: "nobody", Calls: []toolkeep.CallRef{ref("a")}, Until: f.clock()})
	f.apply(toolkeep.Enqueue{Call: ref("a")})
	f.refused(toolkeep.ErrIDTaken, toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	f.refused(toolkeep.ErrStale, toolkeep.MoveCall{Invocation: call("a", toolkeep.CallRunning)})
	f.refused(toolkeep.ErrStale, toolkeep.PutDocument{Document: toolkeep.Document{Kind: "kind", ID: "i"}, Expect: 1})
	f.refused(toolkeep.ErrNotFound, toolkeep.DeleteDocument{Kind: "kind", ID: "i", Expect: toolkeep.AnyRevision})
	if f.head() != head {
		t.Errorf("the feed went from %d to %d", head, f.head())
	}
	f.apply(toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}})
	if f.head() != head+1 {
		t.Errorf("the next change is at %d, want %d", f.head(), head+1)
	}
}

func testFeedHides(t *testing.T, f *fixture) {
	v := call("a", toolkeep.CallRunning)
	v.SealedArgs, v.Output = []byte("sealed"), []byte(`"out"`)
	f.apply(toolkeep.ClaimCall{Invocation: v})
	f.apply(toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning}})
	for _, c := range f.feed(0) {
		var got *toolkeep.Invocation
		switch c := c.Change.(type) {
		case toolkeep.ClaimCall:
			got = c.Invocation
		case toolkeep.MoveCall:
			got = c.Invocation
		}
		if got.SealedArgs != nil || got.Output != nil {
			t.Errorf("%T shows %q and %q", c.Change, got.SealedArgs, got.Output)
		}
	}
	if string(v.SealedArgs) != "sealed" || string(v.Output) != `"out"` {
		t.Error("the caller's own object was changed")
	}
}

// testFeedOrder: watchers follow while 50 writers commit.
func testFeedOrder(t *testing.T, f *fixture) {
	const writers, each = 50, 40
	const total = writers * each
	type result struct {
		list []toolkeep.Committed
		err  error
	}
	results := make(chan result, 4)
	follow := func(after int64, pause func(i int)) {
		var r result
		for c, err := range f.store.Watch(t.Context(), after) {
			if err != nil {
				r.err = err
				break
			}
			r.list = append(r.list, c)
			pause(len(r.list))
			if c.Seq == total {
				break
			}
		}
		results <- r
	}
	half := make(chan struct{})
	go follow(0, func(int) {})
	go follow(total/2, func(int) {})
	go follow(0, func(i int) {
		if i == 10 {
			<-half // a slow one, which receives the rest all at once
		}
	})
	together(writers, func(w int) {
		for i := range each {
			v := call(fmt.Sprintf("w%d-%d", w, i), toolkeep.CallSucceeded)
			if err := f.store.Apply(t.Context(), toolkeep.RecordCall{Invocation: v}); err != nil {
				t.Errorf("Apply: %v", err)
			}
		}
	})
	close(half)
	go follow(0, func(int) {})
	for range 4 {
		r := <-results
		if r.err != nil {
			t.Fatalf("Watch: %v", r.err)
		}
		checkOrder(t, r.list, total, each)
	}
}

// checkOrder finds gaps, repetitions, and changes of one writer out of order.
func checkOrder(t *testing.T, list []toolkeep.Committed, total, each int) {
	t.Helper()
	next := int64(total - len(list) + 1)
	if next != 1 && next != int64(total/2)+1 {
		t.Errorf("a watcher got %d changes", len(list))
	}
	done := make(map[int]int)
	for _, c := range list {
		if c.Seq != next {
			t.Fatalf("got %d where %d was due", c.Seq, next)
		}
		next++
		var w, i int
		if _, err := fmt.Sscanf(c.Change.(toolkeep.RecordCall).Invocation.ID, "w%d-%d", &w, &i); err != nil {
			t.Fatal(err)
		}
		if last, ok := done[w]; ok && i != last+1 || i >= each {
			t.Fatalf("change %d of writer %d came after %d", i, w, last)
		}
		done[w] = i
	}
}

func testFeedStops(t *testing.T, f *fixture) {
	f.apply(toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range f.store.Watch(ctx, 0) {
		if err != nil {
			t.Errorf("the end of the context came as %v", err)
		}
		n++
		cancel() // the next element would block
	}
	if n != 1 {
		t.Errorf("got %d elements", n)
	}
	for range f.store.Watch(ctx, 0) {
		t.Error("an ended context yields")
	}
	for _, err := range f.store.Watch(t.Context(), 0) {
		if err != nil {
			t.Error(err)
		}
		break
	}
}

// testSlowWatcher: a watcher stops in the middle, and writers continue.
func testSlowWatcher(t *testing.T, f *fixture) {
	f.apply(toolkeep.AppendEvent{Event: toolkeep.Event{ID: "first", Tenant: "t"}})
	arrived, written, done := make(chan struct{}), make(chan struct{}), make(chan int64)
	go func() {
		var last int64
		for c, err := range f.store.Watch(t.Context(), 0) {
			if err != nil || c.Seq != last+1 {
				break
			}
			last = c.Seq
			if last == 1 {
				close(arrived)
				<-written
			}
			if last == 3001 {
				break
			}
		}
		done <- last
	}()
	<-arrived
	together(30, func(w int) {
		for i := range 100 {
			e := toolkeep.Event{ID: fmt.Sprint(w, "-", i), Tenant: "t", Data: json.RawMessage(`{}`)}
			if err := f.store.Apply(t.Context(), toolkeep.AppendEvent{Event: e}); err != nil {
				t.Errorf("Apply: %v", err)
			}
		}
	})
	close(written)
	if last := <-done; last != 3001 {
		t.Errorf("the watcher stopped at %d", last)
	}
}

// testFarBehind: watchers that start before the ring's oldest change get everything in
// order, and switch from the database to the ring without a gap.
func testFarBehind(t *testing.T, f *fixture) {
	const total, first = flow.RingRows + 1000, 1001 // first is the oldest in the ring
	changes := make([]toolkeep.Change, total)
	for i := range changes {
		changes[i] = toolkeep.RecordCall{Invocation: call(fmt.Sprint(i+1), toolkeep.CallSucceeded)}
	}
	for part := range slices.Chunk(changes, 1000) {
		f.apply(part...)
	}
	for _, after := range []int64{0, 1, first - 2, first - 1, first, total - 1} {
		list := f.feed(after)
		if int64(len(list)) != total-after {
			t.Fatalf("after %d come %d, want %d", after, len(list), total-after)
		}
		for i, c := range list {
			want := after + int64(i) + 1
			if id := c.Change.(toolkeep.RecordCall).Invocation.ID; c.Seq != want || id != fmt.Sprint(want) {
				t.Fatalf("after %d comes call %s at %d, want %d", after, id, c.Seq, want)
			}
		}
	}
}

func testReopen(t *testing.T, f *fixture) {
	if f.reopen == nil {
		t.Log("LEFT OUT: this store cannot be opened again")
		return
	}
	changes, _ := everyChange(f.clock())
	f.apply(changes...)
	f.apply(toolkeep.ClaimCall{Invocation: keyed("k", "key")})
	c, r, k := f.get("c"), f.get("r"), f.get("k")
	versions, head := f.versions()
	f.apply(toolkeep.RecordCall{Invocation: call("last", toolkeep.CallSucceeded)})

	f.store = f.reopen()
	f.same(f.get("last"), call("last", toolkeep.CallSucceeded))
	f.same(f.get("c"), c)
	f.same(f.get("r"), r)
	f.same(f.get("k"), k)
	again, seq := f.versions()
	sameJSON(t, "versions", again, versions)
	if seq != head+1 {
		t.Errorf("the head is %d, it was %d", seq, head+1)
	}
	f.refused(toolkeep.ErrKeyTaken, toolkeep.ClaimCall{Invocation: keyed("l", "key")})
	f.apply(toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e2", Tenant: "t"}})
	if list := f.feed(seq); len(list) != 1 || list[0].Seq != seq+1 {
		t.Errorf("the feed goes on with %v", list)
	}
}

func testClose(t *testing.T, f *fixture) {
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	watched := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		var last error
		for c, err := range f.store.Watch(context.Background(), 0) {
			last = err
			if c.Seq == 1 {
				close(started)
			}
		}
		watched <- last
	}()
	<-started
	// Every Apply in progress when the store closes is answered: committed or closed.
	answers := make(chan error, 50)
	for i := range 50 {
		go func() {
			answers <- f.store.Apply(context.Background(), toolkeep.AppendEvent{Event: toolkeep.Event{ID: fmt.Sprint(i), Tenant: "t"}})
		}()
	}
	if err := f.store.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := f.store.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if err := <-watched; !errors.Is(err, toolkeep.ErrClosed) {
		t.Errorf("Watch while closing ended with %v", err)
	}
	for range 50 {
		if err := <-answers; err != nil && !errors.Is(err, toolkeep.ErrClosed) {
			t.Errorf("Apply while closing: %v", err)
		}
	}
	ctx := context.Background()
	_, getErr := f.store.Invocations().Get(ctx, ref("a"))
	_, _, versionsErr := f.store.Versions(ctx)
	_, headErr := f.store.Head(ctx)
	var watchErr error
	for _, err := range f.store.Watch(ctx, 1<<40) {
		watchErr = err
	}
	for what, err := range map[string]error{
		"Apply": f.store.Apply(ctx, toolkeep.RecordCall{Invocation: call("b", toolkeep.CallSucceeded)}),
		"Get":   getErr, "Versions": versionsErr, "Head": headErr, "Watch": watchErr,
	} {
		if !errors.Is(err, toolkeep.ErrClosed) {
			t.Errorf("%s of a closed store: %v", what, err)
		}
	}
}
