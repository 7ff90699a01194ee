package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/toolkeep/toolkeep"
)

// querier is what a *sql.DB and a *sql.Tx have in common here.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
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

func prepareEvent(c toolkeep.AppendEvent) (step, error) {
	b := append(make([]byte, 0, 64+len(c.Event.Data)), codecVersion)
	b = appendString(b, c.Event.Type)
	b = appendTime(b, c.Event.Time)
	b = appendBytes(b, c.Event.Data)
	return step{change: c, kind: kindEvent, tenant: c.Event.Tenant, ref: c.Event.ID, data: b}, nil
}

// feedRow is a row of the feed as it is stored.
type feedRow struct {
	seq, at, kind int64
	tenant, ref   string
	data          []byte
}

// decodeChange reads a feed row. q gives the tool of a published version.
func decodeChange(ctx context.Context, q querier, r feedRow) (c toolkeep.Change, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("sqlite: feed position %d: %w", r.seq, err)
		}
	}()
	if r.kind > kindEvent {
		return decodeCatalogueChange(ctx, q, r)
	}
	ref := toolkeep.CallRef{Tenant: r.tenant, ID: r.ref}
	switch r.kind {
	case kindRecord:
		v, err := decodeCall(r.tenant, r.ref, r.data)
		return toolkeep.RecordCall{Invocation: v}, err
	case kindClaim:
		v, err := decodeCall(r.tenant, r.ref, r.data)
		return toolkeep.ClaimCall{Invocation: v}, err
	case kindMove:
		return decodeMove(r)
	}
	d := open(r.data)
	switch r.kind {
	case kindLease:
		c := toolkeep.RenewLeases{Owner: r.ref, Until: d.time()}
		for range d.count() {
			c.Calls = append(c.Calls, toolkeep.CallRef{Tenant: d.string(), ID: d.string()})
		}
		return c, d.err
	case kindCancel:
		return toolkeep.RequestCancel{Call: ref, By: d.string(), Why: d.string()}, d.err
	case kindProgress:
		p, err := decodeProgress(d.b)
		if d.err != nil {
			err = d.err
		}
		return toolkeep.ReportProgress{Call: ref, Progress: p}, err
	case kindFetched:
		return toolkeep.MarkFetched{Call: ref, At: d.time()}, d.err
	case kindEvent:
		e := toolkeep.Event{ID: r.ref, Tenant: r.tenant, Type: d.string(), Time: d.time(), Data: d.bytes()}
		return toolkeep.AppendEvent{Event: e}, d.err
	}
	return nil, fmt.Errorf("kind %d is not known", r.kind)
}

func decodeMove(r feedRow) (toolkeep.Change, error) {
	d := open(r.data)
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
	c.Invocation, err = decodeCall(r.tenant, r.ref, call)
	return c, err
}

func decodeCatalogueChange(ctx context.Context, q querier, r feedRow) (toolkeep.Change, error) {
	switch r.kind {
	case kindPublish:
		var p publishedRow
		if err := unmarshal(r.data, &p); err != nil {
			return nil, err
		}
		v, err := scanVersion(q.QueryRowContext(ctx, `SELECT tenant, id, version, digest, life, raw, manifest
			FROM versions WHERE tenant = ? AND id = ? AND version = ?`, r.tenant, p.ID, p.Version))
		v.Life = p.Life // as it was then
		return toolkeep.PublishVersion{Version: v}, err
	case kindLifecycle:
		var l lifecycleRow
		err := unmarshal(r.data, &l)
		return toolkeep.SetLifecycle{Tenant: r.tenant, ToolID: l.ID, Version: l.Version, Life: l.Life, By: l.By}, err
	case kindKey:
		k, err := decodeKey(r.tenant, r.ref, r.data)
		return toolkeep.PutKey{Key: k}, err
	case kindRevoke:
		var v revokeRow
		err := unmarshal(r.data, &v)
		return toolkeep.RevokeKey{Tenant: r.tenant, ID: r.ref, At: v.At, By: v.By}, err
	}
	return nil, fmt.Errorf("kind %d is not known", r.kind)
}

// feedHead is the newest position, also where its row has been removed since.
func feedHead(ctx context.Context, q querier) (head int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT max(
		coalesce((SELECT max(seq) FROM feed), 0),
		coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'feed'), 0))`).Scan(&head)
	if err != nil {
		err = fmt.Errorf("sqlite: read the head of the feed: %w", err)
	}
	return head, err
}

func micros(t time.Time) int64     { return t.UnixMicro() }
func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
