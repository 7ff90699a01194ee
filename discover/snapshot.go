package discover

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/toolkeep/toolkeep"
)

// Snapshot is the state of the index that one tenant's answers depend on. Two snapshots are equal only if
// nothing was published to searches in between, neither tools nor examples; their sums are equal on
// every node with the same tools of the tenant and shared tools, with vectors of the same model.
// Other tenants' tools are not part of the sum: they are not shown, and affect scores only through
// the rarity of words.
type Snapshot struct {
	of       *postings
	sum      [32]byte
	words    bool
	examples *learned // learned from the tenant's queries
	complete bool     // examples has all of them
}

// Sum identifies the state.
func (v Snapshot) Sum() [32]byte { return v.sum }

// Tool returns a tool of the snapshot by id and owner; nil if there is none.
func (v Snapshot) Tool(id, tenant string) *toolkeep.Tool {
	at, ok := v.of.position(docKey{id, tenant})
	if !ok {
		return nil
	}
	return v.of.docs[at].tool
}

// WordsAlone reports that there is no embedder, so only words ever count.
func (v Snapshot) WordsAlone() bool { return v.words }

// Settled reports that searches use all of the tenant's learned queries, with none still being
// processed.
func (v Snapshot) Settled() bool { return v.complete }

// Snapshot returns the current state. The first call after a change costs some nanoseconds per tool of
// the index.
func (x *Index) Snapshot(tenant string) Snapshot {
	p := x.current.Load()
	s := x.sums.Load()
	if s == nil || s.of != p {
		s = &viewSums{of: p}
		x.sums.Store(s)
	}
	v := Snapshot{of: p, sum: s.sum(tenant), words: x.meaning == nil}
	var by *space
	if p.alike != nil {
		by = p.alike.by
	}
	v.examples, v.complete = x.exampleSets.state(tenant, by)
	if m := x.mapFor(tenant); m != nil {
		for i := range v.sum {
			v.sum[i] ^= m.id[i]
		}
	}
	return v
}

// state returns what was learned from a tenant's queries, and whether it is complete.
func (l *exampleSets) state(tenant string, by *space) (n *learned, complete bool) {
	if l == nil {
		return nil, true
	}
	examples := l.usage.Examples(tenant)
	l.mu.Lock()
	t := l.tenants[tenant]
	l.mu.Unlock()
	if t == nil {
		return nil, len(examples) == 0
	}
	n = t.now.Load()
	return n, n.fits(examples, by)
}

// model returns the model of the compared vectors, "" if there is none.
func (p *postings) model() string {
	if p.alike == nil || p.alike.by == nil {
		return ""
	}
	return p.alike.by.e.Model()
}

// viewSums are the sums of one state of the index, computed on first use.
type viewSums struct {
	of *postings

	mu    sync.Mutex
	tools map[string]*toolSum // by owner; nil until needed
	done  map[string][32]byte // by owner
}

// toolSum sums the tools of one owner, independent of order.
type toolSum struct {
	// Indexed by whether the tool has its vector.
	low, high, count [2]uint64
}

func (s *viewSums) sum(tenant string) [32]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tools == nil {
		s.add()
		s.done = map[string][32]byte{}
	}
	if s.tools[tenant] == nil {
		tenant = "" // a tenant without tools sees the shared ones
	}
	sum, ok := s.done[tenant]
	if !ok {
		sum = s.join(tenant)
		s.done[tenant] = sum
	}
	return sum
}

// add sums all tools in one pass.
func (s *viewSums) add() {
	s.tools = map[string]*toolSum{"": {}}
	to, owner := s.tools[""], ""
	for i, d := range s.of.docs {
		if d == nil {
			continue
		}
		if d.owner != owner {
			owner = d.owner
			if to = s.tools[owner]; to == nil {
				to = &toolSum{}
				s.tools[owner] = to
			}
		}
		at := 0
		if s.of.embedded(i) {
			at = 1
		}
		to.low[at] += d.low
		to.high[at] += d.high
		to.count[at]++
	}
}

// digestWords returns 128 bits of a version's digest, which identifies its whole manifest.
func digestWords(t *toolkeep.Tool) (low, high uint64) {
	var raw [16]byte
	text, ok := strings.CutPrefix(t.Digest, "sha256:")
	if ok && len(text) == 2*sha256.Size {
		if _, err := hex.Decode(raw[:], []byte(text[:32])); err == nil {
			return binary.LittleEndian.Uint64(raw[:8]), binary.LittleEndian.Uint64(raw[8:])
		}
	}
	// A tool not published by a catalogue.
	sum := sha256.Sum256([]byte(t.ID + "\x00" + t.Version + "\x00" + t.Digest))
	return binary.LittleEndian.Uint64(sum[:8]), binary.LittleEndian.Uint64(sum[8:16])
}

func (s *viewSums) join(tenant string) [32]byte {
	b := make([]byte, 0, 128)
	for _, owner := range []string{"", tenant} {
		t := s.tools[owner]
		for at := range t.low {
			b = binary.LittleEndian.AppendUint64(b, t.low[at])
			b = binary.LittleEndian.AppendUint64(b, t.high[at])
			b = binary.LittleEndian.AppendUint64(b, t.count[at])
		}
	}
	return sha256.Sum256(append(b, s.of.model()...))
}
