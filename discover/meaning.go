package discover

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Embedder turns texts into unit vectors whose scalar product is the similarity of meaning.
type Embedder interface {
	// Model identifies the vectors' model; vectors of different models are not compared.
	Model() string
	Dimensions() int
	// Embed returns one vector per text. E3102.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

const (
	batch       = 16                     // tools, with up to two texts each and a shared one, or questions per embedding request
	asked       = 4096                   // digests per backend query
	openTime    = 2 * time.Second        // how long Start waits for the backend
	publishLate = 250 * time.Millisecond // between two publications while many tools are embedded
	retryFirst  = time.Second            // after the embedder or the backend failed, doubled up to
	retryLast   = time.Minute
	restFor     = time.Second    // queries skip the embedder after one that took too long
	retainEvery = 12 * time.Hour // the backend is told which vectors are in use
	maxQueries  = 1000           // cached query vectors
)

const probeText = "Does it work?" // a text every embedder accepts

// meaning keeps the vectors of an Index's tools up to date.
type meaning struct {
	e       Embedder
	backend Backend
	other   func(Space) Embedder // nil: there is none
	limit   time.Duration        // of one query
	log     *slog.Logger

	wake   chan struct{}
	muted  chan struct{} // holds one after a query that could not be compared, the first one
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	now      *space // of the embedder
	old      *space // answers while now is being filled; nil: none
	filling  bool   // now has too few vectors to compare with
	redo     map[Digest]bool
	failing  error     // error of the latest attempt, nil if it succeeded
	mute     error     // why the latest query was not compared by meaning, nil if it was
	rest     time.Time // until then queries skip an embedder that took too long
	puts     int       // since the last Retain
	retained time.Time
}

// space is an embedder with its vectors.
type space struct {
	e       Embedder
	v       Vectors // nil until the backend has been reached
	mu      sync.Mutex
	queries map[[sha256.Size]byte][]float32 // by the hash of the text, which may be long
}

// similarity is what the tools of postings are compared by. It is immutable.
type similarity struct {
	by      *space    // whose vectors are compared; nil: none
	of      Selection // of by
	now     Selection // of the embedder's own; nil until the backend has been reached
	own     bool      // of is now
	have    int       // tools that have vectors in now
	missing []uint32  // positions of the tools without a vector in of
}

// Start begins to embed tools in the background, if there is an embedder: those without vectors in
// the backend, and later new and changed ones. Until a tool has its vector it is found by its
// words. Close stops it.
//
// If the backend is unreachable, Start returns the error and retries in the background; meanwhile
// only words count.
func (x *Index) Start() error {
	m := x.meaning
	if m == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	soon, done := context.WithTimeout(ctx, openTime)
	defer done()
	err := x.open(soon)
	if err != nil {
		m.fails(err)
	}
	x.publishVectors()
	m.done.Go(func() { x.embedAll(ctx) })
	m.done.Go(func() { x.askAgain(ctx) })
	return err
}

// Close stops the background work, and closes the vectors and their backend. It does not close the
// embedder.
func (x *Index) Close() error {
	x.exampleSets.close()
	m := x.meaning
	if m == nil {
		return nil
	}
	if m.cancel != nil {
		m.cancel()
		m.done.Wait()
	}
	var first error
	for _, s := range []*space{m.now, m.old} {
		if s != nil && s.v != nil {
			first = cmp.Or(first, s.v.Close())
		}
	}
	return cmp.Or(first, m.backend.Close())
}

// Embedded returns how many of the tools have vectors of the embedder, and an error if the embedder
// or the backend fails. Without an embedder it returns zeros and nil.
func (x *Index) Embedded() (have, of int, err error) {
	s := x.Embedding()
	return s.Have, s.Of, s.Err
}

// Embedding is the progress of embedding the tools.
type Embedding struct {
	Model      string // of the embedder, "" without one
	Dimensions int
	Have, Of   int   // tools with its vectors, and all tools
	Err        error // set if the embedder or the backend fails
	// Serving is the model currently used for comparison: another one while too few tools have
	// vectors of Model, "" if only words count.
	Serving string
}

// Embedding returns the progress of embedding the tools.
func (x *Index) Embedding() Embedding {
	m := x.meaning
	if m == nil {
		return Embedding{}
	}
	p := x.current.Load()
	s := Embedding{Model: m.e.Model(), Dimensions: m.e.Dimensions(), Of: len(p.sorted)}
	if p.alike != nil {
		s.Have = p.alike.have
		if p.alike.by != nil {
			s.Serving = p.alike.by.e.Model()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.Err = m.failing; s.Err == nil {
		s.Err = m.mute
	}
	return s
}

// askAgain asks an embedder that did not answer a query again, after a second and then more seldom, up to once a minute: it counts
// as back also where no further query asks it.
func (x *Index) askAgain(ctx context.Context) {
	m := x.meaning
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.muted:
		}
		for wait := retryFirst; m.isMute(); wait = min(2*wait, retryLast) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			by := m.e
			if a := x.current.Load().alike; a != nil && a.by != nil {
				by = a.by.e
			}
			began := time.Now()
			ask, done := context.WithTimeout(ctx, m.limit)
			_, err := embedNow(ask, by, []string{probeText})
			m.asked(ask, time.Since(began), err)
			done()
		}
	}
}

