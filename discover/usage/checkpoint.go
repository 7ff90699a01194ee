package usage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	// not read: the feed is folded instead.
	format = 2
	// firstAfter is when a store without a checkpoint gets its first.
	firstAfter = 10 * time.Minute
	retryAfter = 10 * time.Minute // after a failed job
	// jobSpread is the random delay by which nodes spread the start of the job; one of them runs
	// it.
	jobSpread = time.Minute
)

// checkpoint is the header of a checkpoint. Its parts are the documents "0", "1" and so on: the
// tenants as compressed JSON, cut to document size.
type checkpoint struct {
	Format int   `json:"format"`
	Seq    int64 `json:"seq"` // the newest change included
	Parts  int   `json:"parts"`
}

// Checkpoint replaces the checkpoint in the store by the current state, in one Apply: there is
// always exactly one, and it is complete. If several nodes do so concurrently one wins, the others
// get ErrStale or ErrNotFound. The feed carries the documents without their bodies, since it keeps
// changes for months.
func (u *Usage) Checkpoint(ctx context.Context) error {
	u.folding.Lock() // changes wait; readers of the state do not
	head := checkpoint{Format: format, Seq: u.seq.Load()}
	u.mu.RLock()
	expect := u.head.Revision
	u.mu.RUnlock()
	raw, err := json.Marshal(slices.Collect(u.tenants.all()), json.Deterministic(true), json.OmitZeroStructFields(true))
	u.folding.Unlock()
	if err != nil {
		return err
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer enc.Close()
	now := u.c.Clock()
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
	if err := u.c.Store.Apply(ctx, changes...); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.head.Revision <= expect {
		u.head.Revision, u.head.UpdatedAt = expect+1, now
	}
	return nil
}

// lostRace reports that another node made the same change first.
func lostRace(err error) bool {
	return errors.Is(err, toolkeep.ErrNotFound) || errors.Is(err, toolkeep.ErrStale)
}

// load reads the checkpoint and the learned weights, and returns the feed position up to which they
// reach.
func (u *Usage) load(ctx context.Context) (seq int64, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	documents, _, err := u.c.Store.Documents(ctx, KindState)
	if err != nil {
		return 0, err
	}
	bodies := map[string][]byte{}
	for _, it := range documents {
		bodies[it.ID] = it.Body
		if it.ID == headID {
			u.head = it
		}
	}
	if u.head.Revision > 0 {
		if seq, err = u.restore(bodies); err != nil {
			u.c.Log.Warn("the checkpoint of tool usage cannot be read; what the feed still has is counted instead", "written", u.head.UpdatedAt, "error", err)
		}
	}
	weights, at, err := u.c.Store.Documents(ctx, KindWeights)
	if err != nil {
		return 0, err
	}
	u.rankedAt = at
	for i := range weights {
		u.ranked(&weights[i])
	}
	return seq, nil
}

// restore applies a checkpoint, and returns its feed position.
func (u *Usage) restore(bodies map[string][]byte) (int64, error) {
	var head checkpoint
	if err := json.Unmarshal(bodies[headID], &head); err != nil {
		return 0, err
	}
	if head.Format != format {
		return 0, fmt.Errorf("it has format %d; this program reads format %d", head.Format, format)
	}
	var parts [][]byte
	for i := range head.Parts {
		parts = append(parts, bodies[strconv.Itoa(i)])
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return 0, err
	}
	defer dec.Close()
	raw, err := dec.DecodeAll(bytes.Join(parts, nil), nil)
	if err != nil {
		return 0, err
	}
	var all []*tenant
	if err := json.Unmarshal(raw, &all); err != nil {
		return 0, err
	}
	for _, t := range all {
		if t.restored(); u.c.NoHistory {
			t.forgetQuestions()
		}
		t.showExamples()
		u.tenants.put(t)
	}
	return head.Seq, nil
}

// daily runs the job when due, on the node that gets there first.
func (u *Usage) daily(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-u.caught:
	}
	spread, now := rand.N(jobSpread), u.c.Clock()
	next := now.Add(firstAfter)
	due := func() time.Time {
		u.mu.RLock()
		defer u.mu.RUnlock()
		if u.head.Revision > 0 && next.Before(u.head.UpdatedAt.Add(u.c.Every)) {
			next = u.head.UpdatedAt.Add(u.c.Every)
		}
		return next.Add(spread)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(time.Second, due().Sub(now))):
		}
		if now = u.c.Clock(); now.Before(due()) {
			continue // another node ran the job meanwhile
		}
		if err := u.job(ctx); err != nil && ctx.Err() == nil && !lostRace(err) {
			u.c.Log.Warn("the daily job on tool usage failed and is done again", "error", err, "after", retryAfter)
		}
		now = u.c.Clock()
		next = now.Add(retryAfter)
	}
}

// job writes a checkpoint and retrains tenants' outdated weights.
func (u *Usage) job(ctx context.Context) error {
	if err := u.Checkpoint(ctx); err != nil || u.c.Learning == LearnOff {
		return err
	}
	var all error
	for _, name := range u.toTrain(u.c.Clock()) {
		if _, err := u.Train(ctx, name); !lostRace(err) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// toTrain returns the tenants whose weights are older than a week.
func (u *Usage) toTrain(now time.Time) (names []string) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	for t := range u.tenants.all() {
		if r, ok := u.rankings[t.Name]; !ok || now.Sub(r.At) >= trainEvery {
			names = append(names, t.Name)
		}
	}
	return names
}

// JobEvery returns how often the job must run if the feed keeps calls for keepFeed: once a day, but
// at least twice within that time, so that each call is in a checkpoint before it leaves the feed.
func JobEvery(keepFeed time.Duration) time.Duration {
	if keepFeed <= 0 {
		return day
	}
	return min(day, keepFeed/2)
}
