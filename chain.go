package toolkeep

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"time"
)

// ChainHash is an element of a hash chain of the journal. Each tenant has one chain for each
// writer: every entry's hash covers the hash of the tenant's entry before it, so that a change,
// a removal or an exchange of entries is found from the entries alone. See package audit for
// the signed checkpoints, which bind the chains of all writers.
type ChainHash [sha256.Size]byte

// Link is a stored entry of the journal with its hash.
type Link struct {
	Writer int64  // who wrote it; a writer is one run of one process
	Seq    int64  // its number among the writer's entries
	Hash   []byte // nil: an older program wrote it, or the row was added by other means
	// Stamp orders entries of several writers: an entry that was made by who could read another one has a higher
	// stamp, or, where it is of the same writer, a higher number. 0: no entry of another writer speaks of the same call.
	Stamp int64
	// What the hash covers beside the hash before it, Seq, Tenant and Ref, as it is stored.
	Kind   int64
	At     int64 // microseconds since 1970; 0 where the store has the time in Data alone
	Tenant string
	Ref    string // the call's or the event's id
	Data   []byte
	// Gone means that the content of a call is no longer where it was moved to.
	Gone bool
}

// ChainWriter is a writer of the journal.
type ChainWriter struct {
	ID     int64
	First  int64 // number with which its entries begin; 0 where that is not known
	Newest int64 // number of its newest committed entry, at least
}

// Chains reads the journal with its hashes.
type Chains interface {
	// ChainWriters returns the writers with entries after a position, in order.
	ChainWriters(ctx context.Context, after JournalPosition) ([]ChainWriter, error)
	// Links returns a writer's entries after a number, up to and including upTo, in order, limit
	// at most (1 to 1,000), and how far it came. With tenant set they are that tenant's; content
	// asks for what the hashes cover, without which Kind, At, Ref and Data are empty.
	Links(ctx context.Context, q LinkQuery) (list []Link, read int64, err error)
	// Newest returns a tenant's entries with content, the newest first, and for each the cursor that
	// goes on after it. next goes on after the page, also after one with fewer entries than were
	// asked for, and is "" at the end. ErrNotFound: the cursor is none.
	Newest(ctx context.Context, q NewestQuery) (list []Link, cursors []string, next string, err error)
	// Entry reads the entry of a link with content. It is nil for a kind that is none.
	Entry(l Link) (*Entry, error)
	// KeepsFrom returns the time from which on the journal is whole: of what is older, retention
	// may have removed parts.
	KeepsFrom() time.Time
}

// LinkQuery asks for links of one writer.
type LinkQuery struct {
	Writer      int64
	After, UpTo int64
	All         bool   // of all tenants
	Tenant      string // unless All
	Events      bool   // events alone, no calls
	Content     bool
	Limit       int
}

// Cursor is how far a reader has come in the entries of a writer.
type Cursor struct {
	Writer int64
	Seq    int64     // number of the last entry that it is done with
	At     time.Time // when that entry was written, or when the reader came to it
}

// ArchiveReader is the reader that the audit's archive is. A store that has an archive keeps what comes after its
// cursors for longer.
const ArchiveReader = "audit.archive"

// Cursors keeps how far readers of the journal have come; MoveCursor moves a cursor.
type Cursors interface {
	// Cursors returns a reader's cursors, by writer. One that is missing is at 0.
	Cursors(ctx context.Context, reader string) ([]Cursor, error)
}

// NewestQuery asks for a tenant's entries.
type NewestQuery struct {
	Tenant       string
	Since, Until time.Time // zero: all; Until is not included
	Before       string    // cursor, "" to begin
	Limit        int       // 1 to 1,000
}

// Hasher computes hashes of a chain. It is for one goroutine.
type Hasher struct {
	sum hash.Hash
	buf []byte
}

// ChainStart returns the hash before the first entry of a tenant's chain.
func (h *Hasher) ChainStart(writer int64, tenant string) (out ChainHash) {
	h.buf = append(h.buf[:0], "toolkeep journal chain 1\x00"...)
	h.buf = binary.BigEndian.AppendUint64(h.buf, uint64(writer))
	h.buf = append(h.buf, tenant...)
	return sha256.Sum256(h.buf)
}

// ChainNext returns the hash of an entry after one with the hash prev: SHA-256 over prev, number,
// kind and time (8 bytes each, big-endian), and tenant, ref and data, each after its length.
func (h *Hasher) ChainNext(prev *ChainHash, l *Link) (out ChainHash) {
	if h.sum == nil {
		h.sum = sha256.New()
	}
	b := append(h.buf[:0], prev[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Seq))
	b = binary.BigEndian.AppendUint64(b, uint64(l.Kind))
	b = binary.BigEndian.AppendUint64(b, uint64(l.At))
	b = append(binary.BigEndian.AppendUint64(b, uint64(len(l.Tenant))), l.Tenant...)
	b = append(binary.BigEndian.AppendUint64(b, uint64(len(l.Ref))), l.Ref...)
	b = binary.BigEndian.AppendUint64(b, uint64(len(l.Data)))
	h.sum.Reset()
	h.sum.Write(b)
	h.sum.Write(l.Data)
	h.buf = h.sum.Sum(b[:0])
	return ChainHash(h.buf)
}