func (m *meaning) isMute() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mute != nil
}

func (m *meaning) fails(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = err
}

func (m *meaning) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// open connects to the backend, and chooses which model answers until the tools are embedded.
func (x *Index) open(ctx context.Context) error {
	m := x.meaning
	m.mu.Lock()
	now := m.now
	m.mu.Unlock()
	if now.v != nil {
		return nil
	}
	v, err := m.backend.Open(ctx, m.e.Model(), m.e.Dimensions())
	if err != nil {
		return err
	}
	all := x.digests()
	have, err := haveAll(ctx, v, all)
	if err != nil {
		_ = v.Close() // the first error says more
		return err
	}
	// If only a few tools are embedded, they would rank before all others.
	filling := 20*have < 19*len(all)
	var old *space
	if filling && m.other != nil {
		if old, err = m.openOther(ctx, all, have); err != nil {
			m.log.Warn("the vectors of the model before cannot be used", "error", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = &space{e: m.e, v: v, queries: map[[sha256.Size]byte][]float32{}}
	m.filling, m.old = filling, old
	if filling {
		m.log.Info("tools are being embedded", "model", m.e.Model(), "have", have, "of", len(all), "meanwhile", old.name())
	}
	return nil
}

func (s *space) name() string {
	if s == nil {
		return "words alone"
	}
	return s.e.Model()
}

// openOther opens the vectors of the other model with the most tools, if these are more than have
// and the model can still embed queries.
func (m *meaning) openOther(ctx context.Context, all []Digest, have int) (*space, error) {
	spaces, err := m.backend.Spaces(ctx)
	if err != nil {
		return nil, err
	}
	var best *space
	for _, s := range spaces {
		if s.Vectors <= have || s.Model == m.e.Model() && s.Dimensions == m.e.Dimensions() {
			continue
		}
		e := m.other(s)
		if e == nil {
			continue
		}
		v, err := m.backend.Open(ctx, s.Model, s.Dimensions)
		if err != nil {
			return best, err
		}
		n, err := haveAll(ctx, v, all)
		if err != nil || n <= have {
			if err := cmp.Or(err, v.Close()); err != nil {
				return best, err
			}
			continue
		}
		if best != nil {
			if err := best.v.Close(); err != nil {
				m.log.Warn("vectors were not closed cleanly", "model", best.e.Model(), "error", err)
			}
		}
		have, best = n, &space{e: e, v: v, queries: map[[sha256.Size]byte][]float32{}}
	}
	return best, nil
}

// haveAll loads existing vectors for Select, and counts them.
func haveAll(ctx context.Context, v Vectors, all []Digest) (n int, err error) {
	for len(all) > 0 {
		some := all[:min(asked, len(all))]
		all = all[len(some):]
		have, err := v.Have(ctx, some)
		if err != nil {
			return n, err
		}
		for _, ok := range have {
			if ok {
				n++
			}
		}
	}
	return n, nil
}

// digests returns the distinct digests of all tools, in tool order.
func (x *Index) digests() []Digest {
	p := x.current.Load()
	out := make([]Digest, 0, len(p.sorted))
	seen := make(map[Digest]bool, len(p.sorted))
	for _, at := range p.sorted {
		if d := p.docs[at]; !seen[d.means] {
			seen[d.means] = true
			out = append(out, d.means)
		}
	}
	return out
}

// embedAll embeds missing vectors whenever there are any.
func (x *Index) embedAll(ctx context.Context) {
	m := x.meaning
	wait := retryFirst
	for {
		err := x.embedRound(ctx)
		if ctx.Err() != nil {
			return
		}
		m.fails(err)
		if errors.Is(err, errLost) {
			x.lost()
		}
		reembed := retainEvery
		if err != nil {
			m.log.Warn("tools cannot be embedded; they are found by their words", "error", err, "again_in", wait.String())
			reembed = wait
			wait = min(2*wait, retryLast)
		} else {
			wait = retryFirst
		}
		timer := time.NewTimer(reembed)
		select {
		case <-ctx.Done():
		case <-m.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (x *Index) embedRound(ctx context.Context) error {
	m := x.meaning
	defer x.publishVectors()
	if err := x.open(ctx); err != nil {
		return err
	}
	m.leaveOld()
	missing := x.missing()
	var texts []*doc
	last := time.Now()
	late := func() {
		if time.Since(last) >= publishLate {
			x.publishVectors()
			last = time.Now()
		}
	}
	// The backend usually has many of them; look them up in large batches.
	for len(missing) > 0 {
		some := missing[:min(asked, len(missing))]
		missing = missing[len(some):]
		left, err := m.without(ctx, some)
		if err != nil {
			return err
		}
		texts = append(texts, left...)
		late()
	}
	last = time.Time{} // publish the first tools at once
	var failed error
	for len(texts) > 0 {
		some := texts[:min(batch, len(texts))]
		texts = texts[len(some):]
		down, err := x.embedSome(ctx, some)
		if down {
			// Existing vectors are still in use and must not be dropped as abandoned.
			return cmp.Or(err, x.retain(ctx))
		}
		failed = cmp.Or(failed, err)
		late()
	}
	// All have been tried; the few that failed are found by their words.
	m.mu.Lock()
	m.filling = false
	m.mu.Unlock()
	return cmp.Or(failed, x.retain(ctx))
}

// leaveOld closes the previous model's vectors once they no longer answer, so that its file can be
// deleted when old enough.
func (m *meaning) leaveOld() {
	m.mu.Lock()
	old := m.old
	if m.filling || old == nil {
		m.mu.Unlock()
		return
	}
	m.old = nil
	m.mu.Unlock()
	if err := old.v.Close(); err != nil {
		m.log.Warn("vectors were not closed cleanly", "model", old.e.Model(), "error", err)
	}
}

// missing returns the tools without known vectors, and those to embed again, each text once. The
// order starts at a random place, so that nodes sharing a backend embed different tools.
func (x *Index) missing() []*doc {
	p := x.current.Load()
	if p.alike == nil || p.alike.now == nil {
		x.publishVectors()
		p = x.current.Load()
	}
	m := x.meaning
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*doc
	seen := map[Digest]bool{}
	first := rand.IntN(max(1, len(p.sorted)))
	for k := range p.sorted {
		at := p.sorted[(first+k)%len(p.sorted)]
		d := p.docs[at]
		if (!p.alike.now.Has(int(at)) || m.redo[d.means]) && !seen[d.means] {
			seen[d.means] = true
			out = append(out, d)
		}
	}
	return out
}

// without drops tools whose vectors the backend has, unless they are to be computed again.
func (m *meaning) without(ctx context.Context, docs []*doc) ([]*doc, error) {
	of := make([]Digest, len(docs))
	for i, d := range docs {
		of[i] = d.means
	}
	have, err := m.now.v.Have(ctx, of)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*doc
	for i, d := range docs {
		if !have[i] || m.redo[d.means] {
			out = append(out, d)
		}
	}
	return out, nil
}

// embedSome embeds tools as a batch, and one by one if that fails and the embedder is not down: a
// service refuses a whole request for one bad text.
func (x *Index) embedSome(ctx context.Context, docs []*doc) (down bool, err error) {
	m := x.meaning
	// Another node may have embedded them since.
	docs, err = m.without(ctx, docs)
	var all []sense
	docs = slices.DeleteFunc(docs, func(d *doc) bool {
		its := senseOf(d.tool, x.aboutOf(d.tool))
		if its.digest() != d.means {
			return true // another about text came; so will another doc
		}
		all = append(all, its)
		return false
	})
	if err != nil || len(docs) == 0 {
		return err != nil, err
	}
	got, err := m.embed(ctx, all)
	if err == nil {
		m.asked(ctx, 0, nil) // a query would work too
		err = m.keep(ctx, docs, got)
		return err != nil, err
	}
	if _, probe := m.e.Embed(ctx, []string{probeText}); probe != nil {
		return true, err
	}
	for i, d := range docs {
		one := []*doc{d}
		got, refused := m.embed(ctx, all[i:i+1])
		if refused != nil {
			err = toolkeep.NewError(toolkeep.EmbeddingFailed, "%s cannot be embedded: %s", d.tool.ID, toolkeep.AsError(refused).Message).Because(refused)
			continue
		}
		if err := m.keep(ctx, one, got); err != nil {
			return true, err
		}
	}
	return false, err
}

// embed returns the tools' vectors; all are what they are made of.
func (m *meaning) embed(ctx context.Context, all []sense) ([][]float32, error) {
	var texts []string
	at := map[string]int{} // tools of a namespace share a text
	for _, one := range all {
		for _, text := range one.texts() {
			if _, ok := at[text]; !ok {
				at[text] = len(texts)
				texts = append(texts, text)
			}
		}
	}
	got, err := m.e.Embed(ctx, texts)
	if err == nil {
		err = CheckVectors(m.e.Model(), m.e.Dimensions(), len(texts), got)
	}
	if err != nil {
		return nil, err
	}
	out := make([][]float32, len(all))
	for i, one := range all {
		out[i] = one.vector(func(text string) []float32 { return got[at[text]] })
	}
	return out, nil
}

func (m *meaning) keep(ctx context.Context, docs []*doc, vectors [][]float32) error {
	of := make([]Digest, len(docs))
	for i, d := range docs {
		of[i] = d.means
	}
	if err := m.now.v.Put(ctx, of, vectors); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts += len(of)
	for _, d := range of {
		delete(m.redo, d)
	}
	return nil
}

// retain tells the backend which vectors are in use, after many additions and at intervals.
func (x *Index) retain(ctx context.Context) error {
	m := x.meaning
	live := x.digests()
	m.mu.Lock()
	if len(m.redo) > 0 { // some may belong to tools removed before their turn
		redo := make(map[Digest]bool, len(m.redo))
		for _, d := range live {
			if m.redo[d] {
				redo[d] = true
			}
		}
		m.redo = redo
	}
	due := m.puts >= 1000+len(live)/2 || time.Since(m.retained) >= retainEvery
	old := m.old
	if !m.filling {
		old = nil
	}
	m.mu.Unlock()
	if !due || len(live) == 0 { // skip if the catalogue is empty for a moment
		return nil
	}
	if old != nil {
		// The old model still answers, possibly for long if the embedder fails.
		if err := old.v.Retain(ctx, live); err != nil {
			return err
		}
	}
	if err := m.now.v.Retain(ctx, live); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts, m.retained = 0, time.Now()
	return nil
}

// reembed schedules a text to be embedded again.
func (m *meaning) reembed(d Digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.redo == nil {
		m.redo = map[Digest]bool{}
	}
	m.redo[d] = true
}

// publishVectors publishes the index with the current vectors.
func (x *Index) publishVectors() {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := *x.current.Load()
	x.meaning.fill(&p)
	x.publish(&p)
}

// fill chooses what the tools are compared by. x.mu is held.
func (m *meaning) fill(p *postings) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &similarity{}
	p.alike = a
	if m.now.v == nil {
		return
	}
	of := make([]Digest, len(p.docs))
	for i, d := range p.docs {
		if d != nil {
			of[i] = d.means
		}
	}
	a.now = m.now.v.Select(of)
	for _, at := range p.sorted {
		if a.now.Has(int(at)) {
			a.have++
		}
	}
	if m.filling && 20*a.have >= 19*len(p.sorted) {
		// The few remaining tools are found by their words, like new tools.
		m.filling = false
		m.log.Info("tools are embedded", "model", m.e.Model(), "have", a.have, "of", len(p.sorted))
	}
	switch {
	case !m.filling:
		a.by, a.of, a.own = m.now, a.now, true
	case m.old != nil:
		a.by, a.of = m.old, m.old.v.Select(of)
	}
	if a.by == nil || a.own && a.have == len(p.sorted) {
		return
	}
	for _, at := range p.sorted {
		if !a.of.Has(int(at)) {
			a.missing = append(a.missing, at)
		}
	}
}

// lost schedules tools whose vectors the backend has lost. The first few embedded would rank before
// all others.
func (x *Index) lost() {
	m := x.meaning
	m.mu.Lock()
	m.filling = true
	m.mu.Unlock()
	x.publishVectors()
	m.nudge()
}

// embedded reports whether a tool has its vector.
func (p *postings) embedded(i int) bool {
	return p.alike != nil && p.alike.now != nil && p.alike.now.Has(i)
}
