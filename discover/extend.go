package discover

import "slices"

// extending is an optional ability of Vectors: it builds a Selection from another in time that
// depends on the change, whereas Select looks up every text.
type extending interface {
	// extend returns a Selection of n texts: before, with the texts at positions replaced by of.
	// New positions not listed are empty. Vectors put since then count only for the replaced texts.
	// It returns nil if this is impossible and Select must be used.
	extend(before Selection, n int, positions []uint32, of []Digest) Selection
}

func (v *memoryVectors) extend(before Selection, n int, positions []uint32, of []Digest) Selection {
	b, ok := before.(*memorySelection)
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !ok || b.of != v || b.rows != v.rows || len(b.slots) > n {
		return nil // rewritten since
	}
	s := &memorySelection{of: v, rows: v.rows, chunks: v.chunks, slots: make([]uint32, n)}
	for i := copy(s.slots, b.slots); i < n; i++ {
		s.slots[i] = noSlot
	}
	for i, at := range positions {
		slot, ok := v.slots[of[i]]
		if !ok {
			slot = noSlot
		}
		s.slots[at] = slot
	}
	return s
}

// follow is fill for postings derived by a change: it costs the size of the change, plus a copy.
// x.mu is held.
func (m *meaning) follow(p, before *postings, removed []uint32, added []*doc) {
	a := m.followed(p, before.alike, removed, added)
	if a == nil {
		m.fill(p)
		return
	}
	p.alike = a
}

// followed returns nil if everything must be looked up: while another model answers, or if the
// vectors do not support extend.
func (m *meaning) followed(p *postings, b *similarity, removed []uint32, added []*doc) *similarity {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.now.v.(extending)
	if !ok || m.filling || b == nil || !b.own {
		return nil
	}
	positions, of := slices.Clone(removed), make([]Digest, len(removed), len(removed)+len(added)) // the removed ones are empty
	for _, d := range added {
		positions, of = append(positions, d.at), append(of, d.means)
	}
	now := v.extend(b.now, len(p.docs), positions, of)
	if now == nil {
		return nil
	}
	a := &similarity{by: b.by, of: now, now: now, own: true, have: b.have}
	for _, at := range removed {
		if b.now.Has(int(at)) {
			a.have--
		}
	}
	for _, at := range b.missing {
		if p.docs[at] != nil {
			a.missing = append(a.missing, at)
		}
	}
	for _, d := range added {
		if now.Has(int(d.at)) {
			a.have++
		} else {
			a.missing = append(a.missing, d.at)
		}
	}
	return a
}
