package discover

import "slices"

// extending is an optional ability of Vectors: it makes a Selection of another one in
// time that depends on what changed, where Select looks every text up.
type extending interface {
	// extend is a Selection of n texts: those of before, but for the ones at some places,
	// which are of now; a place beyond those of before is empty unless it is among them.
	// Vectors that were put since come into it for these alone. It is nil where that
	// cannot be done, and Select has to be asked.
	extend(before Selection, n int, places []uint32, of []Digest) Selection
}

func (v *memoryVectors) extend(before Selection, n int, places []uint32, of []Digest) Selection {
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
	for i, at := range places {
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
func (m *meaning) follow(p, before *postings, gone []uint32, come []*doc) {
	a := m.followed(p, before.alike, gone, come)
	if a == nil {
		m.fill(p)
		return
	}
	p.alike = a
}

// followed is nil where all has to be looked at: while another model answers, or where
// the vectors cannot do it.
func (m *meaning) followed(p *postings, b *likeness, gone []uint32, come []*doc) *likeness {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.now.v.(extending)
	if !ok || m.filling || b == nil || !b.own {
		return nil
	}
	places, of := slices.Clone(gone), make([]Digest, len(gone), len(gone)+len(come)) // the empty ones have none
	for _, d := range come {
		places, of = append(places, d.at), append(of, d.means)
	}
	now := v.extend(b.now, len(p.docs), places, of)
	if now == nil {
		return nil
	}
	a := &likeness{by: b.by, of: now, now: now, own: true, have: b.have}
	for _, at := range gone {
		if b.now.Has(int(at)) {
			a.have--
		}
	}
	for _, at := range b.lack {
		if p.docs[at] != nil {
			a.lack = append(a.lack, at)
		}
	}
	for _, d := range come {
		if now.Has(int(d.at)) {
			a.have++
		} else {
			a.lack = append(a.lack, d.at)
		}
	}
	return a
}
