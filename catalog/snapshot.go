package catalog

import (
	"hash/maphash"
	"iter"
	"maps"
	"runtime"
	"slices"
	"sync"

	"github.com/toolkeep/toolkeep"
)

const shardCount = 256

type shard map[toolKey]*entry

// Snapshot is the catalogue at one position of the feed. It is immutable and safe for concurrent readers.
type Snapshot struct {
	seq    int64
	after  int64 // the seq of the previous snapshot
	hash   maphash.Seed
	shards [shardCount]shard
	order  []*toolKey             // sorted by id, then tenant
	count  int                    // versions
	edited []*entry               // tools changed since
	abouts map[aboutKey]aboutBody // never written again
	// choices of source documents by their titles, never written again
	choices map[aboutKey]map[string]Choice

	read *reader
}

func emptySnapshot(r *reader) *Snapshot { return &Snapshot{hash: maphash.MakeSeed(), read: r} }

// Seq returns the number of the last catalogue change in the snapshot.
func (s *Snapshot) Seq() int64 { return s.seq }

// Tools returns the number of tools.
func (s *Snapshot) Tools() int { return len(s.order) }

// Count returns the number of versions in every state.
func (s *Snapshot) Count() int { return s.count }

// All yields every version of every tenant in every state, with the outline of its tool, ordered by tool id, tenant and
// SemVer. The caller decides who may see what.
func (s *Snapshot) All() iter.Seq[toolkeep.Version] {
	return func(yield func(toolkeep.Version) bool) {
		for _, k := range s.order {
			for _, v := range s.entry(*k).versions {
				if !yield(v.Version) {
					return
				}
			}
		}
	}
}

// Changed yields all versions of each tool changed since the snapshot with the number after, as All does, unordered; ok
// is false if this snapshot was not built from that one, and the caller must use All.
func (s *Snapshot) Changed(after int64) (versions iter.Seq[toolkeep.Version], ok bool) {
	return func(yield func(toolkeep.Version) bool) {
		for _, e := range s.edited {
			for _, v := range e.versions {
				if !yield(v.Version) {
					return
				}
			}
		}
	}, after > 0 && s.after == after
}

// Life returns the lifecycle of a version obtained earlier, for example from a search; ok is false if the snapshot
// lacks it.
func (s *Snapshot) Life(t *toolkeep.Tool) (life toolkeep.Lifecycle, ok bool) {
	v := s.entry(toolKey{id: t.ID, tenant: t.Tenant}).find(t.Version)
	if v == nil {
		return life, false
	}
	return v.Life, true
}

func (s *Snapshot) shardOf(id string) int {
	return int(maphash.String(s.hash, id) % shardCount)
}

func (s *Snapshot) entry(k toolKey) *entry { return s.shards[s.shardOf(k.id)][k] }

// find returns the tool that an id or an exported name selects for a tenant: the shared one, or its own. visible decides between tools of
// the same exported name; nil admits all.
func (s *Snapshot) find(tenant, id string, visible func(*toolkeep.Tool) bool) *entry {
	if e := s.owned(tenant, id); e != nil {
		return e
	}
	return s.exported(tenant, id, visible)
}

// owned is find of an id.
func (s *Snapshot) owned(tenant, id string) *entry {
	m := s.shards[s.shardOf(id)]
	if e := m[toolKey{id: id}]; e != nil {
		return e
	}
	if tenant == "" {
		return nil
	}
	return m[toolKey{id: id, tenant: tenant}]
}

// taken returns the other owner of an id that tenant would collide with.
func (s *Snapshot) taken(tenant, id string) (owner string, yes bool) {
	if tenant != "" {
		return "", s.entry(toolKey{id: id}) != nil
	}
	i, _ := slices.BinarySearchFunc(s.order, &toolKey{id: id}, compareKeys)
	for ; i < len(s.order) && s.order[i].id == id; i++ {
		if s.order[i].tenant != "" {
			return s.order[i].tenant, true
		}
	}
	return "", false
}

