package audit

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Bounds of one Verify.
const (
	verifyTime    = 20 * time.Second
	verifyEntries = 200_000
	verifyRows    = 100 // entries read at once: one may have megabytes
	maxFaults     = 100
	// unsignedAfter is how old an entry is that a checkpoint should have covered.
	unsignedAfter = 5 * time.Minute
	// graceful is how far into what retention keeps verification begins, at most: calls are removed
	// by when they were created, and their entries are of when they ended.
	graceful = 24 * time.Hour
)

// Kinds of faults.
const (
	FaultChanged   = "changed"
	FaultMissing   = "missing"
	FaultReordered = "reordered"
	FaultAdded     = "added"
	FaultUnsigned  = "unsigned"
)

// Fault is something that is not as it was written.
type Fault struct {
	Kind       string     `json:"kind" enum:"changed,missing,reordered,added,unsigned"`
	Writer     int64      `json:"writer,omitempty" doc:"of the entry: one run of one process"`
	Entry      int64      `json:"entry,omitempty" doc:"its number among the writer's entries"`
	ID         string     `json:"id,omitempty" doc:"of the call or event, as it is stored now"`
	At         *time.Time `json:"at,omitempty" doc:"of the entry, as it is stored now, or of the checkpoint"`
	Checkpoint int64      `json:"checkpoint,omitempty" doc:"number of the checkpoint that is at fault, or that covers the entry"`
	Segment    string     `json:"segment,omitempty" doc:"path of the segment of the archive"`
	Text       string     `json:"text" doc:"what is wrong"`
}

// Query asks what to verify.
type Query struct {
	Tenant string
	Since  time.Time // zero: all that retention keeps whole
	Cursor string    // Next of the report before, "" to begin
	// Archive asks for what is in the archive.
	Archive bool
}

// Checkpoint names a checkpoint.
type Checkpoint struct {
	Number int64     `json:"number"`
	At     time.Time `json:"at"`
	Digest string    `json:"digest" doc:"SHA-256 of what was signed, hex: it proves that the checkpoint, and all before, are those that were there"`
}

// Report is what Verify found.
type Report struct {
	Intact      bool        `json:"intact" doc:"nothing is wrong in what was verified"`
	Next        string      `json:"next,omitempty" doc:"cursor to go on with; empty: it is complete"`
	From        *Checkpoint `json:"from,omitempty" doc:"the first checkpoint that was verified"`
	Newest      *Checkpoint `json:"newest,omitempty" doc:"the newest one"`
	Checkpoints int         `json:"checkpoints" doc:"verified in this part"`
	Entries     int         `json:"entries" doc:"verified in this part"`
	Open        int         `json:"open" doc:"entries of these that are chained, and that no checkpoint signs yet"`
	Faults      []Fault     `json:"faults" doc:"100 at most"`
	More        bool        `json:"more_faults,omitempty" doc:"there are more faults"`
}

// verifier is one Verify.
type verifier struct {
	a      *Audit
	src    chains
	tenant string
	late   time.Duration // from which age on an entry should be signed
	r      Report
	until  time.Time
	hasher toolkeep.Hasher
}

func (v *verifier) fault(f Fault) {
	v.r.Intact = false
	if len(v.r.Faults) == maxFaults {
		v.r.More = true
		return
	}
	v.r.Faults = append(v.r.Faults, f)
}

func (v *verifier) over() bool {
	return v.r.Entries >= verifyEntries || !time.Now().Before(v.until)
}

// Verify compares a tenant's entries with their hashes and with the signed checkpoints. It takes about 20 s or 200,000
// entries at most and then says where to go on, between two checkpoints.
//
// Errors: E3301 a cursor that is none, or there is no archive; E3965 the store or the archive cannot be read.
func (a *Audit) Verify(ctx context.Context, q Query) (*Report, error) {
	v := &verifier{a: a, src: a.c.Store, tenant: q.Tenant, late: unsignedAfter, until: time.Now().Add(verifyTime)}
	v.r.Intact, v.r.Faults = true, []Fault{}
	run := v.run
	if q.Archive {
		run = v.runArchive
	}
	if err := run(ctx, q); err != nil {
		var known *toolkeep.Error
		if errors.As(err, &known) || ctx.Err() != nil {
			return nil, err
		}
		return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the journal cannot be read now").Because(err)
	}
	return &v.r, nil
}

