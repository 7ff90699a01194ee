package record

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Kinds of rows of the feed and the journal. They are stored: never reuse a number. 2 and
// 4 to 7 were what happened in calls before their end.
const (
	KindRecord   = 1
	kindMove     = 3 // an older program's move of a call
	KindEnded    = 8 // the end of a claimed call
	KindShort    = 9 // the end of a call whose data is in the table of calls alone
	LastCallKind = 9 // kinds up to here are calls, which leave the journal after a while

	KindEvent = 10 // an event of the journal, or an item in the feed; both leave later

	KindPublish   = 20 // rows from here on stay forever
	KindLifecycle = 21
	KindKey       = 22
	KindRevoke    = 23
)

// KeyHolds is how long an idempotency key is valid by default.
const KeyHolds = 24 * time.Hour

// MaxBytes bounds the encoded size that one change may store in a row.
const MaxBytes = 64 << 20

// Encoded is a checked change, as watchers get it, with its row.
type Encoded struct {
	Change toolkeep.Change
	// Entry is what the journal gets, without writer, number and time. With none, the
	// row is the feed's.
	Entry  toolkeep.Entry
	Kind   int64 // 0 if there is no row
	Tenant string
	Ref    string // the subject: a call's id, a version, a key's id, an owner
	Data   []byte
	// Call is the row of a claimed, moved or recorded call, after settled; CallData is
	// its data column.
	Call     *toolkeep.Invocation
	CallData []byte
	// Hash is the entry's place in the chain, which the writer computes.
	Hash toolkeep.ChainHash
}

// InJournal reports whether the change is an entry of the journal.
func (e *Encoded) InJournal() bool { return e.Entry.Call != nil || e.Entry.Event != nil }

// Encode checks and encodes a change. now is used if a change has no time. Changes are
// passed by value; the invocation inside is copied.
func Encode(c toolkeep.Change, now func() time.Time) (Encoded, error) {
	e, err := encode(c, now)
	if err == nil && len(e.Data) > MaxBytes {
		err = fmt.Errorf("it takes %d bytes, the limit is %d", len(e.Data), MaxBytes)
	}
	if err != nil {
		return e, fmt.Errorf("%T: %w", c, err)
	}
	return e, nil
}

func encode(c toolkeep.Change, now func() time.Time) (Encoded, error) {
	switch c := c.(type) {
	case toolkeep.RecordCall:
		return encodeRecord(c)
	case toolkeep.ClaimCall:
		return encodeClaim(c)
	case toolkeep.MoveCall:
		return encodeMove(c)
	case toolkeep.RenewLeases:
		return Encoded{Change: c}, checkRenewal(c)
	case toolkeep.RequestCancel:
		if c.By == "" {
			return Encoded{}, errors.New("it does not say who asks")
		}
		return Encoded{Change: c}, checkRef(c.Call)
	case toolkeep.ReportProgress:
		return Encoded{Change: c}, checkRef(c.Call)
	case toolkeep.MarkFetched:
		if c.At.IsZero() {
			c.At = now()
		}
		return Encoded{Change: c}, checkRef(c.Call)
	case toolkeep.Enqueue:
		return Encoded{Change: c}, checkRef(c.Call)
	case toolkeep.ClaimNonce:
		if c.Nonce == [32]byte{} {
			return Encoded{}, errors.New("there is no nonce")
		}
		if c.At.IsZero() {
			c.At = now()
		}
		return Encoded{Change: c}, nil
	case toolkeep.MoveCursor:
		return Encoded{Change: c}, checkCursor(c)
	case toolkeep.AppendEvent:
		return encodeEvent(c)
	case toolkeep.PutDocument:
		return encodePut(c, now)
	case toolkeep.DeleteDocument:
		return encodeDrop(c, now)
	case nil:
		return Encoded{}, errors.New("there is no change")
	default:
		return encodeCatalogue(c)
	}
}

func encodeRecord(c toolkeep.RecordCall) (Encoded, error) {
	v := c.Invocation
	if err := checkCall(v); err != nil {
		return Encoded{}, err
	}
	if !v.State.Ended() {
		return Encoded{}, fmt.Errorf("a call in state %s is not over, it must be claimed", v.State)
	}
	data, err := AppendCall(make([]byte, 0, 512), v, Parts{Output: true})
	kept := *v // copied: stores read it later, and the caller may go on changing its own
	c.Invocation = &kept
	return Encoded{Change: c, Entry: toolkeep.Entry{Call: shown(&kept)}, Kind: KindRecord, Tenant: v.Tenant, Ref: v.ID,
		Data: data, Call: &kept, CallData: data}, err
}

