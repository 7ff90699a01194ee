package discover

import "slices"

// extending is an optional ability of Vectors: it makes a Selection of another one in
// time that depends on what changed, where Select looks every text up.
type extending interface {
	// extend is a Selection of n texts: that of before, with the texts of at positions
	// replaced. A position beyond before that is not among them is empty. Vectors that were
	// put since count for the replaced texts alone. It is nil where that
	// cannot be done, and Select has to be asked.
	extend(before Selection, n int, positions []uint32, of []Digest) Selection
}

func (v *memoryVectors) extend(before Selection, n int, positions []uint32, of []Digest) Selection {
	b, ok := before.(*memorySelection)
	v.mu.RLock()
	defer v.mu.RUnlock()
	if !ok || b.of != v || b.rows != v.rows || len(b.slots) > n {
		return nil // everything was rewritten since
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

// follow is fill for postings that were made of others by a change: it costs what the
// change does, and a copy. x.mu is held.
func (m *meaning) follow(p, before *postings, removed []uint32, added []*doc) {
	a := m.followed(p, before.alike, removed, added)
	if a == nil {
		m.fill(p)
		return
	}
	p.alike = a
}

// followed is nil where all has to be looked at: while another model answers, or where
// the vectors cannot do it.
func (m *meaning) followed(p *postings, b *similarity, removed []uint32, added []*doc) *similarity {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.now.v.(extending)
	if !ok || m.filling || b == nil || !b.own {
		return nil
	}
	positions, of := slices.Clone(removed), make([]Digest, len(removed), len(removed)+len(added)) // the empty ones have none
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