// load fills an empty snapshot with all versions of a store. It skips and reports unreadable ones.
func (s *Snapshot) load(all []toolkeep.Version, report func(id, version string, err error)) {
	made, errs := make([]version, len(all)), make([]error, len(all))
	var wg sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for first := range n {
		wg.Go(func() {
			for i := first * len(all) / n; i < (first+1)*len(all)/n; i++ {
				made[i], errs[i] = s.read.loaded(all[i])
			}
		})
	}
	wg.Wait()
	list := make([]*version, 0, len(all))
	for i := range made {
		if errs[i] != nil {
			report(all[i].Tool.ID, all[i].Tool.Version, errs[i])
			continue
		}
		list = append(list, &made[i])
	}
	keyOf := func(v *version) toolKey { return toolKey{id: v.Tool.ID, tenant: v.Tool.Tenant} }
	slices.SortStableFunc(list, func(a, b *version) int {
		x, y := keyOf(a), keyOf(b)
		return compareKeys(&x, &y)
	})
	for i := range s.shards {
		s.shards[i] = make(shard, len(list)/shardCount)
	}
	s.order, s.count = make([]*toolKey, 0, len(list)), len(list)
	for len(list) > 0 {
		k, n := keyOf(list[0]), 1
		for n < len(list) && keyOf(list[n]) == k {
			n++
		}
		e := newEntry(&k, list[:n:n])
		s.shards[s.shardOf(k.id)][k] = e
		s.order, list = append(s.order, &k), list[n:]
	}
}

// next builds the snapshot after changes. It skips and reports unreadable versions.
func (s *Snapshot) next(changes []toolkeep.Committed, report func(id, version string, err error)) *Snapshot {
	n := &Snapshot{seq: s.seq, after: s.seq, hash: s.hash, read: s.read, shards: s.shards, order: s.order, count: s.count, abouts: s.abouts, choices: s.choices}
	edits := map[toolKey][]*version{}
	var abouts []toolkeep.Document
	for _, c := range changes {
		if c.Seq <= s.seq {
			continue
		}
		switch ch := c.Change.(type) {
		case toolkeep.PublishVersion:
			n.publish(edits, ch.Version, report)
		case toolkeep.SetLifecycle:
			n.setLifecycle(edits, ch, report)
		default:
			switch d := sideDocument(ch); {
			case d == nil:
			case d.Kind == KindChoice:
				n.keepChoice(d)
			default:
				abouts = append(abouts, *d)
				n.touch(edits, aboutKey{d.ID, d.Tenant})
			}
		}
		n.seq = max(n.seq, c.Seq)
	}
	n.hear(abouts)
	n.take(edits)
	return n
}

// edit returns the working copy of a tool's versions.
func (s *Snapshot) edit(edits map[toolKey][]*version, k toolKey) []*version {
	list, ok := edits[k]
	if !ok {
		if e := s.entry(k); e != nil {
			list = slices.Clone(e.versions)
		}
	}
	return list
}

func (s *Snapshot) publish(edits map[toolKey][]*version, v toolkeep.Version, report func(string, string, error)) {
	add, err := s.read.version(v)
	if err != nil {
		report(v.Tool.ID, v.Tool.Version, err)
		return
	}
	k := toolKey{id: add.Tool.ID, tenant: add.Tool.Tenant}
	list := s.edit(edits, k)
	for _, have := range list {
		if have.Tool.Version == add.Tool.Version {
			return // the store keeps the first; so do we
		}
	}
	edits[k] = append(list, add)
	s.count++
}

func (s *Snapshot) setLifecycle(edits map[toolKey][]*version, c toolkeep.SetLifecycle, report func(string, string, error)) {
	k := toolKey{id: c.ToolID, tenant: c.Tenant}
	list := s.edit(edits, k)
	for i, have := range list {
		if have.Tool.Version == c.Version {
			moved := *have
			moved.Life = c.Life
			list[i] = &moved
			edits[k] = list
			return
		}
	}
	report(c.ToolID, c.Version, toolkeep.ErrNotFound)
}

// take writes the edited tools into copies of their shards.
func (s *Snapshot) take(edits map[toolKey][]*version) {
	var fresh [shardCount]bool
	var added []*toolKey
	for k, list := range edits {
		i := s.shardOf(k.id)
		if !fresh[i] {
			fresh[i] = true
			if s.shards[i] = maps.Clone(s.shards[i]); s.shards[i] == nil {
				s.shards[i] = shard{}
			}
		}
		key := &k
		if old := s.shards[i][k]; old != nil {
			key = old.key
		} else {
			added = append(added, key)
		}
		e := newEntry(key, list)
		s.shards[i][k] = e
		s.edited = append(s.edited, e)
	}
	if len(added) > 0 {
		slices.SortFunc(added, compareKeys)
		s.order = mergeKeys(s.order, added)
	}
}

// mergeKeys merges two sorted lists.
func mergeKeys(a, b []*toolKey) []*toolKey {
	out := make([]*toolKey, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if compareKeys(a[0], b[0]) < 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}
