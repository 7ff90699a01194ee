package discover

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/viterin/vek/vek32"

	"github.com/toolkeep/toolkeep"
)

// Limits of learning a question map. RATIONALE.md has the measures.
const (
	leastMapped  = 200        // questions to learn from
	mostMapped   = 4000       // the newest count
	mostCompared = 40_000_000 // questions times tools
	mostSize     = 1024       // dimensions of the vectors; for larger ones none is learned
	mapHeld      = 5          // one question in this many, chosen by its text, is held out
	mostHeld     = 300        // of these are asked
	mapBetter    = 0.01       // NDCG@10 of the held-out questions must rise by this
	mapKnown     = 0.4        // of the tools that they find must have questions: the others lose a little
	mapRest      = 50         // learning pauses for this multiple of the time it took
	mapRank      = 16
	mapNear      = 64 // a question is told apart from this many of the nearest tools
	mapRounds    = 60
	mapSharpness = 20   // of the choice among tools
	mapStep      = 0.05 // of a round, divided by the root of the dimensions
	mapPull      = 1e-3 // towards the identity
)

// Mapping is an optional ability of a Usage; without it no question map is learned.
type Mapping interface {
	// MapsQuestions reports whether a tenant's questions may be mapped, and a number that changes when a user of the tenant is
	// forgotten: a map that was learned before is not used from then on. Examples never shows what was forgotten before.
	MapsQuestions(tenant string) (on bool, forgotten int64)
}

// readable is an optional ability of a Selection. Without it no question map is learned.
type readable interface {
	// read returns the vectors of texts by their index; nil for one without a vector.
	read(at []uint32) ([][]float32, error)
}

// questionMap moves a tenant's questions towards the tools that were chosen after such questions. It is a linear map of a
// question's vector: the identity, and to for each from that the question has a part in. Each node learns it for itself from
// Usage.Examples, in the background, and holds it in memory alone. It belongs to one tenant and to the vectors of one model.
// It is immutable.
type questionMap struct {
	by        *space
	forgotten int64
	id        [32]byte
	from, to  [][]float32
}

// at returns where a question is moved to.
func (m *questionMap) at(q []float32) []float32 { return unit(m.moved(slices.Clone(q), q)) }

func (m *questionMap) moved(out, q []float32) []float32 {
	step := make([]float32, len(q))
	for k, from := range m.from {
		vek32.Add_Inplace(out, vek32.MulNumber_Into(step, m.to[k], vek32.Dot(from, q)))
	}
	return out
}

// mapFor returns the map that a tenant's questions are compared by; nil: none.
func (x *Index) mapFor(tenant string) *questionMap {
	usage, ok := x.usage.(Mapping)
	if !ok || tenant == "" {
		return nil
	}
	l := x.exampleSets
	l.mu.Lock()
	t := l.tenants[tenant]
	l.mu.Unlock()
	if t == nil {
		return nil
	}
	m := t.mapped.Load()
	if m == nil {
		return nil
	}
	if on, forgotten := usage.MapsQuestions(tenant); !on || forgotten != m.forgotten {
		return nil
	}
	return m
}

// lesson is a question to learn from.
type lesson struct {
	text   string
	vector []float32
	right  []uint32 // positions of the tools that were chosen
	near   []uint32 // of those and the nearest
}

// attempt is what a map was learned from.
type attempt struct {
	from      *learned
	forgotten int64
}

// mapDue reports whether a tenant's map is to be learned now. Where a user was forgotten since the last one, nothing waits.
func (l *exampleSets) mapDue(tenant string, t *tenantExamples, n *learned, forgotten int64) bool {
	usage, ok := l.usage.(Mapping)
	if !ok || n == nil || n.by == nil || n.have < len(n.texts) || n.by.e.Dimensions() > mostSize || l.learning.Load() {
		return false
	}
	last := t.tried.Load()
	if last != nil && last.from == n && last.forgotten == forgotten {
		return false
	}
	if (last == nil || last.forgotten == forgotten) && time.Now().UnixNano() < l.mapAfter.Load() {
		return false
	}
	on, _ := usage.MapsQuestions(tenant)
	p := l.x.current.Load()
	_, gives := readableOf(p)
	return on && gives && p.alike.by == n.by
}

