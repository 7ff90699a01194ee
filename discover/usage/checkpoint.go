package usage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"github.com/toolkeep/toolkeep"
)

// Kinds of the items that the package keeps beside KindWeights.
const (
	KindState = "usage_state" // checkpoints
	KindJob   = "usage_job"   // who does the daily job
)

const (
	headID     = "head"
	jobID      = "daily"
	chunkBytes = toolkeep.MaxDocumentBody - 1024
	format     = 1
	// firstAfter is how long a store without a checkpoint waits for one.
	firstAfter = 10 * time.Minute
	// claimLife is how long the node that put the claim has for the job.
	claimLife = 10 * time.Minute
)

// checkpoint names the items that hold the state at one place of the feed. It is put
// after them, over the one before it: whoever reads it finds them all.
type checkpoint struct {
	Format     int          `json:"format"`
	Seq        int64        `json:"seq"` // the newest change in it
	Generation string       `json:"generation"`
	At         time.Time    `json:"at"`
	Parts      []savedParts `json:"tenants"`
	// Before is the one that stays beside it, for when it cannot be read.
	Before *checkpoint `json:"before,omitzero"`
}

type savedParts struct {
	Tenant string `json:"tenant"`
	Chunks int    `json:"chunks"`
}

type claim struct {
	At   time.Time `json:"at"`
	Node string    `json:"node"`
}

func chunkID(generation string, i int) string { return fmt.Sprintf("%s/%d", generation, i) }

// generationOf names the parts of the checkpoint that would be this revision of the
// head; of several that want to be it one will.
func generationOf(revision, seq int64, node string) string {
	return fmt.Sprintf("r%d-%d-%s", revision, seq, short(node))
}

// Checkpoint writes the state as it is now and takes out all others but the one before,
// which is read where this one cannot be. Of several nodes that do so at once one wins,
// the others get ErrStale.
//
// A crash at any moment leaves a checkpoint that can be read: the new parts are put
// beside the old ones and read back, then the head is put, and only then old parts are
// dropped. What a crash leaves behind goes with the next checkpoint.
func (u *Usage) Checkpoint(ctx context.Context) error { return u.checkpoint(ctx, true) }

func (u *Usage) checkpoint(ctx context.Context, keepBefore bool) error {
	u.saving.Lock()
	defer u.saving.Unlock()
	u.mu.Lock()
	head := checkpoint{Format: format, Seq: u.seq.Load(), At: u.c.Clock()}
	expect := u.head.Revision
	var saved []savedTenant
	for t := range u.order.all() {
		saved = append(saved, t.save())
	}
	u.mu.Unlock()
	head.Generation = generationOf(expect+1, head.Seq, u.c.Node)
	sums, err := u.putParts(ctx, &head, saved)
	if err != nil {
		return err
	}
	items, _, err := u.c.Store.Documents(ctx, KindState)
	if err != nil {
		return err
	}
	there := bodiesOf(items)
	for key, sum := range sums {
		body, ok := there[key]
		switch {
		case !ok:
			return fmt.Errorf("another node writes a checkpoint too: %w", toolkeep.ErrStale)
		case sha256.Sum256(body) != sum:
			return errors.New("a part of the new checkpoint reads otherwise than it was written; the one of before is kept")
		}
	}
	if keepBefore {
		head.Before = newest(items, there)
	}
	body, err := json.Marshal(&head)
	if err != nil {
		return err
	}
	it := toolkeep.Document{Kind: KindState, ID: headID, Body: body, UpdatedAt: head.At, UpdatedBy: u.c.Node}
	if err := u.c.Store.Apply(ctx, toolkeep.PutDocument{Document: it, Expect: expect, OmitBody: true}); err != nil {
		return err
	}
	u.mu.Lock()
	if it.Revision = expect + 1; u.head.Revision < it.Revision {
		u.head = it
	}
	u.mu.Unlock()
	return u.sweep(ctx, &head, items)
}

