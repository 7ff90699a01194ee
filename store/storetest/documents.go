package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// fullDocument is an item in which every field but the revision is set.
func fullDocument(at time.Time) toolkeep.Document {
	return toolkeep.Document{Kind: "kind", Tenant: "t", ID: "i", Body: []byte("{\"a\":9007199254740993}\x00\xff"), UpdatedAt: at, UpdatedBy: "boss"}
}

func item(tenant, id, body string) toolkeep.Document {
	return toolkeep.Document{Kind: "kind", Tenant: tenant, ID: id, Body: []byte(body), UpdatedBy: "s"}
}

func put(it toolkeep.Document, expect int64) toolkeep.PutDocument {
	return toolkeep.PutDocument{Document: it, Expect: expect}
}

func drop(tenant, id string, expect int64) toolkeep.DeleteDocument {
	return toolkeep.DeleteDocument{Kind: "kind", Tenant: tenant, ID: id, Expect: expect, By: "s"}
}

func (f *fixture) items(kind string) []toolkeep.Document {
	f.Helper()
	list, seq, err := f.store.Documents(f.Context(), kind)
	if err != nil {
		f.Fatalf("Documents: %v", err)
	}
	if head := f.head(); seq != head {
		f.Errorf("the items are of %d, the feed is at %d", seq, head)
	}
	return list
}

// stands checks body and revision of an item, read alone and with its kind.
func (f *fixture) stands(tenant, id, body string, revision int64) {
	f.Helper()
	it, err := f.store.Document(f.Context(), "kind", tenant, id)
	if err != nil {
		f.Fatalf("Document(%s, %s): %v", tenant, id, err)
	}
	if string(it.Body) != body || it.Revision != revision || it.Tenant != tenant || it.ID != id || it.Kind != "kind" {
		f.Errorf("got %+v, want revision %d of %s", it, revision, body)
	}
	for _, listed := range f.items("kind") {
		if listed.Tenant == tenant && listed.ID == id {
			sameJSON(f.T, "the listed item", listed, it)
			return
		}
	}
	f.Errorf("item %s of tenant %q is not listed", id, tenant)
}

func (f *fixture) noDocument(tenant, id string) {
	f.Helper()
	if it, err := f.store.Document(f.Context(), "kind", tenant, id); !errors.Is(err, toolkeep.ErrNotFound) || errors.Is(err, toolkeep.ErrStale) {
		f.Errorf("Document(%s, %s) gave %+v, %v", tenant, id, it, err)
	}
	for _, it := range f.items("kind") {
		if it.Tenant == tenant && it.ID == id {
			f.Errorf("item %s of tenant %q is listed", id, tenant)
		}
	}
}

func testItems(t *testing.T, f *fixture) {
	f.noDocument("t", "i")
	full := fullDocument(f.clock())
	other, later := full, full
	other.Kind, other.Body = "other_2", nil
	later.ID, later.UpdatedAt = "a", time.Time{} // set by the store's clock
	other.Revision, later.Revision = 7, 7        // set by the store
	f.apply(put(full, toolkeep.NoRevision), put(other, toolkeep.AnyRevision))
	f.pass(time.Hour)
	f.apply(put(later, toolkeep.NoRevision))

	full.Revision, other.Revision, later.Revision, later.UpdatedAt = 1, 1, 1, f.clock()
	sameJSON(t, "items", f.items("kind"), []toolkeep.Document{later, full})
	sameJSON(t, "items", f.items("other_2"), []toolkeep.Document{other})
	if list := f.items("none"); len(list) != 0 {
		t.Errorf("there are %+v", list)
	}
	if list := f.items("other_2"); list[0].Body != nil {
		t.Errorf("no body came back as %q", list[0].Body)
	}
	got, err := f.store.Document(t.Context(), "kind", "t", "i")
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, "item", got, full)
	if !bytes.Equal(got.Body, full.Body) {
		t.Errorf("the body came back as %q", got.Body)
	}

	full.Body, full.UpdatedBy = []byte("next"), "later"
	f.apply(put(full, 1))
	f.apply(put(full, toolkeep.AnyRevision)) // the same content again counts too
	f.stands("t", "i", "next", 3)
	f.apply(drop("t", "i", 3))
	f.noDocument("t", "i")
	f.stands("t", "a", string(later.Body), 1)

	// The feed has every step, with bodies.
	var told []toolkeep.Change
	for _, c := range f.feed(f.head() - 3) {
		told = append(told, c.Change)
	}
	second, third := full, full
	second.Revision, third.Revision = 2, 3
	sameJSON(t, "feed", told, []toolkeep.Change{put(second, 1), put(third, toolkeep.AnyRevision), drop("t", "i", 3)})
}