func encodeClaim(c toolkeep.ClaimCall) (Encoded, error) {
	if err := checkCall(c.Invocation); err != nil {
		return Encoded{}, err
	}
	v := settled(c.Invocation)
	data, err := AppendCall(make([]byte, 0, 512), v, Parts{Waiting: true})
	return Encoded{Change: c, Call: v, CallData: data}, err
}

func encodeMove(c toolkeep.MoveCall) (Encoded, error) {
	if err := checkCall(c.Invocation); err != nil {
		return Encoded{}, err
	}
	v := settled(c.Invocation)
	data, err := AppendCall(make([]byte, 0, 512), v, Parts{Waiting: true})
	e := Encoded{Change: c, Call: v, CallData: data}
	if ends(c) {
		e.Entry.Call = shown(v)
		e.Kind, e.Tenant, e.Ref, e.Data = KindEnded, v.Tenant, v.ID, data
	}
	return e, err
}

// ends reports whether a move is the end of its call. An answer that expires belongs to a
// call that ended before.
func ends(c toolkeep.MoveCall) bool {
	return c.Invocation.State.Ended() && !slices.ContainsFunc(c.From, toolkeep.CallState.Ended)
}

func checkRenewal(c toolkeep.RenewLeases) error {
	if c.Owner == "" || c.Until.IsZero() {
		return errors.New("owner or time is missing")
	}
	for _, ref := range c.Calls {
		if err := checkRef(ref); err != nil {
			return err
		}
	}
	return nil
}

func checkCursor(c toolkeep.MoveCursor) error {
	switch {
	case c.Reader == "" || len(c.Reader) > toolkeep.MaxReader:
		return fmt.Errorf("the name of a reader has 1 to %d bytes", toolkeep.MaxReader)
	case c.From < 0 || c.To.Seq <= c.From || c.To.At.IsZero():
		return errors.New("a cursor moves forward, to an entry with a time")
	}
	return nil
}

func encodeEvent(c toolkeep.AppendEvent) (Encoded, error) {
	if c.Event.Type == itemPut || c.Event.Type == itemDropped {
		return Encoded{}, fmt.Errorf("%s is an event of the store's own", c.Event.Type)
	}
	b := append(make([]byte, 0, 64+len(c.Event.Data)), codecVersion)
	b = appendString(b, c.Event.Type)
	b = appendTime(b, c.Event.Time)
	b = appendBytes(b, c.Event.Data)
	b = appendBytes(b, c.Event.Sealed)
	return Encoded{Change: c, Entry: toolkeep.Entry{Event: &c.Event}, Kind: KindEvent, Tenant: c.Event.Tenant, Ref: c.Event.ID, Data: b}, nil
}

// shown returns the call for readers of the journal. Output and what is sealed
// are only in the row, where they can be erased.
func shown(v *toolkeep.Invocation) *toolkeep.Invocation {
	if v.Output == nil && v.SealedArgs == nil && v.SealedCaller == nil {
		return v
	}
	w := *v
	w.Output, w.SealedArgs, w.SealedCaller = nil, nil, nil
	return &w
}

// settled returns the copy whose row is written: an ended call has nothing
// sealed and no lease.
func settled(v *toolkeep.Invocation) *toolkeep.Invocation {
	w := *v
	if w.State.Ended() {
		w.SealedArgs, w.SealedCaller = nil, nil
		w.LeaseOwner, w.LeaseUntil = "", time.Time{}
	}
	return &w
}

func checkRef(r toolkeep.CallRef) error {
	if r.Tenant == "" || r.ID == "" {
		return errors.New("a call is named by tenant and id, one is empty")
	}
	return nil
}

func checkCall(v *toolkeep.Invocation) error {
	if v == nil {
		return errors.New("there is no invocation")
	}
	if err := checkRef(v.Ref()); err != nil {
		return err
	}
	if !knownState(v.State) {
		return fmt.Errorf("%q is not a state of a call", string(v.State))
	}
	if n := len(v.Output) + len(v.SealedArgs) + len(v.SealedCaller); n > MaxBytes {
		return fmt.Errorf("output and what is sealed take %d bytes, the limit is %d", n, MaxBytes)
	}
	return nil
}

func knownState(s toolkeep.CallState) bool {
	switch s {
	case toolkeep.CallAccepted, toolkeep.CallPendingApproval, toolkeep.CallQueued,
		toolkeep.CallRunning, toolkeep.CallInputRequired:
		return true
	}
	return s.Ended()
}

// Nanos is the format of times in call columns: nanoseconds since 1970, 0 for none, and
// the maximum for times beyond the year 2262.
func Nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Year() > 2261:
		return math.MaxInt64
	case t.Year() < 1678:
		return math.MinInt64
	}
	return t.UnixNano()
}

// FromNanos reads what Nanos wrote.
func FromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// Micros is the format of times in the feed: microseconds since 1970.
func Micros(t time.Time) int64 { return t.UnixMicro() }

// FromMicros reads what Micros wrote.
func FromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
