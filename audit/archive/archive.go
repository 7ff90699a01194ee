package archive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
)

// Work is the name of the work that one node does for its store.
const Work = "audit.archive"

// StateKind is the kind of the documents of the archive: StateID of no tenant says when it began, and newestID of a tenant
// which checkpoints it has.
const (
	StateKind = "audit_archive"
	StateID   = "state"
	newestID  = "checkpoints"
)

// Bounds of what is read at once, and so of a segment; one entry can make more.
const (
	maxEntries = 20_000
	maxBytes   = 16 << 20
	linkRows   = 100 // one entry may have megabytes
)

// Config configures Archive. Dir, Store and Sealer are required.
type Config struct {
	Dir    string
	Store  Store
	Sealer audit.Sealer
	// Keep is how long segments stay after their day; default 2,557 days, which are 7 years.
	Keep time.Duration
	// After is how long an entry waits, at most, to be archived; default 1 hour.
	After time.Duration
	// Wait is how long the store keeps an entry after its time that is not archived; default 7 days.
	Wait  time.Duration
	Clock func() time.Time
	Log   *slog.Logger
	// Hook is called between the steps of a segment: "written", "renamed" and "moved"; nil by default. Crash tests use it.
	Hook func(step string)
}

// Archive writes segments and reads them. It is safe for concurrent use.
type Archive struct {
	c      Config
	folder folder
	keys   keyRing

	turn  sync.Mutex // held by Archive
	begun record     // when the archive began; guarded by turn

	mu      sync.Mutex
	state   State
	expired time.Time // when old segments were removed
}

// New makes an Archive, and its folder if that is not there. A folder that cannot be made is an error.
func New(c Config) (*Archive, error) {
	for _, d := range []struct {
		field *time.Duration
		def   time.Duration
	}{{&c.Keep, 2557 * 24 * time.Hour}, {&c.After, time.Hour}, {&c.Wait, 7 * 24 * time.Hour}} {
		if *d.field == 0 {
			*d.field = d.def
		}
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Hook == nil {
		c.Hook = func(string) {}
	}
	dir, err := filepath.Abs(c.Dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("the folder of the audit's archive cannot be made: %w", err)
	}
	return &Archive{c: c, folder: folder(dir), keys: keyRing{store: c.Store, sealer: c.Sealer, now: c.Clock}}, nil
}

// record is the body of the document StateID.
type record struct {
	BegunAt time.Time `json:"begun_at"`
	From    time.Time `json:"from"` // since when the store had kept all
}

const (
	firstPause = time.Second // after a failure; doubled by each further one
	mostPause  = time.Minute
)

// Run archives until ctx ends. It is for the node that leads Work.
func (a *Archive) Run(ctx context.Context) {
	defer a.stops()
	for failures := 0; ctx.Err() == nil; {
		err := a.try(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil:
			failures = 0
			a.works()
			toolkeep.Sleep(ctx, min(a.c.After/4, time.Minute))
		default:
			failures++
			a.fails(err, failures)
			toolkeep.Sleep(ctx, min(firstPause<<min(failures-1, 10), mostPause))
		}
	}
}

func (a *Archive) try(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			a.c.Log.Error("the archive panicked; it is tried again", "panic", v, "stack", string(debug.Stack()))
			err = errors.New("internal error; the server's log has it")
		}
	}()
	return a.Archive(ctx, false)
}

// Archive writes what is due: what waits for Config.After, or is much; with all set, everything there is. Then it removes
// segments that are too old.
func (a *Archive) Archive(ctx context.Context, all bool) error {
	a.turn.Lock()
	defer a.turn.Unlock()
	if err := a.begin(ctx); err != nil {
		return err
	}
	at, err := a.cursors(ctx)
	if err != nil {
		return err
	}
	writers, err := a.c.Store.ChainWriters(ctx, positions(at))
	if err != nil {
		return err
	}
	var oldest time.Time
	for _, w := range writers {
		for more := true; more; {
			var waits time.Time
			more, waits, err = a.step(ctx, at, w, all)
			if !waits.IsZero() && (oldest.IsZero() || waits.Before(oldest)) {
				oldest = waits
			}
			if err != nil {
				a.waits(oldest)
				return err
			}
		}
	}
	a.waits(oldest)
	if err := a.checkpoints(ctx, at, all); err != nil {
		return err
	}
	return a.expire(ctx)
}

