package storetest

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/flow"
)

// everyChange returns one change of each type, in an order in which each succeeds, what the
// feed must deliver of them, and what the journal.
func everyChange(now time.Time) (changes, feed []toolkeep.Change, journal []toolkeep.Entry) {
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
	event := toolkeep.Event{ID: "e", Type: "ai.agent.tool.registered", Tenant: "t", Time: now, Data: []byte(`{"a":1}`)}
	expired := without(ended, "Output", "LeaseOwner", "LeaseUntil", "SealedArgs", "SealedCaller")
	expired.State = toolkeep.CallExpired
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
		toolkeep.MoveCall{Invocation: expired, From: []toolkeep.CallState{toolkeep.CallSucceeded}},
		toolkeep.PutKey{Key: apiKey("t", "a")},
		toolkeep.ScopeKey{Tenant: "t", ID: "a", From: apiKey("t", "a").Scope, Scope: []string{"other.*"}},
		toolkeep.RevokeKey{Tenant: "t", ID: "a", At: now, By: "boss"},
		toolkeep.AppendEvent{Event: event},
		toolkeep.PutDocument{Document: fullDocument(now), Expect: toolkeep.NoRevision},
		toolkeep.DeleteDocument{Kind: "kind", Tenant: "t", ID: "i", Expect: 1, By: "boss"},
		toolkeep.ClaimNonce{Nonce: [32]byte{1}, At: now},
		toolkeep.MoveCursor{Reader: "r", To: toolkeep.Cursor{Writer: 1, Seq: 3, At: now}},
	}
	placed := fullDocument(now)
	placed.Revision = 1
	scoped := apiKey("t", "a")
	scoped.Scope = []string{"other.*"}
	feed = []toolkeep.Change{changes[0], changes[1], changes[11], toolkeep.PutKey{Key: scoped}, changes[13],
		toolkeep.PutDocument{Document: placed, Expect: toolkeep.NoRevision}, changes[16]}
	journal = []toolkeep.Entry{
		{Call: without(record, append(WaitingOnly(), "Output")...)},
		{Call: without(ended, "Output", "SealedArgs", "SealedCaller", "LeaseOwner", "LeaseUntil")},
		{Event: &event},
	}
	return changes, feed, journal
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
	changes, _, _ := everyChange(f.clock())
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
			t.Errorf("no example of toolkeep.%s: add one to everyChange, with what feed and journal get", name)
		}
	}
}

