package audit

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Archive is where entries and checkpoints stay when the store has removed them.
type Archive interface {
	// Archived returns what the archive has had of a tenant's checkpoints.
	Archived(ctx context.Context, tenant string) (Archived, error)
	// KeepsFrom returns the time from which on the archive is whole.
	KeepsFrom(ctx context.Context) (time.Time, error)
	// Read reads what there is of a tenant now, of days from since on. damaged is told of each segment, once, that has a
	// fault: its path and which; the cause is ErrMisplaced where it is in another's place. What cannot be read now is an error.
	Read(tenant string, since time.Time, damaged func(segment string, err error)) (ArchiveReader, error)
	// Segments returns a tenant's segments after a cursor, limit at most, and the next cursor, "" at the end. Each is read.
	// ErrNotFound: the cursor is none.
	Segments(ctx context.Context, tenant, after string, limit int) (list []Segment, next string, err error)
}

// ErrMisplaced is the cause of a segment that cannot be used where it is.
var ErrMisplaced = errors.New("it belongs elsewhere")

// Archived is what an archive has had of a tenant's checkpoints.
type Archived struct {
	First   int64     `json:"first"` // number of the first one
	FirstAt time.Time `json:"first_at"`
	Newest  int64     `json:"newest"`
	// Ends are the numbers of the last entries that they sign, by writer.
	Ends toolkeep.JournalPosition `json:"ends"`
}

// Add notes a checkpoint, after those of lower numbers.
func (a *Archived) Add(number int64, at time.Time, ends toolkeep.JournalPosition) {
	if a.First == 0 {
		a.First, a.FirstAt = number, at
	}
	if a.Ends == nil {
		a.Ends = make(toolkeep.JournalPosition, len(ends))
	}
	a.Newest = number
	maps.Copy(a.Ends, ends)
	prune(a.Ends)
}

// ArchiveReader reads a tenant's part of an archive. It is for one goroutine.
type ArchiveReader interface {
	// ChainWriters, Links and Newest are as those of toolkeep.Chains. The order of Newest is that of segments, by day and
	// number, and within one that of its entries.
	ChainWriters(ctx context.Context, after toolkeep.JournalPosition) ([]toolkeep.ChainWriter, error)
	Links(ctx context.Context, q toolkeep.LinkQuery) (list []toolkeep.Link, read int64, err error)
	Newest(ctx context.Context, q toolkeep.NewestQuery) (list []toolkeep.Link, cursors []string, next string, err error)
	// Checkpoint returns the document of a checkpoint; ErrNotFound.
	Checkpoint(ctx context.Context, tenant string, number int64) (toolkeep.Document, error)
	// Checkpoints returns the numbers of the oldest checkpoint of days from since on, and of the newest; 0 without any.
	// Those of older days are there because a legal hold kept their day, and others between them are gone.
	Checkpoints(since time.Time) (first, newest int64)
}

// Segment is a file of the archive.
type Segment struct {
	Path      string    `json:"path"`
	Kind      string    `json:"kind" enum:"journal,checkpoints"`
	Day       string    `json:"day" doc:"UTC"`
	Writer    int64     `json:"writer,omitempty" doc:"of the entries"`
	First     int64     `json:"first" doc:"number of the first entry or checkpoint"`
	Last      int64     `json:"last"`
	Count     int       `json:"count"`
	From      time.Time `json:"from,omitzero" doc:"the earliest time of an entry"`
	To        time.Time `json:"to,omitzero" doc:"the latest one"`
	Bytes     int64     `json:"bytes" doc:"of the file"`
	WrittenAt time.Time `json:"written_at,omitzero"`
	Whole     bool      `json:"whole" doc:"it can be read, and is as it was written"`
	Fault     string    `json:"fault,omitempty" doc:"why it is not whole"`
}

// MaxSegments is the most segments of one page.
const MaxSegments = 100

// Segments returns a page of a tenant's segments, each read, and the cursor of the next one, "" at the end.
//
// Errors: E3301 a limit or a cursor that is none, or there is no archive; E3965 the archive cannot be read.
func (a *Audit) Segments(ctx context.Context, tenant, cursor string, limit int) (list []Segment, next string, err error) {
	if limit < 1 || limit > MaxSegments {
		return nil, "", toolkeep.NewError(toolkeep.InvalidParameters, "a page has 1 to %d segments", MaxSegments)
	}
	if a.c.Archive == nil {
		return nil, "", errNoArchive()
	}
	list, next, err = a.c.Archive.Segments(ctx, tenant, cursor, limit)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return nil, "", errCursor()
	}
	if err != nil {
		return nil, "", unreadable(err)
	}
	return list, next, nil
}

