package storetest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// testCursors: a cursor moves forward from where it is, for one of those that move it, and stays.
func testCursors(t *testing.T, f *fixture) {
	at := f.clock()
	move := func(reader string, writer, from, to int64) toolkeep.Change {
		return toolkeep.MoveCursor{Reader: reader, From: from, To: toolkeep.Cursor{Writer: writer, Seq: to, At: at}}
	}
	want := func(reader string, list ...toolkeep.Cursor) {
		t.Helper()
		got, err := f.store.Cursors(t.Context(), reader)
		if err != nil || !slices.EqualFunc(got, list, func(a, b toolkeep.Cursor) bool {
			return a.Writer == b.Writer && a.Seq == b.Seq && a.At.Equal(b.At)
		}) {
			t.Fatalf("the cursors of %s are %v, %v; want %v", reader, got, err, list)
		}
	}
	want("a")
	f.apply(move("a", 2, 0, 5), move("a", 1, 0, 7), move("b", 1, 0, 1))
	want("a", toolkeep.Cursor{Writer: 1, Seq: 7, At: at}, toolkeep.Cursor{Writer: 2, Seq: 5, At: at})
	first := at
	f.pass(time.Minute)
	at = f.clock()
	f.apply(move("a", 1, 7, 9))
	for _, c := range []toolkeep.Change{
		move("a", 1, 7, 10), // another was faster
		move("a", 1, 0, 10),
		move("a", 3, 4, 10), // it is at 0
		move("b", 2, 1, 10),
	} {
		f.refused(toolkeep.ErrStale, c)
	}
	f.refused(toolkeep.ErrStale, move("b", 1, 1, 2), move("a", 1, 7, 10)) // all or nothing
	want("a", toolkeep.Cursor{Writer: 1, Seq: 9, At: at}, toolkeep.Cursor{Writer: 2, Seq: 5, At: first})
	want("b", toolkeep.Cursor{Writer: 1, Seq: 1, At: first})

	won := make(chan bool, 8)
	together(cap(won), func(i int) {
		err := f.store.Apply(t.Context(), move("a", 2, 5, int64(6+i)))
		if err != nil && !errors.Is(err, toolkeep.ErrStale) {
			t.Error(err)
		}
		won <- err == nil
	})
	close(won)
	n := 0
	for ok := range won {
		if ok {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of 8 moved a cursor from one place", n)
	}
	if f.reopen == nil {
		return
	}
	list, err := f.store.Cursors(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	f.store = f.reopen()
	want("a", list...)

	// Links of events alone.
	f.apply(toolkeep.RecordCall{Invocation: call("r1", toolkeep.CallSucceeded)},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e1", Tenant: "t", Type: "x", Time: at, Data: []byte(`{}`)}},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e2", Tenant: "u", Type: "x", Time: at, Data: []byte(`{}`)}},
		toolkeep.RecordCall{Invocation: call("r2", toolkeep.CallSucceeded)})
	w, err := f.store.ChainWriters(t.Context(), nil)
	if err != nil || len(w) == 0 {
		t.Fatalf("writers %v, %v", w, err)
	}
	last := w[len(w)-1]
	for _, content := range []bool{false, true} {
		links, read, err := f.store.Links(t.Context(), toolkeep.LinkQuery{Writer: last.ID, UpTo: last.Newest, All: true, Events: true, Content: content, Limit: 10})
		if err != nil || len(links) != 2 || read != last.Newest || content && (links[0].Ref != "e1" || links[1].Ref != "e2") {
			t.Errorf("events: %v, up to %d, %v", links, read, err)
		}
		links, _, err = f.store.Links(t.Context(), toolkeep.LinkQuery{Writer: last.ID, UpTo: last.Newest, Tenant: "t", Events: true, Content: content, Limit: 10})
		if err != nil || len(links) != 1 {
			t.Errorf("events of one tenant: %v, %v", links, err)
		}
	}
}