// testFeed: what everybody must know is in the feed, and nothing else.
func testFeed(t *testing.T, f *fixture) {
	changes, want, _ := everyChange(f.clock())
	var at []time.Time // of each change of the feed
	for _, c := range changes {
		head := f.head()
		f.apply(c)
		if f.head() != head {
			at = append(at, f.clock())
		}
		f.pass(time.Second)
	}
	check := func() {
		t.Helper()
		got := f.feed(0)
		if len(got) != len(want) || len(at) != len(want) {
			t.Fatalf("the feed has %d changes, want %d", len(got), len(want))
		}
		for i, c := range got {
			if c.Seq != int64(i)+1 || !c.At.Equal(at[i]) {
				t.Errorf("change %d is at %d, %s", i, c.Seq, c.At)
			}
			if fmt.Sprintf("%T", c.Change) != fmt.Sprintf("%T", want[i]) {
				t.Errorf("change %d is %T, want %T", i, c.Change, want[i])
			}
			change := c.Change
			if p, ok := change.(toolkeep.PublishVersion); ok { // an outline, unless this store has published it itself
				change = toolkeep.PublishVersion{Version: f.whole(p.Version)}
			}
			sameJSON(t, fmt.Sprintf("change %d, %T", i, want[i]), change, want[i])
		}
		if rest := f.feed(4); len(rest) != len(want)-4 || rest[0].Seq != 5 {
			t.Errorf("after 4 come %d changes", len(rest))
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

// testJournal: each call is in the journal once, when it ended, and so is each event.
func testJournal(t *testing.T, f *fixture) {
	changes, _, want := everyChange(f.clock())
	for _, c := range changes {
		f.apply(c)
	}
	check := func(what string, got []toolkeep.Entry) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: the journal has %d entries, want %d", what, len(got), len(want))
		}
		last := int64(0)
		for i, e := range got {
			if e.Seq <= last || e.At.IsZero() {
				t.Errorf("%s: entry %d has number %d and time %s", what, i, e.Seq, e.At)
			}
			last = e.Seq
			if (e.Call == nil) != (want[i].Call == nil) || (e.Event == nil) != (want[i].Event == nil) {
				t.Fatalf("%s: entry %d is %+v", what, i, e)
			}
			if e.Call != nil {
				state := want[i].Call.State
				if e.Call.State == toolkeep.CallExpired && state == toolkeep.CallSucceeded && what != "watched" {
					e.Call.State = state // its answer has expired since
				}
				f.same(without(e.Call, WaitingOnly()...), without(want[i].Call, WaitingOnly()...))
				if e.Call.Output != nil || e.Call.SealedArgs != nil || e.Call.SealedCaller != nil {
					t.Errorf("%s: entry %d shows %q, %q and %q", what, i, e.Call.Output, e.Call.SealedArgs, e.Call.SealedCaller)
				}
			}
			sameJSON(t, "event", e.Event, want[i].Event)
		}
	}
	own := f.journal(0, len(want))
	check("watched", own)
	writer := f.store.JournalWriter()
	for _, e := range own {
		if e.Writer != writer {
			t.Errorf("entry %d is of writer %d, this is %d", e.Seq, e.Writer, writer)
		}
	}
	read := func() {
		t.Helper()
		for limit := range len(want) + 1 { // in parts of each size
			var got []toolkeep.Entry
			at := toolkeep.JournalPosition(nil)
			for {
				part, next, err := f.store.ReadJournal(t.Context(), at, limit+1)
				if err != nil || len(part) > limit+1 {
					t.Fatalf("ReadJournal gave %d of %d entries, %v", len(part), limit+1, err)
				}
				got, at = append(got, part...), next
				if len(part) <= limit {
					break
				}
			}
			check(fmt.Sprint("read by ", limit+1), got)
			if last := got[len(got)-1]; at[writer] < last.Seq && at[last.Writer] < last.Seq {
				t.Errorf("the position after %d is %v", last.Seq, at)
			}
		}
	}
	read()
	for _, limit := range []int{-1, 0, 1001} {
		if _, _, err := f.store.ReadJournal(t.Context(), nil, limit); err == nil {
			t.Errorf("a limit of %d was taken", limit)
		}
	}
	if f.reopen != nil {
		f.store = f.reopen()
		read()
	}
}

// testJournalRead: a reader that looks while calls and events are written together gets each of
// them once.
func testJournalRead(t *testing.T, f *fixture) {
	const writers, pairs = 4, 250
	written := make(chan struct{})
	go func() {
		defer close(written)
		together(writers, func(w int) {
			for i := range pairs {
				id := fmt.Sprint(w, "-", i)
				err := f.store.Apply(t.Context(), toolkeep.RecordCall{Invocation: call(id, toolkeep.CallSucceeded)},
					toolkeep.AppendEvent{Event: toolkeep.Event{ID: "of " + id, Tenant: "t"}})
				if err != nil {
					t.Errorf("Apply: %v", err)
				}
			}
		})
	}()
	seen := map[string]int{}
	var at toolkeep.JournalPosition
	for last := false; ; {
		list, next, err := f.store.ReadJournal(t.Context(), at, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.Call != nil {
				seen[e.Call.ID]++
			} else {
				seen[e.Event.ID]++
			}
		}
		if at = next; len(list) == 100 {
			continue
		}
		if last {
			break
		}
		select {
		case <-written:
			last = true
		default:
		}
	}
	if len(seen) != 2*writers*pairs {
		t.Errorf("the journal gave %d of %d entries", len(seen), 2*writers*pairs)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s came %d times", id, n)
		}
	}
}

// testSilence: what failed or changed nothing is neither in the feed nor in the journal.
func testSilence(t *testing.T, f *fixture) {
	f.apply(toolkeep.RecordCall{Invocation: call("over", toolkeep.CallSucceeded)})
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	f.apply(toolkeep.RequestCancel{Call: ref("over"), By: "s"})
	f.apply(toolkeep.ReportProgress{Call: ref("over"), Progress: toolkeep.Progress{Percent: 1}})
	f.apply(toolkeep.MarkFetched{Call: ref("a"), At: f.clock()})
	f.apply(toolkeep.RenewLeases{Owner: "nobody", Calls: []toolkeep.CallRef{ref("a")}, Until: f.clock()})
	f.apply(toolkeep.Enqueue{Call: ref("a")})
	f.refused(toolkeep.ErrIDTaken, toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	f.refused(toolkeep.ErrStale, toolkeep.MoveCall{Invocation: call("a", toolkeep.CallRunning)})
	f.refused(toolkeep.ErrStale, toolkeep.MoveCall{Invocation: call("a", toolkeep.CallFailed), From: []toolkeep.CallState{toolkeep.CallQueued}})
	f.refused(toolkeep.ErrStale, toolkeep.PutDocument{Document: toolkeep.Document{Kind: "kind", ID: "i"}, Expect: 1})
	f.refused(toolkeep.ErrNotFound, toolkeep.DeleteDocument{Kind: "kind", ID: "i", Expect: toolkeep.AnyRevision})
	f.refused(toolkeep.ErrNotFound, // all or nothing, over both
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "no", Tenant: "t"}},
		toolkeep.RecordCall{Invocation: call("no", toolkeep.CallSucceeded)},
		toolkeep.PutKey{Key: apiKey("t", "no")},
		toolkeep.RevokeKey{Tenant: "t", ID: "unknown", At: f.clock()})
	if f.head() != 0 {
		t.Errorf("the feed is at %d", f.head())
	}
	f.apply(toolkeep.PutKey{Key: apiKey("t", "a")}, toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}})
	if f.head() != 1 {
		t.Errorf("the next change is at %d, want 1", f.head())
	}
	if list := f.journal(0, 2); list[0].Call.ID != "over" || list[1].Event.ID != "e" {
		t.Errorf("the journal has %+v", list)
	}
}

