package minilm

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/toolkeep/toolkeep"
)

// Lazy opens the model of a folder when the first text is embedded.
type Lazy struct {
	Dir  string
	once sync.Once
	m    *Model
	err  error
}

// Model implements discover.Embedder.
func (l *Lazy) Model() string { return Name }

// Dimensions implements discover.Embedder.
func (l *Lazy) Dimensions() int { return Dimensions }

// Embed implements discover.Embedder.
func (l *Lazy) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	return l.m.Embed(ctx, texts)
}

// EmbedNow implements discover.Prompt.
func (l *Lazy) EmbedNow(ctx context.Context, texts []string) ([][]float32, error) {
	if err := l.open(); err != nil {
		return nil, err
	}
	return l.m.EmbedNow(ctx, texts)
}

func (l *Lazy) open() error {
	l.once.Do(func() { l.m, l.err = Open(Config{Dir: l.Dir}) })
	return l.err
}

// Close closes the model; it cannot be opened afterwards.
func (l *Lazy) Close() error {
	l.once.Do(func() { l.err = toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding model is closed") })
	if l.m == nil {
		return nil
	}
	return l.m.Close()
}

// In is where the model lies below a folder of models.
func In(models string) string { return filepath.Join(models, Name) }