func testItemsExpected(t *testing.T, f *fixture) {
	any, none := int64(toolkeep.AnyRevision), int64(toolkeep.NoRevision)
	missing := func(c toolkeep.Change) {
		t.Helper()
		f.refused(toolkeep.ErrStale, c)
		f.refused(toolkeep.ErrNotFound, c)
	}
	stale := func(c toolkeep.Change) {
		t.Helper()
		f.refused(toolkeep.ErrStale, c)
		if err := f.store.Apply(t.Context(), c); errors.Is(err, toolkeep.ErrNotFound) {
			t.Errorf("what exists is not found: %v", err)
		}
	}
	missing(put(item("t", "i", "0"), 1))
	missing(drop("t", "i", 1))
	if err := f.store.Apply(t.Context(), drop("t", "i", any)); !errors.Is(err, toolkeep.ErrNotFound) || errors.Is(err, toolkeep.ErrStale) {
		t.Errorf("dropping nothing gave %v", err)
	}
	f.noDocument("t", "i")
	f.apply(put(item("t", "i", "1"), none))
	stale(put(item("t", "i", "x"), none))
	stale(put(item("t", "i", "x"), 2))
	stale(drop("t", "i", 2))
	f.stands("t", "i", "1", 1)
	f.apply(put(item("t", "i", "2"), 1))
	stale(put(item("t", "i", "x"), 1))
	stale(drop("t", "i", 1))
	f.apply(put(item("t", "i", "3"), any))
	f.stands("t", "i", "3", 3)
	f.apply(drop("t", "i", any))
	f.noDocument("t", "i")
	missing(put(item("t", "i", "x"), 3))
	missing(drop("t", "i", 3))
	f.refused(toolkeep.ErrNotFound, drop("t", "i", any))
	f.noDocument("t", "i")
}

// testItemsAnew: a client that knew a dropped item does not mistake the new one for it.
func testItemsAnew(t *testing.T, f *fixture) {
	f.apply(put(item("t", "i", "old"), 0))
	f.apply(drop("t", "i", 1))
	f.apply(put(item("t", "i", "new"), toolkeep.NoRevision))
	f.refused(toolkeep.ErrStale, put(item("t", "i", "late"), 1))
	f.refused(toolkeep.ErrStale, drop("t", "i", 1))
	f.stands("t", "i", "new", 2)
	f.apply(put(item("t", "i", "next"), 2), drop("t", "i", 3), put(item("t", "i", "again"), toolkeep.AnyRevision))
	f.stands("t", "i", "again", 4)
}

func testItemsTenants(t *testing.T, f *fixture) {
	for _, tenant := range []string{"", "t", "u"} {
		f.apply(put(item(tenant, "i", "of "+tenant), toolkeep.NoRevision))
	}
	f.apply(put(item("t", "i", "changed"), 1))
	f.stands("", "i", "of ", 1)
	f.stands("t", "i", "changed", 2)
	f.stands("u", "i", "of u", 1)
	f.apply(drop("", "i", 1))
	f.noDocument("", "i")
	f.stands("t", "i", "changed", 2)
	f.refused(toolkeep.ErrStale, drop("u", "i", 2))
	f.stands("u", "i", "of u", 1)
	// Ids and tenants are arbitrary text.
	for _, odd := range []string{"a\x00b", "\xff", "\x01", "ü/%'\"", " ", strings.Repeat("ü", toolkeep.MaxDocumentID/2)} {
		f.apply(put(item(odd, odd, odd), toolkeep.NoRevision))
		f.stands(odd, odd, odd, 1)
		f.apply(put(item(odd, odd, "2"), 1))
		f.stands(odd, odd, "2", 2)
		f.apply(drop(odd, odd, 2))
		f.noDocument(odd, odd)
	}
}

