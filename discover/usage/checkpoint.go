package usage

import (
	"context"
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
	chunkBytes = toolkeep.MaxItemBody - 1024
	format     = 1
	// firstAfter is how long a store without a checkpoint waits for one.
	firstAfter = 10 * time.Minute
	// claimLife is how long the node that put the claim has for the job.
	claimLife = 10 * time.Minute
)

// checkpoint names the items that hold the state at one place of the feed. It is put
// after them: whoever reads it finds them all.
type checkpoint struct {
	Format     int          `json:"format"`
	Seq        int64        `json:"seq"` // the newest change in it
	Generation string       `json:"generation"`
	At         time.Time    `json:"at"`
	Parts      []savedParts `json:"tenants"`
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

// Checkpoint writes the state as it is now and takes out the one before. Of several
// nodes that do so at once one wins; the others' is taken out by the next.
func (u *Usage) Checkpoint(ctx context.Context) error {
	u.mu.Lock()
	head := checkpoint{Format: format, Seq: u.seq.Load(), At: u.c.Clock()}
	expect := u.head.Revision
	var saved []savedTenant
	for t := range u.order.all() {
		saved = append(saved, t.save())
	}
	u.mu.Unlock()
	head.Generation = fmt.Sprintf("%d-%s", head.Seq, short(u.c.Node))
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	defer enc.Close()
	for i := range saved {
		raw, err := json.Marshal(&saved[i])
		if err != nil {
			return err
		}
		raw = enc.EncodeAll(raw, nil)
		part := savedParts{Tenant: saved[i].Name}
		for chunk := range slices.Chunk(raw, chunkBytes) {
			err := u.c.Store.Apply(ctx, toolkeep.PutItem{Expect: toolkeep.AnyRevision, Item: toolkeep.Item{Kind: KindState, Tenant: part.Tenant,
				ID: chunkID(head.Generation, part.Chunks), Body: chunk, UpdatedAt: head.At, UpdatedBy: u.c.Node}})
			if err != nil {
				return err
			}
			part.Chunks++
		}
		head.Parts = append(head.Parts, part)
	}
	body, err := json.Marshal(&head)
	if err != nil {
		return err
	}
	it := toolkeep.Item{Kind: KindState, ID: headID, Body: body, UpdatedAt: head.At, UpdatedBy: u.c.Node}
	if err := u.c.Store.Apply(ctx, toolkeep.PutItem{Expect: expect, Item: it}); err != nil {
		return err
	}
	u.mu.Lock()
	if it.Revision = expect + 1; u.head.Revision < it.Revision {
		u.head = it
	}
	u.mu.Unlock()
	return u.sweep(ctx, head.Generation)
}

// sweep takes out the parts of other checkpoints.
func (u *Usage) sweep(ctx context.Context, generation string) error {
	items, _, err := u.c.Store.Items(ctx, KindState)
	if err != nil {
		return err
	}
	var all error
	for _, it := range items {
		if it.ID == headID || strings.HasPrefix(it.ID, generation+"/") {
			continue
		}
		err := u.c.Store.Apply(ctx, toolkeep.DropItem{Kind: KindState, Tenant: it.Tenant, ID: it.ID, Expect: it.Revision, By: u.c.Node})
		all = errors.Join(all, ifThere(err))
	}
	return all
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
	items, _, err := u.c.Store.Items(ctx, KindState)
	if err != nil {
		return 0, err
	}
	seq := int64(0)
	if i := slices.IndexFunc(items, func(it toolkeep.Item) bool { return it.ID == headID && it.Tenant == "" }); i >= 0 {
		u.head = items[i]
		if seq, err = u.restore(items[i], items); err != nil {
			u.c.Log.Warn("the checkpoint of how tools are used cannot be read; what the feed still has is counted instead", "error", err)
			seq = 0
		}
	}
	claims, _, err := u.c.Store.Items(ctx, KindJob)
	if err != nil {
		return 0, err
	}
	for _, it := range claims {
		if it.ID == jobID {
			u.claimed = it
		}
	}
	weights, at, err := u.c.Store.Items(ctx, KindWeights)
	if err != nil {
		return 0, err
	}
	u.rankedAt = at
	for i := range weights {
		u.ranked(&weights[i])
	}
	return seq, nil
}

func (u *Usage) restore(item toolkeep.Item, items []toolkeep.Item) (int64, error) {
	var head checkpoint
	if err := json.Unmarshal(item.Body, &head); err != nil {
		return 0, err
	}
	if head.Format != format {
		return 0, fmt.Errorf("it has the format %d, and this program reads %d", head.Format, format)
	}
	bodies := map[[2]string][]byte{}
	for _, it := range items {
		bodies[[2]string{it.Tenant, it.ID}] = it.Body
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
	if err != nil {
		return 0, err
	}
	defer dec.Close()
	var all []*tenant
	for _, part := range head.Parts {
		var raw []byte
		for i := range part.Chunks {
			chunk, ok := bodies[[2]string{part.Tenant, chunkID(head.Generation, i)}]
			if !ok {
				return 0, fmt.Errorf("part %d of %d of a tenant is missing", i+1, part.Chunks)
			}
			raw = append(raw, chunk...)
		}
		if raw, err = dec.DecodeAll(raw, nil); err != nil {
			return 0, err
		}
		var s savedTenant
		if err := json.Unmarshal(raw, &s); err != nil {
			return 0, err
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
	return head.Seq, nil
}

// item takes in an item that was put; u.mu is held.
func (u *Usage) item(it *toolkeep.Item, c *toolkeep.Committed) {
	switch it.Kind {
	case KindState:
		if it.ID == headID && it.Tenant == "" && it.Revision > u.head.Revision {
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

func (u *Usage) dropped(d *toolkeep.DropItem, seq int64) {
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
	var head checkpoint
	if u.head.Revision > 0 && json.Unmarshal(u.head.Body, &head) == nil {
		due = head.At.Add(u.c.Every)
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
	err = u.c.Store.Apply(ctx, toolkeep.PutItem{Expect: revision, Item: toolkeep.Item{Kind: KindJob, ID: jobID, Body: body, UpdatedAt: now, UpdatedBy: u.c.Node}})
	if err != nil {
		return err
	}
	seq, err := u.c.Store.Head(ctx)
	if err != nil {
		return err
	}
	if err := u.Await(ctx, seq); err != nil {
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
