package personal

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/store/record"
)

// Store is the part of a store through which records and events pass.
type Store interface {
	toolkeep.BoundedApplier
	toolkeep.Applier
	toolkeep.Journal
	Invocations() toolkeep.Invocations
	Entry(l toolkeep.Link) (*toolkeep.Entry, error)
}

// Sealed is a Store whose records are sealed where it is written and opened where it is read.
type Sealed struct {
	store Store
	keys  *Keys
	seals bool
}

// NewSealed returns a store's records, sealed with keys. With seals false nothing is sealed any more, and what
// is sealed is opened.
func NewSealed(store Store, keys *Keys, seals bool) *Sealed { return &Sealed{store, keys, seals} }

// PersonKeys returns the keys of the store's persons.
func (s *Sealed) PersonKeys() *Keys { return s.keys }

// Digest is Keys.Digest.
func (s *Sealed) Digest(ctx context.Context, tenant, person string) (string, error) {
	return s.keys.Digest(ctx, tenant, person)
}

// Has is Keys.Has.
func (s *Sealed) Has(ctx context.Context, tenant, person string) (bool, error) {
	return s.keys.Has(ctx, tenant, person)
}

// Destroy is Keys.Destroy; the further changes are sealed.
func (s *Sealed) Destroy(ctx context.Context, tenant, person, by string, with ...toolkeep.Change) (found bool, err error) {
	if with, err = s.sealed(ctx, with); err != nil {
		return false, err
	}
	return s.keys.Destroy(ctx, tenant, person, by, with...)
}

// Apply seals and commits; see toolkeep.Applier.
func (s *Sealed) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	changes, err := s.sealed(ctx, changes)
	if err != nil {
		return err
	}
	return s.store.Apply(ctx, changes...)
}

// ApplyWithin seals and commits; see toolkeep.BoundedApplier.
func (s *Sealed) ApplyWithin(ctx context.Context, changes ...toolkeep.Change) error {
	changes, err := s.sealed(ctx, changes)
	if err != nil {
		return err
	}
	return s.store.ApplyWithin(ctx, changes...)
}

func (s *Sealed) sealed(ctx context.Context, changes []toolkeep.Change) ([]toolkeep.Change, error) {
	if !s.seals {
		return changes, nil
	}
	var out []toolkeep.Change
	for i, c := range changes {
		c, changed, err := s.sealChange(ctx, c)
		if err != nil {
			return nil, err
		}
		if changed && out == nil {
			out = append(make([]toolkeep.Change, 0, len(changes)), changes[:i]...)
		}
		if out != nil {
			out = append(out, c)
		}
	}
	if out == nil {
		out = changes
	}
	return out, nil
}

func (s *Sealed) sealChange(ctx context.Context, c toolkeep.Change) (_ toolkeep.Change, changed bool, err error) {
	switch c := c.(type) {
	case toolkeep.RecordCall:
		c.Invocation, changed, err = s.sealCall(ctx, c.Invocation)
		return c, changed, err
	case toolkeep.MoveCall:
		c.Invocation, changed, err = s.sealCall(ctx, c.Invocation)
		return c, changed, err
	case toolkeep.AppendEvent:
		c.Event, changed, err = s.sealEvent(ctx, c.Event)
		return c, changed, err
	}
	return c, false, nil
}

// What sealed values are about, with the id of their entry.
const (
	aboutCall   = "call\x00"
	aboutOutput = "output\x00"
	aboutEvent  = "event\x00"
)

func (s *Sealed) sealCall(ctx context.Context, v *toolkeep.Invocation) (*toolkeep.Invocation, bool, error) {
	if v == nil || !v.State.Ended() || v.Withheld != "" || len(v.Sealed) > 0 || v.Person() == "" { // sealed: see Unfetched
		return v, false, nil
	}
	w, of := *v, who{v.Tenant, v.Person()}
	block, err := record.AppendPersonal(make([]byte, 0, 256+len(v.Message)+len(v.Details)), v)
	if err != nil {
		return nil, false, err
	}
	if w.Sealed, err = s.keys.seal(ctx, of, block, aboutCall+v.ID); err != nil {
		return nil, false, err
	}
	record.ClearPersonal(&w)
	if len(w.Output) > 0 {
		if w.Output, err = s.keys.seal(ctx, of, w.Output, aboutOutput+v.ID); err != nil {
			return nil, false, err
		}
	}
	return &w, true, nil
}

// withheld is why a value cannot be opened, "" with the error of a store that cannot be read.
func withheld(err error) (toolkeep.Withheld, error) {
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, errErased):
		return toolkeep.Erased, nil
	case errors.Is(err, audit.ErrPersonUnreadable):
		return toolkeep.Unreadable, nil
	}
	return "", err
}

// openCall returns the call with what was sealed. v itself is not changed.
func (s *Sealed) openCall(ctx context.Context, v *toolkeep.Invocation) (*toolkeep.Invocation, error) {
	if v == nil || len(v.Sealed) == 0 {
		return v, nil
	}
	w := *v
	w.Sealed = nil
	block, err := s.keys.open(ctx, v.Tenant, v.Sealed, aboutCall+v.ID)
	if err == nil && record.DecodePersonal(&w, block) != nil {
		err = errDamaged
	}
	if v.Message != "" { // of the state that came after: see Unfetched
		w.Message = v.Message
	}
	if v.State == toolkeep.CallExpired {
		w.Attachments = nil
	}
	if err == nil && len(v.Output) > 0 {
		w.Output, err = s.keys.open(ctx, v.Tenant, v.Output, aboutOutput+v.ID)
	}
	why, err := withheld(err)
	if err != nil {
		return nil, err
	}
	if why != "" { // of what was opened nothing is left
		w = *v
		w.Sealed, w.Output, w.Withheld = nil, nil, why
	}
	return &w, nil
}