func errNoArchive() error {
	return toolkeep.NewError(toolkeep.InvalidParameters, "this server has no archive of the audit; the setting audit.archive names its folder")
}

func errCursor() error {
	return toolkeep.NewError(toolkeep.InvalidParameters, "the cursor is not one of this server's; leave it out to begin")
}

func unreadable(err error) error {
	if toolkeep.IsCode(err, toolkeep.RecordUnavailable) {
		return err // it says more
	}
	return toolkeep.NewError(toolkeep.RecordUnavailable, "the audit's archive cannot be read now").Because(err)
}

// chains are what is verified: the store, or the archive.
type chains interface {
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	ChainWriters(ctx context.Context, after toolkeep.JournalPosition) ([]toolkeep.ChainWriter, error)
	Links(ctx context.Context, q toolkeep.LinkQuery) (list []toolkeep.Link, read int64, err error)
	Entry(l toolkeep.Link) (*toolkeep.Entry, error)
	KeepsFrom() time.Time
}

// archived is the archive as chains. Its checkpoints are looked for in it alone.
type archived struct {
	ArchiveReader
	Store
	from time.Time
}

func (a archived) Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	number, err := strconv.ParseInt(id, 10, 64)
	if kind != CheckpointKind || err != nil {
		return toolkeep.Document{}, toolkeep.ErrNotFound
	}
	return a.Checkpoint(ctx, tenant, number)
}

func (a archived) ChainWriters(ctx context.Context, after toolkeep.JournalPosition) ([]toolkeep.ChainWriter, error) {
	return a.ArchiveReader.ChainWriters(ctx, after)
}

func (a archived) Links(ctx context.Context, q toolkeep.LinkQuery) ([]toolkeep.Link, int64, error) {
	return a.ArchiveReader.Links(ctx, q)
}

func (a archived) KeepsFrom() time.Time { return a.from }

// signedLate is from which age on an archived entry should have an archived checkpoint.
const signedLate = 24 * time.Hour

// runArchive verifies what is in the archive. Which checkpoints it must have is known from the store: those that it has
// had, and those that the store has no longer.
func (v *verifier) runArchive(ctx context.Context, q Query) error {
	archive := v.a.c.Archive
	if archive == nil {
		return errNoArchive()
	}
	from, err := archive.KeepsFrom(ctx)
	if err != nil {
		return err
	}
	reader, err := archive.Read(v.tenant, time.Time{}, v.segment)
	if err != nil {
		return unreadable(err)
	}
	had, err := archive.Archived(ctx, v.tenant)
	if err != nil {
		return err
	}
	hot, _, err := v.readHead(ctx)
	if err != nil {
		return err
	}
	v.src, v.late, v.r.Newest = archived{reader, v.a.c.Store, from}, signedLate, nil
	h := head{}
	h.First, h.Number = reader.Checkpoints(from)
	if had.First > 0 && (h.First == 0 || had.First < h.First && !had.FirstAt.Before(from)) {
		h.First = had.First
	}
	h.Number = max(h.Number, had.Newest, hot.First-1)
	if h.First > 0 {
		next, err := v.begin(ctx, q, &h)
		if err != nil {
			return err
		}
		if v.r.Next, err = v.checkpoints(ctx, &h, next, q.Cursor == ""); err != nil || v.r.Next != "" {
			return err
		}
		if err := v.meetsStore(ctx, h.Number, &hot); err != nil {
			return err
		}
	}
	if h.Writers, err = v.ends(ctx, reader, had.Ends); err != nil {
		return err
	}
	return v.tail(ctx, &h)
}

// segment notes a segment that cannot be read.
func (v *verifier) segment(path string, err error) {
	kind := FaultChanged
	if errors.Is(err, ErrMisplaced) {
		kind = FaultReordered
	}
	v.fault(Fault{Kind: kind, Segment: path, Text: "the segment cannot be used: " + err.Error()})
}

