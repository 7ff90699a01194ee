package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Work is the name of the work that one node does for its store.
const Work = "audit.checkpoints"

// Kinds of documents; see the package's documentation.
const (
	CheckpointKind = "audit_checkpoint"
	HeadKind       = "audit_head"
	positionKind   = "audit_position" // how far the leader has read each writer, for all tenants
	onlyID         = "newest"         // of the latter two

	author = "toolkeep"
)

// Every is how often the leader makes checkpoints, where there is something new.
const Every = time.Minute

const (
	linkRows   = 1000
	maxWriters = 10_000 // writers that a head remembers, the newest
	applyMax   = 50     // tenants that are written in one Apply
	dropAtOnce = 20     // old checkpoints that are removed with a new one
)

// Store is what the package needs of a store.
type Store interface {
	toolkeep.Applier
	toolkeep.Chains
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Config configures Audit. Store and Sealer are required.
type Config struct {
	Store  Store
	Sealer Sealer
	Clock  func() time.Time
	Log    *slog.Logger
	// Archive is nil where there is none. A checkpoint that it does not have stays ArchiveWait longer.
	Archive     Archive
	ArchiveWait time.Duration
}

// Audit makes checkpoints and verifies. It is safe for concurrent use.
type Audit struct {
	c    Config
	keys keyRing

	leads atomic.Bool // this process makes checkpoints

	mu   sync.Mutex       // held by Checkpoint
	made map[string]int64 // number of the newest checkpoint that this process made, by tenant
}

// New makes an Audit.
func New(c Config) *Audit {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Audit{c: c, keys: keyRing{store: c.Store, sealer: c.Sealer, now: c.Clock}, made: make(map[string]int64)}
}

// stopTime bounds the last checkpoint.
const stopTime = 10 * time.Second

// Stop makes a last checkpoint, if this process made one before: another node may lead meanwhile.
func (a *Audit) Stop() {
	if !a.leads.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if err := a.Checkpoint(ctx); err != nil && !errors.Is(err, toolkeep.ErrStale) {
		a.c.Log.Warn("no audit checkpoint was made at the end; the next one covers what it lacks", "error", err)
	}
}

// place is where a chain is.
type place struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"` // hex
}

// stretch is the part of a writer's chain between two checkpoints.
type stretch struct {
	Writer int64 `json:"writer"`
	After  place `json:"after"` // its start is after this entry; number 0 and the chain's start if there is none
	To     place `json:"to"`    // its last entry
	Count  int64 `json:"count"` // of its entries
}

// statement is what a checkpoint signs.
type statement struct {
	Tenant   string    `json:"tenant"`
	Number   int64     `json:"number"` // from 1
	At       time.Time `json:"at"`
	Previous string    `json:"previous"` // SHA-256 of the statement before, hex; "" for the first
	Chains   []stretch `json:"chains"`
}

// head is what a tenant's newest checkpoint leaves.
type head struct {
	First   int64           `json:"first"`  // number of the oldest checkpoint that is there
	Number  int64           `json:"number"` // of the newest
	At      time.Time       `json:"at"`
	Digest  string          `json:"digest"` // SHA-256 of the newest statement, hex
	Writers map[int64]place `json:"writers"`
}

