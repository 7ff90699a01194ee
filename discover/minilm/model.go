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

// Name is the model name under which vectors are stored.
const Name = "all-MiniLM-L6-v2"

// Names of the two files.
const (
	WeightsFile    = "model.safetensors"
	VocabularyFile = "vocab.txt"
)

// Config says where the model is. Dir is required.
type Config struct {
	Dir string
	// Threads is how many passes Embed runs at once, and EmbedNow as many beside them; default half of the
	// processors, at least 1, which leaves capacity for calls.
	Threads int
}

// Model is the encoder. It is safe for concurrent use.
type Model struct {
	w       *weights
	t       *tokenizer
	threads chan struct{} // passes of Embed
	now     chan struct{} // passes of EmbedNow
	pool    sync.Pool

	mu     sync.RWMutex // held for reading while the weights are in use
	closed bool

	gone atomic.Pointer[error] // why the weights can no longer be read
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
	return &Model{w: w, t: t, threads: make(chan struct{}, n), now: make(chan struct{}, n), pool: sync.Pool{New: func() any { return new(work) }}}, nil
}

func unusable(err error) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding model cannot be read (%v); install it with `toolkeep models install`", err)
}

func unreadable(err error) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding model cannot be read any more (%v); install it again with `toolkeep models install`, then restart", err).Because(err)
}

// Close releases the weights once no text is being processed. A closed Model answers E3102.
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

// Embed returns the vectors of texts; calls run in parallel up to Config.Threads. Of a text over
// 256 tokens the start counts.
//
// E3102 if the model was closed, and, from then on until it is opened again, if its file was found
// truncated or overwritten; E3902 if ctx ends.
func (m *Model) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	return m.embed(ctx, m.threads, texts)
}

// EmbedNow is Embed for texts that a caller waits for, such as a question: no call of Embed holds it up.
func (m *Model) EmbedNow(ctx context.Context, texts []string) ([][]float32, error) {
	return m.embed(ctx, m.now, texts)
}

func (m *Model) embed(ctx context.Context, slots chan struct{}, texts []string) ([][]float32, error) {
	out := make([][]float32, 0, len(texts))
	for len(out) < len(texts) {
		some, err := m.pass(ctx, slots, texts[len(out):])
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// pass returns the vectors of as many texts as fit into one pass, at least one.
func (m *Model) pass(ctx context.Context, slots chan struct{}, texts []string) ([][]float32, error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
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
		// Whatever the file holds from now on may belong to another model.
		m.gone.Store(&err)
		return nil, unreadable(err)
	}
	return out, nil
}
