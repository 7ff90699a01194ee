package record

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Feed rows of items are events. An older program on another node that knows no items
// reads them as events of an unknown type and continues; the item itself is in fields
// after those of an event, which it skips. They leave the feed with the events.
const (
	itemPut     = "toolkeep.item.put"
	itemDropped = "toolkeep.item.dropped"
)

// itemNote is the data of such an event; the id is the event's.
type itemNote struct {
	Kind string `json:"kind"`
}

func encodePut(c toolkeep.PutDocument, now func() time.Time) (Encoded, error) {
	it := &c.Document
	if err := checkDocument(it.Kind, it.Tenant, it.ID); err != nil {
		return Encoded{}, err
	}
	if n := len(it.Body); n > toolkeep.MaxDocumentBody {
		return Encoded{}, fmt.Errorf("the body takes %d bytes, the limit is %d", n, toolkeep.MaxDocumentBody)
	}
	if c.Expect < toolkeep.AnyRevision {
		return Encoded{}, fmt.Errorf("%d is not a revision to expect", c.Expect)
	}
	if it.UpdatedAt.IsZero() {
		it.UpdatedAt = now()
	}
	it.Revision = 0 // the store sets it
	redacted := it.Body
	if c.OmitBody {
		redacted = nil
	}
	b, err := appendItem(make([]byte, 0, 256+len(it.UpdatedBy)+len(redacted)), itemPut, it.Kind, it.UpdatedAt)
	b = appendInt(b, c.Expect)
	b = appendString(b, it.UpdatedBy)
	b = appendBytes(b, redacted)
	return Encoded{Change: c, Kind: KindEvent, Tenant: it.Tenant, Ref: it.ID, Data: b}, err
}

// WithRevision returns what watchers see of a put: with the revision that the store assigned,
// and without a body that is kept aside. e is the result of Encode.
func WithRevision(e Encoded, c toolkeep.PutDocument, revision int64) Encoded {
	c.Document.Revision = revision
	e.Data = appendInt(slices.Clip(e.Data), revision)
	if c.OmitBody {
		c.Document.Body = nil
		e.Data = append(e.Data, 1)
	}
	e.Change = c
	return e
}

func encodeDrop(c toolkeep.DeleteDocument, now func() time.Time) (Encoded, error) {
	if err := checkDocument(c.Kind, c.Tenant, c.ID); err != nil {
		return Encoded{}, err
	}
	if c.Expect < toolkeep.AnyRevision || c.Expect == toolkeep.NoRevision {
		return Encoded{}, fmt.Errorf("%d is not a revision to expect of what is dropped", c.Expect)
	}
	b, err := appendItem(nil, itemDropped, c.Kind, now())
	b = appendInt(b, c.Expect)
	b = appendString(b, c.By)
	return Encoded{Change: c, Kind: KindEvent, Tenant: c.Tenant, Ref: c.ID, Data: b}, err
}

// appendItem writes the event's fields and the kind.
func appendItem(b []byte, event, kind string, at time.Time) ([]byte, error) {
	note, err := Marshal(itemNote{kind})
	b = append(b, codecVersion)
	b = appendString(b, event)
	b = appendTime(b, at)
	b = appendBytes(b, note)
	return appendString(b, kind), err
}

// decodeEvent reads the row of an event or an item.
func decodeEvent(r Row) (toolkeep.Change, error) {
	d := open(r.Data)
	e := toolkeep.Event{ID: r.Ref, Tenant: r.Tenant, Type: d.string(), Time: d.time(), Data: d.bytes()}
	switch e.Type {
	case itemPut:
		it := toolkeep.Document{Kind: d.string(), Tenant: r.Tenant, ID: r.Ref, UpdatedAt: e.Time}
		expect := d.int()
		it.UpdatedBy, it.Body, it.Revision = d.string(), d.bytes(), d.int()
		return toolkeep.PutDocument{Document: it, Expect: expect, OmitBody: d.uint() == 1}, d.err
	case itemDropped:
		return toolkeep.DeleteDocument{Kind: d.string(), Tenant: r.Tenant, ID: r.Ref, Expect: d.int(), By: d.string()}, d.err
	}
	e.Sealed = d.bytes()
	return toolkeep.AppendEvent{Event: e}, d.err
}

func checkDocument(kind, tenant, id string) error {
	if len(kind) > toolkeep.MaxDocumentKind || !isKind(kind) {
		return fmt.Errorf("%.80q is no kind of items", kind)
	}
	if id == "" {
		return errors.New("the item has no id")
	}
	if max(len(id), len(tenant)) > toolkeep.MaxDocumentID {
		return fmt.Errorf("the item's id takes %d bytes and its tenant %d, the limit is %d", len(id), len(tenant), toolkeep.MaxDocumentID)
	}
	return nil
}

func isKind(s string) bool {
	for i := range len(s) {
		letter := 'a' <= s[i] && s[i] <= 'z'
		if !letter && (i == 0 || s[i] != '_' && (s[i] < '0' || s[i] > '9')) {
			return false
		}
	}
	return s != ""
}

// ItemMissing is the error of a put or drop of an item that does not exist.
func ItemMissing(kind, id string, expect int64) error {
	if expect == toolkeep.AnyRevision {
		return fmt.Errorf("%s %s: %w", kind, id, toolkeep.ErrNotFound)
	}
	return fmt.Errorf("%s %s: %w, %w", kind, id, toolkeep.ErrStale, toolkeep.ErrNotFound)
}

// ItemStale is the error for an item with another revision, or one that exists although
// none should.
func ItemStale(kind, id string, has, expect int64) error {
	if expect == toolkeep.NoRevision {
		return fmt.Errorf("%s %s exists with revision %d: %w", kind, id, has, toolkeep.ErrStale)
	}
	return fmt.Errorf("%s %s has revision %d, not %d: %w", kind, id, has, expect, toolkeep.ErrStale)
}