// shown are the members of an event's data that stay in clear: by them entries are found and counted.
var shown = map[string]bool{
	"agent_did": true, "agent_id": true, "subject": true, "tool_id": true, "error_code": true, "status": true, "decision": true,
	"invocation_id": true, "secret_hash": true, "state": true, "person_digest": true, "tenant_id": true,
}

func (s *Sealed) sealEvent(ctx context.Context, e toolkeep.Event) (toolkeep.Event, bool, error) {
	if e.Person == "" || len(e.Data) == 0 {
		return e, false, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(e.Data, &all); err != nil {
		return e, false, err
	}
	for name := range all {
		if !shown[name] {
			delete(all, name)
		}
	}
	rest, err := json.Marshal(all)
	if err != nil {
		return e, false, err
	}
	if e.Sealed, err = s.keys.seal(ctx, who{e.Tenant, e.Person}, e.Data, aboutEvent+e.ID); err != nil {
		return e, false, err
	}
	e.Data = rest
	return e, true, nil
}

func (s *Sealed) openEvent(ctx context.Context, e *toolkeep.Event) (*toolkeep.Event, error) {
	if len(e.Sealed) == 0 {
		return e, nil
	}
	w := *e
	w.Sealed = nil
	data, err := s.keys.open(ctx, e.Tenant, e.Sealed, aboutEvent+e.ID)
	why, err := withheld(err)
	if err != nil {
		return nil, err
	}
	if why == "" {
		w.Data = data
		return &w, nil
	}
	var rest map[string]json.RawMessage
	if json.Unmarshal(e.Data, &rest) != nil || rest == nil {
		rest = make(map[string]json.RawMessage)
	}
	rest[string(why)] = json.RawMessage("true")
	w.Data, err = json.Marshal(rest)
	return &w, err
}

func (s *Sealed) openEntry(ctx context.Context, e *toolkeep.Entry) (err error) {
	if e.Call != nil {
		e.Call, err = s.openCall(ctx, e.Call)
	}
	if err == nil && e.Event != nil {
		e.Event, err = s.openEvent(ctx, e.Event)
	}
	return err
}

// entryTime bounds the reading of a key for Entry.
const entryTime = 5 * time.Second

// Entry reads the entry of a link; see toolkeep.Chains.
func (s *Sealed) Entry(l toolkeep.Link) (*toolkeep.Entry, error) {
	e, err := s.store.Entry(l)
	if err != nil || e == nil {
		return e, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), entryTime)
	defer cancel()
	if err := s.openEntry(ctx, e); err != nil {
		return nil, err
	}
	return e, nil
}

// JournalWriter returns the writer that this process is.
func (s *Sealed) JournalWriter() int64 { return s.store.JournalWriter() }

// WatchJournal yields this process's entries; see toolkeep.Journal.
func (s *Sealed) WatchJournal(ctx context.Context, seq int64) iter.Seq2[toolkeep.Entry, error] {
	return func(yield func(toolkeep.Entry, error) bool) {
		for e, err := range s.store.WatchJournal(ctx, seq) {
			if err == nil {
				err = s.openEntry(ctx, &e)
			}
			if err != nil {
				if ctx.Err() == nil {
					yield(toolkeep.Entry{}, err)
				}
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// ReadJournal returns entries of all writers; see toolkeep.Journal.
func (s *Sealed) ReadJournal(ctx context.Context, after toolkeep.JournalPosition, limit int) ([]toolkeep.Entry, toolkeep.JournalPosition, error) {
	list, next, err := s.store.ReadJournal(ctx, after, limit)
	for i := range list {
		if err == nil {
			err = s.openEntry(ctx, &list[i])
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return list, next, nil
}

// Invocations returns the reader of call records.
func (s *Sealed) Invocations() toolkeep.Invocations { return invocations{s.store.Invocations(), s} }

type invocations struct {
	toolkeep.Invocations
	s *Sealed
}

func (r invocations) one(ctx context.Context, v *toolkeep.Invocation, err error) (*toolkeep.Invocation, error) {
	if err != nil {
		return nil, err
	}
	return r.s.openCall(ctx, v)
}

func (r invocations) all(ctx context.Context, list []*toolkeep.Invocation, err error) ([]*toolkeep.Invocation, error) {
	for i := range list {
		if err == nil {
			list[i], err = r.s.openCall(ctx, list[i])
		}
	}
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (r invocations) Get(ctx context.Context, ref toolkeep.CallRef) (*toolkeep.Invocation, error) {
	v, err := r.Invocations.Get(ctx, ref)
	return r.one(ctx, v, err)
}

func (r invocations) ByKey(ctx context.Context, tenant, subject, key string) (*toolkeep.Invocation, error) {
	v, err := r.Invocations.ByKey(ctx, tenant, subject, key)
	return r.one(ctx, v, err)
}

func (r invocations) List(ctx context.Context, f toolkeep.InvocationFilter) ([]*toolkeep.Invocation, int, error) {
	list, total, err := r.Invocations.List(ctx, f)
	list, err = r.all(ctx, list, err)
	return list, total, err
}

// Unfetched returns calls as they are stored: a MoveCall carries what is sealed through. Opened, it would be sealed with
// another key after an erasure in between.
func (r invocations) Unfetched(ctx context.Context, now time.Time, limit int) ([]*toolkeep.Invocation, error) {
	return r.Invocations.Unfetched(ctx, now, limit)
}