// putParts writes the items of a checkpoint, names them in its head and gives their
// sums. The feed keeps events for months: it tells of them without their bodies.
func (u *Usage) putParts(ctx context.Context, head *checkpoint, saved []savedTenant) (map[partKey][sha256.Size]byte, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer enc.Close()
	sums := map[partKey][sha256.Size]byte{}
	for i := range saved {
		// The same state has the same bytes: a part that is written again stays what it was.
		raw, err := json.Marshal(&saved[i], json.Deterministic(true))
		if err != nil {
			return nil, err
		}
		raw = enc.EncodeAll(raw, nil)
		part := savedParts{Tenant: saved[i].Name}
		for chunk := range slices.Chunk(raw, chunkBytes) {
			it := toolkeep.Document{Kind: KindState, Tenant: part.Tenant, ID: chunkID(head.Generation, part.Chunks), Body: chunk, UpdatedAt: head.At, UpdatedBy: u.c.Node}
			if err := u.c.Store.Apply(ctx, toolkeep.PutDocument{Document: it, Expect: toolkeep.AnyRevision, OmitBody: true}); err != nil {
				return nil, err
			}
			sums[partKey{it.Tenant, it.ID}] = sha256.Sum256(chunk)
			part.Chunks++
		}
		head.Parts = append(head.Parts, part)
	}
	return sums, nil
}

// sweep takes out the parts of other checkpoints, but for those of the one before.
// items were read before the head was put, so none is of a checkpoint that follows it.
func (u *Usage) sweep(ctx context.Context, head *checkpoint, items []toolkeep.Document) error {
	var all error
	for _, it := range items {
		switch {
		case isHeadItem(&it), strings.HasPrefix(it.ID, head.Generation+"/"):
			continue
		case head.Before != nil && strings.HasPrefix(it.ID, head.Before.Generation+"/"):
			continue
		}
		err := u.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: KindState, Tenant: it.Tenant, ID: it.ID, Expect: it.Revision, By: u.c.Node})
		all = errors.Join(all, ifThere(err))
	}
	return all
}

func isHeadItem(it *toolkeep.Document) bool {
	return it.Kind == KindState && it.Tenant == "" && it.ID == headID
}

// partKey is the tenant and the id of a part.
type partKey [2]string

func bodiesOf(items []toolkeep.Document) map[partKey][]byte {
	m := make(map[partKey][]byte, len(items))
	for i := range items {
		m[partKey{items[i].Tenant, items[i].ID}] = items[i].Body
	}
	return m
}

// newest is the newest checkpoint whose parts are all there; nil if there is none.
func newest(items []toolkeep.Document, there map[partKey][]byte) *checkpoint {
	i := slices.IndexFunc(items, func(it toolkeep.Document) bool { return isHeadItem(&it) })
	var head checkpoint
	if i < 0 || json.Unmarshal(items[i].Body, &head) != nil {
		return nil
	}
	c := &head
	for c != nil && !c.whole(there) {
		c = c.Before
	}
	if c != nil {
		c.Before = nil
	}
	return c
}

func (c *checkpoint) whole(there map[partKey][]byte) bool {
	for _, part := range c.Parts {
		for i := range part.Chunks {
			if _, ok := there[partKey{part.Tenant, chunkID(c.Generation, i)}]; !ok {
				return false
			}
		}
	}
	return c.Format == format
}

// ifThere is nil for what is gone or was changed by another meanwhile.
func ifThere(err error) error {
	if errors.Is(err, toolkeep.ErrNotFound) || errors.Is(err, toolkeep.ErrStale) {
		return nil
	}
	return err
}

