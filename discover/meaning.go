package discover

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Embedder turns texts into vectors of length 1, whose scalar product tells how much
// two texts mean alike.
type Embedder interface {
	// Model names what made a vector; vectors of different models are not compared.
	Model() string
	Dimensions() int
	// Embed gives one vector for each text. E3102.
	Embed(ctx context.Context, texts []string) ([][]float32, error)
}

const (
	batch       = 16                     // texts that are embedded at once
	asked       = 4096                   // digests that a backend is asked about at once
	openTime    = 2 * time.Second        // how long Start waits for the backend
	publishLate = 250 * time.Millisecond // between two publications while many tools are embedded
	retryFirst  = time.Second            // after the embedder or the backend failed, doubled up to
	retryLast   = time.Minute
	restFor     = time.Second    // that questions go without, after one that took too long
	retainEvery = 12 * time.Hour // the backend is told what is in use
	maxQueries  = 1000           // vectors of queries that are kept
)

const probeText = "Does it work?" // a text that any embedder takes

// meaning keeps the vectors of the tools of an Index in step with them.
type meaning struct {
	e       Embedder
	backend Backend
	other   func(Space) Embedder // nil: there is none
	limit   time.Duration        // of one query
	log     *slog.Logger

	wake   chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	now      *space // of the embedder
	old      *space // answers while now is filled; nil: there is none
	filling  bool   // now has too few vectors to be compared with
	redo     map[Digest]bool
	failing  error     // of the newest try, nil if it worked
	mute     error     // why the newest question was not compared by meaning, nil if it was
	rest     time.Time // until then questions do not wait for an embedder that took too long
	puts     int       // since the backend was told what is in use
	retained time.Time
}

// space is what embeds texts, and what keeps their vectors.
type space struct {
	e       Embedder
	v       Vectors // nil until the backend has been reached
	mu      sync.Mutex
	queries map[string][]float32
}

// likeness is what the tools of postings are compared by. It is never modified.
type similarity struct {
	by      *space    // whose vectors are compared; nil: none are
	of      Selection // of by
	now     Selection // of the embedder's own; nil until the backend has been reached
	own     bool      // of is now
	have    int       // tools that have vectors in now
	missing []uint32  // places of the tools that have none in of
}

// Start begins to embed tools in the background, if there is an embedder: those of which
// the backend has no vectors, and later those that are new or changed. Until a tool has
// its vector it is found by its words. Close ends it.
//
// A backend that cannot be reached is tried again, and words alone count meanwhile; the
// error says so.
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
	return err
}

// Close ends what Start began, and closes the vectors and their backend. It does not
// close the embedder.
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

// Embedded tells how many of the tools have vectors of the embedder, and why there are
// no more, if it or the backend does not work. Without an embedder all is nil and 0.
func (x *Index) Embedded() (have, of int, err error) {
	s := x.Embedding()
	return s.Have, s.Of, s.Err
}

// Embedding is how far the tools are embedded.
type Embedding struct {
	Model      string // of the embedder, "" without one
	Dimensions int
	Have, Of   int   // tools that have vectors of it, of all
	Err        error // why there are no more, if something does not work
	// Serving is the model that meanings are compared by now: another one while too few
	// tools have vectors of Model, "" where words alone are.
	Serving string
}

// Embedding tells how far the tools are embedded.
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

// open reaches the backend, and chooses what answers until the tools are embedded.
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
		_ = v.Close() // the error of the moment says more
		return err
	}
	// With few tools embedded, those would be found before all others.
	filling := 20*have < 19*len(all)
	var old *space
	if filling && m.other != nil {
		if old, err = m.openOther(ctx, all, have); err != nil {
			m.log.Warn("the vectors of the model before cannot be used", "error", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = &space{e: m.e, v: v, queries: map[string][]float32{}}
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

// openOther opens the vectors of the other model that most tools have, if that is more
// than have and the model can still embed questions.
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
				m.log.Warn("vectors were not closed well", "model", best.e.Model(), "error", err)
			}
		}
		have, best = n, &space{e: e, v: v, queries: map[string][]float32{}}
	}
	return best, nil
}

// haveAll makes Select know of what is there, and counts it.
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

// digests are those of all tools, each once, in the order of the tools.
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

// embedAll embeds what is missing, whenever something is.
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
			m.log.Warn("tools cannot be embedded; they are found by their words meanwhile", "error", err, "again_in", wait.String())
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
	// What the backend has already is many, and asked for in few questions.
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
	last = time.Time{} // the first tools are found at once
	var failed error
	for len(texts) > 0 {
		some := texts[:min(batch, len(texts))]
		texts = texts[len(some):]
		down, err := x.embedSome(ctx, some)
		if down {
			// What is there is in use all the same, and must not be taken for abandoned.
			return cmp.Or(err, x.retain(ctx))
		}
		failed = cmp.Or(failed, err)
		late()
	}
	// All have been tried, and the few that failed are found by their words.
	m.mu.Lock()
	m.filling = false
	m.mu.Unlock()
	return cmp.Or(failed, x.retain(ctx))
}