// begin notes when the archive began.
func (a *Archive) begin(ctx context.Context) error {
	d, err := a.c.Store.Document(ctx, StateKind, "", StateID)
	if err == nil {
		a.begun = record{}
		_ = json.Unmarshal(d.Body, &a.begun) // KeepsFrom tells of one that cannot be read
		return nil
	}
	if !errors.Is(err, toolkeep.ErrNotFound) {
		return err
	}
	a.begun = record{a.c.Clock().UTC(), a.c.Store.KeepsFrom().UTC()}
	put, err := document("", StateID, a.begun, toolkeep.NoRevision)
	if err != nil {
		return err
	}
	return a.c.Store.Apply(ctx, put)
}

func (a *Archive) cursors(ctx context.Context) (map[int64]toolkeep.Cursor, error) {
	list, err := a.c.Store.Cursors(ctx, toolkeep.ArchiveReader)
	at := make(map[int64]toolkeep.Cursor, len(list))
	for _, c := range list {
		at[c.Writer] = c
	}
	return at, err
}

func positions(at map[int64]toolkeep.Cursor) toolkeep.JournalPosition {
	p := make(toolkeep.JournalPosition, len(at))
	for id, c := range at {
		p[id] = c.Seq
	}
	return p
}

// step archives a writer's next entries if they are due. more: there may be others that are. waits is the time of the
// first entry that is not archived after a step without more, or one that failed.
func (a *Archive) step(ctx context.Context, at map[int64]toolkeep.Cursor, w toolkeep.ChainWriter, all bool) (more bool, waits time.Time, err error) {
	was := at[w.ID]
	if was.Seq >= w.Newest {
		return false, waits, nil
	}
	now := a.c.Clock()
	links, read, err := a.c.Store.Links(ctx, toolkeep.LinkQuery{Writer: w.ID, After: was.Seq, UpTo: w.Newest, All: true, Content: true, Limit: 1})
	if err != nil {
		return false, waits, err
	}
	to := toolkeep.Cursor{Writer: w.ID, Seq: read, At: now.UTC()}
	missed := gaps{a: a, at: was.At, last: max(was.Seq, w.First-1)}
	var first time.Time
	if len(links) == 0 {
		missed.entry(read+1, now)
	} else {
		var known bool
		first, known = a.timeOf(&links[0], was.At)
		if first.IsZero() {
			first = now.UTC()
		}
		// One whose time cannot be read, or lies ahead, would never be due.
		waits := known && first.Before(now.Add(a.c.After)) && now.Sub(first) < a.c.After
		if !all && w.Newest-was.Seq < maxEntries && waits {
			return false, first, nil
		}
		var parts []*Segment
		if parts, to, err = a.collect(ctx, was.Seq, w, first, &missed); err != nil {
			return false, first, err
		}
		if err := a.write(ctx, parts); err != nil {
			return false, first, err
		}
	}
	if err := a.c.Store.Apply(ctx, toolkeep.MoveCursor{Reader: toolkeep.ArchiveReader, From: was.Seq, To: to}); err != nil {
		return false, first, err
	}
	at[w.ID] = to
	a.missed(w.ID, missed.n)
	a.c.Hook("moved")
	return to.Seq < w.Newest, waits, nil
}

// timeOf returns the time of an entry. known is false where nothing tells it; then the time is otherwise.
func (a *Archive) timeOf(l *toolkeep.Link, otherwise time.Time) (at time.Time, known bool) {
	if !l.Gone {
		if e, err := a.c.Store.Entry(*l); err == nil && e != nil && !e.At.IsZero() {
			return e.At.UTC(), true
		}
	}
	if l.At > 0 {
		return time.UnixMicro(l.At).UTC(), true
	}
	return otherwise.UTC(), false
}