// meetsStore compares the newest archived checkpoint with the one in the store that goes on from it.
func (v *verifier) meetsStore(ctx context.Context, number int64, hot *head) error {
	s, raw, err := v.statement(ctx, v.src, number)
	if raw == nil || err != nil {
		return err
	}
	v.r.Newest = &Checkpoint{s.Number, s.At, digest(raw)}
	follows := hot.Digest
	if number != hot.Number {
		next, raw, err := v.statement(ctx, v.a.c.Store, number+1)
		if raw == nil || err != nil {
			return err
		}
		follows = next.Previous
	}
	if follows != "" && follows != digest(raw) {
		v.fault(Fault{Kind: FaultChanged, Checkpoint: number, At: &s.At, Text: "the newest archived checkpoint is not the one from which the store goes on"})
	}
	return nil
}

// statement reads a checkpoint that a key of this installation signed; raw is nil if there is none.
func (v *verifier) statement(ctx context.Context, src chains, number int64) (s statement, raw []byte, err error) {
	d, err := src.Document(ctx, CheckpointKind, v.tenant, strconv.FormatInt(number, 10))
	if err == nil {
		raw, err = v.a.keys.open(ctx, d, &s)
	}
	if errors.Is(err, toolkeep.ErrNotFound) || errors.Is(err, errUnsigned) {
		return s, nil, nil
	}
	return s, raw, err
}

// ends returns where the archived checkpoints end, for each writer with later entries.
func (v *verifier) ends(ctx context.Context, r ArchiveReader, ends toolkeep.JournalPosition) (map[int64]place, error) {
	at := make(map[int64]place, len(ends))
	writers, err := r.ChainWriters(ctx, ends)
	if err != nil {
		return nil, err
	}
	for id, seq := range ends {
		at[id] = place{Seq: seq}
	}
	for _, w := range writers {
		seq, ok := ends[w.ID]
		if !ok {
			continue
		}
		list, _, err := r.Links(ctx, toolkeep.LinkQuery{Writer: w.ID, After: seq - 1, UpTo: seq, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(list) > 0 { // verified with its checkpoint; without it the tail has no beginning
			at[w.ID] = place{seq, hexOf(list[0].Hash)}
		}
	}
	return at, nil
}

// HeadNumbers returns the numbers of the oldest and the newest checkpoint that a document of HeadKind lists. Its signature is not
// checked. ok is false if it cannot be read.
func HeadNumbers(d toolkeep.Document) (first, newest int64, ok bool) {
	var s signed
	var h head
	if json.Unmarshal(d.Body, &s) != nil || json.Unmarshal(s.Statement, &h) != nil {
		return 0, 0, false
	}
	return h.First, h.Number, true
}

// CheckpointEnds returns for each writer the number of the last entry that a document of CheckpointKind signs. Its signature is not
// checked. It is empty for one that cannot be read.
func CheckpointEnds(d toolkeep.Document) toolkeep.JournalPosition {
	var s signed
	var st statement
	if json.Unmarshal(d.Body, &s) != nil || json.Unmarshal(s.Statement, &st) != nil {
		return nil
	}
	ends := make(toolkeep.JournalPosition, len(st.Chains))
	for i := range st.Chains {
		ends[st.Chains[i].Writer] = st.Chains[i].To.Seq
	}
	return ends
}

// keeps reports whether a checkpoint past its time stays, since the archive does not have it yet, or what it signs is
// held. Those after it stay with it.
func (a *Audit) keeps(ctx context.Context, d toolkeep.Document, number int64) (bool, error) {
	holds, _, err := a.c.Store.Documents(ctx, toolkeep.LegalHoldKind)
	if err != nil {
		return true, err
	}
	for _, doc := range holds {
		h := toolkeep.ReadLegalHold(doc)
		// A checkpoint comes a minute after what it signs; more after a pause.
		if h.Tenant == d.Tenant && h.Covers(d.UpdatedAt.Add(-24*time.Hour), d.UpdatedAt.Add(time.Minute)) {
			return true, nil
		}
	}
	if a.c.Archive == nil || d.UpdatedAt.Before(a.c.Store.KeepsFrom().Add(-a.c.ArchiveWait)) {
		return false, nil
	}
	had, err := a.c.Archive.Archived(ctx, d.Tenant)
	return number > had.Newest, err
}