func (v *verifier) run(ctx context.Context, q Query) error {
	h, there, err := v.readHead(ctx)
	if err != nil {
		return err
	}
	if there {
		next, err := v.begin(ctx, q, &h)
		if err != nil {
			return err
		}
		if v.r.Next, err = v.checkpoints(ctx, &h, next, q.Cursor == ""); err != nil || v.r.Next != "" {
			return err
		}
	}
	return v.tail(ctx, &h)
}

// readHead reads what the newest checkpoint left. there is false if nothing was signed, or cannot be believed.
func (v *verifier) readHead(ctx context.Context) (h head, there bool, err error) {
	d, err := v.a.c.Store.Document(ctx, HeadKind, v.tenant, onlyID)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return h, false, nil
	}
	if err != nil {
		return h, false, err
	}
	if _, err = v.a.keys.open(ctx, d, &h); errors.Is(err, errUnsigned) {
		v.fault(Fault{Kind: FaultChanged, At: &d.UpdatedAt, Text: "the list of checkpoints is not the one that was signed, so none of them can be found; the entries below are unsigned"})
		return head{}, false, nil
	}
	if err != nil {
		return h, false, err
	}
	v.r.Newest = &Checkpoint{h.Number, h.At, h.Digest}
	return h, true, nil
}

// begin returns the number of the checkpoint to begin with.
func (v *verifier) begin(ctx context.Context, q Query, h *head) (int64, error) {
	if q.Cursor != "" {
		n, err := strconv.ParseInt(q.Cursor, 10, 64)
		if err != nil || n < 1 || n > h.Number+1 {
			return 0, toolkeep.NewError(toolkeep.InvalidParameters, "the cursor is not one of this server's; leave it out to begin")
		}
		return max(n, h.First), nil
	}
	keeps := v.src.KeepsFrom()
	since := keeps.Add(min(graceful, v.a.c.Clock().Sub(keeps)/2))
	if q.Since.After(since) {
		since = q.Since
	}
	// The first checkpoint that is not older. Where one is missing, its time counts as too old.
	low, high := h.First, h.Number+1
	for low < high {
		middle := low + (high-low)/2
		d, err := v.src.Document(ctx, CheckpointKind, v.tenant, strconv.FormatInt(middle, 10))
		if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
			return 0, err
		}
		var s statement
		if err == nil {
			if _, err = v.a.keys.open(ctx, d, &s); err != nil && !errors.Is(err, errUnsigned) {
				return 0, err
			}
		}
		if err != nil { // verify from there on, so that it is told
			high = middle
		} else if s.At.Before(since) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low, nil
}