// leaveOld closes the vectors of the model before once they answer no more: its file may
// be deleted then when it is old enough.
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
		m.log.Warn("vectors were not closed well", "model", old.e.Model(), "error", err)
	}
}

// missing are the tools that have no vectors as far as is known, and those that are to
// have new ones, each text once. They begin anywhere, so that nodes which share a
// backend embed different tools.
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

// without leaves those out whose vectors the backend has, unless they are to be
// computed again.
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

// embedSome embeds tools at once, and one by one if that fails and the embedder is not
// down: a service refuses a whole request for one text that it cannot take.
func (x *Index) embedSome(ctx context.Context, docs []*doc) (down bool, err error) {
	m := x.meaning
	// Another node may have embedded them meanwhile.
	docs, err = m.without(ctx, docs)
	if err != nil || len(docs) == 0 {
		return err != nil, err
	}
	got, err := m.embed(ctx, docs)
	if err == nil {
		m.asked(ctx, 0, nil) // a question would work too
		err = m.keep(ctx, docs, got)
		return err != nil, err
	}
	if _, probe := m.e.Embed(ctx, []string{probeText}); probe != nil {
		return true, err
	}
	for _, d := range docs {
		one := []*doc{d}
		got, refused := m.embed(ctx, one)
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

func (m *meaning) embed(ctx context.Context, docs []*doc) ([][]float32, error) {
	texts := make([]string, len(docs))
	for i, d := range docs {
		texts[i] = embeddingText(d.tool)
	}
	got, err := m.e.Embed(ctx, texts)
	if err != nil {
		return nil, err
	}
	return got, CheckVectors(m.e.Model(), m.e.Dimensions(), len(texts), got)
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

// retain tells the backend what is in use, when much is new and now and then.
func (x *Index) retain(ctx context.Context) error {
	m := x.meaning
	live := x.digests()
	m.mu.Lock()
	if len(m.redo) > 0 { // some may be of tools that went before their turn
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
	if !due || len(live) == 0 { // a catalogue that is empty for a moment costs nothing
		return nil
	}
	if old != nil {
		// It answers meanwhile, which may be for long where the embedder fails.
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

// reembed has a text embedded again.
func (m *meaning) reembed(d Digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.redo == nil {
		m.redo = map[Digest]bool{}
	}
	m.redo[d] = true
}

// publishVectors lets the published index compare with the vectors that there are.
func (x *Index) publishVectors() {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := *x.current.Load()
	x.meaning.fill(&p)
	x.publish(&p)
}

// fill chooses what the tools are compared by. It is called with x.mu held.
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
		// The few that are left are found by their words, as new tools are.
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

// lost has tools embedded again whose vectors the backend has found missing. The few that
// are made first would be found before all others.
func (x *Index) lost() {
	m := x.meaning
	m.mu.Lock()
	m.filling = true
	m.mu.Unlock()
	x.publishVectors()
	m.nudge()
}

// embedded tells whether a tool has its vector.
func (p *postings) embedded(i int) bool {
	return p.alike != nil && p.alike.now != nil && p.alike.now.Has(i)
}

// embeddingText is what a tool's vector stands for (Discovery 3.2): its name in words,
// the beginning of what it does, its guidance, tags, use cases and the scenarios of its
// examples.
func embeddingText(t *toolkeep.Tool) string {
	var b strings.Builder
	add := func(s string) {
		if s = strings.TrimSpace(s); s == "" {
			return
		}
		if b.Len() > 0 {
			b.WriteString(". ")
		}
		b.WriteString(strings.TrimRight(s, "."))
	}
	m := t.Manifest
	_, name, _ := strings.Cut(t.ID, ".")
	if m.ToolName != "" {
		name = m.ToolName
	}
	var spoken []string
	words(name, func(w string) { spoken = append(spoken, w) })
	add(strings.Join(spoken, " "))
	add(lead(m.Description))
	add(m.Explanation)
	add(strings.Join(m.Tags, " "))
	add(m.InputGuidance)
	for _, u := range m.UseCases {
		add(u)
	}
	for _, e := range m.Examples {
		add(e.Scenario)
	}
	return b.String()
}

// lead is the first sentences of a description, about 200 bytes of a long one. A vector is
// the mean of its text: of a page about options and errors little is left of what the
// tool is for, and over real APIs fewer questions found theirs.
func lead(s string) string {
	const about = 200
	if len(s) <= about {
		return s
	}
	if i := strings.Index(s[about/2:min(len(s), 2*about)], ". "); i >= 0 {
		return s[:about/2+i]
	}
	if i := strings.LastIndexByte(s[:about], ' '); i > 0 {
		return s[:i]
	}
	return toolkeep.CutBytes(s, about)
}