// load reads the newest checkpoint and the learned weights, and tells up to where in
// the feed they reach.
func (u *Usage) load(ctx context.Context) (int64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	items, _, err := u.c.Store.Documents(ctx, KindState)
	if err != nil {
		return 0, err
	}
	seq := int64(0)
	if i := slices.IndexFunc(items, func(it toolkeep.Document) bool { return isHeadItem(&it) }); i >= 0 {
		u.head = items[i]
		seq = u.restore(&items[i], bodiesOf(items))
	}
	claims, _, err := u.c.Store.Documents(ctx, KindJob)
	if err != nil {
		return 0, err
	}
	for _, it := range claims {
		if it.ID == jobID {
			u.claimed = it
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

// restore takes over the newest checkpoint that can be read, and gives the place of the
// feed that it is of; 0 where none can.
func (u *Usage) restore(item *toolkeep.Document, there map[partKey][]byte) int64 {
	var head checkpoint
	err := json.Unmarshal(item.Body, &head)
	for c := &head; c != nil && err == nil; c = c.Before {
		damage := u.restoreOne(c, there)
		if damage == nil {
			return c.Seq
		}
		u.c.Log.Warn("a checkpoint of how tools are used cannot be read", "written", c.At, "error", damage)
	}
	u.c.Log.Warn("no checkpoint of how tools are used can be read; what the feed still has is counted instead", "error", err)
	return 0
}

func (u *Usage) restoreOne(head *checkpoint, there map[partKey][]byte) error {
	if head.Format != format {
		return fmt.Errorf("it has the format %d, and this program reads %d", head.Format, format)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return err
	}
	defer dec.Close()
	var all []*tenant
	for _, part := range head.Parts {
		var raw []byte
		for i := range part.Chunks {
			chunk, ok := there[partKey{part.Tenant, chunkID(head.Generation, i)}]
			if !ok {
				return fmt.Errorf("part %d of %d of a tenant is missing", i+1, part.Chunks)
			}
			raw = append(raw, chunk...)
		}
		if raw, err = dec.DecodeAll(raw, nil); err != nil {
			return err
		}
		var s savedTenant
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		t := s.restore(u.keep)
		if u.c.NoHistory {
			t.forgetQuestions()
		}
		all = append(all, t)
	}
	for _, t := range all {
		u.tenants.put(t.name, t)
		t.at = u.order.touch(t, nil)
	}
	return nil
}

// item takes in an item that was put; u.mu is held.
func (u *Usage) item(it *toolkeep.Document, c *toolkeep.Committed) {
	switch it.Kind {
	case KindState:
		if isHeadItem(it) && it.Revision > u.head.Revision {
			u.head = *it
		}
	case KindJob:
		if it.Revision > u.claimed.Revision {
			u.claimed = *it
		}
		// The job begins on every node at the same place of the feed, so that tenants
		// where nothing happens grow old too.
		for t := range u.order.all() {
			t.roll(dayOf(c.At))
		}
	case KindWeights:
		if c.Seq > u.rankedAt {
			u.ranked(it)
		}
	}
}

func (u *Usage) dropped(d *toolkeep.DeleteDocument, seq int64) {
	if d.Kind == KindWeights && d.ID == weightsID && seq > u.rankedAt {
		u.rankings.drop(d.Tenant)
	}
}

// daily does the job when it is due, on whichever node claims it first.
func (u *Usage) daily(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-u.caught:
	}
	started := u.c.Clock()
	for {
		due := u.due(started)
		timer := time.NewTimer(max(time.Second, due.Sub(u.c.Clock())))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		if u.c.Clock().Before(u.due(started)) {
			continue
		}
		err := u.Job(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, toolkeep.ErrStale) {
			u.c.Log.Warn("the daily job on how tools are used did not end well and is done again", "error", err, "after", claimLife)
		}
		if err != nil {
			started = u.c.Clock()
		}
	}
}

// due is when the job is to be done next.
func (u *Usage) due(started time.Time) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	due := started.Add(firstAfter)
	if u.head.Revision > 0 {
		due = u.head.UpdatedAt.Add(u.c.Every)
	}
	if u.claimed.Revision > 0 {
		if again := u.claimed.UpdatedAt.Add(claimLife); again.After(due) {
			due = again
		}
	}
	return due
}

// Job claims the daily job and does it: a checkpoint, and where they are old the
// retraining of each tenant's weights. ErrStale means that another node has it.
func (u *Usage) Job(ctx context.Context) error {
	u.mu.Lock()
	revision := u.claimed.Revision
	u.mu.Unlock()
	now := u.c.Clock()
	body, err := json.Marshal(claim{At: now, Node: u.c.Node})
	if err != nil {
		return err
	}
	err = u.c.Store.Apply(ctx, toolkeep.PutDocument{Expect: revision, Document: toolkeep.Document{Kind: KindJob, ID: jobID, Body: body, UpdatedAt: now, UpdatedBy: u.c.Node}})
	if err != nil {
		return err
	}
	if err := u.catchUp(ctx); err != nil {
		return err
	}
	all := u.Checkpoint(ctx)
	if u.c.Learning == LearnOff {
		return all
	}
	for _, name := range u.toTrain(now) {
		_, err := u.Train(ctx, name)
		all = errors.Join(all, ifThere(err))
	}
	return all
}

// toTrain are the tenants whose weights were not learned for a week.
func (u *Usage) toTrain(now time.Time) (names []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for t := range u.order.all() {
		if r, ok := u.rankings.get(t.name); !ok || now.Sub(r.training.At) >= trainEvery {
			names = append(names, t.name)
		}
	}
	return names
}

// JobEvery is how often the job must run where the feed keeps calls for so long: once
// a day, and twice while a call is there, so that each is in a checkpoint before it
// leaves the feed.
func JobEvery(keepFeed time.Duration) time.Duration {
	if keepFeed <= 0 {
		return day
	}
	return min(day, keepFeed/2)
}
