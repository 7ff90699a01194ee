package record

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

var itemTime = time.Date(2026, 3, 1, 12, 0, 0, 7, time.UTC)

func itemRow(t *testing.T, e Encoded) Row {
	t.Helper()
	return Row{Seq: 1, Kind: e.Kind, Tenant: e.Tenant, Ref: e.Ref, Data: e.Data}
}

func TestItemRows(t *testing.T) {
	it := toolkeep.Document{Kind: "mcp_server", Tenant: "t", ID: "github", Body: []byte{0, 255, '{'}, Revision: 9, UpdatedAt: itemTime, UpdatedBy: "boss"}
	c := toolkeep.PutDocument{Document: it, Expect: 3}
	e, err := Encode(c, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	base := string(e.Data)
	for _, revision := range []int64{4, 1 << 40} { // again, as after a lost connection
		placed := WithRevision(e, e.Change.(toolkeep.PutDocument), revision)
		want := c
		want.Document.Revision = revision
		if !reflect.DeepEqual(placed.Change, want) {
			t.Errorf("watchers here get %+v", placed.Change)
		}
		got, err := Decode(itemRow(t, placed), nil)
		if err != nil || !reflect.DeepEqual(got.Change, want) {
			t.Errorf("the feed gives %+v, %v", got.Change, err)
		}
		if string(e.Data) != base {
			t.Error("what Encode gave was changed")
		}
	}
	aside := c
	aside.OmitBody = true
	if e, err = Encode(aside, time.Now); err != nil {
		t.Fatal(err)
	}
	placed := WithRevision(e, e.Change.(toolkeep.PutDocument), 4)
	want := aside
	want.Document.Revision, want.Document.Body = 4, nil
	read, err := Decode(itemRow(t, placed), nil)
	if err != nil || !reflect.DeepEqual(placed.Change, want) || !reflect.DeepEqual(read.Change, want) {
		t.Errorf("watchers get %+v, and later %+v, %v", placed.Change, read.Change, err)
	}
	if body := e.Change.(toolkeep.PutDocument).Document.Body; string(body) != string(it.Body) {
		t.Errorf("the item gets %q", body)
	}
	if len(placed.Data) != len(base)-len(it.Body)+2 { // the revision and the mark
		t.Errorf("the row takes %d bytes, with a body but no revision it would take %d", len(placed.Data), len(base))
	}
	drop := toolkeep.DeleteDocument{Kind: "mcp_server", ID: "github", Expect: toolkeep.AnyRevision, By: "boss"}
	if e, err = Encode(drop, time.Now); err != nil {
		t.Fatal(err)
	}
	got, err := Decode(itemRow(t, e), nil)
	if err != nil || !reflect.DeepEqual(got.Change, drop) {
		t.Errorf("the feed gives %+v, %v", got.Change, err)
	}
	now := toolkeep.PutDocument{Document: toolkeep.Document{Kind: "k", ID: "i"}}
	if e, err = Encode(now, func() time.Time { return itemTime }); err != nil || !e.Change.(toolkeep.PutDocument).Document.UpdatedAt.Equal(itemTime) {
		t.Errorf("%+v, %v", e.Change, err)
	}
}

// TestItemRowsOlderProgram reads item rows like a program without items: it finds an
// event with JSON data and does not stop there.
func TestItemRowsOlderProgram(t *testing.T) {
	for _, c := range []toolkeep.Change{
		toolkeep.PutDocument{Document: toolkeep.Document{Kind: "k", Tenant: "t", ID: "\xff", Body: []byte("body"), UpdatedAt: itemTime}},
		toolkeep.DeleteDocument{Kind: "k", Tenant: "t", ID: "\xff", Expect: 1},
	} {
		e, err := Encode(c, func() time.Time { return itemTime })
		if err != nil {
			t.Fatal(err)
		}
		if put, ok := e.Change.(toolkeep.PutDocument); ok {
			e = WithRevision(e, put, 1)
		}
		d := open(e.Data)
		kind, at, data := d.string(), d.time(), d.bytes()
		if e.Kind != KindEvent || kind == "" || !at.Equal(itemTime) || !json.Valid(data) || d.err != nil {
			t.Errorf("%T is kind %d with %q, %s, %s, %v", c, e.Kind, kind, at, data, d.err)
		}
	}
}

func TestItemErrors(t *testing.T) {
	for _, c := range []struct {
		err            error
		stale, missing bool
	}{
		{ItemMissing("k", "i", toolkeep.AnyRevision), false, true},
		{ItemMissing("k", "i", 3), true, true},
		{ItemStale("k", "i", 4, 3), true, false},
		{ItemStale("k", "i", 4, toolkeep.NoRevision), true, false},
	} {
		if errors.Is(c.err, toolkeep.ErrStale) != c.stale || errors.Is(c.err, toolkeep.ErrNotFound) != c.missing {
			t.Errorf("%v", c.err)
		}
	}
}