type position struct {
	Writers map[int64]int64 `json:"writers"`
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// prune forgets the oldest writers beyond maxWriters.
func prune[V any](m map[int64]V) {
	if len(m) <= maxWriters {
		return
	}
	ids := slices.Sorted(maps.Keys(m))
	for _, id := range ids[:len(ids)-maxWriters] {
		delete(m, id)
	}
}

// tenantNews is what a tenant's checkpoint will say.
type tenantNews struct {
	head     head
	revision int64 // of the head's document
	chains   map[int64]*stretch
	skip     bool // its checkpoints cannot be continued
}

// Checkpoint signs what was written since the last checkpoints, for each tenant with new entries. It returns after
// the checkpoints are committed. Another node that does the same at this moment makes it fail.
func (a *Audit) Checkpoint(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leads.Store(true)
	at, revision, err := a.position(ctx)
	if err != nil {
		return err
	}
	writers, err := a.c.Store.ChainWriters(ctx, at.Writers)
	if err != nil || len(writers) == 0 {
		return err
	}
	news := make(map[string]*tenantNews)
	var hasher toolkeep.Hasher
	for _, w := range writers {
		for from := at.Writers[w.ID]; from < w.Newest; {
			list, read, err := a.c.Store.Links(ctx, toolkeep.LinkQuery{Writer: w.ID, After: from, UpTo: w.Newest, All: true, Limit: linkRows})
			if err != nil {
				return err
			}
			for i := range list {
				if err := a.note(ctx, news, &hasher, &list[i]); err != nil {
					return err
				}
			}
			from = read
		}
		at.Writers[w.ID] = w.Newest
	}
	return a.write(ctx, news, at, revision)
}

// note counts an entry. One without a hash, of an older program, is in no chain.
func (a *Audit) note(ctx context.Context, news map[string]*tenantNews, h *toolkeep.Hasher, l *toolkeep.Link) error {
	if len(l.Hash) == 0 {
		return nil
	}
	n := news[l.Tenant]
	if n == nil {
		var err error
		if n, err = a.readHead(ctx, l.Tenant); err != nil {
			return err
		}
		news[l.Tenant] = n
	}
	if n.skip {
		return nil
	}
	s := n.chains[l.Writer]
	if s == nil {
		after, ok := n.head.Writers[l.Writer]
		if !ok {
			start := h.ChainStart(l.Writer, l.Tenant)
			after = place{Hash: hex.EncodeToString(start[:])}
		}
		s = &stretch{Writer: l.Writer, After: after, To: after}
		n.chains[l.Writer] = s
	}
	if l.Seq > s.To.Seq {
		s.To = place{l.Seq, hex.EncodeToString(l.Hash)}
		s.Count++
	}
	return nil
}

// position returns how far the leader has read. One that was not signed is not believed: all is read again.
func (a *Audit) position(ctx context.Context) (p position, revision int64, err error) {
	d, err := a.c.Store.Document(ctx, positionKind, "", onlyID)
	if err == nil {
		_, err = a.keys.open(ctx, d, &p)
		if errors.Is(err, errUnsigned) {
			a.c.Log.Error("the audit's position was changed by other means; all entries are read again")
			p, err = position{}, nil
		}
	} else if errors.Is(err, toolkeep.ErrNotFound) {
		err = nil
	}
	if p.Writers == nil {
		p.Writers = make(map[int64]int64)
	}
	return p, d.Revision, err
}

func (a *Audit) readHead(ctx context.Context, tenant string) (*tenantNews, error) {
	n := &tenantNews{chains: make(map[int64]*stretch)}
	d, err := a.c.Store.Document(ctx, HeadKind, tenant, onlyID)
	switch {
	case errors.Is(err, toolkeep.ErrNotFound):
	case err != nil:
		return nil, err
	default:
		n.revision = d.Revision
		if _, err = a.keys.open(ctx, d, &n.head); errors.Is(err, errUnsigned) {
			a.c.Log.Error("no audit checkpoint is made for a tenant, since its list of checkpoints was changed by other means or the key that signed it is gone", "tenant", tenant)
			return &tenantNews{skip: true}, nil
		}
		if err != nil {
			return nil, err
		}
	}
	if made := a.made[tenant]; n.head.Number < made {
		a.c.Log.Error("audit checkpoints are gone that this process made: the database was changed by other means, or put back",
			"tenant", tenant, "made", made, "there", n.head.Number)
	}
	if n.head.Writers == nil {
		n.head.Writers = make(map[int64]place)
	}
	return n, nil
}

// write signs and commits. The position comes last: what is read twice is counted once.
func (a *Audit) write(ctx context.Context, news map[string]*tenantNews, at position, revision int64) error {
	key, err := a.keys.signer(ctx)
	if err != nil {
		return err
	}
	now := a.c.Clock().UTC()
	var changes []toolkeep.Change
	put := func(kind, tenant, id string, body []byte, expect int64) {
		changes = append(changes, toolkeep.PutDocument{OmitBody: true, Expect: expect,
			Document: toolkeep.Document{Kind: kind, Tenant: tenant, ID: id, Body: body, UpdatedAt: now, UpdatedBy: author}})
	}
	tenants, made := 0, map[string]int64{}
	flush := func() error {
		if err := a.c.Store.Apply(ctx, changes...); err != nil {
			return err
		}
		maps.Copy(a.made, made)
		changes, tenants = nil, 0
		return nil
	}
	for _, tenant := range slices.Sorted(maps.Keys(news)) {
		n := news[tenant]
		s := statement{Tenant: tenant, Number: n.head.Number + 1, At: now, Previous: n.head.Digest}
		for _, id := range slices.Sorted(maps.Keys(n.chains)) {
			if c := n.chains[id]; c.Count > 0 {
				s.Chains = append(s.Chains, *c)
				n.head.Writers[id] = c.To
			}
		}
		if len(s.Chains) == 0 {
			continue
		}
		body, raw, err := sign(key, CheckpointKind, tenant, s)
		if err != nil {
			return err
		}
		put(CheckpointKind, tenant, strconv.FormatInt(s.Number, 10), body, toolkeep.NoRevision)
		n.head.First = max(n.head.First, 1)
		drop, err := a.outlived(ctx, tenant, &n.head)
		if err != nil {
			return err
		}
		changes = append(changes, drop...)
		n.head.Number, n.head.At, n.head.Digest = s.Number, now, digest(raw)
		prune(n.head.Writers)
		if body, _, err = sign(key, HeadKind, tenant, n.head); err != nil {
			return err
		}
		put(HeadKind, tenant, onlyID, body, n.revision)
		made[tenant] = s.Number
		if tenants++; tenants == applyMax {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	prune(at.Writers)
	body, _, err := sign(key, positionKind, "", at)
	if err != nil {
		return err
	}
	put(positionKind, "", onlyID, body, revision)
	return flush()
}

// outlived removes the oldest checkpoints if what they speak of is past its retention.
func (a *Audit) outlived(ctx context.Context, tenant string, h *head) (drop []toolkeep.Change, err error) {
	for range dropAtOnce {
		if h.First >= h.Number {
			break
		}
		id := strconv.FormatInt(h.First, 10)
		d, err := a.c.Store.Document(ctx, CheckpointKind, tenant, id)
		if errors.Is(err, toolkeep.ErrNotFound) {
			break // verify tells of it
		}
		if err != nil {
			return nil, err
		}
		if !d.UpdatedAt.Before(a.c.Store.KeepsFrom()) {
			break
		}
		if stays, err := a.keeps(ctx, d, h.First); stays || err != nil {
			return drop, err
		}
		drop = append(drop, toolkeep.DeleteDocument{Kind: CheckpointKind, Tenant: tenant, ID: id, Expect: d.Revision, By: author})
		h.First++
	}
	return drop, nil
}

// Keys returns the public parts of the keys that sign, the oldest first; it signs.
func (a *Audit) Keys(ctx context.Context) ([]SigningKey, error) {
	list, err := a.keys.list(ctx)
	keys := make([]SigningKey, len(list))
	for i, k := range list {
		keys[i] = k.SigningKey
	}
	return keys, err
}
