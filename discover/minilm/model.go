package minilm

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/toolkeep/toolkeep"
)

// Name is what vectors of this model are stored under.
const Name = "all-MiniLM-L6-v2"

// Names of the two files.
const (
	WeightsFile    = "model.safetensors"
	VocabularyFile = "vocab.txt"
)

// Config says where the model is. Dir is required.
type Config struct {
	Dir string
	// Threads is how many texts are worked on at once; default half of the processors,
	// at least 1, so that calls go on meanwhile.
	Threads int
}

// Model is the encoder. It is safe for concurrent use.
type Model struct {
	w       *weights
	t       *tokenizer
	threads chan struct{}
	pool    sync.Pool

	mu     sync.RWMutex // held for reading while the weights are in use
	closed bool

	gone atomic.Pointer[error] // why the weights cannot be read any more
}

// Open maps the weights and reads the vocabulary; it takes some milliseconds.
//
// E3102 if the folder does not hold this model.
func Open(c Config) (*Model, error) {
	t, err := readVocabulary(filepath.Join(c.Dir, VocabularyFile))
	if err != nil {
		return nil, unusable(err)
	}
	w, err := openWeights(filepath.Join(c.Dir, WeightsFile))
	if err != nil {
		return nil, unusable(err)
	}
	n := c.Threads
	if n <= 0 {
		n = max(1, runtime.GOMAXPROCS(0)/2)
	}
	return &Model{w: w, t: t, threads: make(chan struct{}, n), pool: sync.Pool{New: func() any { return new(work) }}}, nil
}

func unusable(err error) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding model cannot be read (%v); install it with `toolkeep models install`", err)
}

func unreadable(err error) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding model cannot be read any more (%v); install it again with `toolkeep models install`, then restart", err).Because(err)
}

// Close gives the weights back when no text is being worked on. A closed Model
// answers E3102.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	return m.w.close()
}

// Model is Name.
func (m *Model) Model() string { return Name }

// Dimensions is 384.
func (m *Model) Dimensions() int { return Dimensions }

// Embed gives the vectors of texts, those of several callers beside each other up to
// Config.Threads. Of a text that is longer than 256 tokens the beginning counts.
//
// E3102 if the model was closed, and, from then on until the model is opened again, if its
// file was found cut or written over; E3902 if ctx ends.
func (m *Model) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, 0, len(texts))
	for len(out) < len(texts) {
		some, err := m.embed(ctx, texts[len(out):])
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// embed gives the vectors of as many texts as are worked on at once, at least of one.
func (m *Model) embed(ctx context.Context, texts []string) ([][]float32, error) {
	select {
	case m.threads <- struct{}{}:
		defer func() { <-m.threads }()
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil, toolkeep.NewError(toolkeep.Cancelled, "embedding was given up: %v", context.Cause(ctx)).Because(ctx.Err())
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding model is closed").Because(errors.New("closed"))
	}
	if gone := m.gone.Load(); gone != nil {
		return nil, unreadable(*gone)
	}
	w := m.pool.Get().(*work)
	defer m.pool.Put(w)
	w.ids, w.ends = w.ids[:0], w.ends[:0]
	for _, text := range texts {
		before := len(w.ids)
		if w.ids = m.t.ids(w.ids, text); len(w.ids) > maxTokens { // never the first
			w.ids = w.ids[:before]
			break
		}
		w.ends = append(w.ends, len(w.ids))
	}
	var out [][]float32
	if err := reading(m.w.path, m.w.data, func() { out = m.forward(w) }); err != nil {
		// Whatever the file holds later, it may be a part of another model.
		m.gone.Store(&err)
		return nil, unreadable(err)
	}
	return out, nil
}