func testItemsMalformed(t *testing.T, f *fixture) {
	long := strings.Repeat("a", toolkeep.MaxDocumentID+1)
	big := item("t", "i", "")
	big.Body = bytes.Repeat([]byte{'x'}, toolkeep.MaxDocumentBody+1)
	kind := func(k string) toolkeep.Document { return toolkeep.Document{Kind: k, ID: "i"} }
	for i, c := range []toolkeep.Change{
		toolkeep.PutDocument{}, toolkeep.DeleteDocument{},
		put(big, toolkeep.AnyRevision), put(item("t", "", "{}"), 0), put(item("t", long, "{}"), 0), put(item(long, "i", "{}"), 0),
		put(item("t", "i", "{}"), -2), drop("t", "i", -2), drop("t", "i", toolkeep.NoRevision), drop("t", "", 1), drop(long, "i", 1),
		put(kind(""), 0), put(kind("Kind"), 0), put(kind("1"), 0), put(kind("_"), 0), put(kind("a-b"), 0),
		put(kind(strings.Repeat("k", toolkeep.MaxDocumentKind+1)), 0),
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "i", Tenant: "t", Type: "toolkeep.item.put"}},
		toolkeep.AppendEvent{Event: toolkeep.Event{ID: "i", Tenant: "t", Type: "toolkeep.item.dropped"}},
	} {
		err := f.store.Apply(t.Context(), toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}}, c)
		if err == nil || errors.Is(err, toolkeep.ErrStale) || errors.Is(err, toolkeep.ErrNotFound) {
			t.Errorf("malformed change %d, %T, gave %v", i, c, err)
		}
	}
	if f.head() != 0 {
		t.Errorf("the feed has %d changes", f.head())
	}
	// The largest allowed item can be written and read.
	big.Body = big.Body[:toolkeep.MaxDocumentBody]
	f.apply(put(big, toolkeep.NoRevision))
	if got := f.items("kind"); len(got) != 1 || !bytes.Equal(got[0].Body, big.Body) {
		t.Errorf("there are %d items", len(got))
	}
	if c := f.feed(0)[0].Change.(toolkeep.PutDocument); !bytes.Equal(c.Document.Body, big.Body) {
		t.Errorf("the feed has %d bytes", len(c.Document.Body))
	}
}

func testItemsAllOrNothing(t *testing.T, f *fixture) {
	f.apply(put(item("t", "i", "1"), 0), put(item("t", "j", "1"), 0))
	head := f.head()
	f.refused(toolkeep.ErrStale,
		put(item("t", "i", "2"), 1),
		put(item("t", "k", "1"), 0),
		drop("t", "j", 1),
		put(item("t", "i", "3"), 1), // it is at 2
	)
	f.refused(toolkeep.ErrNotFound, drop("t", "j", 1), put(item("t", "i", "2"), 1), toolkeep.RequestCancel{Call: ref("nobody"), By: "s"})
	f.stands("t", "i", "1", 1)
	f.stands("t", "j", "1", 1)
	f.noDocument("t", "k")
	if f.head() != head {
		t.Errorf("the feed went from %d to %d", head, f.head())
	}
	f.apply(put(item("t", "i", "2"), 1), put(item("t", "i", "3"), 2), drop("t", "j", 1))
	f.stands("t", "i", "3", 3)
	f.noDocument("t", "j")
}