// startMap learns a tenant's map in the background, beside new examples. It is called by the busy goroutine.
func (l *exampleSets) startMap(tenant string, t *tenantExamples, n *learned, forgotten int64) {
	if !l.learning.CompareAndSwap(false, true) {
		return
	}
	p := l.x.current.Load()
	lessons := l.lessons(tenant, t, n, p)
	t.mapping.Store(true)
	l.wg.Go(func() {
		defer func() {
			l.learning.Store(false)
			t.mapping.Store(false)
		}()
		if len(lessons) < leastMapped || p.alike.by != n.by {
			t.mapped.Store(nil)
			t.tried.Store(&attempt{n, forgotten})
			return
		}
		began := time.Now()
		m, err := l.learnMap(tenant, n, p, lessons)
		switch {
		case err == nil:
			if m != nil {
				m.forgotten = forgotten
			}
			t.mapped.Store(m)
			t.tried.Store(&attempt{n, forgotten})
		case l.ctx.Err() == nil:
			t.after.Store(time.Now().Add(exampleRetry).UnixNano())
			l.log.Warn("no map of questions is learned now", "tenant", tenant, "error", err, "again_in", exampleRetry.String())
		}
		l.mapAfter.Store(time.Now().Add(mapRest * time.Since(began)).UnixNano())
	})
}

// learnMap learns a tenant's map again; nil where it does not find more of what was chosen after questions that were held out.
func (l *exampleSets) learnMap(tenant string, n *learned, p *postings, lessons []lesson) (*questionMap, error) {
	var held, older []lesson
	for _, one := range lessons {
		if sha256.Sum256([]byte(one.text))[0]%mapHeld == 0 && len(held) < mostHeld {
			held = append(held, one)
		} else {
			older = append(older, one)
		}
	}
	m, err := learnQuestions(l.ctx, p, n.by, older)
	if err != nil {
		return nil, err
	}
	visible := func(t *toolkeep.Tool) bool { return t.Tenant == "" || t.Tenant == tenant }
	known := map[string]bool{}
	for _, one := range lessons {
		for _, at := range one.right {
			known[p.docs[at].tool.ID] = true
		}
	}
	vectors := l.once()
	before, share, err := l.x.rankOf(l.ctx, p, held, known, visible, nil, vectors)
	if err != nil {
		return nil, err
	}
	after, _, err := l.x.rankOf(l.ctx, p, held, known, visible, m, vectors)
	if err != nil {
		return nil, err
	}
	better := after >= before+mapBetter && share >= mapKnown
	l.log.Info("a map of questions was learned", "tenant", tenant, "questions", len(older), "held_out", len(held), "ndcg_before", before, "ndcg_after", after, "known_tools", share, "used", better)
	if !better {
		return nil, nil
	}
	return m, nil
}

// once embeds each text once, behind the searches of callers and outside their cache.
func (l *exampleSets) once() embedding {
	known := map[string][]float32{}
	return func(by *space, texts []string) ([][]float32, error) {
		var missing []string
		for _, text := range texts {
			if known[text] == nil && !slices.Contains(missing, text) {
				missing = append(missing, text)
			}
		}
		if len(missing) > 0 {
			got, err := by.e.Embed(l.ctx, missing)
			if err == nil {
				err = CheckVectors(by.e.Model(), by.e.Dimensions(), len(missing), got)
			}
			if err != nil {
				return nil, err
			}
			for i, text := range missing {
				known[text] = got[i]
			}
		}
		out := make([][]float32, len(texts))
		for i, text := range texts {
			out[i] = known[text]
		}
		return out, nil
	}
}

