package record

import (
	"encoding/binary"
	"fmt"

	"github.com/toolkeep/toolkeep"
)

// Row is a stored feed row.
type Row struct {
	Seq, At, Kind int64 // At in Micros
	Tenant, Ref   string
	Data          []byte
}

// Versions finds a published version in the store; its lifecycle is ignored.
type Versions func(tenant, id, version string) (toolkeep.Version, error)

// Decode reads a feed row. versions returns the tool of a published version.
func Decode(r Row, versions Versions) (c toolkeep.Committed, err error) {
	change, err := decode(r, versions)
	if err != nil {
		err = fmt.Errorf("feed position %d: %w", r.Seq, err)
	}
	return toolkeep.Committed{Seq: r.Seq, At: FromMicros(r.At), Change: change}, err
}

func decode(r Row, versions Versions) (toolkeep.Change, error) {
	if r.Kind > KindEvent {
		return decodeCatalogue(r, versions)
	}
	ref := toolkeep.CallRef{Tenant: r.Tenant, ID: r.Ref}
	switch r.Kind {
	case KindRecord:
		v, err := DecodeCall(r.Tenant, r.Ref, r.Data)
		return toolkeep.RecordCall{Invocation: v}, err
	case KindClaim:
		v, err := DecodeCall(r.Tenant, r.Ref, r.Data)
		return toolkeep.ClaimCall{Invocation: v}, err
	case KindMove:
		return decodeMove(r)
	case KindEvent:
		return decodeEvent(r)
	}
	d := open(r.Data)
	switch r.Kind {
	case KindLease:
		c := toolkeep.RenewLeases{Owner: r.Ref, Until: d.time()}
		for range d.count() {
			c.Calls = append(c.Calls, toolkeep.CallRef{Tenant: d.string(), ID: d.string()})
		}
		return c, d.err
	case KindCancel:
		return toolkeep.RequestCancel{Call: ref, By: d.string(), Why: d.string()}, d.err
	case KindProgress:
		p, err := DecodeProgress(d.b)
		if d.err != nil {
			err = d.err
		}
		return toolkeep.ReportProgress{Call: ref, Progress: p}, err
	case KindFetched:
		return toolkeep.MarkFetched{Call: ref, At: d.time()}, d.err
	}
	return nil, fmt.Errorf("kind %d is not known", r.Kind)
}

func decodeMove(r Row) (toolkeep.Change, error) {
	d := open(r.Data)
	call := d.span()
	c := toolkeep.MoveCall{}
	for range d.count() {
		c.From = append(c.From, toolkeep.CallState(d.string()))
	}
	c.Owner = d.string()
	c.FreeKey = d.uint() != 0
	if d.err != nil {
		return nil, d.err
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

func appendMove(b []byte, c toolkeep.MoveCall, call []byte) []byte {
	b = append(b, codecVersion)
	b = appendBytes(b, call)
	b = binary.AppendUvarint(b, uint64(len(c.From)))
	for _, s := range c.From {
		b = appendString(b, string(s))
	}
	b = appendString(b, c.Owner)
	if c.FreeKey {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendLeases(b []byte, c toolkeep.RenewLeases) []byte {
	b = append(b, codecVersion)
	b = appendTime(b, c.Until)
	b = binary.AppendUvarint(b, uint64(len(c.Calls)))
	for _, ref := range c.Calls {
		b = appendString(b, ref.Tenant)
		b = appendString(b, ref.ID)
	}
	return b
}

func appendCancel(b []byte, c toolkeep.RequestCancel) []byte {
	b = append(b, codecVersion)
	b = appendString(b, c.By)
	return appendString(b, c.Why)
}