// collect reads a writer's entries after a number, as many as one round may have. Entries from before the chain are left out.
func (a *Archive) collect(ctx context.Context, after int64, w toolkeep.ChainWriter, at time.Time, missed *gaps) (parts []*Segment, to toolkeep.Cursor, err error) {
	open := map[string]*Segment{} // by tenant
	entries, size := 0, 0
	to = toolkeep.Cursor{Writer: w.ID, Seq: after, At: at}
	for to.Seq < w.Newest && entries < maxEntries && size < maxBytes {
		links, read, err := a.c.Store.Links(ctx, toolkeep.LinkQuery{Writer: w.ID, After: to.Seq, UpTo: w.Newest, All: true, Content: true, Limit: linkRows})
		if err != nil {
			return nil, to, err
		}
		for i := range links {
			l := &links[i]
			if size >= maxBytes || entries >= maxEntries {
				read = links[i-1].Seq
				break
			}
			at, _ = a.timeOf(l, at)
			missed.entry(l.Seq, at)
			if len(l.Hash) == 0 {
				continue
			}
			s, day := open[l.Tenant], at.Format(dayForm)
			if s == nil || day > s.Day {
				s = &Segment{Header: Header{Kind: Journal, Tenant: l.Tenant, Day: day, Writer: w.ID}}
				open[l.Tenant], parts = s, append(parts, s)
			}
			s.add(*l, at)
			entries, size = entries+1, size+len(l.Data)+len(l.Ref)
		}
		missed.entry(read+1, a.c.Clock())
		to.Seq, to.At = read, at
	}
	return parts, to, nil
}

func (s *Segment) add(l toolkeep.Link, at time.Time) {
	if len(s.Links) == 0 {
		s.First, s.FirstHash, s.From, s.To = l.Seq, hexOf(l.Hash), at, at
	}
	if at.Before(s.From) {
		s.From = at
	}
	if at.After(s.To) {
		s.To = at
	}
	s.Last, s.LastHash = l.Seq, hexOf(l.Hash)
	s.Links = append(s.Links, l)
}

// write writes segments and reads them back. One that is there already is not written again.
func (a *Archive) write(ctx context.Context, parts []*Segment) error {
	if len(parts) == 0 {
		return nil
	}
	key, err := a.keys.newest(ctx)
	if err != nil {
		return err
	}
	for _, s := range parts {
		name, written, err := a.place(ctx, s)
		if err != nil {
			return err
		}
		if written {
			continue
		}
		content, err := encode(s, key, a.c.Clock())
		if err != nil {
			return err
		}
		if err := a.folder.write(name, content, a.c.Hook); err != nil {
			return fmt.Errorf("the segment %s cannot be written: %w", name, err)
		}
		switch there, err := a.open(ctx, name); {
		case err != nil:
			return fmt.Errorf("the segment %s cannot be read back: %w", name, err)
		case !there.same(s):
			return fmt.Errorf("the segment %s is not what was written", name)
		}
		a.wrote(s)
	}
	return nil
}

// place returns where a segment goes, and whether it is there already. A file of the name with other entries is that of another
// history, of before a database was restored, and one with a fault is evidence: neither is replaced, and the segment goes beside it.
func (a *Archive) place(ctx context.Context, s *Segment) (name Name, written bool, err error) {
	list, err := a.folder.segments(s.name().Folder, s.Day)
	if err != nil {
		return name, false, err
	}
	name = s.name()
	for _, n := range list {
		if n.alone() != s.name() {
			continue
		}
		there, err := a.open(ctx, n)
		switch {
		case err == nil && there.same(s):
			return n, true, nil
		case err != nil && !faulty(err):
			return n, false, unreadable(n, err)
		}
		name.Beside = fmt.Sprintf("%08x", rand.Uint32())
	}
	if name.Beside != "" {
		a.c.Log.Error("the audit's archive has another segment of this name, as after a restore of an older database; it stays, and the new one is written beside it", "segment", name.String())
	}
	return name, false, nil
}

// same reports whether two segments have the same entries.
func (s *Segment) same(o *Segment) bool {
	return s.name() == o.name() && s.Tenant == o.Tenant && string(appendLinks(nil, s.Links)) == string(appendLinks(nil, o.Links))
}

// open reads a segment and compares its header with its name.
func (a *Archive) open(ctx context.Context, n Name) (*Segment, error) {
	file, err := a.folder.read(n)
	if err != nil {
		return nil, err
	}
	s, err := decode(file, func(id string) (dataSecret, bool, error) { return a.keys.find(ctx, id) })
	if err == nil && s.name() != n.alone() {
		return nil, errPlace
	}
	return s, err
}
