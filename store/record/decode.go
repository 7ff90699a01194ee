package record

import (
	"fmt"

	"github.com/toolkeep/toolkeep"
)

// Row is a stored row of the feed or the journal.
type Row struct {
	Seq, At, Kind int64 // At in Micros
	Tenant, Ref   string
	Data          []byte
}

// Versions finds a published version in the store; its lifecycle is ignored.
type Versions func(tenant, id, version string) (toolkeep.Version, error)

// Decode reads a row of the feed. versions returns the tool of a published version. A row of
// the journal, as older programs left them in the feed, has no change.
func Decode(r Row, versions Versions) (c toolkeep.Committed, err error) {
	c = toolkeep.Committed{Seq: r.Seq, At: FromMicros(r.At)}
	switch {
	case r.Kind > KindEvent:
		c.Change, err = decodeCatalogue(r, versions)
	case r.Kind == KindEvent:
		c.Change, err = decodeEvent(r)
		if _, ok := c.Change.(toolkeep.AppendEvent); ok {
			c.Change = nil
		}
	}
	if err != nil {
		err = fmt.Errorf("feed position %d: %w", r.Seq, err)
	}
	return c, err
}

// DecodeEntry reads a row of the journal. Rows of the feed, and what older programs wrote of
// calls before their end, are no entries: ok is false.
func DecodeEntry(r Row, writer int64) (e toolkeep.Entry, ok bool, err error) {
	e = toolkeep.Entry{Writer: writer, Seq: r.Seq, At: FromMicros(r.At)}
	switch r.Kind {
	case KindRecord, KindEnded:
		e.Call, err = DecodeCall(r.Tenant, r.Ref, r.Data)
	case kindMove:
		var c toolkeep.MoveCall
		if c, err = decodeMove(r); err == nil && ends(c) {
			e.Call = c.Invocation
		}
	case KindEvent:
		var c toolkeep.Change
		c, err = decodeEvent(r)
		if a, is := c.(toolkeep.AppendEvent); is {
			e.Event = &a.Event
		}
	}
	if err != nil {
		return e, false, fmt.Errorf("journal position %d of writer %d: %w", r.Seq, writer, err)
	}
	if e.Call != nil {
		e.Call = shown(e.Call)
	}
	return e, e.Call != nil || e.Event != nil, nil
}

// decodeMove reads an older program's move of a call.
func decodeMove(r Row) (toolkeep.MoveCall, error) {
	d := open(r.Data)
	call := d.span()
	c := toolkeep.MoveCall{}
	for range d.count() {
		c.From = append(c.From, toolkeep.CallState(d.string()))
	}
	if d.err != nil {
		return c, d.err
	}
	var err error
	c.Invocation, err = DecodeCall(r.Tenant, r.Ref, call)
	return c, err
}

func decodeCatalogue(r Row, versions Versions) (toolkeep.Change, error) {
	switch r.Kind {
	case KindPublish:
		var p publishedRow
		if err := Unmarshal(r.Data, &p); err != nil {
			return nil, err
		}
		v, err := versions(r.Tenant, p.ID, p.Version)
		fillCause(&p.Life)
		v.Life = p.Life // as it was then
		return toolkeep.PublishVersion{Version: v}, err
	case KindLifecycle:
		var l lifecycleRow
		err := Unmarshal(r.Data, &l)
		fillCause(&l.Life)
		return toolkeep.SetLifecycle{Tenant: r.Tenant, ToolID: l.ID, Version: l.Version, Life: l.Life, By: l.By}, err
	case KindKey:
		k, err := DecodeKey(r.Tenant, r.Ref, r.Data)
		return toolkeep.PutKey{Key: k}, err
	case KindRevoke:
		var v revokeRow
		err := Unmarshal(r.Data, &v)
		return toolkeep.RevokeKey{Tenant: r.Tenant, ID: r.Ref, At: v.At, By: v.By}, err
	}
	return nil, fmt.Errorf("kind %d is not known", r.Kind)
}
