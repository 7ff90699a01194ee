package discover

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/viterin/vek/vek32"

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
	publishLate = 250 * time.Millisecond // between two publications while many tools are embedded
	retryFirst  = time.Second            // after the embedder failed, doubled up to
	retryLast   = time.Minute
	maxQueries  = 1000 // vectors of queries that are kept
)

// digest is of the text that a vector stands for.
type digest = [sha256.Size]byte

// meaning keeps the vectors of the tools of an Index.
type meaning struct {
	e     Embedder
	limit time.Duration // of one query
	log   *slog.Logger
	file  *vectorFile // nil without one

	wake   chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	known   map[digest][]float32
	queries map[string][]float32
	failing error // of the newest try, nil if it worked
}

// Start begins to embed tools in the background, if there is an embedder: those whose
// vectors the file does not have, and later those that are new or changed. Until a tool
// has its vector it is found by its words. Close ends it.
//
// The error is the file's, which then is not used.
func (x *Index) Start() error {
	m := x.meaning
	if m == nil {
		return nil
	}
	var err error
	if x.vectorFile != "" {
		m.file, err = openVectors(x.vectorFile, m.e.Model(), m.e.Dimensions(), func(d digest, v []float32) { m.known[d] = v })
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	x.publishVectors()
	m.done.Go(func() { x.embedAll(ctx) })
	return err
}

// Close ends what Start began. It does not close the embedder.
func (x *Index) Close() error {
	m := x.meaning
	if m == nil || m.cancel == nil {
		return nil
	}
	m.cancel()
	m.done.Wait()
	if m.file == nil {
		return nil
	}
	return m.file.close()
}

// Embedded tells how many of the tools have vectors, and why the embedder does not
// work, if so. Without an embedder both are nil and 0.
func (x *Index) Embedded() (have, of int, err error) {
	m := x.meaning
	if m == nil {
		return 0, 0, nil
	}
	p := x.current.Load()
	for _, v := range p.vectors {
		if v != nil {
			have++
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return have, len(p.docs), m.failing
}

func (m *meaning) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// embedAll embeds what is missing, whenever something is.
func (x *Index) embedAll(ctx context.Context) {
	m := x.meaning
	wait := retryFirst
	for {
		missing := x.missing()
		var err error
		last := time.Now()
		for len(missing) > 0 && err == nil && ctx.Err() == nil {
			n := min(batch, len(missing))
			err = x.embedSome(ctx, missing[:n])
			missing = missing[n:]
			if len(missing) > 0 && time.Since(last) >= publishLate {
				x.publishVectors()
				last = time.Now()
			}
		}
		x.publishVectors()
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		m.failing = err
		m.mu.Unlock()
		var again <-chan time.Time
		if err != nil {
			m.log.Warn("tools cannot be embedded; they are found by their words meanwhile", "error", err, "again_in", wait.String())
			again = time.After(wait)
			wait = min(2*wait, retryLast)
		} else {
			wait = retryFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-again:
		}
	}
}

// missing are the tools without vectors, each text once.
func (x *Index) missing() []*doc {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.meaning
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*doc
	seen := map[digest]bool{}
	for _, d := range x.docs {
		if m.known[d.means] == nil && !seen[d.means] {
			seen[d.means] = true
			out = append(out, d)
		}
	}
	return out
}

func (x *Index) embedSome(ctx context.Context, docs []*doc) error {
	m := x.meaning
	texts := make([]string, len(docs))
	for i, d := range docs {
		texts[i] = embeddingText(d.tool)
	}
	got, err := m.e.Embed(ctx, texts)
	if err != nil {
		return err
	}
	if len(got) != len(texts) {
		return toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedder gave %d vectors for %d texts", len(got), len(texts))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, v := range got {
		if len(v) != m.e.Dimensions() {
			return toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedder gave a vector of %d numbers; %s has %d", len(v), m.e.Model(), m.e.Dimensions())
		}
		m.known[docs[i].means] = v
		if m.file == nil {
			continue
		}
		if err := m.file.add(docs[i].means, v); err != nil {
			// Searching goes on; the next start embeds again.
			m.log.Warn("vectors cannot be kept for the next start", "error", err)
			m.file.broken = true
		}
	}
	return nil
}

// publishVectors gives the published index the vectors that there are, and forgets
// those of tools long gone.
func (x *Index) publishVectors() {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := *x.current.Load()
	x.meaning.fill(&p)
	x.current.Store(&p)
}

// fill is called with x.mu held.
func (m *meaning) fill(p *postings) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) > 4*len(p.docs)+4096 {
		live := make(map[digest][]float32, len(p.docs))
		for _, d := range p.docs {
			if v := m.known[d.means]; v != nil {
				live[d.means] = v
			}
		}
		m.known = live
	}
	p.vectors = make([][]float32, len(p.docs))
	for i, d := range p.docs {
		p.vectors[i] = m.known[d.means]
	}
}

// embeddingText is what a tool's vector stands for (Discovery 3.2): its name in words,
// what it does, its guidance, tags, use cases and the scenarios of its examples.
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
	add(m.Description)
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

// vectors gives those of what is asked, which is often asked again.
func (m *meaning) vectors(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	var missing []string
	m.mu.Lock()
	for i, text := range texts {
		if out[i] = m.queries[text]; out[i] == nil {
			missing = append(missing, text)
		}
	}
	m.mu.Unlock()
	if len(missing) == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.limit)
	defer cancel()
	got, err := m.e.Embed(ctx, missing)
	if err != nil {
		return nil, err
	}
	if len(got) != len(missing) {
		return nil, toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedder gave %d vectors for %d texts", len(got), len(missing))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queries) >= maxQueries {
		clear(m.queries)
	}
	for i := range out {
		if out[i] != nil {
			continue
		}
		if len(got[0]) != m.e.Dimensions() {
			return nil, toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedder gave a vector of %d numbers; %s has %d", len(got[0]), m.e.Model(), m.e.Dimensions())
		}
		out[i], m.queries[texts[i]] = got[0], got[0]
		got = got[1:]
	}
	return out, nil
}

// compare gives, for each text and each tool of p, how much they mean alike: the cosine,
// 0 for what has no vector or means the opposite. It is nil where that is not to be had,
// and why.
func (x *Index) compare(ctx context.Context, p *postings, texts []string) ([][]float32, string) {
	m := x.meaning
	if m == nil {
		return nil, "no embedding model is installed, so that words alone are compared; `toolkeep models install` brings one"
	}
	asked, err := m.vectors(ctx, texts)
	if err != nil {
		return nil, "the embedding model does not answer, so that words alone are compared: " + toolkeep.AsError(err).Message
	}
	out := make([][]float32, len(asked))
	for i, v := range asked {
		out[i] = make([]float32, len(p.docs))
		for j, d := range p.vectors {
			if d != nil {
				out[i][j] = max(0, vek32.Dot(v, d))
			}
		}
	}
	return out, ""
}
