package toolkeep

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"
)

// maxSeldom bounds the kinds of lines that a logger of Seldom tells apart within a minute; further ones share one count.
const maxSeldom = 64

// Seldom returns a logger for lines that callers can cause at will: of one kind it writes each lines
// within a minute and counts the rest, which the first line of a later minute has as left_out.
// Lines are of one kind if kind returns the same for them; with nil those of one text whose
// attributes code, cause, server and secret_hash are the same; a cause that is an error is not compared, since
// its text has ports and the like. Where 64 kinds are known, those whose minute is over are forgotten with their counts.
func Seldom(log *slog.Logger, each int, kind func(slog.Record) string) *slog.Logger {
	if kind == nil {
		kind = kindOfLine
	}
	return slog.New(&seldom{log.Handler(), &seldomCounts{each: each, kind: kind, of: map[string]*seldomCount{}}})
}

func kindOfLine(r slog.Record) string {
	kind := r.Message
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "cause":
			if a.Value.Kind() != slog.KindString {
				return true
			}
		case "code", "server", "secret_hash":
		default:
			return true
		}
		kind += "\x00" + a.Value.String()
		return true
	})
	return kind
}

type seldom struct {
	slog.Handler
	counts *seldomCounts
}

type seldomCounts struct {
	each int
	kind func(slog.Record) string

	mu sync.Mutex
	of map[string]*seldomCount
}

// seldomCount is what was written and left out of one kind since a time.
type seldomCount struct {
	since         time.Time
	told, leftOut int
}

func (s *seldom) Handle(ctx context.Context, r slog.Record) error {
	leftOut, tell := s.counts.take(s.counts.kind(r), r.Time)
	if !tell {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("left_out", leftOut))
	}
	return s.Handler.Handle(ctx, r)
}

// take reports whether a line of a kind is written, and how many were not before it.
func (c *seldomCounts) take(kind string, at time.Time) (leftOut int, tell bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of[kind]
	if n == nil {
		if len(c.of) >= maxSeldom {
			maps.DeleteFunc(c.of, func(_ string, n *seldomCount) bool { return at.Sub(n.since) >= time.Minute })
		}
		if len(c.of) >= maxSeldom {
			kind = ""
		}
		if n = c.of[kind]; n == nil {
			n = &seldomCount{since: at}
			c.of[kind] = n
		}
	}
	if at.Sub(n.since) >= time.Minute {
		leftOut = n.leftOut
		*n = seldomCount{since: at}
	}
	if n.told >= c.each {
		n.leftOut++
		return 0, false
	}
	n.told++
	return leftOut, true
}

func (s *seldom) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &seldom{s.Handler.WithAttrs(attrs), s.counts}
}

func (s *seldom) WithGroup(name string) slog.Handler {
	return &seldom{s.Handler.WithGroup(name), s.counts}
}
