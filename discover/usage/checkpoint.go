package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"github.com/toolkeep/toolkeep"
)

// KindState is the kind of the documents that hold the checkpoint.
const KindState = "usage_state"

const (
	headID = "head"
	// format is incremented when the state's structure changes. A checkpoint in another format is
	// not read, except oldFormat: the journal is folded instead.
	format = 3
	// oldFormat has one position instead of one by writer: that of the feed, which had calls too.
	oldFormat = 2
	// firstAfter is when a store without a checkpoint gets its first.
	firstAfter = 10 * time.Minute
)

// checkpoint is the header of a checkpoint. Its parts are the documents "0", "1" and so on: the
// tenants as compressed JSON, cut to document size.
type checkpoint struct {
	Format   int                      `json:"format"`
	Seq      int64                    `json:"seq,omitzero"`      // oldFormat: the newest change included
	Position toolkeep.JournalPosition `json:"position,omitzero"` // the newest entries included
	AsOf     time.Time                `json:"as_of,omitzero"`    // all that was written before is included
	Parts    int                      `json:"parts"`
}

// Checkpoint replaces the checkpoint in the store by the current state, in one Apply: there is
// always exactly one, and it is complete. If several nodes do so concurrently one wins, the others
// get ErrStale or ErrNotFound, and must take the winner's. The feed carries the documents without
// their bodies, since it keeps changes for months.
func (u *Usage) Checkpoint(ctx context.Context) (err error) {
	now := u.c.Clock()
	u.folding.Lock() // entries wait; readers of the state do not
	u.mu.Lock()
	for t := range u.state.tenants.all() { // those without entries age too
		t.roll(dayOf(now), u.state.keep)
	}
	state, expect := u.state, u.head.Revision
	head := checkpoint{Format: format, Position: maps.Clone(state.position), AsOf: state.asOf}
	state.unsaved = false
	u.mu.Unlock()
	raw, err := json.Marshal(slices.Collect(state.tenants.all()), json.Deterministic(true), json.OmitZeroStructFields(true))
	u.folding.Unlock()
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if err == nil && u.head.Revision <= expect {
			u.head.Revision, u.head.UpdatedAt = expect+1, now
		}
		state.unsaved = state.unsaved || err != nil
	}()
	if err != nil {
		return err
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer enc.Close()
	changes := make([]toolkeep.Change, 1)
	put := func(id string, body []byte, expect int64) toolkeep.Change {
		it := toolkeep.Document{Kind: KindState, ID: id, Body: body, UpdatedAt: now, UpdatedBy: u.c.Node}
		return toolkeep.PutDocument{Document: it, Expect: expect, OmitBody: true}
	}
	for part := range slices.Chunk(enc.EncodeAll(raw, nil), toolkeep.MaxDocumentBody) {
		changes = append(changes, put(strconv.Itoa(head.Parts), part, toolkeep.AnyRevision))
		head.Parts++
	}
	body, err := json.Marshal(&head)
	if err != nil {
		return err
	}
	changes[0] = put(headID, body, expect)
	documents, _, err := u.c.Store.Documents(ctx, KindState)
	if err != nil {
		return err
	}
	for _, it := range documents { // parts this checkpoint does not have
		if n, err := strconv.Atoi(it.ID); it.ID != headID && (err != nil || n >= head.Parts) {
			changes = append(changes, toolkeep.DeleteDocument{Kind: KindState, Tenant: it.Tenant, ID: it.ID, Expect: it.Revision, By: u.c.Node})
		}
	}
	return u.c.Store.Apply(ctx, changes...)
}

// lostRace reports that another node made the same change first.
func lostRace(err error) bool {
	return errors.Is(err, toolkeep.ErrNotFound) || errors.Is(err, toolkeep.ErrStale)
}

// take reads the store's checkpoint and goes on from it, if it has what this process lacks. What it
// lacks itself is folded again, so readers see no step back.
func (u *Usage) take(ctx context.Context) error {
	if err := u.lock(ctx); err != nil {
		return err
	}
	defer u.unlock()
	documents, _, err := u.c.Store.Documents(ctx, KindState)
	if err != nil {
		return err
	}
	var head toolkeep.Document
	bodies := map[string][]byte{}
	for _, it := range documents {
		if bodies[it.ID] = it.Body; it.ID == headID {
			head = it
		}
	}
	head.Body = nil
	if u.mu.RLock(); head.Revision <= u.head.Revision {
		u.mu.RUnlock()
		return nil
	}
	have := maps.Clone(u.state.position)
	u.mu.RUnlock()
	taken, err := u.restore(bodies, have)
	if err != nil {
		u.c.Log.Warn("the checkpoint of tool usage cannot be read; what the journal still has is counted instead", "written", head.UpdatedAt, "error", err)
	}
	u.folding.Lock()
	defer u.folding.Unlock()
	if taken != nil {
		u.mu.RLock()
		have = maps.Clone(u.state.position)
		u.mu.RUnlock()
		if err := taken.foldAgain(ctx, u.c.Store, have); err != nil {
			return err
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.head = head; taken == nil {
		return nil
	}
	for t := range taken.tenants.all() {
		t.showExamples()
		if old, ok := u.state.tenants.get(t.Name); ok && slices.Equal(old.examples, t.examples) {
			t.examples = old.examples // the same slice: searches read nothing again
		}
	}
	if u.state.asOf.After(taken.asOf) {
		taken.asOf = u.state.asOf
	}
	u.state = taken
	return nil
}

// restore reads a checkpoint, unless all of it is in what the position covers.
func (u *Usage) restore(bodies map[string][]byte, have toolkeep.JournalPosition) (*state, error) {
	var head checkpoint
	if err := json.Unmarshal(bodies[headID], &head); err != nil {
		return nil, err
	}
	switch head.Format {
	case format:
	case oldFormat:
		head.Position = toolkeep.JournalPosition{0: head.Seq}
	default:
		return nil, fmt.Errorf("it has format %d; this program reads formats %d and %d", head.Format, oldFormat, format)
	}
	if covers(have, head.Position) {
		return nil, nil
	}
	var parts [][]byte
	for i := range head.Parts {
		parts = append(parts, bodies[strconv.Itoa(i)])
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	raw, err := dec.DecodeAll(bytes.Join(parts, nil), nil)
	if err != nil {
		return nil, err
	}
	var all []*tenant
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	s := u.newState()
	s.position, s.asOf = head.Position, head.AsOf
	for _, t := range all {
		if t.restored(); u.c.NoHistory {
			t.forgetQuestions()
		}
		s.tenants.put(t)
	}
	return s, nil
}

// toTrain returns the tenants whose weights are older than a week.
func (u *Usage) toTrain(now time.Time) (names []string) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	for t := range u.state.tenants.all() {
		if r, ok := u.rankings[t.Name]; !ok || now.Sub(r.At) >= trainEvery {
			names = append(names, t.Name)
		}
	}
	return names
}

// JobEvery returns how often a checkpoint is needed if the journal keeps calls for keepFeed: once a
// day, but at least twice within that time, so that each call is in one before it leaves the journal.
func JobEvery(keepFeed time.Duration) time.Duration {
	if keepFeed <= 0 {
		return day
	}
	return min(day, keepFeed/2)
}