// checkpoints verifies the checkpoints from a number on. next is not empty if there are more.
func (v *verifier) checkpoints(ctx context.Context, h *head, number int64, first bool) (next string, err error) {
	previous := ""
	if !first || number > h.First { // its digest is in the next statement
		d, err := v.src.Document(ctx, CheckpointKind, v.tenant, strconv.FormatInt(number-1, 10))
		if err == nil {
			var s statement
			if raw, oErr := v.a.keys.open(ctx, d, &s); oErr == nil {
				previous = digest(raw)
			}
		}
	}
	for ; number <= h.Number; number++ {
		if v.over() {
			return strconv.FormatInt(number, 10), nil
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		d, err := v.src.Document(ctx, CheckpointKind, v.tenant, strconv.FormatInt(number, 10))
		if errors.Is(err, toolkeep.ErrNotFound) {
			v.fault(Fault{Kind: FaultMissing, Checkpoint: number, Text: "the checkpoint is missing"})
			previous = ""
			continue
		}
		if err != nil {
			return "", err
		}
		var s statement
		raw, err := v.a.keys.open(ctx, d, &s)
		if errors.Is(err, errUnsigned) {
			v.fault(Fault{Kind: FaultUnsigned, Checkpoint: number, At: &d.UpdatedAt, Text: "no key of this installation signed the checkpoint"})
			previous = ""
			continue
		}
		if err != nil {
			return "", err
		}
		made := digest(raw)
		switch {
		case s.Tenant != v.tenant || s.Number != number:
			v.fault(Fault{Kind: FaultReordered, Checkpoint: number, At: &s.At, Text: fmt.Sprintf("in the place of the checkpoint is number %d", s.Number)})
			previous = ""
			continue
		case previous != "" && s.Previous != previous, number == h.Number && h.Digest != "" && made != h.Digest:
			v.fault(Fault{Kind: FaultChanged, Checkpoint: number, At: &s.At, Text: "the checkpoint is not the one that follows on the one before"})
		}
		previous = made
		if v.r.From == nil {
			v.r.From = &Checkpoint{s.Number, s.At, made}
		}
		v.r.Checkpoints++
		for i := range s.Chains {
			if err := v.stretch(ctx, &s, &s.Chains[i]); err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

func (v *verifier) stretch(ctx context.Context, s *statement, c *stretch) error {
	w := walk{v: v, writer: c.Writer, checkpoint: s.Number}
	if !w.start(c.After.Hash) {
		v.fault(Fault{Kind: FaultChanged, Checkpoint: s.Number, Text: "the checkpoint cannot be read"})
		return nil
	}
	if err := w.read(ctx, c.After.Seq, c.To.Seq); err != nil {
		return err
	}
	w.finish(c)
	return nil
}

// tail verifies what was written after the newest checkpoint.
func (v *verifier) tail(ctx context.Context, h *head) error {
	writers, err := v.src.ChainWriters(ctx, seqs(h.Writers))
	if err != nil {
		return err
	}
	for _, w := range writers {
		after, known := h.Writers[w.ID]
		walk := walk{v: v, writer: w.ID, open: true, old: !known}
		if !known {
			start := v.hasher.ChainStart(w.ID, v.tenant)
			after.Hash = hex.EncodeToString(start[:])
		}
		if !walk.start(after.Hash) {
			continue
		}
		if err := walk.read(ctx, after.Seq, w.Newest); err != nil {
			return err
		}
		walk.finish(nil)
	}
	return nil
}

func seqs(m map[int64]place) toolkeep.JournalPosition {
	p := make(toolkeep.JournalPosition, len(m))
	for id, at := range m {
		p[id] = at.Seq
	}
	return p
}

// walk follows a stretch of a chain.
type walk struct {
	v          *verifier
	writer     int64
	checkpoint int64
	open       bool // no checkpoint covers it
	old        bool // the writer may be an older program, without hashes

	prev    toolkeep.ChainHash
	want    toolkeep.ChainHash // of the entry before, as it is stored now
	count   int64
	last    int64
	late    int64 // open entries that a checkpoint should cover, and the first of them
	first   Fault
	suspect []suspect
	resync  bool // the entry before did not fit, so that this one may be right
}

// suspect is an entry that does not fit on the one before.
type suspect struct {
	link  toolkeep.Link
	prev  toolkeep.ChainHash
	fault Fault
	sure  bool // Kind is right; otherwise the number of entries decides
	doubt bool // it may be right, if the entry before is not; not where entries changed places
}

func (w *walk) start(hash string) bool {
	raw, err := hex.DecodeString(hash)
	if err != nil || len(raw) != len(w.prev) {
		return false
	}
	copy(w.prev[:], raw)
	return true
}

// read walks entries after one number, up to and including another.
func (w *walk) read(ctx context.Context, after, upTo int64) error {
	var waiting *toolkeep.Link
	for after < upTo {
		list, read, err := w.v.src.Links(ctx, toolkeep.LinkQuery{Writer: w.writer, After: after, UpTo: upTo, Tenant: w.v.tenant, Content: true, Limit: verifyRows})
		if err != nil {
			return err
		}
		for i := range list {
			if waiting != nil {
				w.entry(waiting, &list[i])
			}
			waiting = &list[i]
		}
		after = read
	}
	if waiting != nil {
		w.entry(waiting, nil)
	}
	return nil
}

// entry checks an entry; next is the one after it, nil for the last.
func (w *walk) entry(l, next *toolkeep.Link) {
	v := w.v
	v.r.Entries++
	if len(l.Hash) == 0 {
		if !w.old {
			w.suspects(l, FaultAdded, true, "the entry has no hash, so the server did not write it")
		}
		return
	}
	w.old = false
	w.count++
	w.last = l.Seq
	want := v.hasher.ChainNext(&w.prev, l)
	resync := w.resync
	w.resync = false
	switch {
	case l.Gone:
		w.suspects(l, FaultMissing, true, "the call of the entry is missing")
	case string(want[:]) == string(l.Hash):
		if w.open {
			w.opened(l)
		}
	case next != nil && fits(v, &w.prev, next):
		w.suspects(l, FaultAdded, true, "the entry does not belong here: the next one follows on the one before it")
		w.count--
		return
	case next != nil && !fits(v, (*toolkeep.ChainHash)(pad(l.Hash)), next):
		w.suspects(l, FaultChanged, false, "")
		w.resync = true
	case resync && fits(v, &w.want, l): // only the hash of the one before was changed
	case resync:
		w.suspects(l, FaultChanged, false, "")
		w.suspect[len(w.suspect)-1].doubt = true
	default:
		w.suspects(l, FaultChanged, false, "")
	}
	w.prev, w.want = toolkeep.ChainHash(pad(l.Hash)), want
}

// pad makes a hash of stored bytes, which may be anything.
func pad(b []byte) []byte {
	var h toolkeep.ChainHash
	copy(h[:], b)
	return h[:]
}

func fits(v *verifier, prev *toolkeep.ChainHash, l *toolkeep.Link) bool {
	h := v.hasher.ChainNext(prev, l)
	return string(h[:]) == string(l.Hash)
}

func (w *walk) suspects(l *toolkeep.Link, kind string, sure bool, text string) {
	if len(w.suspect) > maxFaults {
		w.v.r.Intact = false
		w.v.r.More = true
		w.suspect = w.suspect[:maxFaults]
	}
	f := Fault{Kind: kind, Writer: l.Writer, Entry: l.Seq, ID: l.Ref, At: w.at(l), Checkpoint: w.checkpoint, Text: text}
	w.suspect = append(w.suspect, suspect{link: *l, prev: w.prev, fault: f, sure: sure})
}

// at returns the time of an entry, if it can be read.
func (w *walk) at(l *toolkeep.Link) *time.Time {
	e, err := w.v.src.Entry(*l)
	if err != nil || e == nil {
		return nil
	}
	return &e.At
}

func (w *walk) opened(l *toolkeep.Link) {
	w.v.r.Open++
	at := w.at(l)
	if at == nil || w.v.a.c.Clock().Sub(*at) < w.v.late {
		return
	}
	if w.late++; w.late == 1 {
		w.first = Fault{Kind: FaultUnsigned, Writer: l.Writer, Entry: l.Seq, ID: l.Ref, At: at}
	}
}

// finish says what is wrong. c is the stretch as it was signed, nil if nothing was.
func (w *walk) finish(c *stretch) {
	w.reordered()
	for i := range w.suspect {
		s := &w.suspect[i]
		if s.sure {
			continue
		}
		switch {
		case c != nil && w.count < c.Count:
			s.fault.Kind, s.fault.Text = FaultMissing, fmt.Sprintf("%d entries are missing before this one, or it was changed too", c.Count-w.count)
		case c != nil && w.count > c.Count:
			s.fault.Kind, s.fault.Text = FaultAdded, "there are more entries here than were signed"
		default:
			s.fault.Kind, s.fault.Text = FaultChanged, "the entry is not as it was written"
			if c == nil {
				s.fault.Text = "the entry is not as it was written, or entries before it are missing"
			}
		}
	}
	moved := slices.ContainsFunc(w.suspect, func(s suspect) bool { return s.fault.Kind == FaultReordered })
	for i := range w.suspect {
		if s := &w.suspect[i]; !s.doubt || s.sure || !moved {
			w.v.fault(s.fault)
		}
	}
	if w.late > 0 {
		w.first.Text = fmt.Sprintf("no checkpoint covers %d entries from this one on, though they are older than %s: checkpoints were removed, or none were made", w.late, w.v.late)
		w.v.fault(w.first)
	}
	if c == nil {
		return
	}
	end := Fault{Writer: c.Writer, Entry: c.To.Seq, Checkpoint: w.checkpoint}
	switch {
	case w.count < c.Count && w.last < c.To.Seq:
		end.Kind, end.Text = FaultMissing, fmt.Sprintf("%d entries are missing, up to this one", c.Count-w.count)
	case len(w.suspect) > 0:
		return
	case hex.EncodeToString(w.prev[:]) != c.To.Hash || w.count != c.Count:
		end.Kind = FaultChanged
		end.Text = fmt.Sprintf("entries after %d, up to this one, are not those that were signed: their hashes were computed again", c.After.Seq)
	default:
		return
	}
	w.v.fault(end)
}

// reordered finds entries among the suspects that have each other's content.
func (w *walk) reordered() {
	for i := range w.suspect {
		for j := range w.suspect {
			a, b := &w.suspect[i], &w.suspect[j]
			if i == j || a.sure && a.fault.Kind != FaultReordered {
				continue
			}
			l := b.link
			l.Seq = a.link.Seq
			h := w.v.hasher.ChainNext(&a.prev, &l)
			if string(h[:]) != string(a.link.Hash) && string(h[:]) != string(b.link.Hash) {
				continue
			}
			for _, s := range []struct{ is, other *suspect }{{a, b}, {b, a}} {
				s.is.sure, s.is.fault.Kind = true, FaultReordered
				s.is.fault.Text = fmt.Sprintf("the entry has changed places with number %d", s.other.link.Seq)
			}
		}
	}
}

// Add adds the report of the next part.
func (r *Report) Add(part *Report) {
	r.Intact = r.Intact && part.Intact
	r.Checkpoints, r.Entries, r.Open = r.Checkpoints+part.Checkpoints, r.Entries+part.Entries, r.Open+part.Open
	r.Faults, r.More = append(r.Faults, part.Faults...), r.More || part.More
	if r.From == nil {
		r.From = part.From
	}
	r.Newest, r.Next = part.Newest, part.Next
}

// Print writes the report for people.
func (r *Report) Print(w io.Writer) error {
	state := "intact"
	if !r.Intact {
		state = "NOT intact"
	}
	_, err := fmt.Fprintf(w, "%s: %d entries, %d checkpoints\n", state, r.Entries, r.Checkpoints)
	if r.From != nil && err == nil {
		_, err = fmt.Fprintf(w, "from checkpoint %d of %s\n", r.From.Number, r.From.At.Format(time.RFC3339))
	}
	if r.Newest != nil && err == nil {
		_, err = fmt.Fprintf(w, "newest checkpoint %d of %s, digest %s\n", r.Newest.Number, r.Newest.At.Format(time.RFC3339), r.Newest.Digest)
	}
	if r.Open > 0 && err == nil {
		_, err = fmt.Fprintf(w, "%d entries are chained and not signed yet\n", r.Open)
	}
	for _, f := range r.Faults {
		if err != nil {
			break
		}
		_, err = fmt.Fprintf(w, "%s: %s (%s)\n", f.Kind, f.Text, f.place())
	}
	return err
}

// place says where a fault is.
func (f *Fault) place() string {
	where := ""
	add := func(format string, args ...any) {
		if where != "" {
			where += ", "
		}
		where += fmt.Sprintf(format, args...)
	}
	if f.Writer != 0 {
		add("writer %d, entry %d", f.Writer, f.Entry)
	}
	if f.ID != "" {
		add("id %q", f.ID)
	}
	if f.Checkpoint != 0 {
		add("checkpoint %d", f.Checkpoint)
	}
	if f.Segment != "" {
		add("segment %s", f.Segment)
	}
	if f.At != nil {
		add("%s", f.At.Format(time.RFC3339))
	}
	return where
}
