package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/toolkeep/toolkeep"
)

// leastPage is how many entries a round reads of each writer where many have news, unless a batch is smaller.
const leastPage = 10

// page is what a round has read of one writer.
type page struct {
	writer toolkeep.ChainWriter
	from   int64           // where the cursor is
	to     toolkeep.Cursor // where it is after what was taken
	links  []toolkeep.Link // not taken yet
	read   int64           // number up to which links are all that there is
	empty  bool            // it had none from the start
	stamp  int64           // the highest that was taken

	lost, damaged int64
	at            time.Time // up to which the sink had all
	before        int64     // number of the last entry, or the cursor
}

// round delivers entries of all writers with news, merged by their stamps. ChainWriters tells where all writers stood at one
// moment, and no entry from after it is read: so what is not read yet of a writer that has come to its end there was made
// after all that is. more: there may be others at once. An error is the store's, or that ctx ended.
func (s *sink) round(ctx context.Context, p *position) (more bool, err error) {
	writers, err := s.c.Store.ChainWriters(ctx, p.at)
	if err != nil {
		return false, err
	}
	if len(writers) == 0 {
		p.caughtUp = s.c.Clock().UTC()
		p.newest = p.caughtUp
		return false, nil
	}
	pages, limit := make([]*page, len(writers)), max(s.Batch/len(writers), min(s.Batch, leastPage))
	for i, w := range writers {
		if pages[i], err = s.page(ctx, p, w, limit); err != nil {
			return false, err
		}
	}
	events, damaged := s.merge(p, pages)
	if err := s.send(ctx, events); err != nil {
		return false, err
	}
	s.c.Hook(s.Name)
	if err := s.move(ctx, p, pages); err != nil {
		return false, err
	}
	for _, g := range pages {
		more = more || g.to.Seq < g.writer.Newest
	}
	return more, damaged
}

// page reads a writer's next entries.
func (s *sink) page(ctx context.Context, p *position, w toolkeep.ChainWriter, limit int) (*page, error) {
	g := &page{writer: w, from: p.at[w.ID], before: p.at[w.ID], at: s.stood(p, w.ID)}
	g.to = toolkeep.Cursor{Writer: w.ID, Seq: g.from, At: s.c.Clock().UTC()} // unless an entry says it better
	if was, own := p.times[w.ID]; own {
		g.to.At = was
	}
	after, upTo, err := s.span(ctx, p, w)
	if err != nil {
		return nil, err
	}
	g.links, g.read, err = s.c.Store.Links(ctx, s.query(w.ID, after, upTo, limit))
	g.empty = len(g.links) == 0
	return g, err
}

// next is the lowest stamp that the writer's next entry can have, and over that there is none.
func (g *page) next() (stamp int64, over bool) {
	if len(g.links) > 0 {
		return g.links[0].Stamp, false
	}
	return g.stamp, g.read >= g.writer.Newest
}

// merge takes entries in the order of their stamps, until the next one may be one that is not read yet. It returns the
// events that the sink takes. The error is one for which it cannot go on.
func (s *sink) merge(p *position, pages []*page) (events []Event, err error) {
	for {
		var first *page
		var lowest int64
		for _, g := range pages {
			stamp, over := g.next()
			if !over && (first == nil || stamp < lowest || stamp == lowest && len(first.links) == 0) {
				first, lowest = g, stamp
			}
		}
		if first == nil || len(first.links) == 0 {
			break
		}
		event, err := s.taken(p, first)
		if err != nil {
			return events, err
		}
		if event != nil {
			events = append(events, *event)
		}
	}
	for _, g := range pages {
		if len(g.links) == 0 {
			s.passed(p, g)
		}
	}
	return events, nil
}

// taken takes the first entry of a page, and returns its event if the sink takes it. ErrKeyAway: it cannot be read now.
func (s *sink) taken(p *position, g *page) (*Event, error) {
	l := &g.links[0]
	var entry *toolkeep.Entry
	var event Event
	var err error
	chained := !l.Gone && len(l.Hash) != 0 // else it is from before the chain
	if chained {
		if entry, event, err = s.read(l); errors.Is(err, toolkeep.ErrKeyAway) {
			return nil, err
		}
	}
	g.lost += s.missing(p, g.at, g.before, l.Seq-1)
	g.links, g.before, g.to.Seq, g.stamp = g.links[1:], l.Seq, l.Seq, max(g.stamp, l.Stamp)
	if l.Gone && s.trimmed(p, g.at) {
		g.lost++
	}
	if entry != nil {
		g.at = entry.At.UTC()
		g.to.At = g.at
	}
	if err != nil { // verify tells of it too
		g.damaged++
		s.c.Log.Warn("a damaged entry is not sent to a sink", "sink", s.Name, "writer", l.Writer, "number", l.Seq, "error", err)
		return nil, nil
	}
	if !chained || !s.takes(&event) {
		return nil, nil
	}
	return &event, nil
}

// passed moves past the numbers after a page's last entry.
func (s *sink) passed(p *position, g *page) {
	// A sink that reads a part sees that nothing is left, and only of a writer of which it had something: numbers need
	// not begin at 1.
	_, own := p.times[g.writer.ID]
	if !s.part() {
		g.lost += s.missing(p, g.at, g.before, g.read)
	} else if own && g.empty && s.trimmed(p, g.at) {
		g.lost += g.read - g.from
	}
	if g.to.Seq < g.read && (!own || g.read == g.writer.Newest) {
		g.to.At = s.c.Clock().UTC()
	}
	g.to.Seq = g.read
}

// move moves the cursors, and notes what was lost.
func (s *sink) move(ctx context.Context, p *position, pages []*page) error {
	var changes []toolkeep.Change
	var lost, damaged int64
	for _, g := range pages {
		if g.to.Seq > g.from {
			changes = append(changes, toolkeep.MoveCursor{Reader: s.Name, From: g.from, To: g.to})
		}
		lost += g.lost
		damaged += g.damaged
	}
	if len(changes) == 0 {
		return nil
	}
	if lost > 0 {
		p.record.Lost += lost
		p.record.LostAt = s.c.Clock().UTC()
		put, err := s.put(p, p.revision)
		if err != nil {
			return err
		}
		changes = append(changes, put)
	}
	if err := s.c.Store.Apply(ctx, changes...); err != nil {
		return err
	}
	for _, g := range pages {
		if g.to.Seq > g.from {
			p.moved(g.to)
		}
	}
	if lost > 0 {
		p.revision++
		s.lost(&p.record)
		s.c.Log.Warn("retention removed entries before a sink had them", "sink", s.Name, "at_most", lost, "in_all", p.record.Lost)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Damaged += damaged
	return nil
}