// lessons returns what a tenant's questions teach, the newest first.
func (l *exampleSets) lessons(tenant string, t *tenantExamples, n *learned, p *postings) []lesson {
	all := make([]lesson, len(n.texts))
	at := make(map[*exampleText]int, len(n.texts))
	for i, text := range n.texts {
		at[text] = i
		all[i].vector = text.vector
	}
	for question, text := range t.known {
		if i, ok := at[text]; ok {
			all[i].text = question
		}
	}
	for tool, list := range n.tools {
		for _, position := range p.find(tool) {
			if owner := p.docs[position].owner; owner == "" || owner == tenant {
				for _, i := range list {
					all[i].right = append(all[i].right, position)
				}
			}
		}
	}
	all = slices.DeleteFunc(all, func(one lesson) bool { return len(one.right) == 0 || one.text == "" })
	return all[:min(len(all), mostMapped, mostCompared/max(1, len(p.docs)))]
}

// learnQuestions learns a map that tells the chosen tools from those near the question: by gradient descent (Adam) on the
// log-loss of the choice.
func learnQuestions(ctx context.Context, p *postings, by *space, list []lesson) (*questionMap, error) {
	tools, err := nearTools(ctx, p, list)
	if err != nil {
		return nil, err
	}
	size := by.e.Dimensions()
	m := &questionMap{by: by, from: make([][]float32, mapRank), to: make([][]float32, mapRank)}
	random := rand.New(rand.NewPCG(1, 2)) // the same on every node
	for k := range mapRank {
		m.from[k], m.to[k] = make([]float32, size), make([]float32, size)
		for i := range size {
			m.from[k][i] = float32(random.NormFloat64() / math.Sqrt(float64(size)))
		}
	}
	parts := append(slices.Clone(m.to), m.from...)
	slopes := make([]descent, len(parts))
	for i := range slopes {
		slopes[i] = descent{make([]float32, size), make([]float32, size), make([]float32, size)}
	}
	slope, scratch := make([]float32, size), make([]float32, size)
	add := func(to, v []float32, times float32) { vek32.Add_Inplace(to, vek32.MulNumber_Into(scratch, v, times)) }
	for round := 1; round <= mapRounds; round++ {
		for i := range list {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			one := &list[i]
			moved := m.moved(slices.Clone(one.vector), one.vector)
			length := float32(math.Sqrt(float64(vek32.Dot(moved, moved))))
			vek32.DivNumber_Inplace(moved, length)
			one.slope(slope, moved, tools, add)
			add(slope, moved, -vek32.Dot(slope, moved)) // its length does not matter
			vek32.DivNumber_Inplace(slope, length*float32(len(list)))
			for k := range mapRank {
				add(slopes[k].now, slope, vek32.Dot(m.from[k], one.vector))
				add(slopes[mapRank+k].now, one.vector, vek32.Dot(m.to[k], slope))
			}
		}
		for i := range parts {
			slopes[i].step(parts[i], round)
		}
	}
	h := sha256.New()
	_ = binary.Write(h, binary.LittleEndian, slices.Concat(parts...))
	h.Sum(m.id[:0])
	return m, nil
}

func readableOf(p *postings) (s readable, ok bool) {
	if p.alike != nil {
		s, ok = p.alike.of.(readable)
	}
	return s, ok
}

// nearTools chooses which tools each question is told apart from, and returns their vectors by position. They are among those
// that have questions: to tell the question from others would bury tools that are new.
func nearTools(ctx context.Context, p *postings, list []lesson) (map[uint32][]float32, error) {
	selection, _ := readableOf(p)
	known := map[uint32]bool{}
	for _, one := range list {
		for _, at := range one.right {
			known[at] = true
		}
	}
	of := slices.Collect(maps.Keys(known))
	numbers := make([]float32, batch*len(p.docs))
	vectors := map[uint32][]float32{}
	for some := range slices.Chunk(list, batch) {
		questions, to := make([][]float32, len(some)), make([][]float32, len(some))
		for i := range some {
			questions[i], to[i] = some[i].vector, numbers[i*len(p.docs):(i+1)*len(p.docs)]
		}
		if err := p.alike.of.Alike(ctx, questions, to); err != nil {
			return nil, err
		}
		for i := range some {
			order := slices.Clone(of)
			slices.SortFunc(order, func(a, b uint32) int { return cmp.Or(cmp.Compare(to[i][b], to[i][a]), cmp.Compare(a, b)) })
			near := slices.Clone(some[i].right)
			for _, at := range order[:min(mapNear, len(order))] {
				if !slices.Contains(near, at) {
					near = append(near, at)
				}
			}
			some[i].near = near
			for _, at := range near {
				vectors[at] = nil
			}
		}
	}
	positions := make([]uint32, 0, len(vectors))
	for at := range vectors {
		positions = append(positions, at)
	}
	got, err := selection.read(positions)
	if err != nil {
		return nil, err
	}
	for i, at := range positions {
		vectors[at] = got[i]
	}
	return vectors, nil
}

