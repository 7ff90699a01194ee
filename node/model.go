package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/minilm"
	"github.com/toolkeep/toolkeep/discover/remote"
)

// ModelDir is where the embedding model of a data directory lies, unless the setting
// search.models_dir names another folder of models.
func ModelDir(data, models string) string {
	if models == "" {
		models = filepath.Join(data, "models")
	}
	return filepath.Join(models, minilm.Name)
}

// buildIndex makes the search index, which compares meanings where an embedding service
// is configured or a model is installed.
func (n *Node) buildIndex() error {
	c := n.config.Search
	n.model = &lazyModel{dir: ModelDir(n.config.Data, c.ModelsDir)}
	ic := discover.Config{Weights: discover.Weights{Semantic: c.SemanticWeight, Keyword: c.KeywordWeight}, Log: n.logger("search")}
	file := minilm.Name
	there := minilm.Installed(n.model.dir)
	switch {
	case c.Model == "none":
	case c.EmbeddingsURL != "":
		service, err := n.embeddingService()
		if err != nil {
			return err
		}
		ic.Embedder, file = service, "service"
	case there:
		ic.Embedder = n.model
	case c.Model == minilm.Name:
		return toolkeep.NewError(toolkeep.InvalidManifest, "search.model is %s, and %s does not hold it; install it with `toolkeep models install`, or set search.model to auto", c.Model, n.model.dir)
	}
	ic.VectorFile = filepath.Join(n.config.Data, "vectors", file+".vec")
	n.index = discover.New(ic)
	return nil
}

func (n *Node) embeddingService() (*remote.Embedder, error) {
	c := n.config.Search
	rc := remote.Config{URL: c.EmbeddingsURL, Model: c.EmbeddingsModel, Dimensions: c.EmbeddingsDimensions}
	if c.EmbeddingsKey != "" {
		rc.Key = func(ctx context.Context) (string, error) {
			key, err := n.secrets.Resolve(ctx, System(), c.EmbeddingsKey)
			if err != nil {
				return "", err
			}
			n.redact.Hold(key)()
			return key, nil
		}
	}
	return remote.New(rc)
}

// searchHealth tells that search compares words alone although a model is there.
func (n *Node) searchHealth(context.Context) error {
	if have, of, err := n.index.Embedded(); err != nil {
		return fmt.Errorf("%d of %d tools have vectors, and the embedding model fails: %w; search compares words alone", have, of, err)
	}
	return nil
}

func (n *Node) closeIndex() {
	if n.index == nil {
		return
	}
	if err := errors.Join(n.index.Close(), n.model.close()); err != nil {
		n.logger("search").Warn("the index was not closed well", "error", err)
	}
}

// lazyModel opens the model when the first text is embedded.
type lazyModel struct {
	dir  string
	once sync.Once
	m    *minilm.Model
	err  error
}

func (l *lazyModel) Model() string   { return minilm.Name }
func (l *lazyModel) Dimensions() int { return minilm.Dimensions }

func (l *lazyModel) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	l.once.Do(func() { l.m, l.err = minilm.Open(minilm.Config{Dir: l.dir}) })
	if l.err != nil {
		return nil, l.err
	}
	return l.m.Embed(ctx, texts)
}

func (l *lazyModel) close() error {
	l.once.Do(func() { l.err = toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding model is closed") })
	if l.m == nil {
		return nil
	}
	return l.m.Close()
}
