package archive

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/datadir"
)

const (
	// listTime is how long one page of segments may take to read.
	listTime = 10 * time.Second
	// newestOpens is how many segments one Newest opens, and newestHeaders how many headers it reads.
	newestOpens   = 8
	newestHeaders = 200
)

// later sorts segments of entries by day, writer and number, those that Newest reads first at the start.
func later(a, b Name) int {
	if c := strings.Compare(b.Day, a.Day); c != 0 {
		return c
	}
	return compareNames(b, a)
}

// Newest returns entries, those of the newest day first; see audit.ArchiveReader. A cursor is the segment and the number of
// an entry.
func (r *Reader) Newest(ctx context.Context, q toolkeep.NewestQuery) (list []toolkeep.Link, cursors []string, next string, err error) {
	var names []Name
	after := map[Name]int64{} // the numbers up to which another segment has the entries
	for _, each := range r.journal {
		last := int64(0)
		for _, n := range each {
			if n.Beside != "" { // other entries of the same numbers
				continue
			}
			after[n] = last
			last = max(last, n.Last)
		}
		names = append(names, each...)
	}
	slices.SortFunc(names, later)
	from, before, ok := parseCursor(q.Before)
	if !ok {
		return nil, nil, "", toolkeep.ErrNotFound
	}
	lastDay := "" // an entry can be earlier than its segment's day
	if !q.Until.IsZero() {
		lastDay = q.Until.UTC().Add(heldAround).Format(dayForm)
	}
	opens, headers := 0, 0
	for _, n := range names {
		if lastDay != "" && n.Day > lastDay {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, "", err
		}
		end := n.Last + 1
		if q.Before != "" {
			from.Folder = n.Folder
			switch c := later(n, from); {
			case c < 0:
				continue
			case c == 0:
				end = before
			}
		}
		if opens == newestOpens || headers == newestHeaders {
			return list, cursors, cursorOf(n, end), nil
		}
		headers++
		h, err := r.a.folder.header(n)
		if err == nil && (!q.Since.IsZero() && h.To.Before(q.Since) || !q.Until.IsZero() && !h.From.Before(q.Until)) {
			continue // where the header was changed, reading tells
		}
		opens++
		s, err := r.segment(ctx, n)
		if err != nil {
			return nil, nil, "", err
		}
		if s == nil {
			continue
		}
		for i := len(s.Links) - 1; i >= 0; i-- {
			l := s.Links[i]
			if l.Seq >= end || l.Seq <= after[n] || !r.within(&l, &q) {
				continue
			}
			list, cursors = append(list, l), append(cursors, cursorOf(n, l.Seq))
			if len(list) == q.Limit {
				return list, cursors, cursors[len(cursors)-1], nil
			}
		}
	}
	return list, cursors, "", nil
}

// within reports whether the time of an entry is one that is asked for.
func (r *Reader) within(l *toolkeep.Link, q *toolkeep.NewestQuery) bool {
	if q.Since.IsZero() && q.Until.IsZero() {
		return true
	}
	at, _ := r.a.timeOf(l, q.Since)
	return (q.Since.IsZero() || !at.Before(q.Since)) && (q.Until.IsZero() || at.Before(q.Until))
}

func cursorOf(n Name, before int64) string {
	return n.Day + "/" + n.base() + "/" + strconv.FormatInt(before, 10)
}

func parseCursor(s string) (n Name, before int64, ok bool) {
	if s == "" {
		return n, 0, true
	}
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return n, 0, false
	}
	n, ok = parseName("", parts[0], parts[1])
	before, err := strconv.ParseInt(parts[2], 10, 64)
	_, dayErr := time.Parse(dayForm, parts[0])
	return n, before, ok && err == nil && dayErr == nil && before > 0
}

// Segments returns a page of a tenant's segments, the oldest day first; see audit.Archive. It reads for about 10 s.
func (a *Archive) Segments(ctx context.Context, tenant, after string, limit int) (list []audit.Segment, next string, err error) {
	day, base, ok := strings.Cut(after, "/")
	last, named := parseName("", day, base)
	if after != "" && (!ok || !named) {
		return nil, "", toolkeep.ErrNotFound
	}
	folder, until := datadir.TenantFolder(tenant), time.Now().Add(listTime)
	days, err := a.folder.days(folder)
	if err != nil {
		return nil, "", err
	}
	for _, d := range days {
		if d < day {
			continue
		}
		names, err := a.folder.segments(folder, d)
		if err != nil {
			return nil, "", err
		}
		for _, n := range names {
			last.Folder = folder
			if after != "" && d == day && compareNames(n, last) <= 0 {
				continue
			}
			if len(list) == limit || len(list) > 0 && time.Now().After(until) {
				end := list[len(list)-1]
				return list, strings.TrimPrefix(end.Path, folder+"/"), nil
			}
			s, there, err := a.inspect(ctx, n)
			if err != nil {
				return nil, "", err
			}
			if there {
				list = append(list, s)
			}
		}
	}
	return list, "", nil
}

// inspect reads a segment. What its name says is there even where it cannot be read.
func (a *Archive) inspect(ctx context.Context, n Name) (s audit.Segment, there bool, err error) {
	info, err := os.Stat(a.folder.path(n))
	if errors.Is(err, fs.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	s = audit.Segment{Path: n.String(), Kind: n.Kind, Day: n.Day, Writer: n.Writer, First: n.First, Last: n.Last, Bytes: info.Size()}
	opened, err := a.open(ctx, n)
	switch {
	case ctx.Err() != nil:
		return s, false, ctx.Err()
	case errors.Is(err, fs.ErrNotExist): // past its time meanwhile
		return s, false, nil
	case err != nil && !faulty(err):
		return s, false, unreadable(n, err)
	case err != nil:
		s.Fault = err.Error()
	default:
		s.Whole, s.Count, s.From, s.To, s.WrittenAt = true, opened.Count, opened.From, opened.To, opened.WrittenAt
	}
	return s, true, nil
}