// testItemsAside: every reader of the feed sees the item without its body; the item
// itself has it.
func testItemsAside(t *testing.T, f *fixture) {
	aside := func(body string, expect int64) toolkeep.PutDocument {
		c := put(item("t", "i", body), expect)
		c.OmitBody = true
		return c
	}
	f.apply(aside("one", toolkeep.NoRevision), put(item("t", "j", "told"), toolkeep.NoRevision))
	f.apply(aside("two", 1))
	f.refused(toolkeep.ErrStale, aside("x", 1))
	f.stands("t", "i", "two", 2)
	f.stands("t", "j", "told", 1)
	told := func() {
		t.Helper()
		for i, c := range f.feed(0) {
			p, want := c.Change.(toolkeep.PutDocument), []string{"", "told", ""}[i]
			if string(p.Document.Body) != want || p.OmitBody != (want == "") || p.Document.ID == "" || p.Document.Revision != []int64{1, 1, 2}[i] {
				t.Errorf("change %d is %+v", c.Seq, p)
			}
		}
	}
	told()
	if f.reopen == nil {
		t.Log("LEFT OUT: this store cannot be opened again")
		return
	}
	f.store = f.reopen()
	told()
	f.stands("t", "i", "two", 2)
	f.apply(put(item("t", "i", "three"), 2)) // now with its body
	if p := f.feed(3)[0].Change.(toolkeep.PutDocument); string(p.Document.Body) != "three" || p.OmitBody {
		t.Errorf("got %+v", p)
	}
}

// testItemsRace: of many concurrent puts, one creates the item.
func testItemsRace(t *testing.T, f *fixture) {
	for round := range 10 {
		id := fmt.Sprint("i", round)
		var won atomic.Int32
		together(20, func(i int) {
			err := f.store.Apply(t.Context(), put(item("t", id, fmt.Sprint(i)), toolkeep.NoRevision))
			switch {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, toolkeep.ErrStale):
				t.Errorf("put %d: %v", i, err)
			}
		})
		if won.Load() != 1 {
			t.Errorf("%d of 20 made the item", won.Load())
		}
	}
}

// testItemsHammer counts in an item by compare and set while watchers follow.
func testItemsHammer(t *testing.T, f *fixture) {
	const workers, each = 12, 20
	f.apply(put(item("t", "n", "0"), toolkeep.NoRevision))
	count := func() error {
		for {
			it, err := f.store.Document(t.Context(), "kind", "t", "n")
			if err != nil {
				return err
			}
			var n int
			if _, err := fmt.Sscan(string(it.Body), &n); err != nil {
				return err
			}
			err = f.store.Apply(t.Context(), put(item("t", "n", fmt.Sprint(n+1)), it.Revision))
			if !errors.Is(err, toolkeep.ErrStale) {
				return err
			}
		}
	}
	followed := make(chan error, 1)
	go func() {
		n := int64(0)
		for c, err := range f.store.Watch(t.Context(), 0) {
			if err != nil {
				followed <- err
				return
			}
			it := c.Change.(toolkeep.PutDocument).Document
			if n++; string(it.Body) != fmt.Sprint(n-1) || it.Revision != n || c.Seq != n {
				followed <- fmt.Errorf("change %d is revision %d with %s", c.Seq, it.Revision, it.Body)
				return
			}
			if n == workers*each+1 {
				break
			}
		}
		followed <- nil
	}()
	together(workers, func(int) {
		for range each {
			if err := count(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	f.stands("t", "n", fmt.Sprint(workers*each), workers*each+1)
	if t.Failed() {
		return // the watcher would wait for the rest
	}
	if err := <-followed; err != nil {
		t.Error(err)
	}
}

func testItemsReopen(t *testing.T, f *fixture) {
	f.apply(put(item("t", "i", "1"), 0), put(item("", "s", "1"), 0), put(item("t", "gone", "1"), 0))
	f.apply(put(item("t", "i", "2"), 1), drop("t", "gone", 1))
	if f.reopen == nil {
		t.Log("LEFT OUT: this store cannot be opened again")
		return
	}
	f.store = f.reopen()
	f.stands("t", "i", "2", 2)
	f.stands("", "s", "1", 1)
	f.noDocument("t", "gone")
	f.apply(put(item("t", "gone", "new"), toolkeep.NoRevision))
	f.stands("t", "gone", "new", 2)
	if n := len(f.feed(0)); n != 6 {
		t.Errorf("the feed has %d changes", n)
	}
}
