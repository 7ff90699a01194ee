package archive

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/datadir"
)

// cached is how many segments a Reader keeps open.
const cached = 4

var _ audit.Archive = (*Archive)(nil)

// KeepsFrom returns the time from which on the archive is whole.
func (a *Archive) KeepsFrom(ctx context.Context) (time.Time, error) {
	keeps := a.c.Clock().UTC().Add(-a.c.Keep)
	d, err := a.c.Store.Document(ctx, StateKind, "", StateID)
	if errors.Is(err, toolkeep.ErrNotFound) { // nothing was archived yet
		return a.c.Store.KeepsFrom(), nil
	}
	var began record
	if err == nil {
		err = json.Unmarshal(d.Body, &began)
	}
	if began.From.After(keeps) {
		keeps = began.From
	}
	return keeps, err
}

// Read makes a reader; see audit.Archive.
func (a *Archive) Read(tenant string, since time.Time, damaged func(segment string, err error)) (audit.ArchiveReader, error) {
	return a.Reader(tenant, since, func(n Name, err error) { damaged(n.String(), err) })
}

// Reader reads what the archive has of one tenant, with its segments as they were when it was made. It is for one goroutine.
type Reader struct {
	a       *Archive
	journal map[int64][]Name // by writer, each by number
	signed  []Name           // of checkpoints, by number
	open    map[Name]*Segment
	used    []Name // of open, the newest last
	faults  map[Name]error
	damaged func(Name, error)
}

// Reader makes a Reader. It looks at days from since on, all if that is zero. damaged is told, once, of each segment that
// has a fault.
func (a *Archive) Reader(tenant string, since time.Time, damaged func(Name, error)) (*Reader, error) {
	r := &Reader{a: a, journal: map[int64][]Name{}, open: map[Name]*Segment{}, faults: map[Name]error{}, damaged: damaged}
	folder := datadir.TenantFolder(tenant)
	days, err := a.folder.days(folder)
	if err != nil {
		return nil, err
	}
	for _, day := range days {
		if !since.IsZero() && day < since.UTC().Format(dayForm) {
			continue
		}
		list, err := a.folder.segments(folder, day)
		if err != nil {
			return nil, err
		}
		for _, n := range list {
			if n.Kind == Checkpoints {
				r.signed = append(r.signed, n)
			} else {
				r.journal[n.Writer] = append(r.journal[n.Writer], n)
			}
		}
	}
	slices.SortFunc(r.signed, compareNames)
	for _, list := range r.journal {
		slices.SortFunc(list, compareNames)
	}
	return r, nil
}

// segment opens a segment; nil for one that has a fault, or was removed since. E3965 it cannot be read now.
func (r *Reader) segment(ctx context.Context, n Name) (*Segment, error) {
	if s, ok := r.open[n]; ok {
		return s, nil
	}
	if r.faults[n] != nil {
		return nil, nil
	}
	s, err := r.a.open(ctx, n)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, fs.ErrNotExist): // past its time meanwhile
		return nil, nil
	case err != nil && !faulty(err):
		return nil, unreadable(n, err)
	case err != nil:
		r.faults[n] = err
		r.damaged(n, err)
		return nil, nil
	}
	if len(r.used) == cached {
		delete(r.open, r.used[0])
		r.used = r.used[1:]
	}
	r.open[n], r.used = s, append(r.used, n)
	return s, nil
}

// Links returns a writer's entries; see toolkeep.Chains.
func (r *Reader) Links(ctx context.Context, q toolkeep.LinkQuery) (list []toolkeep.Link, read int64, err error) {
	at := q.After
	for _, n := range r.journal[q.Writer] {
		if n.Last <= at {
			continue
		}
		if n.First > q.UpTo {
			break
		}
		s, err := r.segment(ctx, n)
		if err != nil {
			return nil, 0, err
		}
		if s == nil {
			continue
		}
		from, _ := slices.BinarySearchFunc(s.Links, at+1, func(l toolkeep.Link, seq int64) int { return int(min(max(l.Seq-seq, -1), 1)) })
		for i := from; i < len(s.Links) && s.Links[i].Seq <= q.UpTo; i++ {
			at = s.Links[i].Seq
			if list = append(list, s.Links[i]); len(list) == q.Limit {
				return list, at, nil
			}
		}
	}
	return list, q.UpTo, nil
}

// ChainWriters returns the writers with entries after a position, in order.
func (r *Reader) ChainWriters(_ context.Context, after toolkeep.JournalPosition) (list []toolkeep.ChainWriter, err error) {
	for id, names := range r.journal {
		w := toolkeep.ChainWriter{ID: id}
		for _, n := range names {
			w.Newest = max(w.Newest, n.Last)
		}
		if w.Newest > after[id] {
			list = append(list, w)
		}
	}
	slices.SortFunc(list, func(a, b toolkeep.ChainWriter) int { return int(min(max(a.ID-b.ID, -1), 1)) })
	return list, nil
}

// Checkpoint returns the document of a checkpoint; ErrNotFound.
func (r *Reader) Checkpoint(ctx context.Context, tenant string, number int64) (toolkeep.Document, error) {
	for _, n := range r.signed {
		if number < n.First || number > n.Last {
			continue
		}
		s, err := r.segment(ctx, n)
		if err != nil {
			return toolkeep.Document{}, err
		}
		if s == nil {
			continue
		}
		for i := range s.Links {
			if l := &s.Links[i]; l.Seq == number {
				return toolkeep.Document{Kind: audit.CheckpointKind, Tenant: tenant, ID: strconv.FormatInt(number, 10), Body: l.Data, UpdatedAt: time.UnixMicro(l.At).UTC()}, nil
			}
		}
	}
	return toolkeep.Document{}, toolkeep.ErrNotFound
}

// Checkpoints returns the numbers of the oldest checkpoint of days from since on, and of the newest; 0 without any.
func (r *Reader) Checkpoints(since time.Time) (first, newest int64) {
	day := ""
	if !since.IsZero() {
		day = since.UTC().Format(dayForm)
	}
	for _, n := range r.signed {
		if n.Day >= day && (first == 0 || n.First < first) {
			first = n.First
		}
		newest = max(newest, n.Last)
	}
	return first, newest
}