// stream is what the feed and the journal have in common.
type stream struct {
	name  string
	gaps  bool // numbers may be left out
	apply func(id string) toolkeep.Change
	watch func(ctx context.Context, after int64) iter.Seq2[element, error]
}

type element struct {
	seq int64
	id  string
}

func (f *fixture) streams() []stream {
	return []stream{
		{"feed", false, func(id string) toolkeep.Change { return toolkeep.PutKey{Key: apiKey("t", id)} },
			func(ctx context.Context, after int64) iter.Seq2[element, error] {
				return convert(f.store.Watch(ctx, after), func(c toolkeep.Committed) element {
					return element{c.Seq, c.Change.(toolkeep.PutKey).Key.ID}
				})
			}},
		{"journal", true, func(id string) toolkeep.Change {
			return toolkeep.RecordCall{Invocation: call(id, toolkeep.CallSucceeded)}
		},
			func(ctx context.Context, after int64) iter.Seq2[element, error] {
				return convert(f.store.WatchJournal(ctx, after), func(e toolkeep.Entry) element {
					if e.Event != nil {
						return element{e.Seq, e.Event.ID}
					}
					return element{e.Seq, e.Call.ID}
				})
			}},
	}
}

func convert[A, B any](from iter.Seq2[A, error], to func(A) B) iter.Seq2[B, error] {
	return func(yield func(B, error) bool) {
		for a, err := range from {
			var b B
			if err == nil {
				b = to(a)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// each runs a test with the feed and with the journal, in one store.
func each(run func(*testing.T, *fixture, stream)) func(*testing.T, *fixture) {
	return func(t *testing.T, f *fixture) {
		for _, s := range f.streams() {
			t.Run(s.name, func(t *testing.T) { run(t, f, s) })
		}
	}
}

// testOrder: watchers follow while 50 writers commit.
func testOrder(t *testing.T, f *fixture, s stream) {
	const writers, each = 50, 40
	const total = writers * each
	type result struct {
		list []element
		err  error
	}
	results := make(chan result, 4)
	follow := func(after int64, pause func(i int)) {
		var r result
		for c, err := range s.watch(t.Context(), after) {
			if err != nil {
				r.err = err
				break
			}
			r.list = append(r.list, c)
			pause(len(r.list))
			if len(r.list) == total || c.seq == total && !s.gaps {
				break
			}
		}
		results <- r
	}
	half := make(chan struct{})
	go follow(0, func(int) {})
	if s.gaps {
		go follow(0, func(int) {})
	} else {
		go follow(total/2, func(int) {})
	}
	go follow(0, func(i int) {
		if i == 10 {
			<-half // a slow one, which receives the rest all at once
		}
	})
	together(writers, func(w int) {
		for i := range each {
			if err := f.store.Apply(t.Context(), s.apply(fmt.Sprintf("w%d-%d", w, i))); err != nil {
				t.Errorf("Apply: %v", err)
			}
			if i%7 == 0 { // an end that fails among them
				stale := toolkeep.MoveCall{Invocation: call(fmt.Sprintf("unknown%d-%d", w, i), toolkeep.CallFailed), From: []toolkeep.CallState{toolkeep.CallRunning}}
				if err := f.store.Apply(t.Context(), stale); !errors.Is(err, toolkeep.ErrStale) {
					t.Errorf("Apply: %v", err)
				}
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
		checkOrder(t, r.list, total, each, s.gaps)
	}
}

// checkOrder finds gaps, repetitions, and changes of one writer out of order.
func checkOrder(t *testing.T, list []element, total, each int, gaps bool) {
	t.Helper()
	next := int64(total - len(list) + 1)
	if next != 1 && next != int64(total/2)+1 {
		t.Errorf("a watcher got %d changes", len(list))
	}
	done := make(map[int]int)
	for _, c := range list {
		if c.seq < next || c.seq != next && !gaps {
			t.Fatalf("got %d where %d was due", c.seq, next)
		}
		next = c.seq + 1
		var w, i int
		if _, err := fmt.Sscanf(c.id, "w%d-%d", &w, &i); err != nil {
			t.Fatal(err)
		}
		if last, ok := done[w]; ok && i != last+1 || i >= each {
			t.Fatalf("change %d of writer %d came after %d", i, w, last)
		}
		done[w] = i
	}
}

func testStops(t *testing.T, f *fixture, s stream) {
	f.apply(s.apply("e"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range s.watch(ctx, 0) {
		if err != nil {
			t.Errorf("the end of the context came as %v", err)
		}
		n++
		cancel() // the next element would block
	}
	if n != 1 {
		t.Errorf("got %d elements", n)
	}
	for range s.watch(ctx, 0) {
		t.Error("an ended context yields")
	}
	for _, err := range s.watch(t.Context(), 0) {
		if err != nil {
			t.Error(err)
		}
		break
	}
}

// testSlowWatcher: a watcher stops in the middle, and writers continue.
func testSlowWatcher(t *testing.T, f *fixture, s stream) {
	f.apply(s.apply("first"))
	arrived, written, done := make(chan struct{}), make(chan struct{}), make(chan int64)
	go func() {
		var last int64
		for c, err := range s.watch(t.Context(), 0) {
			if err != nil || c.seq != last+1 {
				break
			}
			last = c.seq
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
			if err := f.store.Apply(t.Context(), s.apply(fmt.Sprint(w, "-", i))); err != nil {
				t.Errorf("Apply: %v", err)
			}
		}
	})
	close(written)
	if last := <-done; last != 3001 {
		t.Errorf("the watcher stopped at %d", last)
	}
}

// testFarBehind: watchers that start before the ring's oldest element get everything in
// order, and switch from the database to the ring without a gap.
func testFarBehind(t *testing.T, f *fixture, s stream) {
	const total, first = flow.RingRows + 1000, 1001 // first is the oldest in the ring
	changes := make([]toolkeep.Change, total)
	for i := range changes {
		changes[i] = s.apply(fmt.Sprint(i + 1))
	}
	for part := range slices.Chunk(changes, 250) {
		f.apply(part...)
	}
	for _, after := range []int64{0, 1, first - 2, first - 1, first, total - 1} {
		want := after
		for c, err := range s.watch(t.Context(), after) {
			want++
			if err != nil || c.seq != want || c.id != fmt.Sprint(want) {
				t.Fatalf("after %d comes %s at %d, want %d; %v", after, c.id, c.seq, want, err)
			}
			if want == total {
				break
			}
		}
	}
}

func testReopen(t *testing.T, f *fixture) {
	if f.reopen == nil {
		t.Log("LEFT OUT: this store cannot be opened again")
		return
	}
	changes, _, _ := everyChange(f.clock())
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
	if seq != head {
		t.Errorf("the head is %d, it was %d", seq, head)
	}
	f.refused(toolkeep.ErrKeyTaken, toolkeep.ClaimCall{Invocation: keyed("l", "key")})
	f.apply(toolkeep.PutKey{Key: apiKey("t", "e2")})
	if list := f.feed(seq); len(list) != 1 || list[0].Seq != seq+1 {
		t.Errorf("the feed goes on with %v", list)
	}
}

func testClose(t *testing.T, f *fixture) {
	f.apply(toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)})
	watched := make(chan error, 2)
	for _, s := range f.streams() {
		f.apply(s.apply("before"))
		started := make(chan struct{})
		go func() {
			var last error
			for c, err := range s.watch(context.Background(), 0) {
				last = err
				if c.seq == 1 {
					close(started)
				}
			}
			watched <- last
		}()
		<-started
	}
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
	for range 2 {
		if err := <-watched; !errors.Is(err, toolkeep.ErrClosed) {
			t.Errorf("Watch while closing ended with %v", err)
		}
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
	_, _, journalErr := f.store.ReadJournal(ctx, nil, 1)
	var watchErr, entriesErr error
	for _, err := range f.store.Watch(ctx, 1<<40) {
		watchErr = err
	}
	for _, err := range f.store.WatchJournal(ctx, 1<<40) {
		entriesErr = err
	}
	for what, err := range map[string]error{
		"Apply": f.store.Apply(ctx, toolkeep.RecordCall{Invocation: call("b", toolkeep.CallSucceeded)}),
		"Get":   getErr, "Versions": versionsErr, "Head": headErr, "Watch": watchErr, "WatchJournal": entriesErr, "ReadJournal": journalErr,
	} {
		if !errors.Is(err, toolkeep.ErrClosed) {
			t.Errorf("%s of a closed store: %v", what, err)
		}
	}
}