// slope writes how the log-loss of the choice changes with the moved question.
func (one *lesson) slope(to, moved []float32, tools map[uint32][]float32, add func(to, v []float32, times float32)) {
	clear(to)
	shares := make([]float64, len(one.near))
	most, sum := math.Inf(-1), 0.0
	for i, at := range one.near {
		if v := tools[at]; v != nil {
			shares[i] = mapSharpness * float64(vek32.Dot(moved, v))
			most = max(most, shares[i])
		} else {
			shares[i] = math.Inf(-1)
		}
	}
	for i := range shares {
		shares[i] = math.Exp(shares[i] - most)
		sum += shares[i]
	}
	for i, at := range one.near {
		share := shares[i] / sum
		if i < len(one.right) { // they come first
			share -= 1 / float64(len(one.right))
		}
		if v := tools[at]; v != nil && math.Abs(share) > 1e-4 {
			add(to, v, float32(share*mapSharpness))
		}
	}
}

// descent is the state of Adam for one vector.
type descent struct{ now, mean, square []float32 }

func (d *descent) step(v []float32, round int) {
	const forget, slow = 0.9, 0.999
	rate := mapStep / math.Sqrt(float64(len(v)))
	a, b := 1/(1-math.Pow(forget, float64(round))), 1/(1-math.Pow(slow, float64(round)))
	for i := range v {
		g := d.now[i] + mapPull*v[i]
		d.mean[i] = forget*d.mean[i] + (1-forget)*g
		d.square[i] = slow*d.square[i] + (1-slow)*g*g
		v[i] -= float32(rate * a * float64(d.mean[i]) / (math.Sqrt(b*float64(d.square[i])) + 1e-8))
	}
	clear(d.now)
}

// rankOf returns how high searches rank what was chosen after questions, by NDCG@10, without any usage, and the share of known
// tools among those that are found.
func (x *Index) rankOf(ctx context.Context, p *postings, list []lesson, known map[string]bool, visible func(*toolkeep.Tool) bool, m *questionMap, vectors embedding) (sum, share float64, err error) {
	all, of := 0, 0
	for _, one := range list {
		found, report := x.find(ctx, Query{Text: one.text, Limit: 10}, visible, m, vectors)
		switch {
		case ctx.Err() != nil:
			return 0, 0, ctx.Err()
		case report.Degraded != "" && !report.Partial:
			return 0, 0, errors.New(report.Degraded)
		}
		got, ideal := 0.0, 0.0
		for place, f := range found {
			all++
			if known[f.Tool.ID] {
				of++
			}
			if slices.ContainsFunc(one.right, func(at uint32) bool { return p.docs[at].tool.ID == f.Tool.ID }) {
				got += 1 / math.Log2(float64(place)+2)
			}
		}
		for place := range min(10, len(one.right)) {
			ideal += 1 / math.Log2(float64(place)+2)
		}
		sum += got / ideal
	}
	return sum / float64(max(1, len(list))), float64(of) / float64(max(1, all)), nil
}

func (s *memorySelection) read(at []uint32) ([][]float32, error) {
	out := make([][]float32, len(at))
	err := reading(s.chunks, func() {
		for i, k := range at {
			if slot := s.slots[k]; slot != noSlot {
				from := int(slot%chunkRows) * s.of.dimensions
				out[i] = slices.Clone(s.chunks[slot/chunkRows][from : from+s.of.dimensions])
			}
		}
	})
	if err != nil {
		return nil, s.of.cut(s.rows)
	}
	return out, nil
}
